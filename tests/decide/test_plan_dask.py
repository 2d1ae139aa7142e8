"""A real Dask cluster that loses a worker half way gives the same bytes as one process."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from perfmodel.beliefs.population import textbook_beliefs
from perfmodel.decide.plan import backends as runners
from perfmodel.decide.plan.planner import Request, search
from perfmodel.decide.plan.run import Place, plan_job
from perfmodel.errors import UsageError
from perfmodel.specs.jobs import load_job
from perfmodel.training.space import Bounds

distributed = pytest.importorskip("distributed")

JOB = {"workload": "llama3-8b", "cluster": "dgx-h100", "k": "8..96:8", "global_batch": 192, "steps": 10}
REQUEST = Request(bounds=Bounds(max_tp=4, max_pp=4, max_vpp=2))


@pytest.fixture
def cluster() -> Iterator[Any]:
    settings = {"distributed.scheduler.allowed-failures": 10, "distributed.admin.tick.interval": "1s"}
    import dask

    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs=50,
        ) as started,
    ):
        yield started


@pytest.mark.filterwarnings("ignore")  # Dask warns about the worker that is taken from it
def test_a_worker_that_dies_half_way_changes_nothing(cluster: Any) -> None:
    job = load_job(None, overrides=JOB)
    beliefs = textbook_beliefs()
    alone = plan_job([job], REQUEST, beliefs).result
    killed = threading.Event()

    def kill_one(done: int, total: int) -> None:
        if done >= total // 2 and not killed.is_set():
            killed.set()
            victim = next(iter(cluster.workers.values()))
            os.kill(victim.process.process.pid, signal.SIGKILL)

    place = Place(runners.on_dask(cluster.scheduler_address), workers=8, progress=kill_one)
    shared = plan_job([job], REQUEST, beliefs, place).result
    assert killed.is_set()
    for result in (alone, shared):
        assert result.result.pop("seconds") > 0
    assert shared.to_json() == alone.to_json()


def test_no_scheduler_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "CONNECT_S", 0.3)
    job = load_job(None, overrides=JOB)
    with pytest.raises(UsageError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        search([job], REQUEST, textbook_beliefs(), runner=runners.on_dask("tcp://127.0.0.1:9"), workers=2)


def asked(address: str) -> None:
    search(
        [load_job(None, overrides=JOB)],
        REQUEST,
        textbook_beliefs(),
        runner=runners.on_dask(address),
        workers=2,
    )


def test_a_scheduler_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UsageError, match="it listens, but said nothing"):
            asked(address)


def test_a_scheduler_without_workers_is_said_to_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with distributed.LocalCluster(
        n_workers=0, processes=False, dashboard_address=":0", silence_logs=50
    ) as idle:
        monkeypatch.setattr(runners, "CONNECT_S", 3.0)
        with pytest.raises(UsageError, match="has no workers"):
            asked(idle.scheduler_address)


def test_a_worker_of_other_code_is_refused(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "fingerprint", lambda: "perfmodel 9.9 (of here)")
    with pytest.raises(
        UsageError, match=r"a worker has perfmodel .*, and this is perfmodel 9\.9 \(of here\)"
    ):
        asked(cluster.scheduler_address)
