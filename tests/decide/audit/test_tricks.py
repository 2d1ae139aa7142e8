"""Normalisation of what slides say, and the rules of an honest chart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.decide.audit import absent, tricks
from perfmodel.decide.audit.findings import QUESTIONS, Finding, one_of_each, ordered, verdict
from perfmodel.decide.audit.normalise import Series, series
from perfmodel.decide.audit.subject import Load, Machine, Subject

SUBJECT = Subject(
    Machine("A100", {"fp16": 312e12, "tf32": 156e12}, 80e9),
    Load("ResNet-50", "image", 24.6e9, 10.9e9, "", 25.6e6, 25.6e6, 1.0, False),
)
HONEST = [
    {"k": 1, "throughput": 2470.0, "global_batch": 256},
    {"k": 8, "throughput": 18900.0, "global_batch": 2048},
    {"k": 64, "throughput": 141000.0, "global_batch": 16384},
]


def space(value: dict[str, Any] | None) -> SimpleNamespace | None:
    return None if value is None else SimpleNamespace(**value)


def claim(points: list[dict[str, Any]], **more: Any) -> SimpleNamespace:
    values = {"precision": "fp16", "regime": "weak", "baseline": None, "headline": None, **more}
    values["baseline"], values["headline"] = space(values["baseline"]), space(values["headline"])
    return SimpleNamespace(points=[SimpleNamespace(**point) for point in points], **values)


def read(points: list[dict[str, Any]], **more: Any) -> Series:
    return series(claim(points, **more), flop_per_sample=lambda _: 24.6e9, peak_flop_per_s=312e12)


def codes(points: list[dict[str, Any]], **more: Any) -> set[str]:
    return {
        finding.code for finding in tricks.findings(read(points, **more), SUBJECT, more.get("regime", "weak"))
    }


def test_an_honest_series_is_clean() -> None:
    assert codes(HONEST) == set()


@pytest.mark.parametrize(
    "point",
    [
        {"throughput": 18900.0},
        {"time_s": 2048 / 18900.0, "global_batch": 2048},
        {"mfu": 18900.0 / 8 * 24.6e9 / 312e12},
        {"tflop_per_s_per_accelerator": 18900.0 / 8 * 24.6e9 / 1e12},
        {"speedup": 18900.0 / 2470.0},
        {"efficiency": 18900.0 / 2470.0 / 8},
    ],
)
def test_every_measure_gives_the_same_rate(point: dict[str, float]) -> None:
    found = read([{"k": 8, **point}], baseline={"k": 1, "throughput": 2470.0})
    at = found.points[-1]
    assert at.rate == pytest.approx(18900.0)
    assert found.efficiency(at) == pytest.approx(18900.0 / 2470.0 / 8)
    assert found.speedup(at) == pytest.approx(18900.0 / 2470.0)


def test_tokens_are_divided_by_the_sequence() -> None:
    assert read([{"k": 8, "tokens_per_s": 81920.0}], seq_len=2048).points[0].rate == 40.0


def test_speedup_over_a_larger_baseline_is_a_ratio_of_times() -> None:
    plain = read([{"k": 64, "speedup": 7.2}], baseline={"k": 8, "throughput": 100.0})
    assert plain.efficiency(plain.points[-1]) == pytest.approx(0.9)
    assert plain.points[-1].rate == pytest.approx(720.0)
    based = read(
        [{"k": 8, "speedup": 8.0}, {"k": 64, "speedup": 57.6}], baseline={"k": 8, "throughput": 100.0}
    )
    assert based.efficiency(based.points[-1]) == pytest.approx(0.9)


def test_times_without_a_batch_still_give_an_efficiency() -> None:
    points = [{"k": 1, "time_s": 8.0}, {"k": 8, "time_s": 1.25}]
    strong = read(points, regime="strong")
    assert strong.efficiency(strong.points[-1]) == pytest.approx(0.8)
    weak = read([{"k": 1, "time_s": 1.0}, {"k": 8, "time_s": 1.25}], regime="weak")
    assert weak.efficiency(weak.points[-1]) == pytest.approx(0.8)


def test_a_lone_headline_is_read_from_one_accelerator() -> None:
    found = read([], headline={"k": 256, "speedup": 180.0})
    assert found.headline is not None
    assert found.efficiency(found.headline) == pytest.approx(180 / 256)


def test_each_trick_has_its_code() -> None:
    faster = [HONEST[0], {**HONEST[1], "throughput": 2470.0 * 8 * 1.08}, HONEST[2]]
    assert codes(faster) == {"superlinear"}
    straight = [{"k": k, "throughput": 2470.0 * k, "global_batch": 256 * k} for k in (1, 4, 16, 64)]
    assert codes(straight) == {"too-straight"}
    assert codes(HONEST, regime="strong") == {"batch-grows-with-k"}
    assert codes(HONEST, regime="strong", global_batch=256) == {"batch-grows-with-k"}
    mixed = [HONEST[0], {**HONEST[1], "global_batch": 2048}, {**HONEST[2], "global_batch": 2048}]
    assert codes(mixed, regime="weak") == {"regimes-mixed"}
    assert codes(mixed, regime=None) == {"regimes-mixed"}
    precision = [{**HONEST[0], "precision": "tf32"}, *HONEST[1:]]
    assert codes(precision) == {"precision-changed"}
    recompute = [{**HONEST[0], "recompute": "full"}, {**HONEST[1], "recompute": "none"}, HONEST[2]]
    assert codes(recompute) == {"recompute-changed"}
    quality = [{**HONEST[0], "quality": 0.760}, HONEST[1], {**HONEST[2], "quality": 0.745}]
    assert codes(quality) == {"quality-drops"}


def test_one_batch_is_strong_and_one_per_accelerator_is_weak() -> None:
    strong = [{**point, "global_batch": 4096} for point in HONEST]
    assert codes(strong, regime="strong") == set()
    assert codes(strong, regime=None) == set()
    assert codes(HONEST, regime=None) == set()
    # A global batch rounded to divide evenly is the same batch.
    near = [
        {**HONEST[0], "global_batch": 4096},
        {**HONEST[1], "global_batch": 4080},
        {**HONEST[2], "global_batch": 4096},
    ]
    assert codes(near, regime="strong") == set()


def test_numbers_that_contradict_each_other() -> None:
    both = [HONEST[0], {**HONEST[1], "time_s": 0.2}]
    assert codes(both) == {"numbers-disagree"}
    shout = codes(HONEST, headline={"k": 64, "speedup": 62.0})
    assert shout == {"numbers-disagree"}
    assert codes(HONEST, headline={"k": 64, "speedup": 57.0}) == set()
    alone = codes([], headline={"k": 256, "speedup": 180.0, "efficiency": 0.9})
    assert alone == {"numbers-disagree"}
    # Counting conventions of FLOP differ; only a large gap is a contradiction.
    near = 18900 / 8 * 24.6e9 / 312e12
    assert codes([HONEST[0], {**HONEST[1], "mfu": near * 1.15}, HONEST[2]]) == set()
    assert codes([HONEST[0], {**HONEST[1], "mfu": near * 1.5}, HONEST[2]]) == {"numbers-disagree"}


def test_noise_that_is_stated_is_allowed_for() -> None:
    wobbly = [HONEST[0], {**HONEST[1], "throughput": 2470.0 * 8 * 1.08, "spread": 0.04}, HONEST[2]]
    assert codes(wobbly) == set()


def said(points: list[dict[str, Any]], **more: Any) -> dict[str, str]:
    one = claim(points, **more)
    found = absent.findings(one, read(points, **more), one.regime)
    return {finding.code: finding.severity for finding in found}


def test_what_is_missing_has_the_severity_of_the_contract() -> None:
    full = [{**point, "repeats": 5, "spread": 0.01, "quality": 0.76, "efficiency": 0.9} for point in HONEST]
    assert said(full, cluster="x", price=1.0) == {}
    notes = said(HONEST, cluster="x")
    assert set(notes.values()) == {"note"}
    assert {"price-missing", "quality-missing", "repeats-missing", "spread-missing"} <= set(notes)
    assert said(full, cluster="x", price=1.0, regime=None) == {"regime-missing": "suspicious"}
    alone = said([], headline={"k": 256, "speedup": 180.0}, cluster="x", price=1.0)
    assert alone["baseline-and-batch-missing"] == "suspicious"
    batch = said([], headline={"k": 256, "speedup": 180.0}, global_batch=4096, cluster="x", price=1.0)
    assert "baseline-and-batch-missing" not in batch
    assert batch["baseline-missing"] == "note"


def test_one_point_alone_needs_no_regime() -> None:
    assert "regime-missing" not in said([HONEST[1]], regime=None)


def test_findings_are_ordered_and_merged() -> None:
    a = Finding("superlinear", "suspicious", "", "", "one.", weight=1.1, k=8)
    b = Finding("superlinear", "suspicious", "", "", "two.", weight=1.3, k=64)
    c = Finding("mfu-above-ceiling", "impossible", "", "", "")
    d = Finding("price-missing", "note", "", "", "")
    assert [f.code for f in ordered([d, a, b, c])] == [
        "mfu-above-ceiling",
        "superlinear",
        "superlinear",
        "price-missing",
    ]
    merged = one_of_each([a, b, c, d])
    assert [f.code for f in merged] == ["mfu-above-ceiling", "superlinear", "price-missing"]
    assert merged[1].evidence == "two. Also at K = 8."
    assert verdict([d]) == "consistent"
    assert verdict([a, d]) == "suspicious"
    assert verdict([c, a]) == "impossible"


def test_every_code_has_its_question() -> None:
    assert all(question.endswith((".", "?")) for question in QUESTIONS.values())
    assert (
        Finding("superlinear", "suspicious", "a", "b", "c").mapping()["question"] == QUESTIONS["superlinear"]
    )


MEASURES = st.sampled_from(
    ["time_s", "throughput", "tokens_per_s", "speedup", "efficiency", "mfu", "tflop_per_s_per_accelerator"]
)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 4096),
            st.dictionaries(MEASURES, st.floats(1e-3, 1e6), max_size=3),
            st.integers(1, 9999),
        ),
        max_size=5,
    ),
    st.sampled_from(["strong", "weak", None]),
    st.booleans(),
)
def test_no_claim_breaks_the_rules(
    points: list[tuple[int, dict[str, float], int]], regime: str | None, head: bool
) -> None:
    given_points = [{"k": k, "global_batch": batch, **measures} for k, measures, batch in points]
    headline = given_points[-1] if head and given_points else None
    one = read(given_points, regime=regime, headline=headline)
    found = tricks.findings(one, SUBJECT, regime) + absent.findings(claim(given_points), one, regime)
    assert verdict(found) in {"consistent", "suspicious"}
    for point in one.all:
        efficiency = one.efficiency(point)
        assert efficiency is None or efficiency > 0
