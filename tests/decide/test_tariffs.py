"""From the words of a job to a tariff, and the catalogue's regimes side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfmodel.decide import cost
from perfmodel.decide.pricing import HOUR_S, per_hour
from perfmodel.decide.tariffs import regimes_of, tariff_of
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.job import Job
from perfmodel.specs.jobs import load_job


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.default()


def make(catalog: Catalog, cluster: str = "p5.48xlarge", **overrides: Any) -> Job:
    words = {"workload": "llama3-8b", "cluster": cluster, "global_batch": 128}
    return load_job(None, overrides=words | overrides, catalog=catalog)


def test_every_word_of_a_price_reaches_the_bill(catalog: Catalog) -> None:
    price = {
        "per_accelerator": "2 USD/h",
        "fixed": "3 USD/h",
        "value_of_time": "50 USD/h",
        "storage": "1 USD/h",
        "egress": "7 USD",
        "whole_nodes": True,
        "minimum_accelerators": 16,
        "minimum_time": "2 h",
        "tiers": [{"from_accelerators": 33, "per_accelerator": "1 USD/h"}],
    }
    job = make(catalog, price=price)
    tariff = tariff_of(job.price, job.cluster)
    b = cost.bill([1, 20, 64], [HOUR_S] * 3, tariff)
    hourly = 3 + 50 + 1
    by_hand = [16 * 2 * 2 + hourly + 7, 24 * 2 * 2 + hourly + 7, (32 * 2 + 32) * 2 + hourly + 7]
    np.testing.assert_allclose(b.total_usd, by_hand)


def test_spot_without_a_rate_says_what_it_assumes(catalog: Catalog) -> None:
    job = make(catalog, price={"regime": "spot", "per_accelerator": "1 USD/h"})
    tariff = tariff_of(job.price, job.cluster)
    assert tariff.interruptions is not None
    assert 1.0 / tariff.interruptions.preemption_per_node_s == 86400.0
    assert "once a day" in tariff.note


def test_reliability_of_the_job_is_billed(catalog: Catalog) -> None:
    words = {
        "mtbf_per_accelerator": "1000 h",
        "checkpoint": "60 s",
        "restart": "300 s",
        "spares": 1,
        "repair": "1 day",
    }
    job = make(catalog, reliability=words)
    calm, risky = tariff_of(job.price, job.cluster), tariff_of(job.price, job.cluster, job.reliability)
    assert risky.spares == 8
    assert cost.bill([64], [1e5], risky).total_usd[0] > 1.1 * cost.bill([64], [1e5], calm).total_usd[0]


def test_reserved_is_divided_by_its_use(catalog: Catalog) -> None:
    price = {"regime": "reserved", "per_accelerator": "1 USD/h", "utilisation": 0.5}
    job = make(catalog, price=price)
    assert tariff_of(job.price, job.cluster).usd_per_accelerator_s == pytest.approx(per_hour(2.0))


def test_regimes_side_by_side(catalog: Catalog) -> None:
    job = make(catalog, price={"fixed": "10 USD/h"})
    rows = {row.tariff.name: row for row in regimes_of(job.price, job.cluster, catalog)}
    assert {"on-demand", "spot", "owned"} <= set(rows)
    assert all(row.tariff.fixed_usd_per_s == pytest.approx(per_hour(10.0)) for row in rows.values())
    assert rows["spot"].tariff.usd_per_accelerator_s < rows["on-demand"].tariff.usd_per_accelerator_s
    owned = rows["owned"]
    assert owned.break_even_utilisation is not None
    assert owned.utilisation is not None
    cheaper = owned.tariff.usd_per_accelerator_s < rows["on-demand"].tariff.usd_per_accelerator_s
    assert cheaper == (owned.utilisation > owned.break_even_utilisation)


def test_a_price_that_nobody_knows_gives_no_cost(catalog: Catalog) -> None:
    job = make(catalog)
    unknown = job.price.model_copy(update={"per_accelerator": None})
    assert np.isnan(cost.bill([8], [1.0], tariff_of(unknown, job.cluster)).total_usd[0])
    assert all(row.tariff.name != "on-demand" for row in regimes_of(unknown, job.cluster, catalog))
