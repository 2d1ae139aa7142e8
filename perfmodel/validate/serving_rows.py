"""Measured serving runs resolved to models, machines, deployments and loads, with what their sources leave open filled in.

A row that names what the catalogue lacks, that runs in a way the model does not describe, or that contradicts itself or
physics is listed with the reason and not scored. Everything else becomes one entry of arrays.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import did_you_mean
from perfmodel.physics.machine import Machine, numbers
from perfmodel.physics.machine import stack as stack_machines
from perfmodel.physics.serving import CLOSED, OFFLINE, OPEN, STATIC, Load
from perfmodel.physics.serving_shape import ServingShape, is_served, serving_shape
from perfmodel.physics.serving_shape import stack as stack_shapes
from perfmodel.physics.serving_step import Deployment
from perfmodel.serving.beliefs import serving_features
from perfmodel.serving.engine import Engine, chunk_on, sequences_on
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.hardware import Accelerator, Link
from perfmodel.specs.workload import Workload
from perfmodel.validate.serving_files import SERVED
from perfmodel.validate.serving_names import (
    Entry,
    accelerator_entry,
    engine_entry,
    known_engine,
    model_entry,
    names,
    plain,
    source_entry,
)
from perfmodel.validate.serving_table import is_said
from perfmodel.validate.tables import Row

Array = NDArray[np.float64]
Text = NDArray[np.str_]
T = TypeVar("T")

TARGETS: Final = SERVED
KINDS: Final = {
    "closed-loop": CLOSED,
    "server": OPEN,
    "offline": OFFLINE,
    "offline-burst": OFFLINE,
    "offline-static-batch": STATIC,
    "real-time": STATIC,
    "single-stream": STATIC,
    "prefill-only": STATIC,
}
KIND_NAMES: Final = {CLOSED: "closed-loop", OPEN: "server", OFFLINE: "offline", STATIC: "static-batch"}
_NODE: Final = 8.0  # accelerators that share links, where the link does not say
_DOMAINS: Final = {"nvl72": (4.0, 72.0), "nvlink-c2c": (1.0, 1.0)}  # host, links
_NETWORK: Final = (400e9, 5e-6)  # of a node, where replicas reach beyond one [B/s, s]
_ROOM: Final = 0.75  # share of the memory that weights take in the narrowest layout that is used
_FULL: Final = 0.88  # the same where a server is started without a width: one accelerator, if the weights fit
_GROUPS_WITHIN: Final = ("sglang", "tensorrt-llm")  # whose data-parallel attention divides the ranks of tp
# Limits of an engine in the command that a note quotes, by the names of vLLM, SGLang and TensorRT-LLM.
_SEQUENCE_FLAGS: Final = ("max-num-seqs", "max-running-requests", "max-batch-size")
_CHUNK_FLAGS: Final = ("max-num-batched-tokens", "chunked-prefill-size", "max-num-tokens")
_MEMORY_FLAGS: Final = ("gpu-memory-utilization", "mem-fraction-static")
_LARGEST_TENSOR: Final = 32.0  # beyond, sources give the size of a rack for the width
_MEASURED_OF_PEAK: Final = 1.02  # digits of a table


@dataclass(frozen=True)
class ServingRuns:
    """Measured runs, one entry each; `nan` where nobody measured."""

    rows: tuple[Row, ...]
    shape: ServingShape
    machine: Machine
    deployment: Deployment
    load: Load
    features: Mapping[str, Text]  # by name, such as engine or generation
    measured: Mapping[str, Array]  # by target; times in seconds, output tokens per second of all accelerators
    unresolved: tuple[tuple[Row, str], ...] = ()
    contradicted: tuple[tuple[Row, str], ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, at: NDArray[np.bool_ | np.intp]) -> ServingRuns:
        """Some of the runs, by index or mask."""
        index = np.arange(len(self))[at]
        return replace(
            self,
            rows=tuple(self.rows[i] for i in index),
            shape=_taken(self.shape, index),
            machine=_taken(self.machine, index),
            deployment=_taken(self.deployment, index),
            load=_taken(self.load, index),
            features={name: values[index] for name, values in self.features.items()},
            measured={name: values[index] for name, values in self.measured.items()},
        )


def _taken(struct: T, index: NDArray[np.intp]) -> T:
    """Every field of a struct of arrays at some entries of its last axis."""
    found = {}
    for f in fields(struct):  # type: ignore[arg-type]
        value = np.asarray(getattr(struct, f.name))
        found[f.name] = value[..., index] if value.ndim and value.shape[-1] > 1 else value
    return type(struct)(**found)


class UnresolvedError(Exception):
    """A row that cannot be predicted; the message says why."""


class ContradictedError(Exception):
    """A row that cannot be true; the message says why."""


@dataclass(frozen=True)
class _One:
    """One row, resolved."""

    row: Row
    shape: ServingShape
    machine: Machine
    deployment: Mapping[str, float]
    load: Mapping[str, float]
    features: Mapping[str, str]
    measured: Mapping[str, float]


def resolve_runs(rows: Sequence[Row], catalog: Catalog) -> ServingRuns:
    """Turn lines of `runs.csv` into arrays; what cannot be predicted is listed with the reason."""
    found: list[_One] = []
    unresolved: list[tuple[Row, str]] = []
    contradicted: list[tuple[Row, str]] = []
    known = _Known(catalog)
    for row in rows:
        try:
            found.append(_resolve(row, known))
        except UnresolvedError as reason:
            unresolved.append((row, str(reason)))
        except ContradictedError as reason:
            contradicted.append((row, str(reason)))
    return _stacked(found, unresolved, contradicted)


def _stacked(
    found: Sequence[_One], unresolved: Sequence[tuple[Row, str]], contradicted: Sequence[tuple[Row, str]]
) -> ServingRuns:
    def column(of: Callable[[_One], Mapping[str, object]], name: str) -> Any:
        return np.array([of(one)[name] for one in found])

    deployment = {
        name: column(lambda one: one.deployment, name) for name in (found[0].deployment if found else ())
    }
    load = {name: column(lambda one: one.load, name) for name in (found[0].load if found else ())}
    features = {name: column(lambda one: one.features, name) for name in (found[0].features if found else ())}
    return ServingRuns(
        rows=tuple(one.row for one in found),
        shape=stack_shapes([one.shape for one in found]),
        machine=stack_machines([one.machine for one in found]) if found else _no_machine(),
        deployment=Deployment(**deployment),
        load=Load(**load),
        features=features,
        measured={name: column(lambda one: one.measured, name) for name in TARGETS} if found else {},
        unresolved=tuple(unresolved),
        contradicted=tuple(contradicted),
    )


def _no_machine() -> Machine:
    return Machine(**{f.name: np.zeros(0) for f in fields(Machine)})


class _Known:
    """What the catalogue has, read once."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.workloads = frozenset(catalog.names("workloads"))
        self.accelerators = frozenset(catalog.names("accelerators"))
        self.workload = cache(self._workload)
        self.machine = cache(self._machine)

    def link(self, device: Accelerator) -> Link | None:
        return self.catalog.get("links", device.scale_up) if device.scale_up else None

    def _workload(self, name: str) -> tuple[Workload, ServingShape] | None:
        if name not in self.workloads:
            return None
        found: Workload = self.catalog.get("workloads", name)
        return (found, serving_shape(found)) if is_served(found) else None

    def _machine(self, name: str, precision: str) -> tuple[Accelerator, Machine] | None:
        if name not in self.accelerators:
            return None
        device: Accelerator = self.catalog.get("accelerators", name)
        host, domain = _DOMAINS.get(device.scale_up or "", (_NODE, _NODE))
        network, latency = _NETWORK
        return device, numbers(
            device,
            precision,
            per_node=host,
            domain=domain,
            scale_up=self.link(device),
            network_bytes_per_s=network,
            network_latency_s=latency,
        )


def _resolve(row: Row, known: _Known) -> _One:
    if row.text["scenario"] not in KINDS:
        raise UnresolvedError(f'scenario "{row.text["scenario"]}" is not modelled')
    if is_said(row.text.get("disagg", "")):
        raise UnresolvedError("prompts and tokens on machines of their own are not scored yet")
    if is_said(row.text.get("spec_decoding", "")):
        raise UnresolvedError("drafted tokens without their acceptance")
    entry = model_entry(row.text["model"])
    model = known.workload(str(entry["is"]))
    if model is None:
        hint = did_you_mean(str(entry["is"]), known.workloads)
        raise UnresolvedError(f'model "{row.text["model"]}" is not in the zoo{hint}')
    machine_entry = accelerator_entry(row.text["accelerator"])
    source = source_entry(row.text["source"])
    first = known.machine(str(machine_entry["is"]), "bf16")
    if first is None:
        hint = did_you_mean(str(machine_entry["is"]), known.accelerators)
        raise UnresolvedError(f'accelerator "{row.text["accelerator"]}" is not in the catalogue{hint}')
    precision = _precision(row, entry, source, first[0])
    arithmetic = str(precision["arithmetic"])
    device, machine = known.machine(str(machine_entry["is"]), arithmetic) or first
    engine = known_engine(row.text["engine"], row.text.get("engine_version", ""), row.text.get("date", ""))
    least = float(model[1].params) * float(precision["weights"]) / 8.0 / device.memory
    deployment = _deployment(row, machine_entry, source, entry, precision, engine, least, device)
    load = _load(row, str(entry["is"]), source, deployment)
    measured = _measured(row, load, deployment)
    if not any(np.isfinite(value) for value in measured.values()):
        raise UnresolvedError("it measures nothing that is predicted")
    features = {
        **serving_features(
            device, arithmetic if arithmetic in device.peak else "bf16", engine.era, known.link(device)
        ),
        "source": row.text["source"],
        "publisher": str(source.get("publisher", row.text["source"])),
        "model": str(entry["is"]),
        "accelerator": str(machine_entry["is"]),
        "kind": KIND_NAMES[load["kind"]],
        "front": "http"
        if row.text["scenario"] in ("closed-loop", "server", "offline-burst") and not source.get("in_process")
        else "api",
        "structure": "moe" if model[1].experts > 1 else "dense",
    }
    one = _One(row, model[1], machine, deployment, _per_replica(load), features, measured)
    _check(one)
    return one


def _precision(row: Row, model: Entry, source: Entry, device: Accelerator) -> Entry:
    """Bits of weights and of arithmetic: as the row states, as its model's name does, as its source or model usually has."""
    table = names().precisions
    stated = row.text.get("precision", "").lower()
    if stated:
        if stated not in table:
            raise UnresolvedError(f'precision "{row.text["precision"]}" is not known')
        return table[stated]
    named = names().stated.find(plain(row.text["model"]))
    if named is not None:
        return table[str(named["is"])]
    if source.get("precision_by_best"):
        best = next((name for name in ("fp4", "fp8", "int8") if name in device.peak), "bf16")
        return table["fp8" if best == "fp4" and model["is"] == "gpt-j-6b" else best]
    return table[str(source.get("precision") or model.get("precision") or "bf16")]


def _deployment(
    row: Row,
    machine: Entry,
    source: Entry,
    model: Entry,
    precision: Entry,
    engine: Engine,
    least: float,
    device: Accelerator,
) -> dict[str, float]:
    in_turn = bool(engine_entry(row.text["engine"]).get("layers_in_turn"))
    limits = source.get("max_sequences", {})
    usual = sequences_on(engine, device.memory, device.generation)
    most = limits.get(engine.era, limits.get("*", usual))
    tensor, pipeline = row.number["tp"], row.get("pp", 1.0)
    groups, experts = row.get("dp", 1.0), row.get("ep", 1.0)
    count = row.number["n_accel"]
    if machine.get("counts") == "tp" or (count is None and engine.era in _GROUPS_WITHIN):
        count = tensor and tensor * pipeline
    if tensor is None:
        tensor = max((count or 1.0) / (pipeline * groups), 1.0)
        narrowest = _narrowest(least, _ROOM)
        if source.get("started_alone") or count is None:
            tensor = count = _narrowest(least, _FULL)
        elif source.get("layout") == "narrowest":
            tensor = min(tensor, narrowest)
        if in_turn:
            tensor, pipeline = 1.0, max(count or 1.0, 1.0)
    if tensor > _LARGEST_TENSOR:
        raise ContradictedError(f"tp is {tensor:g}: the size of a rack, not the width of a layout")
    if "layout_suspect" in row.text.get("note", ""):
        raise ContradictedError("its source could not tell the layout")
    ranks = tensor * pipeline * groups
    replicas = 1.0
    if count is not None and count > ranks:
        replicas = math.floor(count / ranks)  # of which each has an equal share of the load
    elif count is not None and count < ranks:
        # Data-parallel attention over the ranks that tensor parallelism cuts elsewhere: one set of accelerators.
        if tensor * pipeline > count or groups * pipeline > count:
            raise ContradictedError(f"tp, pp and dp need {ranks:g} accelerators of {count:g}")
        tensor = max(count / (groups * pipeline), 1.0)
    weight = float(precision["weights"]) / 8.0
    is_mixed = float(precision["weights"]) < 8.0 and str(model.get("precision", "")) == "fp4"
    stated = str(row.text.get("kv_precision", "")).lower()
    cache = 1.0 if ("8" in stated) else 2.0
    if not stated and row.text.get("engine", "").startswith(("trt", "tensorrt")) and weight <= 1.0:
        cache = 1.0
    return {
        "tensor": tensor,
        "pipeline": pipeline,
        "attention_replicas": groups,
        "expert_ranks": experts,
        "weight_bytes": 2.0 if is_mixed else weight,
        "expert_bytes": weight,
        "cache_bytes": cache,
        "dense_in_16_bit": float(is_mixed),
        "memory_fraction": min(_flag(row, _MEMORY_FLAGS, engine.memory_fraction), 1.0),
        "max_sequences": _flag(row, _SEQUENCE_FLAGS, float(most)) * groups,
        "chunk_tokens": _flag(row, _CHUNK_FLAGS, float(chunk_on(engine, device.memory, device.generation))),
        "mixed": float(engine.mixed),
        "reserve": engine.reserve,
        "replicas": replicas,
    }


def _narrowest(least: float, room: float) -> float:
    """Accelerators, a power of two, that hold weights of `least` accelerators' memory in this share of it."""
    return float(2.0 ** math.ceil(math.log2(max(least / room, 1.0))))


def _flag(row: Row, names: Sequence[str], usual: float) -> float:
    """A limit that the command in the note sets, such as ``--max-num-seqs 512``."""
    note = row.text.get("note", "").replace("_", "-")
    for name in names:
        found = re.search(rf"--{name}[ =](\d+(?:\.\d+)?)(?![\w.])", note)
        if found:
            return max(float(found[1]), 1e-3)
    return usual


def _load(row: Row, model: str, source: Entry, at: dict[str, float]) -> dict[str, float]:
    kind = KINDS[row.text["scenario"]]
    inputs, outputs = row.number["isl"], row.number["osl"]
    if inputs is None or outputs is None:
        usual = next(
            (
                one
                for one in names().datasets
                if str(one["source"]) in row.text["source"] and one["model"] == model
            ),
            None,
        )
        if usual is None:
            raise UnresolvedError("the lengths of its requests are not stated")
        inputs, outputs = inputs or float(usual["isl"]), outputs or float(usual["osl"])
    share = float(source.get("length_share", 1.0))
    replicas = at.pop("replicas")
    batch = row.number["batch"] if kind == STATIC else row.number["concurrency"]
    if kind == STATIC and batch is None:
        batch = row.number["concurrency"] or (
            1.0 if row.text["scenario"] in ("real-time", "single-stream") else None
        )
        if batch is None:
            raise UnresolvedError("the batch is not stated")
    rate, requests = row.number["request_rate"], row.number["n_requests"]
    if kind == OPEN and rate is not None and not math.isfinite(rate):
        kind, rate = OFFLINE, None  # an endless rate is a burst
    if kind == CLOSED and batch is None:
        raise UnresolvedError("the concurrency is not stated")
    if kind == OPEN and rate is None:
        raise UnresolvedError("the rate of requests is not stated")
    if requests is None and kind == CLOSED and "waves" in source:
        requests = float(source["waves"]) * (batch or 1.0)
    return {
        "kind": kind,
        "concurrency": math.nan if batch is None else batch / replicas,
        "rate_per_s": math.nan if rate is None else rate / replicas,
        "requests": math.nan if requests is None else requests / replicas,
        "input_tokens": max(inputs * share, 1.0),
        "output_tokens": max(outputs * share, 1.0),
        "replicas": replicas,
    }


def _per_replica(load: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in load.items() if name != "replicas"}


def _measured(row: Row, load: dict[str, float], at: Mapping[str, float]) -> dict[str, float]:
    """What was measured, as the model says it: output tokens per second of one replica, seconds."""
    n = {name: math.nan if value is None else value for name, value in row.number.items()}
    outputs, inputs, replicas = load["output_tokens"], load["input_tokens"], load["replicas"]
    tokens = n["throughput_out_tok_s"]
    if math.isnan(tokens):
        tokens = n["throughput_total_tok_s"] * outputs / (inputs + outputs)
    if math.isnan(tokens):
        tokens = n["requests_s"] * outputs
    ttft, tpot = n["ttft_mean_s"], n["tpot_mean_s"]
    if math.isnan(tpot):
        tpot = n["tpot_p50_s"] if load["kind"] == STATIC else n["itl_mean_s"]
    if math.isnan(ttft) and load["kind"] == STATIC:
        ttft = n["ttft_p50_s"]
    if (
        outputs < 8.0
    ):  # a few tokens in bursts of the engine: their spacing is that of its output, not of steps
        tpot = math.nan
    if row.text["scenario"] == "prefill-only":
        tokens = tpot = math.nan
    if load["kind"] == CLOSED and math.isnan(tokens):
        tokens = load["concurrency"] * replicas * outputs / (ttft + (outputs - 1.0) * tpot)  # Little's law
    if load["kind"] == OPEN and tokens < math.inf and tokens > 0.93 * load["rate_per_s"] * replicas * outputs:
        tokens = math.nan  # what was asked was answered: nothing was measured
    return {
        "throughput": tokens / replicas,
        "tpot": tpot,
        "ttft": ttft,
        "tpot_p99": n["tpot_p99_s"] if not math.isnan(tpot) else math.nan,
        "ttft_p99": n["ttft_p99_s"],
    }


def _check(one: _One) -> None:
    """Refuse what physics forbids: weights that do not fit, and rates above the datasheet's roofs."""
    from perfmodel.physics.serving_step import weight_bytes_per_rank

    at = Deployment(**one.deployment)
    if float(weight_bytes_per_rank(one.shape, at)) > float(one.machine.memory_bytes):
        raise ContradictedError("the weights do not fit the accelerators that it states")
    ranks = float(at.accelerators)
    active = float(
        one.shape.dense_params
        + one.shape.whole_params
        + one.shape.logit_params
        + one.shape.expert_params * one.shape.top_k / one.shape.experts
    )
    total = one.measured["throughput"] * (1.0 + one.load["input_tokens"] / one.load["output_tokens"])
    peak = max(float(one.machine.peak_flop_per_s), float(one.machine.peak16_flop_per_s))
    if total * 2.0 * active > ranks * peak * _MEASURED_OF_PEAK:
        raise ContradictedError("more tokens a second than the datasheet's FLOP/s allow")
    read = active * min(at.weight_bytes, at.expert_bytes)
    floor = read / (at.tensor * at.attention_replicas * float(one.machine.memory_bytes_per_s))
    if one.measured["tpot"] * _MEASURED_OF_PEAK < floor:
        raise ContradictedError("tokens sooner than the weights can be read once; drafted tokens perhaps")


def reasons(listed: Sequence[tuple[Row, str]]) -> list[dict[str, object]]:
    """Why rows were not scored, with their count and the first place of each, most frequent first."""
    counts = Counter(reason for _, reason in listed)
    first = {reason: row.place for row, reason in reversed(listed)}
    return [
        {"reason": reason, "rows": count, "place": first[reason]} for reason, count in counts.most_common()
    ]
