"""Claims that compare two machines, that name no machine, and that count by the accelerator."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.decide.audit.verdict import audit
from perfmodel.errors import SpecError
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.claims import load_claim

CATALOG = Catalog.default()
SLIDE = {"workload": "llama3-8b", "cluster": "dgx-b200", "precision": "fp8"}


def audited(**keys: Any) -> dict[str, Any]:
    return dict(audit(load_claim(SLIDE | keys, catalog=CATALOG), catalog=CATALOG).result)


def codes(result: dict[str, Any]) -> set[str]:
    return {row["code"] for row in result["findings"]}


def versus(speedup: float, **keys: Any) -> dict[str, Any]:
    return audited(versus={"cluster": "dgx-h100", "speedup": speedup, **keys})


def test_twice_as_fast_is_what_the_hardware_gives():
    result = versus(2.0)
    found = result["versus"]
    assert found["low"] < found["predicted"] < found["high"]
    assert not {code for code in codes(result) if code.startswith("versus")}
    assert found["hardware"]["memory bandwidth"] == pytest.approx(2.39, abs=0.05)


def test_four_times_is_above_the_band_and_above_everything_that_differs():
    assert {"versus-above-band", "versus-above-hardware"} <= codes(versus(4.0))


def test_a_ratio_over_another_precision_says_what_of_it_is_the_precision():
    result = audited(precision="fp4", versus={"cluster": "dgx-h100", "speedup": 4.0, "precision": "fp8"})
    evidence = next(row["evidence"] for row in result["findings"] if row["code"] == "versus-precision")
    assert "4.55x as compared, and by 2.27x both at fp8" in evidence


def test_more_accelerators_of_the_other_machine_lower_what_may_be_claimed():
    more, same = versus(2.0, k=16)["versus"], versus(2.0)["versus"]
    assert more["predicted"] < same["predicted"]
    assert more["hardware"]["memory"] == pytest.approx(same["hardware"]["memory"] / 2)


def test_a_comparison_names_both_machines():
    with pytest.raises(SpecError, match="names both"):
        load_claim(
            {"workload": "llama3-8b", "cluster": "dgx-b200", "versus": {"speedup": 4}}, catalog=CATALOG
        )


def test_a_speedup_without_a_machine_is_read_all_the_same():
    claim = {"workload": "resnet50", "regime": "weak", "headline": {"k": 256, "speedup": 180}}
    result = audit(load_claim(claim, catalog=CATALOG), catalog=CATALOG).result
    assert "E = 0.70" in result["restated"]
    assert {"not-checked", "cluster-missing"} <= codes(result)


@pytest.mark.parametrize(
    ("each", "whole"),
    [("tokens_per_s_per_accelerator", "tokens_per_s"), ("throughput_per_accelerator", "throughput")],
)
def test_rates_of_an_accelerator_are_rates(each, whole):
    rows = [
        audited(seq_len=8192, global_batch=128, points=[{"k": 64, key: value}])["points"][0]
        for key, value in ((each, 1000.0), (whole, 64_000.0))
    ]
    assert rows[0] == rows[1]
    assert rows[0]["claimed_s"] > 0


def test_honest_runs_of_one_k_are_not_suspicious():
    """Llama 3 405B at 41 % MFU on 16,384 H100 (arXiv:2407.21783, table 4), without a word on the regime."""
    points = [{"k": 16384, "mfu": 0.41, "global_batch": 2048}]
    claim = {
        "workload": "llama3-405b",
        "cluster": "dgx-h100",
        "precision": "bf16",
        "seq_len": 8192,
        "points": points,
    }
    assert audit(load_claim(claim, catalog=CATALOG), catalog=CATALOG).result["verdict"] == "consistent"
