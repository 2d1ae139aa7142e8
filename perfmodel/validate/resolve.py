"""Measured runs resolved to operations, machines and layouts, with what their sources leave open filled in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from perfmodel.beliefs.features import features
from perfmodel.calibrate.observations import Observations
from perfmodel.errors import did_you_mean
from perfmodel.physics.constants import DEFAULT_NETWORK_BYTES_PER_S, DEFAULT_NETWORK_LATENCY_S
from perfmodel.physics.layouts import (
    SHARDING_CODES,
    Sharding,
    layouts,
    pick,
    recompute_share,
    usual_bucket_bytes,
    usual_gradient_bytes,
)
from perfmodel.physics.machine import (
    Machine,
    numbers,
)
from perfmodel.physics.machine import stack as stack_machines
from perfmodel.physics.operations import (
    LANGUAGE_KINDS,
    PADS_VOCABULARY,
    TRANSFORMER_KINDS,
    Operations,
    operations,
    stack,
    take,
)
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.hardware import Accelerator
from perfmodel.specs.workload import Workload
from perfmodel.validate.consistency import batchless_apart, contradiction, repeated
from perfmodel.validate.corpus import ALONE, Corpus, batch_in_note, recomputed
from perfmodel.validate.tables import Row

HARDWARE = {"accelerator": "accelerators", "scale_up": "links", "scale_out": "links"}  # column -> catalogue
MISPLACED = {"scale_up": ("scale-out",), "scale_out": ("scale-up", "switch", "pcie", "cpu")}  # kinds of links

# Samples per accelerator where a source gives only a rate: typical of the kind. Only ratios over K are scored there.
TYPICAL_BATCH: dict[str, float] = {
    "convnet": 128, "detection": 16, "segmentation": 8, "tts": 30000, "rnn-translation": 7680,
    "encoder-transformer": 32, "decoder-transformer": 4, "encoder-decoder-transformer": 32, "recommendation": 8192,
    "gnn": 128, "speech": 32, "diffusion": 16, "forecasting": 256,
}  # fmt: skip
TOKENS_PER_SENTENCE = 60.0  # of both sides of a pair, in WMT
FEWEST_TOKENS = 2000.0  # of a replica: fewer are sentences
# A batch that a note names counts utterances, segments of audio or pairs of sentences where a sample is a part of one.
SAMPLES_PER_ITEM: dict[str, float] = {
    "tacotron2": 566, "fastpitch": 566, "fastspeech": 566, "hifigan": 32, "waveglow": 8000, "gnmt": TOKENS_PER_SENTENCE,
}  # fmt: skip
TOKEN_BATCH = 5120.0  # of a model whose sample is a token
# Of a language model's pre-training on ever more devices: Brown et al., arXiv:2005.14165, table 2.1, has 0.5 to 3.2 million.
TOKENS_OF_A_STEP = 2e6
REAL_SHARE = 0.5  # of BERT's 512 positions hold real tokens in the Wikipedia corpus
WEIGHT_SHARE = 0.7  # of the memory that weights and optimizer states may take
STATE_BYTES = 6.0  # of gradients and sharded optimizer states per trainable parameter
POOLED_LINKS = ("nvl72", "ici-v2", "ici-v3", "ici-v4", "ici-v5e", "ici-v5p", "ici-v6e")
LARGEST_HOST = 8.0
MOST_TENSOR = 8  # degree, where nobody states one: beyond it groups leave a node
ACCELERATORS_PER_NIC = 4.0  # where a link is named and its number is not
NEVER = 1e9  # steps
UNALIGNED_CUDA = 11.0  # whose cuBLAS gives tensor cores operands of any alignment, the first to do so
COMPOSED = "composed by its source"  # in the note of a point that was not timed on its own
COMPLETED = (
    "k", "tp", "pp", "cp", "ep", "vpp", "batch", "steps", "recompute", "selective", "per_node", "group",
)  # fmt: skip
# Of a workload: what a point may say of its own, and what the columns of workloads.csv have no place for.
OWN = ("document_len", "vocab")
UNSTATED = (
    "conv3x3_share", "projected_vocab", "memory_len", "attention_window", "window_layers", "scores_in_fp32",
)  # fmt: skip


@dataclass(frozen=True)
class Resolved:
    """Observations, and what could not be resolved and why."""

    observations: Observations
    families: tuple[Row, ...]  # aligned with the observations' names
    points: tuple[Row, ...]  # aligned with the observations' points
    unresolved: tuple[tuple[Row, str], ...]  # families that could not be scored, with the reason
    contradicted: tuple[tuple[Row, str], ...]  # points that contradict themselves, with how
    batchless: Mapping[str, str]  # families made of points that lack their family's batch -> which, in words


def resolve(corpus: Corpus, catalog: Catalog, grades: str = "AB") -> Resolved:
    """Turn rows into observations. A family that lacks a catalogue entry is listed with the reason."""
    graded = [point for point in corpus.points if point.text["grade"] in ("", *grades)]
    contradicted = [
        (point, how)
        for point in graded
        if (how := contradiction(point, corpus.families[point.text["family"]]))
    ] + repeated(graded)
    known, workloads, unresolved = _known_families(corpus, catalog)
    contradicted += [
        (point, f"{column} is stated, and no attention of {name} is counted")
        for column in OWN
        for point in graded
        if point.number[column] is not None
        and point.text["family"] in known
        and not workloads[name := known[point.text["family"]].text["workload"]].is_counted
    ]
    refused = {point.line for point, _ in contradicted}
    scored = [point for point in graded if point.text["family"] in known and point.line not in refused]
    labelled, points, batchless = batchless_apart(known, scored)
    usual = cache(lambda: _usual_networks(catalog))  # reads every node: only where a family states no network
    machines: list[Machine] = []
    feature_rows: list[dict[str, str]] = []
    for row in labelled.values():
        device = catalog.get("accelerators", row.text["accelerator"])
        machines.append(_machine(row, device, catalog, usual))
        feature_rows.append(
            features(
                workloads[row.text["workload"]],
                device,
                row.text["precision"],
                framework=row.text["framework_class"],
                scale_up=row.text["scale_up"],
                scale_out=row.text["scale_out"],
                tuning="tuned" if row.text["regime"] == "tuned" else "stock",
            )
        )
    seen = {point.text["family"] for point in points}
    at_odds = {point.text["family"] for point, _ in contradicted}
    ungraded = f"no points of grade {' or '.join(grades)}"
    unresolved += [
        (row, ungraded + " that agree with themselves" * (name in at_odds))
        for name, row in labelled.items()
        if name not in seen
    ]
    position = {name: i for i, name in enumerate(labelled)}
    family = np.array([position[point.text["family"]] for point in points], dtype=np.intp)
    families = tuple(labelled.values())
    observations = _observe(families, workloads, tuple(points), family, machines, feature_rows)
    return Resolved(observations, families, tuple(points), tuple(unresolved), tuple(contradicted), batchless)


def _known_families(
    corpus: Corpus, catalog: Catalog
) -> tuple[dict[str, Row], dict[str, Workload], list[tuple[Row, str]]]:
    """Families that can be predicted, their workloads by name, and the other families with the reason."""
    known: dict[str, Row] = {}
    workloads: dict[str, Workload] = {}
    unresolved: list[tuple[Row, str]] = []
    largest: dict[str, float] = {}
    for point in corpus.points:
        family = point.text["family"]
        largest[family] = max(largest.get(family, 1.0), point.get("k", 1.0))
    for name, row in corpus.families.items():
        workload = known_workload(row.text["workload"], corpus, catalog)
        reason = _missing(row, workload, catalog) or _too_large_a_group(row, largest.get(name, np.inf))
        if reason or workload is None:
            unresolved.append((row, reason or "no workload"))
        else:
            known[name], workloads[row.text["workload"]] = row, workload
    return known, workloads, unresolved


def known_workload(name: str, corpus: Corpus, catalog: Catalog) -> Workload | None:
    """As workloads.csv states it, with what that form has no column for taken from the zoo's model of the name."""
    stated = corpus.workloads.get(name)
    if name not in catalog.names("workloads"):
        return stated
    known: Workload = catalog.get("workloads", name)
    if stated is None:
        return known
    if stated.kind != known.kind or (stated.vocab or 0) < (known.projected_vocab or 0):
        return stated  # another model of that name
    unsaid = {field: getattr(known, field) for field in UNSTATED if getattr(stated, field) is None}
    return stated.model_copy(update=unsaid)


def _missing(row: Row, workload: Workload | None, catalog: Catalog) -> str | None:
    if workload is None:
        name = row.text["workload"]
        guess = did_you_mean(name, catalog.names("workloads"))
        return f'workload "{name}" is neither in workloads.csv nor in the zoo{guess}'
    unknown = _unknown_hardware(row, catalog, may_be_blank=("scale_up", "scale_out"))
    if unknown:
        return unknown
    device, precision = catalog.get("accelerators", row.text["accelerator"]), row.text["precision"]
    if not device.trains_in(precision):
        return f"{device.name} has no {precision}; it has {', '.join(device.peak)}"
    has_work = (
        workload.flop_per_sample_forward or workload.flop_per_sample or (workload.layers and workload.hidden)
    )
    return None if has_work else "the workload has neither FLOP nor dimensions"


def _too_large_a_group(row: Row, largest_k: float) -> str | None:
    group = row.get("shard_group", 1.0)
    return f"shard_group is {group:g}, its largest k {largest_k:g}" if group > largest_k else None


def _unknown_hardware(row: Row, catalog: Catalog, may_be_blank: Container[str]) -> str | None:
    """The first device or link of a row that the catalogue lacks or has for another place, in words."""
    for column, kind in HARDWARE.items():
        name, known = row.text.get(column, ""), catalog.names(kind)
        if name not in known and (name or column not in may_be_blank):
            return f'{kind[:-1]} "{name}" is not in the catalogue{did_you_mean(name, known)}'
        if name and column in MISPLACED and catalog.get("links", name).kind in MISPLACED[column]:
            where = "between nodes" if column == "scale_up" else "within a node"
            return f'{column} is "{name}", a link {where}'
    return None


def known_sweeps(corpus: Corpus, catalog: Catalog) -> tuple[list[Row], list[tuple[Row, str]]]:
    """Timings whose hardware is blank or in the catalogue; of the other sweeps the first row, with the reason."""
    kept: list[Row] = []
    unresolved: dict[tuple[str, str], Row] = {}
    for row in corpus.collectives:
        unknown = _unknown_hardware(row, catalog, may_be_blank=HARDWARE)
        if unknown is None:
            kept.append(row)
        else:
            unresolved.setdefault((row.text["sweep"], f"collectives: {unknown}"), row)
    return kept, [(row, reason) for (_, reason), row in unresolved.items()]


def _usual_networks(catalog: Catalog) -> dict[str, float]:
    """Bytes per second and accelerator of the network that each accelerator (or its generation) usually has."""
    rates: dict[str, list[float]] = {}
    for name in catalog.names("nodes"):
        node = catalog.get("nodes", name)
        if node.scale_out is not None:
            rate = node.scale_out.bandwidth * (node.nics_per_node or 1) / node.accelerators_per_node
            for key in (node.accelerator.name, node.accelerator.generation):
                if key:
                    rates.setdefault(key, []).append(rate)
    return {key: float(np.median(values)) for key, values in rates.items()}


def _machine(
    row: Row, device: Accelerator, catalog: Catalog, usual: Callable[[], Mapping[str, float]]
) -> Machine:
    per_node = row.get("accelerators_per_node", 1.0)
    domain, network = domain_and_network(row, catalog)
    if network is None:
        known = usual()
        rate = known.get(
            device.name or "", known.get(device.generation or "", DEFAULT_NETWORK_BYTES_PER_S / 8.0)
        )
        network = rate * per_node
    named = row.text["scale_out"]
    link = catalog.get("links", row.text["scale_up"]) if row.text["scale_up"] else None
    return numbers(
        device,
        row.text["precision"],
        per_node=per_node,
        domain=domain,
        scale_up=link,
        network_bytes_per_s=network,
        network_latency_s=catalog.get("links", named).latency if named else DEFAULT_NETWORK_LATENCY_S,
        aligned_only=row.get("cuda", np.inf) < UNALIGNED_CUDA,
    )


def domain_and_network(row: Row, catalog: Catalog) -> tuple[float, float | None]:
    """Accelerators that share scale-up links, and bytes per second of a node's network where one is stated or named."""
    per_node = row.get("accelerators_per_node", 1.0)
    domain = _domain(per_node, row.text["scale_up"], catalog)
    stated, named = row.number["network_gbit_per_s_per_node"], row.text["scale_out"]
    if stated is not None:
        return domain, stated * 1e9 / 8.0
    if named:
        return domain, catalog.get("links", named).bandwidth * max(1.0, per_node / ACCELERATORS_PER_NIC)
    return domain, None


def _domain(per_node: float, scale_up: str, catalog: Catalog) -> float:
    """Accelerators that share scale-up links: a node, or the rack or torus that its link makes of many nodes."""
    if scale_up not in POOLED_LINKS or per_node > LARGEST_HOST:
        return per_node
    sizes = [catalog.get("nodes", name) for name in catalog.names("nodes")]
    return max(
        [
            float(n.scale_up_domain or 0)
            for n in sizes
            if n.scale_up is not None and n.scale_up.name == scale_up
        ]
        + [per_node]
    )


def _observe(
    families: tuple[Row, ...],
    workloads: Mapping[str, Workload],
    points: tuple[Row, ...],
    family: np.ndarray[Any, np.dtype[np.intp]],
    machines: list[Machine],
    feature_rows: list[dict[str, str]],
) -> Observations:
    rows = [families[index] for index in family]
    used = [workloads[row.text["workload"]] for row in rows]
    built: dict[tuple[str, float | None, tuple[tuple[str, float], ...], bool], int] = {}
    structs: list[Operations] = []
    which = np.empty(len(points), dtype=np.intp)
    columns = {name: np.empty(len(points)) for name in COMPLETED}
    normalised = np.zeros(len(points), dtype=bool)
    target = np.empty(len(points))
    for i, (point, row, workload) in enumerate(zip(points, rows, used, strict=True)):
        said = {name: value for name in OWN if (value := point.number.get(name))}
        pads = "vocab" not in said and row.text["framework_class"] in PADS_VOCABULARY
        key = (row.text["workload"], _real_tokens(point), tuple(said.items()), pads)
        if key not in built:
            built[key] = len(structs)
            own = workload.model_copy(update=said) if said else workload
            structs.append(operations(own, int(key[1]) if key[1] else None, pads_vocabulary=pads))
        which[i] = built[key]
        filled = complete(point, row, workload, float(machines[family[i]].memory_bytes))
        normalised[i] = point.number["global_batch"] is None
        for name, value in filled.items():
            columns[name][i] = value
        columns["group"][i] = row.get("shard_group", filled["k"] / (filled["tp"] * filled["pp"]))
        seconds = point.get("step_s", 1.0)
        target[i] = np.log(seconds * filled["batch"] / filled["k"] if normalised[i] else seconds)
    sharding = np.array([float(SHARDING_CODES.get(_sharding(row), Sharding.DDP)) for row in rows])
    alone = np.array([row.text["sharding"] == ALONE for row in rows])
    core = np.array([float(row.text["framework_class"] in ("megatron_core", "xla")) for row in rows])
    at = layouts(
        columns["k"],
        global_batch=columns["batch"],
        accelerators_per_node=1.0,
        tp=columns["tp"],
        pp=columns["pp"],
        cp=columns["cp"],
        ep=columns["ep"],
        vpp=columns["vpp"],
        accumulation=columns["steps"],
        sharding=sharding,
        shard_group=columns["group"],
        recompute=columns["recompute"],
        selective=columns["selective"],
        sequence_parallel=np.maximum(core, columns["selective"]),
        per_node=columns["per_node"],
        declared={
            "gradient_bytes": np.array(
                [usual_gradient_bytes(row.text["framework_class"], row.text["precision"]) for row in rows]
            ),
            "sync_every": np.where(alone, NEVER, 1.0),
            "bucket_bytes": np.array(
                [row.get("bucket_bytes", usual_bucket_bytes(row.text["framework_class"])) for row in rows]
            ),
            "tp_hidden": np.array([point.get("tp_hidden", np.nan) for point in points]),
            "run_steps": np.array([point.get("run_steps", np.inf) for point in points]),
        },
    )
    return Observations(
        ops=take(stack(structs), which),
        machine=pick(stack_machines(machines), family),
        at=at,
        target=target,
        family=family,
        names=tuple(row.text["family"] for row in families),
        features=tuple(feature_rows),
        kinds=tuple(workloads[row.text["workload"]].kind for row in families),
        normalised=normalised,
        weights=_weights(families, points, family),
    )


def _weights(
    families: tuple[Row, ...], points: tuple[Row, ...], family: np.ndarray[Any, np.dtype[np.intp]]
) -> tuple[float, ...]:
    """Families of a group that their source made up of the same timings count together as one."""
    composed = {
        int(index)
        for index, point in zip(family, points, strict=True)
        if COMPOSED in point.text.get("note", "")
    }
    counts = Counter(families[index].text["group"] for index in composed)
    return tuple(
        1.0 / counts[row.text["group"]] if index in composed else 1.0 for index, row in enumerate(families)
    )


def _real_tokens(point: Row) -> float | None:
    """Tokens of a sequence that are computed: a source that skips padding says so in its note."""
    said, note = point.number["seq_len"], point.text.get("note", "")
    skipped = "padding is skipped" in note or "padding removed" in note
    return said * REAL_SHARE if said and skipped else said


def _sharding(row: Row) -> str:
    """XLA programs shard weights over the mesh where nobody says otherwise."""
    said = row.text["sharding"] or "unknown"
    return "fsdp" if said == "unknown" and row.text["framework_class"] == "xla" else said


def complete(point: Row, family: Row, workload: Workload, memory_bytes: float) -> dict[str, float]:
    """Numbers of a point's layout; what the source leaves out gets what its framework would do by default."""
    sharding = _sharding(family)
    k = point.get("k", 1.0)
    tp, pp, cp = point.get("tp", 1.0), point.get("pp", 1.0), point.get("cp", 1.0)
    if point.number["tp"] is None and point.number["pp"] is None and sharding not in ("fsdp", "hsdp"):
        left = k / (point.get("dp", 1.0) * cp)
        is_stated = point.number["dp"] is not None
        tp, pp = _whole_cut(left) if is_stated else _least_cut(workload, left, memory_bytes)
    experts = float(workload.experts or 1)
    ep = min(point.get("ep", min(8.0, k)), experts) if experts > 1 else 1.0
    dp = k / (tp * pp * cp)
    batch = point.number["global_batch"]
    if batch is None:
        batch = point.get("run_batch", _unstated_batch(point, family, workload, dp))
    steps, micro = point.number["accumulation"], point.number["micro_batch"]
    if workload.sample == "token" and batch / dp < FEWEST_TOKENS:
        batch *= TOKENS_PER_SENTENCE
        micro = None if micro is None else micro * TOKENS_PER_SENTENCE
    if steps is None and micro is not None:
        steps = batch / dp / micro
    elif steps is None:
        steps = _usual_accumulation(workload, batch / dp, pp, sharding)
    said = recomputed(point.text["recompute"])
    unsaid = np.nan if workload.kind in TRANSFORMER_KINDS else 0.0
    return {
        "k": k,
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "ep": ep,
        "vpp": point.get("vpp", np.nan if pp > 1.0 else 1.0),
        "batch": batch,
        "steps": max(steps, 1.0),
        "recompute": unsaid if said is None else recompute_share(said),
        "selective": float(said == "selective"),
        "per_node": k / point.get("nodes", 1.0),
    }


def _unstated_batch(point: Row, family: Row, workload: Workload, dp: float) -> float:
    """Samples of a step where no batch is given in samples: from the batch that the note names, else the usual."""
    _, named = batch_in_note(point)
    if named is not None:
        return dp * named * SAMPLES_PER_ITEM.get(workload.name or "", 1.0)
    tokens = point.number["seq_len"] or workload.seq_len
    in_sequences = workload.kind in LANGUAGE_KINDS and workload.sample != "token"
    if family.text["regime"] == "strong" and in_sequences and tokens:
        return max(TOKENS_OF_A_STEP / tokens, dp)
    usual = TYPICAL_BATCH.get(workload.kind, 32.0)
    return dp * (max(usual, TOKEN_BATCH) if workload.sample == "token" else usual)


def _whole_cut(parts: float) -> tuple[float, float]:
    """Tensor, then pipeline parallelism of a replica of so many accelerators.

    >>> _whole_cut(1), _whole_cut(16), _whole_cut(12)
    ((1.0, 1.0), (8.0, 2.0), (6.0, 2.0))
    """
    tp = max(degree for degree in range(1, MOST_TENSOR + 1) if parts % degree == 0)
    return float(tp), float(parts / tp)


def _least_cut(workload: Workload, most: float, memory_bytes: float) -> tuple[float, float]:
    """Tensor, then pipeline parallelism by which the weights fit, where a source names neither; `most` is their product."""
    held = 2.0 * (workload.params or 0.0) + STATE_BYTES * float(
        workload.trainable_params or workload.params or 0.0
    )
    parts = 2.0 ** np.ceil(np.log2(max(held / (WEIGHT_SHARE * memory_bytes), 1.0)))
    tp = float(min(parts, MOST_TENSOR, most))
    return tp, float(min(max(parts / tp, 1.0), max(most // tp, 1.0)))


def _usual_accumulation(workload: Workload, share: float, pp: float, sharding: str) -> float:
    """Micro-batches that frameworks use by default for `share` samples of a replica, where a source does not say."""
    if workload.kind not in LANGUAGE_KINDS or (sharding == "fsdp" and pp == 1.0):
        return 1.0
    return share if pp > 1.0 or (workload.params or 0) > 2e10 else share / 4.0
