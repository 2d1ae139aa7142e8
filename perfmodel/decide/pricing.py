"""What an accelerator-second costs: on-demand, spot, reserved and owned, brought to one form.

Every regime becomes a `Tariff`: a price per accelerator-second, what is paid by the hour whatever the
number of accelerators, how the provider rounds, and how often it interrupts. `decide.cost` multiplies a
tariff with a curve T(K). Prices are USD per second inside; `per_hour` and `HOUR_S` convert.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfmodel.decide.goodput import Reliability
from perfmodel.specs.prices import YEAR_S

HOUR_S = 3600.0

Floats = npt.NDArray[np.float64]


def per_hour(usd: float) -> float:
    """USD per hour as USD per second.

    >>> per_hour(3600.0)
    1.0
    """
    return usd / HOUR_S


@dataclass(frozen=True)
class Tier:
    """From `from_k` billed accelerators on, each costs `usd_per_accelerator_s`."""

    from_k: int
    usd_per_accelerator_s: float


@dataclass(frozen=True)
class Tariff:
    """How a run of K accelerators is billed.

    Parameters
    ----------
    name : the regime's word in tables (`on-demand`, `spot`, `reserved`, `owned`).
    usd_per_accelerator_s : price of one accelerator [USD/s].
    fixed_usd_per_s : paid while the run lasts whatever K is: head node, file system, licences [USD/s].
    node_size : accelerators billed together; K is rounded up to whole nodes.
    minimum_k, minimum_s : smallest number of accelerators and shortest time that are billed.
    tiers : other prices from a number of accelerators on; only those beyond `from_k - 1` have the tier's price.
    storage_usd_per_s : what is stored while the run lasts [USD/s].
    egress_usd : carrying the result away, once [USD].
    value_of_time_usd_per_s : what an hour of waiting costs the people who wait.
    interruptions : preemptions and failures whose lost time is billed as well; None: none.
    spares : accelerators that are paid and do not compute.
    note : where the price comes from, in words.
    """

    name: str
    usd_per_accelerator_s: float
    fixed_usd_per_s: float = 0.0
    node_size: int = 1
    minimum_k: int = 0
    minimum_s: float = 0.0
    tiers: tuple[Tier, ...] = ()
    storage_usd_per_s: float = 0.0
    egress_usd: float = 0.0
    value_of_time_usd_per_s: float = 0.0
    interruptions: Reliability | None = None
    spares: int = 0
    note: str = ""

    def accelerators_scaled(self, factor: float) -> Tariff:
        """Only the accelerators' price multiplied by `factor`; what is fixed per hour stays."""
        return dataclasses.replace(
            self,
            usd_per_accelerator_s=self.usd_per_accelerator_s * factor,
            tiers=tuple(Tier(t.from_k, t.usd_per_accelerator_s * factor) for t in self.tiers),
        )


def whole_nodes(k: npt.ArrayLike, node_size: int) -> Floats:
    """Accelerators in the smallest number of whole nodes that hold `k`.

    >>> whole_nodes([1, 8, 9], 8).tolist()
    [8.0, 8.0, 16.0]
    """
    return np.ceil(np.asarray(k, dtype=float) / node_size) * node_size


def accelerators_usd_per_s(k: npt.ArrayLike, tariff: Tariff) -> Floats:
    r"""Price of `k` billed accelerators [USD/s], tiers included, nothing fixed.

    Tiers integrate the price of each further accelerator.

    >>> t = Tariff("x", 2.0, tiers=(Tier(9, 1.0),))
    >>> accelerators_usd_per_s([8, 10], t).tolist()
    [16.0, 18.0]
    """
    count = np.asarray(k, dtype=float)
    tiers = sorted(tariff.tiers, key=lambda tier: tier.from_k)
    rate = tariff.usd_per_accelerator_s * count
    below = tariff.usd_per_accelerator_s
    for tier in tiers:
        beyond = np.maximum(count - (tier.from_k - 1), 0.0)
        rate = rate + (tier.usd_per_accelerator_s - below) * beyond
        below = tier.usd_per_accelerator_s
    return np.asarray(rate)


def on_demand(usd_per_accelerator_s: float) -> Tariff:
    """Rented by the second, no commitment, no interruptions."""
    return Tariff("on-demand", usd_per_accelerator_s)


def spot(base: Tariff, *, fraction: float, interruptions: Reliability) -> Tariff:
    """Spot capacity at `fraction` of the price of `base`, whose lost time is billed too.

    `interruptions` holds the preemption rate and what a preemption costs: the checkpoints that insure
    against it, the work since the last one, the restart. What is fixed per hour keeps its price.
    """
    priced = base.accelerators_scaled(fraction)
    note = f"{fraction:.0%} of the on-demand price, preemption losses included"
    return dataclasses.replace(priced, name="spot", interruptions=interruptions, note=note)


@dataclass(frozen=True)
class Ownership:
    """One accelerator with its share of node, network and room.

    Parameters
    ----------
    purchase_usd, resale_usd : price at the start and what is got back at the end [USD].
    life_s : time in service [s].
    utilisation : share of that time in which it works for somebody, 0 to 1.
    power_w, idle_power_w : draw of the accelerator and its share of the host, working and idle [W].
    pue : power usage effectiveness of the room, 1 or more.
    electricity_usd_per_j : price of electricity [USD/J].
    hosting_usd_per_s : space, people, maintenance, paid whether it works or not [USD/s].
    interest_per_year : cost of capital; 0 spreads the price evenly over the life.
    """

    purchase_usd: float
    life_s: float
    resale_usd: float = 0.0
    utilisation: float = 1.0
    power_w: float = 0.0
    idle_power_w: float = 0.0
    pue: float = 1.0
    electricity_usd_per_j: float = 0.0
    hosting_usd_per_s: float = 0.0
    interest_per_year: float = 0.0

    @property
    def capital_usd_per_s(self) -> float:
        r"""Capital cost per calendar second [USD/s].

        .. math:: c = \Big(P - \frac{R}{(1+i)^n}\Big)\frac{i}{1 - (1+i)^{-n}} / \text{year},\quad
            i = 0: c = (P - R)/\text{life}

        with P purchase, R resale, i interest per year and n the life in years: the annuity of
        engineering economics.
        """
        years = self.life_s / YEAR_S
        i = self.interest_per_year
        if i == 0.0:
            return (self.purchase_usd - self.resale_usd) / self.life_s
        growth = math.exp(years * math.log1p(i))
        annuity = i / (1.0 - 1.0 / growth)
        return (self.purchase_usd - self.resale_usd / growth) * annuity / YEAR_S

    def _power_usd_per_s(self, watts: float) -> float:
        return watts * self.pue * self.electricity_usd_per_j

    def usd_per_busy_s(self, utilisation: float | None = None) -> float:
        r"""Price of a second of work [USD/s] when the machine works a share u of its life.

        .. math:: p(u) = \frac{c + h + (1-u)\,e_0}{u} + e_1

        c capital, h hosting, e0 and e1 electricity idle and working, per second.

        >>> Ownership(purchase_usd=YEAR_S, life_s=YEAR_S, utilisation=0.5).usd_per_busy_s()
        2.0
        """
        u = self.utilisation if utilisation is None else utilisation
        standing = (
            self.capital_usd_per_s
            + self.hosting_usd_per_s
            + (1.0 - u) * self._power_usd_per_s(self.idle_power_w)
        )
        return standing / u + self._power_usd_per_s(self.power_w)

    def break_even_utilisation(self, rent_usd_per_s: float) -> float | None:
        """Utilisation above which owning is cheaper than renting at `rent_usd_per_s`; None: never.

        Solves `usd_per_busy_s(u) = rent` for u; owning never pays when that u exceeds 1 or electricity
        alone costs more than the rent.

        >>> round(Ownership(purchase_usd=0.6 * YEAR_S, life_s=YEAR_S).break_even_utilisation(1.0), 12)
        0.6
        """
        idle = self._power_usd_per_s(self.idle_power_w)
        gain = rent_usd_per_s + idle - self._power_usd_per_s(self.power_w)
        if gain <= 0.0:
            return None
        u = (self.capital_usd_per_s + self.hosting_usd_per_s + idle) / gain
        return u if u <= 1.0 else None

    def tariff(self, base: Tariff) -> Tariff:
        """This machine as a tariff; storage, fixed prices and the value of time come from `base`."""
        note = f"owned, working {self.utilisation:.0%} of {self.life_s / YEAR_S:.3g} years"
        return dataclasses.replace(
            base,
            name="owned",
            usd_per_accelerator_s=self.usd_per_busy_s(),
            tiers=(),
            minimum_k=0,
            minimum_s=0.0,
            interruptions=None,
            note=note,
        )


def owned_at(base: Tariff, *, fraction: float, utilisation: float) -> Tariff:
    """Owned capacity whose calendar hour costs `fraction` of renting one, working a share `utilisation`.

    The short form of `Ownership` for a comparison that knows only the ratio. Its threshold is plain:
    owning beats renting when `utilisation > fraction`.

    >>> owned_at(on_demand(1.0), fraction=0.6, utilisation=0.6).usd_per_accelerator_s
    1.0
    """
    priced = base.accelerators_scaled(fraction / utilisation)
    note = f"{fraction:.0%} of the on-demand price per calendar hour, working {utilisation:.0%} of them"
    return dataclasses.replace(priced, name="owned", interruptions=None, note=note)


def threshold_utilisation(fraction: float, rent_fraction: float = 1.0) -> float | None:
    """Utilisation above which a calendar price of `fraction` beats renting at `rent_fraction`; None: never.

    >>> threshold_utilisation(0.6)
    0.6
    >>> threshold_utilisation(0.6, 0.3) is None
    True
    """
    u = fraction / rent_fraction
    return u if u <= 1.0 else None
