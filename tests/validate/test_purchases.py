"""Runs that somebody bought: every command runs, and the published number is in the band of most."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from perfmodel.cli.main import main
from perfmodel.specs.catalog import Catalog

ROOT = Path(__file__).resolve().parents[2]
LEAST_INSIDE = 0.8  # of the records; the page says how many are, and what the others have in common


def _script() -> ModuleType:
    import sys

    path = ROOT / "validation" / "purchases.py"
    spec = importlib.util.spec_from_file_location("purchases", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["purchases"] = module
    spec.loader.exec_module(module)
    return module


PURCHASES = _script()
RECORDS = PURCHASES.records()


@pytest.fixture(scope="module")
def rows():
    catalog = Catalog.default()
    return [PURCHASES.scored(record, catalog) for record in RECORDS]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record["name"])
def test_the_command_of_a_purchase_runs_and_fits(record, capsys):
    assert main([*PURCHASES.arguments(record["job"]), "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["feasible"] == [True]
    (measure,) = record["published"]
    if measure in ("days", "gpu_hours"):
        assert result["run"]["time_s_low"][0] < result["run"]["time_s"][0] < result["run"]["time_s_high"][0]


def test_command_and_record_are_one_job(rows, capsys):
    for row, record in list(zip(rows, RECORDS, strict=True))[::6]:
        assert main([*PURCHASES.arguments(record["job"]), "--format", "json"]) == 0
        result = json.loads(capsys.readouterr().out)["result"]
        if row.measure == "days":
            assert result["run"]["time_s"][0] / 86400 == pytest.approx(row.predicted)


def test_records_have_sources_and_most_are_inside(rows):
    assert len(rows) >= 25
    assert all(record["source"] for record in RECORDS)
    assert sum(row.inside for row in rows) >= LEAST_INSIDE * len(rows)
    assert all(row.inside or row.miss for row in rows)


def test_the_page_lists_every_record_with_its_band(rows):
    text = PURCHASES.page(rows)
    assert all(f"| {row.name} |" in text and row.command in text for row in rows)
    assert f"{sum(row.inside for row in rows)} lie inside the 90 % band" in text
