"""What machines cost and what their electricity emits."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from perfmodel.specs.fields import (
    Count,
    Duration,
    Efficiency,
    Fraction,
    HourlyPrice,
    Money,
    Number,
    Quantity,
    Record,
    SpecModel,
    TimeBetweenFailures,
    problem,
)

PriceRegime = Literal["on-demand", "spot", "reserved", "owned"]
ElectricityPrice = Annotated[float, Quantity("USD/J", most="10 USD/kWh")]


class Offer(Record):
    """A price record of the catalogue: one machine at one provider. Prices are for the whole machine."""

    provider: str | None = Field(None, description="Who sells it.")
    node: str | None = Field(None, description="Node id, when the machine is in the catalogue.")
    accelerator: str | None = Field(None, description="Accelerator id.")
    accelerators: Annotated[float, Number(least=0, most=100_000, above=True)] = Field(
        description="Accelerators in the machine."
    )
    on_demand: HourlyPrice | None = Field(None, description="By the hour, median over regions.")
    on_demand_min: HourlyPrice | None = Field(None, description="By the hour, cheapest region.")
    spot: HourlyPrice | None = Field(None, description="Interruptible, median over regions.")
    spot_min: HourlyPrice | None = Field(None, description="Interruptible, cheapest region.")
    reserved_1y: HourlyPrice | None = Field(None, description="One year committed.")
    reserved_3y: HourlyPrice | None = Field(None, description="Three years committed.")
    capacity_block: HourlyPrice | None = Field(
        None, description="Reserved in advance for a few days or weeks."
    )
    purchase: Money | None = Field(None, description="Bought.")

    def hourly(self, regime: PriceRegime) -> float | None:
        """Price of the machine [USD/s] in a rented regime, or None."""
        if regime == "spot":
            return self.spot
        if regime == "reserved":
            return next(
                (p for p in (self.reserved_1y, self.reserved_3y, self.capacity_block) if p is not None), None
            )
        return self.on_demand if regime == "on-demand" else None

    @model_validator(mode="after")
    def _priced(self) -> Offer:
        fields = ("on_demand", "spot", "reserved_1y", "reserved_3y", "capacity_block", "purchase")
        if all(getattr(self, field) is None for field in fields):
            raise problem("S004", "no price given", f"give one of {', '.join(fields)}")
        return self


class PriceTier(SpecModel):
    """Another price from a number of accelerators on: only what lies beyond has it."""

    from_accelerators: Count = Field(description="The first accelerator that has this price.")
    per_accelerator: HourlyPrice = Field(description="Price of one accelerator by the hour.")


class Price(SpecModel):
    """What a job pays. In a job file every key is optional; resolved, `per_accelerator` is always there."""

    regime: PriceRegime = Field("on-demand", description="on-demand, spot, reserved or owned.")
    per_accelerator: HourlyPrice | None = Field(None, description="Price of one accelerator by the hour.")
    fixed: HourlyPrice = Field(
        0.0, description="Paid by the hour whatever K is: head node, storage, licences."
    )
    value_of_time: HourlyPrice = Field(0.0, description="What an hour of waiting costs the people who wait.")
    whole_nodes: bool = Field(False, description="Whether a node that is used in part is paid in full.")
    minimum_accelerators: Count | None = Field(None, description="The fewest accelerators that are billed.")
    minimum_time: Duration | None = Field(None, description="The shortest time that is billed.")
    tiers: tuple[PriceTier, ...] = Field((), description="Other prices from a number of accelerators on.")
    storage: HourlyPrice = Field(0.0, description="What is stored while the run lasts, by the hour.")
    egress: Money = Field(0.0, description="Carrying the result away, once.")
    preemption_interval: TimeBetweenFailures | None = Field(
        None, description="Spot: mean time between interruptions of one node."
    )
    utilisation: Efficiency | None = Field(
        None, description="Reserved or owned: share of the time in which it works."
    )
    purchase: Money | None = Field(
        None, description="Owned: price of one accelerator with its share of the node."
    )
    resale: Money | None = Field(None, description="Owned: what is got back at the end.")
    life: Duration | None = Field(None, description="Owned: time in service.")
    power: Annotated[float, Quantity("W", most="100 kW")] | None = Field(
        None, description="Owned: power per accelerator under load, host included."
    )
    idle_power: Annotated[float, Quantity("W", most="100 kW")] | None = Field(
        None, description="Owned: power per accelerator at rest."
    )
    pue: Annotated[float, Number(least=1, most=5)] | None = Field(
        None, description="Owned: power usage effectiveness of the room."
    )
    electricity: ElectricityPrice | None = Field(None, description="Owned: price of electricity.")
    hosting: HourlyPrice | None = Field(None, description="Owned: space and people, per accelerator.")
    interest: Fraction | None = Field(None, description="Owned: cost of capital per year.")
    provider: str | None = Field(None, description="Take the catalogue's price of this provider.")
    source: str | None = Field(None, description="Where the price comes from.")
    date: str | None = Field(None, description="When it was true.")
    note: str | None = Field(None, description="How the price was found.")


class PriceWords(Price):
    """A price as a job file writes it: words that contradict each other are refused."""

    @model_validator(mode="after")
    def _consistent(self) -> PriceWords:
        owned = (
            "purchase",
            "resale",
            "life",
            "power",
            "idle_power",
            "pue",
            "electricity",
            "hosting",
            "interest",
        )
        if self.regime != "owned":
            for key in owned:
                if getattr(self, key) is not None:
                    raise problem(
                        "S010",
                        f'"{key}" belongs to regime owned, not {self.regime}',
                        "write regime: owned",
                        at=key,
                    )
        elif self.per_accelerator is not None and self.purchase is not None:
            raise problem(
                "S010",
                "both a price per hour and a purchase price",
                "give one of per_accelerator and purchase",
                at="per_accelerator",
            )
        if self.preemption_interval is not None and self.regime != "spot":
            raise problem(
                "S010",
                f"preemption_interval belongs to regime spot, not {self.regime}",
                at="preemption_interval",
            )
        if self.provider is not None and self.per_accelerator is not None:
            raise problem(
                "S010",
                "both a provider and a price",
                "give one of provider and per_accelerator",
                at="provider",
            )
        if self.purchase is not None and self.resale is not None and self.resale > self.purchase:
            raise problem("S010", "resale exceeds the purchase price", at="resale")
        return self


class Grid(Record):
    """Electricity of a place."""

    kind: (
        Literal["country", "us-state", "cloud-region", "energy-source", "nordic-zone", "canada-province"]
        | None
    ) = Field(None, description="What sort of place it is.")
    place: str | None = Field(None, description="Where it is.")
    carbon: Annotated[float, Quantity("g/J", most="3000 g/kWh")] = Field(
        description="Emissions per energy used."
    )
    low_carbon: Fraction | None = Field(None, description="Share of low-carbon generation.")
    electricity: ElectricityPrice | None = Field(None, description="Price of electricity.")
