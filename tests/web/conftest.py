"""A library shared by all web tests, and a client that talks to the app without a socket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from perfmodel.web.answers import Library
from perfmodel.web.app import create_app
from perfmodel.web.guards import Limits
from perfmodel.web.workshop import Workers


@pytest.fixture(scope="session")
def library() -> Library:
    return Library()


class Client:
    """Blocking calls into an ASGI app."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as client:
                return await client.request(method, path, **options)

        return asyncio.run(call())

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", **options.pop("headers", {})}
        return self.request("POST", path, content=raw, headers=headers, **options)


@pytest.fixture
def make_client(library: Library) -> Any:
    """Clients of apps with chosen limits or answers."""
    opened = []

    def make(answers: Any = None, **limits: Any) -> Client:
        workers = Workers(lambda: answers or library)
        opened.append(workers)
        return Client(create_app(workers, Limits(**limits)))

    yield make
    for workers in opened:
        workers.close()


@pytest.fixture
def client(make_client: Any) -> Client:
    return make_client()
