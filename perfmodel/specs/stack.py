"""Declared facts of the software stack: what a training framework's own configuration states beside the layout.

Every fact is optional. A fact that the step model has an input for reaches it; any other (`unmodelled`) is kept with the job and named in its notes, so that nobody takes a stated fact for a modelled one.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from perfmodel.specs.fields import Date, Number, Quantity, SpecModel

GradientType = Literal["fp32", "bf16", "fp16", "fp8", "int8"]
FrameworkClass = Literal[
    "pytorch_eager",
    "megatron_eager",
    "megatron_core",
    "fsdp_eager",
    "fsdp_compiled",
    "xla",
    "tensorflow",
    "mxnet",
    "oneflow",
    "paddle",
    "hugectr",
    "mindspore",
    "other",
    "unknown",
]
FrameworkName = Literal[
    "megatron-lm",
    "megatron-bridge",
    "nemo",
    "torchtitan",
    "deepspeed",
    "accelerate",
    "transformers",
    "maxtext",
    "llm-foundry",
    "axolotl",
    "llama-factory",
    "olmo-core",
    "lightning",
    "pytorch",
    "jax",
]
Attention = Literal["flash", "flash2", "flash3", "flash4", "cudnn", "sdpa", "flex", "splash", "unfused"]
Fp8Recipe = Literal["delayed", "tensorwise", "rowwise", "blockwise", "mxfp8", "nvfp4"]
PipelineOrder = Literal["gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe"]
ContextExchange = Literal["ring", "all-gather", "all-to-all", "ring+all-to-all"]
Dispatcher = Literal["all-gather", "all-to-all", "deepep", "hybridep"]
Optimizer = Literal["adamw", "adamw-8bit", "adafactor", "muon", "lion", "sgd", "sgd-momentum"]
FrozenType = Literal["nf4", "nf4-dq", "int8", "fp8"]
Offloaded = Literal["optimizer", "parameters", "activations"]
Power = Annotated[float, Quantity("W", least="10 W", most="20 kW")]
ShortText = Annotated[str, Field(min_length=1, max_length=60)]

# Classes of software whose coefficients apply, where a job names its framework but no class: uncompiled, compiled.
CLASS_OF: Final[dict[str, tuple[FrameworkClass, FrameworkClass]]] = {
    "megatron-lm": ("megatron_core", "megatron_core"),
    "megatron-bridge": ("megatron_core", "megatron_core"),
    "nemo": ("megatron_core", "megatron_core"),
    "torchtitan": ("fsdp_eager", "fsdp_compiled"),
    "deepspeed": ("fsdp_eager", "fsdp_compiled"),
    "accelerate": ("fsdp_eager", "fsdp_compiled"),
    "transformers": ("fsdp_eager", "fsdp_compiled"),
    "llm-foundry": ("fsdp_eager", "fsdp_compiled"),
    "axolotl": ("fsdp_eager", "fsdp_compiled"),
    "llama-factory": ("fsdp_eager", "fsdp_compiled"),
    "olmo-core": ("fsdp_eager", "fsdp_compiled"),
    "lightning": ("fsdp_eager", "fsdp_compiled"),
    "pytorch": ("pytorch_eager", "pytorch_eager"),
    "maxtext": ("xla", "xla"),
    "jax": ("xla", "xla"),
}


class Stack(SpecModel):
    """Facts of the software stack, each optional."""

    framework: FrameworkName | None = Field(
        None, description="The training framework, by name; its class of software is the job's `framework`."
    )
    version: ShortText | None = Field(None, description="Its version, as its makers write it.")
    date: Date | None = Field(None, description="When the stack was current.")
    compiled: bool | None = Field(None, description="Whether the model is compiled (torch.compile, XLA).")
    attention: Attention | None = Field(
        None, description="Attention kernel; cudnn is Transformer Engine's fused one."
    )
    fp8_recipe: Fp8Recipe | None = Field(None, description="How values in 8 (or 4) bits are scaled.")
    gradient_dtype: GradientType | None = Field(
        None, description="Type in which gradients are exchanged; the same as the job's key of that name."
    )
    overlap_gradients: bool | None = Field(
        None, description="Whether gradients are exchanged while the backward pass runs; false: after it."
    )
    overlap_gather: bool | None = Field(
        None, description="Whether weights are gathered while the forward pass runs."
    )
    overlap_tensor: bool | None = Field(
        None, description="Whether the calls of tensor parallelism run under compute; false: none does."
    )
    overlap_experts: bool | None = Field(
        None,
        description="Whether tokens travel to and from their experts under the compute of another micro-batch "
        "(DualPipe, Megatron's --overlap-moe-expert-parallel-comm); false: all of it shows.",
    )
    hidden_tensor_calls: Annotated[float, Number(least=0, most=4)] | None = Field(
        None, description="Of the four tensor-parallel calls of a layer, those that run under compute."
    )
    pads_vocabulary: bool | None = Field(
        None, description="Whether the logits are rounded up to a round number; Megatron and XLA do."
    )
    cuda: Annotated[float, Number(least=1, most=100)] | None = Field(
        None, description="CUDA release; before 11 tensor cores took operands of round widths alone."
    )
    retuned: bool | None = Field(
        None, description="Whether batch, layout and switches were tuned anew at every K, as racers do."
    )
    schedule: PipelineOrder | None = Field(
        None, description="Order of pipeline micro-batches; the same as the layout's key of that name."
    )
    context_parallel: ContextExchange | None = Field(
        None, description="How context-parallel ranks exchange keys and values."
    )
    dispatcher: Dispatcher | None = Field(None, description="How tokens reach their experts.")
    reshard_after_forward: bool | None = Field(
        None, description="Whether gathered weights are dropped after the forward pass (ZeRO-3) or kept."
    )
    offload: tuple[Offloaded, ...] | None = Field(
        None, description="What is kept in the host's memory; an empty list: nothing."
    )
    optimizer: Optimizer | None = Field(
        None, description="Optimizer, for the memory of its moments; AdamW when missing."
    )
    master_weights: bool | None = Field(
        None, description="Whether 16-bit weights have a copy in 32 bit; false: moments are in 16 bit too."
    )
    frozen_dtype: FrozenType | None = Field(
        None, description="Type in which weights are stored that are not trained: nf4 is QLoRA's."
    )
    fused_loss: bool | None = Field(
        None, description="Whether logits and loss are one kernel, so that no copy of the logits is kept."
    )
    power_cap: Power | None = Field(None, description="Power to which an accelerator is limited.")


def unmodelled(stack: Stack) -> list[str]:
    """The stated facts that no input of the step model takes.

    >>> unmodelled(Stack(attention="flash2", overlap_gradients=False, fp8_recipe="rowwise", date="2024-10"))
    ['fp8_recipe']
    >>> unmodelled(Stack(overlap_gradients=True, overlap_gather=True, offload=(), schedule="1f1b"))
    []
    >>> unmodelled(Stack(overlap_gather=False, offload=("optimizer",), schedule="dualpipe"))
    ['overlap_gather', 'schedule', 'offload']
    """
    # A fact that says what the step model assumes anyway is modelled: exchange under compute, nothing offloaded.
    taken = {
        "framework", "date", "attention", "compiled", "gradient_dtype", "overlap_gradients", "hidden_tensor_calls", "pads_vocabulary", "cuda",
        "retuned", "optimizer", "master_weights", "frozen_dtype", "fused_loss", "overlap_experts",
    }  # fmt: skip
    usual: dict[str, object] = {"overlap_gather": True, "offload": (), "overlap_tensor": False}
    said = {name: getattr(stack, name) for name in Stack.model_fields if getattr(stack, name) is not None}
    return [
        name
        for name, value in said.items()
        if name not in taken
        and not (name in usual and usual[name] == value)
        and not (name == "schedule" and value != "dualpipe")
    ]
