"""What a PyTorch module does in one forward and backward pass, found without data, memory or a GPU.

The module runs on the *meta* device, where tensors have shapes and no values. Every kernel that autograd
issues is seen once: matrix products and convolutions give FLOP and their shapes, all kernels give the bytes
that they read and write. Fused attention is counted as the flash kernel does it (Dao et al. 2022,
arXiv:2205.14135): scores are never stored, a causal mask halves the work, the backward pass costs 2.5 times
the forward one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

NO_KERNEL = frozenset({"empty_like", "new_empty", "new_empty_strided"})  # memory is taken, nothing is written
BACKWARD_ATTENTION = 2.5  # dQ, dK, dV, dP and the scores again: five products against two


@dataclass(frozen=True, slots=True, order=True)
class Gemm:
    """A product of an (m, k) with a (k, n) matrix, or a convolution written as one."""

    m: int
    n: int
    k: int

    @property
    def flop(self) -> float:
        return 2.0 * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class Trace:
    """Totals of one pass over `samples` samples. Bytes are counted at 2 per floating-point element."""

    samples: int
    params: int
    trainable_params: int
    forward_flop: float
    backward_flop: float
    flop_by_operator: Mapping[str, float]  # forward
    conv3x3_flop: float  # forward: of them, in dense 3x3 convolutions of stride 1 in two dimensions
    forward_bytes: float
    backward_bytes: float
    saved_elements: int  # activations that the backward pass needs
    kernels: int  # forward
    gemms: Mapping[Gemm, int]  # forward: shape -> how often
    product_elements: int  # outputs of matrix products and convolutions, forward
    norms: int  # normalisation kernels, forward
    input_bytes: float


@dataclass(slots=True)
class _Pass:
    """Running totals of one direction."""

    flop: Counter[str] = field(default_factory=Counter)
    bytes: float = 0.0
    kernels: int = 0
    gemms: Counter[Gemm] = field(default_factory=Counter)
    product_elements: int = 0
    conv3x3_flop: float = 0.0
    norms: int = 0


def trace(module: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any], samples: int) -> Trace:
    """Run `module(*arguments, **keywords)` and its backward pass on the meta device and count."""
    import torch
    from torch.utils._pytree import tree_leaves, tree_map

    def to_meta(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().to("meta").requires_grad_(value.requires_grad)

    module = module.to("meta").train()
    arguments, keywords = tree_map(to_meta, arguments), tree_map(to_meta, dict(keywords))
    weights = list(module.parameters())
    forward, backward = _Pass(), _Pass()
    saved = _Saved(weights)
    kernels, attention = _recorders(forward, backward, weights)
    with kernels, attention, torch.autograd.graph.saved_tensors_hooks(saved.keep, saved.give):
        outputs = module(*arguments, **keywords)
        leaves = _differentiable(outputs)
        kernels.current = backward
        if leaves:
            torch.autograd.backward(leaves, [torch.empty_like(leaf) for leaf in leaves])
    gradients = _storages([weight.grad for weight in weights if weight.grad is not None])
    # Weights and their gradients cross memory once a step, whatever the batch: they are not a sample's traffic.
    backward.bytes -= sum(kernels.written.get(key, (None, 0.0))[1] for key in gradients)
    inputs = [leaf for leaf in tree_leaves((arguments, keywords)) if isinstance(leaf, torch.Tensor)]
    return Trace(
        samples=samples,
        params=sum(weight.numel() for weight in weights),
        trainable_params=sum(weight.numel() for weight in weights if weight.requires_grad),
        forward_flop=float(sum(forward.flop.values())),
        backward_flop=float(sum(backward.flop.values())),
        flop_by_operator=dict(forward.flop.most_common()),
        forward_bytes=forward.bytes,
        backward_bytes=backward.bytes,
        saved_elements=saved.elements,
        kernels=forward.kernels,
        gemms=dict(sorted(forward.gemms.items(), key=lambda item: (-item[0].flop * item[1], item[0]))),
        product_elements=forward.product_elements,
        conv3x3_flop=forward.conv3x3_flop,
        norms=forward.norms,
        input_bytes=float(sum(tensor.numel() * _width(tensor) for tensor in inputs)),
    )


def _storages(values: Any) -> dict[int, Any]:
    """Tensors of any structure by the address of their storage, each storage once."""
    import torch
    from torch.utils._pytree import tree_leaves

    leaves = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    return {leaf.untyped_storage()._cdata: leaf for leaf in leaves}


def _width(tensor: Any) -> int:
    """Bytes per element in 16-bit training: 2 for floats, their own size for indices and masks."""
    return 2 if tensor.is_floating_point() else int(tensor.element_size())


def _differentiable(outputs: Any) -> list[Any]:
    """Tensors of any output structure that a loss could be taken of; dataclass-like outputs are dicts."""
    import torch
    from torch.utils._pytree import tree_leaves

    found = outputs if isinstance(outputs, torch.Tensor | list | tuple | dict) else vars(outputs)
    leaves = [leaf for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor)]
    return [leaf for leaf in leaves if leaf.requires_grad]


class _Saved:
    """Counts what autograd keeps, each storage once and weights not at all."""

    def __init__(self, weights: Iterable[Any]) -> None:
        self._weights = {weight.untyped_storage()._cdata for weight in weights}
        self._kept: dict[int, Any] = {}  # holding the storage keeps its address from being used again
        self.elements = 0

    def keep(self, tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if tensor.is_floating_point() and key not in self._weights and key not in self._kept:
            self._kept[key] = storage
            self.elements += storage.nbytes() // tensor.element_size()
        return tensor

    def give(self, tensor: Any) -> Any:
        return tensor


def _gemms(name: str, arguments: tuple[Any, ...], output: Any) -> list[tuple[Gemm, int]]:
    """Shapes of a matrix product or convolution, with how many of that shape it holds."""
    if name in ("mm", "addmm"):
        left, right = arguments[-2:] if name == "mm" else arguments[1:3]
        return [(Gemm(left.shape[0], right.shape[1], left.shape[1]), 1)]
    if name in ("bmm", "baddbmm"):
        left, right = arguments[-2:] if name == "bmm" else arguments[1:3]
        return [(Gemm(left.shape[1], right.shape[2], left.shape[2]), left.shape[0])]
    if name == "convolution" and not arguments[6]:
        weight, groups = arguments[1], arguments[8]
        positions = output.numel() // output.shape[1]
        inner = weight.numel() // weight.shape[0]
        return [(Gemm(positions, output.shape[1] // groups, inner), groups)]
    return []


def _plain_3x3(name: str, arguments: tuple[Any, ...]) -> bool:
    """Whether this is a dense 3x3 convolution of stride 1 in two dimensions, neither dilated nor transposed."""
    if name != "convolution":
        return False
    weight, stride, dilation, transposed, groups = (arguments[i] for i in (1, 3, 5, 6, 8))
    return tuple(weight.shape[2:]) == (3, 3) and {*stride, *dilation, groups} == {1} and not transposed


def _recorders(forward: _Pass, backward: _Pass, weights: Iterable[Any]) -> tuple[Any, Any]:
    """The two modes that watch a pass: kernels, and attention before it is taken apart."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    weight_storages = {weight.untyped_storage()._cdata for weight in weights}

    class Kernels(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        current = forward

        def __init__(self) -> None:
            super().__init__()
            # Holding a storage keeps its address from being used again.
            self.written: dict[int, tuple[Any, float]] = {}

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            output = func(*args, **(kwargs or {}))
            read, written = _storages((args, kwargs)), _storages(output)
            name = func._overloadpacket.__name__
            view = not func._schema.is_mutable and written.keys() <= read.keys()
            if not read or view or name in NO_KERNEL:
                return output
            self.current.kernels += 1
            for key, leaf in written.items():
                before = self.written.get(key, (None, 0.0))[1]
                self.written[key] = (leaf.untyped_storage(), before + leaf.numel() * _width(leaf))
            touched = [leaf for group in (read, written) for leaf in group.items()]
            self.current.bytes += sum(
                leaf.numel() * _width(leaf) for key, leaf in touched if key not in weight_storages
            )
            packet = func._overloadpacket
            self.current.norms += "norm" in name
            if packet in flop_registry:
                self.current.product_elements += sum(leaf.numel() for leaf in written.values())
                flop = flop_registry[packet](*args, **(kwargs or {}), out_val=output)
                self.current.flop[name] += flop
                self.current.conv3x3_flop += flop * _plain_3x3(name, args)
                for gemm, often in _gemms(name, args, output):
                    self.current.gemms[gemm] += often
            return output

    class Fused(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
        @staticmethod
        def forward(ctx: Any, query: Any, key: Any, value: Any, causal: bool) -> Any:
            *lead, rows, width = query.shape
            shape = (*lead, rows, value.shape[-1])
            flop = 2.0 * query.numel() // width * key.shape[-2] * (width + value.shape[-1])
            ctx.flop = flop * (0.5 if causal else 1.0)
            output = query.new_empty(shape)
            ctx.save_for_backward(query, key, value, output)
            moved = query.numel() + key.numel() + value.numel() + output.numel()
            ctx.bytes = 2.0 * moved
            forward.flop["attention"] += ctx.flop
            forward.bytes += ctx.bytes
            forward.kernels += 1
            return output

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            query, key, value, _ = ctx.saved_tensors
            backward.flop["attention"] += BACKWARD_ATTENTION * ctx.flop
            # Reads what the forward pass read and wrote, and the gradient; writes three gradients.
            backward.bytes += 2.0 * ctx.bytes
            return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), None

    original = torch.nn.functional.scaled_dot_product_attention
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")

    def fused(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        causal = bool(given.get("is_causal", False))
        return Fused.apply(given["query"], given["key"], given["value"], causal)

    class Attention(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        """Catches the function however it was imported, and, by name, where torch's own layers call it."""

        def __enter__(self) -> Any:
            torch.nn.functional.scaled_dot_product_attention = fused
            return super().__enter__()

        def __exit__(self, *error: Any) -> None:
            torch.nn.functional.scaled_dot_product_attention = original
            super().__exit__(*error)

        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            return (fused if func is original else func)(*args, **(kwargs or {}))

    return Kernels(), Attention()
