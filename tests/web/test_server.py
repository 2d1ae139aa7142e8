"""The server on a real socket: slow, broken and many clients; worker processes; the command."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from types import SimpleNamespace

import httpx
import pytest

from perfmodel.cli.main import main
from perfmodel.web import server
from perfmodel.web.answers import Library
from perfmodel.web.guards import Buckets, Limits
from perfmodel.web.tasks import pack, perform, unpack
from perfmodel.web.workshop import BusyError, Workers, Workshop

JOB = {"workload": "resnet50", "cluster": "dgx-a100", "k": "1..64"}


@contextmanager
def serving(library, limits):
    listener = server.bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    app = server.build(Workers(lambda: library), server.limits_for("127.0.0.1", limits=limits))
    thread = threading.Thread(target=app.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        until = time.monotonic() + 60
        while not app.started and time.monotonic() < until:
            time.sleep(0.02)
        assert app.started
        yield port
    finally:
        app.should_exit = True
        thread.join(60)
        listener.close()
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def running(library):
    """A server that soon loses patience with a slow client."""
    with serving(library, Limits(header_seconds=0.5, body_seconds=0.5)) as port:
        yield port


def healthy(port):
    return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=20, trust_env=False).status_code == 200


def exchange(port, *pieces, wait=0.0):
    """Send raw bytes, read until the server closes or falls silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=8) as sock:
        for piece in pieces:
            sock.sendall(piece)
            time.sleep(wait)
        found = b""
        try:
            while chunk := sock.recv(65536):
                found += chunk
        except (TimeoutError, ConnectionResetError):
            pass
        return found


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\xff\xfe garbage\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nZZ\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 70_000,
    ],
    ids=range(7),
)
def test_broken_http_gets_an_error_and_no_more(raw, running):
    answer = exchange(running, raw)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert healthy(running)


def test_headers_that_never_end_are_given_up(running):
    with socket.create_connection(("127.0.0.1", running), timeout=60) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        assert sock.recv(65536) == b""  # closed by the server: silence would end in a timeout
    assert healthy(running)


def test_a_body_that_never_ends_is_given_up(running):
    head = b"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n"
    answer = exchange(running, head, b'{"workload":')
    assert answer.startswith(b"HTTP/1.1 408")
    assert healthy(running)


def test_a_chunked_body_without_a_length_is_cut_at_the_limit(running):
    head = b"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
    assert exchange(running, head, chunk * 3).startswith(b"HTTP/1.1 413")
    assert healthy(running)


def test_clients_that_vanish_leave_nothing_behind(running):
    body = json.dumps(JOB).encode()
    head = f"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", running), timeout=5) as sock:
            sock.sendall(head.encode() + body)
    assert healthy(running)


def test_many_clients_at_once_all_get_the_right_answer(library):
    async def ask(client, batch):
        response = await client.post("/api/predict", json=JOB | {"global_batch": batch})
        return batch, response.status_code, response.json()["inputs"]["global_batch"]

    async def everyone(port):
        base = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=base, timeout=60, trust_env=False) as client:
            return await asyncio.gather(*(ask(client, 256 * (1 + i % 8)) for i in range(40)))

    with serving(library, Limits()) as port:
        answers = asyncio.run(everyone(port))
    assert all(code == 200 and asked == got for asked, code, got in answers)


def test_a_worker_process_answers_as_a_thread_does(library):
    workers = Workers(functools.partial(Library), processes=1)
    try:
        found = asyncio.run(workers.run("predict", json.dumps(JOB)))
    finally:
        workers.close()
    assert found[0] == 200
    assert found == perform(library, "predict", json.dumps(JOB))
    assert workers.restarts == 0


def test_a_killed_worker_process_is_replaced():
    # Answers that need no reading of the catalogue, and that a new process can import.
    workers = Workers(functools.partial(SimpleNamespace, catalogue=os.getpid), processes=1)

    async def scenario():
        first = await workers.run("catalogue", "")
        for process in list(workers._pool._processes.values()):
            os.kill(process.pid, signal.SIGKILL)
        return first, await workers.run("catalogue", "")

    try:
        outcomes = asyncio.run(scenario())
    finally:
        workers.close()
    assert [status for status, _ in outcomes] == [200, 200]
    pids = {int(unpack(body)) for _, body in outcomes}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert workers.restarts == 1


def test_equal_questions_share_one_run_and_the_queue_has_an_end():
    class Slow:
        runs = 0

        def catalogue(self):
            Slow.runs += 1
            time.sleep(0.1)
            return {}

    workers = Workers(Slow)
    workshop = Workshop(workers, cache_bytes=1000, queue=1)

    async def scenario():
        same = asyncio.gather(*(workshop.answer("a", "catalogue", "") for _ in range(5)))
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await workshop.answer("b", "catalogue", "")
        return await same

    with closing(workers):
        answers = asyncio.run(scenario())
    assert answers == [(200, pack(b"{}"))] * 5
    assert Slow.runs == 1
    assert workshop.counts.joined == 4


def test_the_cache_forgets_the_oldest_and_stays_within_its_size():
    class Echo:
        def catalogue(self):
            return {"x": "y" * 80}

    workers = Workers(Echo)
    workshop = Workshop(workers, cache_bytes=800, queue=8)

    async def scenario():
        for i in range(50):
            await workshop.answer(str(i), "catalogue", "")
        await workshop.answer("49", "catalogue", "")
        await workshop.answer("0", "catalogue", "")

    with closing(workers):
        asyncio.run(scenario())
    assert workshop._cache.used <= 800
    assert workshop.counts.cached == 1


def test_buckets_forget_old_addresses():
    buckets = Buckets(rate=1, burst=1, most=3)
    for i in range(100):
        buckets.take(str(i))
    assert len(buckets._state) == 3


def test_serve_refuses_to_open_up_by_accident(capsys):
    assert main(["serve", "--host", "0.0.0.0"]) == 2
    assert "--allow-host" in capsys.readouterr().err


def test_serve_says_when_the_port_is_taken(running, capsys):
    assert main(["serve", "--port", str(running), "--workers", "0"]) == 2
    assert "cannot listen" in capsys.readouterr().err


def test_the_command_serves_and_stops_on_interrupt():
    command = [sys.executable, "-m", "perfmodel", "serve", "--port", "0", "--workers", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        address = line.split()[4]
        for _ in range(100):
            try:
                if httpx.get(address + "healthz", timeout=5, trust_env=False).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        else:
            pytest.fail("the server did not answer")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
