"""The accuracy table of the README, from the result of `perfmodel validate`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

START, END = "<!-- accuracy: begin -->", "<!-- accuracy: end -->"
_MODES = {
    "datasheet": "nothing: specs and shipped beliefs only",
    "one_node": "runs on one node",
    "two_point": "runs at the two smallest K",
}


def table(envelope: Mapping[str, Any]) -> str:
    """Markdown table: a row per mode for strangers' runs, then for runs of known stacks, with the best simple answer beside."""
    result = envelope["result"]
    rows = [
        "| what was measured first | sources | points | median error | mean error | 90 % of errors below "
        "| in the 90 % band | best simple answer, median |",
        "|:--|--:|--:|--:|--:|--:|--:|:--|",
    ]
    strangers = (result.get("schemes") or {}).get("stranger", {}).get("modes", {})
    for modes, whose in ((strangers, "by_source_weight"), (result["modes"], "known")):
        for mode, words in _MODES.items():
            of_mode = modes.get(mode)
            if not of_mode or not of_mode.get("points"):
                continue
            known = whose == "known"
            found = of_mode if known else of_mode[whose]
            simple = {
                name: row if known else row.get(whose, row)
                for name, row in (of_mode.get("baselines") or {}).items()
            }
            cells = [
                f"known stack, {words}" if known else words,
                "-" if known else f"{found['sources']}",
                f"{found['points']:,}",
                percent(found["median_ape"]),
                percent(found["mean_ape"]),
                percent(found["p90_ape"]),
                percent(found["coverage_90"], 0),
                best_law(simple),
            ]
            rows.append("| " + " | ".join(cells) + " |")
    collectives = result.get("collectives") or {}
    if collectives.get("points"):
        rows += [
            "",
            f"Collectives alone: {collectives['points']:,} measured sweep points, median error "
            f"{percent(collectives['median_ape'])}, mean {percent(collectives['mean_ape'])}, 90 % below "
            f"{percent(collectives['p90_ape'])}.",
        ]
    rows += ["", f"Written from `perfmodel validate`, version {envelope['version']}."]
    return "\n".join(rows)


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction as per cent.

    >>> percent(0.0512), percent(None)
    ('5.1 %', '-')
    """
    return "-" if value is None else f"{100 * value:.{digits}f} %"


def best_law(baselines: Mapping[str, Mapping[str, float | None]]) -> str:
    """The simple answer with the least median error, by name."""
    scored = {name: row["median_ape"] for name, row in baselines.items() if row.get("median_ape") is not None}
    if not scored:
        return "-"
    name = min(scored, key=lambda key: (scored[key], key))
    return f"{percent(scored[name])} ({name.replace('_', ' ')})"


def between(text: str) -> str:
    """What stands between the markers of a page."""
    match = re.search(f"{re.escape(START)}\n(.*?)\n?{re.escape(END)}", text, re.DOTALL)
    if match is None:
        raise ValueError(f"no {START} ... {END}")
    return match[1]


def replaced(text: str, content: str) -> str:
    """The page with other content between its markers."""
    between(text)
    pattern = f"{re.escape(START)}\n.*?{re.escape(END)}"
    return re.sub(pattern, lambda _: f"{START}\n{content}\n{END}", text, flags=re.DOTALL)
