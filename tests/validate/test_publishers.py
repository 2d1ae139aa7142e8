"""Publishers: whose code and labels a family has, and the half of them on which it counts."""

from __future__ import annotations

import csv
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.validate.corpus import POINT_COLUMNS, Corpus, read_corpus
from perfmodel.validate.folds import SCHEMES, shipped_folds
from perfmodel.validate.publishers import HALVES, half_of
from perfmodel.validate.validation import shipped_corpus

FAMILIES = """family,group,source,workload,precision,accelerator,accelerators_per_node,scale_up,scale_out,network_gbit_per_s_per_node,framework_class,sharding,regime
one,g,s,resnet50,fp16,a100-sxm4-80gb,8,nvswitch-2,,,pytorch_eager,ddp,weak
"""
SOURCES = "source,title,address,publisher\ns,somebody,example.org,{}\n"


def publishers(folder: Path, families: str = FAMILIES, publisher: str | None = None) -> list[str]:
    """Of the families of a small folder, with or without a table of sources."""
    folder.mkdir()
    (folder / "families.csv").write_text(families)
    (folder / "workloads.csv").write_text("workload,kind\n")
    (folder / "points.csv").write_text(",".join(POINT_COLUMNS) + "\n")
    if publisher is not None:
        (folder / "sources.csv").write_text(SOURCES.format(publisher))
    return [row.text["publisher"] for row in read_corpus(folder).families.values()]


def test_a_family_says_who_published_it_else_its_source_does_else_it_is_the_source(tmp_path: Path) -> None:
    head, row = FAMILIES.splitlines()
    stated = f"{head},publisher\n{row},lab/code\n"
    assert publishers(tmp_path / "family", stated, "club/code") == ["lab/code"]
    assert publishers(tmp_path / "source", publisher="club/code") == ["club/code"]
    assert publishers(tmp_path / "blank", publisher="") == ["s"]
    assert publishers(tmp_path / "none") == ["s"]


def test_every_shipped_source_and_family_has_a_publisher(corpus: Corpus) -> None:
    with (shipped_corpus() / "sources.csv").open(encoding="utf-8", newline="") as stream:
        stated = {row["source"]: row["publisher"] for row in csv.DictReader(stream)}
    assert all("/" in row.text["publisher"] for row in corpus.families.values())
    assert {source for source, publisher in stated.items() if not publisher} == {
        source for source in stated if source.startswith("mlperf-")
    }


@pytest.mark.parametrize(
    "together",
    [
        ("tpu-ironwood", "tpu-v5p-recipes", "gpu-recipes", "maxtext"),
        ("megatron-bridge", "nemo", "nemo-launcher", "dgxc", "megatron-lm-llama", "korthikanti-2022"),
        ("dlperf", "libai", "oneflow-benchmark"),
        ("bigscience", "bloom-2022"),
        ("llm-foundry", "mosaicml-diffusion"),
    ],
)
def test_pages_of_one_code_base_are_one_publisher(corpus: Corpus, together: tuple[str, ...]) -> None:
    found = {row.text["publisher"] for row in corpus.families.values() if row.text["source"] in together}
    assert len(found) == 1


def test_all_rounds_of_a_submitter_are_one_publisher(corpus: Corpus) -> None:
    rounds = [row.text for row in corpus.families.values() if row.text["source"].startswith("mlperf-")]
    for submitter in ("NVIDIA;", "Dell;", "Graphcore;", "Google; TPU"):
        assert len({text["publisher"] for text in rounds if text["note"].startswith(submitter)}) == 1
        assert len({text["source"] for text in rounds if text["note"].startswith(submitter)}) > 1


def test_both_halves_have_publishers_enough_to_tell(corpus: Corpus) -> None:
    counts = Counter(map(half_of, {row.text["publisher"] for row in corpus.families.values()}))
    least = sum(counts.values()) / 3
    assert all(counts[half] >= least for half in HALVES)


@given(st.lists(st.text(min_size=1), min_size=200, max_size=200, unique=True))
def test_names_fall_into_either_half_alike(names: list[str]) -> None:
    """Five standard deviations of a fair coin."""
    to_choose = sum(half_of(name) == "choose" for name in names)
    assert abs(to_choose - 100) < 5 * math.sqrt(50)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_key_that_no_fit_has_seen_has_a_fold_too(scheme: str) -> None:
    folds = shipped_folds()
    key = next(iter(folds.keys[scheme]))
    assert folds.fold_of(scheme, key) == folds.keys[scheme][key]
    found = {folds.fold_of(scheme, f"nobody-{i}") for i in range(400)}
    assert found == set(range(len(folds.values[scheme])))
