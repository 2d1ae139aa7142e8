"""What an answer about a service rests on, and what would narrow its bands."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.decide.serving.choose import Chosen
from perfmodel.decide.serving.curve import LoadCurve
from perfmodel.physics.serving_coefficients import MEANINGS, NAMES
from perfmodel.serving.precision import FORMATS
from perfmodel.serving.setup import Service
from perfmodel.units import format_quantity

_NARROW: Final = 4  # facts that are worth telling
_HOW: Final = "two loads of one replica, timed with perfmodel measure serving, would tell"


def _entry(
    value: object, confidence: str | None, source: str | None, date: str | None = None
) -> dict[str, object]:
    return {"value": value, "confidence": confidence or "assumed", "source": source, "date": date}


def rests_on(service: Service, chosen: Chosen) -> dict[str, dict[str, object]]:
    """Each input with its value, source and confidence."""
    job, said = service.job, service.job.serving
    node = job.cluster.node
    device, link = node.accelerator, node.scale_up
    arithmetic = FORMATS[service.precision].arithmetic
    known = device.origin("memory_bandwidth")
    memory = device.origin("memory")
    coefficients = service.belief.measured
    count = sum(coefficients.values())
    work = job.workload
    return {
        "accelerator": _entry(device.name, device.confidence, device.source, device.date),
        "memory bandwidth": _entry(
            format_quantity(device.memory_bandwidth, "B/s"), known.confidence, known.source, known.date
        ),
        "memory": _entry(format_quantity(device.memory, "B"), memory.confidence, memory.source, memory.date),
        "peak rate": _entry(
            f"{format_quantity(float(service.machine.peak_flop_per_s), 'FLOP/s')} in {arithmetic}",
            device.confidence, device.source, device.date,
        ),
        "scale-up link": _entry(
            "the host's bus" if link is None else f"{link.name}, {format_quantity(link.bandwidth, 'B/s')}",
            None if link is None else link.confidence, None if link is None else link.source,
            None if link is None else link.date,
        ),
        "model": _entry(f"{work.name}, {float(service.shape.params) / 1e9:,.3g} G parameters", work.confidence, work.source, work.date),
        "engine": _entry(service.engine.era, "documentation" if said.engine else "assumed", service.engine.source),
        "limits": _entry(
            f"{float(np.max(service.deployment([chosen.layout]).max_sequences)):,.0f} sequences, "
            f"{said.max_batched_tokens or service.chunk_tokens:,} tokens a step",
            "declared" if said.max_batch and said.max_batched_tokens else "documentation", service.engine.source,
        ),
        "precision": _entry(service.precision, "assumed" if service.is_usual else "declared", "default" if service.is_usual else "job"),
        "layout": _entry(chosen.how, "declared" if said.layout is not None else "chosen", "job" if said.layout is not None else "search"),
        "price": _entry(
            None if job.price.per_accelerator is None else f"{job.price.per_accelerator * 3600:.4g} USD/h an accelerator",
            "assumed" if job.price.note else "declared", job.price.source or "job", job.price.date,
        ),
        "coefficients": _entry(
            f"{count} of {len(NAMES)} measured on such a stack",
            "measured" if count == len(NAMES) else "inherited" if service.beliefs.is_fitted else "assumed",
            "public serving benchmarks" if service.beliefs.is_fitted else "textbook",
            str(service.beliefs.meta.get("date") or "") or None,
        ),
    }  # fmt: skip


def narrow(curve: LoadCurve, at: NDArray[np.intp]) -> list[dict[str, object]]:
    """The facts behind most of the band, at the middle load: its half-width now, and without the doubt of that fact."""
    name = "throughput" if curve.kind in ("offline",) else "tpot"
    middle = int(at[len(at) // 2])
    terms = curve.slopes[name][:, middle]
    width = curve.service.beliefs.half_width
    total = float((terms**2).sum())

    def half(square: float) -> float:
        return float(np.expm1(width(name, np.asarray(np.sqrt(max(square, 0.0))))))

    order = np.argsort(-np.abs(terms))[:_NARROW]
    return [
        {
            "fact": MEANINGS[NAMES[i]],
            "coefficient": NAMES[i],
            "of": name,
            "half_width": half(total),
            "half_width_after": half(total - float(terms[i] ** 2)),
            "how": _HOW,
        }
        for i in order
        if terms[i] ** 2 > 0.01 * total
    ]
