"""What a release is made of: one version, and fragments that the changelog takes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from perfmodel import __version__

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LONGEST = 700  # characters: a fragment is one to three sentences


def test_the_version_stands_in_one_place() -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    place = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{__version__}"' in place.read_text(encoding="utf-8")
    assert not re.search(r"^version:", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)


def test_every_fragment_has_a_kind_and_a_few_sentences() -> None:
    settings = PROJECT["tool"]["towncrier"]
    kinds = {kind["directory"] for kind in settings["type"]}
    for path in sorted((ROOT / settings["directory"]).iterdir()):
        if path.name in settings["ignore"]:
            continue
        topic, kind, suffix = path.name.split(".")
        assert topic, path.name
        assert kind in kinds, path.name
        assert suffix == "md", path.name
        assert 20 < len(path.read_text(encoding="utf-8")) < LONGEST, path.name


def test_the_changelog_has_the_line_below_which_releases_go() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert text.count(PROJECT["tool"]["towncrier"]["start_string"]) == 1
