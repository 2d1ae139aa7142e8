"""A small load client for servers that speak the OpenAI protocol: closed loop (requests held open) or open loop (a rate).

Each load runs three phases. The first requests are warm-up and are not counted; then come the measured ones; and the
load is kept up until the last measured one has ended, so that none of them runs on an emptying server. Throughput counts
the tokens that arrive between the first and the last measured request, whoever asked for them.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from perfmodel.errors import Problem, SpecError, UsageError
from perfmodel.readings.load.point import STATISTICS, LoadPoint

if TYPE_CHECKING:
    import httpx

MOST_REQUESTS: Final = 100_000  # of one load
MOST_OPEN: Final = 4096  # requests at once, whatever is asked for
_WORDS: Final = (
    "time",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
)
_NORMAL_90: Final = 1.6449  # of a two-sided 90 % interval


@dataclass(frozen=True)
class Target:
    """Where requests go and what each asks for."""

    url: str  # such as http://localhost:8000
    model: str | None = None  # none: the first that the server lists
    api: Literal["completions", "chat"] = "completions"
    input_tokens: int = 512  # words of the prompt; the server tells how many tokens they were
    output_tokens: int = 128
    api_key: str | None = None


@dataclass(frozen=True)
class Plan:
    """How a load is run. Requests and time are both bounded."""

    requests: int = 200
    warmup: int = 8
    most_s: float = 120.0  # of one load, warm-up included
    timeout_s: float = 60.0  # without a byte
    arrival_cv: float = 1.0  # of the intervals in an open loop
    seed: int = 0


@dataclass
class Answer:
    """One request: when it was sent, when each piece of text came, and how many tokens the server counted."""

    sent_s: float
    pieces_s: list[float] = field(default_factory=list)
    ended_s: float = math.nan
    input_tokens: float | None = None
    output_tokens: float | None = None
    fault: str | None = None

    @property
    def good(self) -> bool:
        return self.fault is None and bool(self.pieces_s)

    @property
    def tokens(self) -> float:
        """Tokens as the server counts them, else one for each piece."""
        return self.output_tokens or float(len(self.pieces_s))


def measure_load(
    target: Target,
    *,
    concurrency: int | None = None,
    rate_per_s: float | None = None,
    plan: Plan | None = None,
) -> LoadPoint:
    """Run one load and sum it up; SpecError when no request succeeds."""
    plan = plan or Plan()
    if (concurrency is None) == (rate_per_s is None):
        raise UsageError("a load is either a concurrency or a rate", code="M021")
    if concurrency is not None and not 1 <= concurrency <= MOST_OPEN:
        raise UsageError(f"a concurrency from 1 to {MOST_OPEN}, got {concurrency}", code="M021")
    if rate_per_s is not None and not 0.0 < rate_per_s <= 1e5:
        raise UsageError(f"a rate above 0 and at most 100000 /s, got {rate_per_s:g}", code="M021")
    if not 1 <= plan.requests <= MOST_REQUESTS:
        raise UsageError(f"from 1 to {MOST_REQUESTS} requests a load, got {plan.requests}", code="M021")
    run = _Run(target, plan)
    answers = asyncio.run(run.closed(concurrency) if concurrency is not None else run.open(rate_per_s or 0.0))
    load = {"concurrency": float(concurrency)} if concurrency is not None else {"rate_per_s": rate_per_s}
    return summed_up(answers, plan, source=target.url, model=run.model, **load)


class _Run:
    def __init__(self, target: Target, plan: Plan) -> None:
        self.target, self.plan, self.model = target, plan, target.model
        self._random = random.Random(plan.seed)
        self._answers: list[Answer] = []
        self._counted = 0  # measured requests that have ended
        self._enough = asyncio.Event()

    async def closed(self, concurrency: int) -> list[Answer]:
        """Each of so many clients sends its next request when its last has ended."""

        async def work(client: httpx.AsyncClient) -> None:
            while not self._enough.is_set():
                answer = await self._ask(client)
                if answer.fault is not None:
                    await asyncio.sleep(0.05)  # a server that refuses at once is not hammered

        return await self._run(lambda client: [asyncio.create_task(work(client)) for _ in range(concurrency)])

    async def open(self, rate_per_s: float) -> list[Answer]:
        """Requests start at random times at a mean rate, whether or not earlier ones have ended."""

        async def arrive(client: httpx.AsyncClient) -> None:
            tasks: set[asyncio.Task[Answer]] = set()
            shape = 1.0 / max(self.plan.arrival_cv, 0.01) ** 2
            due = time.perf_counter()
            try:
                while not self._enough.is_set():
                    if len(tasks) < MOST_OPEN:
                        task = asyncio.create_task(self._ask(client))
                        tasks.add(task)
                        task.add_done_callback(tasks.discard)
                    due += self._random.gammavariate(shape, 1.0 / (shape * rate_per_s))
                    await asyncio.sleep(max(due - time.perf_counter(), 0.0))
            finally:
                # Waited for, so that each closes its connection while the client still stands.
                left = list(tasks)
                for task in left:
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)

        return await self._run(lambda client: [asyncio.create_task(arrive(client))])

    async def _run(self, start: Any) -> list[Answer]:
        httpx = _httpx()
        limits = httpx.Limits(max_connections=MOST_OPEN, max_keepalive_connections=MOST_OPEN)
        headers = {"Authorization": f"Bearer {self.target.api_key}"} if self.target.api_key else {}
        timeout = httpx.Timeout(self.plan.timeout_s)
        async with httpx.AsyncClient(
            base_url=self.target.url.rstrip("/"), limits=limits, timeout=timeout, headers=headers
        ) as client:
            if self.model is None:
                self.model = await self._first_model(client)
            tasks: Sequence[asyncio.Task[None]] = start(client)
            try:
                await asyncio.wait_for(self._enough.wait(), self.plan.most_s)
            except TimeoutError:
                self._enough.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._answers

    async def _first_model(self, client: httpx.AsyncClient) -> str:
        httpx = _httpx()
        try:
            listed = (await client.get("/v1/models")).json()
            return str(listed["data"][0]["id"])
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UsageError(
                f"{self.target.url}: no answer: {str(error) or type(error).__name__}",
                code="M022",
                help="is the server up? The address is such as http://localhost:8000",
            ) from None
        except (ValueError, KeyError, IndexError, TypeError):
            raise UsageError(
                f"{self.target.url}: /v1/models lists no model", code="M022", help="name it with --model"
            ) from None

    async def _ask(self, client: httpx.AsyncClient) -> Answer:
        """Send one request and read its stream. The request is in the list from its start: its place is its turn."""
        httpx = _httpx()
        index = len(self._answers)
        answer = Answer(time.perf_counter())
        self._answers.append(answer)
        path, body = self._body()
        try:
            async with client.stream("POST", path, json=body) as response:
                if response.status_code != 200:
                    text = (await response.aread())[:200].decode("utf-8", "replace")
                    answer.fault = f"HTTP {response.status_code}: {' '.join(text.split())}"
                else:
                    async for line in response.aiter_lines():
                        if _take(line, answer, time.perf_counter()):
                            break
        except httpx.HTTPError as error:
            answer.fault = str(error) or type(error).__name__
        answer.ended_s = time.perf_counter()
        if answer.fault is None and not answer.pieces_s:
            answer.fault = "an answer without text"
        if self.plan.warmup <= index < self.plan.warmup + self.plan.requests:
            self._counted += 1
            if self._counted == self.plan.requests:
                self._enough.set()
        return answer

    def _body(self) -> tuple[str, dict[str, Any]]:
        # Every prompt begins with its own number, so that no cache of prefixes answers for the prefill.
        words = [
            str(self._random.randrange(10**9)),
            *self._random.choices(_WORDS, k=self.target.input_tokens - 1),
        ]
        prompt = " ".join(words)
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.target.output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
        }
        if self.target.api == "chat":
            return "/v1/chat/completions", body | {"messages": [{"role": "user", "content": prompt}]}
        return "/v1/completions", body | {"prompt": prompt}


def _take(line: str, answer: Answer, now: float) -> bool:
    """Read one line of the event stream into the answer; True at its end."""
    if not line.startswith("data:"):
        return False
    data = line[5:].strip()
    if data == "[DONE]":
        return True
    try:
        event = json.loads(data)
    except ValueError:
        answer.fault = "a line of the stream is not JSON"
        return True
    if not isinstance(event, dict):
        return False
    if event.get("error"):
        answer.fault = f"error in the stream: {str(event['error'])[:200]}"
        return True
    usage = event.get("usage")
    if isinstance(usage, dict):
        for key, name in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")):
            value = usage.get(key)
            if isinstance(value, int) and 0 < value < 10**9:
                setattr(answer, name, float(value))
    choices = event.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        delta = choices[0].get("delta")
        text = delta.get("content") if isinstance(delta, dict) else choices[0].get("text")
        if text:
            answer.pieces_s.append(now)
    return False


def summed_up(
    answers: Sequence[Answer],
    plan: Plan,
    *,
    source: str,
    model: str | None = None,
    concurrency: float | None = None,
    rate_per_s: float | None = None,
) -> LoadPoint:
    """The point of one load from all its requests in the order in which they were sent."""
    measured = answers[plan.warmup : plan.warmup + plan.requests]
    ended = [answer for answer in measured if not math.isnan(answer.ended_s)]
    good = [answer for answer in ended if answer.good]
    if not good:
        faults = sorted({answer.fault for answer in answers if answer.fault})
        why = faults[0] if faults else f"none had ended after {plan.most_s:g} s"
        raise SpecError(Problem(source, code="M023", message=f"no measured request succeeded: {why}"))
    begin, end = good[0].sent_s, max(answer.ended_s for answer in good)
    span = max(end - begin, 1e-9)
    out = sum(_within(answer, begin, end) for answer in answers if answer.good)
    notes: list[str] = []
    if len(ended) < plan.requests:
        notes.append(
            f"stopped after {plan.most_s:g} s with {len(ended)} of {plan.requests} requests measured"
        )
    samples = {
        "ttft": np.array([answer.pieces_s[0] - answer.sent_s for answer in good]),
        "tpot": np.array(
            [
                (a.pieces_s[-1] - a.pieces_s[0]) / (a.tokens - 1.0)
                for a in good
                if len(a.pieces_s) > 1 and a.tokens > 1
            ]
        ),
        "e2e": np.array([answer.pieces_s[-1] - answer.sent_s for answer in good]),
    }
    low: dict[str, float] = {}
    high: dict[str, float] = {}
    found: dict[str, dict[str, float]] = {}
    for quantity, values in samples.items():
        found[quantity] = {}
        for statistic in STATISTICS if values.size else ():
            value, below, above = estimate(values, statistic)
            found[quantity][statistic] = value
            low[f"{quantity}_{statistic}"] = below
            if above is not None:
                high[f"{quantity}_{statistic}"] = above
    lengths = [answer.input_tokens for answer in good if answer.input_tokens is not None]
    mean_out = float(np.mean([answer.tokens for answer in good]))
    return LoadPoint(
        source=source,
        tool="perfmodel measure serving",
        concurrency=concurrency,
        rate_per_s=rate_per_s,
        requests=float(len(good)),
        failed=float(len(ended) - len(good)),
        duration_s=span,
        input_tokens=float(np.mean(lengths)) if lengths else None,
        output_tokens=mean_out,
        requests_per_s=out / span / mean_out,
        throughput_out_tokens_per_s=out / span,
        ttft_s=found["ttft"],
        tpot_s=found["tpot"],
        e2e_s=found["e2e"],
        low_s=low,
        high_s=high,
        model=model,
        notes=tuple(notes),
    )


def _within(answer: Answer, begin: float, end: float) -> float:
    """Tokens of an answer that came in a window: its pieces there, each worth the same."""
    inside = sum(begin <= at <= end for at in answer.pieces_s)
    return inside * answer.tokens / len(answer.pieces_s)


def estimate(
    values: np.ndarray[Any, np.dtype[np.float64]], statistic: str
) -> tuple[float, float, float | None]:
    """A statistic and its 90 % interval; no upper end where the sample is too small to bound a quantile from above.

    The mean's interval is normal, a quantile's lies between order statistics (binomial): it assumes no distribution.

    >>> estimate(np.arange(1.0, 101.0), "p50")
    (50.5, 42.0, 59.0)
    >>> estimate(np.arange(1.0, 101.0), "p99")[1:]
    (98.0, None)
    """
    if statistic == "mean":
        mean = float(values.mean())
        half = _NORMAL_90 * float(values.std(ddof=1)) / math.sqrt(values.size) if values.size > 1 else 0.0
        return mean, max(mean - half, 0.0), mean + half
    q, n = float(statistic[1:]) / 100.0, values.size
    ordered = np.sort(values)
    half = _NORMAL_90 * math.sqrt(n * q * (1.0 - q))
    below, above = max(math.ceil(n * q - half), 1), math.floor(n * q + half) + 1
    return (
        float(np.quantile(values, q)),
        float(ordered[below - 1]),
        float(ordered[above - 1]) if above <= n else None,
    )


def measure_curve(
    target: Target,
    *,
    concurrency: Sequence[int] = (),
    rate_per_s: Sequence[float] = (),
    plan: Plan | None = None,
) -> Iterator[LoadPoint]:
    """Each load in turn, smallest first; each with a seed of its own."""
    plan = plan or Plan()
    for step, open_requests in enumerate(sorted(concurrency)):
        warmup = max(
            plan.warmup, open_requests
        )  # the first wave starts at once and is none of a steady state
        yield measure_load(
            target, concurrency=open_requests, plan=replace(plan, seed=plan.seed + step, warmup=warmup)
        )
    for step, rate in enumerate(sorted(rate_per_s)):
        yield measure_load(target, rate_per_s=rate, plan=replace(plan, seed=plan.seed + step))


def _httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise UsageError(
            "the load client needs httpx", code="M024", help="pip install 'perfmodel[load]'"
        ) from None
    return httpx
