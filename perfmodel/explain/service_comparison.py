"""Two services side by side, and how much of the difference each changed input makes.

Each input that differs is put into the first job alone; what the changes do together beyond that is their interaction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from perfmodel.decide.serving.choose import choose
from perfmodel.decide.serving.curve import knee_grid, load_curve, saturation
from perfmodel.decide.serving.knee import crossing
from perfmodel.decide.serving.money import MILLION, bill
from perfmodel.decide.serving.prediction import answer
from perfmodel.errors import SpecError, UsageError
from perfmodel.results.envelope import Result
from perfmodel.serving.beliefs import ServingBeliefs, shipped_beliefs
from perfmodel.serving.setup import Service, service_of
from perfmodel.specs.serving import ServingJob

#: What is compared: requests a second of an accelerator at the knee (without an slo: saturated), their price, and idle times.
METRICS: Final = ("requests_per_s_per_accelerator", "usd_per_million_tokens", "tpot_s", "ttft_s")


def compare_services(
    a: ServingJob, b: ServingJob, beliefs: ServingBeliefs | None = None, *, seed: int = 0
) -> Result:
    """Both answers, the ratio of what matters, and the ratio by changed input."""
    known = beliefs or shipped_beliefs()
    sides = [service_of(job, known) for job in (a, b)]
    measured = [_measured(service) for service in sides]
    rows = []
    rest = {name: _log(measured[1][name], measured[0][name]) for name in METRICS}
    for name, before, after, changed in _changes(a, b):
        row: dict[str, object] = {"input": name, "before": before, "after": after}
        try:
            found: Mapping[str, float] | None = _measured(service_of(changed, known))
        except SpecError:  # this input alone makes no service: both belong together
            found = None
        for metric in METRICS:
            effect = math.nan if found is None else _log(found[metric], measured[0][metric])
            row[metric] = math.exp(effect)
            rest[metric] -= 0.0 if math.isnan(effect) else effect
        rows.append(row)
    if len(rows) > 1:
        rows.append(
            {
                "input": "together",
                "before": "",
                "after": "",
                **{name: math.exp(value) for name, value in rest.items()},
            }
        )
    layouts = (a.serving.layout, b.serving.layout)
    names = (a.name, b.name) if a.name != b.name else (f"{a.name} (before)", f"{b.name} (after)")
    ratio = {name: math.exp(_log(measured[1][name], measured[0][name])) for name in METRICS}
    return Result(
        "service-comparison",
        {
            "a": a.model_dump(mode="json", exclude_none=True),
            "b": b.model_dump(mode="json", exclude_none=True),
        },
        {
            "answer": _sentence(names, measured, ratio, rows),
            "names": list(names),
            "a": answer(sides[0], choose(sides[0])),
            "b": answer(sides[1], choose(sides[1])),
            "measured": measured,
            "ratio": ratio,
            "changes": rows,
            "notes": [
                *(f"{name}: {note}" for name, job in zip(names, (a, b), strict=True) for note in job.notes),
                *(
                    ["where a layout is left open, each has the cheapest of its own"]
                    if None in layouts
                    else []
                ),
            ],
        },
        seed,
    )


def _measured(service: Service) -> dict[str, float]:
    """The figures that are compared, of one replica in an open loop."""
    chosen = choose(service)
    at = service.deployment([chosen.layout])
    most = float(np.max(saturation(service, at)))
    if not math.isfinite(most):
        return dict.fromkeys(METRICS, math.nan)
    limits = service.job.serving.slo.limits if service.job.serving.slo is not None else ()
    grid = knee_grid(service, chosen.layout, "rate", np.array([most]))
    curve = load_curve(service, chosen.layout, "rate", grid)
    end, _ = crossing(
        grid,
        {f"{q}_{s}": curve.times[q][s] for q, s, _ in limits},
        {f"{q}_{s}": limit for q, s, limit in limits},
    )
    rate = math.nan if math.isnan(end) else min(end, most)
    ranks = chosen.layout.accelerators
    paid = bill(service.job, ranks).usd_per_s
    return {
        "requests_per_s_per_accelerator": rate / ranks,
        "usd_per_million_tokens": paid / (rate * service.job.serving.output_tokens.mean) * MILLION,
        "tpot_s": float(curve.times["tpot"]["mean"][0]),
        "ttft_s": float(curve.times["ttft"]["mean"][0]),
    }


def _log(after: float, before: float) -> float:
    return math.log(after / before) if after > 0.0 and before > 0.0 else math.nan


def _changes(a: ServingJob, b: ServingJob) -> list[tuple[str, str, str, ServingJob]]:
    """Each input that differs, in words, with the first job that has it changed."""
    found = []
    for key in ("workload", "cluster", "price"):
        before, after = getattr(a, key), getattr(b, key)
        if before != after:
            found.append((key, _words(before), _words(after), a.model_copy(update={key: after})))
    for key in type(a.serving).model_fields:
        before, after = getattr(a.serving, key), getattr(b.serving, key)
        if before == after or key in ("demand", "spares", "load", "requests"):
            continue
        block = a.serving.model_copy(update={key: after})
        found.append(
            (f"serving.{key}", _words(before), _words(after), a.model_copy(update={"serving": block}))
        )
    if not found and a.serving == b.serving:
        raise UsageError(
            "the two services do not differ",
            code="U017",
            help="say what changes: --set serving.prefix_hit=0.5",
        )
    return found


def _words(value: object) -> str:
    if value is None:
        return "not given"
    name = getattr(value, "name", None)
    if isinstance(name, str):
        return name
    if hasattr(value, "model_dump"):
        kept = value.model_dump(exclude_none=True, exclude_defaults=True, exclude={"note", "source", "date"})
        return ", ".join(f"{key} {_words(item)}" for key, item in kept.items()) or "default"
    if isinstance(value, dict):
        return " ".join(f"{key} {_words(item)}" for key, item in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _sentence(
    names: tuple[str, str],
    measured: list[dict[str, float]],
    ratio: Mapping[str, float],
    rows: list[dict[str, Any]],
) -> str:
    gain, price = ratio["requests_per_s_per_accelerator"], ratio["usd_per_million_tokens"]
    if math.isnan(gain):
        without = [
            name
            for name, found in zip(names, measured, strict=True)
            if math.isnan(found["requests_per_s_per_accelerator"])
        ]
        return f"{' and '.join(without)} keeps the slo at no load, so there is no throughput to compare."
    words = f"{names[1]} answers {gain:.3g} times the requests an accelerator of {names[0]}"
    if not math.isnan(price):
        words += f", and a token costs {price:.3g} times as much"
    alone = [
        row
        for row in rows
        if row["input"] != "together" and not math.isnan(row["requests_per_s_per_accelerator"])
    ]
    if len(alone) > 1:
        most = max(alone, key=lambda row: abs(math.log(row["requests_per_s_per_accelerator"])))
        words += f"; most of it is {most['input']} ({most['before']} to {most['after']}: {most['requests_per_s_per_accelerator']:.3g} times)"
    return f"{words}."
