"""What-if: one value of the job swept over a range, and where knee, p* and the fastest K go."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel.beliefs.population import Beliefs
from perfmodel.decide import cost, metrics
from perfmodel.decide.knee import DEFAULT_THRESHOLD, threshold_knee
from perfmodel.decide.knee_causes import knee_caution, knee_in_words, knee_odds
from perfmodel.decide.plan.planner import Request, search
from perfmodel.decide.plan.targets import setup_at
from perfmodel.errors import UsageError
from perfmodel.specs.job import Job
from perfmodel.training.curve import curve

_FORM = re.compile(
    r"(?P<path>[\w.]+)=(?P<first>[-+0-9.eE]+)\.\.(?P<last>[-+0-9.eE]+)\s*(?P<unit>[^:]*?)\s*:(?P<count>[0-9]{1,9})"
)
MOST_POINTS = 1000


@dataclass(frozen=True)
class Sweep:
    """A path of the job and the values it takes, as written and as numbers."""

    path: str
    unit: str
    numbers: tuple[float, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """Values as a job file states them."""
        return tuple(f"{number:.12g} {self.unit}".strip() for number in self.numbers)


def parse_sweep(text: str) -> Sweep:
    """Read `path=a..b unit:n`: n values from a to b, in equal ratios (equal steps when a or b is not positive).

    >>> parse_sweep("cluster.scale_out.bandwidth=100..800 Gbit/s:4").texts
    ('100 Gbit/s', '200 Gbit/s', '400 Gbit/s', '800 Gbit/s')
    """
    match = _FORM.fullmatch(text.strip())
    example = "write --sweep 'path=a..b unit:n', such as 'cluster.scale_out.bandwidth=100..800 Gbit/s:4'"
    if match is None:
        raise UsageError(f'--sweep: cannot read "{text}"', code="U021", help=example)
    try:
        first, last = float(match["first"]), float(match["last"])
    except ValueError:
        raise UsageError(f'--sweep: cannot read "{text}"', code="U021", help=example) from None
    count = int(match["count"])
    if not 2 <= count <= MOST_POINTS or first == last or not math.isfinite(last - first):
        raise UsageError(
            f"--sweep: {count} points from {first:g} to {last:g}",
            code="U021",
            help=f"give two different ends and 2 to {MOST_POINTS} points",
        )
    spaced = np.geomspace(first, last, count) if first > 0 and last > 0 else np.linspace(first, last, count)
    if all(float(end).is_integer() for end in (first, last)) and not match["unit"]:
        spaced = np.unique(np.round(spaced))
    return Sweep(match["path"], match["unit"], tuple(float(f"{v:.12g}") for v in spaced))


def run_sweep(
    sweep: Sweep,
    jobs: Sequence[Job],
    request: Request,
    beliefs: Beliefs,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, object]:
    """Best layout at each K for each value: knee (as a prediction has it), p*, fastest K, and their cost and time.

    `jobs` holds the job once per value. A value at which nothing is feasible has null entries.
    """
    rows: list[dict[str, object]] = []
    for number, job in zip(sweep.numbers, jobs, strict=True):
        rows.append({"value": number, **_point(job, request, beliefs)})
        if progress is not None:
            progress(len(rows), len(sweep.numbers))
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    how = knee_in_words(DEFAULT_THRESHOLD, knee_odds(beliefs))
    return {"path": sweep.path, "unit": sweep.unit, "threshold": DEFAULT_THRESHOLD, "how": how, **columns}


def _point(job: Job, request: Request, beliefs: Beliefs) -> dict[str, object]:
    found = search([job], request, beliefs)
    names = (
        "knee_k",
        "p_star_k",
        "p_star_usd",
        "p_star_s",
        "fastest_k",
        "fastest_s",
        "fastest_usd",
        "layout",
    )
    best = found.partial.fastest
    if not best:
        return dict.fromkeys(names)
    target = found.targets[0]
    k = np.array([c.k for c in best], dtype=float)
    useful = np.array([c.time_s for c in best]) * target.steps
    work = np.array([c.work for c in best])
    efficiency = metrics.efficiency(k, useful, regime=job.regime, baseline=0)
    # Efficiencies of the usual layouts are as much in doubt as those of the best.
    usual = curve(setup_at(job, [c.k for c in best]), beliefs, draws=request.draws, seed=request.seed)
    last = float(threshold_knee(k, efficiency * knee_caution(usual, beliefs)).k)
    row = dict.fromkeys(names, None) | {"knee_k": int(last) if math.isfinite(last) else None}
    if math.isfinite(target.tariff.usd_per_accelerator_s):
        decision = cost.decide(k, useful, target.tariff, work=work)
        row |= {"p_star_k": decision.p_star.k, "p_star_usd": decision.p_star.cost_usd}
        row |= {"p_star_s": decision.p_star.time_s, "fastest_usd": decision.fastest.cost_usd}
    fast = int(cost.argbest(k, useful / work))
    return row | {"fastest_k": int(k[fast]), "fastest_s": float(useful[fast]), "layout": best[fast].layout()}
