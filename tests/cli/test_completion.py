"""What the shells complete: the catalogue's names, quickly."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from perfmodel.cli import completion
from perfmodel.specs.catalog import KINDS, Catalog


def ask(shell: str, line: str) -> list[str]:
    """The lines that the shell's completion prints for a command line whose last word is being typed."""
    words = line.split(" ")
    own = {"_PERFMODEL_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        own |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    else:
        own |= {"_TYPER_COMPLETE_ARGS": line}
    if shell == "fish":
        own |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_TYPER_COMPLETE_WORD_TO_COMPLETE": words[-1]}
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr));"
        "from perfmodel.cli.main import main; main([])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | own, capture_output=True, text=True, timeout=60
    )
    loaded = set(done.stderr.split())
    assert "perfmodel.cli.completion" in loaded
    assert (
        not {"numpy", "scipy", "matplotlib", "ruamel.yaml", "perfmodel.specs.catalog"} & loaded
    )  # a person waits
    return done.stdout.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_completes_a_workload(shell):
    found = ask(shell, "perfmodel predict -w llama3-8")
    assert "llama3-8b" in " ".join(found)
    assert "llama3-70b" not in " ".join(found)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("perfmodel explain --cluster dgx-h1", ["dgx-h100"]),
        ("perfmodel plan --clusters dgx-a100,dgx-h1", ["dgx-a100,dgx-h100"]),
        ("perfmodel compare --set grid=US-VA", ["grid=US-VA"]),
        ("perfmodel catalog show h100-pc", ["h100-pcie-80gb"]),
        ("perfmodel catalog list acc", ["accelerators"]),
    ],
)
def test_flags_and_arguments_complete_their_kind(line, expected):
    assert ask("bash", line) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_the_names_are_those_of_the_catalogue(kind):
    assert completion.names(kind)("") == Catalog.default().names(kind)
    assert kind in completion.KINDS


def test_case_does_not_matter_and_taken_names_are_not_offered_again():
    assert completion.names("workloads")("LLAMA3-8B") == ["llama3-8b", "llama3-8b-lora", "llama3-8b-lora16"]
    assert completion.several("clusters")("dgx-h100,dgx-h1") == []
    assert "cluster.scale_out=" in completion.assignment("cluster.")
    assert completion.assignment("nothing=") == []


def test_specs_of_ones_own_are_completed_too(tmp_path, monkeypatch):
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "my-model.yaml").write_text("name: my-model\n", encoding="utf-8")
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    assert completion.names("workloads")("my-") == ["my-model"]
