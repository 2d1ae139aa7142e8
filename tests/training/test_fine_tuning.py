"""Fine-tuning: what fits on a device and what does not, as its authors and people who ran it say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfmodel.errors import SpecError
from perfmodel.physics.memory import Memory, memory
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.jobs import load_job
from perfmodel.training.search import search
from perfmodel.training.setup import Setup, setup_of

CATALOG = Catalog.default()


def setup(workload: str, device: str, **said: Any) -> Setup:
    node = {"name": "one", "accelerator": device, "accelerators_per_node": 1}
    stack = {"framework": "transformers"} | said.pop("stack", {})
    words = {
        "workload": workload,
        "cluster": {"node": node},
        "k": 1,
        "global_batch": 1,
        "seq_len": 512,
        "stack": stack,
    }
    changed = {f"workload.{key}": value for key, value in said.pop("adapter", {}).items()}
    return setup_of(load_job(words | said, overrides=changed, catalog=CATALOG))


def fits(*names: str, **said: Any) -> bool:
    return search(setup(*names, **said)).count > 0


def held(*names: str, **said: Any) -> Memory:
    made = setup(*names, layout={"sharding": "ddp", "recompute": "full"}, **said)
    return memory(made.operations, made.machine, search(made).at)


LORA = {"adapter_rank": 16}
NARROW = {"master_weights": False}


@pytest.mark.parametrize(
    ("workload", "device", "said", "expected"),
    [
        # Dettmers et al. 2023, arXiv:2305.14314: 65 billion parameters on one device of 48 GB, in 4 bits alone.
        ("llama3-70b", "l40s", {"adapter": LORA, "stack": {"frozen_dtype": "nf4", **NARROW}}, True),
        ("llama3-70b", "l40s", {"adapter": LORA, "stack": NARROW}, False),
        ("llama3-70b", "a100-sxm4-80gb", {"adapter": LORA, "stack": NARROW}, False),
        ("llama3-8b", "rtx-4090", {"adapter": LORA, "stack": {"frozen_dtype": "nf4", **NARROW}}, True),
        ("llama3-8b", "rtx-4090", {}, False),
        # Sixteen bytes a parameter are more than a device of 80 GB has; without moments in 32 bit they are not.
        ("llama3-8b", "a100-sxm4-80gb", {}, False),
        ("llama3-8b", "a100-sxm4-80gb", {"stack": {"optimizer": "adamw-8bit", **NARROW}}, True),
        ("llama3-8b", "a100-sxm4-80gb", {"stack": {"offload": ["optimizer"]}}, True),
    ],
)
def test_what_fits(workload: str, device: str, said: dict[str, Any], expected: bool) -> None:
    assert fits(workload, device, **said) is expected


def test_an_adapter_counts_its_own_parameters() -> None:
    """Rank 8 on queries and values of Llama 2 7B: 4,194,304 (LitGPT's resource tables)."""
    made = setup("llama2-7b", "a100-sxm4-80gb", adapter={"adapter_rank": 8, "adapter_on": "query-value"})
    assert float(made.operations.trainable_fraction * made.operations.params) == pytest.approx(4_194_304)
    wider = setup("llama2-7b", "a100-sxm4-80gb", adapter={"adapter_rank": 8})
    assert float(wider.operations.trainable_fraction * wider.operations.params) == pytest.approx(19_988_480)


def test_each_statement_takes_what_it_says() -> None:
    def part(name: str, **stack: Any) -> float:
        return float(np.ravel(held("llama3-8b", "b300-sxm", stack=stack).parts[name])[0])

    full = part("optimizer")
    assert part("optimizer", optimizer="adamw-8bit") == pytest.approx(full * 6 / 12)
    assert part("optimizer", optimizer="adafactor") == pytest.approx(full * 4 / 12)
    assert part("optimizer", optimizer="muon") == pytest.approx(full * 8 / 12)
    assert part("optimizer", master_weights=False) == pytest.approx(full * 4 / 12)
    assert part("optimizer", optimizer="sgd", master_weights=False) == 0.0
    assert part("optimizer", offload=["optimizer"]) == part("weights", offload=["parameters"]) == 0.0
    assert part("activations", offload=["activations"]) < part("activations")
    assert part("logits", fused_loss=True) < part("logits")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"adapter_on": "attention"}, "adapter_on needs an adapter_rank"),
        ({"adapter_rank": 8, "trainable_params": 10}, "both state the trainable parameters"),
    ],
)
def test_what_contradicts_itself_is_refused(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        setup("llama3-8b", "l40s", adapter=changed)


def test_a_changed_dimension_counts_the_parameters_anew() -> None:
    words = {"workload": "llama3-70b", "cluster": "dgx-h100"}
    job = load_job(words, overrides={"workload.layers": 12}, catalog=CATALOG)
    assert float(setup_of(job).operations.params) == pytest.approx(12.37e9, rel=0.001)
    assert any("parameters are counted from the dimensions: layers changed" in note for note in job.notes)
    varied = load_job(words | {"workload": {"extends": "llama3-70b", "layers": 12}}, catalog=CATALOG)
    assert float(setup_of(varied).operations.params) == float(setup_of(job).operations.params)
    assert any("layers changed" in note for note in varied.notes)
    said = load_job(words, overrides={"workload.layers": 12, "workload.params": "20 G"}, catalog=CATALOG)
    assert said.workload.params == 20e9
