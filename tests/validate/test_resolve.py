"""Families that were not timed on their own."""

from __future__ import annotations

from perfmodel.validate.resolve import Resolved


def test_families_composed_of_the_same_timings_count_as_one(resolved: Resolved) -> None:
    """vTrain's times on one node: four depths of each of two widths, all from the cells of that width."""
    names = [row.text["family"] for row in resolved.families]
    weights = dict(zip(names, resolved.observations.weights, strict=True))
    lighter = {name: weight for name, weight in weights.items() if weight != 1.0}
    assert set(lighter.values()) == {0.25}
    assert sum(lighter.values()) == 2.0
    assert all("-single" in name for name in lighter)
