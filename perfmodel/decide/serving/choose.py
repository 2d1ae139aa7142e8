"""Which layout a replica should have where the job leaves it open: the cheapest that keeps the objectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.decide.serving.curve import latencies, loaded
from perfmodel.decide.serving.knee import crossing
from perfmodel.errors import SpecError
from perfmodel.physics.serving import serving_answer
from perfmodel.physics.serving_step import Deployment, cache_sequences
from perfmodel.serving.setup import Service, layouts_of
from perfmodel.specs.serving import ServedLayout

Array = NDArray[np.float64]
_SHARES: Final = np.array([0.05, 0.25, 0.5, 0.7, 0.85, 0.95])  # of saturation, at which layouts are compared
_FINALISTS: Final = 3
_TAIL: Final = 2.0  # of a mean, what a p99 is taken for until it is computed


@dataclass(frozen=True)
class Chosen:
    """A layout and why it was taken."""

    layout: ServedLayout
    how: str


def choose(service: Service) -> Chosen:
    """The job's layout, or the one with the most requests an accelerator within the slo (without one: at saturation)."""
    layouts = layouts_of(service)
    said = service.job.serving
    if said.layout is not None:
        return Chosen(layouts[0], "as the job says")
    at = service.deployment(layouts)
    fitting = cache_sequences(
        service.shape,
        service.machine,
        at,
        said.input_tokens.mean,
        said.output_tokens.mean,
        service.coefficients,
    )
    fits = np.broadcast_to(fitting >= 1.0, (len(layouts),))
    if not fits.any():
        raise _nothing_fits(service)
    layouts = [one for one, good in zip(layouts, fits, strict=True) if good]
    if len(layouts) == 1:
        return Chosen(layouts[0], "the only one that fits the memory")
    at = service.deployment(layouts)
    ranks = np.broadcast_to(at.accelerators, (len(layouts),))
    limits = said.slo.limits if said.slo is not None else ()
    kind = said.load.kind if said.load is not None else "rate"
    if kind == "concurrency" and said.load is not None and not limits:
        most = float((said.load.concurrency or (1,))[-1])
        found = serving_answer(
            service.shape, service.machine, at, loaded(service, kind, np.asarray(most)), service.coefficients
        )
        best = np.nan_to_num(found.throughput_out_tokens_per_s) / ranks
        return Chosen(layouts[int(np.argmax(best))], "the most tokens an accelerator that fits the memory")
    full = _saturation(service, at)
    if not limits:
        return Chosen(
            layouts[int(np.argmax(full / ranks))], "the most tokens an accelerator that fits the memory"
        )
    return _within(service, layouts, full, ranks)


def _saturation(service: Service, at: Deployment) -> Array:
    from perfmodel.decide.serving.curve import saturation

    return np.nan_to_num(np.atleast_1d(saturation(service, at)))


def _within(service: Service, layouts: list[ServedLayout], full: Array, ranks: Array) -> Chosen:
    """The most requests an accelerator within the slo: by means first, the best few by their tails."""
    slo = service.job.serving.slo
    limits = slo.limits if slo is not None else ()
    columns = {
        name: np.asarray(value)[..., None] if np.ndim(value) else value
        for name, value in _fields(service, layouts).items()
    }
    at = service.deployment(layouts, **columns)
    rates = full[:, None] * _SHARES
    found = serving_answer(
        service.shape, service.machine, at, loaded(service, "rate", rates), service.coefficients
    )
    means = {"ttft": found.ttft_s, "tpot": found.tpot_s, "e2e": found.e2e_s}
    ends = np.zeros(len(layouts))
    for i in range(len(layouts)):
        values = {
            f"{q}_{s}": means[q][i] * (_TAIL if s != "mean" and q == "ttft" else 1.0) for q, s, _ in limits
        }
        end, _ = crossing(rates[i], values, {f"{q}_{s}": limit for q, s, limit in limits})
        ends[i] = 0.0 if np.isnan(end) else min(end, full[i])
    order = np.argsort(-(ends / ranks + 1e-9 * full / ranks))[:_FINALISTS]
    chosen = [layouts[i] for i in order]
    columns = {
        name: np.asarray(value)[..., None] if np.ndim(value) else value
        for name, value in _fields(service, chosen).items()
    }
    _, times = latencies(service, service.deployment(chosen, **columns), "rate", rates[order])
    best, most = -1.0, 0
    for place, i in enumerate(order):
        values = {f"{q}_{s}": times[q][s][place] for q, s, _ in limits}
        end, _ = crossing(rates[i], values, {f"{q}_{s}": limit for q, s, limit in limits})
        worth = 0.0 if np.isnan(end) else min(end, full[i]) / ranks[i]
        if worth > best:
            best, most = worth, place
    if best <= 0.0:  # none keeps the slo: the quickest, to come closest
        quickest = int(np.nanargmin(np.where(np.isfinite(found.e2e_s[:, 0]), found.e2e_s[:, 0], np.inf)))
        return Chosen(layouts[quickest], "the quickest that fits: none keeps the slo")
    return Chosen(chosen[most], "the most requests an accelerator within the slo")


def _fields(service: Service, layouts: list[ServedLayout]) -> dict[str, Array]:
    """The fields of the deployment that differ by layout."""
    at = service.deployment(layouts)
    names = ("tensor", "pipeline", "attention_replicas", "expert_ranks", "max_sequences")
    return {name: np.broadcast_to(getattr(at, name), (len(layouts),)) for name in names}


def _nothing_fits(service: Service) -> SpecError:
    job = service.job
    size = float(service.shape.params) * service.deployment([ServedLayout()]).weight_bytes
    return job.error_at(
        "serving.layout",
        "S010",
        f"no layout of {job.workload.name} in {service.precision} ({size / 1e9:,.0f} GB of weights) leaves memory for a request",
        "a smaller precision, a shorter context or larger accelerators would",
    )
