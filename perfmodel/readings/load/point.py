"""One load at which a server was measured: the row that every load tool's report becomes, and its CSV form."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

STATISTICS: Final = ("mean", "p50", "p90", "p95", "p99")
QUANTITIES: Final = ("ttft", "tpot", "e2e")
#: Columns beside the quantities, in the order in which they are written.
PLAIN: Final = (
    "concurrency",
    "rate_per_s",
    "requests",
    "failed",
    "duration_s",
    "input_tokens",
    "output_tokens",
    "requests_per_s",
    "throughput_out_tokens_per_s",
    "throughput_total_tokens_per_s",
)


@dataclass(frozen=True, kw_only=True)
class LoadPoint:
    """Means and percentiles in seconds by statistic; None and a missing statistic: not reported.

    The load is `concurrency` (requests that a client keeps open), `rate_per_s` (arrivals), both (arrivals under a cap)
    or neither (every request at once). `tpot_s` is the time per output token after the first, by request.
    """

    source: str  # file and place in it
    tool: str
    concurrency: float | None = None
    rate_per_s: float | None = None
    requests: float | None = None
    failed: float | None = None
    duration_s: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    requests_per_s: float | None = None
    throughput_out_tokens_per_s: float | None = None
    throughput_total_tokens_per_s: float | None = None
    ttft_s: Mapping[str, float] = field(default_factory=dict)
    tpot_s: Mapping[str, float] = field(default_factory=dict)
    e2e_s: Mapping[str, float] = field(default_factory=dict)
    low_s: Mapping[str, float] = field(
        default_factory=dict
    )  # by "ttft_p99" and so on, where intervals are known
    high_s: Mapping[str, float] = field(default_factory=dict)
    model: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def load_kind(self) -> str:
        """`concurrency`, `rate`, or `offline` where every request comes at once."""
        if self.concurrency is not None:
            return "concurrency"
        return "offline" if self.rate_per_s is None else "rate"

    @property
    def load(self) -> float:
        """The number on the axis of that kind; for an offline run the number of its requests."""
        found = {"concurrency": self.concurrency, "rate": self.rate_per_s, "offline": self.requests}[
            self.load_kind
        ]
        return math.nan if found is None else found

    def seconds(self, quantity: str) -> Mapping[str, float]:
        """The statistics of `ttft`, `tpot` or `e2e`."""
        found: Mapping[str, float] = getattr(self, f"{quantity}_s")
        return found


def load_csv(points: Iterable[LoadPoint], *, comment: str = "") -> str:
    """A table of points that `read_load` reads again; columns that no point has are left out.

    >>> print(load_csv([LoadPoint(source="", tool="x", concurrency=8, requests=64, ttft_s={"mean": 0.25})]))
    concurrency,requests,ttft_mean_s
    8,64,0.25
    <BLANKLINE>
    """
    rows = [_row(point) for point in points]
    order = [*PLAIN]
    for quantity in QUANTITIES:
        for statistic in STATISTICS:
            order += [f"{quantity}_{statistic}_s{end}" for end in ("", "_low", "_high")]
    present = [name for name in order if any(name in row for row in rows)]
    text = io.StringIO()
    for line in comment.splitlines():
        text.write(f"# {line}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(present)
    for row in rows:
        writer.writerow([row.get(name, "") for name in present])
    return text.getvalue()


def _row(point: LoadPoint) -> dict[str, str]:
    row = {
        name: f"{value:.10g}"
        for name in PLAIN
        if (value := getattr(point, name)) is not None and value == value
    }
    for quantity in QUANTITIES:
        for statistic, value in point.seconds(quantity).items():
            row[f"{quantity}_{statistic}_s"] = f"{value:.10g}"
    for end, values in (("low", point.low_s), ("high", point.high_s)):
        for name, value in values.items():
            row[f"{name}_s_{end}"] = f"{value:.10g}"
    return row
