"""Fit the serving coefficients on the shipped corpus and write perfmodel/priors/serving.yaml.

OMP_NUM_THREADS=1 python validation/fit_serving.py    # some twenty seconds; threads gain nothing on matrices this small
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from perfmodel.serving.beliefs import to_mapping
from perfmodel.specs.catalog import Catalog
from perfmodel.validate.serving import learn
from perfmodel.validate.serving_rows import resolve_runs
from perfmodel.validate.serving_table import read_runs

ROOT = Path(__file__).resolve().parent.parent
PRIORS = ROOT / "perfmodel" / "priors" / "serving.yaml"
DATE = "2026-11-19"  # of the corpus, not of the run: the same input gives the same bytes


def main() -> int:
    """Fit, write, and say what was fitted."""
    begin = time.monotonic()
    rows = read_runs(ROOT / "validation" / "measured" / "serving" / "runs.csv").rows
    runs = resolve_runs(rows, Catalog.default())
    beliefs, fitted = learn(runs, DATE)
    PRIORS.write_text(text_of(to_mapping(beliefs)) + "\n", encoding="utf-8")
    told = f"{len(fitted.all.theta)} parameters, {len(fitted.thin)} of {len(runs)} rows"
    print(f"{told}, {fitted.all.rounds} rounds, {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return 0


def text_of(data: Any, depth: int = 0) -> str:
    """JSON with a line for each list: a change of one number is a change of one line."""
    if not isinstance(data, dict) or not data:
        return json.dumps(data)
    inner = ",\n".join(
        f"{' ' * (depth + 1)}{json.dumps(k)}: {text_of(v, depth + 1)}" for k, v in data.items()
    )
    return f"{{\n{inner}\n{' ' * depth}}}"


if __name__ == "__main__":
    sys.exit(main())
