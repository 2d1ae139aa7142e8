"""A buyer's own quotes: one small file of prices by node or accelerator, which win over the catalogue's.

quotes:
  - {node: p5.48xlarge, price: 60 USD/h, terms: one year}     # of the whole machine
  - {accelerator: a100-sxm4-80gb, price: 1.40 USD/h}          # of one accelerator
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from perfmodel.errors import Problem, SpecError, did_you_mean
from perfmodel.specs.checking import build
from perfmodel.specs.fields import Date, HourlyPrice, SpecModel, problem
from perfmodel.specs.hardware import Cluster
from perfmodel.specs.loader import Tree, read_file
from perfmodel.units import format_quantity

if TYPE_CHECKING:
    from perfmodel.specs.catalog import Catalog

# A price of one accelerator that is so many times the median of what is sold, or less than one over it, is asked about: a
# machine has eight accelerators as a rule.
ODD = 4.0


class Quote(SpecModel):
    """What somebody offers."""

    node: str | None = Field(None, description="Node or cluster id: the price is of the whole machine.")
    accelerator: str | None = Field(None, description="Accelerator id: the price is of one.")
    price: HourlyPrice = Field(description="By the hour.")
    per: Literal["machine", "accelerator"] | None = Field(
        None,
        description="What the price is of, where that is not as usual: of a node the machine, else one accelerator.",
    )
    regime: Literal["on-demand", "spot", "reserved"] = Field(
        "on-demand", description="on-demand, spot or reserved."
    )
    provider: str | None = Field(None, description="Who offers it.")
    terms: str | None = Field(None, description="Anything else that was agreed.")
    date: Date | None = Field(None, description="When it was offered.")

    @model_validator(mode="after")
    def _consistent(self) -> Quote:
        if (self.node is None) == (self.accelerator is None):
            raise problem("S004", "a quote is of a node or of an accelerator", "name one of the two")
        return self


class Quotes(SpecModel):
    """A file of quotes."""

    quotes: tuple[Quote, ...] = Field(description="What was offered.")


def read_quotes(path: Path, catalog: Catalog) -> tuple[Quote, ...]:
    """The quotes of a file; each names something of the catalogue, and says what a price is of where that is in doubt."""
    tree = read_file(path)
    if isinstance(tree.value, list):
        tree = Tree({"quotes": tree}, tree.mark, {"quotes": tree.mark})
    if not isinstance(tree.value, dict):
        raise SpecError(
            tree.mark.problem("S005", "a list of quotes", "such as - {node: p5.48xlarge, price: 60 USD/h}")
        )
    read = build(Quotes, tree)
    problems = []
    for at, quote in enumerate(read.quotes):
        problems += _wrong(quote, tree, at, catalog)
    if problems:
        raise SpecError(problems)
    return read.quotes


def _wrong(quote: Quote, tree: Tree, at: int, catalog: Catalog) -> list[Problem]:
    """A name that the catalogue lacks, or a price that may be of something else."""
    kind, name = ("nodes", quote.node) if quote.node is not None else ("accelerators", quote.accelerator)
    key = kind.removesuffix("s")
    known = [*catalog.names(kind), *(catalog.names("clusters") if kind == "nodes" else ())]
    if name not in known:
        guess = did_you_mean(str(name), known)
        mark = tree.mark_at(f"quotes.{at}.{key}")
        return [
            mark.problem("S008", f'no {key} "{name}"{guess}', f"perfmodel catalog list {kind} has them all")
        ]
    if quote.per is not None:
        return []
    device, count = _machine(quote, catalog)
    each, usual = quote.price / (count if kind == "nodes" else 1), median_rate(device, catalog)
    if usual is None or not each or usual / ODD < each < usual * ODD:
        return []
    shown = f"{format_quantity(each, 'USD/s', 3)} for one {device}, where {format_quantity(usual, 'USD/s', 3)} is usual"
    mark = tree.mark_at(f"quotes.{at}.price")
    return [
        mark.problem(
            "S013",
            f"is this price of a machine or of an accelerator? {shown}",
            "write per: machine or per: accelerator",
        )
    ]


def _machine(quote: Quote, catalog: Catalog) -> tuple[str, int]:
    """The accelerator that a quote is about, and how many a machine has."""
    if quote.accelerator is not None:
        return quote.accelerator, 1
    node = catalog.cluster(str(quote.node)).node
    return str(node.accelerator.name), node.accelerators_per_node


def median_rate(accelerator: str, catalog: Catalog) -> float | None:
    """On-demand USD per second of one accelerator, median of the catalogue's price records; None where nobody sells it."""
    rates = [
        rate / offer.accelerators
        for offer in catalog.offers(accelerator)
        if (rate := offer.on_demand) is not None
    ]
    return statistics.median(rates) if rates else None


def quoted(quotes: Sequence[Quote], cluster: Cluster, regime: str) -> tuple[Quote, float] | None:
    """The quote for a cluster and USD per second of one of its accelerators: of its node before one of its accelerator."""
    node = cluster.node
    fitting = [one for one in quotes if one.regime == regime]
    own = next((one for one in fitting if one.node in (node.name, cluster.name)), None)
    found = own or next((one for one in fitting if one.accelerator == node.accelerator.name), None)
    if found is None:
        return None
    of_machine = found.per == "machine" or (found.per is None and found.node is not None)
    return found, found.price / (node.accelerators_per_node if of_machine else 1)
