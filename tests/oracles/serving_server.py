"""A server that speaks the OpenAI protocol on loopback and batches continuously: the simulation's step, in real time."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class _Sequence:
    prompt: int
    left: int
    ready: asyncio.Queue[int] = field(default_factory=asyncio.Queue)


@dataclass
class FakeServer:
    """`step_s(decodes, prompt tokens)` is slept for each step; `refuse` of the first requests get HTTP 503."""

    step_s: Callable[[int, int], float]
    max_batch: int = 64
    refuse: int = 0
    garbage: bool = False
    asked: int = 0
    widest: int = 0
    waiting: deque[_Sequence] = field(default_factory=deque)
    running: list[_Sequence] = field(default_factory=list)
    handlers: set[asyncio.Task[None]] = field(default_factory=set)
    connections: set[asyncio.BaseTransport] = field(default_factory=set)

    async def steps(self) -> None:
        while True:
            new = []
            while self.waiting and len(self.running) + len(new) < self.max_batch:
                new.append(self.waiting.popleft())
            if not new and not self.running:
                await asyncio.sleep(0.0005)
                continue
            await asyncio.sleep(self.step_s(len(self.running), sum(s.prompt for s in new)))
            self.running += new
            self.widest = max(self.widest, len(self.running))
            for sequence in self.running:
                sequence.left -= 1
                sequence.ready.put_nowait(sequence.left)
            self.running = [s for s in self.running if s.left > 0]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if task := asyncio.current_task():
            self.handlers.add(task)
            task.add_done_callback(self.handlers.discard)
        try:
            while request := await reader.readline():
                length = 0
                while (line := await reader.readline()).strip():
                    name, _, value = line.decode().partition(":")
                    length = int(value) if name.lower() == "content-length" else length
                body = await reader.readexactly(length)
                if b"/v1/models" in request:
                    self._plain(writer, 200, json.dumps({"data": [{"id": "fake"}]}))
                else:
                    await self._answer(writer, json.loads(body), chat=b"chat" in request)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client left, or the test is over: asyncio would log the latter as a fault
        finally:
            writer.close()

    def _plain(self, writer: asyncio.StreamWriter, status: int, text: str) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        writer.write((head + text).encode())

    async def _answer(self, writer: asyncio.StreamWriter, body: dict[str, object], *, chat: bool) -> None:
        self.asked += 1
        if self.asked <= self.refuse:
            self._plain(writer, 503, "overloaded")
            return
        prompt = body["messages"][0]["content"] if chat else body["prompt"]  # type: ignore[index]
        sequence = _Sequence(len(str(prompt).split()), int(str(body["max_tokens"])))
        made = sequence.left
        self.waiting.append(sequence)
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )

        def send(data: str) -> None:
            event = f"data: {data}\n\n".encode()
            writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")

        if self.garbage:
            send("{not json")
        while True:
            left = await sequence.ready.get()
            piece = {"delta": {"content": "x "}} if chat else {"text": "x "}
            send(json.dumps({"choices": [piece]}))
            await writer.drain()
            if left <= 0:
                break
        usage = {"prompt_tokens": sequence.prompt, "completion_tokens": made}
        send(json.dumps({"choices": [], "usage": usage}))
        send("[DONE]")
        writer.write(b"0\r\n\r\n")


class _Connection(asyncio.StreamReaderProtocol):
    """A connection that the server knows from its first moment to its last."""

    def __init__(self, server: FakeServer) -> None:
        super().__init__(asyncio.StreamReader(), server.handle)
        self._server = server
        self._open: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._open = transport
        self._server.connections.add(transport)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._open is not None:
            self._server.connections.discard(self._open)


@contextmanager
def served(server: FakeServer) -> Iterator[str]:
    """The server on a free port of this machine, in a thread of its own; gives its address."""
    loop = asyncio.new_event_loop()
    started = threading.Event()
    address: list[str] = []
    stop = asyncio.Event()

    async def main() -> None:
        running = asyncio.get_running_loop()
        listening = await running.create_server(lambda: _Connection(server), "127.0.0.1", 0)
        address.append(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        stepping = asyncio.create_task(server.steps())
        started.set()
        await stop.wait()
        stepping.cancel()
        listening.close()
        # What the loop accepted last becomes a connection in a turn of its own, and what is aborted is closed in another.
        while server.connections or asyncio.all_tasks() != {asyncio.current_task()}:
            for connection in list(server.connections):
                connection.abort()  # type: ignore[attr-defined]
            for handler in list(server.handlers):
                handler.cancel()
            await asyncio.sleep(0.001)

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()), daemon=True)
    thread.start()
    try:
        assert started.wait(60.0), "the server did not start"
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60.0)
        loop.close()
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", ResourceWarning
            )  # of this server's own sockets, accepted as it closed
            gc.collect()
