"""What a served token costs in dollars and joules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.decide.energy import DEFAULT_PUE, DEFAULT_TDP_W, IDLE_SHARE, UNKNOWN_HOST_SHARE, PowerModel
from perfmodel.decide.pricing import accelerators_usd_per_s, whole_nodes
from perfmodel.decide.tariffs import tariff_of
from perfmodel.physics import energy as power
from perfmodel.specs.serving import ServingJob

Array = NDArray[np.float64]
MILLION: Final = 1e6
#: What accelerators do in each part of a step (`physics.energy.PowerShares`).
ACTIVITIES: Final[dict[str, str]] = {
    "weights": "memory",
    "experts": "memory",
    "cache": "memory",
    "prompt_attention": "compute",
    "exchange": "communication",
    "launch": "waiting",
    "host": "waiting",
    "draft": "memory",
    "prompts": "compute",
}


@dataclass(frozen=True)
class Bill:
    """Price and power of a number of accelerators."""

    usd_per_s: float  # nan where nobody knows a price
    accelerators: float


def bill(job: ServingJob, accelerators: float) -> Bill:
    """What so many accelerators cost a second, with what is paid by the hour whatever their number."""
    tariff = tariff_of(job.price, job.cluster)
    paid = whole_nodes(accelerators, tariff.node_size)
    usd = float(accelerators_usd_per_s(paid, tariff)) + tariff.fixed_usd_per_s + tariff.storage_usd_per_s
    return Bill(usd, accelerators)


def power_of(job: ServingJob) -> PowerModel:
    """Power of an accelerator and its surroundings; what no datasheet gives is a stated share."""
    node, device = job.cluster.node, job.cluster.node.accelerator
    rated = device.tdp or DEFAULT_TDP_W
    host = node.host_draw
    if host is None:
        host = UNKNOWN_HOST_SHARE * rated * node.accelerators_per_node
    return PowerModel(
        rated_w=rated,
        idle_w=device.idle_power or IDLE_SHARE * rated,
        host_w=host / node.accelerators_per_node,
        pue=job.price.pue or DEFAULT_PUE,
        grams_per_j=job.grid.carbon if job.grid is not None else None,
    )


def watts(job: ServingJob, accelerators: float, parts_s: dict[str, Array], in_flight: Array) -> Array:
    r"""Mean draw of a deployment at the meter [W].

    A replica without requests rests. With n requests in flight on average that share of the time is :math:`e^{-n}`, as
    where requests do not wait for one another (M/G/infinity).
    """
    model = power_of(job)
    seconds: dict[str, Array] = {}
    for name, value in parts_s.items():
        doing = ACTIVITIES[name]
        seconds[doing] = seconds.get(doing, np.zeros(())) + value
    step = sum(seconds.values(), np.zeros(()))
    joules = power.energy_j(
        accelerators,
        seconds,
        rated_w=model.rated_w,
        idle_w=model.idle_w,
        host_w=model.host_w,
        pue=model.pue,
        shares=model.shares,
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        busy = joules / step
    resting = accelerators * (model.idle_w + model.host_w) * model.pue
    idle = np.exp(-np.maximum(in_flight, 0.0))
    return np.asarray((1.0 - idle) * busy + idle * resting)
