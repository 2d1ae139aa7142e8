"""What the page asks of a service: a closed model with limits on everything, and the job that it means."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from perfmodel.specs.serving import CachePrecision, EngineName, ServedPrecision
from perfmodel.web.requests import Name

Tokens = Annotated[float, Field(ge=1, le=1_000_000)]
Seconds = Annotated[float, Field(ge=1e-5, le=86_400)]


class ServiceIf(BaseModel):
    """A service to predict. Everything but workload and cluster may be left out."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    workload: Name = Field(description="A decoder of /api/catalog.")
    cluster: Name = Field(description="A cluster or node of /api/catalog.")
    engine: EngineName | None = Field(None, description="Software that serves.")
    precision: ServedPrecision | None = Field(None, description="Weights and arithmetic.")
    kv_precision: CachePrecision | None = Field(None, description="Keys and values.")
    input_tokens: Tokens = Field(1024, description="Mean tokens of a prompt.")
    output_tokens: Annotated[float, Field(ge=2, le=1_000_000)] = Field(
        256, description="Mean tokens of an answer."
    )
    spread: Annotated[float, Field(ge=0, le=3)] = Field(
        0, description="Standard deviation over mean of both lengths."
    )
    prefix_hit: Annotated[float, Field(ge=0, le=0.99)] = Field(
        0, description="Share of a prompt that is cached."
    )
    load: Literal["rate", "concurrency"] = Field(
        "rate", description="Requests that arrive, or that are kept in flight."
    )
    tp: Annotated[int, Field(ge=1, le=128)] | None = Field(
        None, description="Tensor parallelism; the cheapest when left out."
    )
    ttft_p99_s: Seconds | None = Field(None, description="Longest p99 of the time to the first token [s].")
    tpot_p99_s: Seconds | None = Field(None, description="Longest p99 of the time per output token [s].")
    demand_per_s: Annotated[float, Field(ge=0.001, le=100_000)] | None = Field(
        None, description="Requests a second that a fleet is to answer; needs an objective and a rate."
    )
    price: Annotated[float, Field(ge=0, le=10_000)] | None = Field(
        None, description="Price of an accelerator [USD/h]."
    )

    def canonical(self) -> str:
        """The same text for the same question: the key of the cache."""
        return json.dumps(
            self.model_dump(mode="json", exclude_defaults=True), sort_keys=True, separators=(",", ":")
        )

    def job(self) -> dict[str, object]:
        """The request in the words of a job file."""
        block: dict[str, object] = {
            "input_tokens": {"mean": self.input_tokens, "spread": self.spread},
            "output_tokens": {"mean": self.output_tokens, "spread": self.spread},
            "prefix_hit": self.prefix_hit,
        }
        for name in ("engine", "precision", "kv_precision"):
            if getattr(self, name) is not None:
                block[name] = getattr(self, name)
        if self.load == "concurrency":
            block["load"] = {"concurrency": "1..512"}
        if self.tp is not None:
            block["layout"] = {"tp": self.tp}
        limits = {"ttft": self.ttft_p99_s, "tpot": self.tpot_p99_s}
        slo = {name: {"p99": f"{value!r} s"} for name, value in limits.items() if value is not None}
        if slo:
            block["slo"] = slo
        if self.demand_per_s is not None:
            block["demand"] = f"{self.demand_per_s!r} /s"
        job: dict[str, object] = {"workload": self.workload, "cluster": self.cluster, "serving": block}
        if self.price is not None:
            job["price"] = {"per_accelerator": f"{self.price!r} USD/h"}
        return job
