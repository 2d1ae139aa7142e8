r"""A server that takes all who wait in one batch: prompts without tokens, and models that answer in one pass.

While a batch of k requests runs, others come; they are the next batch, of at most m. With a + s k the time of a batch,
lambda the rate, rho = lambda s and X the time of a batch in the steady state, one batch follows from the last:

.. math:: E[X] = \frac{a + s p}{1 - \rho}, \quad
          E[X^2] = \frac{a^2 + (2 a s + s^2 c_s^2) E[K] + s^2 (c_a^2 \lambda E[X] + p)}{1 - \rho^2}            (1)

with p the probability that nobody came meanwhile (the server then rests until one does), E[K] = lambda E[X] + p requests in
a batch, c_s and c_a the variation of lengths and of arrivals. Who comes while a batch runs meets a long one more often than
a short one, waits for half of it, and then a batch with all that came in it:

.. math:: E[W] = \Big(\tfrac12 + \rho\Big) \frac{E[X^2]}{E[X]} + a + s                                             (2)

Where more come than a batch takes, requests are served in the order of their arrival, as many at once as fit (M/G/1 with
the share of a full batch that a request takes as its service). What lies between is mixed.

References: Kleinrock, Queueing Systems 1 (1975), 5.6-5.9; Chaudhry, Templeton, A First Course in Bulk Queues (1983);
Takagi, Queueing Analysis 1 (1991), ch. 2 (gated service).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.waiting import Mixture, met_share

Array = NDArray[np.float64]
#: Time [s] of a batch by the units of work (prompt tokens, images) in it.
BatchTime = Callable[[Array], Array]

_ROUNDS: Final = 6
_BUSIEST: Final = 0.9995


@dataclass(frozen=True)
class BatchWait:
    """Time from arrival to the end of a request's batch; nan where more is asked than answered."""

    stable: NDArray[np.bool_]
    mean_s: Array
    batch: Array  # requests in a mean batch
    busy: Array  # share of the time in which the server works
    saturation_per_s: Array
    times: Mixture

    def quantile_s(self, q: float) -> Array:
        """Quantile over requests [s]."""
        return np.asarray(np.where(self.stable, self.times.quantile_s(q), np.nan))


def batch_wait(
    batch_s: BatchTime,
    rate_per_s: ArrayLike,
    *,
    work: ArrayLike,
    most_work: ArrayLike,
    work_cv: ArrayLike = 0.0,
    arrival_cv: ArrayLike = 1.0,
) -> BatchWait:
    """Waiting for batches of at most `most_work` units, when requests of `work` units arrive at `rate_per_s` [1/s].

    A request of more units than a batch takes is cut. All arguments broadcast.

    >>> found = batch_wait(lambda work: 0.001 + 0.010 * work, [1e-9, 50.0, 99.0], work=1.0, most_work=1.0)
    >>> found.mean_s.round(4).tolist(), found.stable.tolist()
    ([0.011, 0.0183, nan], [True, True, False])
    """
    rate, unit, most, work_cv, arrival_cv = np.broadcast_arrays(
        *(np.asarray(v, float) for v in (rate_per_s, work, most_work, work_cv, arrival_cv))
    )
    full = batch_s(most)
    each = full * unit / most  # of a request in full batches
    limit = 1.0 / each
    stable = np.asarray(rate < limit)
    rate = np.minimum(rate, _BUSIEST * limit)
    cs2, ca2 = work_cv**2, arrival_cv**2
    lone = batch_s(np.minimum(unit, most)) * np.maximum(unit / most, 1.0)
    size, none = np.full(rate.shape, 2.0), np.exp(-rate * lone)
    for _ in range(_ROUNDS):
        # A batch as a line through one request and as many as whoever waits has beside him.
        inside = np.clip(size * unit, 1.5 * np.minimum(unit, most), np.maximum(most, 1.5 * unit))
        slope = (batch_s(np.minimum(inside, most)) * np.maximum(inside / most, 1.0) - lone) / (
            inside / unit - 1.0
        )
        slope = np.clip(slope, 0.0, lone)
        start = lone - slope
        rho = np.minimum(rate * slope, 0.98)
        first = (start + slope * none) / (1.0 - rho)
        count = rate * first + none
        second = start**2 + (2.0 * start * slope + slope**2 * cs2) * count
        second = (second + slope**2 * (ca2 * rate * first + none)) / (1.0 - rho**2)
        second = np.maximum(second, first**2)
        size = 1.0 + rate * second / first
        # Nobody comes in a batch that is a shifted gamma variable.
        over = np.maximum(first - lone, 1e-9 * lone)
        scale = np.maximum(second - first**2, 1e-12 * first**2) / over
        none = np.exp(-rate * lone - over / scale * np.log1p(rate * scale))
    busy = first / (first + none / np.maximum(rate, 1e-300))
    met, varied = second / first, np.maximum(second - first**2, 0.0)
    # Of a gamma variable: the variance of one that is met by its length.
    met_variance = varied * (1.0 + varied / first**2)
    gated = (0.5 + rho) * met + lone
    gated_variance = (0.5 + rho) ** 2 * met_variance + (met_variance + met**2) / 12.0
    gated_variance = gated_variance + slope**2 * (rate * met * (ca2 + cs2) + cs2)

    load = rate * each
    root = np.clip(met_share(np.minimum(load, _BUSIEST), arrival_cv), 1e-9, 0.9999)
    line = (ca2 + cs2) / (ca2 + 1.0) * each / (1.0 - root)
    in_order = line + lone + 0.5 * np.maximum(full - lone, 0.0)
    part = (size * unit / most) ** 2
    part = part / (1.0 + part)
    alone_variance = cs2 * lone**2
    # Arrivals in bursts meet a busy server more often than at random.
    meets = np.maximum(busy, met_share(np.minimum(busy, _BUSIEST), arrival_cv))
    chance = (1.0 - part) * meets + part * root
    waited = ((1.0 - part) * meets * gated + part * root * in_order) / np.maximum(chance, 1e-12)
    square = (1.0 - part) * meets * (gated_variance + gated**2) + part * root * (
        line**2 + alone_variance + in_order**2
    )
    variance = np.maximum(square / np.maximum(chance, 1e-12) - waited**2, 1e-12 * waited**2)

    def known(value: Array) -> Array:
        return np.asarray(np.where(stable, value, np.nan))

    def two(first_one: Array, other: Array) -> Array:
        return np.stack(np.broadcast_arrays(first_one, other), axis=-1)

    times = Mixture(
        two(1.0 - chance, chance),
        two(lone, np.maximum(waited, lone)),
        two(np.maximum(alone_variance, 1e-12 * lone**2), variance),
        two(0.0 * lone, np.where(cs2 > 0.0, 0.0, lone * (1.0 - part))),
    )
    return BatchWait(stable, known(times.overall_mean_s), known(count), known(busy), np.asarray(limit), times)
