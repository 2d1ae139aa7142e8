"""Pipeline schedules: how long m micro-batches take on p stages, and what they hold in memory.

With forward f_i and backward b_i of one micro-batch on stage i, and v virtual stages on each device,

.. math::
    T_{gpipe} &= \\sum f_i + (m-1) \\max f_i + \\sum b_i + (m-1) \\max b_i                      (1) \\\\
    T_{1f1b} &= m \\max(f_i + b_i) + \\frac{1}{v} \\left[\\sum (f_i + b_i) - \\max (f_i + b_i)\\right]   (2)

that is the slowest stage at work all the time, plus the way in and out over the others, which interleaving cuts by v.
Equal stages give the textbook bubble (p-1)/(m+p-1) of GPipe and 1F1B and (p-1)/(v m + p - 1) interleaved.

References: Huang et al., "GPipe", NeurIPS 2019; Narayanan et al., "PipeDream", SOSP 2019 (1F1B); Narayanan et al.,
"Efficient large-scale language model training", SC 2021, section 2.2 (interleaved).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

SCHEDULES: Final = ("gpipe", "1f1b", "interleaved")


def bubble_fraction(stages: ArrayLike, micro_batches: ArrayLike, virtual: ArrayLike = 1.0) -> Array:
    """Share of the step in which a device waits, equal stages: (p-1)/(v m + p - 1).

    >>> float(bubble_fraction(4, 12)), float(bubble_fraction(4, 12, virtual=3))
    (0.2, 0.07692307692307693)
    """
    p, m, v = (np.asarray(x, float) for x in (stages, micro_batches, virtual))
    return np.asarray((p - 1.0) / (v * m + p - 1.0))


def step_time(
    schedule: str,
    forward_s: ArrayLike,
    backward_s: ArrayLike,
    micro_batches: ArrayLike,
    virtual: ArrayLike = 1.0,
) -> Array:
    """Seconds of `micro_batches` micro-batches by equations (1) and (2); stages along the last axis.

    `virtual` counts only for the interleaved schedule. Stages may be uneven (embedding first, logits and loss last).

    >>> t = step_time("1f1b", [1.0, 1.0, 1.0, 1.0], 2.0, 12)
    >>> round(float(1.0 - 12 * 3.0 / t), 12)
    0.2
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"unknown schedule {schedule!r}; one of {', '.join(SCHEDULES)}")
    f, b = np.broadcast_arrays(np.asarray(forward_s, float), np.asarray(backward_s, float))
    m = np.asarray(micro_batches, float)
    if schedule == "gpipe":
        return np.asarray(f.sum(-1) + b.sum(-1) + (m - 1.0) * (f.max(-1) + b.max(-1)))
    both = f + b
    v = np.asarray(virtual, float) if schedule == "interleaved" else np.asarray(1.0)
    slowest = both.max(-1)
    return np.asarray(m * slowest + (both.sum(-1) - slowest) / v)


def uneven_step_time(
    schedule: str,
    stages: ArrayLike,
    micro_batches: ArrayLike,
    forward_s: ArrayLike,
    backward_s: ArrayLike,
    *,
    first_s: ArrayLike = 0.0,
    last_s: ArrayLike = 0.0,
    message_s: ArrayLike = 0.0,
    virtual: ArrayLike = 1.0,
) -> Array:
    """`step_time` for any array of p: equal middle stages, `first_s` and `last_s` more on the ends [s].

    `forward_s` and `backward_s` are one micro-batch on a middle stage; the extras are forward plus backward together,
    split in the same proportion; `message_s` is one point-to-point message, paid on the way in and out
    (2 (p-1) hops, v times as often when interleaved but each under compute in the steady state).

    >>> even = uneven_step_time("1f1b", 4, 12, 1.0, 2.0)
    >>> float(even) == float(step_time("1f1b", [1.0] * 4, 2.0, 12))
    True
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"unknown schedule {schedule!r}; one of {', '.join(SCHEDULES)}")
    p, m, f, b = (np.asarray(x, float) for x in (stages, micro_batches, forward_s, backward_s))
    first, last = np.asarray(first_s, float), np.asarray(last_s, float)
    v = np.asarray(virtual, float) if schedule == "interleaved" else np.asarray(1.0)
    middle = f + b
    several = p > 1.0
    slowest = middle + np.where(several, np.maximum(first, last), first + last)
    total = p * middle + first + last
    hops = 2.0 * (p - 1.0) * np.asarray(message_s, float)
    return np.asarray(m * slowest + (total - slowest) / v + hops)


def peak_in_flight(
    schedule: str, stages: ArrayLike, micro_batches: ArrayLike, virtual: ArrayLike = 1.0
) -> Array:
    """Micro-batches whose activations the first stage holds at once, in units of one device's share of the layers.

    GPipe m; 1F1B min(p, m); interleaved min(m, p + (p-1)/v): the first chunks of the next round come in before the
    last ones leave (Korthikanti et al., MLSys 2023: a factor 1 + (p-1)/(p v) on 1F1B).

    >>> [float(peak_in_flight(s, 4, 12, 2)) for s in SCHEDULES]
    [12.0, 4.0, 5.5]
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"unknown schedule {schedule!r}; one of {', '.join(SCHEDULES)}")
    p, m, v = (np.asarray(x, float) for x in (stages, micro_batches, virtual))
    if schedule == "gpipe":
        return np.asarray(np.broadcast_arrays(p, m)[1].copy())
    extra = (p - 1.0) / v if schedule == "interleaved" else 0.0
    return np.asarray(np.minimum(m, p + extra))
