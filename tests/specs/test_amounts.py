"""The length of a run and its batch, in tokens and passes over the data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import SpecError
from perfmodel.specs.amounts import Around, batch_around
from perfmodel.specs.jobs import load_job


def job(workload="llama3-8b", **more):
    words = {"workload": workload, "cluster": "dgx-h100", "k": "8..64", **more}
    return load_job(None, overrides={key: value for key, value in words.items() if value is not None})


def refused(**more):
    with pytest.raises(SpecError) as caught:
        job(**more)
    return [(problem.code, problem.message) for problem in caught.value.problems]


def test_tokens_are_steps_of_the_batch():
    found = job(global_batch=128, seq_len=8192, tokens="1 G")
    assert found.steps * 128 * 8192 >= 1e9 > (found.steps - 1) * 128 * 8192
    assert found.run_samples == pytest.approx(1e9 / 8192, abs=1)


def test_epochs_count_passes_over_the_data():
    images = job("resnet50", global_batch=1024, epochs=90, data={"samples": "1.28 M"})
    assert images.steps == 90 * 1_280_000 // 1024
    text = job(global_batch=128, seq_len=8192, epochs=2, data={"tokens": "1 G"})
    assert text.steps == job(global_batch=128, seq_len=8192, tokens="2 G").steps


def test_steps_that_agree_are_kept_and_others_refused():
    exact = job(global_batch=128, seq_len=8192, tokens="1 G").steps
    assert job(global_batch=128, seq_len=8192, tokens="1 G", steps=exact + 1).steps == exact + 1
    ((code, message),) = refused(global_batch=128, seq_len=8192, tokens="1 G", steps=2 * exact)
    assert code == "S010"
    assert "tokens make" in message
    ((code, message),) = refused(global_batch=8, tokens="1 G", epochs=3, data={"tokens": "1 G"})
    assert code == "S010"
    assert "epochs" in message


def test_a_compute_optimal_budget_is_so_many_tokens():
    params = job().workload.params
    found = job(global_batch=128, seq_len=8192, tokens_per_parameter=20)
    assert found.steps == job(global_batch=128, seq_len=8192, tokens=20 * params).steps
    assert any(f"{20 * params:,} tokens" in note and "loss" in note for note in found.notes)
    twice = job(global_batch=128, seq_len=8192, tokens_per_parameter=20, tokens=20 * params)
    assert twice.steps == found.steps
    ((_, message),) = refused(tokens_per_parameter=20, tokens="1 G")
    assert "20 tokens for each of" in message
    ((_, message),) = refused(workload="resnet50", tokens_per_parameter=20)
    assert "no sequence of tokens" in message
    unknown = {
        "kind": "decoder-transformer",
        "layers": 2,
        "hidden": 64,
        "heads": 2,
        "vocab": 100,
        "seq_len": 64,
        "sample": "sequence",
    }
    ((_, message),) = refused(workload=unknown, tokens_per_parameter=20)
    assert "how many parameters" in message


@pytest.mark.parametrize("ratio", [0, -1, "many", float("inf")])
def test_no_budget_of_no_tokens(ratio):
    assert refused(tokens_per_parameter=ratio)


def test_in_weak_scaling_the_steps_differ_with_k():
    found = job(batch_per_accelerator=1, tokens="1 G", seq_len=8192)
    assert found.steps is None
    assert found.run_samples == round(1e9 / 8192)
    assert job(batch_per_accelerator=1, tokens="1 G", seq_len=8192, k="8").steps == pytest.approx(
        1e9 / 8192 / 8, abs=1
    )
    assert refused(batch_per_accelerator=1, tokens="1 G", steps=1000)


@pytest.mark.parametrize(
    "words",
    [
        {"workload": "resnet50", "tokens": "1 G"},
        {"workload": "resnet50", "epochs": 3, "data": {"tokens": "1 G"}},
        {"epochs": 3},
        {"epochs": 0, "data": {"tokens": "1 G"}},
        {"data": {"tokens": "1 G", "samples": 5}},
        {"data": {}},
        {"tokens": -5},
        {"tokens": "1e400"},
        {"deadline": "0 s"},
        {"budget": "-3 USD"},
        {"global_batch_tokens": "4M", "global_batch": 512},
        {"global_batch_tokens": "4M", "batch_per_accelerator": 2},
        {"global_batch_tokens": "4M", "regime": "weak"},
        {"global_batch_tokens": "4M +-80 %"},
        {"global_batch_tokens": "4M +- 0 %"},
        {"global_batch_tokens": "about 4M"},
        {"global_batch_tokens": "100", "seq_len": 8192},
        {"workload": "resnet50", "global_batch_tokens": "4M"},
    ],
)
def test_what_makes_no_sense_is_refused(words):
    assert refused(**words)


def test_a_batch_of_about_so_many_tokens():
    exact = job(global_batch_tokens=4 * 2**20, seq_len=8192)
    assert exact.global_batch == 512
    assert exact.batch_range is None
    about = job(global_batch_tokens="4M +-10 %", seq_len=8192)
    low, high = about.batch_range
    assert low <= about.global_batch <= high
    assert any("nearest" in note for note in about.notes)


@given(tokens=st.floats(1e5, 1e9), give=st.floats(0.001, 0.5), seq_len=st.integers(1, 100_000))
def test_every_batch_of_the_range_keeps_to_the_statement(tokens, give, seq_len):
    nearest, low, high = batch_around(Around(tokens, give), seq_len)
    assert 1 <= low <= nearest <= high
    for batch in {low, high} - {nearest}:
        assert abs(batch * seq_len - tokens) <= tokens * give * (1 + 1e-6) + 1e-6
