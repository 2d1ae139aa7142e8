from __future__ import annotations

import shlex

import pytest
from pydantic import ValidationError

from perfmodel.specs.jobs import load_job
from perfmodel.specs.loader import parse_value
from perfmodel.web.jobtext import command, job_yaml
from perfmodel.web.requests import MOST_TIMINGS, UploadError, WhatIf, read_timings

BASE = {"workload": "llama3-8b", "cluster": "dgx-h100"}
FULL = BASE | {
    "k": "8..256",
    "global_batch": 1024,
    "seq_len": 4096,
    "precision": "bf16",
    "layout": {"tp": 2, "pp": 2, "sharding": "zero1", "recompute": "full"},
    "bandwidth": 2.5e10,
    "latency": 3e-6,
    "price": 2.1,
    "fixed": 12.5,
    "jitter": 0.03,
    "steps": 1000,
    "grid": "US-VA",
}


def essence(job):
    """Everything that a prediction reads: not the job's name, nor the titles that a variant drops."""

    def strip(value):
        return {k: strip(v) for k, v in value.items() if k != "title"} if isinstance(value, dict) else value

    return strip(job.model_dump(exclude={"name", "notes"}))


@pytest.mark.parametrize(
    "request_",
    [
        BASE,
        FULL,
        BASE | {"regime": "weak", "batch_per_accelerator": 2},
        BASE | {"layout": {}},
        BASE | {"layout": {"tp": 2, "recompute": 0.3}},
    ],
)
def test_yaml_and_command_ask_the_same_question(request_, tmp_path, library):
    what = WhatIf.model_validate(request_)
    wanted = load_job(None, overrides=what.overrides())
    path = tmp_path / "job.yaml"
    path.write_text(job_yaml(what, library.scale_out(what)), encoding="utf-8")
    assert essence(load_job(path)) == essence(wanted)

    words = shlex.split(command(what))
    assert words[:2] == ["perfmodel", "predict"]
    flags = {
        "-w": "workload",
        "-c": "cluster",
        "-k": "k",
        "--regime": "regime",
        "--global-batch": "global_batch",
    }
    flags |= {"--seq-len": "seq_len", "--precision": "precision"}
    overrides = {}
    for flag, value in zip(words[2::2], words[3::2], strict=True):
        if flag == "--set":
            key, _, text = value.partition("=")
            overrides[key] = parse_value(text, key)
        elif flag == "--layout":
            from perfmodel.cli.options import parse_layout

            overrides["layout"] = parse_layout(value)
        else:
            overrides[flags[flag]] = int(value) if flag in ("--global-batch", "--seq-len") else value
    assert essence(load_job(None, overrides=overrides)) == essence(wanted)


def test_a_share_is_recomputed_as_a_job_file_says_it():
    def asked(recompute):
        return WhatIf.model_validate(BASE | {"layout": {"recompute": recompute}})

    assert asked(0.3).layout.recompute == 0.3
    assert asked(1).key == asked("full").key
    # What is stated is not left out: nothing recomputed is another question than a choice.
    assert asked("none").overrides()["layout"]["recompute"] == "none"
    assert "recompute" not in asked(None).overrides()["layout"]
    for wrong in (1.5, "loud", True):
        with pytest.raises(ValidationError):
            asked(wrong)


def test_a_request_survives_its_canonical_form():
    what = WhatIf.model_validate(FULL | {"timings": [{"k": 8, "time_s": 1.5}]})
    assert WhatIf.model_validate_json(what.canonical()) == what
    assert (
        what.canonical()
        == WhatIf.model_validate(
            dict(reversed(FULL.items())) | {"timings": [{"k": 8, "time_s": 1.5}]}
        ).canonical()
    )


@pytest.mark.parametrize(
    "change",
    [
        {"workload": "../../etc/passwd"},
        {"workload": "/etc/passwd"},
        {"workload": ""},
        {"workload": "a" * 81},
        {"workload": {"file": "x.yaml"}},
        {"workload": {"torch": "os:system"}},
        {"cluster": ["dgx-h100"]},
        {"k": "1..999999999"},
        {"k": "1..100000:1"},
        {"k": "0"},
        {"k": "8..1"},
        {"k": [1, 2]},
        {"global_batch": 0},
        {"global_batch": 1.5},
        {"global_batch": True},
        {"global_batch": "512"},
        {"batch_per_accelerator": 4},
        {"regime": "weak", "global_batch": 4},
        {"bandwidth": float("nan")},
        {"bandwidth": float("inf")},
        {"bandwidth": -1},
        {"price": 1e300},
        {"layout": {"tp": 0}},
        {"layout": {"dp": 4}},
        {"layout": "best"},
        {"unknown": 1},
        {"timings": [{"k": 1, "time_s": 0}]},
        {"timings": [{"k": 1, "time_s": 1}] * (MOST_TIMINGS + 1)},
        {"seed": -1},
        {"seed": 10**400},
    ],
)
def test_what_is_not_allowed_is_refused(change):
    with pytest.raises(ValidationError):
        WhatIf.model_validate(BASE | change)


def test_timings_are_read_with_or_without_batches():
    rows = read_timings("\ufeffK, time_s ,note\n8,1.5,a\n\n16,0.8,b\n")
    assert [(row.k, row.time_s, row.global_batch) for row in rows] == [(8, 1.5, None), (16, 0.8, None)]
    assert read_timings("k,global_batch,time_s\n8,512,1.5\n")[0].global_batch == 512


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("k,time_s\n", "no rows"),
        ("a,b\n1,2\n", "no column named k and time_s"),
        ("k,time_s\n8,fast\n", "line 2"),
        ("k,time_s\n8\n", "line 2"),
        ("k,time_s\n0,1\n", "line 2"),
        ("k,time_s\n8,-1\n", "line 2"),
        ("k,time_s\n8,nan\n", "line 2"),
        ("k,time_s\n8.5,1\n", "line 2"),
        ("k,time_s\n" + "8,1\n" * (MOST_TIMINGS + 1), "perfmodel calibrate takes any number"),
        ('k,time_s\n"8,1\n' + "x" * 200_000, "line"),
    ],
)
def test_bad_timings_name_the_line(text, said):
    with pytest.raises(UploadError) as caught:
        read_timings(text)
    assert any(said in problem for problem in caught.value.problems)
