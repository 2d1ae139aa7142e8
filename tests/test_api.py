"""`import perfmodel as pm`: instant, stable, typed, and the same answers as the command line."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import perfmodel as pm
import perfmodel.study.table as table  # how packages of verbs are imported elsewhere must go on working

JOB: dict[str, object] = {"workload": "llama3-8b", "cluster": "dgx-h100", "k": "8..64", "global_batch": 512}
KEYS = {"seed", "beliefs", "specs", "keys"}
# Scripts rest on these names: add freely, rename nothing.
SURFACE = {
    "audit": {"claim", "goal", "beliefs", "seed", "specs"},
    "calibrate": KEYS | {"job", "timings", "nccl", "traces", "ranks", "power"},
    "catalog": {"folders"},
    "check": {"file", "undecided", "beliefs", "seed", "specs"},
    "compare": KEYS | {"a", "b", "at"},
    "diagnose": KEYS | {"config", "log", "traces", "ranks"},
    "explain": KEYS | {"job"},
    "load_job": {"job", "specs", "keys"},
    "plan": KEYS | {"job", "clusters", "objective", "max_k", "min_efficiency", "top", "draws"},
    "predict": KEYS | {"job", "threshold", "draws"},
    "study": {"timings", "regime", "price", "work", "slo", "job_name", "options", "seed"},
    "validate": KEYS | {"job", "timings", "data", "leave_out"},
}


def test_the_public_surface_is_stable_and_every_part_of_it_is_described() -> None:
    classes = {"Catalog", "Job", "Result", "SpecError", "StudyOptions", "__version__"}
    assert set(pm.__all__) == classes | SURFACE.keys()
    assert set(pm.__all__) <= set(dir(pm))
    for name, parameters in SURFACE.items():
        verb = getattr(pm, name)
        assert parameters <= set(inspect.signature(verb).parameters), name
        assert inspect.getdoc(getattr(verb, "__wrapped__", verb)), name
    for method in ("to_dict", "to_frame", "to_json", "plot", "__getitem__"):
        assert callable(getattr(pm.Result, method))
    assert callable(pm.Job.from_yaml)
    assert callable(pm.Job.from_dict)


def test_importing_it_loads_nothing_and_a_verb_is_callable_before_and_after_its_package_is_imported() -> None:
    code = (
        "import sys, perfmodel as pm; "
        "assert not {'numpy', 'pydantic', 'inspect', 'perfmodel.api'} & set(sys.modules), 'import is not lazy'; "
        "from perfmodel.study.table import parse_timings; "
        "assert pm.study('examples/alexnet-k80.csv').kind == 'study' and callable(pm.explain)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_same_job_is_said_as_keys_mapping_file_and_job(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(json.dumps(JOB))
    answers = [
        pm.predict(**JOB, draws=0),
        pm.predict(JOB, draws=0),
        pm.predict(tmp_path / "job.yaml", draws=0),
        pm.predict(pm.Job.from_yaml(tmp_path / "job.yaml"), draws=0),
        pm.predict(pm.Job.from_dict(JOB), draws=0),
    ]
    assert len({json.dumps(answer["time_s"].tolist()) for answer in answers}) == 1
    other = pm.predict(tmp_path / "job.yaml", k=64, draws=0, **{"workload.layers": 16})
    assert other["k"].tolist() == [64]
    assert other["time_s"][0] < answers[0]["time_s"][-1]
    with pytest.raises(pm.SpecError, match="takes no more keys: k"):
        pm.predict(pm.Job.from_dict(JOB), k=8)


def test_results_are_short_to_look_at_and_plain_to_store() -> None:
    found = pm.predict(**JOB, draws=0)
    assert repr(found).startswith("<prediction> llama3-8b on dgx-h100")
    assert len(repr(found)) < 500
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == json.loads(found.to_json())
    assert found.to_dict()["schema"] == "perfmodel/prediction/1"
    assert found["k"].tolist() == [8, 16, 32, 64]
    try:
        import pandas
    except ImportError:
        with pytest.raises(pm.SpecError, match="pandas is not installed"):
            found.to_frame()
    else:
        frame = found.to_frame()
        assert isinstance(frame, pandas.DataFrame)
        assert frame["k"].tolist() == [8, 16, 32, 64]


def test_every_verb_answers_in_python_as_on_the_command_line(tmp_path: Path) -> None:
    fast = pm.plan(**JOB, clusters=["dgx-h100", "dgx-a100"])
    assert {row["cluster"] for row in fast["by_cluster"]} == {"dgx-h100", "dgx-a100"}
    assert pm.explain(**(JOB | {"k": 16})).kind == "explanation"
    with pytest.raises(pm.SpecError, match="explain shows one K"):
        pm.explain(**JOB)
    assert pm.compare(JOB, cluster="dgx-a100").kind == "comparison"
    claim = {"accelerator": "h100-sxm5-80gb", "workload": "llama3-8b", "precision": "bf16", "regime": "strong",
             "points": [{"k": 8, "mfu": 1.2}]}  # fmt: skip
    assert pm.audit(claim)["verdict"] == "impossible"
    steps = tmp_path / "t.csv"
    steps.write_text("k,time_s\n8,52\n16,26.5\n")
    fit = pm.calibrate(JOB, timings=steps)
    before, after = (pm.predict(JOB, draws=0, beliefs=b)["time_s"] for b in (None, fit))
    assert abs(after[0] - 52.0) < abs(before[0] - 52.0)
    assert pm.validate(JOB, timings=steps).kind == "timings"
    with pytest.raises(pm.SpecError, match="holds no beliefs"):
        pm.predict(JOB, beliefs=pm.explain(**(JOB | {"k": 16})))
    assert (
        pm.diagnose("examples/slow-run.sh", "examples/slow-run.log", cluster="dgx-h100")["verdict"] == "slow"
    )
    (tmp_path / "perfmodel.yaml").write_text(
        "jobs: {a: {workload: resnet50, cluster: dgx-a100, k: 8, global_batch: 512}}\npolicies: [time(k=8) <= 1 h]\n"
    )
    assert pm.check(tmp_path / "perfmodel.yaml")["verdict"] == "pass"
    assert "h100-sxm5-80gb" in pm.catalog().names("accelerators")
    assert table.parse_timings
