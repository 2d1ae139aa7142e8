"""Which replicas prefill, which decode, and how many of each: the two pools apart, then their ratio.

What a replica of one pool answers within the objectives does not depend on the other pool, so every layout of each is
asked once. The best of all pairs and ratios then follows from two lists:

    requests an accelerator = min(n_p x_p, n_d x_d) / (n_p a_p + n_d a_d)                                       (1)

with x the requests a second of a replica and a its accelerators. Link, tails and the way through both pools are those of
the whole group (`physics.serving_pools`), which is asked of the most promising ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.decide.serving.fleet import worth
from perfmodel.physics.serving import OPEN, serving_answer
from perfmodel.physics.serving_pools import pool_coefficients, pool_loads, prefill_wait
from perfmodel.physics.serving_step import Deployment, cache_sequences
from perfmodel.physics.serving_tail import QUANTILES
from perfmodel.serving.setup import Service, layouts_of
from perfmodel.specs.serving import PooledLayout, ServedLayout

Array = NDArray[np.float64]
Limits = Sequence[tuple[str, str, float]]

_MOST: Final = 8  # replicas of one pool in a group
_MOST_ACCELERATORS: Final = 128  # of a group
_RATIOS: Final = np.array(
    [(p, d) for p in range(1, _MOST + 1) for d in range(1, _MOST + 1) if math.gcd(p, d) == 1], float
)
_SHARES: Final = np.array([0.05, 0.2, 0.4, 0.55, 0.7, 0.8, 0.9, 0.97])
_TAIL: Final = 1.2  # p99 over mean of the time per token, until it is computed
_OWN: Final = (
    0.8  # of the limit of the first token, for its pool: the rest is the link's and the first step's
)
_SAFE: Final = 0.95  # of saturation, where nothing else limits


@dataclass(frozen=True)
class PoolRates:
    """What replicas of each pool answer within the objectives, a layout an entry; and tokens at each load of a decoder."""

    prefills: list[ServedLayout]
    decodes: list[ServedLayout]
    prefill_per_s: Array
    decode_per_s: Array
    loads_per_s: Array  # of a decoding replica: layout, load
    token_s: Array  # the time per token there
    feasible: int  # replicas at loads that keep the objectives

    @property
    def evaluated(self) -> int:
        """Replicas at loads that were computed."""
        return (len(self.prefills) + len(self.decodes)) * _SHARES.size


def pool_rates(service: Service, limits: Limits) -> PoolRates:
    """Both pools, each layout at a range of loads."""
    said = service.job.serving
    own = said.pools.layout if said.pools is not None else None
    prefills = [own] if own is not None else layouts_of(service)
    prefills = [one.model_copy(update={"replicas": 1}) for one in prefills]
    decodes = [one.model_copy(update={"replicas": 1}) for one in layouts_of(service)]
    prompts, tokens = pool_loads(service.load(OPEN, rate_per_s=1.0))
    c_prefill, c_decode = pool_coefficients(service.coefficients)
    shape, machine = service.shape, service.machine

    def fits(at: Deployment, outputs: float, count: int) -> Array:
        room = cache_sequences(shape, machine, at, said.input_tokens.mean, outputs, service.coefficients)
        return np.asarray(np.broadcast_to(room >= 1.0, (count,)), float)

    at = service.deployment([*prefills, prefills[0]])  # two at least: arrays
    idle = prefill_wait(shape, machine, at, replace(prompts, rate_per_s=np.asarray(1e-9)), c_prefill)
    most = np.asarray(at.pipeline) * idle.saturation_per_s
    rates = most[:, None] * _SHARES
    waited = prefill_wait(shape, machine, at.column(), replace(prompts, rate_per_s=rates), c_prefill)
    kept = np.ones(rates.shape, bool)
    for quantity, statistic, limit in limits:
        if quantity == "ttft":
            time = waited.mean_s if statistic == "mean" else waited.quantile_s(QUANTILES[statistic])
            kept &= time + float(c_prefill.first_s) <= _OWN * limit
    prefill = _largest(rates, kept, _SAFE * most if not limits else None)[:-1]
    good = int(kept[:-1].sum())
    prefill = prefill * fits(service.deployment(prefills), 1.0, len(prefills))

    at = service.deployment([*decodes, decodes[0]])
    asked = replace(tokens, rate_per_s=np.asarray(1e-9))
    full = serving_answer(shape, machine, at, asked, c_decode).saturation_requests_per_s
    full = np.nan_to_num(np.broadcast_to(full, (len(decodes) + 1,)))
    rates = full[:, None] * _SHARES
    some = np.where(rates > 0.0, rates, 1.0)  # of a layout that does not fit nothing is told
    found = serving_answer(shape, machine, at.column(), replace(tokens, rate_per_s=some), c_decode)
    kept = np.ones(rates.shape, bool)
    for quantity, statistic, limit in limits:
        if quantity == "tpot":
            kept &= found.tpot_s * (_TAIL if statistic not in ("mean", "p50") else 1.0) <= limit
    decode = _largest(rates, kept, _SAFE * full if not limits else None)[:-1]
    good = good + int(kept[:-1].sum()) if prefill.any() and decode.any() else 0
    return PoolRates(prefills, decodes, prefill, decode, rates[:-1], found.tpot_s[:-1], good)


def _largest(rates: Array, kept: NDArray[np.bool_], without: Array | None) -> Array:
    """The largest rate up to which all are kept."""
    if without is not None:
        return without
    good = np.cumprod(kept, axis=1).astype(bool)
    return np.asarray(np.where(good, rates, 0.0).max(axis=1))


def _each(service: Service, rates: PoolRates, decode_per_s: Array) -> tuple[Array, Array]:
    """Equation (1), of whole groups where a demand is stated, for layouts of either pool and ratios on the last three axes; the ratios."""
    given = service.job.serving.pools
    ratios = _RATIOS
    if given is not None and given.prefill is not None and given.decode is not None:
        ratios = np.array([[given.prefill, given.decode]], float)
    sizes = [np.array([one.accelerators for one in pool], float) for pool in (rates.prefills, rates.decodes)]
    made = np.minimum(
        rates.prefill_per_s[:, None, None] * ratios[:, 0], decode_per_s[..., None, :, None] * ratios[:, 1]
    )
    ranks = sizes[0][:, None, None] * ratios[:, 0] + sizes[1][None, :, None] * ratios[:, 1]
    good = worth(service.job, made, ranks)
    return np.where((ranks <= _MOST_ACCELERATORS) | (len(ratios) == 1), good, 0.0), ratios


def pool_front(service: Service, rates: PoolRates) -> list[tuple[float, float, PooledLayout, float]]:
    """Tokens a second of a user and of an accelerator, the group, and requests in flight, at each load of each decoder."""
    alone = replace(
        service,
        job=service.job.model_copy(
            update={"serving": service.job.serving.model_copy(update={"demand": None})}
        ),
    )
    each, ratios = _each(alone, rates, rates.loads_per_s.T)
    outputs = service.job.serving.output_tokens.mean
    found = []
    flat = each.transpose(0, 2, 1, 3).reshape(
        *rates.loads_per_s.T.shape, -1
    )  # load, decoder, (prefill, ratio)
    best, most = flat.argmax(axis=-1), flat.max(axis=-1)
    for load, d in np.argwhere(most > 0.0):
        p, r = np.unravel_index(best[load, d], (len(rates.prefills), len(ratios)))
        count = ratios[r]
        group = pooled(rates.decodes[d], rates.prefills[p], int(count[0]), int(count[1]))
        token_s = float(rates.token_s[d, load])
        in_flight = float(most[load, d]) * group.accelerators * outputs * token_s
        found.append((1.0 / token_s, float(most[load, d]) * outputs, group, in_flight))
    return found


def best_pools(service: Service, rates: PoolRates, keep: int) -> list[PooledLayout]:
    """The groups with the most requests an accelerator, one a pair of layouts, best first; empty where none answers."""
    each, ratios = _each(service, rates, rates.decode_per_s)
    best = each.argmax(axis=-1)
    most = each.max(axis=-1)
    order = np.argsort(-most, axis=None, kind="stable")[:keep]
    replicas = service.job.replicas
    found = []
    for place in order:
        p, d = (int(i) for i in np.unravel_index(place, most.shape))
        if most[p, d] <= 0.0:
            continue
        count = ratios[best[p, d]]
        found.append(pooled(rates.decodes[d], rates.prefills[p], int(count[0]), int(count[1]), replicas))
    return found


def pooled(
    decode: ServedLayout, prefill: ServedLayout, senders: int, takers: int, replicas: int = 1
) -> PooledLayout:
    """A group of `senders` replicas that prefill and `takers` that decode."""
    own = decode.model_dump(include={"tp", "pp", "ep", "dp"})
    return PooledLayout(
        **own, replicas=replicas, prefill=prefill, prefill_replicas=senders, decode_replicas=takers
    )


def quickest_pools(service: Service) -> PooledLayout | None:
    """The widest replicas that fit, one of each pool or as many as the job says: where nothing keeps the objectives."""
    given = service.job.serving.pools
    rates = pool_rates(service, ())
    fitting = [
        [one for one, rate in zip(pool, most, strict=True) if rate > 0.0]
        for pool, most in ((rates.prefills, rates.prefill_per_s), (rates.decodes, rates.decode_per_s))
    ]
    if not all(fitting):
        return None
    widest = [max(pool, key=lambda one: one.tp) for pool in fitting]
    count = (given.prefill, given.decode) if given is not None else (1, 1)
    return pooled(widest[1], widest[0], count[0] or 1, count[1] or 1, service.job.replicas)
