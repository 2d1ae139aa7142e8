"""The knees of a predicted curve, each with its interval, its cause, the remedy and the knee after it.

The ledger prices the loss exactly: part by part, `K p(K) - K0 p(K0)` in the strong regime and `K (p(K) - p(K0))` in
the weak one, so that the entries sum to `K T(K) - K0 T(K0)` or `K (T(K) - T(K0))`. Diagnosis, plots and audits read
this one ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import Beliefs
from perfmodel.decide.knee import (
    RISK,
    Knee,
    cautious,
    curvature_knee,
    first_below,
    marginal_knee,
    threshold_knee,
)
from perfmodel.decide.metrics import efficiency, efficiency_band, is_timed, speedup
from perfmodel.decide.remedies import Here, after_remedy, job_at, remedy, slowest_link
from perfmodel.physics.laws import Regime
from perfmodel.physics.layouts import Sharding
from perfmodel.physics.parts import (
    BY_NAME,
    COMPUTE,
    DATA_PARALLEL,
    EXPERT_PARALLEL,
    IMBALANCE,
    SHARDED_WEIGHTS,
    TENSOR_PARALLEL,
)  # fmt: skip
from perfmodel.training.curve import Curve

Array = NDArray[np.float64]
KneeOf: TypeAlias = Callable[[Array], Knee]  # the knee that a rule finds on the step times of each K

# Neighbours among whom a part is exchanged; whether they leave a node tells the tier.
_REACH: dict[str, Callable[[Here], float]] = {
    DATA_PARALLEL.name: lambda job: np.inf,
    SHARDED_WEIGHTS.name: lambda job: job.of("shard_group") * job.of("tp"),
    TENSOR_PARALLEL.name: lambda job: job.of("tp"),
    EXPERT_PARALLEL.name: lambda job: job.of("ep") if job.of("ep") > 1.0 else np.inf,
}


def ledger(k: Array, parts: Mapping[str, Array], regime: str, baseline: int) -> dict[str, Array]:
    """Lost accelerator-seconds of every part at every K, against the baseline's."""
    k0 = k[baseline]
    if regime == "weak":
        return {name: k * (part - part[baseline]) for name, part in parts.items()}
    return {name: k * part - k0 * part[baseline] for name, part in parts.items()}


def dearest(curve: Curve, lost: Mapping[str, Array], index: int) -> str | None:
    """Of the parts that lost something at one K, the one whose remedy saves most; None where nothing was lost.

    What lost most need not be what could be mended: an exchange that hides behind a slower tier gains nothing from a link.
    """
    known = [name for name, values in lost.items() if np.isfinite(values[index]) and values[index] > 0]
    return max(known, key=lambda name: (saved(curve, name, index), lost[name][index]), default=None)


def saved(curve: Curve, part: str, index: int) -> float:
    """Share of the step at one K that the remedy for a part saves."""
    return float(1.0 - after_remedy(curve, part)[index] / curve.time_s[index])


def in_words(curve: Curve, part: str, index: int, lost: Mapping[str, Array]) -> str:
    """A cause as people say it, with the tier where it happens and its share of the step.

    Arithmetic is most of a good step: of it, only what it takes beyond the baseline's counts as a cause.
    """
    job = job_at(curve, index)
    words = _of_this_job(job, part) or BY_NAME[part].words
    nodes = job.of("k") / job.of("per_node")
    if part in _REACH:
        leaves = nodes > 1 and _REACH[part](job) > float(curve.setup.machine.domain)
        words = f"{'inter-node' if leaves else 'intra-node'} {words}"
    where = f"of the step at K={int(curve.k[index])}"
    if part == COMPUTE.name:
        more = float(lost[part][index] / (curve.k[index] * curve.time_s[index]))
        return f"{words} loses {more:.0%} {where}"
    return f"{words} takes {float(curve.parts[part][index] / curve.time_s[index]):.0%} {where}"


def _of_this_job(job: Here, part: str) -> str | None:
    """Words for a part that is something else in some jobs."""
    if part == DATA_PARALLEL.name and job.of("sharding") == Sharding.PARAMETER_SERVER:
        return "exchange with the parameter server"
    if part == EXPERT_PARALLEL.name and job.of("ep") == 1.0:
        return "exchange of embedding vectors"
    if part == IMBALANCE.name and job.of("pp") == 1.0:
        return f"waiting for the replicas with {'most' if job.is_uneven else 'the longest'} samples"
    return None


def knees(
    found: Curve,
    lost: dict[str, Array],
    *,
    regime: Regime,
    baseline: int,
    threshold: float,
    doubt: Array,
    odds: float,
    usd_of: Callable[[Array], Array],
) -> dict[str, object]:
    """The knee of a curve by each rule.

    `lost` is its ledger, `doubt` the log half-width of the efficiency's band, `odds` those above which a knee is
    declared, and `usd_of` the cost of the job at every K from the seconds of a step.
    """
    k = found.k

    def speedup_of(seconds: Array) -> Array:
        return speedup(k, seconds, regime=regime, baseline=baseline)

    def efficiency_of(seconds: Array) -> Array:
        return efficiency(k, seconds, regime=regime, baseline=baseline)

    caution = cautious(np.ones_like(k), doubt, odds)
    ends = np.stack([cautious(np.ones_like(k), doubt, chance) for chance in (RISK, 1.0 - RISK)])
    draws = found.draws_s if found.draws_s.size else found.time_s[None]
    draws_up = speedup_of(draws)
    by_rule: dict[str, tuple[KneeOf, Knee]] = {
        "threshold": (
            lambda seconds: threshold_knee(k, efficiency_of(seconds) * caution, threshold=threshold),
            # The knees of the two ends of the efficiency's band, which was checked on measured runs: draws are narrower.
            threshold_knee(k, efficiency_of(found.time_s) * ends, threshold=threshold),
        ),
        "curvature": (
            lambda seconds: curvature_knee(k, speedup_of(seconds)),
            curvature_knee(k, draws_up),
        ),
        "marginal": (
            lambda seconds: marginal_knee(k, speedup_of(seconds), usd_of(seconds)),
            marginal_knee(k, draws_up, usd_of(found.time_s)),
        ),
    }
    risky = first_below(k, cautious(efficiency_of(found.time_s), doubt, RISK), threshold=threshold)
    at_risk = int(risky) if np.isfinite(risky) else None
    return {
        rule: _knee(found, lost, rule, knee_of, drawn)
        | {"at_risk_from_k": at_risk, "how": how_chosen(rule, threshold, odds)}
        for rule, (knee_of, drawn) in by_rule.items()
    }


def _knee(found: Curve, lost: dict[str, Array], rule: str, knee_of: KneeOf, drawn: Knee) -> dict[str, object]:
    """One knee with its interval, cause, remedy and the knee by the same rule after it."""
    centre = knee_of(found.time_s)
    low, high = drawn.interval()
    k = int(centre.k) if np.isfinite(centre.k) else None
    entry: dict[str, object] = {
        "k": k,
        "k_low": int(low) if np.isfinite(low) else None,
        "k_high": int(high) if np.isfinite(high) else None,
    }
    last = int(np.flatnonzero(found.feasible)[-1])
    beyond = np.flatnonzero(found.feasible & (found.k > (k or np.inf)))
    index = int(beyond[0]) if beyond.size else last
    part = dearest(found, lost, index)
    if k is None and not bool(centre.reached):
        entry["cause"] = f"not reached up to K={int(found.k[last])}"
    elif part is None:
        entry["cause"] = "nothing is lost"
    else:
        entry["cause"] = in_words(found, part, index, lost)
    if part is None:
        return entry | dict.fromkeys(("cause_part", "remedy", "k_after_remedy", "remedy_saves"))
    mended = after_remedy(found, part)
    return entry | {
        "cause_part": part,
        "remedy": remedy(job_at(found, index), part, slowest_link(found, part, index)),
        "k_after_remedy": _k_after(knee_of(mended), int(found.k[last])) if centre.reached else None,
        # Of the step where the cause is told.
        "remedy_saves": saved(found, part, index),
    }


def _k_after(after: Knee, last_k: int) -> int | None:
    """The knee after a remedy; the last K, a lower bound, where it lies beyond the range."""
    if not after.reached:
        return last_k
    return int(after.k) if np.isfinite(after.k) else None


def ratio_band(found: Curve, beliefs: Beliefs) -> tuple[Array, Array]:
    """Factors from E(K) to the ends of its 90 % band; NaN where there are too few draws to tell."""
    told = is_timed(beliefs) or found.draws_s.shape[0] > 1
    band = efficiency_band(found, beliefs) if told else None
    if band is None:
        return np.full(found.k.shape, np.nan), np.full(found.k.shape, np.nan)
    return band.low / band.middle, band.high / band.middle


def knee_odds(beliefs: Beliefs) -> float:
    """The odds above which a knee is declared, for what is measured of the job."""
    known = beliefs.calibration
    return beliefs.knee_odds(known.mode if known is not None and is_timed(beliefs) else "ratio")


def knee_caution(found: Curve, beliefs: Beliefs) -> Array:
    """Factor from E(K) to the efficiency that a threshold knee judges."""
    below, _ = ratio_band(found, beliefs)
    return cautious(np.ones_like(found.k), -np.log(below), knee_odds(beliefs))


def knee_in_words(threshold: float, odds: float) -> str:
    """What a threshold knee is."""
    return f"the last K before efficiency is below {threshold:.0%} with a probability above {odds:.0%}"


def how_chosen(rule: str, threshold: float, odds: float) -> str:
    """The rule of a knee in words."""
    if rule == "curvature":
        return "the K at which the speedup is furthest above its chord"
    if rule == "marginal":
        return "the last K at which one more dollar still buys speedup"
    risky = f"at risk from the K where that probability is above {RISK:.0%}"
    return f"{knee_in_words(threshold, odds)}; {risky}"
