"""The zoo: complete, readable, and with parameter counts that follow from the dimensions."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from perfmodel.physics.counting import operations
from perfmodel.specs.catalog import Catalog
from perfmodel.workloads.parameters import count, dimensions

CATALOG = Catalog.default()
NAMES = CATALOG.names("workloads")
# Models whose structure the dimensions of a spec cannot say.
BEYOND_DIMENSIONS = {
    "longformer": "second query, key and value projections for global attention",
    "transformer-xl": "adaptive embeddings narrow with word frequency",
    "transformer-xl-base": "projections of relative positions",
    "transformer-xl-base-adaptive": "projections of relative positions",
    "transformer-xl-large-256": "adaptive embeddings narrow with word frequency",
    "transformer-xl-large": "adaptive embeddings narrow with word frequency",
    "transformer-xl-large-adaptive": "adaptive embeddings narrow with word frequency",
}
POPULAR = frozenset(
    [
        "llama2-7b",
        "llama2-70b",
        "llama3-8b",
        "llama3-70b",
        "llama3-405b",
        "llama3.2-1b",
        "llama3.2-3b",
        "llama4-scout",
        "llama4-maverick",
        "mistral-7b",
        "mistral-nemo-12b",
        "mistral-small-24b",
        "mistral-large-123b",
        "mixtral-8x7b",
        "mixtral-8x22b",
        "qwen2.5-0.5b",
        "qwen2.5-7b",
        "qwen2.5-72b",
        "qwen3-0.6b",
        "qwen3-8b",
        "qwen3-32b",
        "qwen3-30b-a3b",
        "qwen3-235b-a22b",
        "gemma-2b",
        "gemma2-2b",
        "gemma2-9b",
        "gemma2-27b",
        "gemma3-1b",
        "gemma3-4b",
        "gemma3-12b",
        "gemma3-27b",
        "phi-2",
        "phi-3-mini",
        "phi-3-medium",
        "phi-4",
        "deepseek-v2",
        "deepseek-v2-lite",
        "deepseek-v3",
        "deepseek-r1",
        "kimi-k2",
        "gpt2-small",
        "gpt2-medium",
        "gpt2-large",
        "gpt2-xl",
        "gpt-neox-20b",
        "gpt-j-6b",
        "pythia-1.4b",
        "pythia-12b",
        "gpt-oss-20b",
        "gpt-oss-120b",
        "opt-125m",
        "opt-6.7b",
        "opt-66b",
        "bloom-7b1",
        "bloom-176b",
        "falcon-7b",
        "falcon-40b",
        "falcon-180b",
        "t5-small",
        "t5-base",
        "t5-11b",
        "bert-base",
        "bert-large",
        "roberta-base",
        "vit-b16",
        "vit-l16",
        "vit-h14",
        "clip-vit-l14",
        "stable-diffusion-v1.5",
        "stable-diffusion-v2",
        "whisper-small",
        "whisper-large-v3",
        "dlrm",
        "dlrm-dcnv2",
        "resnet50",
    ]
)


def test_every_trained_workload_of_the_corpus_is_there() -> None:
    corpus = Path(__file__).parents[2] / "validation" / "measured" / "workloads.csv"
    with corpus.open(encoding="utf-8") as file:
        trained = {row["workload"]: row for row in csv.DictReader(file)}
    assert set(trained) <= set(NAMES)
    for name, row in trained.items():
        zoo = CATALOG.get("workloads", name)
        assert zoo.kind == row["kind"]
        for field in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq_len", "experts", "top_k"):
            assert getattr(zoo, field) == (int(row[field]) if row[field] else None), (name, field)
        if row["params"]:
            assert zoo.params == pytest.approx(float(row["params"]), rel=0.01), name


def test_usual_open_models_are_there() -> None:
    assert len(POPULAR) >= 60
    assert set(NAMES) >= POPULAR


@pytest.mark.parametrize("name", NAMES)
def test_entry_reads_and_names_its_source(name: str) -> None:
    workload = CATALOG.get("workloads", name)
    assert workload.name == name
    assert workload.source
    assert workload.confidence
    if workload.params is not None:
        assert workload.origin("params").source
    flop = float(operations(workload).forward_flop())
    assert flop > 0 or workload.flop_per_sample_forward is None


def test_parameters_follow_from_the_dimensions() -> None:
    """Within 1 %, for every model that transformer dimensions describe."""
    errors: dict[str, float] = {}
    for name in NAMES:
        workload = CATALOG.get("workloads", name)
        stated = dimensions(workload)
        if stated is not None:
            assert workload.params is not None, name
            errors[name] = count(stated).total / workload.params - 1
    assert len(errors) > 200
    assert {name: e for name, e in errors.items() if abs(e) > 0.01}.keys() == BEYOND_DIMENSIONS.keys()


def test_first_line_serves_editors() -> None:
    for name in NAMES:
        path = CATALOG.path("workloads", name)
        assert path is not None
        first = path.read_text(encoding="utf-8").partition("\n")[0]
        assert first.startswith("# yaml-language-server: $schema=")
        assert first.endswith("/workload.json")


@pytest.mark.parametrize(
    ("name", "active"),
    [("deepseek-v3", 37e9), ("mixtral-8x7b", 12.9e9), ("qwen3-235b-a22b", 22e9), ("gpt-oss-120b", 5.1e9)],
)
def test_active_parameters_are_those_of_the_model_cards(name: str, active: float) -> None:
    stated = dimensions(CATALOG.get("workloads", name))
    assert stated is not None
    counted = count(stated)
    # Cards differ on whether the input embedding, which is looked up and not multiplied, is counted.
    without = counted.active - counted.embedding
    assert min(abs(counted.active / active - 1), abs(without / active - 1)) < 0.02
