"""The fence around the server: hosts, origins, sizes, rates and patience, before any request is looked at."""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.types import Message, Receive, Scope, Send

App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


@dataclass(frozen=True)
class Limits:
    """What one client may ask for."""

    hosts: tuple[str, ...] = LOOPBACK
    body_bytes: int = 64 * 1024
    upload_bytes: int = 512 * 1024
    body_seconds: float = 10.0
    header_seconds: float = 10.0
    url_bytes: int = 8 * 1024
    rate_per_s: float = 600.0
    burst: float = 1200.0
    queue: int = 256  # questions that wait for the processor; beyond it the answer is 503
    cache_bytes: int = 8 * 1024 * 1024  # of packed answers, a thousand or so


@dataclass
class Buckets:
    """A token bucket for each address; the oldest are forgotten, so memory stays flat."""

    rate: float
    burst: float
    most: int = 10_000
    clock: Callable[[], float] = time.monotonic
    _state: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, who: str) -> float:
        """Take a token; returns 0, or the seconds to wait for one."""
        now = self.clock()
        tokens, then = self._state.pop(who, (self.burst, now))
        tokens = min(self.burst, tokens + (now - then) * self.rate)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / self.rate
        self._state[who] = (tokens - 1 if tokens >= 1 else tokens, now)
        if len(self._state) > self.most:
            self._state.popitem(last=False)
        return wait


class Guard:
    """ASGI middleware that refuses what the limits forbid and adds the security headers to every answer."""

    def __init__(self, app: App, limits: Limits) -> None:
        self.app = app
        self.limits = limits
        self.buckets = Buckets(limits.rate_per_s, limits.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(send_guarded, *refusal)
            return
        body, problem = await self._body(scope, receive)
        if problem is not None:
            await _refuse(send_guarded, *problem)
            return
        sent = False

        async def receive_whole() -> Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, receive_whole, send_guarded)

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        headers = _headers(scope)
        if len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > self.limits.url_bytes:
            return 414, "url_too_long", f"the address is longer than {self.limits.url_bytes} bytes"
        hosts = headers.get(b"host", [])
        if len(hosts) != 1 or not self._known(hosts[0]):
            return (
                421,
                "wrong_host",
                "this server does not answer to that Host name (see perfmodel serve --allow-host)",
            )
        for origin in headers.get(b"origin", []):
            if not self._same_origin(origin, hosts[0]):
                return 403, "wrong_origin", "requests from other sites are refused"
        if headers.get(b"sec-fetch-site", [b"none"])[0] not in (b"none", b"same-origin"):
            navigation = headers.get(b"sec-fetch-mode") == [b"navigate"] and scope["method"] == "GET"
            if not navigation or scope["path"].startswith("/api/"):
                return 403, "wrong_origin", "requests from other sites are refused"
        client = scope.get("client")
        wait = self.buckets.take(client[0] if client else "?")
        if wait > 0:
            return 429, "too_many_requests", f"try again in {wait:.2f} s"
        return None

    def _known(self, host: bytes) -> bool:
        name = _host_name(host)
        return name is not None and name in self.limits.hosts

    def _same_origin(self, origin: bytes, host: bytes) -> bool:
        try:
            parts = urlsplit(origin.decode("ascii"))
        except (UnicodeDecodeError, ValueError):
            return False
        return (
            parts.scheme in ("http", "https")
            and parts.netloc.lower() == host.decode("latin-1").strip().lower()
        )

    async def _body(self, scope: Scope, receive: Receive) -> tuple[bytes, tuple[int, str, str] | None]:
        """The whole body, within size and time."""
        most = self.limits.upload_bytes if scope["path"] == "/api/calibrate" else self.limits.body_bytes
        too_large = (413, "too_large", f"the body is larger than {most} bytes")
        lengths = _headers(scope).get(b"content-length", [])
        if lengths and (not lengths[0].isdigit() or len(lengths[0]) > 12 or int(lengths[0]) > most):
            return b"", too_large
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return b"", (400, "gone", "the client went away")
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size > most:
                        return b"", too_large
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        return b"".join(chunks), None
        except TimeoutError:
            return b"", (408, "too_slow", f"the body took longer than {self.limits.body_seconds:g} s")


def error_body(code: str, message: str, problems: list[dict[str, str]] | None = None) -> bytes:
    """The one form of every error."""
    return json.dumps({"error": {"code": code, "message": message, "problems": problems or []}}).encode()


async def _refuse(send: Send, status: int, code: str, message: str) -> None:
    body = error_body(code, message)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
    ]
    if status == 429:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _headers(scope: Scope) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for name, value in scope.get("headers", []):
        found.setdefault(name.lower(), []).append(value)
    return found


def _host_name(host: bytes) -> str | None:
    """The name in a Host header, without its port.

    >>> _host_name(b"[::1]:8765"), _host_name(b"localhost"), _host_name(b"evil.example:80:80")
    ('[::1]', 'localhost', None)
    """
    try:
        text = host.decode("ascii").strip().lower()
    except UnicodeDecodeError:
        return None
    if text.startswith("["):
        name, bracket, rest = text.partition("]")
        name += bracket
    else:
        name, colon, rest = text.partition(":")
        rest = colon + rest
    if rest and not (rest.startswith(":") and (rest[1:].isdigit() or rest == ":")):
        return None
    return name
