"""A page that is in a table of contents is no orphan."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_listed_pages_do_not_call_themselves_orphans():
    texts = {
        page: page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md") if "_build" not in page.parts
    }
    listed = {
        (page.parent / f"{entry}.md").resolve()
        for page, text in texts.items()
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for entry in re.findall(r"[\w/.-]+$", block, re.MULTILINE)
    }
    assert DOCS / "layouts.md" in listed
    assert [page.name for page, text in texts.items() if "orphan: true" in text and page in listed] == []
