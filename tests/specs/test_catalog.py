"""The shipped catalogue is complete and consistent; the user's folders win."""

from __future__ import annotations

import csv
import datetime
import os
from pathlib import Path

import pytest

from perfmodel.errors import SpecError
from perfmodel.specs.catalog import KINDS, Catalog
from perfmodel.specs.folders import files_by_name, shipped_folder
from perfmodel.specs.lint import lint

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "validation" / "measured"
DAY = datetime.date(2026, 9, 1)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog([shipped_folder()], ROOT / "perfmodel" / "workloads" / "zoo")


def column(file: str, *names: str) -> set[str]:
    with (MEASURED / file).open(encoding="utf-8", newline="") as handle:
        return {row[name] for row in csv.DictReader(handle) for name in names if row[name]}


def test_how_much_there_is(catalog: Catalog) -> None:
    counts = {kind: len(catalog.names(kind)) for kind in KINDS}
    assert counts["accelerators"] >= 87
    assert counts["links"] >= 71
    assert counts["nodes"] >= 70
    assert counts["prices"] >= 170
    assert counts["grids"] >= 330
    assert counts["clusters"] >= 60
    assert counts["workloads"] >= 188


def test_the_shipped_files_lint_clean() -> None:
    report = lint(shipped_folder(), today=DAY)
    assert report.errors == ()
    assert {problem.code for problem in report.warnings} <= {"L002"}


def test_the_measured_corpus_resolves(catalog: Catalog) -> None:
    accelerators = column("families.csv", "accelerator") | column("collectives.csv", "accelerator")
    links = column("families.csv", "scale_up", "scale_out") | column(
        "collectives.csv", "scale_up", "scale_out"
    )
    assert accelerators <= set(catalog.names("accelerators"))
    assert links <= set(catalog.names("links"))
    assert column("families.csv", "workload") <= set(catalog.names("workloads"))


@pytest.mark.parametrize(
    "name",
    [
        "dgx-1v",
        "dgx-2",
        "dgx-a100",
        "dgx-h100",
        "dgx-b200",
        "gb200-nvl72",
        "hgx-a100",
        "p3.16xlarge",
        "p4d.24xlarge",
        "p5.48xlarge",
        "p6-b200.48xlarge",
        "standard-nd96asr-v4",
        "standard-nd96isr-h100-v5",
        "a2-highgpu-8g",
        "a3-megagpu-8g",
        "a4-highgpu-8g",
        "bm.gpu.h100.8",
        "tpu-v4-pod",
        "tpu-v5p-pod",
        "tpu-v6e-host",
        "standard-nd96isr-mi300x-v5",
        "gaudi2-hls-2",
        "gaudi3-hls-3",
        "p3.2xlarge",
    ],
)
def test_ready_made_clusters(catalog: Catalog, name: str) -> None:
    cluster = catalog.cluster(name)
    assert cluster.scale_out is not None
    assert cluster.scale_out.bandwidth > 0
    assert cluster.nics_per_node
    assert cluster.node.scale_up is not None
    assert cluster.topology is not None
    assert (cluster.node.scale_up_domain or 0) >= 1
    assert cluster.accelerator.generation


def test_known_figures(catalog: Catalog) -> None:
    h100 = catalog.get("accelerators", "h100-sxm5-80gb")
    assert h100.peak["bf16"] == pytest.approx(989.4e12)
    assert h100.memory == 80 * 2**30
    assert h100.matmul_fraction == pytest.approx(0.803)
    assert h100.origin("matmul_fraction").confidence == "measured"
    assert h100.origin("idle_power").confidence == "assumed"
    nvl72 = catalog.get("nodes", "standard-nd128isr-gb200-v6")
    assert (nvl72.accelerators_per_node, nvl72.scale_up_domain) == (4, 72)
    assert catalog.get("links", "nvswitch-3").in_network_reduction
    assert not catalog.get("links", "nvswitch-2").in_network_reduction
    assert catalog.get("links", "ib-ndr").collective_step == pytest.approx(10e-6)
    assert catalog.get("grids", "US-VA").carbon * 3.6e6 == pytest.approx(369.1)


def test_unchecked_sources_are_marked(catalog: Catalog) -> None:
    for kind in ("accelerators", "links", "nodes"):
        for name in catalog.names(kind):
            entry = catalog.get(kind, name)
            assert entry.confidence is not None
            if (entry.source or "").endswith("(unchecked)") and ";" not in (entry.source or ""):
                assert entry.confidence == "assumed", name


def test_a_folder_of_ones_own_wins_and_may_extend_what_it_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("low", "high"):
        (tmp_path / folder / "accelerators").mkdir(parents=True)
    (tmp_path / "low/accelerators/h100-sxm5-80gb.yaml").write_text("extends: h100-sxm5-80gb\nmemory: 90 GB\n")
    (tmp_path / "high/accelerators/h100-sxm5-80gb.yaml").write_text("extends: h100-sxm5-80gb\ntdp: 500 W\n")
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path / "low"))
    made = Catalog.default([tmp_path / "high"]).get("accelerators", "h100-sxm5-80gb")
    assert (made.memory, made.tdp) == (90e9, 500.0)
    assert made.memory_bandwidth == pytest.approx(3352e9)
    node = Catalog.default([tmp_path / "high"]).cluster("dgx-h100").node
    assert node.accelerator.tdp == 500.0


def test_the_current_folder_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hardware_specs" / "links").mkdir(parents=True)
    (tmp_path / "hardware_specs/links/mine.yaml").write_text("latency: 2 us\nbandwidth: 5 GB/s\n")
    monkeypatch.chdir(tmp_path)
    assert Catalog.default().get("links", "mine").bandwidth == 5e9


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no folder"):
        Catalog.default([tmp_path / "nowhere"])


def test_all_that_is_wrong_in_a_users_folder_is_told_at_once(tmp_path: Path) -> None:
    for name, text in (("links/odd", "latency: fast\nbandwidth: 5 GB/s\n"), ("nodes/empty", "")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / f"{name}.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        Catalog.default([tmp_path])
    assert [Path(str(problem.file)).name for problem in caught.value.problems] == ["odd.yaml", "empty.yaml"]


def test_a_users_folder_without_specs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lonely.yaml").write_text("latency: 2 us\nbandwidth: 5 GB/s\n")
    with pytest.raises(SpecError, match="no specs in this folder") as caught:
        Catalog.default([tmp_path])
    assert "links" in str(caught.value.problems[0].help)


def test_offers_by_accelerator(catalog: Catalog) -> None:
    offers = catalog.offers("h100-sxm5-80gb")
    assert {offer.accelerator for offer in offers} == {"h100-sxm5-80gb"}
    assert {"aws", "gcp", "lambda"} <= {offer.provider for offer in offers}
    assert catalog.offers("no-such-thing") == []


def test_a_file_is_read_as_it_is_now_whatever_was_read_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same name, same size, same time of change: catalogues of one process share what they parsed, not what changed."""
    text = "name: mine\nmemory: {} GB\nmemory_bandwidth: 2 TB/s\npeak: {{fp32: 10 TFLOP/s}}\nsource: s\nconfidence: assumed\n"
    for place, memory in (("a", 16), ("b", 24)):
        file = tmp_path / place / "hardware_specs" / "accelerators" / "mine.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(text.format(memory), encoding="utf-8")
        os.utime(file, ns=(1, 1))
    found = []
    for place in ("a", "b", "a"):
        monkeypatch.chdir(tmp_path / place)
        found.append(Catalog.default().get("accelerators", "mine").memory)
    file.write_text(text.format(48), encoding="utf-8")
    os.utime(file, ns=(1, 1))
    monkeypatch.chdir(tmp_path / "b")
    found.append(Catalog.default().get("accelerators", "mine").memory)
    assert found == [16e9, 24e9, 16e9, 48e9]


def test_files_that_come_and_go_are_noticed(tmp_path: Path) -> None:
    """A link that leads nowhere is no file, in the order of paths at any depth."""
    inner = tmp_path / "links" / "inner"
    inner.mkdir(parents=True)

    def names() -> list[str]:
        return list(files_by_name("links", [tmp_path], None))

    assert names() == []
    (inner / "b.yaml").write_text("latency: 2 us\nbandwidth: 5 GB/s\n")
    (tmp_path / "links" / "a.yml").symlink_to(tmp_path / "target")
    assert names() == ["b"]
    (tmp_path / "target").write_text("latency: 2 us\nbandwidth: 5 GB/s\n")
    assert names() == ["a", "b"]
    (inner / "b.yaml").unlink()
    assert names() == ["a"]
