"""Formulas as MathML, which browsers draw themselves: pages need no script and no network."""

from __future__ import annotations

import html
import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

# Sizes of brackets: MathML stretches them by itself.
_SIZES = re.compile(r"\\[bB]igg?[lrm]?(?![a-zA-Z])")


def converted(text: str, node: nodes.Node, *, as_block: bool) -> str:
    """TeX as MathML; what cannot be converted is shown as it was written, with a warning."""
    try:
        return str(tex2mathml(_SIZES.sub("", text), as_block=as_block))
    except MathError as error:
        logging.getLogger(__name__).warning("formula %r: %s", text, error, location=node)
        return f"<code>{html.escape(text)}</code>"


def inline(writer: Any, node: nodes.math) -> None:
    """A formula in a line of text."""
    writer.body.append(converted(node.astext(), node, as_block=False))
    raise nodes.SkipNode


def block(writer: Any, node: nodes.math_block) -> None:
    """A formula by itself."""
    text = node.astext().strip()
    if "\\\\" in text and "\\begin" not in text:
        text = f"\\begin{{align*}}{text}\\end{{align*}}"
    writer.body.append(f'<div class="math">{converted(text, node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
