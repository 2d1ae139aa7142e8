"""Where the tasks of a search run: here, in processes, or on a Dask cluster. The answer is the same bytes."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from perfmodel.decide.plan.candidates import Partial, Target, Task
from perfmodel.decide.plan.search import run_task
from perfmodel.errors import UsageError

CONNECT_S = 10.0  # how long to look for a scheduler

Progress = Callable[[int, int], None]  # (tasks done, tasks in all)


class Runner(Protocol):
    """Yields the result of each task, in any order."""

    def __call__(self, targets: Sequence[Target], tasks: Sequence[Task]) -> Iterator[Partial]: ...


def run_here(targets: Sequence[Target], tasks: Sequence[Task]) -> Iterator[Partial]:
    """One after the other in this process."""
    for task in tasks:
        yield run_task(targets[task.target], task)


# The targets of the search that a worker process serves, sent once when the process starts.
_SERVED: list[Sequence[Target]] = []


def _serve(targets: Sequence[Target]) -> None:
    # An interrupt is for the parent, which keeps what is finished.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _SERVED[:] = [targets]


def _served_task(task: Task) -> Partial:
    return run_task(_SERVED[0][task.target], task)


def in_processes(workers: int) -> Runner:
    """A runner over `workers` processes of this machine."""

    def run(targets: Sequence[Target], tasks: Sequence[Task]) -> Iterator[Partial]:
        from concurrent.futures import ProcessPoolExecutor, as_completed
        from multiprocessing import get_context

        # spawn: a fork of a process that already runs threads may hang.
        pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_serve, initargs=(targets,))
        try:
            futures = [pool.submit(_served_task, task) for task in tasks]
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    return run


def on_dask(address: str) -> Runner:
    """A runner on the Dask cluster whose scheduler listens at `address`.

    A worker that dies is no loss: Dask runs its tasks again elsewhere, and a task depends on nothing but its
    arguments.
    """

    def run(targets: Sequence[Target], tasks: Sequence[Task]) -> Iterator[Partial]:
        with _client(address) as client:
            # Each task carries its own target: data scattered to a worker would die with it.
            futures = [
                client.submit(run_task, targets[task.target], task, pure=False, retries=3) for task in tasks
            ]
            for future in _distributed().as_completed(futures, loop=client.loop):
                yield future.result()

    return run


def _distributed() -> Any:
    return importlib.import_module("distributed")


@contextmanager
def _client(address: str) -> Iterator[Any]:
    try:
        module = _distributed()
    except ImportError:
        raise UsageError(
            "--scheduler needs Dask, which is not installed",
            code="U020",
            help="pip install 'perfmodel[dask]'",
        ) from None
    try:
        client = module.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(
            f"--scheduler: no Dask scheduler answers at {address} ({reason})",
            code="U020",
            help="start one with `dask scheduler`, and give its address, such as tcp://127.0.0.1:8786",
        ) from None
    try:
        yield client
    finally:
        client.close()


def collect(
    runner: Runner, targets: Sequence[Target], tasks: Sequence[Task], progress: Progress | None = None
) -> tuple[list[Partial], bool]:
    """Run all tasks; an interrupt ends the run early with what is finished, and the flag says so."""
    found: list[Partial] = []
    try:
        for partial in runner(targets, tasks):
            found.append(partial)
            if progress is not None:
                progress(len(found), len(tasks))
    except KeyboardInterrupt:
        return found, True
    return found, False
