"""The command line itself: quick, lazy, and exact about exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version

import pytest
import typer

from perfmodel.cli import main as entry
from perfmodel.cli.main import VERBS, build_app, main
from perfmodel.errors import Problem, SpecError

HEAVY = ("scipy", "matplotlib", "pandas", "networkx", "numpy", "starlette", "torch")


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from perfmodel.cli.main import main; main(['--help']); print(sorted(m.partition('.')[0] for m in sys.modules), file=sys.stderr)"
    done = run(code)
    assert "Commands:" in done.stdout
    loaded = done.stderr
    assert [name for name in HEAVY if f"'{name}'" in loaded] == []


def test_help_loads_little() -> None:
    """Its time is that of its imports, which do not depend on who else uses the machine; benchmarks/ has the seconds."""
    code = "import sys; from perfmodel.cli.main import main; main(['--help']); print(len(sys.modules), file=sys.stderr)"
    assert int(run(code).stderr) < 220


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, text in VERBS.items():
        assert f"  {name} " in out
        assert text in out


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_verb_has_a_module_and_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert f"perfmodel {verb}" in capsys.readouterr().out


def test_only_the_called_verb_is_loaded() -> None:
    code = (
        "import sys; from perfmodel.cli.main import main; main(['schema']); "
        "print(*sorted(m for m in sys.modules if m.startswith('perfmodel.cli.')), file=sys.stderr)"
    )
    loaded = run(code).stderr.split()
    own = ["completion", "interruption", "main", "options", "overwriting", "schema"]
    assert loaded == [f"perfmodel.cli.{name}" for name in own]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    from perfmodel import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"perfmodel {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["predcit"], "Did you mean 'predict'?"),
        (["catalog", "list", "--sortt", "memory"], "--sortt"),
        (["catalog", "show"], "Missing argument"),
        (["catalog", "list", "--format", "xml"], "xml"),
        ([], "Usage: perfmodel"),
        (["catalog"], "Usage: perfmodel catalog"),
    ],
)
def test_bad_usage_exits_2_on_stderr(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert text in captured.err
    assert captured.out == ""


@pytest.mark.skipif(
    tuple(map(int, version("typer").split(".")[:2])) < (0, 29),
    reason="earlier releases of typer say by themselves what they expect",
)
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--seed", "-1"], "--seed: must be at least 0, got -1"),
        (["--seed", "x"], '--seed: expected a whole number, got "x"'),
        (["--seed", ""], '--seed: expected a whole number, got ""'),
        (["--seed", "9" * 5000], f'--seed: expected a whole number, got "{"9" * 40}..."'),
        (["--threshold", "nan"], "--threshold: expected a number, got nan"),
        (["--threshold", "1e400"], "--threshold: must be at most 0.99, got 1e400"),
        (
            ["--format", "jsn"],
            '--format: "jsn" is not a choice here; did you mean "json"?\n  help: one of table, json, csv, md',
        ),
    ],
)
def test_a_bad_value_is_told_in_our_words(
    flags: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", "-w", "llama3-8b", "-c", "dgx-h100", *flags]) == 2
    assert capsys.readouterr().err.startswith(f"error[U001]: {told}\n")


def raising(error: BaseException) -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.callback()
    def root() -> None:
        """Nothing."""

    @app.command()
    def demo() -> None:
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SpecError(Problem("a.yaml", 3, 2, "S001", "odd")), 2),
        (KeyboardInterrupt(), 130),
        (typer.Abort(), 130),
        (typer.Exit(1), 1),
        (RuntimeError("boom\nbang"), 3),
        (RecursionError(), 3),
    ],
)
def test_exceptions_become_exit_codes(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PERFMODEL_DEBUG", raising=False)
    monkeypatch.setattr(entry, "build_app", lambda verb: raising(error))
    assert main(["demo"]) == code
    err = capsys.readouterr().err
    assert "Traceback" not in err
    if code == 3:
        assert len(err.strip().splitlines()) == 1
        assert "please report it" in err


def test_a_fault_shows_its_traceback_when_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERFMODEL_DEBUG", "1")
    monkeypatch.setattr(entry, "build_app", lambda verb: raising(RuntimeError("boom")))
    assert main(["demo"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_no_color_lasts_as_long_as_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    seen = []

    def app(verb: str | None) -> typer.Typer:
        seen.append(os.environ.get("NO_COLOR"))
        return build_app(verb)

    monkeypatch.setattr(entry, "build_app", app)
    main(["schema", "--no-color"])
    assert seen == ["1"]
    assert "NO_COLOR" not in os.environ


def test_a_closed_pipe_is_no_fault() -> None:
    command = f"{sys.executable} -m perfmodel catalog list grids --format csv | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("name")
    assert "Traceback" not in done.stderr


def test_completion_knows_the_verbs() -> None:
    environment = {
        **os.environ,
        "_PERFMODEL_COMPLETE": "complete_bash",
        "COMP_WORDS": "perfmodel cata",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "perfmodel"], env=environment, capture_output=True, text=True, check=False
    )
    assert "catalog" in done.stdout
