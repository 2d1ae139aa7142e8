"""The policy language: `efficiency(k=64) >= 0.7`, parsed by hand into a frozen tree. Nothing is evaluated as code.

    policy     = measure comparator limit | limit comparator measure
    measure    = metric [ arguments ] | "change" "(" metric { "," argument } ")"
    arguments  = "(" [ argument { "," argument } ] ")"
    argument   = name "=" ( number [ "/" name ] | name ) | name   (a lone name only for share(part) and knee(rule))
    limit      = number [ unit ]                            (units: those of perfmodel.units, "%", "step", "steps")
    comparator = "<=" | ">=" | "<" | ">"

A policy that cannot be read raises `PolicyError` with the offset of the character at fault.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NoReturn

from perfmodel.errors import closest, did_you_mean
from perfmodel.units import UnitError, unit_scale

MAX_LENGTH = 300
COMPARATORS = ("<=", ">=", "<", ">")
KNEE_RULES = ("threshold", "curvature", "marginal")


@dataclass(frozen=True)
class Metric:
    """What a policy may measure: its dimension, whether it takes `k`, and one line of help."""

    name: str
    dimension: str  # base unit of perfmodel.units; "K" for a number of accelerators
    per_k: str  # "required", "optional" or "never"; "load" of a service, which takes a rate or a concurrency
    meaning: str


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "knee",
            "K",
            "never",
            "largest K worth paying for; knee(curvature) and knee(marginal) name the rule",
        ),
        Metric("p_star", "K", "never", "the K with the lowest cost"),
        Metric("fastest", "K", "never", "the K with the shortest time"),
        Metric("efficiency", "1", "required", "E(K) = S(K) / K"),
        Metric("speedup", "1", "required", "S(K) = T(baseline) / T(K)"),
        Metric("time", "s", "required", "time of one step"),
        Metric("throughput", "1", "required", "samples per second"),
        Metric("mfu", "1", "required", "share of the peak FLOP/s that the model's own FLOP take"),
        Metric("tflop_per_s_per_accelerator", "1", "required", "model TFLOP a second and accelerator"),
        Metric("tokens_per_s_per_accelerator", "1", "required", "tokens a second and accelerator"),
        Metric("samples_per_s_per_accelerator", "1", "required", "samples a second and accelerator"),
        Metric(
            "run_time", "s", "optional", "time of the whole run, interruptions included; without k: at p*"
        ),
        Metric("run_cost", "USD", "optional", "cost of the whole run; without k: at p*"),
        Metric("deadline_probability", "1", "required", "chance to keep the job's deadline"),
        Metric("budget_probability", "1", "required", "chance to keep the job's budget"),
        Metric(
            "cost", "USD", "optional", "cost of the run (of a step when no steps are given); without k: at p*"
        ),
        Metric("energy", "J", "optional", "energy of the run; without k: at p*"),
        Metric("carbon", "g", "optional", "carbon of the run; without k: at p*"),
        Metric(
            "memory", "B", "optional", "memory of the fullest device, in bytes or %; without k: the largest"
        ),
        Metric("share", "1", "required", "share of the step taken by one part: share(bubble, k=64)"),
        *(
            Metric(f"{quantity}_{statistic}", "s", "load", f"{statistic} of {words} of a service")
            for quantity, words in (
                ("ttft", "the time to the first token"),
                ("tpot", "the time per output token"),
                ("e2e", "the whole time of a request"),
            )
            for statistic in ("mean", "p50", "p90", "p95", "p99")
        ),
        Metric("tokens_per_s", "1", "load", "output tokens a second of a service"),
        Metric(
            "cost_per_mtok", "USD", "load", "cost of a million output tokens; without a load: at the knee"
        ),
        Metric("replicas", "1", "load", "replicas of a service that keep its slo: replicas(rate=200/s)"),
        Metric("max_load", "1", "load", "largest load at which a service keeps its slo"),
    )
}
#: Metrics of services; all others are of training jobs.
SERVING: frozenset[str] = frozenset(metric.name for metric in METRICS.values() if metric.per_k == "load")
_PER_S = {"s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
# A limit in the metric's own dimension, or one of these words.
RATES = frozenset(
    {"throughput", "tokens_per_s", "tokens_per_s_per_accelerator", "samples_per_s_per_accelerator"}
)
PERCENT_OK = frozenset({"efficiency", "memory", "share", "mfu", "deadline_probability", "budget_probability"})


class PolicyError(ValueError):
    """A policy that cannot be read: `offset` counts characters from 0 in the expression."""

    def __init__(self, message: str, offset: int, help: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.help = help


@dataclass(frozen=True)
class Limit:
    """A number in SI (or K, or steps), with the words it was written in."""

    value: float
    unit: str  # "K", "%", "step" or a base unit of perfmodel.units
    text: str


@dataclass(frozen=True)
class Policy:
    """`measure comparator limit`, with the measure always on the left."""

    text: str
    metric: Metric
    comparator: str
    limit: Limit
    change: bool = False
    k: int | None = None
    rule: str = "threshold"
    part: str | None = None
    rate_per_s: float | None = None
    concurrency: int | None = None

    @property
    def is_serving(self) -> bool:
        """Whether it speaks of a service, not of a training job."""
        return self.metric.name in SERVING

    @property
    def subject(self) -> str:
        """The number itself, in its canonical spelling, whether a policy bounds it or its change.

        >>> parse("change(time, k = 64) <= 5 %").subject
        'time(k=64)'
        """
        arguments = self._arguments()
        return f"{self.metric.name}({', '.join(arguments)})" if arguments else self.metric.name

    @property
    def measure(self) -> str:
        """The left side in its canonical spelling: two policies on one number share it.

        >>> parse("0.7<=efficiency( k = 64 )").measure, parse("change(knee) >= -1 step").measure
        ('efficiency(k=64)', 'change(knee)')
        """
        if self.change:
            return f"change({', '.join([self.metric.name, *self._arguments()])})"
        return self.subject

    def _arguments(self) -> list[str]:
        arguments = [self.part] if self.part else []
        if self.metric.name == "knee" and self.rule != "threshold":
            arguments.append(self.rule)
        if self.k is not None:
            arguments.append(f"k={self.k}")
        if self.rate_per_s is not None:
            arguments.append(f"rate={self.rate_per_s:g}/s")
        if self.concurrency is not None:
            arguments.append(f"concurrency={self.concurrency}")
        return arguments


@dataclass(frozen=True)
class _Token:
    kind: str  # number, name, sign, unit
    text: str
    offset: int


_TOKENS = re.compile(
    r"\s*(?:(?P<number>[+-]?(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)"
    r"|(?P<name>[A-Za-zµμ][\w-]*(?:/[A-Za-z]+)?)"
    r"|(?P<sign><=|>=|==|!=|<|>|=|[(),%/]))",
)


def _tokens(text: str) -> list[_Token]:
    found = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKENS.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise PolicyError(f"unexpected {text[at]!r}", at, "a policy looks like: efficiency(k=64) >= 0.7")
        kind = match.lastgroup or "sign"
        found.append(_Token(kind, match[kind], match.start(kind)))
        at = match.end()
    return found


class _Reader:
    """A cursor over the tokens of one policy."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.at = 0

    def peek(self) -> _Token:
        end = _Token("end", "the end", len(self.text.rstrip()))
        return self.tokens[self.at] if self.at < len(self.tokens) else end

    def next(self) -> _Token:
        token = self.peek()
        self.at += 1
        return token

    def take(self, sign: str) -> _Token | None:
        return self.next() if self.peek().kind == "sign" and self.peek().text == sign else None

    def expect(self, sign: str) -> None:
        if self.take(sign) is None:
            self.fail(f'expected "{sign}", got {_shown(self.peek())}')

    def fail(self, message: str, token: _Token | None = None, help: str | None = None) -> NoReturn:
        raise PolicyError(message, (token or self.peek()).offset, help)


def _shown(token: _Token) -> str:
    return token.text if token.kind == "end" else f'"{token.text}"'


def parse(text: str) -> Policy:
    """Read one policy.

    >>> policy = parse("time(k=128) <= 1.2 s")
    >>> policy.metric.name, policy.k, policy.comparator, policy.limit.value
    ('time', 128, '<=', 1.2)
    >>> parse("effciency(k=64) >= 0.7")
    Traceback (most recent call last):
        ...
    perfmodel.decide.gate.grammar.PolicyError: unknown metric "effciency"; did you mean "efficiency"?
    """
    if len(text) > MAX_LENGTH:
        raise PolicyError(f"a policy has at most {MAX_LENGTH} characters", MAX_LENGTH)
    reader = _Reader(text)
    if not reader.tokens:
        raise PolicyError("an empty policy", 0, "write one like: knee >= 64")
    flipped = reader.peek().kind == "number"
    if flipped:
        limit_tokens = _limit_tokens(reader)
        comparator = {"<=": ">=", ">=": "<=", "<": ">", ">": "<"}[_comparator(reader)]
        measure = _measure(reader)
    else:
        measure = _measure(reader)
        comparator = _comparator(reader)
        limit_tokens = _limit_tokens(reader)
    if reader.peek().kind != "end":
        reader.fail(
            f"nothing may follow a policy, got {_shown(reader.peek())}", help="write one policy a line"
        )
    return Policy(
        text=" ".join(text.split()),
        comparator=comparator,
        limit=_limit(reader, measure, *limit_tokens),
        metric=measure.metric,
        change=measure.change,
        k=measure.k,
        rule=measure.rule,
        part=measure.part,
        rate_per_s=measure.rate_per_s,
        concurrency=measure.concurrency,
    )


@dataclass(frozen=True)
class _Measure:
    metric: Metric
    change: bool
    k: int | None
    rule: str = "threshold"
    part: str | None = None
    rate_per_s: float | None = None
    concurrency: int | None = None


def _measure(reader: _Reader) -> _Measure:
    token = reader.next()
    if token.kind != "name":
        reader.fail(
            f"expected a metric, got {_shown(token)}", token, f"metrics: {', '.join(METRICS)}, change(...)"
        )
    change = token.text == "change"
    if change:
        reader.expect("(")
        token = reader.next()
    metric = METRICS.get(token.text)
    if metric is None:
        names = [*METRICS, "change"]
        reader.fail(
            f"unknown metric {_shown(token)}{did_you_mean(token.text, names) if token.kind == 'name' else ''}",
            token,
            f"metrics: {', '.join(names)}",
        )
    if change and metric.per_k == "load":
        reader.fail(
            f"no baseline holds {metric.name}: changes are of training jobs",
            token,
            f"write {_example(metric)}",
        )
    given: dict[str, Any] = {}
    more = reader.take(",") if change else reader.take("(")
    if more and not (not change and reader.peek().text == ")"):
        given = _arguments(reader, metric)
    if change or more:
        reader.expect(")")
    if metric.per_k == "required" and given.get("k") is None:
        reader.fail(
            f"{metric.name} needs a k",
            token,
            f"write {metric.name}({'PART, ' if metric.name == 'share' else ''}k=64)",
        )
    if metric.name == "share" and given.get("part") is None:
        reader.fail("share needs a part of the step", token, "write share(bubble, k=64)")
    if metric.name == "replicas" and "rate_per_s" not in given:
        reader.fail("replicas needs the rate that they answer", token, "write replicas(rate=200/s) <= 12")
    return _Measure(metric, change, given.pop("k", None), **given)


def _arguments(reader: _Reader, metric: Metric) -> dict[str, object]:
    """Arguments by their field of a policy."""
    given: dict[str, object] = {}
    takes_load = metric.per_k == "load" and metric.name != "max_load"
    while True:
        name = reader.next()
        if name.kind != "name":
            reader.fail(f"expected an argument such as k=64, got {_shown(name)}", name)
        if reader.take("=") is None:
            value, key = name, {"knee": "rule", "share": "part"}.get(metric.name, "")
        else:
            value, key = reader.next(), name.text
        if key == "k" and metric.per_k not in ("never", "load") and "k" not in given:
            given["k"] = _count(reader, value)
        elif key == "rate" and takes_load and not given:
            given["rate_per_s"] = _rate(reader, value)
        elif key == "concurrency" and takes_load and metric.name != "replicas" and not given:
            given["concurrency"] = _count(reader, value, "a concurrency", "requests in flight")
        elif key == "rule" and metric.name == "knee" and "rule" not in given:
            if value.text not in KNEE_RULES:
                reader.fail(
                    f"unknown rule {_shown(value)}{did_you_mean(value.text, KNEE_RULES)}",
                    value,
                    f"rules: {', '.join(KNEE_RULES)}",
                )
            given["rule"] = value.text
        elif key == "part" and metric.name == "share" and "part" not in given and value.kind == "name":
            given["part"] = value.text
        else:
            twice = key in given or (key == "rate" and "rate_per_s" in given)
            reader.fail(f"{key} is given twice" if twice else f"{metric.name} takes no {_shown(name)}", name)
        if not reader.take(","):
            return given


def _rate(reader: _Reader, token: _Token) -> float:
    """Requests per second: `8/s`, `480/min`."""
    value = float(token.text) if token.kind == "number" else 0.0
    if not 0.0 < value <= 1e6:
        reader.fail(f"a rate is a number of requests above 0, got {_shown(token)}", token, "write rate=8/s")
    if reader.take("/") is None:
        reader.fail(f"a rate without a time: {token.text}", token, f"write rate={token.text}/s")
    unit = reader.next()
    if unit.text not in _PER_S:
        reader.fail(f"a rate is per s, min or h, got {_shown(unit)}", unit, f"write rate={token.text}/s")
    return value / _PER_S[unit.text]


def _count(reader: _Reader, token: _Token, what: str = "k", of: str = "accelerators") -> int:
    if token.kind != "number" or not re.fullmatch(r"\+?\d{1,9}", token.text) or int(token.text) < 1:
        reader.fail(f"{what} must be a whole number of {of}, got {_shown(token)}", token)
    return int(token.text)


def _comparator(reader: _Reader) -> str:
    token = reader.next()
    if token.text not in COMPARATORS or token.kind != "sign":
        exact = token.text in ("=", "==", "!=")
        reader.fail(
            f"expected <=, >=, < or >, got {_shown(token)}",
            token,
            "a prediction has a band: compare it with a limit, not for equality" if exact else None,
        )
    return token.text


def _limit_tokens(reader: _Reader) -> tuple[_Token, _Token | None]:
    number = reader.next()
    if number.kind != "number":
        reader.fail(
            f"expected a number, got {_shown(number)}",
            number,
            "a limit is a number with its unit: 1.2 s, 5000 USD, 90 %",
        )
    follows = reader.peek()
    return number, reader.next() if follows.kind == "name" or follows.text == "%" else None


def _limit(reader: _Reader, measure: _Measure, number: _Token, unit: _Token | None) -> Limit:
    """The limit in SI, checked against what the metric measures."""
    try:
        value = float(number.text)
    except (ValueError, OverflowError):
        reader.fail(f"cannot read {_shown(number)} as a number", number)
    if value in (float("inf"), float("-inf")):
        reader.fail(f"{_shown(number)} is too large to be real", number)
    word = unit.text if unit else ""
    text = f"{number.text} {word}".strip()
    metric = measure.metric
    if measure.change:
        return _change_limit(reader, metric, value, number, unit, text)
    if word == "%":
        if metric.name not in PERCENT_OK:
            reader.fail(f"{metric.name} is not a percentage", unit, f"write it like: {_example(metric)}")
        return Limit(value / 100.0, "%" if metric.name == "memory" else "1", text)
    if metric.dimension in ("K", "1"):
        if word and not (metric.name in RATES and word in ("k", "M")):
            reader.fail(
                f"{metric.name} takes a plain number, got {_shown(unit or number)}",
                unit,
                f"write it like: {_example(metric)}",
            )
        return Limit(value * {"": 1.0, "k": 1e3, "M": 1e6}[word], metric.dimension, text)
    if unit is None:
        reader.fail(f"a number without a unit: {number.text}", number, f"write it like: {_example(metric)}")
    try:
        dimension, scale = unit_scale(word, metric.dimension)
    except UnitError as error:
        meant = error.hint if error.hint and "did you mean" in error.hint else None
        reader.fail(error.message, unit, meant or f"write it like: {_example(metric)}")
    if dimension != metric.dimension:
        reader.fail(f"{metric.name} is not measured in {word}", unit, f"write it like: {_example(metric)}")
    return Limit(float(scale) * value, dimension, text)


def _change_limit(
    reader: _Reader, metric: Metric, value: float, number: _Token, unit: _Token | None, text: str
) -> Limit:
    if unit is None:
        reader.fail(
            f"a change needs a unit: {number.text}",
            number,
            f"write {number.text} %" + (f" or {number.text} step" if metric.dimension == "K" else ""),
        )
    if unit.text == "%":
        return Limit(value / 100.0, "%", text)
    if unit.text in ("step", "steps") and metric.dimension == "K":
        return Limit(value, "step", text)
    if unit.text in ("step", "steps"):
        reader.fail(
            f"steps count positions on the K ladder; {metric.name} has none", unit, f"write {number.text} %"
        )
    best = closest(unit.text, ("step", "steps", "%"))
    reader.fail(
        f"a change is given in % or in steps, got {_shown(unit)}",
        unit,
        f"did you mean {best}?" if best else None,
    )


def _example(metric: Metric) -> str:
    examples = {
        "K": f"{metric.name} >= 64",
        "1": f"{metric.name}(k=64) >= 0.7",
        "s": "time(k=128) <= 1.2 s",
        "USD": "cost <= 5000 USD",
        "J": "energy <= 3 GJ",
        "g": "carbon <= 900 kg",
        "B": "memory <= 90 %",
    }
    own = {
        "throughput": "throughput(k=64) >= 12000",
        "share": "share(bubble, k=64) <= 10 %",
        "mfu": "mfu(k=64) >= 40 %",
        "tflop_per_s_per_accelerator": "tflop_per_s_per_accelerator(k=64) >= 400",
        "tokens_per_s_per_accelerator": "tokens_per_s_per_accelerator(k=64) >= 9000",
        "samples_per_s_per_accelerator": "samples_per_s_per_accelerator(k=64) >= 2000",
        "tokens_per_s": "tokens_per_s(rate=8/s) >= 2000",
        "cost_per_mtok": "cost_per_mtok(rate=8/s) <= 0.40 USD",
        "replicas": "replicas(rate=200/s) <= 12",
        "max_load": "max_load >= 8",
        "run_time": "run_time(k=64) <= 30 day",
        "run_cost": "run_cost(k=64) <= 250000 USD",
    }
    if metric.per_k == "load" and metric.dimension == "s":
        return f"{metric.name}(rate=8/s) <= 2 s"
    return own.get(metric.name, examples[metric.dimension])
