"""Measured loads of a server narrow its beliefs: a made server is found again, and its bands hold."""

from __future__ import annotations

import json

import numpy as np
import pytest

from perfmodel.calibrate.service import calibrate_service
from perfmodel.decide.serving.curve import load_curve
from perfmodel.errors import SpecError, UsageError
from perfmodel.physics.serving_coefficients import from_logs
from perfmodel.physics.serving_tail import serving_latency
from perfmodel.serving.beliefs import textbook_beliefs
from perfmodel.serving.calibrated import from_mapping
from perfmodel.serving.setup import service_of
from perfmodel.serving.stored import read_serving_beliefs
from perfmodel.specs.jobs import load_any_job

LOADS = np.array([1.0, 8.0, 32.0, 128.0])


def job(**changed):
    block = {"engine": "vllm", "input_tokens": 900, "output_tokens": 200, "layout": {"tp": 2}} | changed
    return load_any_job({"workload": "llama3-8b", "cluster": "dgx-h100", "serving": block})


def truth(seed):
    """A server whose every coefficient is somewhere in its belief."""
    service = service_of(job(), textbook_beliefs())
    rng = np.random.default_rng(seed)
    logs = service.belief.median + 0.8 * service.belief.spread * rng.normal(size=service.belief.median.size)
    load = service.load(0.0, concurrency=LOADS)
    return serving_latency(
        service.shape, service.machine, service.deployment([job().serving.layout]), load, from_logs(logs)
    )


def measured(tmp_path, seed, at):
    found = truth(seed)
    lines = ["concurrency,throughput_out_tokens_per_s,ttft_mean_s,tpot_mean_s"]
    for i in at:
        lines.append(
            f"{LOADS[i]:g},{found.answer.throughput_out_tokens_per_s[i]},{found.ttft_s['mean'][i]},{found.tpot_s['mean'][i]}"
        )
    path = tmp_path / "curve.csv"
    path.write_text("\n".join(lines) + "\n")
    return path, found


def curve_of(beliefs, at=None):
    made = at or job()
    return load_curve(service_of(made, beliefs), made.serving.layout, "concurrency", LOADS)


@pytest.mark.parametrize("seed", range(4))
def test_two_loads_tell_the_others(tmp_path, seed):
    path, real = measured(tmp_path, seed, (0, 3))
    found = calibrate_service(job(), [path], textbook_beliefs()).result
    known = from_mapping(found["beliefs"], textbook_beliefs())
    before, after = curve_of(textbook_beliefs()), curve_of(known)
    for quantity, near in (("tpot", 0.08), ("ttft", 0.30)):
        real_s = (real.tpot_s if quantity == "tpot" else real.ttft_s)["mean"]
        early, late = (np.abs(np.log(one.times[quantity]["mean"] / real_s))[1:3] for one in (before, after))
        assert late.max() < near
        assert late.max() < max(early.max(), 0.05)
        low, high = after.bounded(quantity, "mean")
        assert ((low < real_s) & (real_s < high)).all()
        wide = before.bounded(quantity, "mean")
        assert (np.log(high / low) < 0.6 * np.log(wide[1] / wide[0])).all()


def test_one_load_narrows_less_than_two(tmp_path):
    widths = []
    for at in ((1,), (0, 3)):
        path, _ = measured(tmp_path, 1, at)
        known = from_mapping(
            calibrate_service(job(), [path], textbook_beliefs()).result["beliefs"], textbook_beliefs()
        )
        low, high = curve_of(known).bounded("tpot", "mean")
        widths.append(np.log(high / low).mean())
    low, high = curve_of(textbook_beliefs()).bounded("tpot", "mean")
    assert widths[1] <= widths[0] * 1.01 < np.log(high / low).mean()


def test_what_was_measured_on_one_stack_says_nothing_of_another(tmp_path):
    path, _ = measured(tmp_path, 2, (0, 3))
    known = from_mapping(
        calibrate_service(job(), [path], textbook_beliefs()).result["beliefs"], textbook_beliefs()
    )
    other = job(engine="sglang")
    np.testing.assert_allclose(
        curve_of(known, other).times["tpot"]["mean"],
        curve_of(textbook_beliefs(), other).times["tpot"]["mean"],
    )


def test_errors_shrink_and_are_told(tmp_path):
    path, _ = measured(tmp_path, 3, (0, 1, 2, 3))
    found = calibrate_service(job(), [path], textbook_beliefs()).result
    for name in ("throughput", "tpot", "ttft"):
        assert found["error_after"][name] <= found["error_before"][name]
    assert "4 measured loads" in found["answer"]
    assert all(row["log_spread"] > 0.0 for row in found["coefficients"])


def test_the_layout_of_the_server_is_needed(tmp_path):
    path, _ = measured(tmp_path, 0, (0,))
    open_layout = load_any_job(
        {"workload": "llama3-8b", "cluster": "dgx-h100", "serving": {"input_tokens": 9, "output_tokens": 9}}
    )
    with pytest.raises(SpecError, match="which layout was measured"):
        calibrate_service(open_layout, [path], textbook_beliefs())


def test_a_file_of_beliefs_is_read_back_and_a_broken_one_refused(tmp_path):
    path, _ = measured(tmp_path, 0, (0, 3))
    result = calibrate_service(job(), [path])
    saved = tmp_path / "beliefs.json"
    saved.write_text(result.to_json())
    again = read_serving_beliefs(saved)
    np.testing.assert_allclose(again.root, from_mapping(result.result["beliefs"], textbook_beliefs()).root)
    broken = json.loads(result.to_json())
    broken["result"]["beliefs"]["median"].pop()
    saved.write_text(json.dumps(broken))
    with pytest.raises(UsageError, match="a coefficient is missing"):
        read_serving_beliefs(saved)
