"""Listings, filters, entries, derived figures and stale prices."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from perfmodel.errors import UsageError
from perfmodel.explain.browse import listing, overview
from perfmodel.explain.entry import details
from perfmodel.specs.ages import age_days, is_stale
from perfmodel.specs.catalog import KINDS, Catalog

DAY = datetime.date(2026, 9, 1)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.default()


def names(catalog: Catalog, kind: str = "accelerators", **options: Any) -> list[str]:
    return [row["name"] for row in listing(catalog, kind, today=DAY, **options).result["entries"]]


def test_sorting(catalog: Catalog) -> None:
    rows = listing(catalog, "accelerators", sort="memory", today=DAY).result["entries"]
    memory = [row["memory_bytes"] for row in rows]
    assert memory == sorted(memory)
    down = names(catalog, sort="tdp", reverse=True)
    known = [name for name in down if catalog.get("accelerators", name).tdp is not None]
    assert down[: len(known)] == known
    assert names(catalog, sort="vendor")[0] == "mi100"


def test_filters(catalog: Catalog) -> None:
    large = names(catalog, filters=["vendor = nvidia", "memory >= 80 GB", "peak.fp8 > 1 PFLOP/s"])
    assert "h100-sxm5-80gb" in large
    assert "a100-sxm4-80gb" not in large
    assert "mi300x" not in large
    assert names(catalog, filters=["vendor != NVIDIA"], match="tpu") == [
        f"tpu-{v}" for v in ("v2", "v3", "v4", "v5e", "v5p", "v6e", "v7x")
    ]
    assert names(catalog, "nodes", filters=["accelerator = h200-sxm-141gb", "nics_per_node < 16"])
    assert names(catalog, filters=["year = 1990"]) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sort": "memry"}, 'did you mean "memory"'),
        ({"filters": ["memory"]}, "cannot read"),
        ({"filters": ["memory > 3"]}, "without a unit"),
        ({"filters": ["vendor > A"]}, "use = or !="),
        ({"filters": ["speed = 3"]}, 'have no "speed"'),
    ],
)
def test_bad_questions(catalog: Catalog, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        names(catalog, **options)


def test_every_kind_can_be_listed_and_shown(catalog: Catalog) -> None:
    for kind in KINDS:
        rows = listing(catalog, kind, today=DAY).result["entries"]
        assert len(rows) == len(catalog.names(kind))
        shown = details(catalog, rows[0]["name"], kind, today=DAY).result
        assert shown["values"]
    assert overview(catalog).result["entries"][0] == {
        "name": "accelerators",
        "entries": len(catalog.names("accelerators")),
    }


def test_derived_figures(catalog: Catalog) -> None:
    derived = {row["key"]: row for row in details(catalog, "h100-sxm5-80gb", today=DAY).result["derived"]}
    assert derived["ridge point bf16"]["value"] == pytest.approx(989.4e12 / 3352e9)
    price = derived["price"]["value"]
    assert derived["FLOP per byte per USD"]["value"] == pytest.approx(989.4e12 / 3352e9 / price)
    assert derived["arithmetic per dollar"]["value"] == pytest.approx(989.4e12 * 3600 / price)
    node = {
        row["key"]: row["value"] for row in details(catalog, "dgx-h100", "nodes", today=DAY).result["derived"]
    }
    assert node["scale-up over scale-out"] == pytest.approx(9.0)
    link = {row["key"]: row["value"] for row in details(catalog, "ib-ndr", today=DAY).result["derived"]}
    assert link["half-bandwidth message"] == pytest.approx(1.3e-6 * 50e9)


def test_sources_and_texts(catalog: Catalog) -> None:
    result = details(catalog, "h100-sxm5-80gb", today=DAY).result
    values = {row["key"]: row for row in result["values"]}
    assert values["memory"]["text"] == "80 GiB"
    assert values["memory_bandwidth"]["text"] == "3.352 TB/s"
    assert values["matmul_fraction"]["confidence"] == "measured"
    assert values["idle_power"]["confidence"] == "assumed"
    assert all(row["source"] for row in result["values"])


def test_old_prices_are_flagged(catalog: Catalog) -> None:
    rows = {row["name"]: row for row in listing(catalog, "prices", today=DAY).result["entries"]}
    assert not rows["p5.48xlarge"]["stale"]
    assert rows["p3.16xlarge"]["stale"]
    later = listing(catalog, "prices", today=datetime.date(2027, 9, 1)).result
    assert later["stale"] > sum(row["stale"] for row in rows.values())
    age = [
        row
        for row in details(catalog, "p3.16xlarge", "prices", today=DAY).result["derived"]
        if row["key"] == "age"
    ]
    assert "stale" in age[0]["text"]


def test_ages() -> None:
    assert age_days("2026-08-31", DAY) == 1
    assert age_days("2026-08", DAY) == 1
    assert age_days("2026", DAY) == 0
    assert age_days(None, DAY) is None
    assert age_days("2026-02-31", DAY) is None
    assert is_stale("2026-03-04", DAY)
    assert not is_stale("2026-03-05", DAY)


def test_a_name_of_two_kinds_says_so(catalog: Catalog) -> None:
    assert details(catalog, "dgx-h100", today=DAY).result["also"] == ["clusters"]
    with pytest.raises(UsageError, match='did you mean "h100-sxm5-80gb"'):
        details(catalog, "h100-sxm", today=DAY)
