"""A group of two pools as it is reported: how busy each pool and the link between them are, and what would help."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.decide.serving.curve import LoadCurve
from perfmodel.physics.machine import Machine
from perfmodel.physics.serving import OPEN, serving_answer
from perfmodel.physics.serving_coefficients import ServingCoefficients
from perfmodel.physics.serving_pools import (
    pool_coefficients,
    pool_deployments,
    pool_loads,
    prefill_wait,
    transfer,
)
from perfmodel.physics.serving_step import Deployment
from perfmodel.serving.setup import Service
from perfmodel.specs.serving import PooledLayout

Array = NDArray[np.float64]
_FASTER: Final = 2.0  # times the rate of the link between the pools, as a remedy
_WORDS: Final = {
    "prefill": ("the replicas that prefill are {busy:.0%} busy", "one more replica that prefills in each group"),
    "decode": ("the replicas that decode are {busy:.0%} full", "one more replica that decodes in each group"),
    "link": ("keys and values of prompts keep the link between the pools {busy:.0%} busy", "a link of twice the rate between the pools"),
}  # fmt: skip


@dataclass(frozen=True)
class Remedy:
    """A cause in words, what would help, and the service with that help."""

    cause: str
    words: str
    machine: Machine
    deployment: Deployment
    coefficients: ServingCoefficients


def pool_limits(service: Service, at: Deployment) -> dict[str, float]:
    """Requests a second at which the replicas that prefill, those that decode, and the link are full."""
    prompts, tokens = pool_loads(service.load(OPEN, rate_per_s=1e-9))
    prefill, decode = pool_deployments(at)
    c_prefill, c_decode = pool_coefficients(service.coefficients)
    first = prefill_wait(service.shape, service.machine, prefill, prompts, c_prefill)
    then = serving_answer(service.shape, service.machine, decode, tokens, c_decode)
    crossing = transfer(service.shape, service.machine, at, prompts, service.coefficients)
    return {
        "prefill": float(at.prefill_replicas * np.asarray(prefill.pipeline, float) * first.saturation_per_s),
        "decode": float(at.decode_replicas * then.saturation_requests_per_s),
        "link": float(crossing.most_per_s),
    }


def pool_remedies(service: Service, at: Deployment, name: str, load: float) -> list[Remedy]:
    """One more of each pool and a faster link between them, what is fullest at a load first."""
    limits = pool_limits(service, at)
    machine = service.machine
    faster = replace(
        machine,
        up_bytes_per_s=machine.up_bytes_per_s * _FASTER,
        out_bytes_per_s=machine.out_bytes_per_s * _FASTER,
    )
    changed = {
        "prefill": (machine, replace(at, prefill_replicas=at.prefill_replicas + 1.0)),
        "decode": (machine, replace(at, decode_replicas=at.decode_replicas + 1.0)),
        "link": (faster, at),
    }
    found = []
    for part in sorted(limits, key=lambda part: limits[part]):
        cause, words = _WORDS[part]
        busy = min(load / limits[part], 1.0)
        found.append(
            Remedy(f"{name}: {cause.format(busy=busy)}", words, *changed[part], service.coefficients)
        )
    return found


def pools_of(curve: LoadCurve, at: NDArray[np.intp]) -> dict[str, Any] | None:
    """`pools` of a prediction: each pool's replicas and how busy it is at each load, and the cache that crosses."""
    layout = curve.layout
    if not isinstance(layout, PooledLayout):
        return None
    service = curve.service
    deployed = service.deployment([layout])
    limits = pool_limits(service, deployed)
    crossing = transfer(
        service.shape, service.machine, deployed, service.load(OPEN, rate_per_s=1.0), service.coefficients
    )
    rate = np.broadcast_to(curve.answer.requests_per_s, curve.load.shape)[at]
    own = layout.tp * layout.pp * layout.dp

    def busy(name: str) -> Array:
        return np.asarray(np.minimum(rate / limits[name], 1.0))

    return {
        "prefill": {
            "replicas": layout.prefill_replicas,
            "accelerators": layout.prefill_replicas * layout.prefill.accelerators,
            "most_requests_per_s": limits["prefill"],
            "busy": busy("prefill"),
        },
        "decode": {
            "replicas": layout.decode_replicas,
            "accelerators": layout.decode_replicas * own,
            "most_requests_per_s": limits["decode"],
            "busy": busy("decode"),
        },
        "link": {
            "bytes_per_request": float(crossing.bytes),
            "seconds": float(crossing.seconds),
            "is_scale_up": bool(crossing.is_inside),
            "most_requests_per_s": limits["link"],
            "busy": busy("link"),
        },
    }
