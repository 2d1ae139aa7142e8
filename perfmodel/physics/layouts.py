"""How a job is laid on K accelerators, as a struct of arrays that broadcast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.constants import BUCKET_BYTES, FIRST_BUCKET_BYTES
from perfmodel.specs.layout import MISSING_LAYERS, Recompute

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Array = NDArray[np.float64]
Index = int | slice | NDArray[np.bool_ | np.int64]
Struct = TypeVar("Struct", bound="DataclassInstance")


class Sharding(IntEnum):
    """What data-parallel ranks hold of weights, gradients and optimizer states."""

    DDP = 0
    ZERO1 = 1
    ZERO2 = 2
    FSDP = 3  # ZeRO-3
    HSDP = 4
    PARAMETER_SERVER = 5


# Whose ranks may share a copy in groups.
SHARDED = (Sharding.ZERO1, Sharding.ZERO2, Sharding.FSDP, Sharding.HSDP)

SHARDING_CODES: dict[str, Sharding] = {
    "ddp": Sharding.DDP,
    "zero1": Sharding.ZERO1,
    "zero2": Sharding.ZERO2,
    "zero3": Sharding.FSDP,
    "fsdp": Sharding.FSDP,
    "hsdp": Sharding.HSDP,
    "parameter_server": Sharding.PARAMETER_SERVER,
    # Embedding and classifier sharding keep the dense part replicated; their exchange is in the operations.
    "embedding_sharded": Sharding.DDP,
    "classifier_sharded": Sharding.DDP,
    "unknown": Sharding.ZERO1,
}

# Share of a forward pass that is repeated in the backward pass.
RECOMPUTE_SHARE: dict[str, float] = {"none": 0.0, "selective": 0.05, "full": 1.0}


def recompute_share(said: Recompute | str) -> float:
    """Share of a forward pass that is repeated, of a word or of the share itself.

    Parameters
    ----------
    said : word of a layout, or the share.

    Returns
    -------
    0 to 1.

    >>> recompute_share("selective"), recompute_share("full"), recompute_share(0.3)
    (0.05, 1.0, 0.3)
    """
    return RECOMPUTE_SHARE[said] if isinstance(said, str) else float(said)


def recompute_shown(share: float, selective: float) -> Recompute | None:
    """What is recomputed, as a layout states it: the word that means it, else the share; None where it is a belief.

    Parameters
    ----------
    share : of a forward pass that is repeated; NaN where unknown.
    selective : 1 where attention alone is repeated.

    Returns
    -------
    Word or share.

    >>> recompute_shown(0.05, 1.0), recompute_shown(0.05, 0.0), recompute_shown(1.0, 0.0), recompute_shown(np.nan, 0.0)
    ('selective', 0.05, 'full', None)
    """
    if np.isnan(share):
        return None
    if selective > 0.0:
        return "selective"
    if 0.0 < share < 1.0:
        return round(share, 4)
    return "full" if share >= 1.0 else "none"


@dataclass(frozen=True, slots=True)
class Layouts:
    """Degrees of parallelism and batch of each point; arrays of one broadcastable shape, or scalars."""

    k: Array
    dp: Array
    tp: Array
    pp: Array
    cp: Array
    ep: Array
    etp: Array  # tensor parallelism inside an expert; 0: what tensor groups leave to it
    vpp: Array
    micro_batch: Array  # samples
    accumulation: Array  # micro-batches a step
    global_batch: Array  # samples
    sharding: Array  # a Sharding
    shard_group: Array  # ranks that share one copy of what is sharded
    recompute: Array  # share of a forward pass repeated; NaN where nobody said
    freed: Array  # share of its activations for which there is no room, where nobody said what is repeated
    selective: Array  # 1 where attention is recomputed
    sequence_parallel: Array  # 1 where norms and residuals are cut by tp as well
    per_node: Array  # accelerators of the job in each node
    # What a job declares beside its layout, and what is known of a measured run (`tp_hidden`, `run_steps`); names and
    # defaults in `DECLARED`.
    gradient_bytes: Array  # per exchanged gradient; 0: as the precision has it
    held_gradient_bytes: (
        Array  # of the gradients that a replica adds up, where they are wider than its weights
    )
    open_gradient: Array  # share of those that nobody stated and that another setting would save
    optimizer_bytes: Array  # per trained parameter, a wide copy of the weight too; negative: Adam's
    frozen_bytes: Array  # per parameter that is not trained; 0: as the precision has it
    logit_bytes: Array  # per logit, all its copies
    kept_factor: Array  # activations of a transformer that are kept, over those that fused kernels keep
    offloaded_optimizer: Array  # 1 where the host keeps it
    offloaded_parameters: Array
    offloaded_activations: Array
    compression: Array  # bytes of a gradient over bytes on the wire
    compression_s: Array  # of a rank, once an exchange
    sync_every: Array  # steps from one exchange between replicas to the next
    bucket_bytes: Array
    first_bucket_bytes: Array
    tp_hidden: Array  # of the four tensor-parallel calls of a layer; NaN: the belief about them holds
    expert_hidden: Array  # 1 where compute hides the exchange of experts, 0 where nothing does; NaN: the belief about it holds
    stall_s: Array  # mean of a step
    run_steps: Array  # of a run whose whole time, start included, is shared by them; infinite: steady ones
    loader_bytes_per_s: Array  # of a node; infinite: the belief about it holds
    storage_bytes_per_s: Array  # of the whole job
    length_spread: Array  # standard deviation over mean of a sample's work
    slow_share: Array  # of devices that are always slow
    slowdown: Array  # their step time over a healthy one's
    data_algorithm: (
        Array  # of the exchange between replicas: a code of `algorithms.CODES`, 0 being the library's own
    )
    tensor_algorithm: Array
    context_algorithm: Array
    expert_algorithm: Array

    @property
    def expert_ranks(self) -> Array:
        """Devices of a stage that share one copy of the experts: tensor groups cut what expert groups leave whole.

        Megatron's --expert-tensor-parallel-size is by default that of tensor parallelism; a stated one cuts each expert.
        """
        return np.where(self.etp > 0.0, self.ep * self.etp, np.maximum(self.ep, self.tp))

    @property
    def expert_cut(self) -> Array:
        """Devices that share one expert where a layout states it, else 1."""
        return np.maximum(self.etp, 1.0)

    @property
    def expert_copies(self) -> Array:
        """Devices that hold the same experts."""
        return np.maximum(self.k / (self.expert_ranks * self.pp), 1.0)


LOGIT_BYTES = 6.0  # 16-bit logits and their 32-bit softmax, in place
FUSED_LOGIT_BYTES = 4.0  # 16-bit logits and their gradient, of a loss that is one kernel
EAGER_LOGIT_BYTES = 14.0  # 16-bit logits, a copy in 32 bit, its log-softmax and the gradient of that

DECLARED: dict[str, float] = {
    "gradient_bytes": 0.0,
    "held_gradient_bytes": 0.0,
    "open_gradient": 0.0,
    "optimizer_bytes": -1.0,
    "frozen_bytes": 0.0,
    "logit_bytes": LOGIT_BYTES,
    "kept_factor": 1.0,
    "offloaded_optimizer": 0.0,
    "offloaded_parameters": 0.0,
    "offloaded_activations": 0.0,
    "compression": 1.0,
    "compression_s": 0.0,
    "sync_every": 1.0,
    "bucket_bytes": BUCKET_BYTES,
    "first_bucket_bytes": FIRST_BUCKET_BYTES,
    "tp_hidden": np.nan,
    "expert_hidden": np.nan,
    "stall_s": 0.0,
    "run_steps": np.inf,
    "loader_bytes_per_s": np.inf,
    "storage_bytes_per_s": np.inf,
    "length_spread": 0.0,
    "slow_share": 0.0,
    "slowdown": 1.0,
    "data_algorithm": 0.0,
    "tensor_algorithm": 0.0,
    "context_algorithm": 0.0,
    "expert_algorithm": 0.0,
}

ONE_BUCKET = 1e12  # bytes, more than any gradient


def uneven_stages(layers: ArrayLike, pp: ArrayLike) -> Array:
    """How much longer the fullest pipeline stage takes than the mean one, as a share of the mean.

    .. math:: \\max\\left(0, \\frac{p \\lceil L/p \\rceil - 2 - L}{L}\\right)                     (1)

    Two layers may be missing, one on the first and one on the last stage, whose embeddings and logits take their place.

    Parameters
    ----------
    layers : L.
    pp : p, pipeline stages.

    Returns
    -------
    Share of the mean, 0 where the layers divide.

    >>> uneven_stages([126, 61, 61, 80], [16, 16, 1, 8]).round(4).tolist()
    [0.0, 0.0164, 0.0, 0.0]
    """
    total, stages = np.asarray(layers, float), np.asarray(pp, float)
    missing = np.ceil(total / stages) * stages - total - MISSING_LAYERS
    return np.asarray(np.where(stages > 1.0, np.maximum(missing, 0.0) / np.maximum(total, 1.0), 0.0))


def usual_bucket_bytes(framework: str) -> float:
    """Bytes of gradients that a class of frameworks reduces in one call by default.

    Megatron-LM before its core reduces them all after the last backward pass (its model/distributed.py; overlap came
    with --overlap-grad-reduce in 2023).

    Parameters
    ----------
    framework : class of software.

    Returns
    -------
    Bytes of a bucket.

    >>> usual_bucket_bytes("megatron_core") < usual_bucket_bytes("megatron_eager")
    True
    """
    return ONE_BUCKET if framework == "megatron_eager" else BUCKET_BYTES


def usual_gradient_bytes(framework: str, precision: str) -> float:
    """Bytes of an exchanged gradient by default; 0: as the precision has it.

    Megatron-LM adds and reduces gradients of bf16 in 32 bit (its arguments.py), and so did NeMo on top of it.

    Parameters
    ----------
    framework : class of software.
    precision : of the training.

    Returns
    -------
    Bytes of one gradient.

    >>> usual_gradient_bytes("megatron_eager", "bf16"), usual_gradient_bytes("pytorch_eager", "bf16")
    (4.0, 0.0)
    """
    return 4.0 if (framework, precision) == ("megatron_eager", "bf16") else 0.0


MEGATRON = ("megatron_eager", "megatron_core")
# Classes of PyTorch whose loss takes the logits in 32 bit as library code does.
LIBRARY_LOSS = ("pytorch_eager", "fsdp_eager", "fsdp_compiled")
# Classes whose norms and activations are separate operations, with tensors of their own. LitGPT's Llama 2 of 7 and 13 billion
# parameters kept 1.32 and 1.34 times what fused kernels would (validation/measured/memory.csv, the increase per sample).
UNFUSED = ("pytorch_eager", "fsdp_eager")
UNFUSED_KEPT = 1.33


def usual_memory(framework: str, precision: str) -> dict[str, float]:
    """What a class of frameworks holds in memory by default.

    Megatron-LM and its core keep main gradients of 16-bit weights in 32 bit, whatever is exchanged
    (core/distributed/param_and_grad_buffer.py), unless its arguments say otherwise; its parallel loss works in place,
    PyTorch's does not.

    Parameters
    ----------
    framework : class of software.
    precision : of the training.

    Returns
    -------
    Values of `DECLARED` by name.

    >>> usual_memory("megatron_core", "bf16")["held_gradient_bytes"], usual_memory("fsdp_eager", "bf16")["kept_factor"]
    (4.0, 1.33)
    """
    wide = framework in MEGATRON and precision not in ("fp32", "tf32", "fp16")
    return {
        "held_gradient_bytes": 4.0 if wide else 0.0,
        "open_gradient": 0.5 if wide else 0.0,
        "logit_bytes": EAGER_LOGIT_BYTES if framework in LIBRARY_LOSS else LOGIT_BYTES,
        "kept_factor": UNFUSED_KEPT if framework in UNFUSED else 1.0,
    }


def layouts(
    k: ArrayLike,
    *,
    global_batch: ArrayLike,
    accelerators_per_node: ArrayLike,
    tp: ArrayLike = 1,
    pp: ArrayLike = 1,
    cp: ArrayLike = 1,
    ep: ArrayLike = 1,
    etp: ArrayLike = 0,
    vpp: ArrayLike = 1,
    dp: ArrayLike | None = None,
    micro_batch: ArrayLike | None = None,
    accumulation: ArrayLike | None = None,
    sharding: ArrayLike = Sharding.DDP,
    shard_group: ArrayLike | None = None,
    recompute: ArrayLike = 0.0,
    freed: ArrayLike = 1.0,
    selective: ArrayLike = 0.0,
    sequence_parallel: ArrayLike = 1.0,
    per_node: ArrayLike | None = None,
    declared: Mapping[str, ArrayLike] | None = None,
) -> Layouts:
    """Fill in what follows from the rest: dp = K/(tp*pp*cp), accumulation = batch/(dp*micro_batch).

    Where both micro_batch and accumulation are given they stand, and make up at least the batch.

    `declared` holds values of `DECLARED`; each broadcasts against the layouts.

    Parameters
    ----------
    k : accelerators.
    global_batch : samples of a step.
    accelerators_per_node : of a full node.
    tp, pp, cp, ep, etp, vpp, dp : degrees; `etp` 0: what tensor groups leave to it; `dp` None: what K leaves.
    micro_batch, accumulation : samples of a micro-batch, micro-batches of a step.
    sharding, shard_group : code of `Sharding`, and the ranks that share one copy.
    recompute, freed, selective, sequence_parallel : see `Layouts`.
    per_node : accelerators of the job in a node; None: as many as a node holds.
    declared : values by name.

    Returns
    -------
    The struct, each array of the shape that its inputs broadcast to.

    >>> at = layouts(64, global_batch=256, accelerators_per_node=8, tp=2, pp=4, micro_batch=2)
    >>> float(at.dp), float(at.accumulation)
    (8.0, 16.0)
    """
    k_, tp_, pp_, cp_ = (np.asarray(value, dtype=float) for value in (k, tp, pp, cp))
    dp_ = k_ / (tp_ * pp_ * cp_) if dp is None else np.asarray(dp, dtype=float)
    batch = np.asarray(global_batch, dtype=float)
    per_replica = batch / dp_
    if micro_batch is None and accumulation is None:
        micro, steps = per_replica, np.ones_like(per_replica)
    elif accumulation is None:
        micro = np.asarray(micro_batch, dtype=float)
        steps = per_replica / micro
    else:
        steps = np.asarray(accumulation, dtype=float)
        micro = per_replica / steps if micro_batch is None else np.asarray(micro_batch, dtype=float)
    return Layouts(
        k=k_,
        dp=dp_,
        tp=tp_,
        pp=pp_,
        cp=cp_,
        ep=np.asarray(ep, dtype=float),
        etp=np.asarray(etp, dtype=float),
        vpp=np.asarray(vpp, dtype=float),
        micro_batch=micro,
        accumulation=steps,
        global_batch=batch,
        sharding=np.asarray(sharding, dtype=float),
        shard_group=dp_ * cp_ if shard_group is None else np.asarray(shard_group, dtype=float),
        recompute=np.asarray(recompute, dtype=float),
        freed=np.asarray(freed, dtype=float),
        selective=np.asarray(selective, dtype=float),
        sequence_parallel=np.asarray(sequence_parallel, dtype=float),
        per_node=np.minimum(k_, np.asarray(accelerators_per_node, dtype=float))
        if per_node is None
        else np.asarray(per_node, dtype=float),
        **{name: np.asarray(value, dtype=float) for name, value in {**DECLARED, **(declared or {})}.items()},
    )


def joined(items: Sequence[Layouts]) -> Layouts:
    """Layouts of many series, one after the other; what a series has once holds for each of its K.

    Parameters
    ----------
    items : layouts of each series, along one axis.

    Returns
    -------
    One struct along that axis.

    >>> one = layouts([1, 2], global_batch=8, accelerators_per_node=8)
    >>> joined([one, one]).tp.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    def column(name: str) -> Array:
        values = [(np.asarray(getattr(item, name)), item.k.size) for item in items]
        return np.concatenate([np.zeros(0), *(v if v.ndim else np.full(size, v) for v, size in values)])

    return Layouts(**{field.name: column(field.name) for field in fields(Layouts)})


def chosen(which: NDArray[np.bool_], first: Layouts, second: Layouts) -> Layouts:
    """Element by element those of `first` where `which` says so, else those of `second`.

    Parameters
    ----------
    which : True where `first` holds.
    first, second : layouts that broadcast against it.

    Returns
    -------
    The mixed struct.

    >>> one, two = (layouts(4, global_batch=8, accelerators_per_node=8, tp=tp) for tp in (1, 2))
    >>> chosen(np.array([True, False]), one, two).tp.tolist()
    [1.0, 2.0]
    """
    return Layouts(
        **{
            field.name: np.where(which, getattr(first, field.name), getattr(second, field.name))
            for field in fields(Layouts)
        }
    )


def custom_buckets(at: Layouts) -> bool:
    """Whether any layout declares other buckets than the usual.

    Parameters
    ----------
    at : layouts.

    Returns
    -------
    True where one does.

    >>> custom_buckets(layouts(8, global_batch=8, accelerators_per_node=8))
    False
    """
    return bool(
        (at.bucket_bytes != BUCKET_BYTES).any() or (at.first_bucket_bytes != FIRST_BUCKET_BYTES).any()
    )


def pick(struct: Struct, index: Index) -> Struct:
    """The same struct with every array indexed along its last axis (scalars stay).

    Parameters
    ----------
    struct : a dataclass of arrays, such as `Layouts`.
    index : of the last axis.

    Returns
    -------
    The same kind of struct.

    >>> pick(layouts([1, 2, 4], global_batch=8, accelerators_per_node=8), 2).k.tolist()
    4.0
    """
    values = {}
    for field in fields(struct):
        value = np.asarray(getattr(struct, field.name))
        values[field.name] = value[..., index] if value.ndim else value
    return type(struct)(**values)
