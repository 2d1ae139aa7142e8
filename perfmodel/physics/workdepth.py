"""Work and depth of a directed acyclic graph of operations (networkx).

A node is an operation; its cost in seconds is the node attribute `time_s` (another name may be given).
Brent 1974 (JACM 21:2) and Graham 1969 (SIAM J. Appl. Math. 17:2) bound the time on P workers.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, slots=True)
class WorkDepth:
    """Work and span in seconds, and a longest chain of operations that makes the span."""

    work_s: float
    span_s: float
    critical_path: tuple[Hashable, ...]

    @property
    def parallelism(self) -> float:
        """`work/span`: the speedup that no number of workers passes. One for a graph without time."""
        return self.work_s / self.span_s if self.span_s > 0 else 1.0


@dataclass(frozen=True, slots=True)
class BrentBounds:
    """`low_s <= T(P) <= high_s` for any schedule that never leaves a worker idle while a task is ready."""

    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True)
class Assignment:
    """One operation on one worker, from `start_s` to `finish_s`."""

    node: Hashable
    worker: int
    start_s: float
    finish_s: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """A greedy schedule in the order in which operations start."""

    assignments: tuple[Assignment, ...]
    makespan_s: float
    workers: int

    @property
    def busy_fraction(self) -> float:
        """Share of the workers' time spent on operations; zero for a graph without time."""
        busy = sum(item.finish_s - item.start_s for item in self.assignments)
        return busy / (self.workers * self.makespan_s) if self.makespan_s > 0 else 0.0


def _costs(graph: nx.DiGraph[object], weight: str) -> dict[Hashable, float]:
    costs: dict[Hashable, float] = {}
    for node, attributes in graph.nodes(data=True):
        if weight not in attributes:
            raise ValueError(f"node {node!r} has no {weight!r}")
        cost = float(attributes[weight])
        if not 0.0 <= cost < float("inf"):
            raise ValueError(f"node {node!r}: {weight} must be finite and not negative, got {cost!r}")
        costs[node] = cost
    return costs


def _ordered(graph: nx.DiGraph[object]) -> list[Hashable]:
    import networkx as nx

    try:
        return list(nx.topological_sort(graph))
    except nx.NetworkXUnfeasible:
        loop = " -> ".join(repr(edge[0]) for edge in nx.find_cycle(graph))
        raise ValueError(f"operations wait for each other in a loop: {loop}") from None


def _levels(graph: nx.DiGraph[object], costs: dict[Hashable, float]) -> dict[Hashable, float]:
    """Seconds from the start of an operation to the end of the graph along its longest chain."""
    levels: dict[Hashable, float] = {}
    for node in reversed(_ordered(graph)):
        after = max((levels[child] for child in graph.successors(node)), default=0.0)
        levels[node] = costs[node] + after
    return levels


def work_depth(graph: nx.DiGraph[object], *, weight: str = "time_s") -> WorkDepth:
    """Work `W = sum t(v)` and span `D = max over chains of sum t(v)`, with one longest chain.

    Parameters
    ----------
    graph : operations with their seconds on the nodes.
    weight : attribute of the nodes that holds them.

    Returns
    -------
    Work, span and one longest chain.

    >>> import networkx as nx
    >>> g = nx.DiGraph([("read", "left"), ("read", "right"), ("left", "merge"), ("right", "merge")])
    >>> nx.set_node_attributes(g, {"read": 1.0, "left": 4.0, "right": 2.0, "merge": 1.0}, "time_s")
    >>> found = work_depth(g)
    >>> found.work_s, found.span_s, found.critical_path
    (8.0, 6.0, ('read', 'left', 'merge'))
    """
    costs = _costs(graph, weight)
    levels = _levels(graph, costs)
    path: list[Hashable] = []
    candidates: list[Hashable] = [node for node in graph if graph.in_degree(node) == 0]
    while candidates:
        node = max(candidates, key=lambda candidate: levels[candidate])
        path.append(node)
        candidates = list(graph.successors(node))
    span = levels[path[0]] if path else 0.0
    return WorkDepth(sum(costs.values()), span, tuple(path))


def brent_bounds(work_s: float, span_s: float, workers: int) -> BrentBounds:
    """`max(W/P, D) <= T(P) <= (W - D)/P + D` (Brent's theorem with Graham's constant).

    Parameters
    ----------
    work_s : W [s].
    span_s : D [s].
    workers : P.

    Returns
    -------
    Least and largest time of a schedule that leaves no worker idle beside a ready operation [s].

    >>> brent_bounds(8.0, 6.0, 2)
    BrentBounds(low_s=6.0, high_s=7.0)
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    return BrentBounds(max(work_s / workers, span_s), (work_s - span_s) / workers + span_s)


def list_schedule(graph: nx.DiGraph[object], workers: int, *, weight: str = "time_s") -> Schedule:
    """Greedy list schedule: a free worker takes the ready operation with the longest chain behind it.

    Ties go to the operation that was added to the graph first, so the result is reproducible.

    Parameters
    ----------
    graph : operations with their seconds on the nodes.
    workers : P.
    weight : attribute of the nodes that holds them.

    Returns
    -------
    The schedule with its length [s].

    >>> import networkx as nx
    >>> g = nx.DiGraph()
    >>> g.add_nodes_from([("a", {"time_s": 3.0}), ("b", {"time_s": 2.0}), ("c", {"time_s": 2.0})])
    >>> list_schedule(g, 2).makespan_s
    4.0
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    costs = _costs(graph, weight)
    levels = _levels(graph, costs)
    rank = {node: position for position, node in enumerate(graph)}
    waiting_for = {node: graph.in_degree(node) for node in graph}
    ready = [(-levels[node], rank[node], node) for node in graph if waiting_for[node] == 0]
    heapq.heapify(ready)
    idle = list(range(workers))
    running: list[tuple[float, int, int, Hashable]] = []
    assignments: list[Assignment] = []
    now = 0.0
    while ready or running:
        while ready and idle:
            _, position, node = heapq.heappop(ready)
            worker = heapq.heappop(idle)
            assignments.append(Assignment(node, worker, now, now + costs[node]))
            heapq.heappush(running, (now + costs[node], position, worker, node))
        now = running[0][0]
        # Everything that ends now frees its worker before the next choice, or the choice is not greedy.
        while running and running[0][0] == now:
            _, _, worker, node = heapq.heappop(running)
            heapq.heappush(idle, worker)
            for child in graph.successors(node):
                waiting_for[child] -= 1
                if waiting_for[child] == 0:
                    heapq.heappush(ready, (-levels[child], rank[child], child))
    return Schedule(tuple(assignments), now, workers)
