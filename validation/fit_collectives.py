"""Fit the collective coefficients on the shipped corpus and write priors and folds.

OMP_NUM_THREADS=1 python validation/fit_collectives.py    # some eight minutes; threads gain nothing on matrices this small
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

from perfmodel.calibrate.collectives import SCHEMA, pack
from perfmodel.files import pretty_json
from perfmodel.specs.catalog import Catalog
from perfmodel.validate.collectives import fit_all, fit_folds, read, validate_collectives

ROOT = Path(__file__).resolve().parent.parent
PRIORS = ROOT / "perfmodel" / "priors"
DATE = "2026-11-16"  # of the corpus, not of the run: the same input gives the same bytes


def main() -> int:
    """Fit, write, and print the figures that the written files give."""
    with (ROOT / "validation" / "measured" / "collectives.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    catalog = Catalog.default()
    data = read(rows, catalog)
    full = fit_all(data)
    sweeps = len(set(data.keys["sweep"].tolist()))
    meta = {"date": DATE, "sweeps": sweeps, "points": int(data.measured_log.size)}
    _write("collectives.yaml", pretty_json({**pack(full), "meta": meta}))
    folds = {"schema": f"{SCHEMA}/folds", "folds": fit_folds(data, full)}
    _write("collective_folds.yaml", json.dumps(folds, separators=(",", ":")))
    print(json.dumps(validate_collectives(rows, catalog, is_shipped=True), indent=1))
    return 0


def _write(name: str, text: str) -> None:
    (PRIORS / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
