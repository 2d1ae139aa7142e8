"""From useful seconds to wall clock: failures, checkpoints, restarts, preemptions and hot spares of a run.

`physics.failures` holds the formulas; here they meet a curve: arrays over K, a leading axis of draws allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfmodel.physics import failures

Floats = npt.NDArray[np.float64]

NEVER = 1e6  # wall seconds per useful second from which a run counts as one that does not finish


@dataclass(frozen=True)
class Reliability:
    """How often a job is interrupted and what an interruption costs.

    Parameters
    ----------
    mtbf_per_accelerator_s, mtbf_per_node_s : mean time between failures of one accelerator, and of what
        the accelerators of a node share [s]; infinite: never.
    preemption_per_node_s : spot preemptions per node and second [1/s]. A rate of 10 % per hour is 0.1/3600.
    accelerators_per_node : accelerators that are lost together.
    checkpoint_s : time the job stands still for one checkpoint [s].
    restart_s : detection, rescheduling, loading and warm-up [s], without the work done again.
    interval_s : useful time between checkpoints [s]; None: the interval that minimises the wall time.
    spares : nodes that stand by. They matter only with `repair_s`.
    repair_s : mean time until a broken node is back [s]; None: a replacement is always at hand.
    """

    mtbf_per_accelerator_s: float = np.inf
    mtbf_per_node_s: float = np.inf
    preemption_per_node_s: float = 0.0
    accelerators_per_node: int = 8
    checkpoint_s: float = 60.0
    restart_s: float = 300.0
    interval_s: float | None = None
    spares: int = 0
    repair_s: float | None = None

    def rate_per_s(self, k: npt.ArrayLike) -> Floats:
        """Interruptions per second of a job on `k` accelerators."""
        return failures.failure_rate_per_s(
            k,
            mtbf_per_accelerator_s=self.mtbf_per_accelerator_s,
            mtbf_per_node_s=self.mtbf_per_node_s,
            accelerators_per_node=self.accelerators_per_node,
            preemption_per_node_s=self.preemption_per_node_s,
        )

    def checkpoint_interval_s(self, k: npt.ArrayLike) -> Floats:
        """Useful time between two checkpoints at `k` [s]: the given one, or the best one."""
        rate = self.rate_per_s(k)
        if self.interval_s is not None:
            return np.full(rate.shape, self.interval_s)
        return failures.best_interval_s(self.checkpoint_s, rate)

    def downtime_s(self, k: npt.ArrayLike) -> Floats:
        """Expected time from an interruption to the first step after it [s], waiting for repair included."""
        rate = self.rate_per_s(k)
        if self.repair_s is None:
            return np.full(rate.shape, self.restart_s)
        return self.restart_s + failures.spare_wait_s(rate, repair_s=self.repair_s, spares=self.spares)


@dataclass(frozen=True)
class Goodput:
    """A whole run at each K. Arrays are aligned with `k`; times in seconds.

    `wall_s = work_s + checkpoint_s + rework_s + restart_s` exactly. `goodput = work_s / wall_s`.
    `wall_s_low` and `wall_s_high` hold 90 % of runs.
    """

    k: Floats
    work_s: Floats
    wall_s: Floats
    wall_s_low: Floats
    wall_s_high: Floats
    goodput: Floats
    failures: Floats
    mtbf_s: Floats
    interval_s: Floats
    checkpoint_s: Floats
    rework_s: Floats
    restart_s: Floats

    def as_dict(self) -> dict[str, object]:
        """Plain mapping for an envelope; infinite values become null there."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def slowdown(k: npt.ArrayLike, reliability: Reliability) -> Floats:
    """Wall seconds per useful second of a long run at `k`; 1 without interruptions and checkpoints.

    NaN where less than a millionth of the time would be useful: such a run does not finish.

    >>> slowdown([8], Reliability()).tolist()
    [1.0]
    """
    count = np.asarray(k, dtype=float)
    rate = reliability.rate_per_s(count)
    interval = reliability.checkpoint_interval_s(count)
    # Without failures the best interval is infinite: no checkpoints, no loss.
    endless = ~np.isfinite(interval)
    span = np.where(endless, 1.0, interval)
    wall = failures.wall_time(
        span,
        rate_per_s=np.where(endless, 0.0, rate),
        checkpoint_s=np.where(endless, 0.0, reliability.checkpoint_s),
        restart_s=reliability.downtime_s(count),
        interval_s=span,
    )
    slow = np.asarray(wall.mean_s / span)
    return np.where(slow < NEVER, slow, np.nan)


def wall_quantiles(
    k: npt.ArrayLike, work_s: npt.ArrayLike, reliability: Reliability, levels: npt.ArrayLike
) -> Floats:
    """Wall time [s] that a share `levels` of runs of `work_s` useful seconds on `k` accelerators stays below.

    `work_s` and `levels` may carry a leading axis of draws.
    """
    return _wall_of(np.asarray(k, dtype=float), np.asarray(work_s, dtype=float), reliability).quantile(levels)


def _wall_of(count: Floats, work: Floats, reliability: Reliability) -> failures.WallTime:
    """Moments of the wall time; of draws, with the checkpoints of their median."""
    middle = np.median(work, axis=0) if work.ndim > count.ndim else work
    best = reliability.checkpoint_interval_s(count)
    # A run shorter than its interval needs no checkpoint when the interval was ours to choose.
    skip = (best >= middle) & (reliability.interval_s is None)
    return failures.wall_time(
        work,
        rate_per_s=reliability.rate_per_s(count),
        checkpoint_s=np.where(skip, 0.0, reliability.checkpoint_s),
        restart_s=reliability.downtime_s(count),
        interval_s=np.minimum(best, middle),
    )


def run(
    k: npt.ArrayLike,
    work_s: npt.ArrayLike,
    reliability: Reliability,
    *,
    seed: int = 0,
) -> Goodput:
    """Wall time of a run that needs `work_s` useful seconds at each `k`, with a 90 % band.

    `work_s` may carry a leading axis of draws (of the step time): then the central value is that of their
    median, and the band joins both sources of spread: each draw is paired with its own random quantile of
    the failures.

    >>> g = run([16384], [54 * 86400 * 0.9], Reliability(50_000 * 3600, checkpoint_s=3, restart_s=600))
    >>> bool(g.goodput[0] > 0.9)
    True
    """
    count = np.asarray(k, dtype=float)
    draws = np.asarray(work_s, dtype=float)
    work = np.median(draws, axis=0) if draws.ndim > count.ndim else draws
    rate = reliability.rate_per_s(count)
    interval = np.minimum(reliability.checkpoint_interval_s(count), work)
    downtime = reliability.downtime_s(count)
    wall = _wall_of(count, work, reliability)
    if draws.ndim > count.ndim:
        rng = np.random.default_rng(seed)
        levels = (np.arange(draws.shape[0]) + 0.5) / draws.shape[0]
        mixed = wall_quantiles(count, draws, reliability, rng.permutation(levels)[:, None])
        low, high = np.quantile(mixed, [0.05, 0.95], axis=0)
    else:
        low, high = wall.quantile(0.05), wall.quantile(0.95)
    with np.errstate(divide="ignore", invalid="ignore"):
        checkpoints = wall.floor_s - work
        restarts = wall.failures * downtime
        mtbf = np.where(rate > 0, 1.0 / np.where(rate > 0, rate, 1.0), np.inf)
        return Goodput(
            k=count,
            work_s=work,
            wall_s=wall.mean_s,
            wall_s_low=low,
            wall_s_high=high,
            goodput=work / wall.mean_s,
            failures=wall.failures,
            mtbf_s=mtbf,
            interval_s=interval,
            checkpoint_s=checkpoints,
            rework_s=np.maximum(wall.mean_s - wall.floor_s - restarts, 0.0),
            restart_s=np.minimum(restarts, wall.mean_s - wall.floor_s),
        )
