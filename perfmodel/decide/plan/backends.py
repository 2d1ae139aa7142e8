"""Where the tasks of a search run: here, in processes, or on a Dask cluster. The answer is the same bytes."""

from __future__ import annotations

import functools
import hashlib
import importlib
import logging
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, cast

from perfmodel.decide.plan.candidates import Partial, Target, Task
from perfmodel.decide.plan.search import run_task
from perfmodel.errors import UsageError
from perfmodel.results.envelope import __version__

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
        except BaseException:
            # The pool itself only knows how to wait for the task that each process is at (until Python 3.14).
            for child in list((getattr(pool, "_processes", None) or {}).values()):
                child.kill()
            raise
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
            module, task_there = _distributed(), _by_value()
            # Each task carries its own target: data scattered to a worker would die with it. Packed, because a worker
            # of another version might not even unpack it.
            futures = [
                client.submit(
                    task_there,
                    pickle.dumps((targets[task.target], task)),
                    fingerprint(),
                    pure=False,
                    retries=3,
                )
                for task in tasks
            ]
            for future in module.as_completed(futures, loop=client.loop):
                yield _result_of(future, address)

    return run


def _by_value() -> Callable[[bytes, str], object]:
    """What a worker runs. Dask sends a function that it finds in no module as it is, so it reaches any version."""

    def task_there(packed: bytes, wanted: str) -> object:
        try:
            from perfmodel.decide.plan.backends import fingerprint, run_packed
        except ImportError:
            return "a version that does not know this check, or none"
        there = fingerprint()
        return run_packed(packed) if there == wanted else there

    task_there.__module__, task_there.__qualname__ = "__main__", "task_there"
    return task_there


def run_packed(packed: bytes) -> Partial:
    """One task from what `on_dask` sends."""
    target, task = pickle.loads(packed)  # noqa: S301  # the scheduler may run any code on its workers anyway
    return run_task(target, task)


@functools.cache
def fingerprint() -> str:
    """The version and a hash of all code: two checkouts of one version may differ."""
    folder = resources.files("perfmodel")
    digest = hashlib.sha256()
    for path in sorted(Path(str(folder)).rglob("*.py")):
        digest.update(path.read_bytes())
    return f"perfmodel {__version__} ({digest.hexdigest()[:12]})"


def _result_of(future: Any, address: str) -> Partial:
    """The answer of a task that is over; a UsageError where the cluster or its workers are no help."""
    try:
        found = future.result(timeout=CONNECT_S)
    except Exception as error:
        lost = type(error).__name__ in (
            "CancelledError",
            "FutureCancelledError",
            "CommClosedError",
            "TimeoutError",
        )
        if not (lost or type(error).__module__.startswith("distributed")):
            raise  # of the search itself
        reason = "its scheduler went away" if lost else str(error).splitlines()[0]
        raise UsageError(
            f"--scheduler: the Dask cluster at {address} did not finish the search: {reason}",
            code="U020",
            help="look at the scheduler and its workers, or leave --scheduler out: --workers N searches here",
        ) from None
    if isinstance(found, str):
        raise UsageError(
            f"--scheduler: a worker has {found}, and this is {fingerprint()}: their answers would not agree",
            code="U020",
            help="install the same perfmodel on every worker and here",
        )
    return cast(Partial, found)


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
    for name in ("distributed", "distributed.client"):  # what matters is said as an error of ours
        logging.getLogger(name).setLevel(logging.CRITICAL)
    client = _connected(module, address)
    try:
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
        except Exception:
            raise UsageError(
                f"--scheduler: the Dask scheduler at {address} has no workers",
                code="U020",
                help=f"start some with `dask worker {address}`",
            ) from None
        yield client
    finally:
        client.close(timeout=1.0)


def _connected(module: Any, address: str) -> Any:
    """A client, or a UsageError in bounded time: Dask itself waits for ever where somebody listens and says nothing."""
    client = module.Client.__new__(module.Client)
    failed: list[Exception] = [TimeoutError(f"it listens, but said nothing for {CONNECT_S:g} s")]

    def connect() -> None:
        try:
            client.__init__(address, timeout=CONNECT_S, set_as_default=False)
            failed.clear()
        except Exception as error:
            failed[:] = [error]

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(1.2 * CONNECT_S)
    if not failed:
        return client
    client.status = "closed"  # or it says goodbye to nobody for twenty seconds when it is collected
    reason = str(failed[0]).splitlines()[0] if str(failed[0]) else type(failed[0]).__name__
    raise UsageError(
        f"--scheduler: no Dask scheduler answers at {address} ({reason})",
        code="U020",
        help="start one with `dask scheduler`, and give its address, such as tcp://127.0.0.1:8786",
    )


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
