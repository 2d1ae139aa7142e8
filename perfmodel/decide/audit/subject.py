"""What a claim is about, as the few numbers that physics bounds it by. No fitted coefficient enters here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from perfmodel.physics.constants import FAST_CONVOLUTION
from perfmodel.physics.counting import operations
from perfmodel.physics.operations import TRANSFORMER_KINDS
from perfmodel.specs.hardware import Accelerator, Cluster
from perfmodel.specs.workload import Workload

CONVOLUTIONAL = frozenset({"convnet", "detection", "segmentation", "diffusion", "speech", "tts", "generic"})
# Encoders are fed padded sequences; an implementation may skip the padding. MLPerf BERT's real tokens are about
# half of 512, SQuAD's about 0.45 of 384: no public set falls below this share.
REAL_TOKENS = 0.4
PADDED = frozenset({"encoder-transformer", "encoder-decoder-transformer", "rnn-translation"})
# Logits that a training step really needs: those of masked tokens (BERT), or, with an adaptive softmax (Grave et
# al., arXiv:1609.04309, sec. 4), a fraction of a large vocabulary.
MASKED_SHARE = 0.15
ADAPTIVE_SHARE = 0.25
WEIGHT_BYTES: dict[str, float] = {
    "fp64": 8,
    "fp32": 4,
    "tf32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8": 1,
    "int8": 1,
    "fp4": 0.5,
}


@dataclass(frozen=True)
class Machine:
    """Datasheet numbers of one accelerator and of the links around it; None where the claim does not say."""

    name: str
    peak_flop_per_s: Mapping[str, float]
    memory_bytes: float
    memory_bytes_per_s: float | None = None
    tdp_w: float | None = None
    idle_w: float | None = None
    per_node: int | None = None
    domain: int | None = None  # accelerators joined by scale-up links
    up_bytes_per_s: float | None = None  # per accelerator and direction
    up_reduces: bool = True
    node_bytes_per_s: float | None = None  # all network cards of a node, per direction
    out_reduces: bool = True

    def peak(self, precision: str | None) -> tuple[float, str]:
        """Dense datasheet rate at `precision`; the highest there is when the claim names none."""
        if precision is not None and precision in self.peak_flop_per_s:
            return self.peak_flop_per_s[precision], precision
        if precision in ("fp16", "bf16"):
            for other in ("bf16", "fp16"):
                if other in self.peak_flop_per_s:
                    return self.peak_flop_per_s[other], other
        best = max(self.peak_flop_per_s, key=lambda name: self.peak_flop_per_s[name])
        return self.peak_flop_per_s[best], best


@dataclass(frozen=True)
class Load:
    """Counts of one sample and of the model."""

    name: str
    sample: str
    model_flop: float  # forward and backward as usually counted, per sample
    minimum_flop: float  # what an algorithm really needs, per sample
    minimum_why: str
    params: float  # held on accelerators: recommender tables may live in host memory and are left out
    synchronised_params: float  # dense, trained, replicated: their gradients must meet every step
    trainable_fraction: float
    is_transformer: bool


@dataclass(frozen=True)
class Split:
    """How the claim says the model is cut; `known` is False where it says nothing."""

    known: bool = False
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    sharding: str | None = None


@dataclass(frozen=True)
class Subject:
    """Machine and loads of one claim; `load` is that of its usual length, `loads` those of other lengths."""

    machine: Machine
    load: Load | None
    loads: Mapping[int, Load] = field(default_factory=dict)

    def load_at(self, seq_len: float | None) -> Load | None:
        """The load of a point that names its own sequence length."""
        return self.load if seq_len is None else self.loads.get(int(seq_len), self.load)


def machine_of(accelerator: Accelerator, cluster: Cluster | None) -> Machine:
    """Read the catalogue's records; an upper bound of each rate is taken where a link leaves room."""
    base = Machine(
        name=accelerator.title or accelerator.name or "accelerator",
        peak_flop_per_s={str(name): rate for name, rate in accelerator.peak.items()},
        memory_bytes=accelerator.memory,
        memory_bytes_per_s=accelerator.memory_bandwidth,
        tdp_w=accelerator.tdp,
        idle_w=accelerator.idle_power,
    )
    if cluster is None:
        return base
    node = cluster.node
    up, out = node.scale_up, cluster.network
    nics = cluster.nics_per_node or node.nics_per_node
    return Machine(
        name=base.name,
        peak_flop_per_s=base.peak_flop_per_s,
        memory_bytes=base.memory_bytes,
        memory_bytes_per_s=base.memory_bytes_per_s,
        tdp_w=base.tdp_w,
        idle_w=base.idle_w,
        per_node=node.accelerators_per_node,
        domain=node.scale_up_domain or node.accelerators_per_node,
        up_bytes_per_s=up.bandwidth if up else None,
        up_reduces=bool(up and (up.in_network_reduction or up.kind == "switch")),
        node_bytes_per_s=out.bandwidth * nics if out and nics else None,
        # InfiniBand switches may add up values on the way (SHARP) whether or not the record says so.
        out_reduces=bool(
            out and (out.in_network_reduction or (out.name or "").startswith(("ib-", "hdr", "ndr")))
        ),
    )


def load_of(workload: Workload, seq_len: int | None) -> Load | None:
    """Counts from the workload; None where it has no FLOP count."""
    ops = operations(workload, seq_len)
    forward = float(ops.forward_flop())
    if forward <= 0:
        return None
    slots = 2.0 * ops.tokens * ops.slot_rows * ops.slot_inner * ops.slot_outer * ops.slot_count
    trainable = float(ops.trainable_fraction)
    model = float(ops.model_flop())
    logits = (2.0 + trainable) * float(np.sum(slots * ops.slot_last))
    minimum, why = model, "3 x forward"
    if workload.kind in PADDED:
        minimum = (model - (1.0 - MASKED_SHARE) * logits) * REAL_TOKENS
        why = f"3 x forward, {REAL_TOKENS:g} of the tokens real, logits of {MASKED_SHARE:.0%} of them"
    elif workload.kind in CONVOLUTIONAL:
        minimum, why = model / FAST_CONVOLUTION, f"3 x forward / {FAST_CONVOLUTION:g} for fast convolutions"
    elif logits > 0:
        minimum = model - (1.0 - ADAPTIVE_SHARE) * logits
        why = f"3 x forward, {ADAPTIVE_SHARE:.0%} of the logits"
    return Load(
        name=workload.title or workload.name or "workload",
        sample=workload.sample,
        model_flop=model,
        minimum_flop=minimum,
        minimum_why=why,
        params=float(ops.params - ops.table_params),
        synchronised_params=float(ops.block_params) * trainable,
        trainable_fraction=trainable,
        is_transformer=workload.kind in TRANSFORMER_KINDS,
    )
