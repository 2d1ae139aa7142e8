"""One-line laws through a job's own measurements, and how far to lean on them.

The step model extrapolates with physics, a law with nothing but the measured points. Their errors have different
causes, so the two are joined on the log scale by their precisions: where the posterior of the step model is wide,
the law pulls more.

    ln T = (1 - w) ln T_model + w ln T_law,    w = s^2 / (s^2 + l^2),    s^2 = s_p^2 + (c g)^2        (1)

with s_p the posterior spread of the step model, g the gap |ln T_model - ln T_law| and c a doubt: a model that leaves
the measured points far behind is more often wrong than its spread says. A model that knew the shape of the measured
points before it saw them has earned its spread: w is multiplied by `need_of_laws`. No law moves the model by more than
PULL s_p. Where a point was measured, the measurement itself stands in for the laws. The spread l of the laws (`LawTrust`)
depends on the distance, on what is lost already, on whether the node boundary is crossed unseen, on how far the batch of an
accelerator departs from the measured one, on how far the laws disagree, on what joins the accelerators and on whether
the job was retuned at every k. Laws are linear in tau(k) = k T(k) / work, the accelerator-time per unit of work: that of
the largest measured k, a + b (k - 1)/k (ring, which may fall) and a + b log2 k with b >= 0; their log mean is taken. Where
the batch n(k) of an accelerator changes, what a step costs whatever its size weighs more on smaller ones: the first law is
then a + b / n(k) with b >= 0 (Amdahl's, for a fixed global batch; see `_per_step`), and half of each of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RESIZED = 0.02  # log change of an accelerator's batch from which it counts as another
CHANCE = 0.02  # log difference between two timings of the same: repeats in the corpus deviate by 0.7 % (median), 2.3 (mean)
PULL = 3.0  # posterior spreads of the step model by which laws move it at most, but at measured points
LEVEL = 0.05  # log error at a single k from which the model's shape is doubted as well
LEAST_SHARE = 0.5  # of the best measured accelerator-time: a falling line stops there
# Far beyond every real job, so that beliefs edited by hand overflow nothing: log-spread of a band, and of laws.
WIDEST_BAND, LARGEST_GROWTH = 20.0, 50.0


def line(x: Array, tau: Array, at: Array, *, rising: bool = True) -> Array:
    """a + b x by relative least squares with a >= 0 and, where `rising`, b >= 0, at other x.

    >>> line(np.array([0.0, 1.0]), np.array([1.0, 1.2]), np.array([2.0])).round(6).tolist()
    [1.4]
    >>> line(np.array([0.0, 1.0]), np.array([1.2, 1.0]), np.array([2.0])).round(3).tolist()
    [1.082]
    """
    ones, slope = 1.0 / tau, x / tau
    oo, os, ss = float(ones @ ones), float(ones @ slope), float(slope @ slope)
    determinant = oo * ss - os * os
    level, rise = float(ones.sum()) / oo, 0.0
    if determinant > 1e-12 * oo * max(ss, 1e-300):
        a = (float(ones.sum()) * ss - float(slope.sum()) * os) / determinant
        b = (float(slope.sum()) * oo - float(ones.sum()) * os) / determinant
        if a >= 0.0 and (b >= 0.0 or not rising):
            level, rise = a, b
        elif a < 0.0:
            level, rise = 0.0, float(slope.sum()) / ss
    return np.asarray(np.maximum(level + rise * at, LEAST_SHARE * tau.min()))


@dataclass(frozen=True)
class LawTrust:
    """Log-spread of the laws' own errors at a point,

        ln l = ln base + reach (sqrt(d) - 1) + loss g + single z + resized b + disagreement a + bus p + tuned r,    (2)

    d doublings beyond the largest measured k, g the log loss between the smallest and the largest, z = 1 where only one
    k was measured, b = |ln| of the accelerator's batch against that at the largest measured k (laws know accelerator-time
    per unit of work only where the batch stays), a the range of the laws' logarithms, p = 1 where accelerators reach each
    other over the host's bus, r = 1 for a stack that was retuned at every k (`features.features`); and the `doubt` of
    equation (1). The defaults are where tuning on held-out runs starts (`calibrate/scatter.py`).
    """

    crossing: float = 0.15  # base beyond a node boundary that no measurement crossed
    familiar: float = 0.08  # base elsewhere
    doubt: float = 0.1  # of the step model, as a share of the gap to the laws
    reach: float = 0.0
    loss: float = 0.0
    single: float = 0.0
    resized: float = 0.0
    disagreement: float = 0.0
    bus: float = 0.0
    tuned: float = 0.0

    @classmethod
    def read(cls, meta: Mapping[str, Any]) -> LawTrust:
        """From the `laws` of a priors file's meta, or the defaults."""
        return cls(**{name: float(value) for name, value in meta.get("laws", {}).items()})

    def spread(self, grounds: Array) -> Array:
        """l at every point; `grounds` are the rows of `GROUNDS`."""
        crosses, reach, *others = grounds
        slopes = (self.loss, self.single, self.resized, self.disagreement, self.bus, self.tuned)
        growth = self.reach * (reach - 1.0) + sum(a * b for a, b in zip(slopes, others, strict=True))
        growth = np.clip(growth, -LARGEST_GROWTH, LARGEST_GROWTH)
        return np.asarray(np.where(crosses > 0, self.crossing, self.familiar) * np.exp(growth))


# What the trust in laws rests on: an unseen node boundary is crossed, root of the doublings beyond the largest measured
# k, the loss seen, a single k, a batch that changed, the range of the laws, a shared bus, and a job that was retuned at
# every k.
GROUNDS = ("crosses", "reach", "loss", "single", "resized", "disagreement", "bus", "tuned")


@dataclass(frozen=True)
class Seen:
    """Measured points of one job: accelerators, accelerator-time per unit of work, and batch of one accelerator."""

    k: Array
    tau: Array
    batch: Array


@dataclass(frozen=True)
class Asked:
    """Points to extrapolate to; `node` accelerators share a host, `bus` is 1 where its bus joins them, `tuned` 1 for a
    job that was retuned at every k."""

    k: Array
    batch: Array
    node: Array | float
    bus: Array | float
    tuned: float


def need_of_laws(surprise: Array, k: Array) -> float:
    """Share of the laws' weight that a model's errors at measured points justify: ``1 - c^2 / d^2``, nothing below c.

    `surprise` are log errors of the model before it saw the points. d is their root mean square, about their mean where
    several k were measured (a level alone says little about other k). c is what timings leave of it that agree with the
    model: of several k the noise of one timing, where two of the same differ by CHANCE; of one k LEVEL. Laws through noise
    would move the model elsewhere.

    >>> need_of_laws(np.array([0.3, 0.3]), np.array([1.0, 8.0])), need_of_laws(np.array([0.1]), np.array([8.0]))
    (0.0, 0.75)
    """
    if surprise.size == 0:
        return 1.0
    several = np.ptp(k) > 0.0
    square = float(np.mean(np.square(surprise - surprise.mean() if several else surprise)))
    agreed = CHANCE**2 / 2.0 if several else LEVEL**2
    return 0.0 if square <= agreed else 1.0 - agreed / square


@dataclass(frozen=True)
class Laws:
    """The laws at some k: mean of their logarithms of tau, how far they disagree, and their own spread."""

    log_tau: Array
    disagreement: Array
    spread: Array
    level: Array  # log tau at the largest measured k
    grounds: Array  # (len(GROUNDS), n)
    doubt: float
    need: Array  # share of their weight: see `need_of_laws`; 1 where a point was measured
    measured: NDArray[np.bool_]


def laws_at(seen: Seen, at: Asked, trust: LawTrust, need: float = 1.0) -> Laws:
    """Laws through the measured points at other k; at the measured ones, with their batch, what was measured."""
    k, tau = seen.k, seen.tau
    largest = k == k.max()
    last = float(tau[largest].mean())
    resized = np.abs(np.log(at.batch / float(seen.batch[largest].mean())))
    per_step = _per_step(seen, at.batch, last)
    ring = line((k - 1.0) / k, tau, (at.k - 1.0) / at.k, rising=False)
    log = line(np.log2(k), tau, np.log2(at.k))
    half = np.where(resized > RESIZED, 0.5, 0.0)
    fixed, by_ring, by_log = np.log(per_step), np.log(ring), np.log(log)
    logs = np.stack([fixed, *((1.0 - half) * other + half * fixed for other in (by_ring, by_log))])
    disagreement = np.ptp(logs, axis=0)
    rows = (
        ((at.k > at.node) & (float(k.max()) <= np.asarray(at.node))).astype(float),
        np.sqrt(np.maximum(np.log2(at.k / k.max()), 0.0)),
        np.log(last / float(tau[k == k.min()].mean())),
        float(k.min() == k.max()),
        resized,
        disagreement,
        at.bus,
        at.tuned,
    )
    grounds = np.stack(np.broadcast_arrays(*rows))
    level = np.full_like(at.k, np.log(last))
    same = (at.k[:, None] == k) & (np.abs(np.log(at.batch[:, None] / seen.batch)) < RESIZED)
    repeats = same.sum(axis=1)
    measured = repeats > 0
    own = (same @ np.log(tau)) / np.maximum(repeats, 1)
    return Laws(
        np.where(measured, own, logs.mean(axis=0)),
        np.where(measured, 0.0, disagreement),
        np.where(measured, CHANCE, trust.spread(grounds)),
        level,
        grounds,
        trust.doubt,
        np.where(measured, 1.0, need),
        measured,
    )


def _per_step(seen: Seen, batch: Array, last: float) -> Array:
    """a + b / n for the batch n of an accelerator, as far as tau differs between batches by more than chance.

    Small batches multiply whatever two timings differ by. So the line is drawn towards `last`, by ``d^2 / (d^2 + c^2)``
    with d the log difference between the smallest batch and the largest, and c what chance makes of it.
    """
    smallest, largest = seen.batch == seen.batch.min(), seen.batch == seen.batch.max()
    if np.ptp(np.log(seen.batch)) <= RESIZED:
        return np.full_like(batch, last)
    difference = np.log(seen.tau[smallest].mean() / seen.tau[largest].mean())
    share = difference**2 / (difference**2 + CHANCE**2)
    risen = line(1.0 / seen.batch, seen.tau, 1.0 / batch)
    return np.asarray(np.maximum(last + share * (risen - last), LEAST_SHARE * seen.tau.min()))


@dataclass(frozen=True)
class Joined:
    """Equation (1): the log value, and what tells how far to trust it."""

    value: Array
    signs: Array  # (n_signs, ...): see SIGNS


# What a band is made of: a floor, the joined spread, the gap between model and laws, the laws' own disagreement, the
# distance to the largest measured K in doublings, the loss seen among the measurements, an unseen node boundary, and the
# change that is predicted since the largest measured K. A fitted weight for each makes the spread (`band_spread`); files
# of older fits have weights for the first five or seven.
SIGNS = ("floor", "spread", "gap", "disagreement", "reach", "loss", "crossing", "change")


def join(model: Array, spread: Array, law: Array, laws: Laws) -> Joined:
    """Join the step model's log time with the laws' (`law`, in the same unit) by their precisions.

    Signs of a bold extrapolation (laws at odds, losses, change) speak of K beyond the largest measured one alone.
    """
    furthest = np.where(laws.measured, np.inf, PULL * spread)
    spread = np.hypot(spread, laws.need * laws.doubt * (model - law))
    weight = laws.need * np.square(spread) / (np.square(spread) + np.square(laws.spread))
    joined = spread * laws.spread / np.hypot(spread, laws.spread)
    value = np.asarray(model + np.clip(weight * (law - model), -furthest, furthest))
    crosses, reach, loss = laws.grounds[:3]
    beyond = (reach > 0.0).astype(float)
    signs = np.stack(
        np.broadcast_arrays(
            np.ones_like(model),
            joined,
            laws.need * np.abs(model - law),
            beyond * laws.disagreement,
            reach,
            beyond * np.abs(loss),
            crosses,
            beyond * np.abs(value - (law - laws.log_tau + laws.level)),
        )
    )
    return Joined(value, signs)


def band_spread(signs: Array, weights: Sequence[float] | Array) -> Array:
    """Root of the sum of squares of the weighted signs, as many of them as have a weight."""
    known = np.asarray(weights, float)
    # No dot product of a library: it rounds by the kind of processor, and answers keep their bytes.
    squares = np.square(signs[: known.size])
    total = np.sqrt((squares * np.square(known).reshape(-1, *(1,) * (squares.ndim - 1))).sum(axis=0))
    return np.asarray(np.minimum(total, WIDEST_BAND))


def population_signs(effects: Array, scatter: Array, left_open: Array) -> Array:
    """What a band without measurements is made of: a floor, the scatter between jobs, and what nobody measured.

    `effects` (n_effects, n) are slopes, `scatter` and `left_open` variances, (n_effects,) or (n_effects, n).
    """
    parts = [np.square(effects) * (v[:, None] if v.ndim == 1 else v) for v in (scatter, left_open)]
    return np.stack([np.ones(effects.shape[1]), *(np.sqrt(part.sum(axis=0)) for part in parts)])
