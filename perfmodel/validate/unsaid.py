"""Blank cells that cost accuracy, in words: what was taken in their place, and what to state instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from perfmodel.specs.catalog import Catalog
from perfmodel.specs.workload import TRANSFORMER_KINDS
from perfmodel.units import counted
from perfmodel.validate.corpus import Corpus
from perfmodel.validate.own_timings import open_keys
from perfmodel.validate.resolve import known_workload
from perfmodel.validate.tables import Row

_Applies = Callable[
    [Row, Row, bool], bool
]  # to a point, its family, and whether its workload is a transformer


def _beyond_a_node(point: Row, family: Row, is_transformer: bool) -> bool:
    return point.get("k", 1.0) > family.get("accelerators_per_node", 1.0)


def _of_a_transformer(point: Row, family: Row, is_transformer: bool) -> bool:
    return is_transformer


def _always(point: Row, family: Row, is_transformer: bool) -> bool:
    return True


# Columns, where their blank matters, and what is taken instead.
_OF_POINTS: Final[tuple[tuple[tuple[str, ...], _Applies, str], ...]] = (
    (("global_batch", "run_batch"), _always, "only ratios over k are scored"),
    (("micro_batch", "accumulation"), _always, "one sample in a pipeline, else the largest micro-batch that fits is taken"),
    (("tp", "pp"), _of_a_transformer, "the least tensor parallelism that holds the weights is taken"),
    (("recompute",), _of_a_transformer, "none is taken where the activations fit, else full"),
    (("seq_len",), _of_a_transformer, "the workload's own length is taken"),
)  # fmt: skip
_OF_FAMILIES: Final[tuple[tuple[tuple[str, ...], _Applies, str], ...]] = (
    (("scale_out", "network_gbit_per_s_per_node"), _beyond_a_node, "the usual network of its nodes is taken"),
    (("framework_class",), _always, "what all frameworks share is taken"),
    (("sharding",), _of_a_transformer, "the usual sharding of its kind is taken"),
)


def unsaid(corpus: Corpus, catalog: Catalog) -> list[str]:
    """What to state for better predictions, the column named, one sentence for each."""
    pairs = [
        (point, corpus.families[name])
        for point in corpus.points
        if (name := point.text["family"]) in corpus.families and name not in corpus.jobs
    ]
    names = dict.fromkeys(family.text["workload"] for _, family in pairs)
    cut = {name: _is_transformer(name, corpus, catalog) for name in names}
    found = []
    for columns, applies, taken in _OF_POINTS:
        rows = [
            point
            for point, family in pairs
            if _blank(point, columns) and applies(point, family, cut[family.text["workload"]])
        ]
        if rows:
            found.append(_told(rows, counted(len(rows), "point", "points"), columns, taken))
    for columns, applies, taken in _OF_FAMILIES:
        lines = {
            family.line: family
            for point, family in pairs
            if _blank(family, columns) and applies(point, family, cut[family.text["workload"]])
        }
        if lines:
            count = counted(len(lines), "family", "families")
            found.append(_told(lines.values(), count, columns, taken))
    return [*found, *_of_jobs(corpus)]


def _blank(row: Row, columns: tuple[str, ...]) -> bool:
    return not any(row.text.get(column) for column in columns)


def _is_transformer(name: str, corpus: Corpus, catalog: Catalog) -> bool:
    workload = known_workload(name, corpus, catalog)
    return workload is not None and workload.kind in TRANSFORMER_KINDS


def _told(rows: Iterable[Row], count: str, columns: tuple[str, ...], taken: str) -> str:
    first = next(iter(rows))
    return f"{first.place}: {' and '.join(columns)} of {count} left blank: {taken}; state it for a closer prediction"


def _of_jobs(corpus: Corpus) -> list[str]:
    found = []
    for name, job in corpus.jobs.items():
        keys = open_keys(job, batches_given=all(_states_batch(corpus, name)))
        if keys:
            file = corpus.families[name].place.partition(":")[0]
            words, notes = (", ".join(word for word, _ in keys), "; ".join(note for _, note in keys))
            found.append(f"{file}: declare {words} for a closer prediction: {notes}")
    return found


def _states_batch(corpus: Corpus, family: str) -> list[bool]:
    return [bool(row.text.get("global_batch")) for row in corpus.points if row.text["family"] == family]
