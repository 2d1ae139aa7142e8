"""Where questions are answered: workers off the event loop, a cache of packed answers, one run per question.

Threads share one interpreter; processes use every core. Both run `tasks.perform`.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from perfmodel.web.answers import Answers
from perfmodel.web.kept import Kept
from perfmodel.web.tasks import Outcome, perform


class BusyError(Exception):
    """More questions wait than the limits allow."""


@dataclass
class Counts:
    """What the workshop did, for the health page."""

    asked: int = 0
    cached: int = 0
    joined: int = 0
    refused: int = 0


class Workers:
    """Runs tasks: in `processes` of their own, or, with none, in two threads of this one."""

    def __init__(self, make: Callable[[], Answers], processes: int = 0) -> None:
        self._make = make
        self._processes = processes
        self.restarts = 0
        self._answers = make() if processes == 0 else None
        self._pool = self._start()

    async def run(self, task: str, payload: str) -> Outcome:
        """One task's outcome; a worker that died is replaced and the task tried once more."""
        loop = asyncio.get_running_loop()
        if self._answers is not None:
            return await loop.run_in_executor(self._pool, perform, self._answers, task, payload)
        pool = self._pool
        try:
            return await loop.run_in_executor(pool, _in_process, task, payload)
        except BrokenProcessPool:
            if pool is self._pool:
                self._pool = self._start()
                self.restarts += 1
            return await loop.run_in_executor(self._pool, _in_process, task, payload)

    async def warm(self) -> None:
        """Start the processes, which read their specs, before the first question."""
        if self._processes:
            await self.run("catalogue", "")

    def close(self) -> None:
        """Stop: what waits is dropped. Processes are ended, threads finish what they run (well under a second)."""
        if self._processes:
            # The pool itself only knows how to wait (until Python 3.14).
            for child in list((getattr(self._pool, "_processes", None) or {}).values()):
                child.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _start(self) -> Executor:
        if self._processes == 0:
            return ThreadPoolExecutor(min(2, os.cpu_count() or 1), thread_name_prefix="perfmodel")
        # One process a core is enough: a second pool of threads inside each would only fight for it.
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, "1")
        # Spawned, not forked: the event loop's threads and sockets stay out of the workers.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(
            self._processes, mp_context=context, initializer=_begin, initargs=(self._make,)
        )


_own: Answers | None = None


def _begin(make: Callable[[], Answers]) -> None:
    """Set up a worker process; Ctrl-C is the parent's business, and without a parent there is nothing to do."""
    global _own
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    _own = make()
    # Reads every spec and loads every module now, not in the middle of somebody's drag.
    perform(_own, "catalogue", "")
    for workload in ("resnet50", "llama3-70b"):
        perform(_own, "predict", f'{{"workload":"{workload}","cluster":"dgx-a100"}}')


def _leave_with(parent: int) -> None:
    """End this process when its parent is gone, however it went."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


def _in_process(task: str, payload: str) -> Outcome:
    if _own is None:
        raise RuntimeError("the worker was not set up")
    return perform(_own, task, payload)


class Workshop:
    """Equal questions share one run, and finished answers are kept up to a size."""

    def __init__(self, workers: Workers, cache_bytes: int, queue: int) -> None:
        self.workers = workers
        self.counts = Counts()
        self._cache: Kept[Outcome] = Kept(cache_bytes)
        self._running: dict[str, asyncio.Task[Outcome]] = {}
        self._queue = queue

    async def answer(self, key: str, task: str, payload: str) -> Outcome:
        """The outcome for `key`: from the cache, from a run under way, or from a new run."""
        self.counts.asked += 1
        found = self._cache.get(key)
        if found is not None:
            self.counts.cached += 1
            return found
        running = self._running.get(key)
        if running is None:
            if len(self._running) >= self._queue:
                self.counts.refused += 1
                raise BusyError
            running = asyncio.create_task(self._run(key, task, payload))
            self._running[key] = running
            running.add_done_callback(lambda done: self._finished(key, done))
        else:
            self.counts.joined += 1
        # A client that goes away does not stop the run: others may wait for it, and its answer is kept.
        return await asyncio.shield(running)

    async def _run(self, key: str, task: str, payload: str) -> Outcome:
        status, body = await self.workers.run(task, payload)
        if status < 500:
            self._cache.put(key, (status, body), len(key) + len(body))
        return status, body

    def _finished(self, key: str, running: asyncio.Task[Outcome]) -> None:
        self._running.pop(key, None)
        if not running.cancelled():
            running.exception()  # whoever waits gets it; nobody waiting is no reason for a warning
