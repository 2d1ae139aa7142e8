"""Fit the shipped beliefs on the measured corpus and write perfmodel/priors/step.yaml and folds.yaml.

Deterministic. Usage: python validation/fit_priors.py
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from perfmodel.predict.beliefs import to_mapping
from perfmodel.specs.catalog import Catalog
from perfmodel.validate.corpus import read_corpus, resolve
from perfmodel.validate.fitting import fit_everything

ROOT = Path(__file__).resolve().parent.parent
DATE = "2026-11-16"  # of the corpus, not of the run: the same data give the same bytes


def main() -> None:
    """Fit, then write both files."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {text}", file=sys.stderr, flush=True)

    resolved = resolve(read_corpus(ROOT / "validation" / "measured"), Catalog.default())
    data = resolved.observations
    meta = {"date": DATE, "families": len(data.names), "points": int(data.target.size)}
    fitted = fit_everything(resolved, meta=meta, say=say)
    folder = ROOT / "perfmodel" / "priors"
    for name, content in (("step.yaml", to_mapping(fitted.beliefs)), ("folds.yaml", fitted.packed)):
        (folder / name).write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    say("written")


if __name__ == "__main__":
    main()
