"""Fit the shipped beliefs on the measured corpus and write perfmodel/priors/step.yaml and folds.yaml.

Deterministic. Usage: python validation/fit_priors.py [--keep-population]

The population is fitted to labels that follow the runs' scripts; bands, scatter and knees to the labels that sources state,
with whole sources left out (`perfmodel/validate/fitting.py`). Spreads of the levels are those of
`calibrate/population.py`: learnt ones follow the few sources that have many families.

With --keep-population the shipped population and its folds stay, and only what is tuned on held-out predictions is found
again: the scatter between jobs, the trust in laws, bands and the odds of knees (some six minutes).
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from perfmodel.beliefs.population import shipped_beliefs, to_mapping
from perfmodel.files import pretty_json
from perfmodel.specs.catalog import Catalog
from perfmodel.validate.corpus import read_corpus
from perfmodel.validate.fitting import finish, fit_everything
from perfmodel.validate.folds import shipped_folds
from perfmodel.validate.folds import to_mapping as folds_to_mapping
from perfmodel.validate.resolve import resolve

ROOT = Path(__file__).resolve().parent.parent
DATE = "2026-11-19"  # of the corpus, not of the run: the same data give the same bytes


def main() -> None:
    """Fit, then write both files."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {text}", file=sys.stderr, flush=True)

    measured, catalog = ROOT / "validation" / "measured", Catalog.default()
    resolved = resolve(read_corpus(measured), catalog)
    stated = resolve(read_corpus(measured, as_stated=True), catalog)
    data = resolved.observations
    meta = {"date": DATE, "families": len(data.names), "points": int(data.target.size)}
    if "--keep-population" in sys.argv[1:]:
        population = replace(shipped_folds(), bands={})
        beliefs, folds = finish(stated, population, replace(shipped_beliefs(), meta=meta), say)
    else:
        fitted = fit_everything(resolved, stated, spreads={}, meta=meta, workers=os.cpu_count() or 1, say=say)
        beliefs, folds = fitted.beliefs, fitted.folds
    folder = ROOT / "perfmodel" / "priors"
    # People read the beliefs, and what moved from fit to fit; nobody reads the folds.
    (folder / "step.yaml").write_text(pretty_json(to_mapping(beliefs)) + "\n", encoding="utf-8")
    packed = json.dumps(folds_to_mapping(folds), separators=(",", ":"))
    (folder / "folds.yaml").write_text(packed + "\n", encoding="utf-8")
    say("written")


if __name__ == "__main__":
    main()
