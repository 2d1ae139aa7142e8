"""The HTML report: one file, no network, answer first, with the result inside so that it can be read back."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources

from perfmodel.errors import Problem, SpecError
from perfmodel.report import svg, text, timeline, workers
from perfmodel.report.kinds import rendering_of
from perfmodel.report.model import Chart, Envelope, Role, Table, inputs_of, kind_of, mappings, result_of
from perfmodel.report.stamp import Stamp, stamp
from perfmodel.report.tables import tables

MOST_ROWS = 250  # of one table in the page; the rest is in the embedded result
_PACK_FROM = 60_000  # characters of JSON beyond which it is stored compressed
_MOST_UNPACKED = 200_000_000
_SECTIONS: tuple[tuple[Role, str], ...] = (
    ("decision", "Decision"),
    ("curve", "In numbers"),
    ("breakdown", "Breakdown"),
    ("assumptions", "Assumptions, their sources and how sure they are"),
    ("sensitivity", "Sensitivity"),
    ("limits", "What is not modelled, and which way that biases the answer"),
    ("detail", "Details"),
)
_TAGS = {"datasheet", "measured", "calibrated", "assumed", "pass", "fail", "FAIL", "undecided", "note"}
_TAGS |= {"suspicious", "impossible", "consistent"}
_ISLAND = re.compile(
    r'<script type="(application/json|text/plain)" id="perfmodel-result"( data-packed="gzip")?>(.*?)</script>',
    re.DOTALL,
)


def render(envelope: Envelope, command: str = "") -> str:
    """The whole page as text. Everything that a user wrote is escaped; the page loads nothing."""
    kind = rendering_of(envelope)
    mark = stamp(envelope, command)
    title = kind.title(envelope)
    found = tables(envelope)
    charts = rendering_of(envelope).charts(envelope)
    body = [
        f"<header><h1>{escape(title)}</h1>{_answer(envelope, kind.answer(envelope))}{_facts(envelope)}</header><main>",
        _figure(charts[0], "chart-0") if charts else "",
        timeline.figure(drawn) if isinstance(drawn := result_of(envelope).get("timeline"), Mapping) else "",
        workers.figures(mappings(result_of(envelope).get("workers"))),
        _notes(kind.notes(envelope)),
    ]
    for role, heading in _SECTIONS:
        group = [table for table in found if table.role == role and table.rows]
        extra = _grid(charts[1:]) if role == "breakdown" and len(charts) > 1 else ""
        if not group and not extra:
            continue
        inner = extra + "".join(
            _table(table, alone=len(group) == 1 and table.title == heading) for table in group
        )
        if role == "detail":
            body.append(f"<details><summary>{heading}</summary>{inner}</details>")
        else:
            body.append(
                f'<section aria-label="{escape(heading, quote=True)}"><h2>{heading}</h2>{inner}</section>'
            )
    body += ["</main>", _footer(envelope, mark), _island(envelope)]
    script, style = asset("report.js"), asset("report.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="generator" content="perfmodel {escape(mark.version, quote=True)}">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n<body>\n"
        + "\n".join(body)
        + f"\n<script>{script}</script>\n</body></html>\n"
    )


def read(page: str) -> dict[str, object]:
    """The envelope inside a report; a `SpecError` when there is none."""
    match = _ISLAND.search(page)
    if match is None:
        raise SpecError(Problem(code="R001", message="this HTML file holds no perfmodel result"))
    try:
        if match.group(2):
            packed = gzip.GzipFile(fileobj=_bytes(match.group(3)))
            raw = packed.read(_MOST_UNPACKED + 1)
            if len(raw) > _MOST_UNPACKED:
                raise ValueError("the packed result is too large")
            found = json.loads(raw)
        else:
            found = json.loads(match.group(3))
    except (ValueError, OSError, EOFError, zlib.error, RecursionError) as error:
        raise SpecError(
            Problem(code="R002", message=f"the result inside the HTML file is damaged: {error}")
        ) from None
    if not isinstance(found, dict):
        raise SpecError(Problem(code="R002", message="the result inside the HTML file is not an envelope"))
    return found


def fragment(envelope: Envelope) -> str:
    """Answer, main chart and main tables without page furniture, for notebooks."""
    kind = rendering_of(envelope)
    parts = [f"<p><strong>{escape(kind.title(envelope))}</strong><br>{escape(kind.answer(envelope))}</p>"]
    charts = rendering_of(envelope).charts(envelope)
    if charts:
        parts.append(
            svg.legend(charts[0]).replace("<button type=", "<span data-type=").replace("</button>", "</span>")
        )
        parts.append(svg.draw(charts[0], identity="perfmodel-chart"))
    parts += [
        _table(table) for table in tables(envelope) if table.role in ("decision", "curve") and table.rows
    ]
    parts.append(f"<p class='note'>{escape(stamp(envelope).line)}</p>")
    return "".join(parts)


def _answer(envelope: Envelope, answer: str) -> str:
    if not answer:
        return ""
    verdict = re.sub(r"[^a-z]", "", str(result_of(envelope).get("verdict", "")).lower()[:20])
    extra = (
        f" verdict-{verdict}"
        if verdict in ("pass", "fail", "undecided", "consistent", "suspicious", "impossible")
        else ""
    )
    return f'<p class="answer{extra}">{escape(answer)}</p>'


def _facts(envelope: Envelope) -> str:
    facts = rendering_of(envelope).facts(envelope)
    cells = "".join(
        f"<div><dt>{escape(label)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for label, value, more in facts
    )
    return f'<dl class="facts">{cells}</dl>' if cells else ""


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _figure(chart: Chart, identity: str, width: int = 720) -> str:
    note = f" <small>{escape(chart.note)}</small>" if chart.note else ""
    wide = svg.draw(chart, width=width, height=min(380, width * 2 // 3), identity=f"{identity}-w")
    narrow = svg.draw(chart, width=360, height=300, identity=f"{identity}-n")
    return (
        f"<figure><figcaption>{escape(chart.title)}{note}</figcaption>{svg.legend(chart)}"
        f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div></figure>'
    )


def _grid(charts: Sequence[Chart]) -> str:
    return f'<div class="charts">{"".join(_figure(chart, f"chart-{i}", 500) for i, chart in enumerate(charts, start=1))}</div>'


def _table(table: Table, *, alone: bool = False) -> str:
    shown = text.table_text(table)
    right = [text.numeric(table.values(i)) for i in range(len(shown))]
    heads = "".join(
        f'<th scope="col"{_class(n)}><button type="button">{escape(heading) or "&nbsp;"}</button></th>'
        for (heading, _), n in zip(shown, right, strict=True)
    )
    rows = []
    for r in range(min(len(table.rows), MOST_ROWS)):
        cells = []
        for i, (_, values) in enumerate(shown):
            raw = table.values(i)[r]
            if right[i]:
                cells.append(
                    f'<td class="n" data-v="{"" if raw is None else repr(float(raw))}">{escape(values[r])}</td>'
                )
            else:
                whole = ' class="w"' if len(values[r]) <= 26 else ""
                tagged = table.heads[i].title in ("confidence", "severity", "verdict") and values[r] in _TAGS
                shown_text = (
                    f'<span class="tag {values[r]}">{values[r]}</span>' if tagged else escape(values[r])
                )
                cells.append(f"<td{whole}>{shown_text}</td>")
        chosen = ' class="chosen"' if r in table.marked else ""
        rows.append(f"<tr{chosen}>{''.join(cells)}</tr>")
    left_out = len(table.rows) - MOST_ROWS
    note = table.note + (f" {left_out:,} more rows are in the embedded result." if left_out > 0 else "")
    title = "" if alone else f"<h3>{escape(table.title)}</h3>"
    label = escape(table.title, quote=True)
    return (
        f'{title}<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table class="sortable">'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        + (f'<p class="note">{escape(note.strip())}</p>' if note.strip() else "")
    )


def _class(number: bool) -> str:
    return ' class="n"' if number else ""


def _footer(envelope: Envelope, mark: Stamp) -> str:
    names = inputs_of(envelope)
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(_short(names.get(name)))}</td><td><code>{escape(digest[:16])}</code></td></tr>"
        for name, digest in mark.inputs
    )
    command = f"<pre>{escape(mark.command)}</pre>" if mark.command else ""
    return (
        '<footer><section aria-label="Reproduce"><h2>Reproduce</h2>'
        f"<p>perfmodel {escape(mark.version)}, {escape(kind_of(envelope) or 'result')}, seed {escape(mark.seed)}, "
        f"inputs <code>{escape(mark.digest[:16])}</code> (SHA-256)</p>{command}"
        '<details><summary>Inputs with hashes</summary><div class="scroll"><table><thead><tr><th scope="col">input</th>'
        f'<th scope="col">value</th><th scope="col">SHA-256</th></tr></thead><tbody>{rows}</tbody></table></div></details>'
        "<p>The whole result is embedded in this file: <code>perfmodel report FILE.html --format json</code> prints it.</p>"
        "</section></footer>"
    )


def _short(value: object) -> str:
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= 160 else shown[:157] + "..."


def _island(envelope: Envelope) -> str:
    """The envelope as a data block that no text in it can close or escape from."""
    raw = json.dumps(envelope, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if len(raw) > _PACK_FROM:
        packed = base64.b64encode(gzip.compress(raw.encode("utf-8", "surrogatepass"), 9, mtime=0)).decode()
        return f'<script type="text/plain" id="perfmodel-result" data-packed="gzip">{packed}</script>'
    for sign in ("<", ">", "&", "\u2028", "\u2029"):
        raw = raw.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/json" id="perfmodel-result">{raw}</script>'


def _bytes(encoded: str) -> io.BytesIO:
    return io.BytesIO(base64.b64decode(encoded, validate=True))


@cache
def asset(name: str) -> str:
    """A style sheet or script of the report."""
    return resources.files("perfmodel.report").joinpath("assets", name).read_text(encoding="utf-8")
