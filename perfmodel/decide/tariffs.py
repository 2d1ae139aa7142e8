"""From a job's price and reliability to a tariff, and the catalogue's regimes side by side."""

from __future__ import annotations

import dataclasses
import math

from perfmodel.decide.goodput import Reliability
from perfmodel.decide.pricing import Ownership, Tariff, Tier
from perfmodel.specs import job as specs
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.economy import Price, PriceRegime
from perfmodel.specs.hardware import Cluster
from perfmodel.specs.loader import Mark, Source
from perfmodel.specs.prices import resolve_price

DAY_S = 86400.0
# Where a spot price comes without an interruption rate: a node is taken away once a day, the cap that one
# provider puts on its preemptible machines. Published traces range from 10 % an hour to a few percent a month.
SPOT_INTERVAL_S = DAY_S
REGIMES: tuple[PriceRegime, ...] = ("on-demand", "spot", "reserved", "owned")


def reliability_of(cluster: Cluster, given: specs.Reliability | None, price: Price) -> Reliability | None:
    """Failures of the job's own words and preemptions of its price together; None when there are neither."""
    preempted = 0.0
    if price.regime == "spot":
        preempted = 1.0 / (price.preemption_interval or SPOT_INTERVAL_S)
    if given is None and not preempted:
        return None
    words = given or specs.Reliability()
    return Reliability(
        mtbf_per_accelerator_s=words.mtbf_per_accelerator or math.inf,
        mtbf_per_node_s=words.mtbf_per_node or math.inf,
        preemption_per_node_s=preempted,
        accelerators_per_node=cluster.node.accelerators_per_node,
        checkpoint_s=words.checkpoint,
        restart_s=words.restart,
        interval_s=words.interval,
        spares=words.spares,
        repair_s=words.repair,
    )


def tariff_of(price: Price, cluster: Cluster, reliability: specs.Reliability | None = None) -> Tariff:
    """The tariff that a resolved price describes; an unknown price gives NaN costs."""
    node = cluster.node.accelerators_per_node
    rate = math.nan if price.per_accelerator is None else price.per_accelerator
    note = price.note or ""
    if price.regime == "reserved" and price.utilisation:
        rate = rate / price.utilisation
        note = f"{note}; used {price.utilisation:.0%} of the term".lstrip("; ")
    interruptions = reliability_of(cluster, reliability, price)
    if price.regime == "spot" and price.preemption_interval is None:
        note = f"{note}; assumed that a node is taken away once a day".lstrip("; ")
    return Tariff(
        name=price.regime,
        usd_per_accelerator_s=rate,
        fixed_usd_per_s=price.fixed,
        node_size=node if price.whole_nodes else 1,
        minimum_k=price.minimum_accelerators or 0,
        minimum_s=price.minimum_time or 0.0,
        tiers=tuple(Tier(tier.from_accelerators, tier.per_accelerator) for tier in price.tiers),
        storage_usd_per_s=price.storage,
        egress_usd=price.egress,
        value_of_time_usd_per_s=price.value_of_time,
        interruptions=interruptions,
        spares=interruptions.spares * node if interruptions else 0,
        note=note,
    )


def ownership_of(price: Price) -> Ownership | None:
    """The owned machine of a resolved price, for its break-even utilisation; None without a purchase price."""
    if price.regime != "owned" or price.purchase is None or price.life is None:
        return None
    return Ownership(
        purchase_usd=price.purchase,
        life_s=price.life,
        resale_usd=price.resale or 0.0,
        utilisation=price.utilisation or 1.0,
        power_w=price.power or 0.0,
        idle_power_w=price.idle_power or 0.0,
        pue=price.pue or 1.0,
        electricity_usd_per_j=price.electricity or 0.0,
        hosting_usd_per_s=price.hosting or 0.0,
        interest_per_year=price.interest or 0.0,
    )


@dataclasses.dataclass(frozen=True)
class Regime:
    """One regime of the table: its tariff and, for an owned machine, the utilisation at which owning pays."""

    tariff: Tariff
    break_even_utilisation: float | None = None
    utilisation: float | None = None


def regimes_of(
    price: Price, cluster: Cluster, catalog: Catalog, reliability: specs.Reliability | None = None
) -> list[Regime]:
    """The job's own regime as it is, and the others at the catalogue's prices where it has them.

    What is fixed per hour, the value of time and whole-node billing are taken from the job's price.
    """
    prices: list[Price] = []
    for regime in REGIMES:
        if regime == price.regime:
            prices.append(price)
            continue
        wanted = Price(
            regime=regime,
            fixed=price.fixed,
            value_of_time=price.value_of_time,
            whole_nodes=price.whole_nodes,
        )
        found, problems = resolve_price(wanted, cluster, catalog, Mark(Source("")))
        if not problems and found.per_accelerator is not None:
            prices.append(found)
    rent = next((p.per_accelerator for p in prices if p.regime == "on-demand"), None)
    rows = []
    for found in prices:
        if found.per_accelerator is None:
            continue
        own = ownership_of(found)
        even = own.break_even_utilisation(rent) if own is not None and rent is not None else None
        used = own.utilisation if own is not None else None
        rows.append(Regime(tariff_of(found, cluster, reliability), even, used))
    return rows
