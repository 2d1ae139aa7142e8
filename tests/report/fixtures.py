"""Envelopes written by hand in the JSON of the contract, one for each kind, from small closed forms."""

from __future__ import annotations

import itertools
import math
from typing import Any

VERSION = "0.1.0"


def envelope(kind: str, inputs: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": f"perfmodel/{kind}/1",
        "version": VERSION,
        "seed": 0,
        "inputs": inputs,
        "result": result,
    }


def prediction(*, regime: str = "strong", name: str = "llama3-8b-on-h100") -> dict[str, Any]:
    k = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
    feasible = [False, False] + [True] * 9
    parts: dict[str, list[float | None]] = {
        p: []
        for p in ("compute", "dp all-reduce", "pipeline bubble", "straggler wait", "serial", "optimizer")
    }
    hidden: list[float | None] = []
    times: list[float | None] = []
    for n, ok in zip(k, feasible, strict=True):
        work = 1.0 if regime == "weak" else 1 / n
        values = (
            90.0 * work,
            0.012 * math.log2(n) + 0.0022 * n**0.8,
            0.0,
            0.01 * math.log2(max(n, 2)),
            0.02,
            0.01,
        )
        for p, value in zip(parts, values, strict=True):
            parts[p].append(value if ok else None)
        hidden.append(min(0.4 * values[1] + 0.01, 0.5 * values[0]) if ok else None)
        times.append(sum(values) if ok else None)
    first = next(i for i, ok in enumerate(feasible) if ok)
    k0, t0 = k[first], times[first]
    assert t0 is not None
    if regime == "strong":
        speedup = [None if t is None else k0 * t0 / t for t in times]
    else:
        speedup = [None if t is None else n * t0 / t for n, t in zip(k, times, strict=True)]
    efficiency = [None if s is None else s / n for s, n in zip(speedup, k, strict=True)]
    cost = [None if t is None else (2.5 * n + 40) * t / 3600 * 1e5 for n, t in zip(k, times, strict=True)]
    known = [i for i, t in enumerate(times) if t is not None]
    p_star = min(known, key=lambda i: cost[i] or 0)
    fastest = min(known, key=lambda i: times[i] or 0)
    threshold = [i for i in known if (efficiency[i] or 0) >= 0.7][-1]
    ledger = {
        p: [
            None if v is None or v0 is None else n * v - k0 * v0 if regime == "strong" else n * (v - v0)
            for n, v, v0 in zip(k, values_, [values_[first]] * len(k), strict=True)
        ]
        for p, values_ in parts.items()
    }
    cause = f"inter-node all-reduce exceeds the backward pass from K={k[min(threshold + 1, len(k) - 1)]}"
    knee = {
        "k": k[threshold],
        "k_low": k[threshold - 1],
        "k_high": k[min(threshold + 1, len(k) - 1)],
        "cause": cause,
    }
    knee |= {
        "remedy": "double the scale-out bandwidth",
        "k_after_remedy": k[min(threshold + 1, len(k) - 1)],
        "remedy_saves": 0.08,
        "at_risk_from_k": k[threshold],
    }
    return envelope(
        "prediction",
        {
            "job": {"name": name, "sha256": "ab" * 32},
            "workload": {"name": "llama3-8b", "sha256": "cd" * 32},
            "cluster": {"name": "dgx-h100", "sha256": "ef" * 32},
            "regime": regime,
            "global_batch": 512,
            "steps": 100000,
        },
        {
            "k": k,
            "regime": regime,
            "time_s": times,
            "time_s_low": [None if t is None else t * 0.9 for t in times],
            "time_s_high": [None if t is None else t * 1.12 for t in times],
            "speedup": speedup,
            "efficiency": efficiency,
            "throughput": [None if t is None else 512 / t for t in times],
            "parts_s": parts,
            "hidden_s": {"dp all-reduce": hidden},
            "ledger_accelerator_s": ledger,
            "memory_bytes": [141e9, 96e9, 72e9] + [60e9 - 2e9 * i for i in range(8)],
            "feasible": feasible,
            "reason": ["optimizer states need 112 GB of 80 GB", "activations need 96 GB of 80 GB"]
            + [None] * 9,
            "layout": [None, None] + [{"dp": n, "tp": 1, "pp": 1, "sharding": "fsdp"} for n in k[2:]],
            "cost_usd": cost,
            "cost_basis": "100000 steps",
            "energy_j": [None if t is None else 700.0 * n * t * 1e5 for n, t in zip(k, times, strict=True)],
            "carbon_g": [None if t is None else 0.04 * n * t * 1e5 for n, t in zip(k, times, strict=True)],
            "baseline_k": k0,
            "boundaries": [{"k": 8, "name": "node"}, {"k": 256, "name": "leaf"}],
            "measured": [
                {"k": 8, "time_s": (times[3] or 0) * 1.04},
                {"k": 64, "time_s": (times[6] or 0) * 0.97},
            ],
            "knee": {
                "threshold": {**knee, "rule": "largest K with E >= 0.70"},
                "curvature": {**knee, "k": k[threshold - 1]},
                "marginal": {"k": None, "k_low": None, "k_high": None, "cause": "not reached up to K=1024"},
            },
            "p_star": {"k": k[p_star], "cost_usd": cost[p_star], "time_s": times[p_star]},
            "fastest": {"k": k[fastest], "cost_usd": cost[fastest], "time_s": times[fastest]},
            "rests_on": {
                "matmul_fraction": {
                    "value": 0.62,
                    "source": "prior, fitted on 214 runs",
                    "confidence": "calibrated",
                },
                "scale_out bandwidth": {
                    "value": "50 GB/s",
                    "source": "vendor data sheet",
                    "confidence": "datasheet",
                },
                "jitter": {"value": 0.02, "source": "default", "confidence": "assumed"},
            },
            "sensitivity": [
                {"input": "matmul_fraction", "change": 0.1, "low": -0.081, "high": 0.099},
                {"input": "scale_out bandwidth", "change": 0.1, "low": -0.021, "high": 0.026},
                {"input": "jitter", "change": 0.1, "low": -0.004, "high": 0.004},
            ],
            "not_modelled": [
                {"effect": "network congestion from other jobs", "bias": "too fast"},
                {"effect": "thermal throttling", "bias": "too fast"},
            ],
        },
    )


def study() -> dict[str, Any]:
    k = [1, 2, 4, 8, 16, 32]
    time = [100.0, 51.0, 26.6, 14.5, 9.1, 7.2]
    speedup = [time[0] / t for t in time]
    cost = [3.2 * n * t / 3600 for n, t in zip(k, time, strict=True)]
    return envelope(
        "study",
        {"timings": {"name": "timings.csv", "sha256": "12" * 32}, "work": 1000.0, "threshold": 0.7},
        {
            "k": k,
            "mean_s": time,
            "std_s": [0.8, 0.5, 0.3, 0.4, 0.5, 0.7],
            "ci95_s": [1.0, 0.6, 0.4, 0.5, 0.6, 0.9],
            "speedup": speedup,
            "efficiency": [s / n for s, n in zip(speedup, k, strict=True)],
            "cost_usd": cost,
            "cost_per_work": [c / 1000 for c in cost],
            "work_per_usd": [1000 / c for c in cost],
            "marginal": [
                {"step": f"{a}->{b}", "speedup": 0.5, "cost_usd": 0.01, "speedup_per_usd": 50.0}
                for a, b in itertools.pairwise(k)
            ],
            "fits": {
                "amdahl": {"serial_fraction": 0.031, "ceiling": 32.3, "k_at_efficiency_050": 33},
                "usl": {"sigma": 0.028, "kappa": 0.0004, "k_peak": 49},
                "communication": {"linear_s": 0.1},
            },
            "quality": {"held": True, "max_drift": 0.002, "excluded_k": []},
            "threshold": {"value": 0.7, "first_below_k": 16, "last_at_or_above_k": 8},
            "regime": "strong",
            "parts_s": {
                "compute": [95, 47.5, 23.8, 11.9, 5.9, 3.0],
                "communication": [0, 1.5, 1.3, 1.4, 2.0, 3.0],
                "idle": [5, 2, 1.5, 1.2, 1.2, 1.2],
            },
            "energy_j": [3e4, 3.1e4, 3.2e4, 3.5e4, 4.4e4, 6.9e4],
            "latency_p99_s": None,
            "bend": {
                "k": 16,
                "cause": "communication",
                "evidence": "its share grows from 3 % to 42 %",
                "remedy": "faster network",
            },
            "recommended_k": 8,
            "cost_optimal_k": 1,
            "fastest_k": 32,
            "exchange": {"times_the_cost": 2.3, "times_faster": 13.9},
            "checklist": [
                {"item": "regime stated", "ok": True, "note": "strong"},
                {"item": "repeats and spread", "ok": True, "note": "5 repeats"},
                {"item": "price", "ok": False, "note": "none given"},
            ],
            "verdict": "On this workload the system scales to 8 workers at efficiency 0.86; beyond it communication makes further scaling uneconomic.",
        },
    )


def plan() -> dict[str, Any]:
    def candidate(rank: int, k: int, time: float, cost: float) -> dict[str, Any]:
        layout = {"dp": k // 8, "tp": 8, "pp": 1, "micro_batch": 1, "sharding": "zero1", "recompute": "none"}
        return {
            "rank": rank,
            "cluster": "dgx-h100" if rank % 2 else "p5.48xlarge",
            "k": k,
            "layout": layout,
            "time_s": time,
            "cost_usd": cost,
            "energy_j": 700.0 * k * time,
            "memory_bytes": 61e9,
            "time_s_low": time * 0.93,
            "time_s_high": time * 1.08,
        }

    rows = [
        candidate(i + 1, 64 * 2 ** (i % 5), 40.0 / (1 + i % 5), 900.0 + 170 * (i % 5) + 30 * i)
        for i in range(10)
    ]
    return envelope(
        "plan",
        {"job": {"name": "gpt3-175b"}, "objective": "cost", "deadline_s": 60.0, "budget_usd": 1500.0},
        {
            "evaluated": 1_234_567,
            "pruned": 345_678,
            "feasible": 45_678,
            "seconds": 2.31,
            "candidates": rows,
            "pareto": rows[:5],
            "refused": {"memory": 900_000, "heads not divisible": 210_000},
            "answer": "Rent 64 x dgx-h100 with dp=8 tp=8: 40 s a step for 900 USD.",
            "runner_up": "the next one costs 6 % more for the same time",
            "sweep": {
                "path": "cluster.scale_out.bandwidth",
                "unit": "Gbit/s",
                "threshold": 0.7,
                "value": [100.0, 200.0, 400.0, 800.0],
                "knee_k": [128, 256, None, None],
                "p_star_k": [64, 64, 128, 128],
                "p_star_usd": [900.0, 880.0, 860.0, 850.0],
                "fastest_k": [512, 1024, 1024, 1024],
                "fastest_s": [20.0, 15.0, 13.0, 12.0],
            },
        },
    )


def audit() -> dict[str, Any]:
    return envelope(
        "audit",
        {"claim": {"vendor": "Example Cloud", "sha256": "34" * 32}},
        {
            "verdict": "suspicious",
            "findings": [
                {
                    "code": "A104",
                    "severity": "suspicious",
                    "claim": "S = 180 at K = 256",
                    "bound": "S <= 141 (95 % band)",
                    "evidence": "the all-reduce of 51 MB cannot be hidden behind 4.1 ms of backward pass",
                    "question": "Which global batch was used at K = 256?",
                },
                {
                    "code": "A201",
                    "severity": "note",
                    "claim": "no price",
                    "bound": "",
                    "evidence": "cost per sample cannot be checked",
                    "question": "What does an accelerator-hour cost?",
                },
            ],
            "restated": "180x on 256 accelerators is E = 0.70; 64 accelerators keep 0.85.",
            "advice": "Buy 64 unless the deadline is below 2 h.",
        },
    )


def check() -> dict[str, Any]:
    policy = {
        "expression": "knee >= 64",
        "value": 64,
        "low": 32,
        "high": 128,
        "limit": 64,
        "verdict": "undecided",
    }
    return envelope(
        "check",
        {"policies": {"name": "perfmodel.yaml", "sha256": "56" * 32}},
        {
            "verdict": "fail",
            "policies": [
                policy,
                {
                    "expression": "time(k=128) <= 1.2 s",
                    "value": 1.31,
                    "low": 1.22,
                    "high": 1.44,
                    "limit": 1.2,
                    "verdict": "fail",
                },
                {
                    "expression": "efficiency(k=64) >= 0.7",
                    "value": 0.81,
                    "low": 0.76,
                    "high": 0.86,
                    "limit": 0.7,
                    "verdict": "pass",
                },
            ],
            "changes": [
                {
                    "metric": "time(k=128)",
                    "before": 1.1,
                    "after": 1.31,
                    "cause": "workload.hidden_size 4096 -> 5120",
                }
            ],
        },
    )


def validation() -> dict[str, Any]:
    def score(factor: float) -> dict[str, Any]:
        return {"median_ape": 0.03 * factor, "mean_ape": 0.05 * factor, "p90_ape": 0.12 * factor}

    modes = {}
    families = []
    for i, mode in enumerate(("datasheet", "one_node", "two_point")):
        modes[mode] = {
            "families": 120 - 10 * i,
            "points": 900 - 200 * i,
            **score(2 - 0.5 * i),
            "bias": 0.01,
            "coverage_90": 0.91,
            "band_width_median": 0.14,
            "knee_within_factor_2": 0.74,
            "by": {
                "kind": {"transformer": {"points": 400, **score(1)}, "convnet": {"points": 200, **score(2)}},
                "accelerator": {"a100": {"points": 300, **score(1)}},
                "source": {"mlperf": {"points": 300, **score(1)}},
            },
            "baselines": {name: score(3) for name in ("ideal", "amdahl", "usl", "ring_law")},
        }
        for f in range(6):
            families.append(
                {
                    "family": f"family-{f}",
                    "mode": mode,
                    "points": [
                        {
                            "k": 2**j,
                            "measured_s": (t := 2.0 ** (f - j)),
                            "predicted_s": t * (1 + 0.05 * ((f + j) % 3 - 1)),
                            "low_s": t * 0.85,
                            "high_s": t * 1.15,
                        }
                        for j in range(5)
                    ],
                }
            )
    return envelope(
        "validation",
        {"data": {"name": "shipped corpus", "sha256": "78" * 32}},
        {
            "modes": modes,
            "collectives": {"points": 2000, **score(2)},
            "families": families,
            "corrected": [{"family": f"family-{f}", "reason": "the script says so"} for f in range(2)],
            "unresolved": [{"family": "other", "reason": "no workload", "place": "families.csv:9"}],
        },
    )


def calibration() -> dict[str, Any]:
    return envelope(
        "calibration",
        {"timings": {"name": "one-node.csv"}},
        {
            "coefficients": [
                {
                    "name": "matmul_fraction",
                    "prior": 0.55,
                    "value": 0.62,
                    "low": 0.6,
                    "high": 0.64,
                    "status": "fitted",
                },
                {
                    "name": "jitter",
                    "prior": 0.02,
                    "value": 0.02,
                    "low": 0.01,
                    "high": 0.04,
                    "status": "at prior",
                },
            ],
            "points": [{"k": 8, "measured_s": 1.2, "fitted_s": 1.19, "residual": -0.008, "weight": 1.0}],
            "warnings": ["jitter could not be told from the prior"],
            "sweep_points": [
                {
                    "sweep": f"all_reduce {algorithm}, 8 ranks",
                    "bytes": float(2**power),
                    "bus_bandwidth_bytes_per_s": rate * 2**power / (2**power + knee),
                    "fitted_bus_bandwidth_bytes_per_s": 0.98 * rate * 2**power / (2**power + knee),
                }
                for algorithm, rate, knee in (("Tree", 1.5e11, 1e6), ("Ring", 2.3e11, 4e6))
                for power in range(13, 31, 2)
            ],
            "crossovers": [{"op": "all_reduce", "ranks": 8, "from": "Tree", "to": "Ring", "bytes": 8.0e6}],
        },
    )


def comparison() -> dict[str, Any]:
    a, b = prediction()["result"], prediction()["result"]
    b["time_s"] = [None if t is None else 0.9 * t for t in b["time_s"]]
    keys = ("time_s", "time_s_low", "time_s_high", "cost_usd")
    samples = {
        name: {key: [None if v is None else v / 512 for v in side[key]] for key in keys}
        for name, side in (("a", a), ("b", b))
    }
    return envelope(
        "comparison",
        {"a": {"name": "before"}, "b": {"name": "after"}},
        {
            "names": ["before", "after"],
            "a": a,
            "b": b,
            "k": a["k"],
            "per_sample": samples,
            "time_ratio": [None if t is None else 0.9 for t in a["time_s"]],
            "changes": [
                {
                    "input": "cluster.scale_out.bandwidth",
                    "before": "50 GB/s",
                    "after": "100 GB/s",
                    "effect": -0.1,
                }
            ],
            "answer": "After is 10 % faster at K = 1024; the scale-out bandwidth explains all of it.",
        },
    )


def explanation() -> dict[str, Any]:
    return envelope(
        "explanation",
        {"job": {"name": "llama3-8b-on-h100"}, "k": 64},
        {
            "k": 64,
            "time_s": 1.6,
            "terms": [
                {
                    "name": "compute",
                    "time_s": 1.4,
                    "share": 0.875,
                    "formula": "flop / (peak * fraction)",
                    "inputs": [
                        {
                            "name": "peak",
                            "value": "989 TFLOP/s",
                            "source": "data sheet",
                            "confidence": "datasheet",
                        }
                    ],
                    "sensitivity": 0.88,
                },
                {
                    "name": "dp all-reduce",
                    "time_s": 0.2,
                    "share": 0.125,
                    "formula": "alpha log2 K + bytes / bandwidth",
                    "inputs": [],
                    "sensitivity": 0.12,
                },
            ],
            "defaults": ["jitter"],
        },
    )


def roofline() -> dict[str, Any]:
    return envelope(
        "roofline",
        {"job": {"name": "llama3-8b-on-h100"}},
        {
            "peak_flop_per_s": 989e12,
            "memory_bandwidth_bytes_per_s": 3.35e12,
            "ridge_flop_per_byte": 295.2,
            "phases": [
                {
                    "name": name,
                    "k": [8, 64, 512],
                    "intensity_flop_per_byte": [i0, i0 / 3, i0 / 9],
                    "flop_per_s": [min(989e12, i0 / s * 3.35e12) * 0.7 for s in (1, 3, 9)],
                    "bound": ["compute", "memory", "memory"],
                }
                for name, i0 in (("attention", 420.0), ("mlp", 900.0), ("norm", 2.0))
            ],
        },
    )


def straggler() -> dict[str, Any]:
    k = [2**i for i in range(11)]
    return envelope(
        "straggler",
        {"spread": 0.02},
        {
            "k": k,
            "expected_max": {
                "normal": [1 + 0.02 * math.sqrt(2 * math.log(n)) for n in k],
                "pareto": [n**0.05 for n in k],
            },
        },
    )


def law() -> dict[str, Any]:
    k = [2**i for i in range(8)]
    curves = []
    for serial in (0.01, 0.05, 0.2):
        speedup = [1 / (serial + (1 - serial) / n) for n in k]
        curves.append(
            {
                "serial_fraction": serial,
                "time": [1 / s for s in speedup],
                "speedup": speedup,
                "efficiency": [s / n for s, n in zip(speedup, k, strict=True)],
                "ceiling": 1 / serial,
                "smallest_k_below": 1 / serial,
            }
        )
    first = {key: curves[0][key] for key in ("speedup", "efficiency")}
    keeps = {"efficiency": 0.8, "parameter": "serial fraction", "serial_fraction": [0.25 / n for n in k]}
    return envelope(
        "law",
        {"serial": [0.01, 0.05, 0.2]},
        {"law": "amdahl", "k": k, "efficiency_level": 0.5, "curves": curves, "keeps": keeps, **first},
    )


def injected() -> dict[str, Any]:
    """A study with a straggler put into every point."""
    found = study()
    result = found["result"]
    slower = [s if n == 1 else s / 1.25 for s, n in zip(result["speedup"], result["k"], strict=True)]
    result["straggler"] = {
        "factors": [1.0, 1.5],
        "applies_to": "compute",
        "mean_s": [result["mean_s"][0] / s for s in slower],
        "speedup": slower,
        "efficiency": [s / n for s, n in zip(slower, result["k"], strict=True)],
        "bend_k": 8,
        "bend_k_without": 16,
        "bend_k_at_worst": 4,
    }
    return found


def ranked() -> dict[str, Any]:
    """A study of a run whose ranks were timed."""
    made = study()
    busy = [[1.0, 1.1], [1.5, 1.4], [0.9, 1.0]]
    row = {
        "file": "ranks.csv", "k": 3, "step_s": 1.45, "idle_share": 0.2, "slowest_rank": 1, "slowest_over_mean": 1.26,
        "slowest_share": 1.0, "same_times": False, "steps": [4, 5], "ranks": [0, 1, 2], "busy_s": busy,
        "idle_s": [[1.5 - a, 1.4 - b] for a, b in busy],
    }  # fmt: skip
    made["result"]["workers"] = [row]
    return made


def collective() -> dict[str, Any]:
    """Ring and tree of one group, with one measured call."""
    sizes = [10.0**i for i in range(3, 10)]
    ring, tree = ([a + s * b for s in sizes] for a, b in ((126e-6, 2e-11), (12e-6, 4e-11)))
    rows = [
        {"algorithm": name, "bytes": 1e6, "ranks": 64, "nodes": 8.0, "steps": steps, "alpha_s": 1e-6 * steps,
         "beta_s": 1e-5, "gamma_s": 0.0, "time_s": 1e-6 * steps + 1e-5, "formula": "by hand"}
        for name, steps in (("ring", 126.0), ("tree", 12.0))
    ]  # fmt: skip
    result = {
        "op": "all_reduce",
        "bytes": [1e6],
        "ranks": [64],
        "links": {"link": {"alpha_s": 1e-6, "bytes_per_s": 1e11}},
        "rows": rows,
        "fastest": [{"bytes": 1e6, "ranks": 64, "algorithm": "tree", "time_s": 2.2e-5}],
        "crossovers": [{"ranks": 64, "from": "tree", "to": "ring", "bytes": 5.7e6}],
        "curves": {"ranks": 64, "bytes": sizes, "time_s": {"ring": ring, "tree": tree}},
        "measured": [{"bytes": 1e6, "ranks": 64, "nodes": 8, "algorithm": "auto", "measured_s": 4e-5,
                      "predicted_s": 3e-5, "predicted_over_measured": 0.75, "source": "by hand"}],
        "answer": "all_reduce of 1 MB among 64 ranks: tree takes 22 us.",
        "notes": [],
    }  # fmt: skip
    return envelope("collective", {"op": "all_reduce", "cluster": "dgx-h100"}, result)


def workdepth() -> dict[str, Any]:
    """A fork and a join, and a job's predicted speedup beside."""
    workers = [1, 2, 4]
    result = {
        "operations": 4, "edges": 4, "work_s": 8.0, "span_s": 6.0, "parallelism": 8 / 6,
        "critical_path": ["read", "left", "merge"], "critical_path_operations": 3, "workers": workers,
        "brent_low_s": [8.0, 6.0, 6.0], "brent_high_s": [8.0, 7.0, 6.5], "greedy_s": [8.0, 6.0, 6.0],
        "speedup": [1.0, 8 / 6, 8 / 6], "efficiency": [1.0, 2 / 3, 1 / 3], "busy": [1.0, 2 / 3, 1 / 3],
        "predicted": {"k": workers, "time_s": [8.0, 6.5, 6.4], "speedup": [1.0, 1.23, 1.25]},
        "answer": "Work 8 s over span 6 s.", "notes": [],
    }  # fmt: skip
    return envelope("workdepth", {"graph": "work.csv"}, result)


def timings() -> dict[str, Any]:
    """Three runs of one's own."""
    result = {
        "k": [8, 16, 32], "measured_s": [14.4, 7.1, 3.6], "predicted_s": [15.0, 7.6, 3.9], "low_s": [13.8, 6.9, 3.5],
        "high_s": [16.0, 8.2, 4.3], "error": [0.042, 0.070, 0.083], "in_band": [True, True, True],
        "reason": [None, None, None], "median_ape": 0.07,
        "beyond": {"k": [32], "fitted_to": [8, 16], "median_ape": 0.083},
        "laws": {"ideal": {"median_ape": 0.0}, "usl": {"median_ape": 0.01}},
        "advice": [{"about": "layout", "what": "declare layout", "explains": None}],
        "answer": "Median error 7.0% over 3 K.", "notes": [],
    }  # fmt: skip
    return envelope("timings", {"name": "bert-large on dgx-a100"}, result)


def serving() -> dict[str, Any]:
    def times(mean: float) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for at, name in enumerate(("mean", "p50", "p90", "p95", "p99")):
            values = [mean * (1 + at / 4), 2 * mean * (1 + at / 4), None]
            made[name] = values
            made[f"{name}_low"] = [None if v is None else 0.7 * v for v in values]
            made[f"{name}_high"] = [values[0] * 1.5, None, None]
        return made

    knee = {"load": 5.0, "low": 2.0, "high": None, "objective": "tpot_p99", "cause": "p99 TPOT: prompts lengthen the steps",
            "remedy": "half of the prefill work", "load_after_remedy": 7.5}  # fmt: skip
    result = {
        "load_kind": "rate", "load_unit": "rate_per_s", "load": [1.0, 4.0, 16.0], "stable": [True, True, False],
        "reason": [None, None, "more is asked than answered"], "throughput_out_tokens_per_s": [250.0, 1000.0, None],
        "per_accelerator": {"throughput_out_tokens_per_s": [125.0, 500.0, None]}, "tokens_per_s_per_user": [50.0, 25.0, None],
        "batch": [5.0, 40.0, None], "kv_share": [0.1, 0.6, None], "ttft_s": times(0.2), "tpot_s": times(0.02), "e2e_s": times(5.0),
        "step_s": [0.02, 0.04, None], "parts_s": {"weights": [0.015, 0.015, None], "prompts": [0.005, 0.025, None]},
        "usd_per_million_tokens": [5.6, 1.4, None], "j_per_million_tokens": [8e6, 2e6, None],
        "knee": {"slo": knee, "curvature": {**knee, "objective": None}}, "slo": [{"quantity": "tpot", "statistic": "p99", "limit_s": 0.09}],
        "within_slo": [True, True, False], "saturation": {"requests_per_s": 8.0, "low": 5.0, "high": 12.0},
        "replicas": 12, "replicas_low": 8, "replicas_high": None, "spare": 1, "accelerators": 26,
        "fleet": {"demand_per_s": 60.0, "rate_per_replica_per_s": 5.0, "headroom": 0.0, "with_spares_headroom": 0.08,
                  "load_of_saturation": 0.6, "usd_per_h": 65.0, "usd_per_million_tokens": 1.2, "ttft_s": {}, "tpot_s": {"p99": 0.088}, "e2e_s": {}},
        "layout": {"tp": 2, "pp": 1, "ep": 1, "dp": 1, "replicas": 1, "accelerators": 2, "how": "as the job says"},
        "precision": "fp8", "engine": "vllm-v1", "rests_on": {"accelerator": {"value": "h100", "confidence": "datasheet", "source": "x", "date": None}},
        "narrow": [{"fact": "pace", "coefficient": "pace", "of": "tpot", "half_width": 0.5, "half_width_after": 0.3, "how": "measure"}],
        "notes": ["a note"],
    }  # fmt: skip
    return envelope("serving", {"workload": "llama3-70b", "cluster": "dgx-h100"}, result)


def serving_plan() -> dict[str, Any]:
    layout = {"tp": 2, "pp": 1, "ep": 1, "dp": 1}
    one = {
        "cluster": "dgx-h100",
        "precision": "fp8",
        "kv_precision": "fp8",
        "layout": layout,
        "max_batch": 256,
        "max_batched_tokens": 8192,
    }
    candidate = {"rank": 1, **one, "knee_requests_per_s": 5.0, "ttft_p99_s": 0.5, "tpot_p99_s": 0.06, "replicas": 12, "spare": 1, "accelerators": 26,
                 "requests_per_s": 60.0, "usd_per_h": 65.0, "usd_per_million_tokens": 1.2}  # fmt: skip
    front = [
        {
            **one,
            "concurrency": c,
            "tokens_per_s_per_user": 100.0 / c,
            "tokens_per_s_per_accelerator": 90.0 * c,
        }
        for c in (1, 2, 4)
    ]
    result = {"evaluated": 1000, "feasible": 600, "refused": {}, "seconds": 0.5, "configurations_per_s": 4e5, "demand_per_s": 60.0,
              "candidates": [candidate], "pareto": front, "slo": [], "notes": []}  # fmt: skip
    return envelope("serving-plan", {"workload": "llama3-70b", "cluster": "dgx-h100"}, result)


ALL = {
    "serving": serving,
    "serving-plan": serving_plan,
    "collective": collective,
    "workdepth": workdepth,
    "timings": timings,
    "prediction": prediction,
    "study": study,
    "ranked": ranked,
    "plan": plan,
    "audit": audit,
    "check": check,
    "validation": validation,
    "calibration": calibration,
    "comparison": comparison,
    "explanation": explanation,
    "roofline": roofline,
    "straggler": straggler,
    "law": law,
    "injected": injected,
}
