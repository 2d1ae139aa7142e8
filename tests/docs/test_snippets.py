"""Commands in README, docs and examples work, and what they print holds the lines that the pages show."""

from __future__ import annotations

import re
from pathlib import Path

import accuracy
import pytest
import reference
import snippets

from perfmodel.cli.main import VERBS
from perfmodel.specs.catalog import Catalog

ROOT = Path(__file__).parents[2]
PAGES = snippets.pages()
MARKED = [page for page in PAGES if any(True for _ in snippets.blocks(page.read_text(encoding="utf-8")))]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", MARKED, ids=name)
def test_console_blocks_run(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    with snippets.workplace(tmp_path):
        for block in snippets.blocks(text):
            assert block.commands, f"{name(page)}:{block.line}: a block without a command"
            assert block.keys or block.exact or block.show == 0, (
                f"{name(page)}:{block.line}: nothing is compared"
            )
            found = snippets.problems(block, snippets.run(block))
            assert not found, f"{name(page)}:{block.line}: {'; '.join(found)}"


def test_the_pages_that_must_have_blocks_do() -> None:
    assert {"README.md", "docs/tutorial.md", "docs/howto/purchase.md", "docs/howto/vendor.md",
            "docs/howto/ci.md", "docs/howto/student.md"} <= set(map(name, MARKED))  # fmt: skip
    assert sum(1 for _ in snippets.blocks((ROOT / "README.md").read_text(encoding="utf-8"))) >= 6


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_named_exists(page: Path) -> None:
    """Marked or not, in a block or in a line of text: the verb and its flags are in the help."""
    text = page.read_text(encoding="utf-8")
    inline = re.findall(r"`perfmodel ([a-z][^`]*)`", text)
    for command in [*(shown.removeprefix("perfmodel ") for shown in snippets.commands_shown(text)), *inline]:
        words = command.split()
        if words[0] not in VERBS:
            pytest.fail(f"{name(page)}: no verb {words[0]} in: perfmodel {command}")
        known = reference.help_of(words[0])
        depth = 1
        while words[depth : depth + 1] and words[depth] in reference.subcommands(known):
            depth += 1
            known = reference.help_of(*words[:depth])
        for flag in re.findall(r"(?<=\s)--?[a-z][a-z0-9-]*", command):
            assert re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", known), (
                f"{name(page)}: {flag} in: {command}"
            )


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_and_pictures_are_there(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if re.match(r"https?:|mailto:", target) or "_generated/" in target:
            continue
        assert (page.parent / target).exists(), f"{name(page)}: {target}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CITATION.cff"], ids=name)
def test_text_names_no_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"(?<![\w.])/(home|root|work|tmp|Users)/", text)


@pytest.mark.parametrize("path", EXAMPLES, ids=name)
def test_examples_do_what_their_comments_say(path: Path, tmp_path: Path) -> None:
    commands = re.findall(r"^#   (perfmodel .*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert commands
    with snippets.workplace(tmp_path):
        for command in commands:
            marked = f"<!-- run -->\n```console\n$ {command} --quiet\n```"
            (block,) = snippets.blocks(marked)
            code = 1 if "audit" in command else 0  # the slides of the examples are bad ones
            assert snippets.run(block).codes == (code,), command


def test_counts_are_those_of_the_catalogue() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    catalog = Catalog.default()
    for kind in ("accelerators", "workloads"):
        found = re.search(rf"(\d+) {kind}", text)
        assert found is not None
        assert int(found[1]) == len(catalog.names(kind))


def test_a_wrong_block_is_found(tmp_path: Path) -> None:
    text = '<!-- run exit=0 keys="ceiling|no such words" -->\n```console\n$ perfmodel law amdahl -k 1,2\nold\n```\n'
    with snippets.workplace(tmp_path):
        (block,) = snippets.blocks(text)
        found = snippets.problems(block, snippets.run(block))
        assert found == [
            "the page lacks 'ceiling'",
            "the output lacks 'no such words'",
            "the page lacks 'no such words'",
        ]
        renewed = snippets.refreshed(text)
    assert "old" not in renewed
    assert "Amdahl's law" in renewed
    assert renewed.startswith(text.split("old")[0])
    assert renewed.endswith("```\n")


def test_an_exact_block_differs_in_its_last_digit(tmp_path: Path) -> None:
    text = (
        "<!-- run exact=yes from=Curves -->\n```console\n$ perfmodel law amdahl --serial 0.05 -k 1..64\n```\n"
    )
    with snippets.workplace(tmp_path):
        page = snippets.refreshed(text)
        (block,) = snippets.blocks(page)
        outcome = snippets.run(block)
        assert snippets.problems(block, outcome) == []
        (wrong,) = snippets.blocks(page.replace("15.4217", "15.4218"))
        (found,) = snippets.problems(wrong, outcome)
    assert "15.4217" in found
    assert "15.4218" in found


def test_an_exit_code_that_differs_is_found(tmp_path: Path) -> None:
    text = "<!-- run exit=0 -->\n```console\n$ perfmodel law nonsense\n```\n"
    with snippets.workplace(tmp_path):
        (block,) = snippets.blocks(text)
        (found,) = snippets.problems(block, snippets.run(block))
        assert found.startswith("exit codes (2,), not 0")
        with pytest.raises(ValueError, match="exit codes"):
            snippets.refreshed(text)


ENVELOPE = {
    "version": "9.9",
    "result": {
        "modes": {
            "datasheet": {
                "families": 1200, "points": 3400, "median_ape": 0.123, "mean_ape": 0.2, "p90_ape": 0.5, "coverage_90": 0.91,
                "baselines": {"ideal": {"median_ape": None}, "usl": {"median_ape": 0.4}, "ring_law": {"median_ape": 0.3}},
            },
            "one_node": {"families": 0, "points": 0},
        },
        "schemes": {
            "stranger": {
                "modes": {
                    "datasheet": {
                        "points": 3300,
                        "by_source_weight": {
                            "sources": 17, "points": 3300, "median_ape": 0.2, "mean_ape": 0.3, "p90_ape": 0.6, "coverage_90": 0.89,
                        },
                        "baselines": {"constant_mfu": {"median_ape": 0.1, "by_source_weight": {"median_ape": 0.35}}},
                    }
                }
            }
        },
        "collectives": {"points": 55, "median_ape": 0.05, "mean_ape": 0.06, "p90_ape": 0.1},
    },
}  # fmt: skip


def test_accuracy_table() -> None:
    table = accuracy.table(ENVELOPE)
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert len(rows) == 4
    for text in ("17", "3,300", "20.0 %", "30.0 %", "60.0 %", "89 %", "35.0 % (constant mfu)"):
        assert text in rows[2]
    assert "known stack" not in rows[2]
    for text in ("known stack", "3,400", "12.3 %", "20.0 %", "50.0 %", "91 %", "30.0 % (ring law)"):
        assert text in rows[3]
    assert "55 measured sweep points" in table
    assert "version 9.9" in table


def test_accuracy_goes_between_the_markers_of_the_readme() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    fresh = accuracy.replaced(page, "| a table |")
    assert accuracy.between(fresh) == "| a table |"
    assert accuracy.replaced(fresh, accuracy.between(page)) == page
    with pytest.raises(ValueError, match="accuracy"):
        accuracy.between("no markers")


def test_reference_pages_hold_every_verb_and_spec() -> None:
    cli, specs = reference.cli_page(), reference.spec_page()
    for verb in VERBS:
        assert f"\n## {verb}\n" in cli
    assert "### catalog lint" in cli
    for spec in (
        "accelerator",
        "link",
        "node",
        "cluster",
        "workload",
        "layout",
        "price",
        "grid",
        "job",
        "claim",
        "policies",
    ):
        assert f"\n## {spec}\n" in specs
    for row in (
        "| `memory` | `80 GB` | Device memory. |",
        "| `workload` (required) | a name or a mapping (Workload) |",
    ):
        assert row in specs
    assert "optimistic" in reference.limits_table()


def test_a_report_from_elsewhere_brings_its_pictures(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "plot.svg").write_text("<svg/>")
    page = tmp_path / "REPORT.md"
    page.write_text(
        "![a](plot.svg) ![gone](no.svg) [data](points.csv) [site](https://example.org) [up](#top)"
    )
    text = reference.relocated(page, tmp_path / "here")
    assert text == "![a](plot.svg) gone data (`points.csv`) [site](https://example.org) [up](#top)"
    assert (tmp_path / "here" / "plot.svg").is_file()
