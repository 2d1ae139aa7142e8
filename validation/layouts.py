"""Write docs/layouts.md: layouts that a search finds beside those that authors used, and how pairs are ordered.

Run from a checkout: `python validation/layouts.py`. Predictions are held out: the beliefs that price a run were
fitted without its group.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from studies.layouts import ordering, search_beside

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.physics.operations import LANGUAGE_KINDS
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.layout import layout_words
from perfmodel.validate.corpus import read_corpus
from perfmodel.validate.fitting import held_out, measured_families
from perfmodel.validate.folds import shipped_folds
from perfmodel.validate.protocol import score_mode
from perfmodel.validate.resolve import Resolved, resolve
from perfmodel.validate.validation import shipped_corpus

OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "layouts.md"
LEAST_PARAMS = 5e9  # smaller models need no search


def chosen_rows(resolved: Resolved) -> list[int]:
    """One run per source, model, accelerator and precision: the largest K with a stated batch and layout."""
    data = resolved.observations
    best: dict[tuple[str, ...], int] = {}
    for row, point in enumerate(resolved.points):
        family = int(data.family[row])
        meta = resolved.families[family].text
        stated = all(point.number[name] is not None for name in ("tp", "pp", "global_batch"))
        if (
            not stated
            or data.kinds[family] not in LANGUAGE_KINDS
            or float(np.broadcast_to(data.ops.params, data.target.shape)[row]) < LEAST_PARAMS
            or float(np.broadcast_to(data.ops.trainable_fraction, data.target.shape)[row]) < 1.0
        ):
            continue
        key = tuple(meta[name] for name in ("source", "workload", "accelerator", "precision"))
        if key not in best or data.at.k[row] > data.at.k[best[key]]:
            best[key] = row
    return [best[key] for key in sorted(best)]


def words(layout: dict[str, Any] | None) -> str:
    """A layout in a cell of a table."""
    if layout is None:
        return "none fits"
    return layout_words(layout, micro_batch_of_one=True)


def page(pairs: dict[str, Any], runs: list[dict[str, Any]]) -> str:
    """The page as Markdown."""
    lines = [
        "# Layouts: the search beside the authors' choice",
        "",
        "Written by `validation/layouts.py`. Every run is priced with beliefs that were fitted without its group.",
        "",
        "## Two layouts of one model on one machine",
        "",
        f"Where a source ran several layouts of one model on one machine at one K and batch, the model orders "
        f"{pairs['agree']:,} of {pairs['pairs']:,} pairs that differ by more than 10 % as the measurement does "
        f"({pairs['share']:.1%}); with each of the {pairs['models']} models weighing the same, "
        f"{pairs['share_by_model']:.1%}.",
        "",
        "| source | pairs | ordered as measured |",
        "|:--|--:|--:|",
    ]
    lines += [
        f"| {name} | {row['pairs']:,} | {row['share']:.0%} |" for name, row in pairs["by_source"].items()
    ]
    faster = [run["theirs_s"] / run["found_s"] for run in runs if run["found_s"]]
    lines += [
        "",
        "## What the search would have chosen",
        "",
        "At the authors' K, batch and machine. `gain` is the predicted time of their layout over that of the one "
        f"found; the median is {np.median(faster):.2f}. A gain is a prediction, not a measurement: authors also "
        "weigh what this model does not know, such as what their framework supported that year.",
        "",
        "| source | model | accelerator | K | batch | measured | predicted | their layout | found | gain |",
        "|:--|:--|:--|--:|--:|--:|--:|:--|:--|--:|",
    ]
    for run in runs:
        gain = f"{run['theirs_s'] / run['found_s']:.2f}" if run["found_s"] else "-"
        lines.append(
            f"| {run['source']} | {run['workload']} | {run['accelerator']} | {run['k']:,} | "
            f"{run['global_batch']:,.0f} | {run['measured_s']:.3g} s | {run['theirs_s']:.3g} s | "
            f"{words(run['theirs'])} | {words(run['found'])} | {gain} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Read the corpus, score it, write the page."""
    resolved = resolve(read_corpus(shipped_corpus()), Catalog.default())
    data = resolved.observations
    beliefs_for = held_out(resolved, shipped_folds(), shipped_beliefs(), "group")
    ids = measured_families(data)
    pairs = ordering(resolved, score_mode(data, "datasheet", ids, beliefs_for))
    runs = search_beside(resolved, beliefs_for, chosen_rows(resolved))
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(page(pairs, runs), encoding="utf-8")
    print(f"{OUTPUT}: {pairs['share']:.1%} of {pairs['pairs']} pairs, {len(runs)} runs", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
