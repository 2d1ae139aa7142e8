"""Docstrings on pages: references of several modules side by side, and what is not reStructuredText as it stands."""

from __future__ import annotations

import io
import re
from typing import Any

from docutils.core import publish_doctree
from sphinx.application import Sphinx

_REFERENCE = re.compile(r"^\.\. \[(\d+)\] ")
_MATH = re.compile(r"^( *)\.\. math::.*(\n(\1 +.*|\s*))*", re.MULTILINE)
_written: dict[str, list[str]] = {}


def remember(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Keep the docstring before other extensions read it, with its references as a list: labels would collide."""
    lines[:] = [_REFERENCE.sub(r"-  [\1] ", line) for line in lines]
    _written[name] = list(lines)


def check(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Show a docstring as it was written where it is not clean reStructuredText (tables of Markdown, for one)."""
    text = "\n".join(lines)
    complaints = io.StringIO()
    settings = {
        "report_level": 2,
        "halt_level": 6,
        "warning_stream": complaints,
        "file_insertion_enabled": False,
    }
    publish_doctree(_MATH.sub("", text), settings_overrides=settings)
    if complaints.getvalue():
        lines[:] = ["::", "", *(f"   {line}" for line in _written[name]), ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Before napoleon, and after it."""
    app.connect("autodoc-process-docstring", remember, priority=100)
    app.connect("autodoc-process-docstring", check, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
