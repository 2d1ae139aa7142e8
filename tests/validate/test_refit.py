"""`make fit`: order, what is left out, where an interrupted run continues."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import refit

ROOT = Path(__file__).resolve().parents[2]
COPY = (
    "import sys; from pathlib import Path; Path(sys.argv[2]).write_text(Path(sys.argv[1]).read_text() + '+')"
)


def step(name: str, source: str, target: str) -> refit.Step:
    return refit.Step(
        name, f"{source} to {target}", (sys.executable, "-c", COPY, source, target), (source,), (target,)
    )


def test_steps_run_in_order_and_only_where_a_file_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "build" / "fit.json"
    chain = [step("first", "a", "b"), step("second", "b", "c")]
    (tmp_path / "a").write_text("1")
    assert refit.run(chain, root=tmp_path, record_file=record) == 0
    assert (tmp_path / "c").read_text() == "1++"
    capsys.readouterr()

    assert refit.run(chain, root=tmp_path, record_file=record) == 0
    assert capsys.readouterr().err.count("left out") == 2

    (tmp_path / "b").write_text("2")  # someone edits a result: both that wrote it and that reads it run again
    assert refit.run(chain, root=tmp_path, record_file=record) == 0
    assert (tmp_path / "c").read_text() == "1++"
    assert "left out" not in capsys.readouterr().err.splitlines()[0]

    assert refit.run(chain, again=True, root=tmp_path, record_file=record) == 0
    assert "left out" not in capsys.readouterr().err


def test_a_step_that_fails_ends_the_run_and_is_where_it_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "fit.json"
    broken = refit.Step("broken", "", (sys.executable, "-c", "import sys; sys.exit(3)"), (), ())
    chain = [step("first", "a", "b"), broken, step("last", "b", "c")]
    (tmp_path / "a").write_text("1")
    assert refit.run(chain, root=tmp_path, record_file=record) == 3
    assert not (tmp_path / "c").exists()
    capsys.readouterr()
    chain[1] = step("broken", "b", "d")
    assert refit.run(chain, root=tmp_path, record_file=record) == 0
    err = capsys.readouterr().err
    assert "[1/3] first: unchanged, left out" in err
    assert err.count("left out") == 1
    assert (tmp_path / "c").exists()


def test_every_script_and_every_pattern_of_the_project_exists() -> None:
    for known in refit.steps(sys.executable, sys.executable):
        script = [word for word in known.command if word.endswith(".py")]
        assert all((ROOT / word).is_file() for word in script), known.name
        for pattern in known.reads:
            assert refit.matched([pattern], ROOT), f"{known.name} reads nothing as {pattern}"
        assert refit.matched(known.writes, ROOT), known.name


def test_what_a_fit_writes_is_read_by_a_later_step() -> None:
    chain = refit.steps(sys.executable, sys.executable)
    for number, known in enumerate(chain[:-1]):
        written = refit.matched(known.writes, ROOT)
        if not any("priors" in path.as_posix() for path in written):
            continue
        assert any(written & refit.matched(later.reads, ROOT) for later in chain[number + 1 :]), known.name
