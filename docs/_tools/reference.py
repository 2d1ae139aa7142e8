"""Pages written from the code: spec reference, verbs, notebooks, limits, validation."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import accuracy
import notebooks

ROOT = Path(__file__).resolve().parents[2]
_SHARED = ("name", "title", "source", "date", "confidence", "notes", "extends", "file")


def write_all(folder: Path) -> None:
    """Write every generated page into `folder`, leaving what has not changed untouched."""
    pages = {
        "specs.md": spec_page(),
        "cli.md": cli_page(),
        "limits.md": limits_table(),
        "accuracy.md": accuracy.between((ROOT / "README.md").read_text(encoding="utf-8")) + "\n",
    }
    images = folder / "notebooks" / "images"
    images.mkdir(parents=True, exist_ok=True)
    for path in notebooks.notebooks():
        pages[f"notebooks/{path.stem}.md"] = notebooks.to_markdown(notebooks.read(path), path.stem, images)
    report = ROOT / "validation" / "REPORT.md"
    missing = "# Accuracy report\n\nNot written yet: `make validate` writes it.\n"
    pages["validation-report.md"] = relocated(report, folder) if report.is_file() else missing
    for name, text in pages.items():
        target = folder / name
        if not target.is_file() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")


# Specs


def spec_page() -> str:
    """Every spec with its keys, from the JSON Schemas."""
    from perfmodel.specs.schema import names, schema

    parts = [
        "# Spec reference",
        "Written from the JSON Schemas that `perfmodel schema NAME` prints. Every value may also be written as "
        "`{value: ..., source: ..., date: ..., confidence: datasheet|measured|calibrated|assumed}`. A value with a "
        "dimension needs its unit; a plain number may be written `25.6 M` or `80 %`. Catalogue entries may say `extends: NAME`; "
        "`name, title, source, date, confidence, notes` mean the same in each of them and are left out below.",
    ]
    helpers: dict[str, Mapping[str, Any]] = {}
    titles = {}
    for name in names():
        if name == "grids":  # many grids in one file: the same keys
            continue
        found = schema(name)
        titles[name] = found
        for key, item in found["$defs"].items():
            if "properties" in item and key.lower() not in names() and key not in ("Sourced", "Offer"):
                helpers.setdefault(key, item)
    for name, found in titles.items():
        parts += [f"## {name}", _described(found), _keys(found)]
    parts += ["## Parts of the above", "Mappings that stand inside other specs."]
    for key, item in sorted(helpers.items()):
        parts += [f"### {key}", _described(item), _keys(item)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _described(item: Mapping[str, Any]) -> str:
    return escape(" ".join(str(item.get("description", "")).split()))


def _keys(item: Mapping[str, Any]) -> str:
    required = set(item.get("required", ()))
    rows = ["| key | value | meaning |", "|:--|:--|:--|"]
    for key, field in item["properties"].items():
        if key in _SHARED and "extends" in item["properties"]:
            continue
        name = f"`{key}`" + (" (required)" if key in required else "")
        rows.append(f"| {name} | {' or '.join(values(field))} | {_described(field)} |")
    return "\n".join(rows)


def values(field: Mapping[str, Any]) -> list[str]:
    """What may be written for a key, most specific first."""
    found: list[str] = []
    for form in field.get("anyOf", [field]):
        text = _form(form)
        if text and text not in found:
            found.append(text)
    if "default" in field and not isinstance(field["default"], dict | list):
        found[-1:] = [f"{found[-1]} (default `{field['default']}`)"] if found else []
    return found


def _form(form: Mapping[str, Any]) -> str:
    if "$ref" in form:
        name = str(form["$ref"]).rsplit("/", 1)[-1]
        return "" if name == "Sourced" else f"a mapping ({name})"
    if "const" in form:
        return f"`{form['const']}`"
    if "enum" in form:
        return ", ".join(f"`{item}`" for item in form["enum"])
    kind = form.get("type")
    if kind == "null":
        return ""
    if form.get("examples"):
        return ", ".join(f"`{item}`" for item in form["examples"])
    if kind == "array":
        inner = values(form.get("items", {}))
        return "a list of " + (" or ".join(inner) if inner else "values")
    if kind == "object":
        inner = (
            values(form["additionalProperties"]) if isinstance(form.get("additionalProperties"), dict) else []
        )
        return "a mapping" + (f" to {' or '.join(inner)}" if inner else "")
    if kind == "string" and "kMGT" in form.get("pattern", ""):
        return ""  # a number as text: the head of the page says so once
    if "catalogue" in form.get("description", ""):
        return "a name"
    return {"string": "text", "integer": "an integer", "number": "a number", "boolean": "true or false"}.get(
        str(kind), ""
    )


def escape(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("{", "&#123;").replace("*", "\\*")


# Verbs


def cli_page() -> str:
    """Every verb with its help, as the terminal prints it."""
    from perfmodel.cli.main import VERBS

    parts = [
        "# Verbs",
        "Written from the help of the verbs. Every verb that takes `JOB.yaml` also takes `-w` and `-c` in its "
        "place. Errors and progress go to stderr, data to stdout.",
        "| exit code | means |\n|--:|:--|\n| 0 | good |\n| 1 | a policy, validation or audit failed, nothing fits, or nothing meets the limits |\n"
        "| 2 | bad usage or bad input |\n| 3 | a fault of perfmodel |\n| 130 | interrupted |",
    ]
    for verb, line in VERBS.items():
        text = help_of(verb)
        parts += [f"## {verb}", escape(line), f"```text\n{text}\n```"]
        for sub in subcommands(text):
            below = help_of(verb, sub)
            parts += [f"### {verb} {sub}", f"```text\n{below}\n```"]
            parts += [
                f"#### {verb} {sub} {one}\n\n```text\n{help_of(verb, sub, one)}\n```"
                for one in subcommands(below)
            ]
    return "\n\n".join(parts) + "\n"


def help_of(*words: str) -> str:
    """The help text of a verb, at a fixed width and without colours."""
    from perfmodel.cli.main import main

    out = io.StringIO()
    with fixed_width(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main([*words, "--help"])
    if code != 0:
        raise RuntimeError(f"perfmodel {' '.join(words)} --help: {out.getvalue()}")
    return "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())


def subcommands(text: str) -> list[str]:
    """Names under "Commands:" in a help text."""
    _, found, tail = text.partition("\nCommands:\n")
    return re.findall(r"^  (\S+)  ", tail, re.MULTILINE) if found else []


@contextlib.contextmanager
def fixed_width() -> Iterator[None]:
    """A terminal of 88 columns."""
    import os

    before = {key: os.environ.get(key) for key in ("COLUMNS", "NO_COLOR")}
    os.environ.update({"COLUMNS": "88", "NO_COLOR": "1"})
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


# Limits and validation


def limits_table() -> str:
    """What every prediction says that it leaves out."""
    from perfmodel.decide.basis import NOT_MODELLED

    rows = ["| left out of a prediction | the prediction is then |", "|:--|:--|"]
    rows += [f"| {effect} | {bias} |" for effect, bias in NOT_MODELLED]
    return "\n".join(rows) + "\n"


def relocated(path: Path, folder: Path) -> str:
    """A page from elsewhere in the repository: its images come along, links to other files become names."""
    text = path.read_text(encoding="utf-8")

    def image(match: re.Match[str]) -> str:
        found = path.parent / match["target"]
        if not found.is_file():
            return match["words"]
        shutil.copyfile(found, folder / found.name)
        return f"![{match['words']}]({found.name})"

    def link(match: re.Match[str]) -> str:
        return (
            match[0] if re.match(r"https?:|#", match["target"]) else f"{match['words']} (`{match['target']}`)"
        )

    text = re.sub(r"!\[(?P<words>[^\]]*)\]\((?P<target>[^)\s]+)\)", image, text)
    return re.sub(r"(?<!!)\[(?P<words>[^\]]*)\]\((?P<target>[^)\s]+)\)", link, text)
