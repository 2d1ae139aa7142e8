"""Time and bubble of pipeline schedules: GPipe, 1F1B and interleaved, with stages that need not be equal.

A stage runs its operations in the order of its schedule. The forward pass of a micro-batch waits for that of the
stage before, the backward pass for that of the stage after; a message between stages takes `message_s` and does
not occupy them. `schedule_s` follows these dependencies exactly:

.. math:: \\phi(o) = \\max(\\phi(\\text{previous on the stage}), \\phi(\\text{input}) + t_{msg}) + t(o)      (1)

Without messages and with f, b the times of a stage and a micro-batch, the closed forms are

.. math:: T_{GPipe} = \\sum_s f_s + (m-1) \\max f + \\sum_s b_s + (m-1) \\max b                          (2)

.. math:: T_{1F1B} \\le \\sum_s (f_s + b_s) + (m-1) \\max_s (f_s + b_s)                                   (3)

.. math:: T = \\left(m + \\frac{p-1}{v}\\right)(f + b) \\quad\\text{equal stages, v chunks a stage}         (4)

(2) is exact. (3) holds for stages with one ratio b/f, and is an equality when the slowest stage is the last, which
holds the logits, and when stages are equal; a slow first stage overlaps with the stages after it and costs less.
Where the ratio differs from stage to stage only (1) is safe: (3) may be a few per cent low. Of (4) the bubble is
the share ``(p-1)/(v m + p - 1)``, the textbook's ``(p-1)/(m+p-1)`` at v = 1.

The step model (`perfmodel.training.step`) is (4) with the last stage's logits added to each micro-batch, as in (3).
The two agree exactly for equal stages without messages; step adds messages to each micro-batch of every stage.

References: Huang et al., arXiv:1811.06965 (GPipe); Narayanan et al., SOSP 2019 (1F1B); Narayanan et al.,
arXiv:2104.04473, section 2.2 (interleaved).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

SCHEDULES: Final = ("gpipe", "1f1b", "interleaved")


class Operation(NamedTuple):
    """One pass of a micro-batch through one chunk of a stage."""

    backward: bool
    micro_batch: int
    chunk: int


def bubble_fraction(stages: ArrayLike, micro_batches: ArrayLike, virtual: ArrayLike = 1.0) -> Array:
    """Idle share of a step with equal stages, ``(p-1)/(v m + p - 1)``.

    Parameters
    ----------
    stages : p.
    micro_batches : m, of a step.
    virtual : v, chunks a stage.

    Returns
    -------
    A share of the step.

    >>> float(bubble_fraction(4, 12)), float(bubble_fraction(4, 12, virtual=3).round(4))
    (0.2, 0.0769)
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
    """Closed forms (2) and (3) without messages; stages along the last axis, the rest broadcasts.

    `forward_s`, `backward_s` are times of a whole stage and a micro-batch. For `interleaved`, (3) with the fill and
    drain past the slowest stage divided by `virtual`: (4) when stages are equal, exact for a slow last stage too.

    Parameters
    ----------
    schedule : name of `SCHEDULES`.
    forward_s, backward_s : times of a micro-batch on each stage, last axis [s].
    micro_batches : m, of a step.
    virtual : v, chunks a stage; of `interleaved` alone.

    Returns
    -------
    Seconds.

    >>> float(step_time("1f1b", [1.0, 1.0, 1.0, 1.5], [2.0, 2.0, 2.0, 3.0], 8))
    45.0
    >>> float(step_time("interleaved", [1.0] * 4, [2.0] * 4, 8, virtual=2))
    28.5
    """
    _known(schedule)
    f, b = np.broadcast_arrays(np.asarray(forward_s, float), np.asarray(backward_s, float))
    m = np.asarray(micro_batches, float)
    if schedule == "gpipe":
        return np.asarray(f.sum(axis=-1) + b.sum(axis=-1) + (m - 1.0) * (f.max(axis=-1) + b.max(axis=-1)))
    both = f + b
    slowest = both.max(axis=-1)
    return np.asarray(m * slowest + (both.sum(axis=-1) - slowest) / _virtual(schedule, virtual))


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
    split in the same proportion; `message_s` is one message, paid on the way in and out, 2 (p-1) hops. Longer messages
    also stretch the steady state of 1F1B, which waits for each answer: `schedule_s` follows them.

    Parameters
    ----------
    schedule : name of `SCHEDULES`.
    stages : p.
    micro_batches : m, of a step.
    forward_s, backward_s : times of a micro-batch on a middle stage [s].
    first_s, last_s : what the ends take more, forward and backward together [s].
    message_s : time of one message [s].
    virtual : v, chunks a stage; of `interleaved` alone.

    Returns
    -------
    Seconds.

    >>> uneven_step_time("1f1b", [1, 4], 8, 1.0, 2.0, last_s=1.5).tolist()
    [36.0, 45.0]
    """
    _known(schedule)
    p, m = np.asarray(stages, float), np.asarray(micro_batches, float)
    middle = np.asarray(forward_s, float) + np.asarray(backward_s, float)
    first, last = np.asarray(first_s, float), np.asarray(last_s, float)
    slowest = middle + np.where(p > 1.0, np.maximum(first, last), first + last)
    others = p * middle + first + last - slowest
    hops = 2.0 * (p - 1.0) * np.asarray(message_s, float)
    return np.asarray(m * slowest + others / _virtual(schedule, virtual) + hops)


def peak_in_flight(
    schedule: str, stages: ArrayLike, micro_batches: ArrayLike, virtual: ArrayLike = 1.0
) -> Array:
    """Micro-batches whose activations the first stage holds at once, in units of one device's share of the layers.

    GPipe m; 1F1B min(p, m); interleaved min(m, p + (p-1)/v): the first chunks of the next round come in before the
    last ones leave (Korthikanti et al., arXiv:2205.05198: a factor 1 + (p-1)/(p v) on 1F1B).

    Parameters
    ----------
    schedule : name of `SCHEDULES`.
    stages : p.
    micro_batches : m, of a step.
    virtual : v, chunks a stage; of `interleaved` alone.

    Returns
    -------
    Numbers of micro-batches.

    >>> [float(peak_in_flight(s, 4, 12, 2)) for s in SCHEDULES]
    [12.0, 4.0, 5.5]
    """
    _known(schedule)
    p, m = np.broadcast_arrays(np.asarray(stages, float), np.asarray(micro_batches, float))
    if schedule == "gpipe":
        return np.asarray(m.copy())
    v = _virtual(schedule, virtual)
    return np.asarray(np.minimum(m, p + np.where(v > 1.0, (p - 1.0) / v, 0.0)))


def schedule_s(
    schedule: str,
    forward_s: ArrayLike,
    backward_s: ArrayLike,
    micro_batches: int,
    *,
    virtual: int = 1,
    message_s: ArrayLike = 0.0,
) -> Array:
    """Seconds of one step by equation (1): exact for uneven stages and messages; leading axes are independent.

    Chunks share a stage's time equally. Interleaving needs `micro_batches` to be a multiple of the stages.

    Parameters
    ----------
    schedule : name of `SCHEDULES`.
    forward_s, backward_s : times of a micro-batch on each stage, last axis [s].
    micro_batches : m, of a step.
    virtual : v, chunks a stage; of `interleaved` alone.
    message_s : time of one message between stages [s].

    Returns
    -------
    Seconds.

    >>> float(schedule_s("1f1b", [1.0] * 4, [2.0] * 4, 8))    # (8 + 3) x 3
    33.0
    >>> float(schedule_s("interleaved", [1.0] * 4, [2.0] * 4, 8, virtual=2))    # (8 + 3/2) x 3
    28.5
    >>> float(schedule_s("1f1b", [1.5, 1.0, 1.0, 1.0], [3.0, 2.0, 2.0, 2.0], 8))    # below equation (3)
    40.5
    """
    forward, backward = np.broadcast_arrays(np.asarray(forward_s, float), np.asarray(backward_s, float))
    message = np.asarray(message_s, float)
    stages = forward.shape[-1]
    if schedule != "interleaved" and virtual != 1:
        raise ValueError(f"{schedule} has one chunk a stage, not {virtual}")
    orders = [stage_order(schedule, s, stages, micro_batches, virtual) for s in range(stages)]
    finish: dict[tuple[int, Operation], Array] = {}
    clock = [np.zeros(np.broadcast_shapes(forward.shape[:-1], message.shape))] * stages
    position = [0] * stages
    remaining = sum(map(len, orders))
    while remaining:
        before = remaining
        for s in range(stages):
            while position[s] < len(orders[s]):
                operation = orders[s][position[s]]
                source = source_of(operation, s, stages, virtual)
                if source is not None and source not in finish:
                    break
                start = clock[s]
                if source is not None:
                    # The turn from forward to backward on the last stage stays on the device.
                    arrival = finish[source] + (message if source[0] != s else 0.0)
                    start = np.maximum(start, arrival)
                time = (backward if operation.backward else forward)[..., s] / virtual
                clock[s] = finish[s, operation] = start + time
                position[s] += 1
                remaining -= 1
        if remaining == before:
            raise ValueError(f"the {schedule} schedule of {stages} stages waits for itself")
    return np.asarray(np.max(np.stack(clock), axis=0))


def stage_order(
    schedule: str, stage: int, stages: int, micro_batches: int, virtual: int = 1
) -> list[Operation]:
    """Operations of one stage in the order in which it runs them.

    Parameters
    ----------
    schedule : name of `SCHEDULES`.
    stage : which, from 0.
    stages : p.
    micro_batches : m, of a step.
    virtual : v, chunks a stage; of `interleaved` alone.

    Returns
    -------
    Operations, first to last.

    >>> ["FB"[o.backward] + str(o.micro_batch) for o in stage_order("1f1b", 0, 2, 3)]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    """
    _known(schedule)
    if schedule == "interleaved" and virtual > 1:
        if micro_batches % stages:
            raise ValueError(
                f"interleaving needs whole rounds: {micro_batches} micro-batches on {stages} stages"
            )
        return _interleaved_order(stage, stages, micro_batches, virtual)
    forward = [Operation(False, i, 0) for i in range(micro_batches)]
    backward = [Operation(True, i, 0) for i in range(micro_batches)]
    if schedule == "gpipe":
        return forward + backward
    return _alternate(forward, backward, min(stages - stage - 1, micro_batches))


def _interleaved_order(stage: int, stages: int, micro_batches: int, virtual: int) -> list[Operation]:
    """Groups of p micro-batches pass chunk after chunk; the backward pass takes the chunks in reverse."""
    total = micro_batches * virtual

    def operation(index: int, backward: bool) -> Operation:
        group, inside = divmod(index, stages * virtual)
        chunk, offset = divmod(inside, stages)
        return Operation(backward, group * stages + offset, virtual - 1 - chunk if backward else chunk)

    forward = [operation(i, False) for i in range(total)]
    backward = [operation(i, True) for i in range(total)]
    warm = 2 * (stages - stage - 1) + (virtual - 1) * stages
    return _alternate(forward, backward, min(warm, total))


def _alternate(forward: list[Operation], backward: list[Operation], warm: int) -> list[Operation]:
    """`warm` forward passes, then one forward and one backward in turn, then what remains."""
    order = forward[:warm]
    for ahead, behind in zip(forward[warm:], backward, strict=False):
        order += [ahead, behind]
    return order + backward[len(forward) - warm :]


def source_of(operation: Operation, stage: int, stages: int, virtual: int) -> tuple[int, Operation] | None:
    """Stage and operation whose result `operation` needs; None for the first forward chunk.

    Parameters
    ----------
    operation : one of `stage_order`.
    stage : the stage that runs it, from 0.
    stages : p.
    virtual : v, chunks a stage.

    Returns
    -------
    Stage and operation, or None.

    >>> source_of(Operation(False, 0, 0), 1, 4, 1)    # the forward pass of the stage before
    (0, Operation(backward=False, micro_batch=0, chunk=0))
    >>> source_of(Operation(False, 0, 0), 0, 4, 1) is None
    True
    """
    backward, micro, chunk = operation
    if not backward:
        if stage:
            return stage - 1, operation
        return (stages - 1, Operation(False, micro, chunk - 1)) if chunk else None
    if stage < stages - 1:
        return stage + 1, operation
    return (
        (0, Operation(True, micro, chunk + 1))
        if chunk < virtual - 1
        else (stage, Operation(False, micro, chunk))
    )


def idle_s(
    time_s: ArrayLike, forward_s: ArrayLike, backward_s: ArrayLike, micro_batches: ArrayLike
) -> tuple[Array, Array]:
    """(imbalance, bubble) of a step of `time_s`: mean idle seconds of a stage, split by cause.

    Imbalance is ``m (max - mean)`` of a micro-batch's time over the stages, what the slowest makes the others wait in
    steady state; the bubble is the rest, filling, draining and messages.

    Parameters
    ----------
    time_s : time of a step [s].
    forward_s, backward_s : times of a micro-batch on each stage, last axis [s].
    micro_batches : m, of a step.

    Returns
    -------
    Seconds.

    >>> [float(x) for x in idle_s(33.0, [1.0] * 4, [2.0] * 4, 8)]
    [0.0, 9.0]
    """
    both = np.asarray(forward_s, float) + np.asarray(backward_s, float)
    m = np.asarray(micro_batches, float)
    imbalance = m * (both.max(axis=-1) - both.mean(axis=-1))
    return np.asarray(imbalance), np.asarray(np.asarray(time_s, float) - m * both.max(axis=-1))


def _virtual(schedule: str, virtual: ArrayLike) -> Array:
    """Chunks a stage: those asked for when the schedule interleaves, else one."""
    return np.asarray(virtual, float) if schedule == "interleaved" else np.ones(())


def _known(schedule: str) -> None:
    if schedule not in SCHEDULES:
        raise ValueError(f"unknown schedule {schedule!r}; one of {', '.join(SCHEDULES)}")
