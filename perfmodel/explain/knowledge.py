"""The shipped beliefs about one accelerator or link: measured on it, inherited, or assumed."""

from __future__ import annotations

import numpy as np

from perfmodel.beliefs.population import Beliefs
from perfmodel.physics.coefficients import LEVELS, MEANINGS, NAMES
from perfmodel.specs.hardware import Accelerator, Link

PER_WIDTH = "generation*width"
WORDS = {
    "accelerator": "accelerator", PER_WIDTH: "generation", "generation": "generation", "scale_up": "link",
    "scale_out": "link", "peer": "peer access",
}  # fmt: skip


def about(entry: object, beliefs: Beliefs) -> list[dict[str, object]]:
    """Each coefficient that depends on this hardware, with the finest level that runs have informed.

    measured: runs on this very accelerator or link, or on its generation where the coefficient goes no finer;
    inherited: runs on its generation or on such a link only; assumed: none of these, so what all jobs show stands in,
    with a wide spread. `families` counts the series of runs at that level, as in `Belief.basis` of a prediction.
    """
    levels = _levels(entry)
    rows = []
    for name in NAMES:
        finer = [level for level in levels if level in LEVELS[name]]
        if not finer or finer[0] == "peer" or (finer[0] == "scale_up" and isinstance(entry, Accelerator)):
            continue
        found = next((level for level in finer if _families(beliefs, name, level, levels[level])), None)
        basis = "assumed" if found is None else "measured" if found == finer[0] else "inherited"
        families = 0 if found is None else _families(beliefs, name, found, levels[found])
        rows.append(
            {
                "name": name,
                "basis": basis,
                "from": "all jobs" if found is None else f"{WORDS[found]} {levels[found]}",
                "families": families,
                "meaning": MEANINGS[name],
            }
        )
    return rows


def _levels(entry: object) -> dict[str, str]:
    """Level values of the hardware alone, finest first."""
    if isinstance(entry, Accelerator):
        generation = entry.generation or "unknown"
        return {
            "accelerator": entry.name or "unknown",
            PER_WIDTH: generation,
            "generation": generation,
            "scale_up": entry.scale_up or "unknown",
            "peer": "direct" if entry.peer_access else "staged",
        }
    if isinstance(entry, Link):
        return {"scale_out" if entry.kind == "scale-out" else "scale_up": entry.name or "unknown"}
    return {}


def _families(beliefs: Beliefs, name: str, level: str, value: str) -> int:
    """Series of runs that informed a level; in any number format where it is by format too."""
    if level != PER_WIDTH:
        return int(beliefs.counts.get((name, level, value), 0))
    found = [
        n
        for (one, at, key), n in beliefs.counts.items()
        if one == name and at == level and key.startswith(f"{value}*")
    ]
    return int(np.sum(found)) if found else 0
