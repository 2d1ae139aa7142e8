"""`perfmodel validate`: predictions against measured runs, by mode, with one-line laws beside them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import Beliefs, shipped_beliefs
from perfmodel.calibrate.observations import Observations
from perfmodel.results.envelope import Result, fingerprint
from perfmodel.specs.catalog import Catalog
from perfmodel.units import counted
from perfmodel.validate import baselines
from perfmodel.validate.consistency import measured_again
from perfmodel.validate.corpus import TABLES, Corpus, read_corpus
from perfmodel.validate.fitting import (
    UNSEEN,
    fit_everything,
    fold_of_families,
    held_out,
    measured_families,
    unmeasured_bends,
)
from perfmodel.validate.folds import STRANGER, Folds, scheme_of, shipped_folds
from perfmodel.validate.knees import bends, crossfit_odds, knees_in_bands, score_knees
from perfmodel.validate.memory import PEAKS, memory_figures, read_peaks
from perfmodel.validate.misses import worst
from perfmodel.validate.protocol import MODES, Scored, accelerator_time, score_mode
from perfmodel.validate.resolve import Resolved, known_sweeps, resolve
from perfmodel.validate.scores import by_source, errors, summary
from perfmodel.validate.seen import families_of_the_fit
from perfmodel.validate.serving_files import SERVED, runs_file
from perfmodel.validate.strangers import baseline_figures, mfu_table, source_figures, sources_of
from perfmodel.validate.tables import Row
from perfmodel.validate.unsaid import unsaid

T = TypeVar("T")
SHIPPED = "shipped"
_PROTOCOLS = {
    STRANGER: "every family predicted without its source, with the labels that the source states",
}
FAR_OFF = 100.0  # times, from which a point is asked about
SCORED_GRADES = "AB"  # a blank one is scored too


def shipped_corpus() -> Path:
    """The measured corpus of a checkout, or the copy inside an installed wheel."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "_measured"
    return inside if inside.is_dir() else package.parent / "validation" / "measured"


def validate(
    folder: Path | None = None,
    *,
    scheme: str = "group",
    modes: Sequence[str] = MODES,
    catalog: Catalog | None = None,
    seed: int = 0,
    refit: bool = False,
) -> Result:
    """Score every family of `folder` (the shipped corpus when None).

    On the shipped corpus each family is predicted with beliefs fitted without its fold (`scheme` says by what the
    folds are cut; `refit` fits them again instead of reading the shipped ones), and beside it as a stranger's (`schemes`):
    its whole source left out, with the labels that the source states. On another folder the shipped beliefs are used as they are.
    """
    is_shipped = folder is None
    catalog = catalog or Catalog.default()
    served = runs_file(folder or shipped_corpus())
    corpus = (
        Corpus.empty()
        if served and _is_serving_alone(folder)
        else read_corpus(folder or shipped_corpus(), catalog, as_stated=is_shipped and scheme == STRANGER)
    )
    resolved = resolve(corpus, catalog, SCORED_GRADES)
    sweeps, strange_sweeps = known_sweeps(corpus, catalog)
    data = resolved.observations
    if is_shipped:
        fitted = _refitted(resolved, scheme, catalog) if refit else (shipped_folds(), shipped_beliefs())
        beliefs_for, fold_of, tables = _held_out(resolved, scheme, *fitted)
    else:
        beliefs_for, fold_of, tables = _always(shipped_beliefs()), None, _always(shipped_utilisations())
    ids = measured_families(data)
    figures: dict[str, dict[str, object]] = {}
    families: list[dict[str, object]] = []
    result: dict[str, object] = {"modes": figures, "families": families}
    far: list[str] = []
    for mode in modes:
        scored = score_mode(data, mode, ids, beliefs_for)
        figures[mode] = mode_figures(resolved, scored, fold_of, tables)
        figures[mode]["worst"] = worst(data, scored, beliefs_for)
        families += family_rows(resolved, scored)
        if mode == "datasheet" and not is_shipped:
            far += _far_off(resolved, scored)
    if is_shipped:
        stated = resolved if scheme == STRANGER else _as_stated(catalog)
        strangers = figures if scheme == STRANGER else _strangers(stated, modes, *fitted)
        if "datasheet" in strangers:
            strangers["datasheet"]["knee_bands"] = _knee_bands(stated, *fitted)
        result["schemes"] = {STRANGER: {"modes": strangers}}
    result["collectives"] = collective_figures(sweeps, catalog, is_shipped)
    peaks = (folder or shipped_corpus()) / PEAKS
    result["memory"] = memory_figures(read_peaks(peaks, catalog) if peaks.is_file() else [])
    result["corrected"] = [
        {"family": name, "reason": reason} for name, reason in sorted(corpus.corrected.items())
    ]
    result["unresolved"] = [
        {"family": row.text["family"], "reason": reason, "place": row.place}
        for row, reason in resolved.unresolved
    ] + [{"sweep": row.text["sweep"], "reason": reason, "place": row.place} for row, reason in strange_sweeps]
    result["contradicted"] = [
        {"point": row.place, "family": row.text["family"], "reason": how}
        for row, how in resolved.contradicted
    ]
    scored_families = {str(row["family"]) for row in families}
    result["notes"] = [
        *([] if is_shipped else _flattered(resolved)),
        *_left_out(corpus),
        *far,
        *measured_again(resolved.points),
        *_ratios(resolved.batchless, scored_families),
        *_unknown_words(corpus),
        *_no_source(corpus),
    ]
    result["hints"] = [] if is_shipped else unsaid(corpus, catalog)
    if served is not None:
        from perfmodel.validate.serving import validate_serving

        result["serving"] = validate_serving(
            served, catalog, scheme=scheme, is_shipped=is_shipped, refit=refit
        )
    result["scheme"] = (
        _PROTOCOLS.get(scheme, f"every family predicted without its {scheme}")
        if is_shipped
        else "with the shipped beliefs as they are"
    )
    inputs = {
        "data": SHIPPED if is_shipped else str(folder),
        "scheme": scheme if is_shipped else None,
        "files": _tables_read(folder or shipped_corpus())
        | {name: fingerprint(Path(corpus.families[name].file)) for name in corpus.jobs},
    }
    return Result("validation", inputs, result, seed)


def _is_serving_alone(folder: Path | None) -> bool:
    """Whether a folder has none of the tables of training: serving runs are scored without them."""
    return folder is not None and not any((folder / name).is_file() for name in TABLES)


def _tables_read(folder: Path) -> dict[str, dict[str, str]]:
    """Fingerprints of the tables that were read; whatever else lies in the folder is none of them."""
    found = {path.stem: fingerprint(path) for name in (*TABLES, PEAKS) if (path := folder / name).is_file()}
    served = runs_file(folder)
    return found | ({} if served is None else {served.stem: fingerprint(served)})


def why_nothing_scored(result: Mapping[str, Any]) -> list[str]:
    """Reasons, in words, where neither a run nor a collective was scored; none where something was."""
    modes = result["modes"]
    if result["collectives"]["points"] or any(mode["points"] for mode in modes.values()):
        return []
    served = result.get("serving") or {}
    if any(served.get(target, {}).get("rows") for target in SERVED):
        return []
    first = {one["reason"]: one["place"] for one in reversed(result["unresolved"])}
    counts = _count(one["reason"] for one in result["unresolved"])
    of_sweeps = {one["reason"] for one in result["unresolved"] if "sweep" in one}
    reasons = [
        f"{first[reason]}: {counted(count, 'sweep', 'sweeps') if reason in of_sweeps else _families(count)}: {reason}"
        for reason, count in counts.items()
    ]
    reasons += [f"{one['point']}: {one['reason']}" for one in result["contradicted"]]
    for name, mode in modes.items():
        reasons += [f"mode {name}: {_families(count)}: {reason}" for reason, count in mode["skipped"].items()]
    reasons += [
        f"{one['place']}: {counted(one['rows'], 'serving run', 'serving runs')}: {one['reason']}"
        for one in (*served.get("unresolved", ()), *served.get("contradicted", ()))
    ]
    nothing = "runs.csv has no runs" if served else "families.csv has no families"
    return [*reasons, *result["notes"]] or [nothing]


def _families(count: int) -> str:
    return counted(count, "family", "families")


def _far_off(resolved: Resolved, scored: Scored) -> list[str]:
    """Points whose time is so far from the prediction that a unit is likelier wrong than the model, in words."""
    error = scored.error(resolved.observations)
    return [
        f"{resolved.points[row].place}: the measured step is {np.exp(abs(off)):,.0f} times "
        f"{'shorter' if off > 0 else 'longer'} than predicted: is step_s in seconds, and of one step?"
        for row, off in zip(scored.rows.tolist(), error.tolist(), strict=True)
        if abs(off) > np.log(FAR_OFF)
    ]


def _left_out(corpus: Corpus) -> list[str]:
    """Points that their grade keeps from the figures, in words."""
    grades = _count(
        row.text["grade"] for row in corpus.points if row.text["grade"] not in ("", *SCORED_GRADES)
    )
    return [
        f"{counted(count, 'point', 'points')} not scored: grade {grade}"
        for grade, count in sorted(grades.items())
    ]


@cache
def _fitted_on() -> Corpus:
    return read_corpus(shipped_corpus())


def _flattered(resolved: Resolved) -> list[str]:
    """How many of another folder's families the shipped beliefs were fitted on, in words."""
    families = {row.text["family"]: row for row in resolved.families}
    seen = families_of_the_fit(families, resolved.points, _fitted_on())
    were = "were" if len(seen) > 1 else "was"
    told = f"{len(seen)} of {_families(len(families))} {were} in the fit of the beliefs: such errors flatter"
    return [told] if seen else []


def _ratios(batchless: Mapping[str, str], scored: Container[str]) -> list[str]:
    """What became of points without the batch that others of their family state, in words."""
    too_few = "not scored: their ratios need three values of K, or points within one node and beyond"
    return [
        f'{words}: ratios only, as "{name}"' if name in scored else f"{words}: {too_few}"
        for name, words in batchless.items()
    ]


def _unknown_words(corpus: Corpus) -> list[str]:
    """Families whose framework or regime says nothing to the model, in words."""
    measured = {value for _, level, value in shipped_beliefs().values if level == "framework"}
    strange = _count(
        _framework_words(row.text["framework_class"])
        for row in corpus.families.values()
        if row.text["framework_class"] not in (*measured, "")
    ) | _count(
        f'unknown regime "{row.text["regime"]}": taken as neither strong, weak nor tuned'
        for row in corpus.families.values()
        if row.text["regime"] not in ("strong", "weak", "tuned", "")
    )
    return [f"{_families(count)} of {words}" for words, count in sorted(strange.items())]


def _no_source(corpus: Corpus) -> list[str]:
    """Families whose source nobody described, in words."""
    first = {row.text["source"]: row.place for row in reversed(corpus.unsourced)}
    counts = _count(row.text["source"] for row in corpus.unsourced)
    return [
        f'{first[source]}: {_families(count)} of source "{source}", which sources.csv lacks'
        for source, count in counts.items()
    ]


def _framework_words(name: str) -> str:
    return f'unknown framework_class "{name}": predicted by what all frameworks share'


def _always(found: T) -> Callable[[int], T]:
    return lambda family: found


def shipped_utilisations() -> dict[str, float]:
    """Utilisations of the peak by class of jobs, from the whole corpus: see `strangers.mfu_table`."""
    return dict(shipped_beliefs().meta["constant_mfu"])


def _refitted(resolved: Resolved, scheme: str, catalog: Catalog) -> tuple[Folds, Beliefs]:
    stated = _as_stated(catalog)
    schemes = tuple(dict.fromkeys((UNSEEN, scheme_of(scheme))))
    fitted = fit_everything(resolved, stated, spreads={}, schemes=schemes, workers=os.cpu_count() or 1)
    return fitted.folds, fitted.beliefs


def _held_out(
    resolved: Resolved, protocol: str, folds: Folds, beliefs: Beliefs
) -> tuple[Callable[[int], Beliefs], dict[int, int], Callable[[int], Mapping[str, float]]]:
    """Beliefs without the fold of each family, that fold, and the utilisations of the families outside it."""
    scheme = scheme_of(protocol)
    fold_of = fold_of_families(resolved, folds, scheme)
    ids = measured_families(resolved.observations)

    @cache
    def table(fold: int) -> dict[str, float]:
        return mfu_table(resolved, [i for i in ids if fold_of[i] != fold])

    return (
        held_out(resolved, folds, beliefs, scheme),
        dict(enumerate(fold_of.tolist())),
        lambda family: table(int(fold_of[family])),
    )


def _as_stated(catalog: Catalog) -> Resolved:
    """The shipped corpus with the labels of its sources."""
    return resolve(read_corpus(shipped_corpus(), catalog, as_stated=True), catalog, SCORED_GRADES)


def _strangers(
    resolved: Resolved, modes: Sequence[str], folds: Folds, beliefs: Beliefs
) -> dict[str, dict[str, object]]:
    """Figures of all modes with whole sources left out and the labels that they state."""
    beliefs_for, fold_of, tables = _held_out(resolved, STRANGER, folds, beliefs)
    ids = measured_families(resolved.observations)
    return {
        mode: mode_figures(
            resolved, score_mode(resolved.observations, mode, ids, beliefs_for), fold_of, tables
        )
        for mode in modes
    }


def _knee_bands(resolved: Resolved, folds: Folds, beliefs: Beliefs) -> dict[str, float | int | None]:
    """How knees that nothing was measured for hold in their bands, every source weighing the same."""
    curves = unmeasured_bends(resolved, folds, beliefs)
    weights = by_source(np.array([one.family for one in curves], dtype=np.intp), sources_of(resolved))
    return knees_in_bands(curves, weights)


def mode_figures(
    resolved: Resolved,
    scored: Scored,
    fold_of: Mapping[int, int] | None,
    tables: Callable[[int], Mapping[str, float]],
) -> dict[str, object]:
    """All figures of one mode, overall and by kind, accelerator, source and node crossing.

    `tables` has the utilisations that a baseline of `datasheet` is made of.

    With `fold_of`, the odds at which knees are declared are chosen for each fold on the others, else as shipped.
    """
    data = resolved.observations
    error = scored.error(data)
    family = data.family[scored.rows]
    figures = summary(error, scored.half, family)
    if scored.mode != "datasheet" and error.size:
        families = bends(data, scored)
        shipped = dict.fromkeys((one.family for one in families), shipped_beliefs().knee_odds(scored.mode))
        knees = score_knees(families, shipped if fold_of is None else crossfit_odds(families, fold_of))
        figures["knee_within_factor_2"] = knees.as_dict()["within_factor_2"]
        figures["knee"] = knees.as_dict()
    else:
        figures["knee_within_factor_2"] = None
    skipped = _count(scored.skipped.values())
    figures["skipped"] = skipped
    figures["skipped_families"] = {
        reason: [name for name, why in scored.skipped.items() if why == reason] for reason in skipped
    }
    figures["normalised_points"] = int(data.normalised[scored.rows].sum())
    figures["by"] = {
        name: {
            value: summary(error[keys == value], scored.half[keys == value], family[keys == value])
            for value in sorted(set(keys.tolist()))
        }
        for name, keys in _keys(resolved, scored).items()
    }
    figures["by_source_weight"] = source_figures(resolved, scored) if error.size else {}
    figures["baselines"] = (
        baseline_figures(resolved, scored, tables)
        if scored.mode == "datasheet"
        else law_figures(resolved, scored)
    )
    crossing = crosses(data, scored)
    if scored.mode != "datasheet" and crossing.any():
        figures["baselines_crossing"] = law_figures(resolved, scored, crossing)
    return figures


def _count(reasons: Iterable[str]) -> dict[str, int]:
    return dict(Counter(reasons))


def crosses(data: Observations, scored: Scored) -> NDArray[np.bool_]:
    """Rows beyond one node whose calibration was within one."""
    inside = {
        family: bool(rows.size and (data.at.k[rows] <= data.machine.node[rows]).all())
        for family, rows in scored.calibration.items()
    }
    beyond = data.at.k[scored.rows] > data.machine.node[scored.rows]
    return np.asarray(beyond & np.array([inside[int(f)] for f in data.family[scored.rows]], dtype=bool))


def _keys(resolved: Resolved, scored: Scored) -> dict[str, NDArray[np.str_]]:
    data = resolved.observations
    family = data.family[scored.rows]
    kind = np.array(data.kinds)[family]
    accelerator = np.array([row.text["accelerator"] for row in resolved.families])[family]
    source = np.array([row.text["source"] for row in resolved.families])[family]
    keys = {"kind": kind, "accelerator": accelerator, "source": source}
    if scored.mode != "datasheet":  # no calibration from which a point could cross
        keys["crossing"] = np.where(crosses(data, scored), "crosses the node", "crosses none anew")
    return keys


def law_figures(
    resolved: Resolved, scored: Scored, only: NDArray[np.bool_] | None = None
) -> dict[str, dict[str, object]]:
    """Errors of the one-line laws on the same points, families weighing the same or, apart, sources."""
    data = resolved.observations
    if scored.mode == "datasheet" or not scored.rows.size:
        return {}
    chosen = np.ones(scored.rows.size, dtype=bool) if only is None else only
    family = data.family[scored.rows]
    log_errors = {name: np.zeros(scored.rows.size) for name in baselines.NAMES}
    for index, calibration in scored.calibration.items():
        inside = family == index
        rows = scored.rows[inside]
        tau = accelerator_time(data, calibration, data.target[calibration])
        truth = accelerator_time(data, rows, data.target[rows])
        for name in baselines.NAMES:
            found = baselines.predict(name, data.at.k[calibration], tau, data.at.k[rows])
            log_errors[name][inside] = np.log(found / truth)
    weights = by_source(family[chosen], sources_of(resolved))
    keys = ("median_ape", "mean_ape", "p90_ape")

    def figures(error: NDArray[np.float64]) -> dict[str, object]:
        alike, of_sources = (errors(error, family[chosen], w) for w in (None, weights))
        return {key: alike[key] for key in keys} | {
            "by_source_weight": {key: of_sources[key] for key in keys}
        }

    return {name: figures(values[chosen]) for name, values in log_errors.items()}


def family_rows(resolved: Resolved, scored: Scored) -> list[dict[str, object]]:
    """Every prediction, family by family."""
    data = resolved.observations
    owner = data.family[scored.rows]
    order = np.argsort(owner, kind="stable")
    scale = np.where(
        data.normalised[scored.rows], data.at.k[scored.rows] / data.at.global_batch[scored.rows], 1.0
    )
    found: dict[int, list[dict[str, float]]] = {}
    for i in order:
        row = scored.rows[i]
        found.setdefault(int(owner[i]), []).append(
            {
                "k": int(data.at.k[row]),
                "measured_s": _digits(np.exp(data.target[row]) * scale[i]),
                "predicted_s": _digits(np.exp(scored.predicted[i]) * scale[i]),
                "low_s": _digits(np.exp(scored.predicted[i] - scored.half[i]) * scale[i]),
                "high_s": _digits(np.exp(scored.predicted[i] + scored.half[i]) * scale[i]),
            }
        )
    return [
        {"family": data.names[f], "mode": scored.mode, "kind": data.kinds[f], "points": points}
        for f, points in found.items()
    ]


def _digits(seconds: float) -> float:
    """Five digits: more than a timing has."""
    return float(f"{seconds:.5g}")


def collective_figures(sweeps: Sequence[Row], catalog: Catalog, is_shipped: bool) -> dict[str, object]:
    """Errors of the collective timings, or zero points where there are none."""
    if not sweeps:
        return {"points": 0, "median_ape": None, "mean_ape": None, "p90_ape": None}
    from perfmodel.validate.collectives import validate_collectives

    return validate_collectives([row.text for row in sweeps], catalog, is_shipped=is_shipped)
