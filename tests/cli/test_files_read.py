"""The `files` of `inputs`: what was read is part of what reproduces an answer."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from perfmodel.cli.main import main
from perfmodel.results.envelope import fingerprint

JOB = ["-w", "resnet50", "-c", "dgx-a100", "--regime", "weak", "--set", "batch_per_accelerator=128"]
RANKS = "rank,step,time_s\n" + "".join(
    f"{r},{s},{0.1 + 0.01 * s + 0.001 * r}\n" for s in range(4) for r in (0, 1)
)


def envelope(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--format", "json"]) in (0, 1), capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("k,time_s\n1,0.090\n2,0.094\n")
    (tmp_path / "b.csv").write_text("k,time_s\n1,0.080\n2,0.094\n")
    (tmp_path / "ranks.csv").write_text(RANKS)
    return tmp_path


def test_calibrate_names_every_file_by_its_content(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def inputs(*given: str) -> Any:
        return envelope(capsys, "calibrate", *JOB, *given)["inputs"]

    first, again, other = (inputs("--timings", str(folder / name)) for name in ("a.csv", "a.csv", "b.csv"))
    assert first == again
    assert first["files"] == {"timings": {"file": "a.csv", "sha256": sha256(folder / "a.csv")}}
    assert first["files"]["timings"]["sha256"] != other["files"]["timings"]["sha256"]
    assert str(folder) not in json.dumps(first)
    both = inputs("--timings", "a.csv", "--ranks", "ranks.csv")
    assert both["files"]["ranks"] == {"file": "ranks.csv", "sha256": sha256(folder / "ranks.csv")}


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Beliefs after each of two tables, a.json and b.json."""
    made = tmp_path_factory.mktemp("calibrated")
    for name, first in (("a", "0.090"), ("b", "0.080")):
        timings = made / f"{name}.csv"
        timings.write_text(f"k,time_s\n1,{first}\n2,0.094\n")
        out = str(made / f"{name}.json")
        assert main(["calibrate", *JOB, "--timings", str(timings), "-o", out, "--quiet"]) == 0
    return made


@pytest.mark.parametrize(
    "verb",
    [
        ("predict", *JOB, "-k", "1..4"),
        ("explain", *JOB, "-k", "4"),
        ("roofline", *JOB, "-k", "4"),
        ("plan", *JOB, "-k", "1..4"),
        ("audit", "claim.yaml"),
        ("check", "perfmodel.yaml"),
    ],
    ids=lambda verb: verb[0],
)
def test_every_verb_names_its_beliefs_by_their_content(
    folder: Path, calibrated: Path, capsys: pytest.CaptureFixture[str], verb: tuple[str, ...]
) -> None:
    (folder / "claim.yaml").write_text(
        "workload: resnet50\ncluster: dgx-a100\npoints: [{k: 8, throughput: 16621}]\n"
    )
    (folder / "job.yaml").write_text("workload: resnet50\ncluster: dgx-a100\nglobal_batch: 512\nk: 1..8\n")
    (folder / "perfmodel.yaml").write_text("jobs: {own: job.yaml}\npolicies: [knee >= 1]\n")
    for name in ("a", "b"):
        shutil.copy(calibrated / f"{name}.json", folder)
    plain, a, b = (
        envelope(capsys, *verb, *given) for given in ([], ["--beliefs", "a.json"], ["--beliefs", "b.json"])
    )
    assert "files" not in plain["inputs"]
    assert a["inputs"]["files"] == {"beliefs": {"file": "a.json", "sha256": sha256(folder / "a.json")}}
    assert a["inputs"] != b["inputs"]


def test_a_folder_has_one_hash_of_all_that_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "runs" / "k8").mkdir(parents=True)
    (tmp_path / "runs" / "k8" / "log.txt").write_text("one")
    first = fingerprint(tmp_path / "runs")
    assert first["file"] == "runs"
    (tmp_path / "runs" / ".hidden").write_text("no matter")
    assert fingerprint(tmp_path / "runs") == first
    (tmp_path / "runs" / "k8" / "log.txt").write_text("two")
    changed = fingerprint(tmp_path / "runs")
    assert changed != first
    (tmp_path / "runs" / "k8" / "log.txt").rename(tmp_path / "runs" / "log.txt")
    assert fingerprint(tmp_path / "runs") != changed


@pytest.mark.parametrize(
    "command",
    [
        ("predict",),
        ("explain", "-k", "8"),
        ("plan",),
        ("roofline",),
        ("audit",),
        ("check",),
        ("study",),
        ("report",),
        ("catalog", "lint"),
        ("workload", "from-hf"),
        ("predict", *JOB, "--beliefs"),
        ("calibrate", *JOB, "--timings"),
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_in_place_of_a_file_is_refused_at_once(
    command: tuple[str, ...], kind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "/dev/zero"
    if kind == "pipe":
        name = str(folder / "pipe.csv")
        os.mkfifo(name)

    def waited(*_: object) -> None:
        raise AssertionError("waited for a writer")

    before = signal.signal(signal.SIGALRM, waited)
    signal.alarm(20)
    try:
        code = main([*command, name])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert code == 2
    captured = capsys.readouterr()
    assert f"{name}: " in captured.err + captured.out
    assert "not a regular file" in captured.err + captured.out


def test_what_the_shell_hands_over_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    given, taken = os.pipe()
    os.write(taken, b"workload: resnet50\ncluster: dgx-a100\nk: 8\n")
    os.close(taken)
    try:
        code = main(["predict", f"/dev/fd/{given}", "--quiet"])
    finally:
        os.close(given)
    assert code == 0, capsys.readouterr().err
