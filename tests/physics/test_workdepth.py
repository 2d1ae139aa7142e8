"""Work, span, Brent's bounds and the greedy schedule."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.physics.workdepth import brent_bounds, list_schedule, work_depth


def graph(costs, edges=()):
    g = nx.DiGraph()
    for node, cost in costs.items():
        g.add_node(node, time_s=cost)
    g.add_edges_from(edges)
    return g


def test_chain_has_no_parallelism():
    g = graph(dict.fromkeys(range(5), 1.0), [(i, i + 1) for i in range(4)])
    found = work_depth(g)
    assert (found.work_s, found.span_s, found.parallelism) == (5.0, 5.0, 1.0)
    assert found.critical_path == (0, 1, 2, 3, 4)
    assert list_schedule(g, 8).makespan_s == 5.0


def test_independent_tasks_have_all_of_it():
    g = graph(dict.fromkeys(range(6), 2.0))
    assert work_depth(g).parallelism == 6.0
    assert [list_schedule(g, p).makespan_s for p in (1, 2, 3, 6)] == [12.0, 6.0, 4.0, 2.0]
    assert list_schedule(g, 4).busy_fraction == pytest.approx(12 / 16)


def test_critical_path_first_beats_the_order_of_entry():
    """A long chain entered last must still start first."""
    g = graph({"a": 1, "b": 1, "c": 3, "d": 3}, [("c", "d")])
    schedule = list_schedule(g, 2)
    assert schedule.assignments[0].node == "c"
    assert schedule.makespan_s == 6.0


def test_reduction_tree():
    leaves = {f"l{i}": 1.0 for i in range(8)}
    inner = {f"n{i}": 1.0 for i in range(1, 8)}
    edges = [(f"n{2 * i}", f"n{i}") for i in (1, 2, 3)] + [(f"n{2 * i + 1}", f"n{i}") for i in (1, 2, 3)]
    edges += [(f"l{i}", f"n{4 + i // 2}") for i in range(8)]
    found = work_depth(graph(leaves | inner, edges))
    assert (found.work_s, found.span_s) == (15.0, 4.0)


def test_empty_graph_takes_no_time():
    g = graph({})
    assert work_depth(g).critical_path == ()
    assert work_depth(g).parallelism == 1.0
    assert list_schedule(g, 3).makespan_s == 0.0
    assert list_schedule(g, 3).busy_fraction == 0.0


def test_bad_graphs_are_refused_by_name():
    with pytest.raises(ValueError, match="loop"):
        work_depth(graph({"a": 1, "b": 1}, [("a", "b"), ("b", "a")]))
    with pytest.raises(ValueError, match="negative"):
        work_depth(graph({"a": -1}))
    with pytest.raises(ValueError, match="has no 'time_s'"):
        work_depth(nx.DiGraph([("a", "b")]))
    with pytest.raises(ValueError, match="workers"):
        list_schedule(graph({"a": 1}), 0)
    with pytest.raises(ValueError, match="workers"):
        brent_bounds(1.0, 1.0, 0)


@st.composite
def dags(draw):
    n = draw(st.integers(1, 12))
    costs = {i: draw(st.integers(0, 20)) / 4 for i in range(n)}
    pairs = [(i, j) for j in range(n) for i in range(j)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []
    return graph(costs, edges)


@given(dags(), st.integers(1, 6))
def test_greedy_schedule_keeps_brent_s_bounds_and_order(g, workers):
    found = work_depth(g)
    schedule = list_schedule(g, workers)
    bounds = brent_bounds(found.work_s, found.span_s, workers)
    assert bounds.low_s - 1e-9 <= schedule.makespan_s <= bounds.high_s + 1e-9
    when = {item.node: item for item in schedule.assignments}
    assert set(when) == set(g)
    for before, after in g.edges:
        assert when[before].finish_s <= when[after].start_s
    for one in schedule.assignments:
        for other in schedule.assignments:
            if one is not other and one.worker == other.worker:
                assert one.finish_s <= other.start_s or other.finish_s <= one.start_s
    assert sum(g.nodes[node]["time_s"] for node in found.critical_path) == pytest.approx(found.span_s)
