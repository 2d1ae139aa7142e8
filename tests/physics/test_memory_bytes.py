"""Memory of a device counted by hand on the example transformer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.physics.examples import node, transformer
from perfmodel.physics.layouts import EAGER_LOGIT_BYTES, LOGIT_BYTES, Sharding, layouts
from perfmodel.physics.memory import CUT_LOSS_BYTES, KEPT_LOGIT_BYTES, memory

S, H, LAYERS, WORDS = 1024.0, 1024.0, 2.0, 32_000.0


def parts(ops=None, schedule=None, **said):
    at = layouts(8.0, global_batch=32.0, accelerators_per_node=8.0, **{"micro_batch": 1} | said)
    held = memory(ops or transformer(), node(), at, schedule=schedule)
    return {name: float(value) for name, value in held.parts.items()}


def test_states_of_a_replica():
    params = float(transformer().params)
    found = parts(micro_batch=1)
    assert found["weights"] == 2 * params
    assert found["gradients"] == 2 * params
    assert found["optimizer"] == 12 * params


@pytest.mark.parametrize(
    ("sharding", "cut"),
    [(Sharding.ZERO1, (1, 1, 8)), (Sharding.ZERO2, (1, 8, 8)), (Sharding.FSDP, (8, 8, 8)),
     (Sharding.PARAMETER_SERVER, (1, 1, 1))],
)  # fmt: skip
def test_what_sharding_cuts(sharding, cut):
    params = float(transformer().params)
    found = parts(micro_batch=1, sharding=sharding)
    states = (found["weights"], found["gradients"], found["optimizer"])
    assert states == pytest.approx([width * params / n for width, n in zip((2, 2, 12), cut, strict=True)])


def test_sharded_weights_stay_whole_in_a_pipeline():
    params = 12 * H * H * LAYERS / 2 + WORDS * H  # one matrix for both ends is on both
    found = parts(micro_batch=1, pp=2, sharding=Sharding.FSDP)
    assert (found["weights"], found["gradients"]) == (2 * params, 4 * params)  # added up in 32 bit
    assert found["optimizer"] == 12 * params / 4


@pytest.mark.parametrize(
    ("said", "per_token"),
    [
        ({"recompute": 0.0}, 34 * LAYERS),
        ({"recompute": 0.05, "selective": 1.0}, 34 * LAYERS),
        ({"tp": 2}, 17 * LAYERS),
        ({"tp": 2, "sequence_parallel": 0.0}, (10 + 24 / 2) * LAYERS),
        ({"cp": 4}, 34 / 4 * LAYERS),
        ({"pp": 2}, 34 * LAYERS / 2),  # half the layers on the last stage, which has the logits
        (
            {"pp": 2, "schedule": "gpipe"},
            34 * LAYERS / 2 * 8,
        ),  # of four micro-batches for each replica of two
    ],
    ids=str,
)
def test_bytes_kept_for_the_backward_pass(said, per_token):
    assert parts(micro_batch=1, **said)["activations"] == pytest.approx(per_token * S * H)


@pytest.mark.parametrize(
    ("said", "inputs", "layer"),
    [
        ({"recompute": 1.0}, 2 * LAYERS, 34),  # inputs of each layer, and one layer unfolded
        ({"recompute": 0.5}, 18 * LAYERS, 17),
        ({"tp": 2, "recompute": 1.0}, LAYERS, 17),
        ({"tp": 2, "recompute": 1.0, "sequence_parallel": 0.0}, 2 * LAYERS, 10 + 24 / 2),
    ],
    ids=str,
)
def test_the_loss_is_done_before_a_layer_is_unfolded(said, inputs, layer):
    """Of the logits and the unfolded layer the larger is held, not both."""
    token = S * H
    few, many = (
        parts(replace(transformer(), logit_elements=np.asarray(float(words))), **said)
        for words in (0, 1000 * token)
    )
    assert few["activations"] == pytest.approx((inputs + layer) * token)
    assert many["activations"] == pytest.approx(inputs * token)
    assert many["logits"] == pytest.approx(1000 * token * LOGIT_BYTES / said.get("tp", 1))


TORCH = {"logit_bytes": EAGER_LOGIT_BYTES}


def test_what_tensor_parallelism_of_torch_keeps_whole():
    """Both products of a layer were given the sequence that was gathered for them, and the last one too."""
    cut, plain = parts(tp=2, declared=TORCH), parts(tp=2)
    assert cut["activations"] - plain["activations"] == pytest.approx(2 * 2 * S * H * LAYERS / 2)
    each = EAGER_LOGIT_BYTES + CUT_LOSS_BYTES
    assert cut["logits"] == pytest.approx(S * WORDS / 2 * each + 2 * S * H)


def test_what_a_pipeline_of_torch_keeps():
    """Four micro-batches on each stage: the logits of all are handed back at the end, and each has a buffer to be received in."""
    torch, plain = (
        parts(pp=2, declared=TORCH),
        parts(pp=2, declared={"logit_bytes": EAGER_LOGIT_BYTES - 0.001}),
    )
    assert torch["logits"] - plain["logits"] == pytest.approx(8 * S * WORDS * KEPT_LOGIT_BYTES, rel=1e-3)
    assert torch["buffers"] - plain["buffers"] == pytest.approx((8 + 1) * 2 * S * H)


def test_a_product_with_narrow_weights_keeps_its_input():
    frozen = replace(transformer(), trainable_fraction=np.asarray(0.01))
    wide, narrow = parts(frozen), parts(frozen, declared={"frozen_bytes": 0.5625})
    # The outputs of two norms, and the inner activations before the last product.
    assert narrow["activations"] - wide["activations"] == pytest.approx(2 * (2 + 4) * S * H * LAYERS)


def test_the_first_stage_holds_as_many_micro_batches_as_there_are_stages():
    """Eight of them on as many stages: with few words the first stage is the fullest."""
    bare = replace(transformer(), logit_elements=np.zeros(()), layers=np.asarray(8.0))
    for pp, alive in ((2, 2), (4, 4), (8, 8)):
        at = layouts(8.0, global_batch=8.0 * 8 / pp, accelerators_per_node=8.0, pp=pp, micro_batch=1)
        held = memory(bare, node(), at).parts["activations"]
        assert float(held) == pytest.approx(34 * LAYERS * S * H / pp * alive), pp


def test_what_a_job_states_of_its_memory():
    def held(**said):
        return parts(micro_batch=1, declared=said)

    params = float(transformer().params)
    assert held(held_gradient_bytes=4.0)["gradients"] == 4 * params
    assert held(optimizer_bytes=6.0)["optimizer"] == 6 * params
    assert held(offloaded_optimizer=1.0)["optimizer"] == held(offloaded_parameters=1.0)["weights"] == 0.0
    assert held(kept_factor=1.5)["activations"] == pytest.approx(1.5 * 34 * LAYERS * S * H)
    assert held(logit_bytes=4.0)["logits"] == S * WORDS * 4


def test_the_band_of_memory():
    at = layouts(
        8.0,
        global_batch=32.0,
        accelerators_per_node=8.0,
        micro_batch=1,
        declared={"held_gradient_bytes": 4.0},
    )
    narrow = replace(at, open_gradient=np.asarray(0.5))
    sure, open_ = memory(transformer(), node(), at), memory(transformer(), node(), narrow)
    assert float(sure.total) == float(open_.total)
    assert float(sure.low - open_.low) == pytest.approx(2 * float(transformer().params))
    assert float(sure.low) < float(sure.total) < float(sure.high)
    assert float(sure.allocated) == float(sure.total) - float(sure.parts["reserved"])


def test_logits_and_networks_that_are_no_transformers():
    assert parts(micro_batch=2, tp=2, cp=2)["logits"] == 2 * S * WORDS / 4 * 6
    other = replace(transformer(), is_transformer=np.asarray(0.0), activation_elements=np.asarray(1e6))
    for said, share in (({}, 1.0), ({"recompute": 1.0}, 0.2), ({"pp": 2}, 1.0), ({"tp": 2}, 0.5)):
        at = layouts(8.0, global_batch=32.0, accelerators_per_node=8.0, micro_batch=1, **said)
        found = float(memory(other, node(), at).parts["activations"])
        assert found == pytest.approx(2.2e6 * 2 * share), said
