"""What the API accepts: closed models with limits on everything, and the job that a request means.

A request names catalogue entries only. File names, code references and inline specs, which a job file may hold, have
no way in.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from perfmodel.errors import SpecError
from perfmodel.specs.layout import Recompute
from perfmodel.specs.precisions import Precision
from perfmodel.units import format_quantity

MOST_K = 40
LARGEST_K = 131_072
MOST_TIMINGS = 64
SHORTEST_STEP_S = 1e-6  # one kernel takes longer to launch
SHORTEST_LATENCY_S = 1e-9  # light travels a foot
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,79}$", examples=["llama3-8b"])]
Degree = Annotated[int, Field(ge=1, le=4096)]
Sharding = Literal["ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp"]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class LayoutChoice(_Closed):
    """A fixed layout; what is missing is 1, or chosen."""

    tp: Degree = Field(1, description="Tensor parallelism.")
    pp: Degree = Field(1, description="Pipeline stages.")
    cp: Degree = Field(1, description="Context parallelism.")
    ep: Degree = Field(1, description="Expert parallelism.")
    micro_batch: Degree | None = Field(None, description="Samples per micro-batch and replica.")
    sharding: Sharding | None = Field(None, description="How weights and optimizer states are shared.")
    recompute: Recompute | None = Field(
        None,
        description="Activations computed again: none, selective, full, or the share of a forward pass (0 to 1); "
        "left out, nothing where that fits, else everything.",
    )


class Timing(_Closed):
    """One measured step."""

    k: Annotated[int, Field(ge=1, le=LARGEST_K)]
    time_s: Annotated[float, Field(ge=SHORTEST_STEP_S, le=1e6)]
    global_batch: Annotated[int, Field(ge=1, le=100_000_000)] | None = None


class WhatIf(_Closed):
    """A job to predict. Everything but workload and cluster may be left out."""

    workload: Name = Field(description="A workload of /api/catalog.")
    cluster: Name = Field(description="A cluster or node of /api/catalog.")
    k: Annotated[str, Field(pattern=r"^[0-9][0-9.,: ]{0,119}$")] = Field(
        "1..1024", description="Accelerators: 8 or 1,2,4,8 or 1..1024 (doubling) or 64..128:8 (steps)."
    )
    regime: Literal["strong", "weak"] = Field("strong", description="What stays fixed as K grows.")
    global_batch: Annotated[int, Field(ge=1, le=100_000_000)] | None = Field(
        None, description="Samples a step."
    )
    batch_per_accelerator: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="Samples a step and accelerator (weak scaling)."
    )
    seq_len: Annotated[int, Field(ge=1, le=2_097_152)] | None = Field(
        None, description="Tokens per sequence."
    )
    precision: Precision | None = Field(None, description="Type of the matmuls.")
    layout: Literal["auto"] | LayoutChoice = Field("auto", description="auto, or a fixed layout.")
    bandwidth: Annotated[float, Field(ge=1e6, le=5e13)] | None = Field(
        None, description="Bandwidth of a NIC between nodes, each direction [B/s]."
    )
    latency: Annotated[float, Field(ge=SHORTEST_LATENCY_S, le=0.1)] | None = Field(
        None, description="Latency between nodes [s]."
    )
    price: Annotated[float, Field(ge=0, le=10_000)] | None = Field(
        None, description="Price of an accelerator [USD/h]."
    )
    fixed: Annotated[float, Field(ge=0, le=1e6)] | None = Field(
        None, description="Paid whatever K is [USD/h]."
    )
    jitter: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="Spread of one worker's step time."
    )
    steps: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = Field(
        None, description="Steps of the whole run."
    )
    grid: Name | None = Field(None, description="Electricity grid, for carbon.")
    timings: Annotated[tuple[Timing, ...], Field(max_length=MOST_TIMINGS)] = Field(
        (), description="Measured steps that calibrate the prediction."
    )
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(0, description="Seed of everything random.")

    @field_validator("timings", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value  # JSON has no tuples

    @field_validator("k")
    @classmethod
    def _counts(cls, value: str) -> str:
        from perfmodel.specs.ranges import parse_k

        try:
            found = parse_k(value)
        except SpecError as error:
            raise ValueError("; ".join(problem.message for problem in error.problems)) from None
        if len(found) > MOST_K or found[-1] > LARGEST_K:
            raise ValueError(f"at most {MOST_K} values of K, up to {LARGEST_K}")
        return value

    @model_validator(mode="after")
    def _regime(self) -> WhatIf:
        if self.regime == "strong" and self.batch_per_accelerator is not None:
            raise ValueError("strong scaling takes global_batch, not batch_per_accelerator")
        if self.regime == "weak" and self.global_batch is not None:
            raise ValueError("weak scaling takes batch_per_accelerator, not global_batch")
        return self

    def canonical(self) -> str:
        """The same text for the same question: the key of the cache."""
        return json.dumps(
            self.model_dump(mode="json", exclude_defaults=True), sort_keys=True, separators=(",", ":")
        )

    @property
    def key(self) -> str:
        """A short hash of the question."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()

    def overrides(self) -> dict[str, object]:
        """The request in the words of a job file, as dotted paths."""
        found: dict[str, object] = {
            "workload": self.workload,
            "cluster": self.cluster,
            "k": self.k,
            "regime": self.regime,
        }
        for name in ("global_batch", "batch_per_accelerator", "seq_len", "precision", "steps", "grid"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        if isinstance(self.layout, LayoutChoice):
            found["layout"] = self.layout.model_dump(exclude_defaults=True) or {"tp": 1}
        if self.bandwidth is not None:
            found["cluster.scale_out.bandwidth"] = format_quantity(self.bandwidth, "B/s", None)
        if self.latency is not None:
            found["cluster.scale_out.latency"] = format_quantity(self.latency, "s", None)
        money = {"per_accelerator": self.price, "fixed": self.fixed}
        price = {key: f"{value!r} USD/h" for key, value in money.items() if value is not None}
        if price:
            found["price"] = price
        if self.jitter is not None:
            found["jitter"] = {"distribution": "lognormal", "spread": self.jitter}
        return found


class Pair(_Closed):
    """Two jobs to compare."""

    a: WhatIf
    b: WhatIf


class Upload(_Closed):
    """Measured timings for a job, as the text of a CSV file."""

    job: WhatIf
    timings: Annotated[str, Field(max_length=200_000)] = Field(
        description="CSV with the columns k and time_s, optionally global_batch."
    )


class UploadError(ValueError):
    """A timings file that cannot be used: every problem with its line."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def read_timings(text: str) -> tuple[Timing, ...]:
    """Rows of an uploaded CSV; an `UploadError` lists what is wrong, line by line."""
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff")))
    try:
        rows = list(reader)
    except csv.Error as error:
        raise UploadError([f"line {reader.line_num}: {error}"]) from None
    if not rows:
        raise UploadError(["the file is empty"])
    header = [name.strip().lower() for name in rows[0]]
    missing = [name for name in ("k", "time_s") if name not in header]
    if missing:
        raise UploadError(
            [f"line 1: no column named {' and '.join(missing)}; the columns are: {', '.join(header)[:200]}"]
        )
    problems: list[str] = []
    found: list[Timing] = []
    for number, row in enumerate(rows[1:], start=2):
        if not any(cell.strip() for cell in row):
            continue
        cells = dict(zip(header, (cell.strip() for cell in row), strict=False))
        try:
            batch = cells.get("global_batch") or None
            found.append(
                Timing(
                    k=int(cells.get("k", "")),
                    time_s=float(cells.get("time_s", "")),
                    global_batch=int(batch) if batch else None,
                )
            )
        except ValueError:
            problems.append(
                f"line {number}: needs a whole k of at least 1 and a time_s of at least 1e-06, got {','.join(row)[:60]!r}"
            )
    if len(found) > MOST_TIMINGS:
        problems.append(
            f"{len(found)} rows; this page takes {MOST_TIMINGS}, perfmodel calibrate takes any number"
        )
    if not found and not problems:
        problems.append("no rows under the header")
    if problems:
        raise UploadError(problems[:20])
    return tuple(found)
