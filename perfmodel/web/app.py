"""The ASGI application: routes, error forms, and static files that were read into memory at the start."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from importlib import resources
from string import Template
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perfmodel.specs.refusals import refusal
from perfmodel.web.guards import App, Guard, Limits, error_body
from perfmodel.web.openapi import document
from perfmodel.web.requests import Pair, Upload, UploadError, WhatIf, read_timings
from perfmodel.web.service import ServiceIf
from perfmodel.web.tasks import unpack
from perfmodel.web.workshop import BusyError, Workers, Workshop

STATIC = {
    "index.html": "text/html; charset=utf-8",
    "serving.html": "text/html; charset=utf-8",
    "serving.js": "text/javascript; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "state.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_CURRENT = ' aria-current="page"'
# What the head that the pages share says on each of them: `head.html` stands before the rest of the page.
HEADS = {
    "index.html": {
        "word": "what if", "script": "app.js", "training": _CURRENT, "serving": "",
        "description": "Predict how a distributed training job scales, and what moves the knee.",
    },
    "serving.html": {
        "word": "a service", "script": "serving.js", "training": "", "serving": _CURRENT,
        "description": "Predict throughput, latency and price of a model that answers requests.",
    },
}  # fmt: skip
Model = TypeVar("Model", bound=BaseModel)
_SECONDS = 60.0  # for one answer; far beyond any sane one


class RefusalError(Exception):
    """An answer that is an error."""

    def __init__(
        self, status: int, code: str, message: str, problems: list[dict[str, str]] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(code, message, problems)


def create_app(workers: Workers, limits: Limits | None = None) -> App:
    """The whole server as an ASGI app."""
    limits = limits or Limits()
    workshop = Workshop(workers, limits.cache_bytes, limits.queue)
    api = _Api(workshop)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        warming = asyncio.create_task(workers.warm())
        yield
        warming.cancel()
        workers.close()

    routes = [Route(f"/{name}", _static(name)) for name in STATIC]
    routes += [
        Route("/", _static("index.html")),
        Route("/openapi.json", api.openapi),
        Route("/healthz", api.health),
        Route("/api/catalog", api.catalog),
        Route("/api/predict", api.predict, methods=["POST"]),
        Route("/api/service", api.service, methods=["POST"]),
        Route("/api/compare", api.compare, methods=["POST"]),
        Route("/api/calibrate", api.calibrate, methods=["POST"]),
        Route("/api/job", api.job, methods=["POST"]),
        Route("/api/report", api.report, methods=["POST"]),
    ]
    handlers: dict[Any, Any] = {
        RefusalError: _refused,
        HTTPException: _http_error,
        BusyError: _busy,
        Exception: _fault,
    }
    return Guard(Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan), limits)


class _Api:
    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self._document = json.dumps(document()).encode()

    async def openapi(self, request: Request) -> Response:
        return _json(self._document)

    async def health(self, request: Request) -> Response:
        counts = {**vars(self.workshop.counts), "restarts": self.workshop.workers.restarts}
        return _json(json.dumps({"ok": True, **counts}).encode())

    async def catalog(self, request: Request) -> Response:
        return _packed(request, await self._answer("catalogue", ""))

    async def predict(self, request: Request) -> Response:
        job = await _read(request, WhatIf)
        return _packed(request, await self._answer("predict", job.canonical()))

    async def service(self, request: Request) -> Response:
        asked = await _read(request, ServiceIf)
        return _packed(request, await self._answer("service", asked.canonical()))

    async def compare(self, request: Request) -> Response:
        pair = await _read(request, Pair)
        return _packed(request, await self._answer("compare", pair.model_dump_json(exclude_defaults=True)))

    async def calibrate(self, request: Request) -> Response:
        upload = await _read(request, Upload)
        try:
            timings = read_timings(upload.timings)
        except UploadError as error:
            problems = [{"field": "timings", "message": message} for message in error.problems]
            raise RefusalError(422, "bad_timings", "the timings cannot be used", problems) from None
        job = upload.job.model_copy(update={"timings": timings})
        prediction = unpack(await self._answer("predict", job.canonical()))
        rows = json.dumps([row.model_dump(exclude_none=True) for row in timings]).encode()
        return _json(b'{"timings": ' + rows + b', "prediction": ' + prediction + b"}")

    async def job(self, request: Request) -> Response:
        job = await _read(request, WhatIf)
        return _packed(request, await self._answer("job", job.canonical()))

    async def report(self, request: Request) -> Response:
        job = await _read(request, WhatIf)
        page = await self._answer("report", job.canonical())
        name = f"{job.workload}-on-{job.cluster}.html"
        answer = _packed(request, page, "text/html")
        answer.headers["content-disposition"] = f'attachment; filename="{name}"'
        return answer

    async def _answer(self, task: str, payload: str) -> bytes:
        """A packed body; a refusal is raised."""
        try:
            async with asyncio.timeout(_SECONDS):
                status, body = await self.workshop.answer(f"{task} {payload}", task, payload)
        except TimeoutError:
            raise RefusalError(503, "too_long", f"no answer within {_SECONDS:g} s") from None
        if status != 200:
            raise _ready(status, unpack(body))
        return body


async def _read(request: Request, model: type[Model]) -> Model:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RefusalError(415, "not_json", "send the body as application/json")
    raw = await request.body()
    try:
        data = json.loads(raw, parse_float=_number)
    except (ValueError, RecursionError) as error:
        raise RefusalError(400, "bad_json", f"the body is not JSON: {type(error).__name__}") from None
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = [
            {"field": ".".join(str(part) for part in item["loc"])[:200], "message": refusal(item)[0][:300]}
            for item in error.errors(include_url=False, include_input=False)[:20]
        ]
        raise RefusalError(422, "bad_request", "the request cannot be understood", problems) from None


def _number(text: str) -> float | int:
    """A number with a point; 8.0 is as whole as 8, as in JSON Schema."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _static(name: str) -> Callable[[Request], object]:
    files = resources.files("perfmodel.web").joinpath("static")
    body = files.joinpath(name).read_bytes()
    if name in HEADS:
        head = files.joinpath("head.html").read_text(encoding="utf-8")
        body = Template(head).substitute(HEADS[name]).encode() + body
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'

    async def serve(request: Request) -> Response:
        headers = {"etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=STATIC[name], headers=headers)

    return serve


def _ready(status: int, body: bytes) -> RefusalError:
    """A refusal whose body a worker has written."""
    error = RefusalError(status, "", "")
    error.body = body
    return error


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json", headers={"cache-control": "no-store"})


def takes_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding header names gzip and does not refuse it.

    >>> takes_gzip("br, gzip;q=0.5"), takes_gzip("gzip; q=0"), takes_gzip("identity")
    (True, False, False)
    """
    for item in accepted.lower().split(","):
        name, _, quality = item.replace(" ", "").partition(";")
        if name == "gzip":
            return quality.removeprefix("q=").strip("0.") != "" or not quality
    return False


def _packed(request: Request, body: bytes, media_type: str = "application/json") -> Response:
    """A packed body as it is for whoever takes gzip, unpacked for others."""
    headers = {"cache-control": "no-store", "vary": "accept-encoding"}
    if takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(body, media_type=media_type, headers={**headers, "content-encoding": "gzip"})
    return Response(unpack(body), media_type=media_type, headers=headers)


async def _refused(request: Request, error: RefusalError) -> Response:
    return _json(error.body, error.status)


async def _http_error(request: Request, error: HTTPException) -> Response:
    answer = _json(
        error_body("not_found" if error.status_code == 404 else "http", str(error.detail)), error.status_code
    )
    for name, value in (error.headers or {}).items():
        answer.headers[name] = value
    return answer


async def _busy(request: Request, error: BusyError) -> Response:
    answer = _json(error_body("busy", "too many questions are waiting; try again"), 503)
    answer.headers["retry-after"] = "1"
    return answer


async def _fault(request: Request, error: Exception) -> Response:
    return _json(error_body("fault", f"internal fault: {type(error).__name__}; this is our mistake"), 500)
