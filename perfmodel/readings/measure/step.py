"""`measure step MODULE:FN`: time a training step by five rules.

1. The workload is fixed. Its description is hashed at every K and compared with the timings already in the file.
2. Warm-up steps are run and not counted.
3. Set-up (building, allocation, compilation in the first steps) is timed apart, never inside a step.
4. Each run is repeated.
5. The variance is kept: one row a repeat.

FN is called once with a `StepContext` and returns a `StepProgram` (or a mapping with its fields). K=1 is an honest
single-process run: no process group, no distributed wrapper. It comes first, for it is the baseline of every speedup.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from perfmodel.errors import UsageError, did_you_mean
from perfmodel.readings.measure.journal import Journal
from perfmodel.readings.measure.progress import tracked
from perfmodel.readings.measure.timing import Clock

WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "DeepSpeedEngine", "DataParallel")
_EXAMPLE = 'StepProgram(step=..., workload={"model": "mlp-4x512", "global_batch": 256})'


@dataclass(frozen=True)
class StepContext:
    """What FN receives: K, this process's place, torch's device, and whether there is a process group."""

    k: int
    rank: int
    local_rank: int
    device: str
    distributed: bool


@dataclass(frozen=True)
class StepProgram:
    """What FN returns. `step()` runs one optimizer step; `workload` describes what stays fixed as K grows.

    `workload` is a JSON mapping with `global_batch` (strong scaling: the same at every K) or `batch_per_worker`
    (weak scaling). `evaluate()` gives the quality metric after the timed steps. `model`, when given, adds its
    parameters' shapes to the hash.
    """

    step: Callable[[], object]
    workload: Mapping[str, Any]
    evaluate: Callable[[], float] | None = None
    model: Any = None


@dataclass(frozen=True)
class StepSettings:
    """`repeats` blocks of `steps` steps each, after `warmup` steps."""

    warmup: int = 5
    steps: int = 10
    repeats: int = 5

    def __post_init__(self) -> None:
        if self.warmup < 1 or self.steps < 1 or self.repeats < 2:
            raise UsageError(
                "at least 1 warm-up step, 1 step a repeat and 2 repeats: without them there is no variance",
                code="M020",
            )


@dataclass(frozen=True)
class StepRun:
    """One K measured: a time per repeat [s], set-up [s], and the workload's hash."""

    k: int
    times_s: tuple[float, ...]
    setup_s: float
    workload: dict[str, Any]
    workload_hash: str
    global_batch: float
    regime: str
    quality: float | None = None
    provenance: dict[str, str] = field(default_factory=dict)

    @property
    def mean_s(self) -> float:
        """Mean time of a step [s]."""
        return float(np.mean(self.times_s))

    @property
    def spread(self) -> float:
        """Sample standard deviation over mean of the repeats."""
        return float(np.std(self.times_s, ddof=1) / np.mean(self.times_s))


def run_step(
    build: Callable[[StepContext], StepProgram | Mapping[str, Any]],
    context: StepContext,
    settings: StepSettings,
    *,
    barrier: Callable[[], object] = lambda: None,
    largest: Callable[[float], float] = lambda value: value,
    clock: Clock = time.perf_counter,
    check: Callable[[str, dict[str, Any]], object] = lambda digest, workload: None,
    book: Callable[[str], Journal] = lambda digest: Journal(None, {}),
    quiet: bool = True,
) -> StepRun:
    """Measure one K. `barrier` waits for device and ranks; `largest` takes the slowest rank's time.

    `check` sees the workload's hash and description before any time is spent, and may refuse. `book` opens the journal
    of a workload: rank 0 keeps every finished repeat there, and repeats that an earlier run finished are not timed again.
    """
    begin = clock()
    program = _program(build(context))
    workload, regime = _checked(program.workload)
    if context.k == 1:
        _honest_baseline()
    described = workload | _model_facts(program.model)
    digest = workload_hash(described, regime)
    same = largest(_as_number(digest)) == _as_number(digest) == -largest(-_as_number(digest))
    if not same:
        raise UsageError(
            "the ranks describe different workloads", code="M024", help="workload must not depend on rank"
        )
    check(digest, described)
    journal = book(digest)
    for _ in range(settings.warmup):
        program.step()
    barrier()
    setup = largest(clock() - begin)
    times = _finished(journal, settings.repeats)
    done = int(largest(float(len(times))))  # rank 0 has the journal; all ranks must make the same steps
    times += [0.0] * (done - len(times))
    if done and program.evaluate is not None:
        # Quality is that after all the steps: those of the kept repeats are made again, untimed.
        for _ in range(done * settings.steps):
            program.step()
    left = range(done, settings.repeats)
    for repeat in tracked(left, len(left), f"K={context.k}", quiet=quiet):
        barrier()
        begin = clock()
        for _ in range(settings.steps):
            program.step()
        barrier()
        times.append(largest((clock() - begin) / settings.steps))
        journal.add(f"repeat/{repeat}", times[-1])
    quality = None if program.evaluate is None else float(program.evaluate())
    return StepRun(
        context.k,
        tuple(times),
        setup,
        described,
        digest,
        _global_batch(workload, regime, context.k),
        regime,
        quality,
    )


def _finished(journal: Journal, repeats: int) -> list[float]:
    """Times of the leading repeats that a journal holds [s]."""
    kept = itertools.takewhile(
        lambda value: isinstance(value, float) and value > 0.0,
        (journal.get(f"repeat/{repeat}") for repeat in range(repeats)),
    )
    return [float(value) for value in kept]


def _program(returned: StepProgram | Mapping[str, Any]) -> StepProgram:
    if isinstance(returned, StepProgram):
        return returned
    known = [item.name for item in fields(StepProgram)]
    if not isinstance(returned, Mapping):
        raise UsageError(
            f"the function returns {type(returned).__name__}", code="M021", help=f"return {_EXAMPLE}"
        )
    for key in returned:
        if key not in known:
            raise UsageError(
                f'the function returns "{key}"{did_you_mean(str(key), known)}',
                code="M021",
                help=f"return {_EXAMPLE}",
            )
    if not callable(returned.get("step")) or not isinstance(returned.get("workload"), Mapping):
        raise UsageError("the function returns no step and workload", code="M021", help=f"return {_EXAMPLE}")
    return StepProgram(**returned)


def _checked(workload: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The description as plain JSON, and the regime that it declares."""
    try:
        plain = json.loads(json.dumps(dict(workload), sort_keys=True, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the workload is not plain JSON: {error}", code="M022", help=f"such as {_EXAMPLE}"
        ) from None
    declared = [key for key in ("global_batch", "batch_per_worker") if key in plain]
    if len(declared) != 1 or not isinstance(plain[declared[0]], (int, float)) or plain[declared[0]] <= 0:
        raise UsageError(
            "the workload must give either global_batch (strong scaling) or batch_per_worker (weak), above zero",
            code="M022",
            help=f"such as {_EXAMPLE}",
        )
    return plain, "strong" if declared[0] == "global_batch" else "weak"


def _global_batch(workload: Mapping[str, Any], regime: str, k: int) -> float:
    return float(workload["global_batch"] if regime == "strong" else workload["batch_per_worker"] * k)


def workload_hash(workload: Mapping[str, Any], regime: str) -> str:
    """First 16 hex digits of SHA-256 over the description and the regime.

    >>> workload_hash({"model": "mlp", "global_batch": 64}, "strong")
    '2afdd0e5ddd8b56e'
    """
    text = json.dumps({"workload": workload, "regime": regime}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _as_number(digest: str) -> float:
    return float(int(digest[:12], 16))  # 48 bits are exact in a double


def _model_facts(model: Any) -> dict[str, Any]:
    """Shapes and types of a model's parameters, without what a wrapper prefixes to their names."""
    if model is None:
        return {}
    shapes = sorted(
        (
            name.removeprefix("module.").replace("_fsdp_wrapped_module.", ""),
            list(parameter.shape),
            str(parameter.dtype),
        )
        for name, parameter in model.named_parameters()
    )
    return {"parameters": hashlib.sha256(json.dumps(shapes).encode()).hexdigest()[:16]}


def _honest_baseline() -> None:
    """Refuse a baseline that pays for distribution: a process group, or any wrapper alive in this process."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        raise UsageError(
            "the K=1 run has a process group",
            code="M023",
            help="build the plain model when context.distributed is false",
        )
    wrapped = sorted({name for item in gc.get_objects() if (name := type(item).__name__) in WRAPPERS})
    if wrapped:
        raise UsageError(
            f"the K=1 run uses {', '.join(wrapped)}: an unwrapped run is the honest baseline",
            code="M023",
            help="wrap the model only when context.distributed is true",
        )
