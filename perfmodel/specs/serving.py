"""The `serving:` block of a job: an engine that answers requests, what it is asked, and what its users expect."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic_core import core_schema

from perfmodel.specs.economy import Grid, Price, PriceWords
from perfmodel.specs.fields import (
    Count,
    CountOrZero,
    Date,
    Duration,
    FileModel,
    Fraction,
    Number,
    ReadByItself,
    SpecModel,
    problem,
)
from perfmodel.specs.hardware import Cluster
from perfmodel.specs.layout import Degree
from perfmodel.specs.ranges import parse_k
from perfmodel.specs.workload import Workload

EngineName = Literal[
    "vllm", "sglang", "tensorrt-llm", "tgi", "lmdeploy", "mlc", "llama.cpp", "deepspeed-mii", "transformers",
    "neuron", "gaudi", "mindie",
]  # fmt: skip
ServedPrecision = Literal["fp32", "bf16", "fp16", "fp8", "int8", "fp4", "mxfp4", "int4", "w8a16"]
CachePrecision = Literal["bf16", "fp16", "fp8", "int8"]
#: Keys of a job that speak of training steps, and what a serving job says in their place.
TRAINING_ONLY: dict[str, str] = {
    "regime": "serving.load says how much is asked",
    "global_batch": "the batch follows from serving.load; serving.max_batch limits it",
    "batch_per_accelerator": "the batch follows from serving.load; serving.max_batch limits it",
    "global_batch_tokens": "the tokens of a step follow from serving.load; serving.max_batched_tokens limits them",
    "seq_len": "serving.input_tokens and serving.output_tokens give the lengths",
    "headroom": "serving.memory_fraction says how much of the memory the engine takes",
    "k": "serving.layout gives the accelerators of a replica and how many replicas there are",
    "steps": "a service has no last step",
    "tokens": "a service has no last token",
    "tokens_per_parameter": "a service has no last token",
    "epochs": "a service makes no passes over data",
    "data": "a service makes no passes over data",
    "deadline": "serving.slo says how long a request may take",
    "budget": "serving.demand asks for a fleet, whose price is told",
    "timed_steps": "a service has no last step",
    "jitter": "the spread of arrivals and lengths is that of serving.load and of the lengths",
    "reliability": "serving.spares gives the replicas that stand by",
    "framework": "serving.engine names the software",
    "gradient_dtype": "serving makes no gradients",
    "compression": "serving makes no gradients",
    "sync_every": "serving makes no gradients",
    "bucket": "serving makes no gradients",
    "first_bucket": "serving makes no gradients",
    "stalls": "no step of a service waits for a checkpoint",
    "input": "requests bring their input",
    "length_spread": "write serving.input_tokens: {mean: 1024, spread: 0.5}",
    "slow_devices": "not modelled for serving yet",
    "stack": "serving.engine and serving.version name the software",
    "algorithm": "not modelled for serving yet",
}
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
_MOST_RATE = 1e6
_DOUBLING_MOST = 64  # points of a range: a doubling range of any believable width has fewer


class Rates(NamedTuple):
    """Requests per second, ascending."""

    per_s: tuple[float, ...]


@dataclass(frozen=True)
class RateText(ReadByItself):
    """`8 /s`, `1,2,4 /s`, `1..64 /s` (doubling), `8..64:8 /s` (steps); per second, minute or hour."""

    one: bool = False
    _FORM: ClassVar[re.Pattern[str]] = re.compile(
        r"\s*(?P<numbers>[0-9.,:\seE+-]+?)\s*(?:req(?:uests?)?)?\s*/\s*(?P<unit>s|sec|second|min|minute|h|hour)\s*"
    )
    _RANGE: ClassVar[re.Pattern[str]] = re.compile(r"(.+?)\.\.([^:]+)(?::(.+))?")

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, object]:
        example = "200 /s" if self.one else "1..64 /s"
        return {"type": "string", "pattern": r"^[0-9].*/ ?(s|min|h)", "examples": [example]}

    def read(self, value: object) -> object:
        """The rates in requests per second.

        >>> RateText().read("0.5..4 /s").per_s, RateText().read("60, 120 /min").per_s, RateText(one=True).read("90 req/s")
        ((0.5, 1.0, 2.0, 4.0), (1.0, 2.0), 90.0)
        """
        if isinstance(value, Rates):
            return value
        if isinstance(value, (tuple, list)) and value and all(isinstance(v, float) for v in value):
            return Rates(tuple(value))  # from Python, per second
        if self.one and isinstance(value, float):
            return value
        example = "200 /s" if self.one else "1..64 /s, or 8 /s"
        found = self._FORM.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            raise problem("S006", f'cannot read "{value}" as a rate of requests', f"write it like: {example}")
        seconds = {"s": 1.0, "m": 60.0, "h": 3600.0}[found["unit"][0]]
        rates = sorted(
            {rate / seconds for part in found["numbers"].split(",") for rate in self._part(part, example)}
        )
        if self.one and len(rates) != 1:
            raise problem("S005", f"one rate is expected, got {value}", f"write it like: {example}")
        return rates[0] if self.one else Rates(tuple(rates))

    def _part(self, text: str, example: str) -> list[float]:
        about = f"write it like: {example}"
        found = self._RANGE.fullmatch(text.strip())
        numbers = [
            _plain_rate(part, about) for part in (found.groups() if found else (text,)) if part is not None
        ]
        if found is None:
            return numbers
        first, last = numbers[:2]
        if first > last:
            raise problem("S007", f'"{text.strip()}" runs backwards', f"write {last:g}..{first:g} /s")
        if len(numbers) == 3:
            count = math.floor((last - first) / numbers[2] + 1e-9) + 1
            if count > 1000:
                raise problem("S007", f"{count} rates are more than anyone reads", about)
            return [first + i * numbers[2] for i in range(count)]
        made = [first]
        while made[-1] * 2.0 <= last * (1 + 1e-9) and len(made) < _DOUBLING_MOST:
            made.append(made[-1] * 2.0)
        return made


def _plain_rate(text: str, about: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        raise problem("S006", f'cannot read "{text.strip()}" as a rate of requests', about) from None
    if not 0.0 < rate <= _MOST_RATE:
        raise problem("S007", f"a rate must be above 0 and at most {_MOST_RATE:g}, got {text.strip()}", about)
    return rate


@dataclass(frozen=True)
class CountsText(ReadByItself):
    """Requests in flight: `8`, `[1, 8]`, `1..512` (doubling) or `64..128:8` (steps)."""

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, object]:
        whole = {"type": "integer", "minimum": 1}
        return {
            "anyOf": [whole, {"type": "string", "examples": ["1..512"]}, {"type": "array", "items": whole}]
        }

    @staticmethod
    def read(value: Any) -> tuple[int, ...]:
        """The counts, ascending."""
        from perfmodel.errors import UsageError

        try:
            return parse_k(value if isinstance(value, (str, int)) else tuple(value))
        except (UsageError, TypeError):
            raise problem(
                "S006", f"cannot read {value} as requests in flight", "write 8, [1, 8] or 1..512 (doubling)"
            ) from None


@dataclass(frozen=True)
class ArrivalText(ReadByItself):
    """`poisson`, `gamma(1.5)` by the coefficient of variation, or `regular`; kept as that coefficient."""

    _GAMMA: ClassVar[re.Pattern[str]] = re.compile(r"\s*gamma\s*\(\s*([0-9.]+)\s*\)\s*")

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, object]:
        return {"type": "string", "examples": ["poisson", "gamma(1.5)", "closed"]}

    def read(self, value: object) -> float:
        """Standard deviation over mean of the times between arrivals; nan of a closed loop.

        >>> ArrivalText().read("poisson"), ArrivalText().read("gamma(2)")
        (1.0, 2.0)
        """
        if isinstance(value, float):
            return value
        if value == "poisson":
            return 1.0
        if value == "closed":
            return math.nan
        found = self._GAMMA.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            raise problem(
                "S011", f'"{value}" is not a kind of arrivals', "one of poisson, gamma(1.5), closed"
            )
        return float(Number(least=0, most=10, above=True).read(found[1]))


Cv = Annotated[float, Number(least=0, most=10)]


class Lengths(SpecModel):
    """Tokens of a request: their mean, and how much they vary."""

    mean: Annotated[float, Number(least=1, most=1e8)] = Field(description="Mean tokens.")
    spread: Cv = Field(0.0, description="Standard deviation over the mean; 0: all alike.")


class OfferedLoad(SpecModel):
    """What the whole deployment is asked: arrivals at a rate, requests in flight, or all at once."""

    rate: Annotated[Rates, RateText()] | None = Field(
        None, description="Requests per second: 8 /s, or 1..64 /s."
    )
    concurrency: Annotated[tuple[int, ...], CountsText()] | None = Field(
        None, description="Requests in flight, each followed by the next: 64, or 1..512."
    )
    offline: Count | None = Field(
        None, description="Requests that all wait at the start: throughput alone counts."
    )
    arrivals: Annotated[float, ArrivalText()] | None = Field(
        None, description="poisson (the default of a rate), gamma(CV), or closed (of a concurrency)."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> OfferedLoad:
        given = [key for key in ("rate", "concurrency", "offline") if getattr(self, key) is not None]
        if len(given) != 1:
            said = "is missing" if not given else f"is given twice: {' and '.join(given)}"
            raise problem(
                "S004",
                f"the load {said}",
                "write one of {rate: 1..64 /s}, {concurrency: 1..512}, {offline: 1000}",
            )
        if self.arrivals is not None and math.isnan(self.arrivals) and given[0] != "concurrency":
            raise problem("S010", "a closed loop holds a number of requests in flight, not a rate",
                          "write load: {concurrency: 64}", at="arrivals")  # fmt: skip
        if self.arrivals is not None and not math.isnan(self.arrivals) and given[0] != "rate":
            raise problem("S010", f"arrivals vary about a rate, and {given[0]} has none",
                          "leave arrivals out, or write load: {rate: 8 /s}", at="arrivals")  # fmt: skip
        return self

    @property
    def kind(self) -> Literal["rate", "concurrency", "offline"]:
        """Which of the three it is."""
        return (
            "rate" if self.rate is not None else "concurrency" if self.concurrency is not None else "offline"
        )


class Limits(SpecModel):
    """Longest times that will do, by statistic over requests."""

    mean: Duration | None = Field(None, description="Of the mean.")
    p50: Duration | None = Field(None, description="Of the median.")
    p90: Duration | None = Field(None, description="Of nine requests in ten.")
    p95: Duration | None = Field(None, description="Of 95 in a hundred.")
    p99: Duration | None = Field(None, description="Of 99 in a hundred.")

    @model_validator(mode="after")
    def _some(self) -> Limits:
        given = [(name, getattr(self, name)) for name in STATISTICS if getattr(self, name) is not None]
        if not given:
            raise problem("S004", "an objective needs a statistic", "write it like: {p99: 2 s}")
        for name, limit in given:
            if limit <= 0.0:
                raise problem("S007", "nothing answers in no time", "write it like: {p99: 2 s}", at=name)
        return self


class Objectives(SpecModel):
    """What users expect of latency."""

    ttft: Limits | None = Field(None, description="Time to the first token.")
    tpot: Limits | None = Field(None, description="Time per output token after the first, of a request.")
    e2e: Limits | None = Field(None, description="Time from a request to its last token.")

    @property
    def limits(self) -> tuple[tuple[str, str, float], ...]:
        """Every limit as (quantity, statistic, seconds)."""
        return tuple(
            (quantity, name, getattr(found, name))
            for quantity in ("ttft", "tpot", "e2e")
            if (found := getattr(self, quantity)) is not None
            for name in STATISTICS
            if getattr(found, name) is not None
        )


class ServedLayout(SpecModel):
    """How one replica is cut, and how many replicas share the load."""

    tp: Degree = Field(1, description="Ranks that cut every layer.")
    pp: Degree = Field(1, description="Pipeline stages.")
    ep: Degree = Field(1, description="Ranks over which whole experts are spread; 1: tp cuts each expert.")
    dp: Degree = Field(
        1, description="Groups with sequences of their own that share the experts (attention dp)."
    )
    replicas: Degree = Field(1, description="Copies that share the load equally.")

    @property
    def accelerators(self) -> int:
        """Of one replica."""
        return self.tp * self.pp * self.dp


class Speculative(SpecModel):
    """Drafted tokens that a step of the model checks."""

    tokens: Annotated[int, Number(least=1, most=64, whole=True)] = Field(description="Drafted a step.")
    acceptance: Fraction = Field(description="Probability that a drafted token is accepted.")


class Serving(SpecModel):
    """The block as it is written."""

    engine: EngineName | None = Field(
        None, description="Software that serves; typical limits when nobody says."
    )
    version: str | None = Field(None, description="Its version: vLLM before and after 0.8 differ in kind.")
    date: Date | None = Field(None, description="When it runs, where the version is not known.")
    input_tokens: Lengths = Field(
        description="Tokens of a prompt: 1024, {mean: 1024, spread: 0.5} or {file: trace.csv}."
    )
    output_tokens: Lengths = Field(description="Tokens of an answer, written like input_tokens.")
    load: OfferedLoad | None = Field(None, description="What is asked; rates up to saturation when missing.")
    slo: Objectives | None = Field(
        None, description="What users expect: {ttft: {p99: 2 s}, tpot: {p99: 50 ms}}."
    )
    precision: ServedPrecision | None = Field(
        None,
        description="Weights and arithmetic; int4 and w8a16 are weights alone, with arithmetic in 16 bits.",
    )
    kv_precision: CachePrecision | None = Field(None, description="Keys and values; 16 bits when missing.")
    layout: ServedLayout | None = Field(
        None, description="auto, or {tp: 8, replicas: 2}; missing degrees are 1."
    )
    prefill: Literal["chunked", "whole"] | None = Field(
        None,
        description="chunked: prompts share steps with tokens; whole: they stop them; the engine's own when missing.",
    )
    prefix_hit: Annotated[float, Number(least=0, most=0.999)] = Field(
        0.0, description="Share of prompt tokens whose keys and values are there already."
    )
    speculative: Speculative | None = Field(None, description="Drafted tokens.")
    max_batch: Count | None = Field(
        None, description="Sequences at once in a replica; the engine's own when missing."
    )
    max_batched_tokens: Count | None = Field(
        None, description="Tokens of a step; the engine's own when missing."
    )
    memory_fraction: Annotated[float, Number(least=0.05, most=1)] | None = Field(
        None, description="Share of the memory that the engine takes; its own when missing."
    )
    cache: Literal["reserve", "evict"] | None = Field(
        None, description="reserve: memory for the whole answer is booked at the start; evict: as it grows."
    )
    requests: Count | None = Field(
        None,
        description="Of a benchmark that holds a concurrency: its first requests start together; a steady state when missing.",
    )
    demand: Annotated[float, RateText(one=True)] | None = Field(
        None, description="Requests per second that a fleet of replicas is to answer within the slo: 200 /s."
    )
    spares: CountOrZero | None = Field(
        None, description="Replicas beyond those that the demand needs; 1 when missing."
    )

    @field_validator("prefill", mode="before")
    @classmethod
    def _no_pools(cls, value: object) -> object:
        if value == "disaggregated" or (isinstance(value, Mapping) and "disaggregated" in value):
            raise problem(
                "S011",
                "prefill on machines of its own (disaggregated) is not modelled yet",
                "write prefill: chunked or whole; two pools can be sized as two jobs",
            )
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Serving:
        kind = self.load.kind if self.load is not None else None
        if kind == "offline" and self.slo is not None:
            raise problem("S010", "an offline load has no latency that an slo could limit",
                          "leave slo out, or write load: {rate: 1..64 /s}", at="slo")  # fmt: skip
        if kind == "offline" and self.requests is not None:
            raise problem(
                "S010", "load.offline counts the requests already", "leave requests out", at="requests"
            )
        if (
            kind == "concurrency"
            and self.requests is not None
            and self.load is not None
            and self.load.concurrency
        ):
            most = self.load.concurrency[-1]
            if self.requests < most:
                raise problem("S010", f"{self.requests} requests cannot keep {most} in flight",
                              f"write requests: {10 * most}, or a smaller concurrency", at="requests")  # fmt: skip
        if kind == "offline" and self.demand is not None:
            raise problem("S010", "a demand arrives at a rate, and the load is offline",
                          "leave load out, or write load: {rate: 1..64 /s}", at="demand")  # fmt: skip
        if self.demand is None and self.spares is not None:
            raise problem(
                "S004", "spares stand by for a demand, and none is given", "write demand: 200 /s", at="spares"
            )
        replicas = self.layout.replicas if self.layout is not None else 1
        if self.demand is not None and replicas > 1:
            raise problem("S010", "both a demand, which asks for the number of replicas, and that number",
                          "keep one of demand and layout.replicas", at="demand")  # fmt: skip
        if self.output_tokens.mean <= 1.0 and self.slo is not None and self.slo.tpot is not None:
            raise problem(
                "S010", "an answer of one token has no time between tokens", "leave slo.tpot out", at="slo"
            )
        if (self.version or self.date) and self.engine is None:
            at = "version" if self.version else "date"
            raise problem("S004", f"a {at} of which engine?", "name the engine, such as engine: vllm", at=at)
        return self


class ServingJob(FileModel):
    """A job that serves, with everything looked up. `notes` say what was assumed."""

    name: str
    workload: Workload
    cluster: Cluster
    serving: Serving
    price: Price
    grid: Grid | None = None
    notes: tuple[str, ...] = ()

    @property
    def replicas(self) -> int:
        """Copies that share the load."""
        return self.serving.layout.replicas if self.serving.layout is not None else 1


class ServingFile(SpecModel):
    """A serving job as it is written."""

    name: str | None = Field(None, description="What to call the job.")
    workload: Workload = Field(description="Zoo name, an inline mapping, {file: ...} or {hf: config.json}.")
    cluster: Cluster = Field(description="Catalogue name of a cluster or node, or an inline mapping.")
    serving: Serving = Field(description="Engine, requests, load and objectives.")
    price: PriceWords | None = Field(None, description="What accelerators cost.")
    grid: Grid | None = Field(None, description="Where the electricity comes from: a grid's id.")
