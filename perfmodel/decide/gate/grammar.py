"""The policy language: `efficiency(k=64) >= 0.7`, parsed by hand into a frozen tree. Nothing is evaluated as code.

    policy     = measure comparator limit | limit comparator measure
    measure    = metric [ arguments ] | "change" "(" metric { "," argument } ")"
    arguments  = "(" [ argument { "," argument } ] ")"
    argument   = name "=" ( number | name ) | name          (a lone name only for share(part) and knee(rule))
    limit      = number [ unit ]                            (units: those of perfmodel.units, "%", "step", "steps")
    comparator = "<=" | ">=" | "<" | ">"

A policy that cannot be read raises `PolicyError` with the offset of the character at fault.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

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
    per_k: str  # "required", "optional" or "never"
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
    )
}
# A limit in the metric's own dimension, or one of these words.
RATES = frozenset({"throughput", "tokens_per_s_per_accelerator", "samples_per_s_per_accelerator"})
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
        return arguments


@dataclass(frozen=True)
class _Token:
    kind: str  # number, name, sign, unit
    text: str
    offset: int


_TOKENS = re.compile(
    r"\s*(?:(?P<number>[+-]?(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)"
    r"|(?P<name>[A-Za-zµμ][\w-]*(?:/[A-Za-z]+)?)"
    r"|(?P<sign><=|>=|==|!=|<|>|=|[(),%]))",
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
    )


@dataclass(frozen=True)
class _Measure:
    metric: Metric
    change: bool
    k: int | None
    rule: str
    part: str | None


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
    k, rule, part = None, "threshold", None
    more = reader.take(",") if change else reader.take("(")
    if more and not (not change and reader.peek().text == ")"):
        k, rule, part = _arguments(reader, metric)
    if change or more:
        reader.expect(")")
    if metric.per_k == "required" and k is None:
        reader.fail(
            f"{metric.name} needs a k",
            token,
            f"write {metric.name}({'PART, ' if metric.name == 'share' else ''}k=64)",
        )
    if metric.name == "share" and part is None:
        reader.fail("share needs a part of the step", token, "write share(bubble, k=64)")
    return _Measure(metric, change, k, rule, part)


def _arguments(reader: _Reader, metric: Metric) -> tuple[int | None, str, str | None]:
    k: int | None = None
    rule: str | None = None
    part: str | None = None
    while True:
        name = reader.next()
        if name.kind != "name":
            reader.fail(f"expected an argument such as k=64, got {_shown(name)}", name)
        if reader.take("=") is None:
            value, key = name, {"knee": "rule", "share": "part"}.get(metric.name, "")
        else:
            value, key = reader.next(), name.text
        if key == "k" and metric.per_k != "never" and k is None:
            k = _count(reader, value)
        elif key == "rule" and metric.name == "knee" and rule is None:
            if value.text not in KNEE_RULES:
                reader.fail(
                    f"unknown rule {_shown(value)}{did_you_mean(value.text, KNEE_RULES)}",
                    value,
                    f"rules: {', '.join(KNEE_RULES)}",
                )
            rule = value.text
        elif key == "part" and metric.name == "share" and part is None and value.kind == "name":
            part = value.text
        else:
            twice = {"k": k, "rule": rule, "part": part}.get(key) is not None
            reader.fail(f"{key} is given twice" if twice else f"{metric.name} takes no {_shown(name)}", name)
        if not reader.take(","):
            return k, rule or "threshold", part


def _count(reader: _Reader, token: _Token) -> int:
    if token.kind != "number" or not re.fullmatch(r"\+?\d{1,9}", token.text) or int(token.text) < 1:
        reader.fail(f"k must be a whole number of accelerators, got {_shown(token)}", token)
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
        "run_time": "run_time(k=64) <= 30 day",
        "run_cost": "run_cost(k=64) <= 250000 USD",
    }
    return own.get(metric.name, examples[metric.dimension])
