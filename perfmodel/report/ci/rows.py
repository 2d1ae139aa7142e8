"""One reading of a `check` envelope for all continuous-integration formats: numbers to words, policies to rows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfmodel.decide.gate.grammar import METRICS, SERVING
from perfmodel.report.model import Envelope, amount, mappings
from perfmodel.units import band_in_words, in_words

AT_K = " at K = "
TOGETHER = "all changes together"
RULES: dict[str, str] = {
    **{
        name: f"Of a service, the {METRICS[name].meaning.partition(';')[0]} keeps to its limit"
        for name in sorted(SERVING)
    },
    "knee": "The knee of the scaling curve keeps to its limit",
    "p_star": "The cheapest number of accelerators keeps to its limit",
    "fastest": "The fastest number of accelerators keeps to its limit",
    "efficiency": "Parallel efficiency keeps to its limit",
    "speedup": "Speedup keeps to its limit",
    "time": "The predicted step time keeps to its limit",
    "throughput": "The predicted throughput keeps to its limit",
    "mfu": "The predicted utilisation of the peak keeps to its limit",
    "tflop_per_s_per_accelerator": "The predicted rate of an accelerator keeps to its limit",
    "tokens_per_s_per_accelerator": "The predicted tokens of an accelerator keep to their limit",
    "samples_per_s_per_accelerator": "The predicted samples of an accelerator keep to their limit",
    "run_time": "The predicted time of the run keeps to its limit",
    "run_cost": "The predicted cost of the run keeps to its limit",
    "deadline_probability": "The chance to keep the deadline keeps to its limit",
    "budget_probability": "The chance to keep the budget keeps to its limit",
    "cost": "The predicted cost keeps to its limit",
    "energy": "The predicted energy keeps to its limit",
    "carbon": "The predicted carbon keeps to its limit",
    "memory": "The predicted memory keeps to its limit",
    "share": "A part of the step keeps to its share",
    "change": "A prediction stays near the committed baseline",
}


@dataclass(frozen=True)
class Row:
    """One policy of one job, ready to print."""

    job: str
    expression: str
    verdict: str  # pass, fail, undecided
    blocking: bool
    value: str
    band: str
    limit: str
    reason: str
    rule: str
    file: str
    line: int
    column: int

    @property
    def sentence(self) -> str:
        """What happened, in one line: no newline, no markup."""
        band = f" (90 % band {self.band})" if self.band else ""
        said = f"{self.job}: {self.expression}: {self.verdict}, predicted {self.value}{band}"
        return f"{said}; {self.reason}" if self.reason else said


def number(value: float | None, unit: str) -> str:
    """A value in the words of its unit.

    >>> number(0.0512, "s"), number(64.0, "K"), number(0.713, "1"), number(-0.081, "%"), number(-1.0, "step")
    ('51.2 ms', '64', '0.713', '-8.1 %', '-1 step')
    >>> number(0.874, "share"), number(None, "s"), number(14.31, "%"), number(53830.0, "USD")
    ('87.4 %', '-', '+1,431 %', '53,830 USD')
    """
    if value is None or not math.isfinite(value):
        return "-"
    if unit == "K":
        return f"{value:g}"
    if unit == "%":
        shown = f"{100 * value:+,.0f}" if abs(value) >= 10 else f"{100 * value:+.3g}"
        return f"{shown} %" if abs(value) >= 5e-6 else "0 %"
    if unit == "share":
        return f"{100 * value:.3g} %"
    if unit == "step":
        return f"{value:+.2g} step{'' if abs(value) == 1 else 's'}" if value else "0 steps"
    return f"{value:.4g}" if unit == "1" else in_words(value, unit)


def band(low: float | None, high: float | None, unit: str, value: float | None = None) -> str:
    """`low to high` in the unit of `value`, empty where there is none or where it is a point; a knee's may have no end.

    >>> band(32.0, None, "K"), band(0.9, 1.1, "s", 1.0), band(64.0, 64.0, "K")
    ('32 or more', '0.9 s to 1.1 s', '')
    """
    if low is not None and high is None:
        return f"{number(low, unit)} or more"
    if low is None or high is None or low == high:
        return ""
    if unit in ("K", "%", "share", "step", "1"):
        return f"{number(low, unit)} to {number(high, unit)}"
    return band_in_words(low, high, unit, like=value)


def rows(envelope: Envelope) -> list[Row]:
    """The policies in the order of the file."""
    found = []
    for policy in envelope["result"]["policies"]:
        unit = policy.get("unit", "1")
        expression = str(policy["expression"])
        found.append(
            Row(
                job=str(policy.get("job", "")),
                expression=expression,
                verdict=policy["verdict"],
                blocking=bool(policy.get("blocking", policy["verdict"] == "fail")),
                value=number(policy["value"], unit)
                + (" or more" if policy.get("at_least") else _where(policy)),
                band=band(policy["low"], policy["high"], unit, policy["value"]),
                limit=str(policy.get("limit_text") or number(policy["limit"], unit)),
                reason=str(policy.get("reason") or ""),
                rule=str(policy.get("metric", "change")),
                file=str(policy.get("file") or ""),
                line=int(policy.get("line") or 1),
                column=int(policy.get("column") or 1),
            )
        )
    return found


def _where(policy: Mapping[str, object]) -> str:
    """The K of a number whose policy names none: a cost that stays may have fled to a smaller K."""
    chosen = policy.get("metric") in ("cost", "energy", "carbon", "memory") and not re.search(
        r"\bk\s*=", str(policy["expression"])
    )
    known = policy["value"] is not None and policy.get("k") is not None
    return f"{AT_K}{policy['k']}" if chosen and known else ""


MOST_CAUSES = 3  # that are told first


def moved_by(envelope: Envelope, row: Row) -> list[dict[str, Any]]:
    """The changed inputs that move what a policy is about, the one that moves it most first."""
    subject = re.sub(r"\s+", "", row.expression)

    def is_about(change: Mapping[str, object]) -> bool:
        metric = str(change["metric"])
        name, _, at = metric.partition("(")
        return (
            change.get("job") == row.job
            and name in subject
            and (not at or at.rstrip(")").replace(" ", "") in subject)
        )

    def size(change: Mapping[str, object]) -> float:
        before, after = amount(change, "before"), amount(change, "after")
        return abs(math.log(after / before)) if before and after and before * after > 0 else math.inf

    found = [
        one for one in mappings(envelope["result"]["changes"]) if is_about(one) and one["cause"] != TOGETHER
    ]
    return sorted(found, key=size, reverse=True)


def causes(envelope: Envelope) -> list[str]:
    """What moved the policies that did not pass, and which layouts were switched, in words."""
    told: list[str] = []
    for row in rows(envelope):
        if row.verdict == "pass":
            continue
        for change in moved_by(envelope, row)[:1]:
            unit = change.get("unit", "1")
            values = f"{number(change['before'], unit)} to {number(change['after'], unit)}"
            told.append(f"{row.job}: {change['metric']} goes from {values} by {change['cause']}")
    told = list(dict.fromkeys(told))[:MOST_CAUSES]
    switched = envelope["result"].get("layouts") or ()
    return told + [
        f"{one['job']}: at K = {one['k']} the layout is {one['after']}, before {one['before']}"
        for one in switched[:MOST_CAUSES]
    ]


def headline(envelope: Envelope) -> str:
    """One sentence: the verdict and what moved it.

    >>> headline({"result": {"verdict": "pass", "policies": [], "changes": []}})
    'Pass: no policies.'
    """
    result = envelope["result"]
    counted = {
        name: [row for row in rows(envelope) if row.verdict == name] for name in ("fail", "undecided", "pass")
    }
    total = sum(len(group) for group in counted.values())
    if not total:
        return f"{str(result['verdict']).capitalize()}: no policies."
    words = [f"{len(group)} {name}" for name, group in counted.items() if group and len(group) < total]
    tail = f" ({', '.join(words)})" if words else ""
    noun = "policy" if total == 1 else "policies"
    lead = f"{str(result['verdict']).capitalize()}: {total} {noun}{tail}."
    first = (counted["fail"] + counted["undecided"])[:1]
    if not first:
        return lead
    row = first[0]
    if row.value == "-":
        return f"{lead} {row.job}: {row.expression} has no value: {row.reason or 'nothing is predicted'}."
    limit = "misses its limit at" if row.verdict == "fail" else "cannot be told from its limit at"
    return f"{lead} {row.job}: {row.expression} {limit} {row.value}."
