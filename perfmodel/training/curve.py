"""T(K): the step model over a range of K, with bands, parts, memory and reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from perfmodel.beliefs.bands import computing_share, held_back
from perfmodel.beliefs.extrapolation import Asked, Joined, LawTrust, Seen, join, laws_at, population_signs
from perfmodel.beliefs.features import discrepancy, retuned
from perfmodel.beliefs.population import Belief, Beliefs, Calibration
from perfmodel.physics.coefficients import NAMES, Coefficients, from_logs, log_slopes, nudged
from perfmodel.physics.jitter import equivalent_spread
from perfmodel.physics.layouts import (
    SHARDED,
    SHARDING_CODES,
    Layouts,
    Sharding,
    recompute_share,
    recompute_shown,
)
from perfmodel.physics.memory import Memory, memory
from perfmodel.specs.layout import Layout, Recompute
from perfmodel.training.declared import informed, usable_shardings
from perfmodel.training.given import laid_out
from perfmodel.training.rules import REASONS, Refusal, shape_of
from perfmodel.training.search import Search, search
from perfmodel.training.setup import Setup
from perfmodel.training.space import Bounds, Space, stated_space, usual_space
from perfmodel.training.step import Step, step
from perfmodel.units import format_quantity

Array = NDArray[np.float64]

FUSED = 0.01  # share of attention without a fused kernel where the job states one: rounding and odd shapes
LARGEST_K = 4096  # as far as a reason looks for the K that fits


class ShownLayout(TypedDict, total=False):
    """The layout of one K as results have it; what does not apply is left out."""

    dp: int
    tp: int
    pp: int
    cp: int
    ep: int
    vpp: int | None  # of a measured run it may be unknown
    etp: int
    micro_batch: float
    accumulation: int
    sharding: str
    shard_group: int
    recompute: Recompute | None


@dataclass(frozen=True)
class Curve:
    """T(K) and everything it was made of; arrays are aligned with `k`, NaN where infeasible."""

    setup: Setup
    k: Array
    at: Layouts
    names: tuple[ShownLayout, ...]  # the layout of each K, for people
    step: Step
    time_s: Array
    low_s: Array
    high_s: Array
    spread: Array  # log standard deviation of T(K)
    parts: dict[str, Array]
    hidden_s: Array
    memory: Memory
    feasible: NDArray[np.bool_]
    refusals: NDArray[np.int64]  # a Refusal at each K
    reasons: tuple[str | None, ...]
    draws_s: Array  # (draws, K), coherent over K
    belief: Belief
    logs: Array  # log coefficients used
    jacobian: Array  # d ln T / d ln c, (n_coefficients, K)
    mended: dict[str, Array] = field(default_factory=dict)  # T(K) after a remedy, by part, once asked for


def centre(setup: Setup, beliefs: Beliefs) -> tuple[Belief, Array]:
    """The belief for this job and the log coefficients at its centre, a calibration included."""
    belief = beliefs.belief(setup.features())
    if beliefs.calibration is None:  # which has the hardware's own efficiencies among its measurements
        belief = informed(belief, beliefs.scatter[: len(NAMES)], setup.measured)
    logs = population_logs(setup, belief)
    if beliefs.calibration is not None:
        moved = logs + beliefs.calibration.mean[: len(NAMES)]
        logs = np.where(declares(setup), logs, moved)
    return belief, logs


def population_logs(setup: Setup, belief: Belief) -> Array:
    """The population's log coefficients, with what the job declares in their place."""
    logs = belief.median.copy()
    for name, value in stated(setup).items():
        logs[NAMES.index(name)] = np.log(max(value, 1e-12))
    return logs


def stated(setup: Setup) -> dict[str, float]:
    """Coefficients that the job states itself: its jitter, and whether its attention is fused."""
    found = {} if setup.jitter is None else {"jitter": setup.jitter}
    if setup.facts.attention is not None:
        found["unfused"] = 1.0 if setup.facts.attention == "unfused" else FUSED
    return found


def declares(setup: Setup) -> NDArray[np.bool_]:
    """Which coefficients the job states itself."""
    names = stated(setup)
    return np.array([name in names for name in NAMES])


# Zero-bubble schedules split the backward pass and leave a third of the bubble (Qi et al. 2023, arXiv:2401.10241).
ZERO_BUBBLE = 1.0 / 3.0


def coefficients(setup: Setup, logs: Array, k: Array | None = None) -> Coefficients:
    """Coefficients from their logs with what the job declares: the pipeline schedule and, given `k`, the jitter's family.

    `logs` has the coefficients on its first axis; further axes broadcast against `k`.
    """
    found = from_logs(logs)
    if setup.layout is not None and setup.layout.schedule == "zero-bubble":
        found = replace(found, bubble=found.bubble * ZERO_BUBBLE)
    if k is not None and setup.jitter and not setup.variation.is_plain_lognormal:
        ratio = equivalent_spread(k, setup.variation) / setup.jitter
        found = replace(found, jitter=found.jitter * ratio)
    return found


def choose(
    setup: Setup, logs: Array, among: Search | None = None, offsets: Array | None = None
) -> tuple[Layouts, NDArray[np.int64]]:
    """Best feasible layout at each K and its refusal, `among` those of a search (by default: the set-up's own).

    Of a given layout nothing is chosen by its time: what it leaves open is as runs mostly have it (`given.py`).
    `offsets` are a calibration's slopes of `discrepancy`.
    """
    found = among or search(setup)
    if setup.layout is not None:
        return laid_out(setup, found)
    return found.best(_seconds(setup, logs, found, offsets))


def offsets_of(setup: Setup, beliefs: Beliefs) -> Array | None:
    """A calibration's slopes of `discrepancy` as they apply to this job; None without a calibration."""
    if beliefs.calibration is None:
        return None
    known = _without_foreign_times(setup, beliefs, beliefs.belief(setup.features())).calibration
    return None if known is None else known.mean[len(NAMES) :]


def _seconds(setup: Setup, logs: Array, found: Search, offsets: Array | None = None) -> Array:
    """Step time of every allowed layout of a search."""
    at = found.allowed
    with np.errstate(all="ignore"):
        spread = coefficients(setup, logs[:, None])
        if setup.jitter and found.count:  # of a family of its own at each K
            by_k = np.broadcast_to(coefficients(setup, logs[:, None], setup.k).jitter, setup.k.shape)
            spread = replace(spread, jitter=by_k[found.k_index])
        made = step(setup.operations, setup.machine, at, spread)
        seconds = np.broadcast_to(made.time_s, found.k_index.shape)
    if offsets is not None and found.count:
        seconds = seconds * np.exp(np.tensordot(offsets, discrepancy(setup.operations, at), axes=1))
    return np.asarray(seconds)


def curve(
    setup: Setup, beliefs: Beliefs, *, draws: int = 200, seed: int = 0, among: Search | None = None
) -> Curve:
    """Predict T(K) at every K of the set-up; `among` is its search, where one was made before."""
    ops, mach = setup.operations, setup.machine
    belief, logs = centre(setup, beliefs)
    beliefs = _without_foreign_times(setup, beliefs, belief)
    apart = None if beliefs.calibration is None else beliefs.calibration.mean[len(NAMES) :]
    at, refusal = choose(setup, logs, among, apart)
    held = memory(ops, mach, at, schedule=setup.schedule)
    feasible = refusal == Refusal.NONE
    gap = np.where(feasible, 1.0, np.nan)
    slopes = discrepancy(ops, at)
    covariance = effect_covariance(beliefs, belief)
    # Step times move a job along the slopes at the population's centre (see calibrate/posterior.py), or at the anchor
    # to which sweeps and traces have moved it.
    known = beliefs.calibration
    timed = known is not None and known.k.size > 0
    kind = setup.workload.kind
    base = logs
    if known is not None and timed:
        declared = population_logs(setup, belief)
        base = np.where(declares(setup), declared, declared + known.anchor)
    population, jacobian = _slopes(setup, at, base)
    found = step(ops, mach, at, coefficients(setup, logs[:, None], setup.k)) if timed else population
    # What the job states leaves no doubt.
    effects = np.concatenate([np.where(declares(setup)[:, None], 0.0, jacobian), slopes])
    # Summed in order: a library's dot product may round by where its arrays lie in memory, and answers keep their bytes.
    variance = (effects * (covariance[:, :, None] * effects).sum(axis=1)).sum(axis=0)
    computing = computing_share(effects)
    scale = np.ones_like(setup.k)
    if known is not None and timed:
        beyond = known.mean - np.concatenate([known.anchor, np.zeros(len(slopes))])
        model = np.log(population.time_s) + beyond @ effects
        joined = _joined(setup, beliefs, known, model, np.sqrt(variance + beliefs.noise**2))
        spread = beliefs.band_spread(known.mode, setup.features(), joined.signs, computing, setup.k)
        scale = np.exp(joined.value) / found.time_s
        untimed = replace(beliefs, calibration=None)
        before = untimed.factor("datasheet", kind) * _unmeasured(
            setup, untimed, belief, effects, variance, computing
        )
        factor = beliefs.factor(known.mode, kind)
        shift = joined.value - np.log(population.time_s)
        spread = held_back(factor * spread, before, shift) / factor
    else:
        spread = _unmeasured(setup, beliefs, belief, effects, variance, computing)
        if known is not None:
            scale = np.exp(np.tensordot(known.mean[len(NAMES) :], slopes, axes=1))
    time = found.time_s * scale * gap
    parts = {name: np.broadcast_to(value, setup.k.shape) * scale * gap for name, value in found.parts.items()}
    mode = beliefs.calibration.mode if beliefs.calibration is not None else "datasheet"
    half = beliefs.factor(mode, kind) * spread
    rng = np.random.default_rng(seed)
    sample = (
        rng.multivariate_normal(np.zeros(covariance.shape[0]), covariance, size=draws, method="cholesky")
        if draws
        else np.zeros((0, covariance.shape[0]))
    )
    drawn = time * np.exp(sample @ effects)
    return Curve(
        setup=setup,
        k=setup.k,
        at=at,
        names=tuple(describe(at, i) for i in range(setup.k.size)),
        step=found,
        time_s=time,
        low_s=time * np.exp(-half),
        high_s=time * np.exp(half),
        spread=spread,
        parts=parts,
        hidden_s=found.hidden_s * scale * gap,
        memory=held,
        feasible=feasible,
        refusals=refusal,
        reasons=tuple(_reason(setup, logs, held, refusal, i) for i in range(setup.k.size)),
        draws_s=drawn,
        belief=belief,
        logs=logs,
        jacobian=jacobian,
    )


def _without_foreign_times(setup: Setup, beliefs: Beliefs, belief: Belief) -> Beliefs:
    """The beliefs as they serve this job where their step times are of another one.

    Those times have moved the coefficients. They are no points of this job's curve, what they left unexplained was that
    job's own, and they narrow no band here.
    """
    known, there = beliefs.calibration, beliefs.meta.get("calibrated_on")
    if known is None or not known.k.size or not isinstance(there, Mapping):
        return beliefs
    if not setup.differs(there):
        return beliefs
    none = np.zeros(0)
    mean = np.where(np.arange(known.mean.size) < len(NAMES), known.mean, 0.0)
    prior = effect_covariance(replace(beliefs, calibration=None), belief)
    return beliefs.calibrated(
        replace(known, mean=mean, covariance=prior, mode="datasheet", k=none, tau=none, batch=none)
    )


def _unmeasured(
    setup: Setup, beliefs: Beliefs, belief: Belief, effects: Array, variance: Array, computing: Array
) -> Array:
    """The spread without step times; sweeps and traces, which `variance` knows, narrow it as they narrow the beliefs."""
    left_open = np.zeros_like(beliefs.scatter)
    left_open[: len(NAMES)] = np.square(belief.spread)
    signs = population_signs(effects, beliefs.scatter, left_open)
    spread = beliefs.band_spread("datasheet", setup.features(), signs, computing, setup.k)
    if beliefs.calibration is None:
        return spread
    before = (np.square(effects) * (beliefs.scatter + left_open)[:, None]).sum(axis=0)
    return np.asarray(spread * np.sqrt(np.minimum(variance / np.maximum(before, 1e-300), 1.0)))


def _joined(setup: Setup, beliefs: Beliefs, known: Calibration, model: Array, spread: Array) -> Joined:
    """The calibrated log time with the laws through the measured points joined in."""
    work = setup.global_batch * float(setup.operations.tokens)
    batch, seen = setup.global_batch / setup.k, known.batch
    if not seen.size:  # nobody noted it: taken to stay
        batch, seen = np.ones_like(batch), np.ones_like(known.k)
    bus, tuned = float(setup.machine.shared_bus), retuned(setup.features())
    asked = Asked(setup.k, batch, float(setup.machine.node), bus, tuned)
    laws = laws_at(Seen(known.k, known.tau, seen), asked, LawTrust.read(beliefs.meta), known.need)
    law = laws.log_tau + np.log(work / setup.k)
    return join(model, spread, law, laws)


def effect_covariance(beliefs: Beliefs, belief: Belief) -> Array:
    """Covariance of a job's effects: posterior when calibrated, else what the population leaves open."""
    if beliefs.calibration is not None:
        covariance = beliefs.calibration.covariance
    else:
        variance = beliefs.scatter.copy()
        variance[: len(NAMES)] += np.square(belief.spread)
        covariance = np.diag(variance)
    return np.asarray(covariance + 1e-12 * np.eye(covariance.shape[0]))


def sensitivities(setup: Setup, at: Layouts, logs: Array) -> Array:
    """d ln T / d ln c for each coefficient, shape (n_coefficients, K)."""
    return _slopes(setup, at, logs)[1]


def _slopes(setup: Setup, at: Layouts, logs: Array) -> tuple[Step, Array]:
    """The step at `logs`, and d ln T / d ln c there: all of it in one call of the step model."""
    found = step(setup.operations, setup.machine, at, coefficients(setup, nudged(logs[:, None]), setup.k))
    shape = (len(NAMES) + 1, setup.k.size)
    parts = {name: np.broadcast_to(part, shape)[-1].copy() for name, part in found.parts.items()}
    centre = Step(parts, np.broadcast_to(found.hidden_s, shape)[-1].copy())
    return centre, log_slopes(np.log(found.time_s))


def describe(at: Layouts, index: int) -> ShownLayout:
    """One layout in words, for the `layout` list of a result."""

    def number(name: str) -> float:
        value = np.asarray(getattr(at, name))
        return float(value[index] if value.ndim else value)

    def degree(name: str) -> int:
        return int(number(name))

    sharding, micro, virtual = Sharding(degree("sharding")), number("micro_batch"), number("vpp")
    shown: ShownLayout = {
        "dp": degree("dp"),
        "tp": degree("tp"),
        "pp": degree("pp"),
        "cp": degree("cp"),
        "ep": degree("ep"),
        "vpp": None if np.isnan(virtual) else int(virtual),
    }
    if number("etp") > 0:
        shown["etp"] = degree("etp")
    shown["micro_batch"] = int(micro) if micro == int(micro) else round(micro, 3)
    shown["accumulation"] = degree("accumulation")
    shown["sharding"] = sharding.name.lower()
    if sharding in SHARDED and number("shard_group") < number("dp") * number("cp"):
        shown["shard_group"] = degree("shard_group")
    shown["recompute"] = recompute_shown(number("recompute"), number("selective"))
    return shown


def _reason(setup: Setup, logs: Array, held: Memory, refusals: NDArray[np.int64], index: int) -> str | None:
    refusal = Refusal(int(refusals[index]))
    if refusal == Refusal.NONE:
        return None
    if refusal == Refusal.MEMORY:
        parts = {name: float(np.broadcast_to(v, setup.k.shape)[index]) for name, v in held.parts.items()}
        largest = max(parts, key=lambda name: parts[name])
        total, whole = sum(parts.values()), float(setup.machine.memory_bytes)
        kept = 0.0 if setup.layout is not None else setup.headroom
        free = f", {kept:.0%} of which stays free" if kept and total > (1.0 - kept) * whole * 0.9 else ""
        need = (
            f"needs {format_quantity(total, 'B')} of {format_quantity(whole, 'B')} a device{free}; most of it "
            f"{largest} ({format_quantity(parts[largest], 'B')})"
        )
        return f"{need}: {_fix(setup, logs, refusals, index)}"
    if refusal == Refusal.NODES:
        return f"the cluster has {setup.cluster.max_accelerators} accelerators"
    return REASONS[refusal]


def _fix(setup: Setup, logs: Array, refusals: NDArray[np.int64], index: int) -> str:
    """The nearest change that fits: of the given layout at this K, else more accelerators, else another device."""
    here = replace(setup, k=setup.k[index : index + 1], global_batch=setup.global_batch[index : index + 1])
    if setup.layout is not None:
        change = _nearest_layout(here, setup.layout, logs)
        if change:
            return f"{change} would fit"
    larger = np.flatnonzero((refusals == Refusal.NONE) & (setup.k > setup.k[index]))
    if larger.size:
        return f"K = {int(setup.k[larger[0]])} fits"
    grows = setup.batch_grows or bool(np.ptp(setup.global_batch) > 0)
    enough = _enough(here, grows=grows)
    if enough is not None:
        return f"K = {int(enough)} fits"
    if setup.layout is not None:
        free = replace(here, layout=None)
        if search(free).count:
            return "another layout fits"
        enough = _enough(free, grows=grows)
        if enough is not None:
            return f"K = {int(enough)} fits with another layout"
    return "no layout that was tried fits; use a shorter sequence or a device with more memory"


def smallest_that_fits(setup: Setup) -> int | None:
    """The first K beyond the largest of a set-up that nothing fits, by doublings, at which some layout does."""
    last = replace(setup, k=setup.k[-1:], global_batch=setup.global_batch[-1:], layout=None)
    found = _enough(last, grows=setup.batch_grows or bool(np.ptp(setup.global_batch) > 0))
    return None if found is None else int(found)


def _enough(here: Setup, *, grows: bool) -> float | None:
    """The smallest of 2K, 4K ... that fits as the set-up is laid out; `grows` where the batch does, with K."""
    limit = here.cluster.max_accelerators or LARGEST_K
    k = here.k * 2.0
    while k[0] <= limit:
        batch = here.global_batch * (k / here.k if grows else 1.0)
        if search(replace(here, k=k, global_batch=batch)).count:
            return float(k[0])
        k = k * 2.0
    return None


def _nearest_layout(here: Setup, given: Layout, logs: Array) -> str | None:
    """The fewest changes of a given layout that fit at one K, the fastest of them, in words; None when nothing fits.

    What the words cannot name stays as given: replicas, accumulation, shard group, sequence parallelism, schedule.
    """
    shape = shape_of(here.workload, here.machine, here.seq_len)
    usual = usual_space(shape, Bounds(), int(here.k[0]))
    usual = replace(usual, sharding=usable_shardings(usual.sharding, here.declared))
    asked, _ = stated_space(given, here.default_sharding)
    wide = Space(
        **{
            name: tuple(dict.fromkeys((*getattr(asked, name), *getattr(usual, name))))
            for name in ("tp", "pp", "cp", "ep", "sharding", "recompute")
        },
        vpp=tuple(dict.fromkeys((given.vpp or 1, 1))),
    )
    found = search(here, wide)
    if not found.count:
        return None
    allowed, seconds = found.allowed, _seconds(here, logs, found)
    degrees = {name: float(getattr(given, name) or 1) for name in ("tp", "pp", "cp", "ep", "vpp")}
    degrees["sharding"] = float(SHARDING_CODES[asked.sharding[0]])
    if given.recompute is not None:
        degrees["recompute"] = recompute_share(given.recompute)
    if given.micro_batch:
        degrees["micro_batch"] = float(given.micro_batch)
    differs = np.array([np.asarray(getattr(allowed, name)) != value for name, value in degrees.items()])
    for best in np.lexsort((seconds, differs.sum(axis=0))):
        words = describe(allowed, int(best))
        changed = {
            name: words.get(name)
            for name, is_other in zip(degrees, differs[:, best], strict=True)
            if is_other
        }
        if _can_be_stated(given, changed):
            return ", ".join(f"{name}={value}" for name, value in changed.items())
    return None


def _can_be_stated(given: Layout, changed: dict[str, object]) -> bool:
    """Whether the changes go with what else the layout says: a job with both must be read without complaint."""
    try:
        Layout.model_validate(given.model_dump(exclude_unset=True) | changed)
    except ValidationError:
        return False
    return True
