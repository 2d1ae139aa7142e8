"""A PyTorch module becomes a workload: `MODULE:FN` names a function that builds it with example inputs."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel.errors import SpecError, UsageError
from perfmodel.workloads.text import quantity, slug
from perfmodel.workloads.torch_trace import Trace, trace

# Above this share of the forward FLOP in convolutions a network behaves as one (memory-bound norms between).
CONVOLUTION_SHARE = 0.5
# Times that a convolution's output crosses memory in training, with and without a norm behind it.
NORMED_ACCESSES, PLAIN_ACCESSES = 14, 11
_RETURNS = "return (module, inputs): inputs a tensor, a tuple of them, or a mapping of keyword arguments"


@dataclass(frozen=True, slots=True)
class TorchWorkload:
    """What was found: fields of a workload spec and the trace behind them."""

    fields: Mapping[str, Any]
    trace: Trace

    def result(self) -> dict[str, Any]:
        """Everything that was counted, per sample where the name says so."""
        found, per = self.trace, self.trace.samples
        total = found.forward_flop or 1.0
        shapes = [
            {"m": g.m, "n": g.n, "k": g.k, "count": n, "share": g.flop * n / total}
            for g, n in found.gemms.items()
        ]
        return {
            "workload": dict(self.fields),
            "params": found.params,
            "trainable_params": found.trainable_params,
            "samples": per,
            "forward_flop_per_sample": found.forward_flop / per,
            "backward_flop_per_sample": found.backward_flop / per,
            "flop_by_operator": {name: flop / per for name, flop in found.flop_by_operator.items()},
            "forward_bytes_per_sample": found.forward_bytes / per,
            "backward_bytes_per_sample": found.backward_bytes / per,
            "saved_elements_per_sample": found.saved_elements / per,
            "kernels": found.kernels,
            "gemms": shapes,
        }


def torch_available() -> bool:
    return importlib.util.find_spec("torch") is not None


def read_module(target: str, *, name: str | None = None, samples: int | None = None) -> TorchWorkload:
    """Build the module that `target` names, trace it on the meta device, describe it as a workload."""
    if not torch_available():
        raise UsageError(
            "from-torch needs PyTorch, which is not installed here",
            code="W200",
            help='pip install "perfmodel[torch]" (the CPU build is enough: nothing is computed)',
        )
    build = find_function(target)
    with _refused(target, "builds no module"):
        module, arguments, keywords = _build(target, build)
    count = samples if samples is not None else _samples(target, arguments, keywords)
    with _refused(target, "cannot be traced without values"):
        found = trace(module, arguments, keywords, count)
    if not found.trainable_params:
        raise UsageError(f"{target}: the module has no weights to train", code="W201")
    chosen = name or slug(target.rpartition(":")[2])
    return TorchWorkload(workload_fields(found, name=chosen, source=f"traced from {target}"), found)


def workload_fields(found: Trace, *, name: str, source: str) -> dict[str, Any]:
    """Fields of a workload spec, per sample."""
    convolutions = found.flop_by_operator.get("convolution", 0.0)
    convnet = convolutions > CONVOLUTION_SHARE * found.forward_flop
    per = float(found.samples)
    fields: dict[str, Any] = {
        "name": name,
        "kind": "convnet" if convnet else "generic",
        "sample": "image" if convnet else "sample",
        "params": found.params,
        "params_note": "counted in the module",
    }
    if found.trainable_params != found.params:
        fields["trainable_params"] = found.trainable_params
    moved = (found.forward_bytes + found.backward_bytes) / per
    # The zoo counts the outputs of products and convolutions; what is kept of them is the step model's business.
    elements = (found.product_elements or found.saved_elements) / per
    fields["activation_elements_per_sample"] = round(elements) or None
    if convnet:
        # The zoo's counting rule, which the memory-bandwidth beliefs were fitted with, not the traced bytes.
        accesses = NORMED_ACCESSES if found.norms else PLAIN_ACCESSES
        fields["flop_per_sample_forward"] = quantity(found.forward_flop / per, "FLOP")
        fields["conv3x3_share"] = round(found.conv3x3_flop / found.forward_flop, 3) or None
        fields["bytes_per_sample_activations"] = quantity(accesses * 2 * elements, "B")
        fields["activation_bytes_method"] = f"{accesses} accesses x 2 B per convolution output"
    else:
        fields["flop_per_sample"] = quantity((found.forward_flop + found.backward_flop) / per, "FLOP")
        fields["flop_per_sample_forward"] = quantity(found.forward_flop / per, "FLOP")
        fields["bytes_per_sample"] = quantity(moved, "B")
    fields["input_bytes_per_sample"] = quantity(found.input_bytes / per, "B")
    fields["kernels"] = found.kernels
    stated = {key: value for key, value in fields.items() if value is not None}
    return {**stated, "source": source}


def describe(found: Trace, shapes: int) -> list[str]:
    """Lines for the head of the YAML: FLOP by operator and the largest matrix products."""
    total = found.forward_flop or 1.0
    shares = ", ".join(f"{name} {flop / total:.1%}" for name, flop in found.flop_by_operator.items())
    lines = [f"forward FLOP at batch {found.samples}: {quantity(total, 'FLOP')} ({shares})"]
    if found.gemms:
        lines.append(f"largest of {len(found.gemms)} matrix product shapes, m x n x k:")
    for gemm, often in list(found.gemms.items())[:shapes]:
        lines.append(f"  {often} of {gemm.m} x {gemm.n} x {gemm.k}: {gemm.flop * often / total:.1%}")
    return lines


def find_function(target: str) -> Callable[[], Any]:
    """The function that `package.module:function` or `file.py:function` names."""
    place, colon, function = target.rpartition(":")
    if not colon or not place or not function:
        raise UsageError(
            f'cannot read "{target}"', code="W201", help="write MODULE:FN, such as models.resnet:build"
        )
    with _import_path(), _refused(target, "cannot be imported"):
        module = _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    found = getattr(module, function, None)
    if not callable(found):
        known = sorted(key for key, value in vars(module).items() if callable(value) and key[0] != "_")
        raise UsageError(
            f"{place} has no function {function}", code="W201", help=f"it has {', '.join(known) or 'none'}"
        )
    return found  # type: ignore[no-any-return]


def _from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise UsageError(f"no file {path}", code="W201")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _import_path() -> Iterator[None]:
    """The folder that the command runs in may hold the module, as with `python -m`."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


@contextmanager
def _refused(target: str, what: str) -> Iterator[None]:
    """Whatever the user's code raises becomes one message with the line that raised it."""
    try:
        yield
    except SpecError:
        raise
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "site-packages" not in f.filename]
        last = frames[-1] if frames else None
        where = f" ({Path(last.filename).name}:{last.lineno})" if last else ""
        reason = " ".join(str(error).split())[:300]
        raise UsageError(f"{target} {what}: {type(error).__name__}: {reason}{where}", code="W202") from error


def _build(target: str, build: Callable[[], Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Call the function under the meta device and sort out what it returned."""
    import torch

    with torch.device("meta"):
        result = build()
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], torch.nn.Module):
        kind = type(result).__name__
        raise UsageError(f"{target} returned a {kind}", code="W201", help=_RETURNS)
    module, inputs = result
    if isinstance(inputs, torch.Tensor):
        return module, (inputs,), {}
    if isinstance(inputs, Mapping):
        return module, (), dict(inputs)
    if isinstance(inputs, tuple | list):
        return module, tuple(inputs), {}
    raise UsageError(f"{target} returned inputs of type {type(inputs).__name__}", code="W201", help=_RETURNS)


def _samples(target: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> int:
    """The first dimension of the first tensor."""
    shapes = [getattr(value, "shape", None) for value in (*arguments, *keywords.values())]
    first = next((shape for shape in shapes if shape), None)
    if not first:
        raise UsageError(
            f"{target}: the batch cannot be read from an input tensor",
            code="W201",
            help="state it with --samples",
        )
    return int(first[0])
