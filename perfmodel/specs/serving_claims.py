"""What a slide says of a service: tokens per second, and whatever it adds. The audit says what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from perfmodel.errors import SpecError
from perfmodel.specs.catalog import Catalog, Resolution
from perfmodel.specs.checking import build
from perfmodel.specs.fields import Count, Date, FileModel, Fraction, HourlyPrice, Number, SpecModel, problem
from perfmodel.specs.hardware import Accelerator, Cluster
from perfmodel.specs.jobs import locate
from perfmodel.specs.loader import Mark, Source, Tree, graft, read_file
from perfmodel.specs.serving import CachePrecision, EngineName, Limits, ServedPrecision, Speculative
from perfmodel.specs.workload import Workload

Positive = Annotated[float, Number(least=0, most=1e18, above=True)]
Tokens = Annotated[float, Number(least=1, most=1e8)]


class ClaimedService(SpecModel):
    """The numbers of the slide, and the conditions that it states."""

    tokens_per_s: Positive = Field(description="The claimed rate.")
    tokens: Literal["output", "total"] | None = Field(
        None, description="output tokens alone, or total with the prompts."
    )
    per: Literal["system", "accelerator", "user"] | None = Field(
        None, description="Of everything, of one accelerator, or of one user."
    )
    accelerators: Count | None = Field(None, description="Accelerators behind the number.")
    input_tokens: Tokens | None = Field(None, description="Tokens of a prompt.")
    output_tokens: Tokens | None = Field(None, description="Tokens of an answer.")
    concurrency: Count | None = Field(None, description="Requests in flight.")
    scenario: Literal["offline", "server"] | None = Field(
        None, description="offline: throughput alone; server: under a latency."
    )
    ttft: Limits | None = Field(None, description="Stated time to the first token: {p99: 2 s}.")
    tpot: Limits | None = Field(None, description="Stated time per output token: {p99: 50 ms}.")
    kv_precision: CachePrecision | None = Field(None, description="Keys and values.")
    prefix_hit: Fraction | None = Field(None, description="Share of prompt tokens that were cached.")
    speculative: Speculative | Literal[False] | None = Field(
        None, description="Drafted tokens, or false where there were none."
    )
    engine: EngineName | None = Field(None, description="Software.")
    version: str | None = Field(None, description="Its version.")


class ServiceClaim(FileModel):
    """A vendor's claim about a service."""

    name: str | None = Field(None, description="What to call the claim.")
    vendor: str | None = Field(None, description="Who says it.")
    source: str | None = Field(None, description="Where it was said.")
    date: Date | None = Field(None, description="When it was said.")
    notes: str | None = Field(None, description="Anything else.")
    workload: Workload = Field(description="Zoo name, or inline.")
    cluster: Cluster | None = Field(None, description="Catalogue name, or inline.")
    accelerator: Accelerator | None = Field(
        None, description="Accelerator id, when that is all the slide says."
    )
    precision: ServedPrecision | None = Field(None, description="Weights and arithmetic.")
    serving: ClaimedService = Field(description="What is claimed.")
    price: HourlyPrice | None = Field(None, description="Per accelerator.")

    @model_validator(mode="after")
    def _has_hardware(self) -> ServiceClaim:
        if self.cluster is None and self.accelerator is None:
            raise problem(
                "S004", "a claim names a cluster or an accelerator", "write accelerator: h100-sxm5-80gb"
            )
        return self

    @property
    def device(self) -> Accelerator:
        """The accelerator, whether named or part of the cluster."""
        if self.accelerator is not None:
            return self.accelerator
        assert self.cluster is not None  # the model's own check
        return self.cluster.node.accelerator


def load_service_claim(
    source: str | Path | Mapping[str, object], *, catalog: Catalog | None = None
) -> ServiceClaim:
    """Read a claim about a service; names are looked up, nothing is assumed."""
    catalog = catalog or Catalog.default()
    if isinstance(source, Mapping):
        return service_claim_from_tree(graft(dict(source), Mark(Source("claim"))), Path(), catalog)
    path = Path(source)
    tree = read_file(path)
    if not isinstance(tree.value, dict):
        raise SpecError(tree.mark.problem("S005", "a claim is a mapping of keys"))
    return service_claim_from_tree(tree, path.parent, catalog)


def service_claim_from_tree(tree: Tree, folder: Path, catalog: Catalog) -> ServiceClaim:
    """The claim that a mapping describes."""
    result = Resolution(tree)
    for key, kind in (("workload", "workloads"), ("cluster", "clusters"), ("accelerator", "accelerators")):
        locate(result, key, kind, folder, catalog)
    claim = build(ServiceClaim, result.tree, result.bad, result.problems)
    claim._tree = result.tree
    return claim
