"""What a slide says of a service: tokens per second, and whatever it adds. The audit says what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from perfmodel.specs.catalog import Catalog
from perfmodel.specs.claims import VendorClaim, read_claim
from perfmodel.specs.fields import Count, Fraction, HourlyPrice, Number, SpecModel, problem
from perfmodel.specs.hardware import Accelerator
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


class ServiceClaim(VendorClaim):
    """A vendor's claim about a service."""

    workload: Workload = Field(description="Zoo name, or inline.")
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
        found = super().device
        assert found is not None  # the model's own check
        return found


def load_service_claim(
    source: str | Path | Mapping[str, object], *, catalog: Catalog | None = None
) -> ServiceClaim:
    """Read a claim about a service; names are looked up, nothing is assumed."""
    return read_claim(ServiceClaim, source, catalog)
