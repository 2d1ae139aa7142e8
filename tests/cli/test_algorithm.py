"""`algorithm:` of a job: it reaches T(K) and explain, says what it cannot do, and is refused where it is no word."""

from __future__ import annotations

import json

import pytest

JOB = (
    "-w",
    "llama3-8b",
    "-c",
    "dgx-a100",
    "--global-batch",
    "512",
    "--layout",
    "tp=8,micro_batch=1,sharding=ddp,recompute=full",
)


def predicted(run, *flags, k="64,1024"):
    done = run("predict", *JOB, "-k", k, *flags, "--draws", "0", "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["result"]


def test_auto_and_nothing_said_are_the_same_to_the_bit(run):
    assert predicted(run) == predicted(run, "--set", "algorithm=auto")


def test_one_word_for_all_or_one_for_each_kind(run):
    auto, tree, tensor = (
        predicted(run, *flags)
        for flags in ((), ("--set", "algorithm=tree"), ("--set", "algorithm={tensor_parallel: tree}"))
    )
    parts = ("tensor_parallel", "data_parallel")
    differs = {part: tree["parts_s"][part] != auto["parts_s"][part] for part in parts}
    assert differs == {"tensor_parallel": True, "data_parallel": True}
    assert tensor["parts_s"]["tensor_parallel"] == tree["parts_s"]["tensor_parallel"]
    # What hides behind the backward pass moves a little with it; the algorithm itself does not.
    assert tensor["parts_s"]["data_parallel"] == pytest.approx(auto["parts_s"]["data_parallel"], rel=1e-2)


def test_explain_shows_the_algorithm_with_its_messages(run):
    steps = {}
    for word in ("ring", "tree"):
        done = run("explain", *JOB, "-k", "1024", "--set", f"algorithm={word}", "--format", "json")
        result = json.loads(done.stdout)["result"]
        gradients = next(row for row in result["collectives"] if row["name"] == "data parallel")
        assert gradients["algorithm"] == word
        assert gradients["ranks"] == 128
        assert gradients["beta_s"] > 0
        assert gradients["crossover_bytes"] > 0
        assert gradients["beyond_crossover"] == "ring"
        steps[word] = gradients["steps"]
        assert f"algorithm between replicas {word}" in " ".join(result["notes"])
    assert steps["ring"] == 2 * 127
    assert steps["tree"] == pytest.approx(2 * 7)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("algorithm=rings", 'did you mean "ring"'),
        ("algorithm={data_paralel: ring}", 'did you mean "data_parallel"'),
        ("algorithm={data_parallel: star}", "one of auto, ring, tree"),
        ("algorithm=in_switch", "no link of dgx-a100 reduces inside its switch"),
        ("algorithm=3", "algorithm"),
    ],
)
def test_a_word_that_means_nothing_is_refused(run, setting, words):
    done = run("predict", *JOB, "--set", setting)
    assert done.returncode == 2
    assert words in done.stderr


def test_an_all_to_all_has_no_tree_and_the_notes_say_so(run):
    done = run(
        "predict",
        "-w",
        "mixtral-8x7b",
        "-c",
        "dgx-a100",
        "-k",
        "64",
        "--set",
        "algorithm=tree",
        "--draws",
        "0",
    )
    assert done.returncode == 0
    assert "exchanges between experts stay auto" in " ".join(done.stdout.split())
