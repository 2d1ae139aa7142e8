"""Prefill on replicas of its own in the search of a plan: the best pairs of layouts and their ratio, looked at closely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from perfmodel.decide.serving.pool_ratio import PoolRates, best_pools, pool_front, pool_rates
from perfmodel.decide.serving.search import Wanted, at_knees
from perfmodel.physics.serving_step import Deployment
from perfmodel.serving.setup import Service
from perfmodel.specs.serving import PooledLayout, ServedLayout

_CLOSELY: Final = 4  # groups whose tails are computed, of each number format


def pooled_candidates(
    service: Service, limits: Sequence[tuple[str, str, float]], wanted: Wanted
) -> tuple[list[dict[str, object]], list[tuple[float, float, dict[str, object]]], PoolRates]:
    """Candidates with two pools, points of the front, and what was computed of either pool."""
    rates = pool_rates(service, limits)
    groups = best_pools(service, rates, _CLOSELY)
    if not groups:
        return [], [], rates
    at = service.deployment([*groups, groups[0]])  # two at least: arrays
    named = [_named(service, one, at) for one in [*groups, groups[0]]]
    found = at_knees(service, [*groups, groups[0]], named, at, limits, wanted)
    points = [
        (users, made, {**_named(service, group, at), "concurrency": round(in_flight, 1),
                       "tokens_per_s_per_user": users, "tokens_per_s_per_accelerator": made})
        for users, made, group, in_flight in pool_front(service, rates)
    ]  # fmt: skip
    unique = {str(item["layout"]): item for item in found}
    return list(unique.values()), points, rates


def _named(service: Service, group: PooledLayout, at: Deployment) -> dict[str, object]:
    def degrees(one: PooledLayout | ServedLayout) -> dict[str, int]:
        return {"tp": one.tp, "pp": one.pp, "ep": one.ep, "dp": one.dp}

    return {
        "cluster": service.job.cluster.name,
        "precision": service.precision,
        "kv_precision": service.job.serving.kv_precision,
        "layout": {
            **degrees(group),
            "prefill": degrees(group.prefill),
            "prefill_replicas": group.prefill_replicas,
            "decode_replicas": group.decode_replicas,
        },
        "max_batch": int(np.max(at.max_sequences)),
        "max_batched_tokens": int(np.max(at.chunk_tokens)),
    }
