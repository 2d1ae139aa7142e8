"""One K, term by term: formula, numbers, where each number comes from, how much it matters, and each collective."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.bands import NINETY
from perfmodel.beliefs.population import Beliefs, shipped_beliefs
from perfmodel.decide.basis import not_modelled, rests_on, sensitivity
from perfmodel.decide.facts import (
    DECLARED_NAMES,
    FRAMEWORK_DEFAULT,
    MACHINE_FIELDS,
    Fact,
    defaults,
    facts,
    foreign,
    unmeasured,
)
from perfmodel.decide.prediction import curve_of, inputs_of
from perfmodel.explain.collectives import NEGLIGIBLE, Exchange, Point, exchanges
from perfmodel.explain.timeline import SHOWN_PASSES, timeline
from perfmodel.physics.coefficients import DIFFERENCE, MEANINGS, NAMES, UNITS, nudged
from perfmodel.physics.compute import micro_batch
from perfmodel.physics.parts import BY_NAME
from perfmodel.results.envelope import Result
from perfmodel.specs.jobs import Job
from perfmodel.training.curve import Curve, coefficients, sensitivities
from perfmodel.training.step import interleaved, step
from perfmodel.units import band_in_words, format_quantity

MATTERS = 5e-3  # slopes below this are shown as none
_WIDTH = 0.005  # share of the step below which a term is not worth a word


@dataclass(frozen=True, repr=False)
class Explanation(Result):
    """The result, with the curve of one K that it was made from."""

    curve: Curve | None = None


def explain(job: Job, beliefs: Beliefs | None = None, *, seed: int = 0) -> Explanation:
    """Explain a job at its one K. A K that is not feasible gives null and the reason."""
    if len(job.k) != 1:
        raise ValueError(f"one K can be explained at a time, not {len(job.k)}")
    known = beliefs or shipped_beliefs()
    found = curve_of(job, known, draws=0, seed=seed)
    answer = _answer(job, found, known) if found.feasible[0] else _infeasible(job, found, known)
    return Explanation("explanation", inputs_of(job, known), answer, seed, curve=found)


def point_of(found: Curve) -> Point:
    """The arguments of the step model at the curve's (only) K, a calibration's factor included."""
    setup = found.setup
    scale = float(found.time_s[0] / np.broadcast_to(found.step.time_s, found.k.shape)[0])
    c = coefficients(setup, found.logs[:, None], found.k)
    return Point(setup.operations, setup.machine, interleaved(setup.operations, found.at, c), c, scale)


def _infeasible(job: Job, found: Curve, beliefs: Beliefs) -> dict[str, object]:
    return {
        "k": int(found.k[0]),
        "time_s": None,
        "feasible": False,
        "reason": found.reasons[0],
        "answer": f"K = {int(found.k[0])} is not feasible: {found.reasons[0]}.",
        "terms": [],
        "collectives": [],
        "timeline": None,
        **_memory(found),
        "defaults": defaults(job, found),
        "notes": _notes(job, beliefs),
    }


def _answer(job: Job, found: Curve, beliefs: Beliefs) -> dict[str, object]:
    time = float(found.time_s[0])
    point = point_of(found)
    known = facts(job, found, 0)
    slopes = _slopes(found, point)
    shown = exchanges(point)
    still = _unmoved(found, point)
    rows = [_term(found, name, time, known, slopes, still[name]) for name in found.parts]
    return {
        "k": int(found.k[0]),
        "regime": job.regime,
        "global_batch": float(found.setup.global_batch[0]),
        "time_s": time,
        "time_s_low": float(found.low_s[0]),
        "time_s_high": float(found.high_s[0]),
        "feasible": True,
        "reason": None,
        "layout": found.names[0],
        "answer": _sentence(found, time, shown),
        "terms": rows,
        "phases": _phases(point, time),
        "collectives": [row.mapping() for row in shown],
        "timeline": timeline(found, most=SHOWN_PASSES).mapping(),
        **_memory(found),
        "defaults": defaults(job, found),
        "sensitivity": sensitivity(found),
        "rests_on": rests_on(job, found),
        "not_modelled": not_modelled(),
        "notes": [*_notes(job, beliefs), *_declared(known)],
    }


def _notes(job: Job, beliefs: Beliefs) -> list[str]:
    """What the beliefs do not cover and what the job left open, prices apart: a step has none."""
    own = [note for note in job.notes if not note.startswith("price")]
    return [*foreign(job, beliefs), *unmeasured(job, beliefs), *own]


def _declared(known: dict[str, Fact]) -> list[str]:
    """What the job declares of its exchange, stalls, input and workers, and what its framework does otherwise."""
    sources = {name: known[name].source or "" for name, _ in DECLARED_NAMES.values()}
    sources["distribution of the jitter"] = known["distribution of the jitter"].source or ""
    names = [name for name, source in sources.items() if source == "job"]
    notes = [f"declared: {', '.join(f'{name} {known[name].shown}' for name in names)}"] if names else []
    return notes + [source for source in sources.values() if source.startswith(FRAMEWORK_DEFAULT)]


def _memory(found: Curve) -> dict[str, object]:
    parts = {
        name: float(np.broadcast_to(value, found.k.shape)[0]) for name, value in found.memory.parts.items()
    }
    return {
        "memory_bytes": sum(parts.values()),
        "memory_bytes_low": float(np.ravel(found.memory.low)[0]),
        "memory_bytes_high": float(np.ravel(found.memory.high)[0]),
        "memory_parts_bytes": parts,
        "memory_limit_bytes": float(found.setup.machine.memory_bytes),
    }  # fmt: skip


def _slopes(found: Curve, point: Point) -> dict[str, float]:
    """d ln T / d ln x of every belief, of the hardware facts that can be bought, and of what the job declares."""
    slopes = dict(zip(NAMES, sensitivities(found.setup, found.at, found.logs)[:, 0], strict=True))
    base = float(np.ravel(step(point.ops, point.machine, point.at, point.c).time_s)[0])
    for name, fields in MACHINE_FIELDS.items():
        moved = {field: getattr(point.machine, field) * np.exp(DIFFERENCE) for field in fields}
        time = step(point.ops, replace(point.machine, **moved), point.at, point.c).time_s
        slopes[name] = float((np.log(np.ravel(time)[0]) - np.log(base)) / DIFFERENCE)
    for key in found.setup.declared:
        # What takes memory alone moves no time, and of a word nothing is a per cent more.
        if key not in DECLARED_NAMES or key.endswith("_algorithm"):
            continue
        varied: dict[str, NDArray[np.float64]] = {key: getattr(point.at, key) * np.exp(DIFFERENCE)}
        time = step(point.ops, point.machine, replace(point.at, **varied), point.c).time_s
        slopes[DECLARED_NAMES[key][0]] = float((np.log(np.ravel(time)[0]) - np.log(base)) / DIFFERENCE)
    return {name: round(float(slope), 4) for name, slope in slopes.items()}


def _unmoved(found: Curve, point: Point) -> dict[str, set[str]]:
    """For each part of the step the beliefs and links that do not move it: an exchange inside a node has no network."""
    c = coefficients(found.setup, nudged(found.logs[:, None]), found.k)
    rows = (len(NAMES) + 1, found.k.size)
    moved = step(point.ops, point.machine, found.at, c).parts
    still: dict[str, set[str]] = {}
    for part, values in moved.items():
        seconds = np.broadcast_to(values, rows)[:, 0]
        still[part] = {name for name, value in zip(NAMES, seconds[:-1], strict=True) if value == seconds[-1]}
    centre = step(point.ops, point.machine, point.at, point.c).parts
    for name, fields in MACHINE_FIELDS.items():
        faster = {field: getattr(point.machine, field) * np.exp(DIFFERENCE) for field in fields}
        parts = step(point.ops, replace(point.machine, **faster), point.at, point.c).parts
        for part, values in parts.items():
            if np.array_equal(values, centre[part]):
                still[part].add(name)
    return still


def _term(
    found: Curve, name: str, time: float, known: dict[str, Fact], slopes: dict[str, float], still: set[str]
) -> dict[str, object]:
    """One row: time, share, formula, its inputs, and the inputs that it answers to most."""
    term = BY_NAME[name]
    seconds = float(found.parts[name][0])
    inputs = [_fact(key, known[key], slopes.get(key)) for key in term.facts]
    # A coefficient that no part lists yet is shown with every part that it moves.
    listed = {key for part in BY_NAME.values() for key in part.beliefs}
    beliefs = (*term.beliefs, *(key for key in NAMES if key not in listed and key not in still))
    inputs += [_belief(found, key, slopes[key]) for key in beliefs]
    named = [key for key in (*term.facts, *beliefs) if key not in still]
    strongest = sorted(named, key=lambda key: -abs(slopes.get(key, 0.0)))
    return {
        "name": name,
        "time_s": seconds,
        "share": seconds / time,
        "formula": term.formula,
        "inputs": inputs,
        "sensitivity": {
            key: slopes[key] for key in strongest[:3] if abs(slopes.get(key, 0.0)) > MATTERS and seconds > 0
        },
    }


def _fact(name: str, fact: Fact, slope: float | None) -> dict[str, object]:
    return {
        "name": name,
        "value": fact.value,
        "unit": fact.unit,
        "shown": fact.shown,
        "confidence": fact.confidence,
        "source": fact.source,
        "date": fact.date,
        "sensitivity": slope,
    }


def _belief(found: Curve, name: str, slope: float) -> dict[str, object]:
    index = NAMES.index(name)
    value, unit = float(np.exp(found.logs[index])), UNITS[name]
    spread = float(found.belief.spread[index])
    digits = format_quantity(value, unit) if unit != "1" else f"{value:.4g}"
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "shown": f"{digits} (x/ {np.exp(NINETY * spread):.2f})" if spread > 0 else digits,
        "confidence": found.belief.basis[name],
        "source": MEANINGS[name],
        "date": None,
        "sensitivity": slope,
    }


def _phases(point: Point, time: float) -> list[dict[str, object]]:
    """What the arithmetic is made of, seconds a step."""
    mb = micro_batch(point.ops, point.machine, point.at, point.c)
    m = float(np.ravel(point.at.accumulation)[0]) * point.scale
    names = {
        "matrix products": mb.matmul,
        "attention": mb.attention,
        "element-wise": mb.elementwise,
        "convolutions and other": mb.other,
        "logits and loss, on the last stage": mb.last,
        "host, beside the device": mb.host,
    }
    rows = []
    for name, seconds in names.items():
        total = m * float(np.ravel(seconds)[0])
        if total > 0.0:
            rows.append({"name": name, "time_s": total, "share": total / time})
    return rows


def _sentence(found: Curve, time: float, shown: list[Exchange]) -> str:
    """The step, its largest terms, and what the largest exposed collective would need."""
    order = sorted(found.parts, key=lambda name: -float(found.parts[name][0]))
    terms = [(name.replace("_", " "), float(found.parts[name][0]) / time) for name in order[:4]]
    words = ", ".join(f"{share:.0%} {name}" for name, share in terms if share >= _WIDTH)
    band = band_in_words(float(found.low_s[0]), float(found.high_s[0]), "s", 3, time)
    text = (
        f"At K = {int(found.k[0])} a step takes {format_quantity(time, 's', 3)} (90 % band {band}): {words}."
    )
    if not shown:
        return text
    if shown[0].exposed_s < NEGLIGIBLE * time:
        return f"{text} No collective shows for more than 1 % of it."
    top = shown[0]
    text += f" Of the communication, {top.name} shows most: {format_quantity(top.exposed_s, 's', 3)} a step"
    if top.negligible_at_bytes_per_s is None:
        return f"{text}, and no link that the memory could feed brings that below 1 % of it."
    need = format_quantity(top.negligible_at_bytes_per_s, "B/s", 3)
    have = format_quantity(top.bandwidth_bytes_per_s, "B/s", 3)
    return f"{text}; the {top.link} would need {need} (it has {have}) to bring that below 1 % of the step."
