"""Figures for users whose software the corpus has not seen: every source weighs the same, and what a prediction must beat.

A source is a publisher with its code base. Choices of form are made on one half of the sources and reported on the other
(`publishers.half_of`). Two answers that need no model stand beside: one model FLOP utilisation for each class of workload,
generation and width of arithmetic, and the physics with textbook beliefs that nothing was fitted to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import textbook_beliefs, workload_class
from perfmodel.beliefs.weighted import weighted_quantile
from perfmodel.calibrate.observations import Observations
from perfmodel.calibrate.population import population_logs
from perfmodel.validate.protocol import Scored
from perfmodel.validate.publishers import half_of
from perfmodel.validate.resolve import Resolved, least_seconds
from perfmodel.validate.scores import by_source, errors, summary

Array = NDArray[np.float64]
Index = NDArray[np.intp]

CLASSES: Final = {"language": "language", "mixture-of-experts": "mixture of experts"}
REST: Final = "everything else"
#: Bands of K by their largest; the last has no end.
K_BANDS: Final = ((8.0, "1-8"), (64.0, "9-64"), (512.0, "65-512"), (np.inf, "above 512"))
ERRORS: Final = ("median_ape", "mean_ape", "p90_ape")
_LEVELS: Final = (("class", "generation", "width"), ("class", "width"), ("class",), ())


def class_of(kind: str) -> str:
    """The class by which strangers' figures are reported.

    >>> class_of("moe-transformer"), class_of("convnet")
    ('mixture of experts', 'everything else')
    """
    return CLASSES.get(workload_class(kind), REST)


def k_band(k: float) -> str:
    """The band of an accelerator count.

    >>> k_band(8), k_band(9), k_band(4096)
    ('1-8', '9-64', 'above 512')
    """
    return next(name for most, name in K_BANDS if k <= most)


def sources_of(resolved: Resolved) -> NDArray[np.str_]:
    """The publisher of each family."""
    return np.array([row.text["publisher"] for row in resolved.families])


def source_figures(resolved: Resolved, scored: Scored) -> dict[str, object]:
    """Errors and coverage with every source weighing the same: of all, by class, by band of K and by half of the sources."""
    data, sources = resolved.observations, sources_of(resolved)
    family, error = data.family[scored.rows], scored.error(resolved.observations)
    keys = {
        "class": np.array([class_of(kind) for kind in data.kinds])[family],
        "k": np.array([k_band(k) for k in data.at.k[scored.rows]]),
        "half": np.array([half_of(name) for name in sources.tolist()])[family],
    }

    def figures(inside: NDArray[np.bool_]) -> dict[str, object]:
        weights = by_source(family[inside], sources)
        found = summary(error[inside], scored.half[inside], family[inside], weights)
        return {"sources": int(np.unique(sources[family[inside]]).size), **found}

    everything = np.ones(family.size, dtype=bool)
    reported = keys["half"] == "report"
    return {
        **figures(everything),
        "by": {name: {v: figures(key == v) for v in sorted(set(key.tolist()))} for name, key in keys.items()},
        "reported": {
            **figures(reported),
            "by_class": {
                v: figures(reported & (keys["class"] == v)) for v in sorted(set(keys["class"].tolist()))
            },
        },
    }


def baseline_figures(
    resolved: Resolved, scored: Scored, tables: Callable[[int], Mapping[str, float]]
) -> dict[str, dict[str, object]]:
    """Errors of answers that need no fit of the physics, at the rows of a prediction from datasheets.

    `tables` gives, for a family, utilisations that were found without it.
    """
    data = resolved.observations
    rows, family = scored.rows, data.family[scored.rows]
    if not rows.size:
        return {}
    peak = np.log(least_seconds(data)[rows])
    share = {
        int(f): mfu_of(tables(int(f)), data.features[int(f)], data.kinds[int(f)])
        for f in set(family.tolist())
    }
    constant = peak - np.log([share[int(f)] for f in family])
    found = {
        "constant_mfu": constant - data.target[rows],
        "textbook": _textbook(data, rows) - data.target[rows],
    }
    weights = by_source(family, sources_of(resolved))
    return {
        name: {key: errors(error, family)[key] for key in ERRORS}
        | {"by_source_weight": {key: errors(error, family, weights)[key] for key in ERRORS}}
        for name, error in found.items()
    }


def _textbook(data: Observations, rows: Index) -> Array:
    """Log step times by the starting medians."""
    ids = np.unique(data.family[rows])
    logs = population_logs(textbook_beliefs(), data, ids.tolist())
    return data.model(logs[:, np.searchsorted(ids, data.family[rows])], rows)


def mfu_table(resolved: Resolved, families: Sequence[int]) -> dict[str, float]:
    """Median utilisation of the peak by class of workload, generation and width, from some families.

    Keys are joined by "|", from the particular to the general; sources weigh the same.
    """
    data, sources = resolved.observations, sources_of(resolved)
    rows = np.concatenate([data.rows[i] for i in families])
    rows = rows[~data.normalised[rows]]
    family = data.family[rows]
    used = np.log(least_seconds(data)[rows]) - data.target[rows]
    cells: dict[str, list[int]] = {}
    for position, f in enumerate(family.tolist()):
        for key in _keys(data.features[f], data.kinds[f]):
            cells.setdefault(key, []).append(position)
    table = {}
    for key, members in cells.items():
        inside = np.array(members)
        weights = by_source(family[inside], sources)
        table[key] = round(float(np.exp(weighted_quantile(used[inside], weights, 0.5))), 4)
    return table


def mfu_of(table: Mapping[str, float], features: Mapping[str, str], kind: str) -> float:
    """The utilisation of the most particular cell that was measured."""
    return next(table[key] for key in _keys(features, kind) if key in table)


def _keys(features: Mapping[str, str], kind: str) -> list[str]:
    own = {"class": class_of(kind), "generation": features["generation"], "width": features["width"]}
    return ["|".join(own[name] for name in level) for level in _LEVELS]
