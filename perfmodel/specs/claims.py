"""What a slide says: a claim about scaling. Fields may be missing; the audit says what their absence hides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, model_validator

from perfmodel.errors import SpecError
from perfmodel.specs.catalog import Catalog, Resolution
from perfmodel.specs.checking import build
from perfmodel.specs.fields import Count, Date, FileModel, HourlyPrice, Number, Quantity, SpecModel, problem
from perfmodel.specs.hardware import Accelerator, Cluster
from perfmodel.specs.job import Regime
from perfmodel.specs.jobs import locate
from perfmodel.specs.layout import Layout, Recompute
from perfmodel.specs.loader import Mark, Source, Tree, graft, read_file
from perfmodel.specs.precisions import Precision
from perfmodel.specs.workload import Workload

Positive = Annotated[float, Number(least=0, most=1e18, above=True)]
Share = Annotated[float, Number(least=0, most=10)]
C = TypeVar("C", bound="VendorClaim")


class Point(SpecModel):
    """Numbers claimed at one K. Names carry their unit, so plain numbers are complete."""

    k: Count = Field(description="Accelerators.")
    time_s: Annotated[float, Quantity("s", most="100000 day", bare=True)] | None = Field(
        None, description="Time of one step."
    )
    throughput: Positive | None = Field(None, description="Samples per second, all accelerators together.")
    tokens_per_s: Positive | None = Field(None, description="Tokens per second, all accelerators together.")
    throughput_per_accelerator: Positive | None = Field(
        None, description="Samples per second of one accelerator."
    )
    tokens_per_s_per_accelerator: Positive | None = Field(
        None, description="Tokens per second of one accelerator."
    )
    speedup: Positive | None = Field(None, description="T(baseline) / T(k).")
    efficiency: Share | None = Field(None, description="Speedup over k.")
    mfu: Share | None = Field(None, description="Model FLOP/s over the peak.")
    tflop_per_s_per_accelerator: Positive | None = Field(
        None, description="Achieved TFLOP/s per accelerator."
    )
    global_batch: Count | None = Field(None, description="Samples per step at this k.")
    batch_per_accelerator: Count | None = Field(
        None, description="Samples per step and accelerator at this k."
    )
    seq_len: Count | None = Field(None, description="Tokens per sequence at this k.")
    precision: Precision | None = Field(None, description="Type of the matmuls at this k.")
    recompute: Recompute | None = Field(None, description="Recomputation at this k.")
    layout: Layout | None = Field(None, description="Layout at this k.")
    repeats: Count | None = Field(None, description="Runs behind the number.")
    spread: Annotated[float, Number(least=0, most=10)] | None = Field(
        None, description="Standard deviation over the mean."
    )
    quality: Annotated[float, Number(least=-1e9, most=1e9)] | None = Field(
        None, description="Accuracy or loss that was reached."
    )
    energy_j: Annotated[float, Quantity("J", bare=True)] | None = Field(
        None, description="Energy of one step, all accelerators."
    )


class Versus(SpecModel):
    """Another machine that the slide compares with."""

    cluster: Cluster | None = Field(None, description="The other machine: catalogue name, or inline.")
    accelerator: Accelerator | None = Field(
        None, description="The other accelerator, when that is all the slide says."
    )
    speedup: Positive = Field(description="How many times as fast the claim's machine is said to be.")
    k: Count | None = Field(None, description="Accelerators of the other machine; as many as of the claim's.")
    precision: Precision | None = Field(
        None, description="Type of the matmuls there; the claim's when missing."
    )

    @property
    def device(self) -> Accelerator | None:
        """The accelerator, whether named or part of the cluster."""
        return self.accelerator or (self.cluster.accelerator if self.cluster is not None else None)


class VendorClaim(FileModel):
    """Who claims something, where, and about what."""

    name: str | None = Field(None, description="What to call the claim.")
    vendor: str | None = Field(None, description="Who says it.")
    source: str | None = Field(None, description="Where it was said.")
    date: Date | None = Field(None, description="When it was said.")
    notes: str | None = Field(None, description="Anything else.")
    workload: Workload | None = Field(None, description="Zoo name, or inline.")
    cluster: Cluster | None = Field(None, description="Catalogue name, or inline.")
    accelerator: Accelerator | None = Field(
        None, description="Accelerator id, when that is all the slide says."
    )

    @property
    def device(self) -> Accelerator | None:
        """The accelerator, whether named or part of the cluster."""
        return self.accelerator or (self.cluster.accelerator if self.cluster is not None else None)


class Claim(VendorClaim):
    """A vendor's claim."""

    precision: Precision | None = Field(None, description="Type of the matmuls.")
    regime: Regime | None = Field(None, description="strong or weak.")
    global_batch: Count | None = Field(None, description="Samples per step.")
    batch_per_accelerator: Count | None = Field(None, description="Samples per step and accelerator.")
    seq_len: Count | None = Field(None, description="Tokens per sequence.")
    layout: Layout | None = Field(None, description="How the work was cut.")
    headline: Point | None = Field(None, description="What the slide shouts.")
    baseline: Point | None = Field(None, description="What speedups are measured from.")
    points: tuple[Point, ...] = Field((), description="The chart.")
    versus: Versus | None = Field(
        None, description="Another machine, and how many times as fast this one is."
    )
    price: HourlyPrice | None = Field(None, description="Per accelerator.")

    @model_validator(mode="after")
    def _consistent(self) -> Claim:
        if not self.points and self.headline is None and self.versus is None:
            raise problem(
                "S004", "a claim needs points or a headline", "such as headline: {k: 256, speedup: 180}"
            )
        if self.versus is not None and (self.versus.device is None or self.device is None):
            raise problem(
                "S004",
                "a comparison of two machines names both",
                "cluster or accelerator, of the claim and in versus",
                at="versus",
            )
        if (
            self.cluster is not None
            and self.accelerator is not None
            and self.cluster.accelerator.name != self.accelerator.name
        ):
            raise problem(
                "S010",
                f"accelerator {self.accelerator.name} is not that of cluster {self.cluster.name}",
                at="accelerator",
            )
        if self.global_batch is not None and self.batch_per_accelerator is not None:
            raise problem("S010", "both global_batch and batch_per_accelerator", at="batch_per_accelerator")
        return self


def load_claim(source: str | Path | Mapping[str, object], *, catalog: Catalog | None = None) -> Claim:
    """Read a claim file, or take a mapping like one; names are looked up, nothing is assumed."""
    return read_claim(Claim, source, catalog)


def read_claim(model: type[C], source: str | Path | Mapping[str, object], catalog: Catalog | None) -> C:
    """A claim of one kind, from its file or from a mapping like one."""
    catalog = catalog or Catalog.default()
    if isinstance(source, Mapping):
        return claim_from_tree(model, graft(dict(source), Mark(Source("claim"))), Path(), catalog)
    path = Path(source)
    tree = read_file(path)
    if not isinstance(tree.value, dict):
        raise SpecError(tree.mark.problem("S005", "a claim is a mapping of keys"))
    return claim_from_tree(model, tree, path.parent, catalog)


def claim_from_tree(model: type[C], tree: Tree, folder: Path, catalog: Catalog) -> C:
    """The claim of one kind that a mapping describes."""
    result = Resolution(tree)
    for key, kind in (("workload", "workloads"), ("cluster", "clusters"), ("accelerator", "accelerators")):
        locate(result, key, kind, folder, catalog)
    versus = result.tree.get("versus")
    if versus is not None and isinstance(versus.value, dict):
        inner = Resolution(versus)
        for key, kind in (("cluster", "clusters"), ("accelerator", "accelerators")):
            locate(inner, key, kind, folder, catalog)
        result.tree = result.tree.with_item("versus", inner.tree)
        result.problems.extend(inner.problems)
        result.bad.extend(("versus", *path) for path in inner.bad)
    claim = build(model, result.tree, result.bad, result.problems)
    claim._tree = result.tree
    return claim
