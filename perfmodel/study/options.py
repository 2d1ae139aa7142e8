"""Settings of a study beside the timings."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Literal

from perfmodel.decide.knee import DEFAULT_THRESHOLD
from perfmodel.errors import Problem, UsageError
from perfmodel.physics.laws import Regime
from perfmodel.study.regimes import PriceRegime
from perfmodel.study.statistics import IntervalKind

_NUMBER = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
# Of work units and rates: beyond these a quotient overflows before it means anything.
LEAST, MOST = 1e-30, 1e30
_RANGE = f"{LEAST:g} to {MOST:g}"
MOST_FACTOR = 1e6  # by which one worker may be slow
_FACTORS = re.compile(rf"({_NUMBER})(?:\.\.({_NUMBER}))?")


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """Settings of a study. `regime` None means that it was not stated: it is read as strong, and the study says so.

    `regimes` are prices of one worker under which p* is sought; `price_per` says what the table's `price_usd_per_h` is of;
    `carbon_g_per_j` turns energy into emissions; runs below `baseline_k` are left out.
    `work` is the number of work units in one run (at K0 in the weak regime); `price_usd_per_s` is for one
    worker and wins over the table's own prices; `straggler` is the range of the slow worker's factor.
    """

    threshold: float = DEFAULT_THRESHOLD
    quality_tolerance: float = 0.005
    ci: IntervalKind = "t"
    regime: Regime | None = None
    work: float | None = None
    price_usd_per_s: float | None = None
    straggler: tuple[float, float] | None = None
    max_latency_p99_s: float | None = None
    min_throughput: float | None = None
    regimes: tuple[PriceRegime, ...] = ()
    baseline_k: int | None = None
    price_per: Literal["worker", "cluster"] | None = None
    carbon_g_per_j: float | None = None

    def __post_init__(self) -> None:
        problems = []
        for name, text, ok in (
            ("threshold", "above 0 and at most 1", 0.0 < self.threshold <= 1.0),
            ("quality-tolerance", "zero or above", self.quality_tolerance >= 0.0),
            ("work", _RANGE, self.work is None or LEAST <= self.work <= MOST),
            (
                "price",
                "zero or above",
                self.price_usd_per_s is None or 0.0 <= self.price_usd_per_s < math.inf,
            ),
            ("max-latency-p99", "above zero", self.max_latency_p99_s is None or self.max_latency_p99_s > 0.0),
            ("baseline-k", "1 or more", self.baseline_k is None or self.baseline_k >= 1),
            ("min-throughput", _RANGE, self.min_throughput is None or LEAST <= self.min_throughput <= MOST),
            (
                "inject-straggler",
                f"1 to {MOST_FACTOR:g}, the smaller first",
                self.straggler is None or 1.0 <= self.straggler[0] <= self.straggler[1] <= MOST_FACTOR,
            ),
        ):
            if not ok:
                problems.append(Problem(code="U020", message=f"--{name} must be {text}"))
        if problems:
            raise UsageError(problems)

    @property
    def settled_regime(self) -> Regime:
        """The regime that the study computes with."""
        return self.regime or "strong"

    def as_inputs(self) -> dict[str, object]:
        """The settings for the envelope."""
        return asdict(self)


def parse_factors(text: str) -> tuple[float, float]:
    """`1.0..1.5` or one factor `1.3`.

    >>> parse_factors("1.0..1.5"), parse_factors("1.3")
    ((1.0, 1.5), (1.3, 1.3))
    """
    match = _FACTORS.fullmatch(text.replace(" ", ""))
    if match is None:
        raise UsageError(
            f'--inject-straggler: cannot read "{text}"',
            code="U020",
            help="write a range of factors: 1.0..1.5",
        )
    low = float(match[1])
    return low, float(match[2]) if match[2] else low
