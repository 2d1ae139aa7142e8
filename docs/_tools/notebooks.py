"""Run notebooks without Jupyter: plain exec of the code cells in order, outputs as text, HTML and SVG."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "notebooks"


def notebooks() -> list[Path]:
    """The notebooks of the examples."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> dict[str, Any]:
    """A notebook's JSON."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def dump(notebook: Mapping[str, Any]) -> str:
    """A notebook as the text that Jupyter would write."""
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def source(cell: Mapping[str, Any]) -> str:
    """The text of a cell."""
    return "".join(cell["source"])


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder, as Jupyter does for a notebook in it."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)


def execute(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of its code cells, run in order in one namespace and the current folder."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for number, cell in enumerate(notebook["cells"], start=1):
        fresh = {
            "cell_type": cell["cell_type"],
            "id": f"cell-{number}",
            "metadata": {},
            "source": cell["source"],
        }
        if cell["cell_type"] == "code":
            count += 1
            fresh |= {"execution_count": count, "outputs": _run(source(cell), scope, count)}
        cells.append(fresh)
    return {**notebook, "cells": cells}


def _run(code: str, scope: dict[str, Any], count: int) -> list[dict[str, Any]]:
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    out = io.StringIO()
    value = None
    with contextlib.redirect_stdout(out):
        exec(compile(tree, "<cell>", "exec"), scope)  # noqa: S102
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), scope)  # noqa: S307
    outputs: list[dict[str, Any]] = []
    if out.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(out.getvalue())})
    if value is not None:
        data = {kind: _lines(text) for kind, text in display(value).items()}
        outputs.append(
            {"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"}
        )
    return outputs


def display(value: Any) -> dict[str, str]:
    """How a notebook shows a value, by media type."""
    if type(value).__module__.startswith("matplotlib") and hasattr(value, "savefig"):
        return {"image/svg+xml": _svg(value), "text/plain": "<Figure>"}
    html = getattr(value, "_repr_html_", None)
    text = html() if html is not None else None
    if text is None:
        return {"text/plain": repr(value)}
    plain = str(value) if type(value).__module__.startswith("pandas") else f"<{type(value).__name__}>"
    return {"text/html": text, "text/plain": plain}


def _svg(figure: Any) -> str:
    from perfmodel.report.plots import save

    out = io.BytesIO()
    save(figure, out, "svg")
    return re.sub(r"^.*?(?=<svg)", "", out.getvalue().decode(), flags=re.DOTALL)


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def to_markdown(notebook: Mapping[str, Any], name: str, images: Path) -> str:
    """The notebook as a page; SVG outputs are written to `images`."""
    parts = []
    for number, cell in enumerate(notebook["cells"], start=1):
        if cell["cell_type"] == "markdown":
            parts.append(source(cell))
            continue
        parts.append(f"```python\n{source(cell)}\n```")
        for output in cell["outputs"]:
            parts.append(_output(output, f"{name}-{number}", images))
    return "\n\n".join(parts) + "\n"


def _output(output: Mapping[str, Any], stem: str, images: Path) -> str:
    if output["output_type"] == "stream":
        return "```text\n" + "".join(output["text"]).rstrip("\n") + "\n```"
    data = {kind: "".join(text) for kind, text in output["data"].items()}
    if "image/svg+xml" in data:
        (images / f"{stem}.svg").write_text(data["image/svg+xml"], encoding="utf-8")
        return f"![plot of the cell above](images/{stem}.svg)"
    if "text/html" in data:
        return f'````{{raw}} html\n<div class="notebook-output">{data["text/html"]}</div>\n````'
    return "```text\n" + data["text/plain"] + "\n```"
