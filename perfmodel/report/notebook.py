"""Results in notebooks: an inline page fragment, and a data frame where pandas is installed."""

from __future__ import annotations

import re

from perfmodel.errors import UsageError
from perfmodel.report import html as page
from perfmodel.report.model import Envelope
from perfmodel.report.tables import header, main_table, rows


def html(envelope: Envelope) -> str:
    """What `_repr_html_` shows: answer, chart and main tables; styles stay inside the fragment."""
    return f'<div class="perfmodel-result"><style>{_scoped_style()}</style>{page.fragment(envelope)}</div>'


def frame(envelope: Envelope) -> object:
    """A pandas DataFrame of the main table: a row per K, base units, NaN where there is no value."""
    try:
        import pandas
    except ImportError:
        raise UsageError(
            "pandas is not installed", help="pip install pandas; --format csv and to_json() need nothing more"
        ) from None
    table = main_table(envelope)
    if table is None:
        return pandas.DataFrame()
    return pandas.DataFrame(rows(table), columns=[header(column) for column in table.heads])


def _scoped_style() -> str:
    """The report's style with every selector bound to the fragment: the notebook keeps its own look."""
    style = re.sub(r"@media print\{.*\}\s*$", "", page.asset("report.css"), flags=re.DOTALL)

    def bind(match: re.Match[str]) -> str:
        selectors = [
            ".perfmodel-result"
            if s.strip() in (":root", "html", "body")
            else f".perfmodel-result {s.strip()}"
            for s in match.group(1).split(",")
        ]
        return ",".join(selectors) + match.group(2)

    lines = []
    for line in style.splitlines():
        opening, inner = "", line
        media = re.match(r"(@media [^{]*\{)(.*)\}$", line)
        if media:
            opening, inner = media.groups()
        bound = re.sub(r"([^{}]+)(\{[^{}]*\})", bind, inner)
        lines.append(f"{opening}{bound}}}" if opening else bound)
    return "".join(lines)
