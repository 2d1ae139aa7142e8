"""`perfmodel validate`, its serving half: measured runs of servers against predictions, with what was left unscored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from perfmodel.serving.beliefs import ServingBeliefs, shipped_beliefs
from perfmodel.specs.catalog import Catalog
from perfmodel.validate import serving_baselines as baselines
from perfmodel.validate.folds import STRANGER
from perfmodel.validate.serving_predicted import (
    SCHEMES,
    Fitted,
    LeftOut,
    Predicted,
    predict,
    predict_left_out,
    shipped_left_out,
)
from perfmodel.validate.serving_rows import TARGETS, ServingRuns, reasons, resolve_runs
from perfmodel.validate.serving_scores import figures, knee_figures, learnt_bands, learnt_tails
from perfmodel.validate.serving_table import read_runs


def validate_serving(
    path: Path, catalog: Catalog, *, scheme: str, is_shipped: bool, refit: bool = False
) -> dict[str, object]:
    """Figures of every target; on the shipped corpus each run is predicted without its fold.

    `refit` fits the folds again instead of reading the shipped ones. On other runs the shipped beliefs are used as they are. Rows that cannot be predicted are listed with the reason.
    """
    rows = read_runs(path).rows
    runs = resolve_runs(rows, catalog)
    told: dict[str, object] = {"runs": len(rows), "scored": len(runs)}
    told |= {target: {"rows": 0, "sources": 0} for target in TARGETS}
    beliefs = shipped_beliefs()
    if len(runs):
        if is_shipped:
            scheme = (
                "source" if scheme == STRANGER else scheme
            )  # nothing of a source is given to a stranger here
            left_out = Fitted(runs).left_out(scheme) if refit else shipped_left_out(runs, scheme)
            found = predict_left_out(runs, left_out)
            simple = baselines.constants_left_out(runs, left_out.folds)
        else:
            found = predict(runs, beliefs)
            simple = baselines.constants(runs, beliefs.meta.get("constants", {}))
        scored = figures(runs, found, beliefs)
        beside = baselines.figures(runs, {"roofs": baselines.roofs(runs), "constant_shares": simple})
        for target, laws in beside.items():
            scored[target]["baselines"] = laws
        told |= scored
        told["knee"] = knee_figures(runs, found)
        told["not_predicted"] = _not_predicted(runs, found)
    told["unresolved"] = reasons(runs.unresolved)
    told["contradicted"] = reasons(runs.contradicted)
    told["unseen"] = _unseen(runs, beliefs)
    return told


def learn(runs: ServingRuns, date: str) -> tuple[ServingBeliefs, Fitted, dict[str, LeftOut]]:
    """Beliefs from measured runs, with bands and tails from whole publishers left out, and those of every scheme."""
    fitted = Fitted(runs)
    folds = {scheme: fitted.left_out(scheme) for scheme in SCHEMES}
    left_out = folds["source"]
    tails = learnt_tails(runs, predict_left_out(runs, left_out))
    tailed = {fold: replace(beliefs, tails=tails) for fold, beliefs in left_out.beliefs.items()}
    left_out = replace(left_out, beliefs=tailed)
    bands = learnt_bands(runs, predict_left_out(runs, left_out))
    table = baselines.grid(runs)
    shares = baselines.best(runs, table, np.ones(len(runs), dtype=bool))
    made = fitted.beliefs()
    meta = {"date": date, **made.meta, "constants": {kind: list(pair) for kind, pair in shares.items()}}
    return replace(made, bands=bands, tails=tails, meta=meta), fitted, folds


def _not_predicted(runs: ServingRuns, found: Predicted) -> dict[str, int]:
    """Measured values by target that the model has no steady answer for."""
    return {
        target: int((np.isfinite(runs.measured[target]) & ~np.isfinite(found.log[target])).sum())
        for target in TARGETS
    }


def _unseen(runs: ServingRuns, beliefs: ServingBeliefs) -> list[dict[str, object]]:
    """Values of levels that no run of the fit has, with their rows: the bands there are of what is not known."""
    known = {(level, value) for _, level, value in beliefs.values if beliefs.counts.get((_, level, value))}
    found: list[dict[str, object]] = []
    for level in ("engine", "vendor", "link"):
        values, counts = np.unique(runs.features.get(level, np.array([], dtype=str)), return_counts=True)
        found += [
            {"level": level, "value": str(value), "rows": int(count)}
            for value, count in zip(values, counts, strict=True)
            if beliefs.is_fitted and (level, str(value)) not in known
        ]
    return found
