"""One collective by every algorithm: messages x alpha, bytes x beta, gamma, and the sizes at which they change places.

Either with a latency and a bandwidth that somebody states, by the closed forms of `physics.collectives`; or on a
cluster, with the functions and coefficients by which the step model prices the same call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypedDict

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.features import features
from perfmodel.beliefs.population import Beliefs, shipped_beliefs
from perfmodel.errors import Problem, UsageError, did_you_mean
from perfmodel.physics import collectives as closed
from perfmodel.physics.algorithms import AUTO, CODES, has, terms
from perfmodel.physics.coefficients import NAMES, Coefficients, from_logs
from perfmodel.physics.exchanges import Links
from perfmodel.physics.layouts import layouts
from perfmodel.physics.machine import Machine, machine
from perfmodel.results.envelope import Result
from perfmodel.specs.hardware import Cluster
from perfmodel.specs.workload import Workload
from perfmodel.units import format_quantity

Array = NDArray[np.float64]

OPERATIONS: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
_SIZES: Final = np.geomspace(
    1.0, 1e13, 1301
)  # bytes among which algorithms are compared: 1 % of a decade apart
# Bytes of memory traffic per byte added: two operands read, one sum written.
REDUCTION_TRAFFIC: Final = 3.0
# Far more than any link has: what is left of a time then is its latency.
_UNLIMITED: Final = 1e30

#: The closed forms of each operation under the words of a job, with the cost in letters.
TEXTBOOK: Final[Mapping[str, Mapping[str, tuple[closed.Cost, str]]]] = {
    "all_reduce": {
        "ring": (closed.all_reduce_ring, "2(n-1) a + 2(n-1)/n S b + (n-1)/n S g"),
        "tree": (closed.all_reduce_double_binary_tree, "2L a + 2S b + S g + 2 sqrt(2L a S (2b + g)): two trees, chunks"),
        "binomial_tree": (closed.all_reduce_binomial, "2L (a + S b) + L S g: one tree, whole messages"),
        "recursive_doubling": (closed.all_reduce_recursive_doubling, "L (a + S b + S g)"),
        "halving_doubling": (closed.all_reduce_halving_doubling, "2L a + 2(n-1)/n S b + (n-1)/n S g"),
        "in_switch": (closed.all_reduce_in_switch, "2a + S b"),
        "parameter_server": (closed.parameter_server, "2 (a + n/servers S b)"),
    },
    "all_gather": {
        "ring": (closed.all_gather_ring, "(n-1) a + (n-1)/n S b"),
        "tree": (closed.all_gather_bruck, "L a + (n-1)/n S b"),
        "halving_doubling": (closed.all_gather_recursive_doubling, "L a + (n-1)/n S b"),
    },
    "reduce_scatter": {
        "ring": (closed.reduce_scatter_ring, "(n-1) a + (n-1)/n S (b + g)"),
        "halving_doubling": (closed.reduce_scatter_recursive_halving, "L a + (n-1)/n S (b + g)"),
    },
    "all_to_all": {
        "ring": (closed.all_to_all_pairwise, "(n-1) a + (n-1)/n S b: each pair directly"),
        "halving_doubling": (closed.all_to_all_bruck, "L a + L S/2 b (Bruck)"),
    },
    "broadcast": {
        "binomial_tree": (closed.broadcast_binomial, "L (a + S b)"),
        "ring": (closed.broadcast_van_de_geijn, "(L + n-1) a + 2(n-1)/n S b: scatter, then a ring"),
    },
}  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """What to price: every size with every group. `algorithms` empty means all that the operation has."""

    op: str
    sizes: tuple[float, ...]
    ranks: tuple[int, ...]
    algorithms: tuple[str, ...] = ()
    servers: int = 1


@dataclass(frozen=True)
class Stated:
    """A link as a textbook has it: latency of a message [s], bytes per second, bytes added per second (0: free)."""

    alpha_s: float
    bytes_per_s: float
    added_bytes_per_s: float = 0.0


@dataclass(frozen=True)
class Measurement:
    """One measured call."""

    message_bytes: float
    ranks: int
    nodes: int
    algorithm: str
    time_s: float
    source: str


class Row(TypedDict):
    """One algorithm at one size in one group, as `result.rows` has it."""

    algorithm: str
    bytes: float
    ranks: int
    nodes: float
    steps: float
    alpha_s: float
    beta_s: float
    gamma_s: float
    time_s: float
    formula: str


# "from" is no name of Python, so the keys are listed in another form.
Crossover = TypedDict("Crossover", {"ranks": int, "from": str, "to": str, "bytes": float})


@dataclass(frozen=True)
class _Priced:
    """Seconds of one algorithm for sizes x groups, and what they are made of."""

    name: str
    formula: str
    steps: Array
    alpha_s: Array
    beta_s: Array
    gamma_s: Array
    time_s: Array
    at: Callable[[Array, Array], Array]  # seconds of other sizes and groups


def by_letters(asked: Asked, link: Stated, *, seed: int = 0) -> Result:
    """The closed forms with a stated alpha, beta and gamma."""
    known = TEXTBOOK[asked.op]
    beta = 1.0 / link.bytes_per_s
    gamma = 1.0 / link.added_bytes_per_s if link.added_bytes_per_s else 0.0
    size, n = _grid(asked)
    rows = []
    for name in _chosen(asked, list(known)):
        cost, formula = known[name]
        options: dict[str, int] = {"servers": asked.servers} if name == "parameter_server" else {}
        made = closed.parts(cost, size, n, **options)
        adds = float(gamma) if bool(np.any(made.reduced_bytes)) else None

        def seconds(
            s: Array,
            r: Array,
            cost: closed.Cost = cost,
            options: dict[str, int] = options,
            adds: float | None = adds,
        ) -> Array:
            with_gamma = {"gamma_s_per_byte": adds} if adds is not None else {}
            return cost(s, r, link.alpha_s, beta, **with_gamma, **options)

        rows.append(
            _Priced(
                name,
                formula,
                made.steps,
                made.steps * link.alpha_s,
                made.wire_bytes * beta,
                made.reduced_bytes * gamma,
                seconds(size, n),
                seconds,
            )
        )
    inputs = {
        "op": asked.op,
        "alpha_s": link.alpha_s,
        "bandwidth_bytes_per_s": link.bytes_per_s,
        "reduce_bytes_per_s": link.added_bytes_per_s or None,
        "servers": asked.servers,
    }
    links = {"link": {"alpha_s": link.alpha_s, "bytes_per_s": link.bytes_per_s}}
    return _result(asked, rows, inputs, links, np.ones(n.shape[-1]), (), (), seed)


def on_cluster(
    asked: Asked,
    cluster: Cluster,
    beliefs: Beliefs | None = None,
    measured: Sequence[Measurement] = (),
    *,
    seed: int = 0,
) -> Result:
    """The same call as the step model prices it on a cluster, beside what was measured there."""
    known = beliefs or shipped_beliefs()
    numbers = machine(cluster, _precision(cluster))
    c = from_logs(_link_logs(cluster, known))
    size, n = _grid(asked)
    nodes = np.maximum(n / np.minimum(n, numbers.domain), 1.0)
    rows = [
        _on_tiers(name, asked.op, size, n, numbers, c)
        for name in _chosen(
            asked, [AUTO, *(a for a in CODES if a != AUTO and _possible(a, asked.op, numbers))]
        )
    ]
    inputs = {"op": asked.op, "cluster": cluster.name, "accelerator": cluster.accelerator.name}
    links = {
        "scale_up": {
            "alpha_s": float(c.up_step_s + numbers.up_latency_s),
            "bytes_per_s": float(numbers.up_bytes_per_s * c.up_efficiency),
        },
        "network": {
            "alpha_s": float(c.out_step_s + numbers.out_latency_s),
            "bytes_per_s": float(numbers.out_bytes_per_s * numbers.node * c.out_efficiency),
        },
    }
    compared = [_compared(m, asked.op, numbers, c) for m in measured]
    notes = [
        f"A call costs {format_quantity(float(c.base_s), 's', 3)} before the first message; latency and bandwidth join with "
        "a rounded knee, so the time exceeds the sum of the columns near the crossover.",
        "The bandwidth that the step model was fitted with has the additions in it; gamma, from the memory bandwidth, is "
        "shown for comparison.",
    ]
    if compared:
        notes.append(
            "Predicted is a call inside a training step, with its launch and the waiting around it; a benchmark that only "
            "repeats the call has less of that, which shows in small messages."
        )
    result = _result(asked, rows, inputs, links, nodes[0], compared, notes, seed)
    result.result["base_s"] = float(c.base_s)
    return result


def _grid(asked: Asked) -> tuple[Array, Array]:
    return np.asarray(asked.sizes, float)[:, None], np.asarray(asked.ranks, float)[None, :]


def _chosen(asked: Asked, known: list[str]) -> list[str]:
    """The algorithms to show; a name that the operation has not is refused."""
    if not asked.algorithms:
        return known
    wrong = [name for name in asked.algorithms if name not in known]
    if wrong:
        raise UsageError(
            Problem(
                code="U016",
                message=f"--algorithm: {asked.op} has no {name} here{did_you_mean(name, known)}",
                help=f"one of all, {', '.join(known)}",
            )
            for name in wrong
        )
    return [name for name in known if name in asked.algorithms]


def _precision(cluster: Cluster) -> str:
    peak = cluster.accelerator.peak
    return next((name for name in ("bf16", "fp16", "fp32") if name in peak), next(iter(peak)))


def _link_logs(cluster: Cluster, beliefs: Beliefs) -> Array:
    """Log coefficients of the links of a cluster, whatever is trained on it."""
    up, out = cluster.node.scale_up, cluster.network
    about = features(
        Workload.model_validate(
            {
                "name": "none",
                "kind": "generic",
                "params": 1.0,
                "flop_per_sample": 1.0,
                "bytes_per_sample": 1.0,
            }
        ),
        cluster.accelerator,
        _precision(cluster),
        framework=None,
        scale_up=up.name if up else None,
        scale_out=out.name if out else None,
    )
    logs = beliefs.belief(about).median
    if beliefs.calibration is not None:
        logs = logs + beliefs.calibration.mean[: len(NAMES)]
    return np.asarray(logs)


def _possible(algorithm: str, op: str, numbers: Machine) -> bool:
    if algorithm == "in_switch" and not float(numbers.in_switch + numbers.in_network):
        return False
    return has(op, algorithm)


def _on_tiers(name: str, op: str, size: Array, n: Array, numbers: Machine, c: Coefficients) -> _Priced:
    """An algorithm by the step model's own links: its latency with no bytes to move, its bytes with no latency."""
    code = np.asarray(CODES[name])

    def seconds(s: Array, r: Array, numbers: Machine = numbers, c: Coefficients = c) -> Array:
        group = layouts(r, global_batch=r, accelerators_per_node=numbers.node)
        shape = np.broadcast_shapes(np.shape(s), np.shape(r))
        return np.broadcast_to(Links(numbers, group, c).time(op, s, r, np.ones(()), code), shape)

    group = layouts(n, global_batch=n, accelerators_per_node=numbers.node)
    made = decomposed(Links(numbers, group, c), op, size, n, np.ones(()), name)
    return _Priced(name, _FORMULAS.get((op, name), ""), *made, seconds(size, n), seconds)


def decomposed(
    links: Links, op: str, size: Array, ranks: Array, stride: Array, algorithm: str
) -> tuple[Array, Array, Array, Array]:
    """Of one call: messages, their seconds with no bytes to move, seconds of its bytes with no latency, and gamma.

    Gamma is the time in which the ranks' memory could add what the algorithm adds.
    """
    numbers, c, code = links.machine, links.c, np.asarray(CODES[algorithm])
    one, none = np.ones(()), np.zeros(())
    wide = replace(numbers, up_bytes_per_s=one * _UNLIMITED, out_bytes_per_s=one * _UNLIMITED)
    quick = replace(numbers, up_latency_s=none, out_latency_s=none)
    free = replace(c, base_s=none, bus_bytes_per_s=one * _UNLIMITED)
    counting = replace(free, up_step_s=one, out_step_s=one)
    moving = replace(c, base_s=none, up_step_s=none, out_step_s=none)
    counted = replace(wide, up_latency_s=none, out_latency_s=none)

    def seconds(bytes_: Array, machine: Machine, coefficients: Coefficients) -> Array:
        return replace(links, machine=machine, c=coefficients).time(op, bytes_, ranks, stride, code)

    nodes = np.maximum(ranks / np.clip(links.reach / stride, 1.0, ranks), 1.0)
    if algorithm != AUTO and has(op, algorithm):
        added = terms(op, algorithm, size, ranks, nodes).reduced_bytes
    else:
        adds = 1.0 if op in ("all_reduce", "reduce_scatter") else 0.0
        added = adds * (1.0 - 1.0 / np.maximum(ranks, 1.0)) * size
    no_bytes = np.zeros_like(size)
    gamma = added * REDUCTION_TRAFFIC / numbers.memory_bytes_per_s
    return (
        seconds(no_bytes, counted, counting),
        seconds(no_bytes, wide, free),
        seconds(size, quick, moving),
        np.asarray(gamma),
    )


_LIBRARY = "what libraries were measured to do: the least of ring, trees and switch"
_HALF: Final = {
    "auto": _LIBRARY,
    "ring": "(n-k) a1 + (k-1) a2, (n-1)/n S",
    "tree": "log2(g) a1 + log2(k) a2, (n-1)/n S",
    "halving_doubling": "log2(g) a1 + log2(k) a2, (n-1)/n S",
    "in_switch": "a1 + log2(k) a2, (n-1)/n S",
    "hierarchical": "(g-1) a1 + (k-1) a2, (g-1)/g S inside, then (k-1)/k S/g on each rail",
    "parameter_server": "a1 + a2, one server a domain: g S",
}
# On two tiers of links, by operation and algorithm: see `physics.algorithms.terms`.
_FORMULAS: Final = {
    ("all_reduce", "auto"): _LIBRARY,
    ("all_reduce", "ring"): "2(n-k) a1 + 2(k-1) a2, 2(n-1)/n S",
    ("all_reduce", "tree"): "2 log2(g) a1 + 2 log2(k) a2, 2S in two trees",
    ("all_reduce", "halving_doubling"): "2 log2(g) a1 + 2 log2(k) a2, 2(n-1)/n S",
    ("all_reduce", "in_switch"): "2 a1 + 2 log2(k) a2, S at the switch's rate",
    (
        "all_reduce",
        "hierarchical",
    ): "2(g-1) a1 + 2(k-1) a2, 2(g-1)/g S inside, then 2(k-1)/k S/g on each rail",
    ("all_reduce", "parameter_server"): "2 a1 + 2 a2, one server a domain: 2 g S",
    **{(op, name): words for op in ("reduce_scatter", "all_gather") for name, words in _HALF.items()},
    ("all_to_all", "auto"): "what libraries were measured to do: sends and receives, both tiers at once",
    ("all_to_all", "ring"): "(g-1) a1 + g(k-1) a2, (g-1)/g S inside and g(k-1)/k S of a domain outside",
    (
        "all_to_all",
        "halving_doubling",
    ): "log2(g) a1 + log2(k) a2, S/2 log2(g) inside, then g S/2 log2(k) outside",
    ("all_to_all", "hierarchical"): "(g-1) a1 + (k-1) a2, (g-1)/g S inside, then g(k-1)/k S outside",
}


def _compared(m: Measurement, op: str, numbers: Machine, c: Coefficients) -> dict[str, object]:
    """A measured call with what the model says of it; a forced ring is compared with the ring."""
    name = (
        "ring"
        if m.algorithm.casefold().startswith("ring") and "nvls >=" not in m.algorithm.casefold()
        else AUTO
    )
    n = np.asarray(float(m.ranks))
    group = layouts(n, global_batch=n, accelerators_per_node=numbers.node, per_node=n / m.nodes)
    found = Links(numbers, group, c).time(
        op, np.asarray(m.message_bytes), n, np.ones(()), np.asarray(CODES[name])
    )
    return {
        "bytes": m.message_bytes,
        "ranks": m.ranks,
        "nodes": m.nodes,
        "algorithm": m.algorithm or "not stated",
        "measured_s": m.time_s,
        "predicted_s": float(found),
        "predicted_over_measured": float(found) / m.time_s,
        "source": m.source,
    }


def _result(
    asked: Asked,
    rows: list[_Priced],
    inputs: Mapping[str, object],
    links: Mapping[str, object],
    nodes: Array,
    measured: Sequence[Mapping[str, object]],
    notes: Sequence[str],
    seed: int,
) -> Result:
    size, n = _grid(asked)
    shape = (size.shape[0], n.shape[1])
    table: list[Row] = [
        {
            "algorithm": row.name,
            "bytes": asked.sizes[i],
            "ranks": asked.ranks[j],
            "nodes": float(nodes[j]),
            "steps": float(np.broadcast_to(row.steps, shape)[i, j]),
            "alpha_s": float(np.broadcast_to(row.alpha_s, shape)[i, j]),
            "beta_s": float(np.broadcast_to(row.beta_s, shape)[i, j]),
            "gamma_s": float(np.broadcast_to(row.gamma_s, shape)[i, j]),
            "time_s": float(np.broadcast_to(row.time_s, shape)[i, j]),
            "formula": row.formula,
        }
        for j in range(shape[1])
        for i in range(shape[0])
        for row in rows
    ]
    crossings = [item for ranks in asked.ranks for item in crossovers({r.name: r.at for r in rows}, ranks)]
    result = {
        "op": asked.op,
        "bytes": list(asked.sizes),
        "ranks": list(asked.ranks),
        "links": links,
        "rows": table,
        "fastest": _fastest(table),
        "crossovers": crossings,
        "curves": _curves(asked, rows),
        "measured": list(measured),
        "answer": _sentence(asked, table, crossings),
        "notes": list(notes),
    }
    return Result(
        "collective", {**inputs, "bytes": list(asked.sizes), "ranks": list(asked.ranks)}, result, seed
    )


def _curves(asked: Asked, rows: list[_Priced]) -> dict[str, object]:
    """Times of the largest group over sizes, for a plot: a thousand times around what was asked."""
    low, high = asked.sizes[0], asked.sizes[-1]
    if high < 1e3 * low:
        low, high = max(1.0, low / 1e3), high * 1e3
    sizes, n = np.geomspace(low, high, 61), np.asarray(float(asked.ranks[-1]))
    times = {row.name: np.broadcast_to(row.at(sizes, n), sizes.shape) for row in rows}
    return {"ranks": asked.ranks[-1], "bytes": sizes, "time_s": times}


def _fastest(table: list[Row]) -> list[dict[str, object]]:
    """The least of each size and group; `auto` is not an algorithm of its own."""
    best: dict[tuple[float, int], Row] = {}
    for row in table:
        key = (row["bytes"], row["ranks"])
        if row["algorithm"] != AUTO and (key not in best or row["time_s"] < best[key]["time_s"]):
            best[key] = row
    return [
        {"bytes": key[0], "ranks": key[1], "algorithm": row["algorithm"], "time_s": row["time_s"]}
        for key, row in best.items()
    ]


def crossovers(costs: Mapping[str, Callable[[Array, Array], Array]], ranks: int) -> list[Crossover]:
    """Sizes at which the fastest algorithm changes, and at which ring and tree change places, in one group."""
    named = {name: cost for name, cost in costs.items() if name != AUTO}
    if len(named) < 2 or ranks < 2:
        return []
    n = np.asarray(float(ranks))
    times = {name: np.broadcast_to(cost(_SIZES, n), _SIZES.shape) for name, cost in named.items()}
    names = list(times)
    found = _changes(names, np.stack([times[name] for name in names]), ranks)
    if {"ring", "tree"} <= set(names) and len(names) > 2:
        pair = _changes(["ring", "tree"], np.stack([times["ring"], times["tree"]]), ranks)
        told = {(item["from"], item["to"]) for item in found}
        found += [item for item in pair if (item["from"], item["to"]) not in told]
    return found


def _changes(names: list[str], times: Array, ranks: int) -> list[Crossover]:
    """Where the leader changes; the size is read off the logarithms of both, straight between two points of the grid."""
    leader = times.argmin(axis=0)
    found: list[Crossover] = []
    for i in np.flatnonzero(np.diff(leader)):
        first, then = int(leader[i]), int(leader[i + 1])
        gap = np.log(times[then, i : i + 2]) - np.log(times[first, i : i + 2])
        share = float(gap[0] / (gap[0] - gap[1])) if gap[0] != gap[1] else 0.0
        size = float(_SIZES[i] * (_SIZES[i + 1] / _SIZES[i]) ** min(max(share, 0.0), 1.0))
        found.append({"ranks": ranks, "from": names[first], "to": names[then], "bytes": size})
    return found


def _sentence(asked: Asked, table: list[Row], crossings: list[Crossover]) -> str:
    """The fastest at the largest question, and where ring and tree change places."""
    size, ranks = asked.sizes[-1], asked.ranks[-1]
    here = {r["algorithm"]: r["time_s"] for r in table if r["bytes"] == size and r["ranks"] == ranks}
    what = f"{asked.op} of {format_quantity(size, 'B', 4)} among {ranks} ranks"
    named = {name: time for name, time in here.items() if name != AUTO} or here
    best = min(named, key=lambda name: named[name])
    text = f"{what}: {best} takes {format_quantity(named[best], 's', 4)}"
    others = [
        f"{name} {format_quantity(t, 's', 4)}"
        for name, t in named.items()
        if name in ("ring", "tree") and name != best
    ]
    text += f" ({', '.join(others)})." if others else "."
    pair = [c for c in crossings if {c["from"], c["to"]} == {"ring", "tree"} and c["ranks"] == ranks]
    for item in pair:
        text += f" From {format_quantity(item['bytes'], 'B', 3)} on the {item['to']} is ahead of the {item['from']}."
    return text
