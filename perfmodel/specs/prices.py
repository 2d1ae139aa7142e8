"""Which price a job pays: its own words, its provider's price, or the market's median, and a note saying which."""

from __future__ import annotations

import math
import statistics

from perfmodel.errors import Problem
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.economy import Offer, Price
from perfmodel.specs.hardware import Cluster, Node
from perfmodel.specs.loader import Mark
from perfmodel.specs.quotes import ODD, Quote, median_rate, quoted
from perfmodel.units import format_quantity, parse

GIVEN = "per accelerator, as given"
YEAR_S = 365.25 * 86400.0
# Owned machines, where the job says nothing: defaults of a public cost calculator (aiinframap.com, 2026).
OWNED_LIFE_S = 4 * YEAR_S
OWNED_UTILISATION = 0.7
OWNED_PUE = 1.2
OWNED_ELECTRICITY = parse("0.08 USD/kWh", "USD/J")


def resolve_price(
    price: Price | None, cluster: Cluster, catalog: Catalog, mark: Mark
) -> tuple[Price, list[Problem]]:
    """Fill in what the job leaves open. `per_accelerator` stays None only where no offer has the accelerator."""
    wanted = price or Price()
    if wanted.per_accelerator is not None:
        note = wanted.note or f"{_hourly(wanted.per_accelerator)} {GIVEN}"
        return wanted.model_copy(update={"note": note + _asked(wanted.per_accelerator, cluster, catalog)}), []
    if wanted.regime == "owned":
        return _owned(wanted, cluster, catalog)
    node = cluster.node
    own_quote = quoted(catalog.quotes, cluster, wanted.regime) if wanted.provider is None else None
    if own_quote is not None:
        return _from_quote(wanted, *own_quote), []
    known = [
        offer for offer in catalog.offers(node.accelerator.name) if offer.hourly(wanted.regime) is not None
    ]
    if wanted.provider is not None:
        chosen = [offer for offer in known if (offer.provider or "").lower() == wanted.provider.lower()]
        if not chosen:
            sellers = ", ".join(sorted({offer.provider for offer in known if offer.provider})) or "nobody"
            message = f'no {wanted.regime} price of {node.accelerator.name} by provider "{wanted.provider}"'
            return wanted, [mark.problem("S008", message, f"{sellers} sells it; or give per_accelerator")]
        return _median(wanted, chosen, f"{wanted.provider}: "), []
    own = _own_offer(node, catalog)
    if own is not None and _rate(own, wanted) is not None:
        rate = _rate(own, wanted)
        what = f"{own.provider or node.provider} {wanted.regime} price of {own.title or own.name}"
        if wanted.regime == "on-demand" and own.on_demand is None:
            what = f"{own.provider or node.provider} capacity-block price of {own.title or own.name}"
        note = f"{what}{f', {own.date}' if own.date else ''}"
        return wanted.model_copy(
            update={"per_accelerator": rate, "note": note, "source": own.source, "date": own.date}
        ), []
    if not known:
        if price is not None and price.regime != "on-demand":
            message = f"no {wanted.regime} price of {node.accelerator.name} is known"
            return wanted, [mark.problem("S008", message, "give per_accelerator: 2.10 USD/h")]
        note = f"no price of {node.accelerator.name} is known: give price: {{per_accelerator: 2.10 USD/h}}"
        return wanted.model_copy(update={"note": note}), []
    reason = f"no {wanted.regime} price of {node.title or node.name} is known"
    return _median(wanted, known, f"{reason}: "), []


def _from_quote(wanted: Price, quote: Quote, rate: float) -> Price:
    words = [f"{_hourly(rate)} per accelerator, your own quote of {quote.node or quote.accelerator}"]
    words += [text for text in (quote.provider, quote.terms, quote.date) if text]
    update = {"per_accelerator": rate, "note": ", ".join(words), "source": "own quote", "date": quote.date}
    return wanted.model_copy(update=update)


def _asked(rate: float, cluster: Cluster, catalog: Catalog) -> str:
    """A question where a price of one accelerator is far from what is usual; nothing elsewhere."""
    device = cluster.node.accelerator.name
    usual = median_rate(str(device), catalog)
    if not usual or usual / ODD < rate < usual * ODD:
        return ""
    count = cluster.node.accelerators_per_node
    times = f"{rate / usual:.3g} times" if rate > usual else f"{usual / rate:.3g} times less than"
    asked = f"is it of a machine of {count}?" if rate > usual else "is it of a part of one?"
    return f"; that is {times} the median of {device} ({_hourly(usual)}): {asked}"


def _own_offer(node: Node, catalog: Catalog) -> Offer | None:
    if node.price_key is None or node.price_key not in catalog.files("prices"):
        return None
    return catalog.get("prices", node.price_key)


def _rate(offer: Offer, price: Price) -> float | None:
    """USD per second of one accelerator."""
    rate = offer.hourly(price.regime)
    if rate is None and price.regime == "on-demand":
        rate = offer.capacity_block
    return None if rate is None else rate / offer.accelerators


def _median(wanted: Price, offers: list[Offer], reason: str) -> Price:
    rates = sorted(rate for offer in offers if (rate := _rate(offer, wanted)) is not None)
    rate = statistics.median(rates)
    dates = sorted(offer.date for offer in offers if offer.date)
    name = offers[0].accelerator
    span = _hourly(rate) if rates[0] == rates[-1] else f"{_hourly(rates[0])} to {_hourly(rates[-1])}"
    note = f"{reason}median of {len(rates)} {wanted.regime} prices of {name} ({span})"
    if len(rates) == 1:
        note = f"{reason}the one {wanted.regime} price of {name} ({offers[0].name})"
    sources = f"{len(offers)} price records of the catalogue" if len(offers) > 1 else offers[0].source
    return wanted.model_copy(
        update={
            "per_accelerator": rate,
            "note": note,
            "source": sources,
            "date": dates[-1] if dates else None,
        }
    )


def _owned(wanted: Price, cluster: Cluster, catalog: Catalog) -> tuple[Price, list[Problem]]:
    """An owned accelerator: purchase spread over its working life, plus hosting and electricity."""
    node = cluster.node
    notes = []
    purchase = wanted.purchase
    if purchase is None:
        own = _own_offer(node, catalog)
        sold = [own] if own is not None else []
        sold += catalog.offers(node.accelerator.name)
        bought = next((offer for offer in sold if offer.purchase is not None), None)
        if bought is None or bought.purchase is None:
            note = f"no purchase price of {node.name} is known: give price: {{regime: owned, purchase: 40000 USD}}"
            return wanted.model_copy(update={"note": note}), []
        purchase = bought.purchase / bought.accelerators
        notes.append(
            f"purchase price of {bought.title or bought.name}{f', {bought.date}' if bought.date else ''}"
        )
    host = (node.host_draw or 0.0) / node.accelerators_per_node
    filled = wanted.model_copy(
        update={
            "purchase": purchase,
            "life": wanted.life or OWNED_LIFE_S,
            "utilisation": wanted.utilisation or OWNED_UTILISATION,
            "power": wanted.power if wanted.power is not None else (node.accelerator.tdp or 0.0) + host,
            "pue": wanted.pue or OWNED_PUE,
            "electricity": wanted.electricity if wanted.electricity is not None else OWNED_ELECTRICITY,
        }
    )
    rate = owned_rate(filled)
    notes.append(f"owned, {_hourly(rate)} per accelerator and working hour")
    return filled.model_copy(update={"per_accelerator": rate, "note": "; ".join(notes)}), []


def owned_rate(price: Price) -> float:
    r"""USD per working second of an owned accelerator.

    .. math:: p = \frac{a\,(P - R(1+i)^{-n}) + h + (1-u)\,e_0}{u} + e_1,\quad
        a = \frac{i}{1-(1+i)^{-n}}/\text{year}\ \ (1/\text{life for } i=0)

    P purchase, R resale, n life in years, i interest per year, h hosting, u utilisation, e0 and e1
    electricity at rest and under load.

    >>> round(owned_rate(Price(regime="owned", purchase=35064.0, life=4 * YEAR_S, utilisation=0.5)) * 3600, 9)
    2.0
    """
    life = price.life or OWNED_LIFE_S
    used = price.utilisation or OWNED_UTILISATION
    interest = price.interest or 0.0
    growth = (1 + interest) ** (life / YEAR_S)
    per_s = 1 / life if interest == 0 else interest / (1 - 1 / growth) / YEAR_S
    energy = (price.pue or 1.0) * (price.electricity or 0.0)
    standing = per_s * ((price.purchase or 0.0) - (price.resale or 0.0) / growth) + (price.hosting or 0.0)
    standing += (1 - used) * (price.idle_power or 0.0) * energy
    rate = standing / used + (price.power or 0.0) * energy
    return rate if math.isfinite(rate) else 0.0


def _hourly(usd_per_s: float) -> str:
    return format_quantity(usd_per_s, "USD/s", 3)
