"""`perfmodel check` end to end: the demo repository, every verdict flipped, every format, the shells of CI."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from perfmodel.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "ci"
SCHEMAS = ROOT / "tests" / "schemas"
POLICIES = (
    "knee >= 64",
    "efficiency(k=64) >= 0.6",
    "time(k=128) <= 6 s",
    "cost <= 150000 USD",
    "memory <= 80 %",
    "change(time, k=64) <= 5 %",
    "change(knee) >= -1 step",
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo repository with a baseline of today's predictions."""
    folder = tmp_path_factory.mktemp("prepared") / "repo"
    shutil.copytree(DEMO, folder)
    assert main(["check", str(folder / "perfmodel.yaml"), "--update-baseline", "--quiet"]) == 0
    return folder


@pytest.fixture
def demo(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the prepared repository, as the current folder."""
    folder = tmp_path / "repo"
    shutil.copytree(prepared, folder)
    monkeypatch.chdir(folder)
    return folder


def run(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and check.result, through the command line."""
    out = Path("check.json")
    code = main(["check", *arguments, "--write", f"json={out}", "--quiet"])
    return code, json.loads(out.read_text(encoding="utf-8"))["result"]


def verdicts(result: dict[str, Any]) -> dict[str, str]:
    return {policy["expression"]: policy["verdict"] for policy in result["policies"]}


def edit(path: str, old: str, new: str) -> None:
    text = Path(path).read_text(encoding="utf-8")
    assert old in text
    Path(path).write_text(text.replace(old, new), encoding="utf-8")


def test_the_demo_passes_as_it_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "repo"
    shutil.copytree(DEMO, folder)
    monkeypatch.chdir(folder)
    code, result = run("--undecided", "fail")
    assert verdicts(result) == dict.fromkeys(POLICIES, "pass"), (
        "run: perfmodel check examples/ci/perfmodel.yaml --update-baseline"
    )
    assert code == 0


SLOW_NETWORK = "{node: dgx-h100, nics_per_node: 1, scale_out: ethernet-25}"


@pytest.mark.parametrize(
    ("file", "old", "new", "fails", "cause"),
    [
        ("model.yaml", "hidden: 4096", "hidden: 12288", {"time(k=128) <= 6 s", "change(time, k=64) <= 5 %"}, "workload.hidden: 4096 -> 12288"),
        ("job.yaml", "global_batch: 1024", "global_batch: 16", {"knee >= 64", "change(knee) >= -1 step"}, "global_batch: 1024 -> 16"),
        ("job.yaml", "cluster: dgx-h100", f"cluster: {SLOW_NETWORK}", {"knee >= 64", "efficiency(k=64) >= 0.6", "change(knee) >= -1 step"}, "cluster.scale_out: ib-ndr -> ethernet-25"),
        ("job.yaml", "cluster: dgx-h100", "cluster: dgx-a100", {"change(time, k=64) <= 5 %"}, "cluster: dgx-h100 -> dgx-a100"),
        ("job.yaml", "seq_len: 4096", "seq_len: 7168", {"memory <= 80 %"}, "seq_len: 4096 -> 7168"),
        ("job.yaml", "2.50 USD/h", "25 USD/h", {"cost <= 150000 USD"}, "price.per_accelerator: 2.5 USD/h -> 25 USD/h"),
    ],
    ids=["hidden", "batch", "network", "cluster", "length", "price"],
)  # fmt: skip
def test_a_change_flips_its_policies_and_is_named_as_the_cause(
    demo: Path, file: str, old: str, new: str, fails: set[str], cause: str
) -> None:
    edit(file, old, new)
    code, result = run()
    found = verdicts(result)
    assert {policy for policy in fails if found[policy] != "fail"} == set()
    assert (code, result["verdict"]) == (1, "fail")
    assert cause in {change["cause"] for change in result["changes"]}


def test_every_policy_is_flipped_by_some_change() -> None:
    marks = test_a_change_flips_its_policies_and_is_named_as_the_cause.pytestmark  # type: ignore[attr-defined]
    flipped = set().union(*(case[3] for case in marks[0].args[1]))
    assert flipped == set(POLICIES)


def test_undecided_is_what_the_user_says(demo: Path) -> None:
    _, result = run()
    time = next(policy for policy in result["policies"] if policy["metric"] == "time")
    edit("perfmodel.yaml", "time(k=128) <= 6 s", f"time(k=128) <= {time['value']:.6g} s")
    code, result = run()
    assert (code, result["verdict"]) == (0, "undecided")
    code, result = run("--undecided", "fail")
    assert code == 1
    assert [policy["blocking"] for policy in result["policies"] if policy["verdict"] == "undecided"] == [True]
    with Path("perfmodel.yaml").open("a", encoding="utf-8") as stream:
        stream.write("undecided: fail\n")
    assert run()[0] == 1
    assert run("--undecided", "pass")[0] == 0


def test_without_a_baseline_changes_are_undecided(demo: Path) -> None:
    Path("perfmodel.lock.json").unlink()
    code, result = run()
    assert code == 0
    assert verdicts(result)["change(knee) >= -1 step"] == "undecided"
    assert any("--update-baseline" in note for note in result["notes"])


def test_the_lock_is_stable_and_reviews_well(demo: Path) -> None:
    first = Path("perfmodel.lock.json").read_bytes()
    assert main(["check", "--update-baseline", "--quiet"]) == 0
    assert Path("perfmodel.lock.json").read_bytes() == first
    edit("job.yaml", "2.50 USD/h", "2.60 USD/h")
    assert main(["check", "--update-baseline", "--quiet"]) == 0
    lines, before = (
        Path("perfmodel.lock.json").read_text(encoding="utf-8").splitlines(),
        first.decode().splitlines(),
    )
    changed = [line for old, line in zip(before, lines, strict=True) if old != line]
    assert len(changed) == 3  # the price, and the costs of the ladder and of the whole run
    _, result = run()
    assert result["changes"] == []


def test_a_removed_or_new_job_is_said(demo: Path) -> None:
    edit("perfmodel.yaml", "pretrain: job.yaml", "renamed: job.yaml")
    _, result = run()
    assert "not in the baseline yet: renamed" in result["notes"]
    assert "in the baseline but no longer a job: pretrain" in result["notes"]


def test_every_format_has_the_same_bytes_twice(demo: Path) -> None:
    edit("job.yaml", "2.50 USD/h", "25 USD/h")
    kinds = ("table", "json", "csv", "md", "junit", "sarif", "github")
    for name in ("first", "second"):
        Path(name).mkdir()
        assert (
            main(
                [
                    "check",
                    *(word for kind in kinds for word in ("--write", f"{kind}={name}/{kind}")),
                    "--quiet",
                ]
            )
            == 1
        )
    for kind in kinds:
        text = Path("first", kind).read_bytes()
        assert text == Path("second", kind).read_bytes()
        assert b"cost" in text


def test_machine_formats_print_data_only(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, start in (("github", "::notice"), ("json", "{"), ("junit", "<?xml")):
        assert main(["check", "--format", kind]) == 0
        captured = capsys.readouterr()
        assert captured.out.startswith(start)
        assert captured.err == ""


def test_the_name_of_the_output_picks_the_format(demo: Path) -> None:
    for name, start in (
        ("a.xml", "<?xml"),
        ("a.sarif", "{"),
        ("a.md", "<!-- perfmodel-check -->"),
        ("a.json", "{"),
    ):
        assert main(["check", "-o", name]) == 0
        assert Path(name).read_text(encoding="utf-8").startswith(start)


def test_a_bad_policy_is_an_error_on_its_character(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit("perfmodel.yaml", "- knee >= 64", "- kne >= 64")
    edit("perfmodel.yaml", "cost <= 150000 USD", "cost <= 150000")
    assert main(["check", "--format", "sarif"]) == 2
    captured = capsys.readouterr()
    assert re.search(
        r'perfmodel\.yaml:5:5: error\[P001\]: unknown metric "kne"; did you mean "knee"\?', captured.err
    )
    assert re.search(r"perfmodel\.yaml:8:13: error\[P001\]: a number without a unit", captured.err)
    log = json.loads(captured.out)
    places = [
        item["locations"][0]["physicalLocation"]["region"]["startLine"] for item in log["runs"][0]["results"]
    ]
    assert places == [5, 8]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "missing.yaml"], "missing.yaml"),
        (["check", "--write", "pdf=x"], "--write"),
        (["check", "--write", "sarif"], "--write"),
        (["check", "--format", "pdf"], "pdf"),
        (["check", "-o", "no/such/folder.json"], "no/such"),
        (["check", "job.yaml"], 'missing key "jobs"'),
    ],
)
def test_bad_usage_is_exit_2_without_a_traceback(
    demo: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert "Traceback" not in captured.err


def test_a_broken_lock_is_exit_2(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("perfmodel.lock.json").write_text('{"schema": "perfmodel/lock/1",\n', encoding="utf-8")
    assert main(["check"]) == 2
    assert "perfmodel.lock.json:2:1: error[P010]" in capsys.readouterr().err


def test_a_model_config_moves_the_prediction(demo: Path) -> None:
    config = {
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 32000, "max_position_embeddings": 4096,
    }  # fmt: skip
    Path("config.json").write_text(json.dumps(config), encoding="utf-8")
    edit("job.yaml", "{file: model.yaml}", "{hf: config.json}")
    assert main(["check", "--update-baseline", "--quiet"]) == 0
    Path("config.json").write_text(json.dumps(config | {"num_hidden_layers": 48}), encoding="utf-8")
    code, result = run()
    assert code == 1
    assert "workload.layers: 32 -> 48" in {change["cause"] for change in result["changes"]}


def test_what_init_writes_can_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    assert run()[1]["policies"]


# The machines of CI: their shell is what runs here.


def environment(folder: Path, **more: str) -> dict[str, str]:
    tools = f"{folder / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": tools, **more}


def yaml(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))


def bash(script: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env=environment(folder, **more),
        capture_output=True,
        text=True,
        check=False,
    )


def step(name: str) -> str:
    return str(
        next(item["run"] for item in yaml(ROOT / "action.yml")["runs"]["steps"] if item["name"] == name)
    )


def test_the_action_and_the_snippets_fit_their_schemas() -> None:
    for path, schema in (
        (ROOT / "action.yml", "github-actions.json"),
        (DEMO / ".github" / "workflows" / "perfmodel.yml", "github-workflows.json"),
        (DEMO / ".gitlab-ci.yml", "gitlab-ci.json"),
    ):
        rules = json.loads((SCHEMAS / schema).read_text(encoding="utf-8"))
        jsonschema.Draft7Validator(rules).validate(yaml(path))
    hooks = yaml(ROOT / ".pre-commit-hooks.yaml")
    assert {"id", "name", "entry", "language"} <= set(hooks[0])
    wanted = yaml(DEMO / ".pre-commit-config.yaml")["repos"][0]["hooks"][0]["id"]
    assert wanted in {hook["id"] for hook in hooks}


def test_the_shell_of_the_action(demo: Path) -> None:
    places = {"GITHUB_OUTPUT": str(demo / "outputs"), "GITHUB_STEP_SUMMARY": str(demo / "summary.md")}
    good = bash(step("Check"), demo, CONFIG="perfmodel.yaml", UNDECIDED="pass", **places)
    assert (good.returncode, good.stderr) == (0, "")
    assert "verdict=pass" in (demo / "outputs").read_text(encoding="utf-8")
    assert (demo / "summary.md").read_text(encoding="utf-8").startswith("<!-- perfmodel-check -->")
    edit("job.yaml", "2.50 USD/h", "25 USD/h")
    bad = bash(step("Check"), demo, CONFIG="perfmodel.yaml", UNDECIDED="pass", **places)
    assert bad.returncode == 1
    assert "::error file=perfmodel.yaml,line=8" in bad.stdout
    for name in (
        "perfmodel-check.sarif",
        "perfmodel-check.xml",
        "perfmodel-check.json",
        "perfmodel-check.md",
    ):
        assert (demo / name).stat().st_size > 0
    for name in ("perfmodel-check.json", "perfmodel-check.md"):
        (demo / name).unlink()
    edit("perfmodel.yaml", "knee >= 64", "kne >= 64")
    broken = bash(step("Check"), demo, CONFIG="perfmodel.yaml", UNDECIDED="pass", **places)
    assert broken.returncode == 2
    assert "::error file=perfmodel.yaml,line=5,col=5" in broken.stdout
    assert "verdict=error" in (demo / "outputs").read_text(encoding="utf-8")


FAKE_GH = """#!/usr/bin/env bash
echo "$@" >> gh.log
case "$*" in *--paginate*) cat gh.comments ;; esac
"""


@pytest.mark.parametrize(("comments", "expected"), [("", "--method POST"), ("77\n78\n", "--method PATCH")])
def test_the_comment_is_made_once_and_then_updated(demo: Path, comments: str, expected: str) -> None:
    (demo / "bin").mkdir()
    (demo / "bin" / "gh").write_text(FAKE_GH, encoding="utf-8")
    (demo / "bin" / "gh").chmod(0o755)
    (demo / "gh.comments").write_text(comments, encoding="utf-8")
    (demo / "perfmodel-check.md").write_text("<!-- perfmodel-check -->\n", encoding="utf-8")
    done = bash(step("Comment"), demo, REPOSITORY="me/it", PULL_REQUEST="7", GH_TOKEN="x")
    assert (done.returncode, done.stderr) == (0, "")
    calls = (demo / "gh.log").read_text(encoding="utf-8").splitlines()
    assert len(calls) == 2
    assert expected in calls[1]
    assert ("comments/77" in calls[1]) == bool(comments)


def test_the_shell_of_the_gitlab_snippet_and_of_the_hook(demo: Path) -> None:
    job = yaml(DEMO / ".gitlab-ci.yml")["perfmodel"]
    script = "\n".join(job["script"])
    assert bash(script, demo).returncode == 0
    assert (demo / job["artifacts"]["reports"]["junit"]).is_file()
    for path in job["artifacts"]["paths"]:
        assert (demo / path).is_file()
    edit("job.yaml", "2.50 USD/h", "25 USD/h")
    assert bash(yaml(ROOT / ".pre-commit-hooks.yaml")[0]["entry"], demo).returncode == 1


def test_the_pytest_fixture(demo: Path) -> None:
    command = f"{sys.executable} -m pytest -q -p perfmodel.pytest_plugin -p no:cacheprovider tests"
    good = bash(command, demo, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert good.returncode == 0, good.stdout
    edit("job.yaml", "cluster: dgx-h100", f"cluster: {SLOW_NETWORK}")
    bad = bash(command, demo, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert bad.returncode == 1
    assert "knee >= 64: fail, predicted" in bad.stdout


TEN = [
    ("llama3-8b", "dgx-h100"), ("llama3-70b", "dgx-h100"), ("resnet50", "dgx-a100"), ("bert-large", "dgx-1v"), ("llama2-7b", "dgx-a100"),
    ("gpt3-175b", "dgx-a100"), ("vit-b16", "hgx-a100"), ("llama2-70b", "dgx-b200"), ("mpt-7b", "p4d.24xlarge"), ("bert-base", "dgx-a100"),
]  # fmt: skip


def test_ten_jobs_are_quick_and_load_nothing_heavy(tmp_path: Path) -> None:
    lines = [
        "jobs:",
        *(f"  job{n}: {{workload: {w}, cluster: {c}, k: 8..512}}" for n, (w, c) in enumerate(TEN)),
    ]
    lines += ["policies:", "  - knee >= 1", "  - efficiency(k=512) >= 0.01", "  - change(time, k=64) <= 5 %"]
    (tmp_path / "perfmodel.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    code = (
        "import sys, resource\n"
        "from perfmodel.cli.main import main\n"
        "code = main(['check', '--format', 'json'])\n"
        "heavy = [name for name in ('scipy', 'matplotlib', 'networkx', 'pandas', 'torch') if name in sys.modules]\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print(code, heavy, used.ru_utime + used.ru_stime, file=sys.stderr)\n"
    )
    seconds: list[float] = []
    # Two seconds are promised, and a benchmark's business; three times that means that something broke. A first run
    # that is slow may have been disturbed: it has a second chance.
    while len(seconds) < 2 and min(seconds, default=6.0) >= 6.0:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            check=True,
        )
        exit_code, heavy, used = re.fullmatch(r"(\d+) (\[.*\]) ([\d.]+)\s*", done.stderr).groups()  # type: ignore[union-attr]
        assert (exit_code, heavy) == ("0", "[]")
        seconds.append(float(used))
    assert min(seconds) < 6.0
