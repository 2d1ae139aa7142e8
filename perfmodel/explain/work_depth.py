"""Work and span of a computation, and the speedup that they admit; for a job, of its own step beside T(K).

The graph of a job's step: a forward pass of each group of samples through each block of layers, the logits, the
backward pass in reverse, and for each block the optimizer, which waits for the gradients of all groups. Times are those
of the step model at the job's smallest feasible K, as accelerator-seconds; links, hosts and waiting are left out.
What no number of workers passes is then a property of the computation: the batch that it has, and the chain of layers
that every sample goes through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypedDict

import numpy as np

from perfmodel.beliefs.population import Beliefs, shipped_beliefs
from perfmodel.decide.prediction import curve_of, inputs_of
from perfmodel.errors import Problem, SpecError
from perfmodel.physics.compute import micro_batch
from perfmodel.physics.layouts import Sharding
from perfmodel.physics.pipeline import bubble_fraction, idle_s, peak_in_flight, schedule_s
from perfmodel.physics.workdepth import brent_bounds, list_schedule, work_depth
from perfmodel.readings.operations_graph import OperationsGraph
from perfmodel.results.envelope import Result
from perfmodel.specs.jobs import Job
from perfmodel.training.curve import Curve, coefficients
from perfmodel.units import format_quantity

if TYPE_CHECKING:
    import networkx as nx

MOST_OPERATIONS: Final = (
    12_000  # of a job's graph: more samples are then one operation, more layers one block
)
MOST_PATH: Final = 40  # operations of a critical path that are listed
MOST_PIPELINE: Final = 20_000  # passes of a pipeline that are followed one by one


class Bounds(TypedDict):
    """What `result` has of any graph."""

    operations: int
    edges: int
    work_s: float
    span_s: float
    parallelism: float
    critical_path: list[str]
    critical_path_operations: int
    workers: list[int]
    brent_low_s: list[float]
    brent_high_s: list[float]
    greedy_s: list[float]
    speedup: list[float]
    efficiency: list[float]
    busy: list[float]


class Predicted(TypedDict):
    """T(K) and S(K) of the step model; NaN where nothing fits."""

    k: list[int]
    time_s: list[float]
    speedup: list[float]


def of_graph(found: OperationsGraph, workers: tuple[int, ...] | None, name: str, *, seed: int = 0) -> Result:
    """Work, span, Brent's bounds and a greedy schedule of a graph that somebody wrote down."""
    import networkx as nx

    graph: nx.DiGraph[object] = nx.DiGraph()
    graph.add_nodes_from((node, {"time_s": time}) for node, time in found.time_s.items())
    graph.add_edges_from(found.edges)
    try:
        measured = work_depth(graph)
    except ValueError as error:
        raise SpecError(
            Problem(name, code="T005", message=str(error), help="work has to begin somewhere")
        ) from None
    chosen = workers or _doubling(measured.parallelism)
    bounds = _bounds(graph, chosen)
    answer = {**bounds, "answer": _sentence(bounds, "this graph"), "notes": []}
    return Result("workdepth", {"graph": name, "workers": list(chosen)}, answer, seed)


def _doubling(parallelism: float) -> tuple[int, ...]:
    """1, 2, 4 ... to twice what can be at work at once."""
    last = int(np.ceil(np.log2(max(parallelism, 1.0)))) + 1
    return tuple(2**i for i in range(min(last, 12) + 1))


def _bounds(graph: nx.DiGraph[object], workers: tuple[int, ...]) -> Bounds:
    """Everything about a graph that numbers of workers are asked of."""
    found = work_depth(graph)
    limits = [brent_bounds(found.work_s, found.span_s, p) for p in workers]
    schedules = [list_schedule(graph, p) for p in workers]
    made = np.array([s.makespan_s for s in schedules])
    speedup = np.divide(found.work_s, made, out=np.ones_like(made), where=made > 0)
    path = [str(node) for node in found.critical_path]
    return {
        "operations": graph.number_of_nodes(),
        "edges": graph.number_of_edges(),
        "work_s": found.work_s,
        "span_s": found.span_s,
        "parallelism": found.parallelism,
        "critical_path": path[:MOST_PATH],
        "critical_path_operations": len(path),
        "workers": list(workers),
        "brent_low_s": [b.low_s for b in limits],
        "brent_high_s": [b.high_s for b in limits],
        "greedy_s": made.tolist(),
        "speedup": speedup.tolist(),
        "efficiency": (speedup / np.array(workers, float)).tolist(),
        "busy": [s.busy_fraction for s in schedules],
    }


def _sentence(answer: Bounds, what: str) -> str:
    """Work over span, and where the greedy schedule stops gaining."""
    work, span = (format_quantity(answer[key], "s", 4) for key in ("work_s", "span_s"))
    text = f"Work {work} over span {span}: no number of workers makes {what} more than {answer['parallelism']:.4g} times faster."
    workers, speedup = answer["workers"], answer["speedup"]
    enough = next((i for i, s in enumerate(speedup) if s >= 0.95 * answer["parallelism"]), None)
    if enough is not None and enough:
        text += f" {workers[enough]} workers reach {speedup[enough]:.4g}."
    else:
        text += f" A greedy schedule on {workers[-1]} reaches {speedup[-1]:.4g}."
    return text


@dataclass(frozen=True)
class _Grain:
    """How finely a step is cut: operations of so many samples and layers."""

    groups: int
    blocks: int
    pieces: int  # into which tensor and context parallelism cut each operation
    samples: float
    layers: float


def of_job(
    job: Job,
    beliefs: Beliefs | None = None,
    *,
    samples: int = 1,
    pieces: int | None = None,
    workers: tuple[int, ...] | None = None,
    seed: int = 0,
) -> Result:
    """The graph of a job's own step, with the speedup that it admits beside the predicted one."""
    known = beliefs or shipped_beliefs()
    found = curve_of(job, known, draws=0, seed=seed)
    good = np.flatnonzero(found.feasible)
    if not good.size:
        reason = next(reason for reason in found.reasons if reason)
        raise SpecError(Problem(code="S010", message=f"no step to look at: {reason}"))
    first = int(good[0])
    ks = workers or tuple(int(k) for k in found.k)
    grain = _grain(found, first, samples, pieces)
    graph = step_graph(found, first, grain)
    bounds, predicted = _bounds(graph, ks), _predicted(found, first)
    answer: dict[str, object] = {
        **bounds,
        "samples_per_operation": grain.samples,
        "layers_per_operation": grain.layers,
        "pieces": grain.pieces,
        "baseline_k": int(found.k[first]),
        "predicted": predicted,
        "pipeline": _pipeline(found, first),
    }
    answer["answer"] = _sentence(bounds, "this step") + _beside(bounds, predicted)
    each = f"{grain.samples:g} sample{'s' if grain.samples != 1 else ''} in {grain.layers:g} layer{'s' if grain.layers != 1 else ''}"
    answer["notes"] = [
        f"An operation is {each}, {_cut(grain.pieces)}.",
        f"Times are those of the step model at K = {int(found.k[first])}, in accelerator-seconds; links, hosts and waiting are "
        "left out: what they cost is the gap between the two speedups.",
        *_ahead(bounds, predicted, int(found.k[first])),
    ]
    return Result("workdepth", inputs_of(job, known), answer, seed)


def _cut(pieces: int) -> str:
    if pieces == 1:
        return "on one accelerator: cutting operations themselves, as tensor parallelism does, would pass this bound"
    return f"cut into {pieces} pieces, as the layouts of this job cut it at most (--pieces)"


def _grain(found: Curve, index: int, samples: int, pieces: int | None) -> _Grain:
    """One sample and one layer where that stays small; then more layers, then more samples together."""
    layers = max(int(float(np.ravel(found.setup.operations.layers)[0])), 1)
    batch = float(np.ravel(found.setup.global_batch)[index])
    if pieces is None:
        cut = np.broadcast_to(found.at.tp * found.at.cp, found.k.shape)[found.feasible]
        pieces = int(cut.max())
    width = pieces + 1 if pieces > 1 else 1
    groups = min(max(int(np.ceil(batch / samples)), 1), max(MOST_OPERATIONS // (3 * width), 1))
    blocks = min(layers, max(1, (MOST_OPERATIONS // (groups * width) - 1) // 2))
    return _Grain(groups, blocks, pieces, batch / groups, layers / blocks)


def step_graph(found: Curve, index: int, grain: _Grain) -> nx.DiGraph[object]:
    """The operations of one step at the curve's `index`-th K, as a graph of networkx."""
    import networkx as nx

    forward, backward, logits, optimizer = _seconds(found, index)
    groups, blocks = grain.groups, grain.blocks
    graph: nx.DiGraph[object] = nx.DiGraph()
    f, b = forward / (groups * blocks), backward / (groups * blocks)
    for i in range(groups):
        chain = [(f"forward {j} of {i}", f) for j in range(blocks)] + [(f"logits of {i}", logits / groups)]
        chain += [(f"backward {j} of {i}", b) for j in reversed(range(blocks))]
        before: str | None = None
        for name, time in chain:
            before = _add(graph, name, time, grain.pieces, before)
    for j in range(blocks):
        graph.add_node(f"optimizer {j}", time_s=optimizer / (blocks * grain.pieces))
        graph.add_edges_from(
            (_end(f"backward {j} of {i}", grain.pieces), f"optimizer {j}") for i in range(groups)
        )
        graph.add_nodes_from(
            (f"optimizer {j}, piece {x}", {"time_s": optimizer / (blocks * grain.pieces)})
            for x in range(1, grain.pieces)
        )
        graph.add_edges_from(
            (_end(f"backward {j} of {i}", grain.pieces), f"optimizer {j}, piece {x}")
            for i in range(groups)
            for x in range(1, grain.pieces)
        )
    return graph


def _add(graph: nx.DiGraph[object], name: str, time_s: float, pieces: int, before: str | None) -> str:
    """One operation after another, whole or as pieces that join before the next begins; what the next waits for."""
    if pieces == 1:
        graph.add_node(name, time_s=time_s)
        if before is not None:
            graph.add_edge(before, name)
        return name
    end = _end(name, pieces)
    for x in range(pieces):
        piece = f"{name}, piece {x}"
        graph.add_node(piece, time_s=time_s / pieces)
        if before is not None:
            graph.add_edge(before, piece)
        graph.add_edge(piece, end)
    graph.nodes[end]["time_s"] = 0.0
    return end


def _end(name: str, pieces: int) -> str:
    return name if pieces == 1 else f"{name}, joined"


def _seconds(found: Curve, index: int) -> tuple[float, float, float, float]:
    """Accelerator-seconds of a step: forward and backward without logits, logits with loss, optimizer."""
    at, setup = found.at, found.setup
    k = float(found.k[index])

    def one(value: object) -> float:
        return float(np.broadcast_to(np.asarray(value, float), found.k.shape)[index])

    c = coefficients(setup, found.logs[:, None], found.k)
    mb = micro_batch(setup.operations, setup.machine, at, c)
    scale = one(found.time_s) / one(found.step.time_s)
    passes = one(at.accumulation) * k * scale
    device, repeated = one(mb.device) * passes, one(mb.repeated)
    logits = one(mb.last) * passes / one(at.pp)
    forward = device / (3.0 + repeated)
    sharding = one(at.sharding)
    replicated = sharding in (Sharding.DDP, Sharding.PARAMETER_SERVER)
    optimizer = one(found.parts["optimizer"]) * k / (one(at.dp) if replicated else 1.0)
    return forward, device - forward, logits, optimizer


def _predicted(found: Curve, first: int) -> Predicted:
    """T(K) and S(K) of the step model."""
    time = np.where(found.feasible, found.time_s, np.nan)
    return {
        "k": found.k.astype(int).tolist(),
        "time_s": time.tolist(),
        "speedup": (found.k[first] * time[first] / time).tolist(),
    }


def _pipeline(found: Curve, first: int) -> dict[str, object] | None:
    """The schedule of the layout's pipeline, followed pass by pass: its bubble, and what the first stage holds."""
    at, setup = found.at, found.setup
    pp, m = (int(np.broadcast_to(x, found.k.shape)[first]) for x in (at.pp, at.accumulation))
    if pp < 2 or pp * m > MOST_PIPELINE:
        return None
    c = coefficients(setup, found.logs[:, None], found.k)
    mb = micro_batch(setup.operations, setup.machine, at, c)
    device, last = (float(np.broadcast_to(x, found.k.shape)[first]) for x in (mb.device, mb.last))
    share = 1.0 / (3.0 + float(np.broadcast_to(mb.repeated, found.k.shape)[first]))
    both = np.full(pp, device)
    both[-1] += last
    name = "gpipe" if setup.schedule == "gpipe" else "1f1b"
    forward, backward = both * share, both * (1.0 - share)
    time = float(schedule_s(name, forward, backward, m))
    imbalance, idle = idle_s(time, forward, backward, m)
    return {
        "schedule": name,
        "stages": pp,
        "micro_batches": m,
        "time_s": time,
        "idle_share": float((imbalance + idle) / time),
        "bubble_of_equal_stages": float(bubble_fraction(pp, m)),
        "micro_batches_in_flight": float(peak_in_flight(name, pp, m)),
    }


def _both(bounds: Bounds, predicted: Predicted) -> list[tuple[int, float, float]]:
    """K, admitted and predicted speedup wherever both are known."""
    known = {k: s for k, s in zip(predicted["k"], predicted["speedup"], strict=True) if np.isfinite(s)}
    return [(p, s, known[p]) for p, s in zip(bounds["workers"], bounds["speedup"], strict=True) if p in known]


def _beside(bounds: Bounds, predicted: Predicted) -> str:
    """The last K at which both speedups are known, in a sentence."""
    both = _both(bounds, predicted)
    if not both:
        return ""
    k, admitted, reached = both[-1]
    return f" At K = {k} the computation admits {admitted:.4g}; predicted are {reached:.4g}."


def _ahead(bounds: Bounds, predicted: Predicted, baseline_k: int) -> list[str]:
    """A note where the prediction is ahead of what the same work admits."""
    ahead = [str(k) for k, admitted, reached in _both(bounds, predicted) if reached > admitted * 1.005]
    if not ahead:
        return []
    return [
        f"At K = {', '.join(ahead)} the prediction is ahead of this bound: the step there does less work than at "
        f"K = {baseline_k} (it recomputes less, or its layout has fewer overheads)."
    ]
