"""Measured serving rows become models, machines and loads; what cannot be predicted or cannot be true is listed."""

import csv
from pathlib import Path

import numpy as np
import pytest

from perfmodel.physics.serving import CLOSED, OFFLINE, STATIC
from perfmodel.specs.catalog import Catalog
from perfmodel.validate.serving_rows import ServingRuns, reasons, resolve_runs
from perfmodel.validate.serving_table import read_runs
from perfmodel.validate.validation import shipped_corpus

GOOD = {
    "source": "lab", "model": "Llama-3-8B", "accelerator": "H100", "n_accel": "1", "tp": "1", "engine": "vllm",
    "date": "2026-01", "scenario": "closed-loop", "concurrency": "8", "isl": "1024", "osl": "256",
    "ttft_mean_s": "0.05", "tpot_mean_s": "0.009",
}  # fmt: skip
COLUMNS = (
    *GOOD, "precision", "pp", "ep", "dp", "batch", "request_rate", "throughput_out_tok_s", "throughput_total_tok_s",
    "n_requests", "disagg", "spec_decoding", "note",
)  # fmt: skip


def resolved(folder: Path, *changes: dict[str, str]) -> ServingRuns:
    path = folder / "runs.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows({**GOOD, **change} for change in changes)
    return resolve_runs(read_runs(path).rows, Catalog.default())


def test_a_closed_loop_has_its_throughput_by_little(tmp_path: Path) -> None:
    runs = resolved(tmp_path, {})
    assert runs.measured["throughput"][0] == pytest.approx(8 * 256 / (0.05 + 255 * 0.009))
    assert runs.features["engine"][0] == "vllm-v1"
    assert runs.load.kind[0] == CLOSED


def test_replicas_share_the_load(tmp_path: Path) -> None:
    runs = resolved(tmp_path, {"n_accel": "4", "throughput_out_tok_s": "4000"})
    assert runs.load.concurrency[0] == 2.0
    assert runs.measured["throughput"][0] == 1000.0


def test_total_tokens_count_the_input(tmp_path: Path) -> None:
    runs = resolved(
        tmp_path,
        {
            "scenario": "offline-static-batch",
            "batch": "4",
            "throughput_total_tok_s": "1000",
            "ttft_mean_s": "",
            "tpot_mean_s": "",
        },
    )
    assert runs.measured["throughput"][0] == pytest.approx(1000 * 256 / 1280)
    assert runs.load.kind[0] == STATIC


def test_an_endless_rate_is_a_burst(tmp_path: Path) -> None:
    runs = resolved(
        tmp_path,
        {
            "scenario": "server",
            "concurrency": "",
            "request_rate": "inf",
            "n_requests": "100",
            "throughput_out_tok_s": "900",
        },
    )
    assert runs.load.kind[0] == OFFLINE
    # Its first tokens are the queue that all requests make at once: no latency at a load.
    assert np.isnan(runs.measured["ttft"][0])
    assert np.isnan(runs.measured["tpot"][0])


def test_lengths_that_a_source_draws_are_taken_at_their_mean(tmp_path: Path) -> None:
    runs = resolved(tmp_path, {"source": "aic-silicon:inferencex"})
    assert runs.load.input_tokens[0] == pytest.approx(0.9 * 1024)


def test_four_bit_weights_count_in_16_bit(tmp_path: Path) -> None:
    runs = resolved(tmp_path, {"model": "Qwen/Qwen3-14B-AWQ"}, {"model": "Qwen/Qwen3-14B"})
    assert runs.machine.peak_flop_per_s[0] == runs.machine.peak_flop_per_s[1]
    assert runs.deployment.weight_bytes[0] < 0.3 * runs.deployment.weight_bytes[1]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": "Nobody-9B"}, "not in the zoo"),
        ({"accelerator": "Abacus"}, "not in the catalogue"),
        ({"scenario": "agents"}, "is not modelled"),
        ({"precision": "fp5"}, "is not known"),
        ({"spec_decoding": "yes"}, "without their acceptance"),
        ({"concurrency": ""}, "concurrency is not stated"),
        ({"isl": "", "model": "Llama-3-8B"}, "lengths of its requests"),
    ],
)
def test_what_cannot_be_predicted_is_listed(tmp_path: Path, change: dict[str, str], why: str) -> None:
    runs = resolved(tmp_path, {}, change, change)
    assert len(runs) == 1
    (found,) = reasons(runs.unresolved)
    assert why in found["reason"]
    assert (found["rows"], found["place"]) == (2, "runs.csv:3")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": "Llama-3.1-405B"}, "do not fit"),
        ({"tpot_mean_s": "0.0001", "concurrency": "1"}, "sooner than the weights"),
        ({"throughput_out_tok_s": "1e7"}, "FLOP/s"),
        ({"tp": "8", "n_accel": "4"}, "need 8 accelerators of 4"),
    ],
)
def test_what_cannot_be_true_is_listed(tmp_path: Path, change: dict[str, str], why: str) -> None:
    runs = resolved(tmp_path, {}, change)
    assert len(runs) == 1
    assert why in runs.contradicted[0][1]


def test_nothing_is_dropped_without_a_word() -> None:
    rows = read_runs(shipped_corpus() / "serving" / "runs.csv").rows[::40]
    runs = resolve_runs(rows, Catalog.default())
    assert len(runs) + len(runs.unresolved) + len(runs.contradicted) == len(rows)
    assert len(runs) > 0.8 * len(rows)
    taken = runs.take(np.arange(5))
    assert len(taken) == 5
    assert taken.shape.params.shape == (5,)


def test_fewer_requests_in_flight_than_stated_contradict(tmp_path: Path) -> None:
    """By Little's law 900 tokens a second of 2.345 s each are 8.2 requests in flight, not 64."""
    runs = resolved(
        tmp_path, {"throughput_out_tok_s": "900"}, {"throughput_out_tok_s": "900", "concurrency": "64"}
    )
    assert len(runs) == 1
    assert "in flight" in runs.contradicted[0][1]


def test_notes_tell_limits_variations_and_weights(tmp_path: Path) -> None:
    runs = resolved(
        tmp_path,
        {"note": "max_num_seqs 128 max_num_batched_tokens 2048; cv2 isl 0.25 osl 0.04"},
        {"precision": "fp16", "note": "weights int8; Batch"},
    )
    assert runs.deployment.max_sequences[0] == 128
    assert runs.deployment.chunk_tokens[0] == 2048
    assert (runs.load.input_cv[0], runs.load.output_cv[0]) == pytest.approx((0.5, 0.2))
    assert runs.deployment.weight_bytes[1] == 1.0


def test_conversations_have_lengths_that_vary(tmp_path: Path) -> None:
    runs = resolved(tmp_path, {"isl": "217.4", "osl": "201.6"}, {"isl": "218", "osl": "1000"})
    assert runs.load.output_cv[0] > 0.5
    assert runs.load.output_cv[1] == 0.0
