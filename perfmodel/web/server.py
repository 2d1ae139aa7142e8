"""Running the app under uvicorn, on loopback by default."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfmodel.errors import UsageError
from perfmodel.web.guards import LOOPBACK, Limits
from perfmodel.web.workshop import Workers

if TYPE_CHECKING:
    import uvicorn


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def limits_for(host: str, allowed: tuple[str, ...] = (), limits: Limits | None = None) -> Limits:
    """The limits with the Host names that a server on `host` answers to."""
    names = [*LOOPBACK, *(name.lower() for name in allowed)]
    if host not in ("0.0.0.0", "::"):
        names.append(f"[{host}]" if ":" in host and not host.startswith("[") else host.lower())
    return replace(limits or Limits(), hosts=tuple(dict.fromkeys(names)))


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, or a usage error with the reason."""
    try:
        return socket.create_server(
            (host.strip("[]"), port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"cannot listen on {host}:{port}: {reason}", help="choose another --port; 0 takes a free one"
        ) from None


def build(workers: Workers, limits: Limits) -> uvicorn.Server:
    """The server, ready to run on a socket."""
    import uvicorn

    from perfmodel.web.app import create_app

    config = uvicorn.Config(
        create_app(workers, limits),
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=3,
        limit_concurrency=1000,
        backlog=512,
        h11_max_incomplete_event_size=32 * 1024,
        http=patient_protocol(limits.header_seconds),
        ws="none",
        lifespan="on",
    )
    return uvicorn.Server(config)


def patient_protocol(seconds: float) -> Any:
    """uvicorn's protocol with an end to its patience: headers that do not arrive in time close the connection."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class PatientProtocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(seconds, transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._timer is not None and self.cycle is not None:
                self._timer.cancel()
                self._timer = None

        def connection_lost(self, exc: Exception | None) -> None:
            if self._timer is not None:
                self._timer.cancel()
            super().connection_lost(exc)

    return PatientProtocol
