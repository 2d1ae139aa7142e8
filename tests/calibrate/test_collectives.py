"""The form of a collective, its fit, and a sweep by itself, on shipped sweeps and on made-up ones."""

from __future__ import annotations

import csv
from collections import defaultdict
from functools import cache

import numpy as np
import pytest

from perfmodel.calibrate import collectives
from perfmodel.calibrate.collective_form import PEER_SWITCH_BYTES, QUANTITIES, points, seconds
from perfmodel.calibrate.collectives import SweepPrior, fit_sweep
from perfmodel.specs.catalog import Catalog
from perfmodel.validate.validation import shipped_corpus


@cache
def _catalog() -> Catalog:
    return Catalog.default()


@cache
def _rows() -> tuple[dict[str, str], ...]:
    with (shipped_corpus() / "collectives.csv").open(encoding="utf-8", newline="") as stream:
        return tuple(csv.DictReader(stream))


def _row(**changes: str) -> dict[str, str]:
    row = {
        "op": "all_reduce", "accelerator": "h100-sxm5-80gb", "accelerators_per_node": "8", "ranks": "8",
        "nodes": "1", "scale_up": "nvswitch-3", "scale_out": "", "bytes": "1048576", "algorithm": "",
    }  # fmt: skip
    return row | changes


def _predict(*rows: dict[str, str]) -> list[float]:
    return collectives.predict(points(rows, _catalog())).tolist()


def test_own_fit_of_every_shipped_sweep() -> None:
    sweeps = defaultdict(list)
    for row in _rows():
        sweeps[row["sweep"], row["ranks"], row["op"]].append((float(row["bytes"]), float(row["time_s"])))
    errors = []
    for (_, ranks, op), pairs in sweeps.items():
        size, time = np.array(sorted(pairs)).T
        if np.unique(size[size >= 8192]).size < 5:
            continue
        found = fit_sweep(op, size, time, int(ranks))
        errors += np.abs(np.expm1(-found.residuals[size >= 8192])).tolist()
    assert len(errors) > 1500
    assert np.median(errors) <= 0.08


def test_prior_carries_what_a_sweep_does_not_show() -> None:
    prior = SweepPrior(alpha_s=3e-5, alpha_spread=0.2, bandwidth_bytes_per_s=2e11, bandwidth_spread=0.2)
    alone = fit_sweep("all_reduce", [1e9, 2e9, 4e9], [0.01, 0.02, 0.04], 8, 1)
    helped = fit_sweep("all_reduce", [1e9, 2e9, 4e9], [0.01, 0.02, 0.04], 8, 1, prior)
    assert "latency" in alone.unidentified
    assert "latency" not in helped.unidentified
    assert helped.alpha_s == pytest.approx(3e-5, rel=0.5)


def test_report_says_where_latency_ends() -> None:
    size = np.logspace(3, 10, 15)
    found = fit_sweep("all_gather", size, 2e-5 + size / 1e11, 2)
    a, b = found.time_s([found.crossover_bytes / 1e4, found.crossover_bytes * 1e4])
    assert a == pytest.approx(found.alpha_s, rel=0.05)
    assert b == pytest.approx(found.crossover_bytes * 1e4 * 0.5 / found.bandwidth_bytes_per_s, rel=0.05)
    assert any("latency-bound below" in line for line in found.lines())


@pytest.mark.parametrize(("size", "time"), [([], []), ([1.0], [0.0]), ([1.0, 2.0], [1.0]), ([np.nan], [1.0])])
def test_broken_sweeps_are_refused(size: list[float], time: list[float]) -> None:
    with pytest.raises(ValueError, match="sweep"):
        fit_sweep("all_reduce", size, time, 8)


def test_shipped_coefficients_keep_the_order_of_machines() -> None:
    volta = _row(accelerator="v100-sxm2-16gb", scale_up="nvlink-2-cube-mesh", bytes="1073741824")
    hopper, blackwell = (
        _row(bytes="1073741824"),
        _row(accelerator="b200-sxm", scale_up="nvswitch-4", bytes="1073741824"),
    )
    old, new, newest = _predict(volta, hopper, blackwell)
    assert old > new > newest


def test_crossing_nodes_costs_and_a_faster_network_helps() -> None:
    inside = _row(bytes="1073741824")
    fast = inside | {"ranks": "16", "nodes": "2", "scale_out": "ib-ndr"}
    slow = fast | {"scale_out": "gcp-tcpx"}
    times = _predict(inside, fast, slow)
    assert times[0] < times[1] < times[2]


def test_reduction_in_the_switch_beats_the_ring() -> None:
    switch, ring = _predict(_row(bytes="8589934592"), _row(bytes="8589934592", algorithm="Ring (NVLS off)"))
    assert switch < ring


def test_unknown_hardware_is_still_predicted() -> None:
    found = _predict(
        _row(accelerator="", scale_up=""), _row(accelerator="never-heard-of", scale_up="own-link")
    )
    assert all(1e-6 < t < 1e-2 for t in found)


def test_the_form_without_coefficients_is_monotone_in_bytes() -> None:
    rows = [_row(bytes=str(2**i), ranks="16", nodes="2", scale_out="ib-ndr") for i in range(3, 35)]
    at = points(rows, _catalog())
    logs = {q: np.full(len(rows), np.log(median)) for q, (median, _) in QUANTITIES.items()}
    assert (np.diff(seconds(at, logs)) > 0).all()


def test_no_coefficient_is_keyed_by_a_source_or_a_sweep() -> None:
    allowed = {"op", "generation", "accelerator", "up_kind", "up", "out_kind", "out", "tier", "style"}
    levels = {part for _, level, _ in collectives.shipped().names if level for part in level.split("+")}
    assert levels <= allowed
    values = {value for _, _, value in collectives.shipped().names}
    assert not values & ({row["sweep"] for row in _rows()} | {row["source"] for row in _rows()})


def test_who_measured_does_not_matter_only_what_the_note_states() -> None:
    rows = [dict(row) for row in _rows()]
    anonymous = [row | {"source": "somebody", "sweep": "a"} for row in rows]
    ours, theirs = points(rows, _catalog()), points(anonymous, _catalog())
    assert all((ours.keys[key] == theirs.keys[key]).all() for key in ours.keys)
    warm, few = points([_row(note="40 warm-ups"), _row(note="5 warm-ups")], _catalog()).keys["style"]
    assert (warm, few) == ("warmed", "plain")


def test_a_network_named_in_words_is_read() -> None:
    across = _row(ranks="16", nodes="2", scale_out="", bytes="1073741824")
    rows = [across | {"note": note} for note in ("InfiniBand", "OCI RoCE", "TCP sockets (IB off)", "RDMA")]
    at = points(rows, _catalog())
    assert at.keys["out"].tolist() == ["ib-ndr", "roce-400", "ethernet-25", "unknown"]
    assert at.keys["out_kind"].tolist()[:3] == ["ib", "roce", "tcp"]
    assert at.out_bytes_per_s[2] < 0.02 * at.out_bytes_per_s[0]


def test_a_host_that_posts_to_every_peer_holds_an_exchange_up_or_hides_behind_it() -> None:
    rows = [
        _row(ranks="8", bytes=size, op=op)
        for op in ("all_to_all", "all_gather")
        for size in ("8192", "4294967296")
    ]
    at = points(rows, _catalog())
    logs = {q: np.full(4, np.log(median)) for q, (median, _) in QUANTITIES.items()}
    dear = {**logs, "peer_s": np.log(np.full(4, 20e-6))}
    free = {**logs, "peer_s": np.log(np.full(4, 1e-12))}
    assert seconds(at, dear)[0] == pytest.approx(7 * 20e-6, rel=0.05)
    assert seconds(at, dear)[1:] == pytest.approx(seconds(at, free)[1:], rel=1e-3)
    order = 2.0
    both = (7 * 20e-6) ** order + seconds(at, free)[0] ** order
    assert seconds(at, dear)[0] == pytest.approx(both ** (1 / order))


def test_an_exchange_changes_protocol_at_a_size_per_peer() -> None:
    sizes = {n: n * PEER_SWITCH_BYTES for n in (2, 8)}
    rows = [_row(op="all_to_all", ranks=str(n), bytes=str(size)) for n, size in sizes.items()]
    at = points(rows, _catalog())
    logs = {q: np.full(2, np.log(median)) for q, (median, _) in QUANTITIES.items()}
    logs["peer_s"] = np.full(2, np.log(1e-12))
    slower = {**logs, "extra_steps": logs["extra_steps"] + np.log(2)}
    base, step, factor = (QUANTITIES[name][0] for name in ("base_s", "up_step_s", "extra_steps"))
    half = [0.5 * factor * (base + np.log2(n) * step) for n in sizes]
    assert seconds(at, slower) - seconds(at, logs) == pytest.approx(half)


def test_small_and_large_messages_take_the_cheaper_protocol() -> None:
    at = points([_row(op="all_gather", bytes=size) for size in ("64", "17179869184")], _catalog())
    logs = {q: np.full(2, np.log(median)) for q, (median, _) in QUANTITIES.items()}
    handshakes = {**logs, "extra_steps": logs["extra_steps"] + np.log(2)}
    flags = {**logs, "extra_wire": logs["extra_wire"] + np.log(2)}
    base, step, factor = (QUANTITIES[name][0] for name in ("base_s", "up_step_s", "extra_steps"))
    more = seconds(at, handshakes) - seconds(at, logs)
    assert more[0] < 1e-3 * base
    assert more[1] == pytest.approx(factor * (base + 7 * step), rel=0.02)
    assert seconds(at, flags)[1] == pytest.approx(seconds(at, logs)[1], rel=1e-3)


def test_a_crowded_bus_keeps_the_low_latency_protocol_too_long() -> None:
    rows = [
        _row(op="all_gather", bytes=str(2**i), scale_up="pcie-4", accelerator="l40s") for i in range(10, 31)
    ]
    at = points(rows, _catalog())
    logs = {q: np.full(len(rows), np.log(median)) for q, (median, _) in QUANTITIES.items()}
    worst = []
    for crowding in (1e-9, 1.0):
        chosen = {**logs, "crowding": np.full(len(rows), np.log(crowding))}
        simple = {**chosen, "extra_wire": np.full(len(rows), np.log(1e9))}
        worst.append((seconds(at, chosen) / seconds(at, simple)).max())
    assert worst[0] < 1.1
    assert worst[1] > 1.3


def test_two_sweeps_that_disagree_are_met_half_way() -> None:
    rows = [_row(bytes=str(2**i), op="all_gather") for _ in range(2) for i in range(13, 33, 2)]
    at = points(rows, _catalog())
    how = collectives.design(at, collectives.coefficients_of(at))
    truth = collectives.log_time(at, how, np.zeros(len(how.names)))
    sweeps = np.repeat(np.array(["a", "b"]), 10)
    for sign in (1.0, -1.0):
        measured = truth + np.where(sweeps == "a", sign, -sign) * np.where(at.message_bytes < 1e6, 0.3, 0.0)
        found = collectives.fit(at, measured, how, np.ones(len(rows)), sweeps=sweeps)
        assert np.abs(collectives.log_time(at, how, found.values) - truth).max() < 0.1


def test_fit_finds_the_rate_that_made_the_data() -> None:
    rows = [_row(bytes=str(2**i), ranks=str(n), op=op) for i in range(13, 33, 2) for n in (2, 4)
            for op in ("all_gather", "reduce_scatter")]  # fmt: skip
    at = points(rows, _catalog())
    names = collectives.coefficients_of(at)
    how = collectives.design(at, names)
    truth = np.zeros(len(names))
    truth[names.index(("up_efficiency", "", ""))] = -0.3
    measured = collectives.log_time(at, how, truth)
    measured[3] += 2.0
    found = collectives.fit(at, measured, how, np.ones(len(rows)))
    left = np.abs(collectives.log_time(at, how, found.values) - collectives.log_time(at, how, truth))
    assert np.delete(left, 3).max() < 0.03
    again = collectives.unpack(collectives.pack(found))
    assert np.allclose(again.values, found.values, atol=1e-3)
    assert again.names == found.names


def test_an_odd_sweep_explains_itself() -> None:
    rows = [_row(bytes=str(2**i), op="all_gather") for _ in range(4) for i in range(13, 33, 2)]
    at = points(rows, _catalog())
    how = collectives.design(at, collectives.coefficients_of(at))
    truth = collectives.log_time(at, how, np.zeros(len(how.names)))
    sweeps = np.repeat(np.array(["a", "b", "c", "odd"]), 10)
    measured = truth + np.where(sweeps == "odd", 1.0, 0.0)

    found = collectives.fit(at, measured, how, np.ones(len(rows)), sweeps=sweeps)
    moved = np.abs(collectives.log_time(at, how, found.values) - truth).max()
    assert moved < 0.1  # a mean would move by 0.25
