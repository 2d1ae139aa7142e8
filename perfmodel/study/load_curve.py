"""A measured load curve: where latency bends, which load still keeps its objectives, and what that costs in throughput."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypedDict

import numpy as np

from perfmodel.decide.knee import curvature_knee
from perfmodel.errors import Problem, SpecError, UsageError
from perfmodel.physics.laws import Array
from perfmodel.readings.load import STATISTICS, LoadPoint
from perfmodel.readings.load.point import QUANTITIES
from perfmodel.results.envelope import Result
from perfmodel.units import UnitError, parse

_UNITS: Final = {"concurrency": "requests at once", "rate": "requests/s", "offline": "requests"}
_FEW_WAVES: Final = 5  # requests per open request under which the first wave rules the means
_FEW_FOR_P99: Final = 200  # requests under which a p99 is nearly the largest value
_SHORT_OF_RATE: Final = 0.95  # of the offered rate: below it requests pile up


@dataclass(frozen=True)
class Objective:
    """A limit on one statistic, such as p99 of the time to the first token."""

    quantity: str
    statistic: str
    limit_s: float

    @property
    def name(self) -> str:
        """`ttft_p99` and so on."""
        return f"{self.quantity}_{self.statistic}"


def parse_objectives(text: str) -> tuple[Objective, ...]:
    """Objectives of a flag.

    >>> [(o.name, o.limit_s) for o in parse_objectives("ttft_p99=2 s, tpot=50 ms")]
    [('ttft_p99', 2.0), ('tpot_mean', 0.05)]
    """
    found: list[Objective] = []
    for part in text.split(","):
        match = re.fullmatch(
            rf"\s*({'|'.join(QUANTITIES)})(?:[_.]({'|'.join(STATISTICS)}))?\s*(?:<?=|<)\s*(.+?)\s*", part
        )
        if match is None:
            raise UsageError(
                f'--slo: cannot read "{part.strip()}"',
                code="U021",
                help='such as "ttft_p99=2 s,tpot_p99=50 ms"; ttft, tpot or e2e with mean, p50, p90, p95 or p99',
            )
        try:
            limit = parse(match.group(3), "s")
        except UnitError as error:
            raise UsageError(
                Problem(code="U021", message=f"--slo: {error.message}", help=error.hint)
            ) from None
        if not 0.0 < limit < 1e9:
            raise UsageError(f"--slo: a limit above zero, got {match.group(3)}", code="U021")
        found.append(Objective(match.group(1), match.group(2) or "mean", limit))
    return tuple(found)


@dataclass(frozen=True)
class Curve:
    """Points of one kind of load, ascending, repeats averaged. nan where nothing was reported."""

    kind: str
    load: Array
    columns: Mapping[str, Array]
    repeats: Sequence[int]
    sources: Sequence[str]
    points: Sequence[LoadPoint]

    def seconds(self, name: str) -> Array:
        """`ttft_p99` and so on by load."""
        return self.columns.get(name, np.full(self.load.shape, np.nan))


def curve_of(points: Sequence[LoadPoint]) -> tuple[Curve, list[str]]:
    """The curve of the commonest kind of load, and what was left out."""
    kinds = [point.load_kind for point in points if np.isfinite(point.load)]
    if not kinds:
        raise SpecError(Problem(points[0].source if points else None, code="T020", message="no point states its load",
                                help="a column concurrency or rate_per_s"))  # fmt: skip
    kind = max(dict.fromkeys(kinds), key=lambda k: (kinds.count(k), k))
    used = [point for point in points if point.load_kind == kind and np.isfinite(point.load)]
    notes = (
        []
        if len(used) == len(points)
        else [f"{len(points) - len(used)} points left out: not a load by {kind}"]
    )
    loads = np.unique([point.load for point in used])
    groups = [[point for point in used if point.load == load] for load in loads]
    columns: dict[str, Array] = {}
    plain = ("requests", "requests_per_s", "throughput_out_tokens_per_s", "throughput_total_tokens_per_s",
             "input_tokens", "output_tokens", "rate_per_s")  # fmt: skip
    for name in plain:
        columns[name] = np.array([_mean([getattr(point, name) for point in group]) for group in groups])
    for quantity in QUANTITIES:
        for statistic in STATISTICS:
            values = [[point.seconds(quantity).get(statistic) for point in group] for group in groups]
            found = np.array([_mean(value) for value in values])
            if np.isfinite(found).any():
                columns[f"{quantity}_{statistic}"] = found
    repeats = [len(group) for group in groups]
    return Curve(kind, loads, columns, repeats, [", ".join(p.source for p in g) for g in groups], used), notes


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")


def study_load(
    points: Sequence[LoadPoint],
    objectives: Sequence[Objective] = (),
    *,
    min_throughput: float | None = None,
    files: Sequence[Mapping[str, str]] = (),
    seed: int = 0,
) -> Result:
    """Study a load curve. Nothing is random: the seed is only carried into the envelope.

    >>> rows = [LoadPoint(source="", tool="", concurrency=c, throughput_out_tokens_per_s=x, ttft_s={"p99": t})
    ...         for c, x, t in ((1, 100, 0.1), (8, 700, 0.2), (64, 2000, 4.0))]
    >>> found = study_load(rows, parse_objectives("ttft_p99=1 s")).result
    >>> found["knee"]["slo"]["low"], round(found["under_slo"]["throughput_out_tokens_per_s"])
    (8.0, 1230)
    """
    curve, notes = curve_of(points)
    absent = [o.name for o in objectives if o.name not in curve.columns]
    if absent:
        known = ", ".join(name for name in curve.columns if name.split("_")[0] in QUANTITIES) or "none"
        raise SpecError(
            [
                Problem(
                    points[0].source,
                    code="T021",
                    message=f"{name} was not measured",
                    help=f"measured: {known}",
                )
                for name in absent
            ]
        )
    slo = _slo_knee(curve, objectives)
    under = _under(curve, slo, objectives)
    knees = {
        "slo": slo,
        "curvature": _curvature(curve),
        "tpot_doubled": _doubled(curve),
        "saturated": _saturated(curve),
    }
    result: dict[str, object] = {
        "load_kind": curve.kind,
        "load": curve.load,
        "repeats": curve.repeats,
        **{name: curve.columns[name] for name in curve.columns if name.split("_")[0] not in QUANTITIES},
        **{f"{quantity}_s": _statistics(curve, quantity) for quantity in QUANTITIES},
        "intervals_s": {
            end: _intervals(curve, f"{end}_s")
            for end in ("low", "high")
            if any(getattr(p, f"{end}_s") for p in curve.points)
        },
        "open_requests": curve.columns["requests_per_s"] * curve.seconds("e2e_mean"),
        "knee": knees,
        "objectives": [_verdict(curve, objective) for objective in objectives],
        "under_slo": under,
        "least_latency": _least_latency(curve, min_throughput),
        "notes": [*notes, *_doubts(curve), *dict.fromkeys(n for p in curve.points for n in p.notes)],
        "sources": curve.sources,
    }
    result["verdict"] = _sentence(curve, knees, under, bool(objectives))
    inputs = {
        "files": list(files),
        "slo": {objective.name: objective.limit_s for objective in objectives},
        "min_throughput": min_throughput,
    }
    return Result("load-study", inputs, result, seed)


def _statistics(curve: Curve, quantity: str) -> dict[str, Array]:
    names = {statistic: f"{quantity}_{statistic}" for statistic in STATISTICS}
    return {statistic: curve.columns[name] for statistic, name in names.items() if name in curve.columns}


def _intervals(curve: Curve, end: str) -> dict[str, Array]:
    """One end of the reported intervals by load, of loads that were measured once: repeats are not pooled."""
    at = {point.load: getattr(point, end) for point in curve.points}
    once = np.asarray(curve.repeats) == 1
    names = dict.fromkeys(name for known in at.values() for name in known)
    return {
        name: np.where(once, [at[load].get(name, np.nan) for load in curve.load.tolist()], np.nan)
        for name in names
    }


def _crossing(load: Array, values: Array, limit: float) -> tuple[float, float | None, float | None]:
    """Where a latency first exceeds a limit: between the two loads on a straight line in logarithms of both."""
    known = np.isfinite(values)
    x, y = load[known], values[known]
    over = np.flatnonzero(y > limit)
    if over.size == 0:
        return np.inf, float(x[-1]) if x.size else None, None
    first = int(over[0])
    if first == 0:
        return 0.0, None, float(x[0])
    share = (np.log(limit) - np.log(y[first - 1])) / (np.log(y[first]) - np.log(y[first - 1]))
    at = np.exp(np.log(x[first - 1]) + share * (np.log(x[first]) - np.log(x[first - 1])))
    return float(at), float(x[first - 1]), float(x[first])


class LoadKnee(TypedDict, total=False):
    """The load at which something happens, between which measured ones it lies, and why there or why nowhere."""

    load: float | None
    low: float | None
    high: float | None
    cause: str


class UnderCaps(TypedDict):
    """What is made while the objectives are kept."""

    load: float
    throughput_out_tokens_per_s: float
    requests_per_s: float
    share_of_largest: float
    interpolated: bool


def _slo_knee(curve: Curve, objectives: Sequence[Objective]) -> LoadKnee:
    """The largest load that keeps every objective; between measured loads it is interpolated."""
    if not objectives:
        return {"load": None, "low": None, "high": None, "cause": "no objective was given"}
    found = {o.name: _crossing(curve.load, curve.seconds(o.name), o.limit_s) for o in objectives}
    name = min(found, key=lambda key: found[key][0])
    at, low, high = found[name]
    if high is None:
        return {"load": None, "low": low, "high": None, "cause": "kept at every measured load"}
    if low is None:
        return {
            "load": None,
            "low": None,
            "high": high,
            "cause": f"{name} is above its limit at every measured load",
        }
    return {"load": at, "low": low, "high": high, "cause": name}


def _curvature(curve: Curve) -> LoadKnee:
    x = curve.columns["throughput_out_tokens_per_s"]
    if np.isfinite(x).sum() < 3:
        return {"load": None, "cause": "fewer than three loads with a throughput"}
    knee = curvature_knee(curve.load, x)
    if not bool(knee.reached):
        return {"load": None, "cause": "throughput does not bend within the measured loads"}
    return {"load": float(knee.k), "cause": "throughput bends most"}


def _doubled(curve: Curve) -> LoadKnee:
    name = "tpot_mean" if "tpot_mean" in curve.columns else "tpot_p50"
    values = curve.seconds(name)
    if not np.isfinite(values).any():
        return {"load": None, "cause": "no time per output token was measured"}
    first = values[np.isfinite(values)][0]
    at, low, high = _crossing(curve.load, values, 2.0 * float(first))
    if high is None:
        return {"load": None, "cause": f"{name} stays below twice its value at the smallest load"}
    return {"load": at, "low": low, "high": high, "cause": f"{name} is twice its value at the smallest load"}


def _saturated(curve: Curve) -> LoadKnee:
    """The smallest rate of which the server answered less than 95 %."""
    if curve.kind != "rate":
        return {
            "load": None,
            "cause": "a client with a fixed number of open requests cannot outrun the server",
        }
    short = curve.columns["requests_per_s"] < _SHORT_OF_RATE * curve.load
    if not short.any():
        return {"load": None, "cause": "the server kept up with every measured rate"}
    at = float(curve.load[int(np.argmax(short))])
    return {
        "load": at,
        "cause": "fewer requests were answered than arrived: latencies grow with the length of the run",
    }


def _verdict(curve: Curve, objective: Objective) -> dict[str, object]:
    values = curve.seconds(objective.name)
    at, low, _ = _crossing(curve.load, values, objective.limit_s)
    return {
        "objective": objective.name,
        "limit_s": objective.limit_s,
        "kept_to_load": low,
        "crossed_at_load": at if 0.0 < at < np.inf else None,
        "kept": np.where(np.isfinite(values), values <= objective.limit_s, False),
    }


def _at(curve: Curve, name: str, load: float) -> float:
    """A column between measured loads, straight in logarithms."""
    values = curve.columns[name]
    known = np.isfinite(values) & (values > 0.0)
    if not known.any():
        return float("nan")
    return float(np.exp(np.interp(np.log(load), np.log(curve.load[known]), np.log(values[known]))))


def _under(curve: Curve, slo: LoadKnee, objectives: Sequence[Objective]) -> UnderCaps | None:
    """Throughput under the latency caps: at the knee by the objectives, else at the largest measured load."""
    load = slo["low"] if slo["load"] is None else slo["load"]
    if not objectives or load is None:
        return None
    throughput = curve.columns["throughput_out_tokens_per_s"]
    kept = _at(curve, "throughput_out_tokens_per_s", load)
    largest = float(np.nanmax(throughput)) if np.isfinite(throughput).any() else float("nan")
    return {
        "load": load,
        "throughput_out_tokens_per_s": kept,
        "requests_per_s": _at(curve, "requests_per_s", load),
        "share_of_largest": kept / largest,
        "interpolated": bool(slo["load"] is not None),
    }


def _least_latency(curve: Curve, floor: float | None) -> dict[str, object] | None:
    """The smallest load whose throughput reaches a floor, and every latency there."""
    if floor is None:
        return None
    throughput = curve.columns["throughput_out_tokens_per_s"]
    enough = np.flatnonzero(throughput >= floor)
    if enough.size == 0:
        return {"load": None, "cause": "no measured load reaches the floor"}
    first = int(enough[0])
    names = [name for name in curve.columns if name.split("_")[0] in QUANTITIES]
    return {
        "load": float(curve.load[first]),
        "throughput_out_tokens_per_s": float(throughput[first]),
        **{f"{name}_s": float(curve.columns[name][first]) for name in names},
    }


def _doubts(curve: Curve) -> list[str]:
    """Why a measured curve may say less than it seems to."""
    notes: list[str] = []
    requests = curve.columns["requests"]
    if curve.kind == "concurrency":
        few = curve.load[np.nan_to_num(requests, nan=np.inf) < _FEW_WAVES * curve.load]
        if few.size:
            notes.append(
                f"fewer than {_FEW_WAVES} requests per open request from {few[0]:g} on: the first wave, which starts at "
                "once, weighs in the means"
            )
    if any(name.endswith("_p99") for name in curve.columns):
        few = curve.load[np.nan_to_num(requests, nan=np.inf) < _FEW_FOR_P99]
        if few.size:
            notes.append(
                f"p99 from fewer than {_FEW_FOR_P99} requests at {few.size} of {curve.load.size} loads"
            )
    open_requests = curve.columns["requests_per_s"] * curve.seconds("e2e_mean")
    if curve.kind == "concurrency":
        off = np.abs(open_requests / curve.load - 1.0) > 0.25
        if off.any():
            notes.append(
                f"at {curve.load[int(np.argmax(off))]:g} the throughput times the end-to-end time is "
                f"{open_requests[int(np.argmax(off))]:.3g} open requests (Little's law): the load was not held all the time"
            )
    return notes


def _sentence(
    curve: Curve, knees: Mapping[str, LoadKnee], under: UnderCaps | None, has_objectives: bool
) -> str:
    unit = _UNITS[curve.kind]
    slo, words = knees["slo"], []
    if under is not None:
        share = under["share_of_largest"]
        tail = f", {share:.0%} of the largest measured" if np.isfinite(share) else ""
        if np.isfinite(under["throughput_out_tokens_per_s"]):
            tail = f": {under['throughput_out_tokens_per_s']:.4g} output tokens/s{tail}"
        at = "at least " if slo["load"] is None else ""
        cause = slo["cause"] if slo["load"] is None else f"then {slo['cause']} exceeds its limit"
        words.append(f"The objectives hold up to {at}{under['load']:.3g} {unit} ({cause}){tail}.")
    elif has_objectives:
        words.append(f"The objectives hold at no measured load: {slo['cause']}.")
    for key, text in (("saturated", "Saturated from"), ("curvature", "Throughput bends at")):
        load = knees[key]["load"]
        if load is not None:
            words.append(f"{text} {load:.3g} {unit}.")
    load = knees["tpot_doubled"]["load"]
    if load is not None:
        words.append(f"Time per token has doubled at {load:.3g} {unit}.")
    return " ".join(words) or f"{curve.load.size} loads by {curve.kind}; no bend within them."
