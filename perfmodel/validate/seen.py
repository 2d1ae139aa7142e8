"""Runs of another folder that the shipped beliefs were fitted on: their errors say little of runs to come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfmodel.validate.corpus import Corpus
from perfmodel.validate.tables import Row

Mark = tuple[str, str, float, float]


def families_of_the_fit(families: Mapping[str, Row], points: Sequence[Row], fitted: Corpus) -> list[str]:
    """Names of the families that share a point with the corpus `fitted`, whatever they are called there.

    Times have digits enough to separate runs; names, batches and layouts may have been written anew.
    """
    known = {_mark(point, fitted.families) for point in fitted.points}
    shared = {point.text["family"] for point in points if _mark(point, families) in known}
    return [name for name in families if name in shared]


def _mark(point: Row, families: Mapping[str, Row]) -> Mark:
    family = families[point.text["family"]].text
    return family["workload"], family["accelerator"], point.get("k", 0.0), point.get("step_s", 0.0)
