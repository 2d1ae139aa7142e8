"""Population fits without each fold, side by side in processes of this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from perfmodel.calibrate.mixed import Fit
from perfmodel.calibrate.observations import Observations
from perfmodel.calibrate.population import fit_population

SETTLING = 4  # iterations at most; fewer leave a fold near the fit of all, and its errors too small
# One process per core and one thread per process: threads inside small matrix products only wait for each other. And
# memory that stays with the process (glibc's malloc): giving large arrays back and asking anew took a third of a fit.
_ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    **dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(2**30)),
}

# What a worker process fits, sent once when it starts.
_SERVED: list[tuple[Observations, Fit]] = []


def fit_folds(
    data: Observations,
    full: Fit,
    kept: Sequence[Sequence[int]],
    *,
    workers: int,
    done: Callable[[int], None] = lambda count: None,
) -> list[Fit]:
    """The fit of each list of kept families, started from the fit of all; `done` is called with their number."""
    found = []
    for fit in _fits(data, full, kept, min(workers, len(kept))):
        found.append(fit)
        done(len(found))
    return found


def _fits(data: Observations, full: Fit, kept: Sequence[Sequence[int]], workers: int) -> Iterator[Fit]:
    if workers <= 1:
        yield from (_fit(data, full, families) for families in kept)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # spawn: a fork of a process that already runs threads may hang.
    with (
        _workers_environment(),
        ProcessPoolExecutor(workers, get_context("spawn"), initializer=_serve, initargs=(data, full)) as pool,
    ):
        yield from pool.map(_served, kept)


def _fit(data: Observations, full: Fit, kept: Sequence[int]) -> Fit:
    return fit_population(data, kept, previous=full, settling=SETTLING)


def _serve(data: Observations, full: Fit) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the parent
    _SERVED[:] = [(data, full)]


def _served(kept: Sequence[int]) -> Fit:
    return _fit(*_SERVED[0], kept)


@contextmanager
def _workers_environment() -> Iterator[None]:
    """The environment that worker processes start in, put back afterwards."""
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
