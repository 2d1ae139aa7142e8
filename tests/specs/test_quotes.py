"""A buyer's own quotes, and prices that are asked about."""

from __future__ import annotations

import json

import pytest

from perfmodel.cli.main import main
from perfmodel.errors import SpecError
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.jobs import load_job
from perfmodel.specs.quotes import median_rate, read_quotes

CATALOG = Catalog.default()
HOUR = 3600.0


def quotes(tmp_path, *lines):
    path = tmp_path / "quotes.yaml"
    path.write_text("".join(f"- {{{line}}}\n" for line in lines))
    return path


def job(path, cluster="p5.48xlarge", **keys):
    catalog = Catalog.default()
    catalog.quotes = read_quotes(path, catalog)
    return load_job({"workload": "llama3-8b", "cluster": cluster, "k": 8} | keys, catalog=catalog)


@pytest.mark.parametrize(
    ("line", "each"),
    [
        ("node: p5.48xlarge, price: 60 USD/h", 7.5),
        ("node: p5.48xlarge, price: 7.5 USD/h, per: accelerator", 7.5),
        ("accelerator: h100-sxm5-80gb, price: 2.10 USD/h", 2.10),
        ("accelerator: h100-sxm5-80gb, price: 24 USD/h, per: machine", 3.0),
    ],
)
def test_of_a_node_the_machine_else_one_accelerator(tmp_path, line, each):
    found = job(quotes(tmp_path, line))
    assert found.price.per_accelerator * HOUR == pytest.approx(each)
    assert any("your own quote" in note for note in found.notes)


def test_a_quote_of_the_node_goes_before_one_of_its_accelerator(tmp_path):
    path = quotes(
        tmp_path,
        "accelerator: h100-sxm5-80gb, price: 2 USD/h",
        "node: p5.48xlarge, price: 40 USD/h, terms: one year",
    )
    assert job(path).price.per_accelerator * HOUR == pytest.approx(5.0)
    assert job(path, "dgx-h100").price.per_accelerator * HOUR == pytest.approx(2.0)
    assert job(path, "dgx-a100").price.source != "own quote"
    assert job(path, price="3 USD/h").price.per_accelerator * HOUR == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("node: p5.48xlargee, price: 60 USD/h", 'did you mean "p5.48xlarge"'),
        ("accelerator: h100, price: 2 USD/h", 'no accelerator "h100"'),
        ("accelerator: h100-sxm5-80gb, price: 24 USD/h", "of a machine or of an accelerator"),
        ("accelerator: h100-sxm5-80gb, price: 0.3 USD/h", "of a machine or of an accelerator"),
        ("node: p5.48xlarge, price: 2 USD/h", "of a machine or of an accelerator"),
        ("price: 2 USD/h", "of a node or of an accelerator"),
    ],
)
def test_what_is_wrong_with_a_quote_is_told_at_its_place(tmp_path, line, told):
    with pytest.raises(SpecError, match=r"quotes\.yaml:1:") as error:
        read_quotes(quotes(tmp_path, line), CATALOG)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("price", "asked"), [("98 USD/h", "of a machine of 8"), ("0.3 USD/h", "of a part"), ("3 USD/h", None)]
)
def test_an_odd_price_is_asked_about(price, asked):
    notes = load_job({"workload": "llama3-8b", "cluster": "dgx-h100", "price": price}, catalog=CATALOG).notes
    assert asked is None or any(asked in note for note in notes)
    assert any("times" in note and "median" in note for note in notes) == (asked is not None)
    assert median_rate("h100-sxm5-80gb", CATALOG) * HOUR < 8


def test_a_given_price_is_of_its_own_cluster_and_what_has_none_breaks_even(capsys):
    code = main(
        ["plan", "-w", "llama3-8b", "-c", "dgx-h100", "--global-batch", "64", "--max-k", "16", "-k", "16",
         "--clusters", "dgx-h100,dgx-a100,gb300-nvl72", "--set", "price=2 USD/h", "--format", "json"]
    )  # fmt: skip
    result = json.loads(capsys.readouterr().out)["result"]
    assert code == 0
    rows = {row["cluster"]: row for row in result["by_cluster"]}
    hourly = {
        name: row["cost_usd"] / (row["k"] * row["wall_s"]) * HOUR
        for name, row in rows.items()
        if row["cost_usd"]
    }
    assert hourly["dgx-h100"] == pytest.approx(2.0)
    assert hourly["dgx-a100"] != pytest.approx(2.0, rel=0.01)
    even = rows["gb300-nvl72"]["break_even_usd_per_accelerator_h"]
    cheapest = min(row["cost_usd"] for row in rows.values() if row["cost_usd"])
    assert even * rows["gb300-nvl72"]["k"] * rows["gb300-nvl72"]["wall_s"] / HOUR == pytest.approx(cheapest)
    assert any("gb300-nvl72 has no price" in note for note in result["notes"])


def test_billions_of_tokens():
    told = load_job(
        {"workload": "llama3-8b", "cluster": "dgx-h100", "tokens": "100B", "global_batch": 128},
        catalog=CATALOG,
    )
    assert told.run_samples * 8192 == pytest.approx(100e9, rel=1e-3)


def test_the_same_from_python():
    import perfmodel as pm

    asked = {"clusters": ["dgx-h100", "dgx-a100"], "k": 16, "global_batch": 64, "price": "2 USD/h"}
    for job, rate in (
        ({"workload": "llama3-8b", "cluster": "dgx-h100"}, None),
        ({"workload": "llama3-8b"}, 2.0),
    ):
        rows = {row["cluster"]: row for row in pm.plan(job, **asked).to_dict()["result"]["by_cluster"]}
        hourly = {name: row["cost_usd"] / (row["k"] * row["wall_s"]) * HOUR for name, row in rows.items()}
        assert hourly["dgx-h100"] == pytest.approx(2.0)
        assert (hourly["dgx-a100"] == pytest.approx(2.0)) == (rate is not None)
