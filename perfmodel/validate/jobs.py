"""A measured run as a job: what a line of points.csv and its family say, in the words of a job file.

A blank cell is a key that the job leaves out, and the same code fills it in for a measured run and for a user's job
(`specs/usual.py`, `training/search.py`). What stands here besides is what the form of the tables means: samples that are
sentences, points without a batch, a layout of which not even the degrees are known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, get_args

import numpy as np

from perfmodel.physics.operations import LANGUAGE_KINDS, TRANSFORMER_KINDS
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.checking import build
from perfmodel.specs.economy import Price
from perfmodel.specs.hardware import Cluster
from perfmodel.specs.job import Job
from perfmodel.specs.layout import Layout
from perfmodel.specs.loader import Mark, Source, graft
from perfmodel.specs.stack import FrameworkClass, Stack
from perfmodel.specs.usual import LARGEST_HOST, completed
from perfmodel.specs.workload import Workload
from perfmodel.validate.corpus import ALONE, batch_in_note, recomputed
from perfmodel.validate.software import stack_facts
from perfmodel.validate.tables import Row

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
MOST_TENSOR = 8  # degree, where nobody states one: beyond it groups leave a node
ROUNDED = 1e-6  # of a micro-batch
NEVER = 10**9  # steps between exchanges of replicas that exchange nothing
# Of a workload: what a point may say of its own.
OWN = ("document_len", "vocab")
WHOLE_COPIES = ("ddp", "parameter_server")  # of which no group shares a copy
SHARDING: dict[str, str | None] = {
    # Embedding and classifier sharding keep the dense part replicated; their exchange is in the operations.
    "embedding_sharded": "ddp", "classifier_sharded": "ddp", ALONE: "ddp", "unknown": None, "": None,
}  # fmt: skip


def words_of(family: Row, point: Row, workload: Workload, memory_bytes: float) -> dict[str, Any]:
    """The job file of a point, but for the workload, which `workloads.csv` describes: see `workload_of`."""
    layout = layout_words(family, point, workload, memory_bytes)
    replicas = point.get("k", 1.0) / _cuts(layout)
    batch = _batch(family, point, workload, replicas)
    counts = workload.sample == "token" and batch / replicas < FEWEST_TOKENS
    per_item = (
        TOKENS_PER_SENTENCE if counts else 1.0
    )  # the samples are tokens, and the source counts sentences
    # Of a model that is not a sequence's a length means nothing.
    has_length = workload.kind in TRANSFORMER_KINDS or workload.seq_len is not None
    tokens = _real_tokens(point) if has_length else None
    words: dict[str, object] = {
        "cluster": cluster_words(family, point),
        "precision": family.text["precision"],
        "seq_len": None if tokens is None else int(tokens),
        "global_batch": max(1, round(batch * per_item)),
        "k": int(point.get("k", 1.0)),
        "framework": framework_of(family),
        "layout": layout
        | (_micro_batches(point, per_item, batch / replicas) or _at_once(family, point, workload)),
        "sync_every": NEVER if sharding_of(family, point) == ALONE else None,
        "bucket": family.number.get("bucket_bytes"),
        "timed_steps": _whole(point.number.get("run_steps")),
        "stack": stack_words(family, point),
    }
    return {key: value for key, value in words.items() if value not in (None, {})}


def _cuts(layout: Mapping[str, object]) -> int:
    """Accelerators that share one replica of the model."""
    return math.prod(degree for name in ("tp", "pp", "cp") if isinstance(degree := layout[name], int))


def workload_of(point: Row, workload: Workload) -> Workload:
    """The workload with what a point says of its own."""
    said = {name: value for name in OWN if (value := point.number.get(name))}
    return workload.model_copy(update=said) if said else workload


def stack_words(family: Row, point: Row) -> dict[str, object]:
    """Facts of the software."""
    return {
        key: value
        for key, value in (
            ("retuned", True if family.text["regime"] == "tuned" else None),
            ("cuda", family.number.get("cuda")),
            ("hidden_tensor_calls", point.number.get("tp_hidden")),
            # A vocabulary that a point states is the one that was multiplied.
            ("pads_vocabulary", False if point.number.get("vocab") else None),
        )
        if value is not None
    } | stated_facts(family, point)


def stated_facts(*rows: Row) -> dict[str, object]:
    """Facts in the column `stack` of rows; a later one wins."""
    return {key: value for row in rows for key, value in stack_facts(row.text.get("stack", "")).items()}


def sharding_of(family: Row, point: Row) -> str:
    """The sharding of a point: its own, else that of its family."""
    return point.text.get("sharding") or family.text["sharding"]


def framework_of(family: Row) -> str:
    """The class of software; one that the form does not list is another."""
    name = family.text["framework_class"] or "unknown"
    return name if name in get_args(FrameworkClass) else "other"


def cluster_words(family: Row, point: Row | None = None) -> dict[str, object]:
    """The machine of a family, or of a point that uses fewer accelerators of each node."""
    whole = count = int(family.get("accelerators_per_node", 1.0))
    if point is not None and point.get("nodes", 1.0) > 1.0:
        count = min(whole, int(np.ceil(point.get("k", 1.0) / point.get("nodes", 1.0))))
    up, out = family.text["scale_up"], family.text["scale_out"]
    rate = family.number["network_gbit_per_s_per_node"]
    node: dict[str, object] = {
        "name": f"{family.text['accelerator']} x {count}",
        "accelerator": family.text["accelerator"],
        "accelerators_per_node": count,
    }
    if up:
        node["scale_up"] = up
    if count < whole and whole > LARGEST_HOST:  # a slice or rack, of which these are the hosts
        node["scale_up_domain"] = whole
    words: dict[str, object] = {"node": node}
    if out:
        words["scale_out"] = out
    if rate is not None:
        words["network_per_node"] = f"{rate!r} Gbit/s"
    return words


def layout_words(family: Row, point: Row, workload: Workload, memory_bytes: float) -> dict[str, object]:
    """The layout of a point; where a source names neither tensor nor pipeline parallelism, the least that holds the weights."""
    stated = sharding_of(family, point)
    sharding = SHARDING.get(stated, stated)
    if sharding is None and family.text["framework_class"] == "xla":
        sharding = "fsdp"  # XLA programs shard weights over the mesh where nobody says otherwise
    k, cp = point.get("k", 1.0), point.get("cp", 1.0)
    tp, pp = point.get("tp", 1.0), point.get("pp", 1.0)
    if point.number["tp"] is None and point.number["pp"] is None and sharding not in ("fsdp", "hsdp"):
        dp = point.number["dp"] or _implied_replicas(point, k / cp)
        left = k / ((dp or 1.0) * cp)
        tp, pp = _least_cut(workload, left, memory_bytes) if dp is None else _whole_cut(left)
    experts = float(workload.experts or 1)
    words: dict[str, object] = {
        "tp": int(tp),
        "pp": int(pp),
        "cp": int(cp),
        "ep": int(min(point.get("ep", min(8.0, k)), experts)) if experts > 1 else 1,
        "vpp": _whole(point.number["vpp"]) if pp > 1.0 else None,
        "sharding": sharding,
        "recompute": recomputed(point.text["recompute"]),
    }
    group = _whole(family.number["shard_group"])
    if group is not None and sharding not in WHOLE_COPIES:
        words["shard_group"] = group
    elif sharding == "hsdp":
        in_node = max(int(family.get("accelerators_per_node", 1.0)) // int(tp), 1)
        sharing = int(k / (tp * pp))
        if sharing % in_node == 0 or sharing <= in_node:
            words["shard_group"] = in_node
    return {key: value for key, value in words.items() if value is not None}


def _implied_replicas(point: Row, most: float) -> float | None:
    """Replicas that a batch, a micro-batch and their number make, where they make a whole number that K allows."""
    values = [point.number[name] for name in ("global_batch", "micro_batch", "accumulation")]
    if None in values:
        return None
    batch, micro, steps = (float(value or 1.0) for value in values)
    found = batch / (micro * steps)
    return found if found >= 1.0 and found == np.floor(found) and most % found == 0.0 else None


def _micro_batches(point: Row, per_item: float, share: float) -> dict[str, int]:
    """Micro-batches of a step, else their size; `share` is the batch of a replica, in items of the source.

    Where its micro-batches do not divide a batch, the last one is smaller: their number says so.
    """
    steps, micro = point.number["accumulation"], point.number["micro_batch"]
    if steps is not None:
        return {"accumulation": max(1, round(steps))}
    if micro is None:
        return {}
    if micro < share and share % micro > ROUNDED * micro:
        return {"accumulation": int(np.ceil(share / micro))}
    return {"micro_batch": max(1, round(micro * per_item))}


def _at_once(family: Row, point: Row, workload: Workload) -> dict[str, int]:
    """A batch that a note names, or that is typical of its kind, is that of one pass of an accelerator."""
    if point.number["global_batch"] is not None or point.number.get("run_batch"):
        return {}
    return {} if _is_pretraining(point, family, workload) else {"accumulation": 1}


def _is_pretraining(point: Row, family: Row, workload: Workload) -> bool:
    """Whether a language model is trained on ever more devices with a batch that nobody states."""
    in_sequences = workload.kind in LANGUAGE_KINDS and workload.sample != "token"
    tokens = point.number["seq_len"] or workload.seq_len
    return (
        batch_in_note(point)[1] is None
        and family.text["regime"] == "strong"
        and in_sequences
        and bool(tokens)
    )


def _batch(family: Row, point: Row, workload: Workload, dp: float) -> float:
    """Samples of a step: as stated, else those of the run whose rate is stated, else the usual ones."""
    batch = point.number["global_batch"]
    if batch is None:
        batch = point.get("run_batch", _unstated_batch(point, family, workload, dp))
    return batch


def _real_tokens(point: Row) -> float | None:
    """Tokens of a sequence that are computed: a source that skips padding says so in its note."""
    said, note = point.number["seq_len"], point.text.get("note", "")
    skipped = "padding is skipped" in note or "padding removed" in note
    return said * REAL_SHARE if said and skipped else said


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _unstated_batch(point: Row, family: Row, workload: Workload, dp: float) -> float:
    """Samples of a step where no batch is given in samples: from the batch that the note names, else the usual."""
    _, named = batch_in_note(point)
    if named is not None:
        return dp * named * SAMPLES_PER_ITEM.get(workload.name or "", 1.0)
    tokens = point.number["seq_len"] or workload.seq_len
    if tokens and _is_pretraining(point, family, workload):
        return max(round(TOKENS_OF_A_STEP / tokens / dp), 1) * dp
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


class Jobs:
    """Jobs of measured runs; machines and layouts that many of them share are built once."""

    def __init__(self, catalog: Catalog, described: Mapping[str, Job] = MappingProxyType({})) -> None:
        self._catalog = catalog
        self._described = described
        self._clusters: dict[str, Cluster] = {}
        self._layouts: dict[str, Layout] = {}

    def job(self, family: Row, point: Row, workload: Workload) -> Job:
        """The job of a point. A test holds it to what loading the same words from a file gives."""
        own = self._described.get(family.text["family"])
        if own is not None:
            return self._own(own, family, point)
        device = self._catalog.get("accelerators", family.text["accelerator"])
        words = words_of(family, point, workload, device.memory)
        return Job.model_construct(
            name=family.text["family"],
            workload=workload_of(point, workload),
            cluster=self.cluster(words.pop("cluster")),
            regime="strong",
            layout=self._layout(words.pop("layout")),
            stack=Stack.model_validate(words.pop("stack", {})),
            k=(words.pop("k"),),
            seq_len=words.pop("seq_len", None) or workload.seq_len,
            batch_per_accelerator=None,
            k_given=True,
            steps=None,
            price=Price(),
            grid=None,
            jitter=None,
            reliability=None,
            notes=(),
            **words,
        )

    def _own(self, job: Job, family: Row, point: Row) -> Job:
        """A job file at one point; what the point states wins over it."""
        device = job.cluster.node.accelerator
        batch, k = point.get("global_batch", 1.0), point.get("k", 1.0)
        blank = layout_words(family, point, job.workload, device.memory)
        words = blank
        if isinstance(job.layout, Layout):
            stated = {name: blank[name] for name in blank if point.text.get(name)}
            words = job.layout.model_dump(exclude_none=True) | stated
        words |= _micro_batches(point, 1.0, batch * _cuts(words) / k)
        tokens = _real_tokens(point)
        said = {
            "k": (int(k),),
            "regime": "strong",
            "global_batch": max(1, round(batch)),
            "batch_per_accelerator": None,
            "layout": self._layout(words),
            "workload": workload_of(point, job.workload),
            "seq_len": int(tokens) if tokens else job.seq_len,
            "timed_steps": _whole(point.number.get("run_steps")) or job.timed_steps,
        }
        if facts := stated_facts(point):
            said["stack"] = (job.stack or Stack()).model_copy(update=dict(Stack.model_validate(facts)))
        return job.model_copy(update=said)

    def cluster(self, words: Mapping[str, object]) -> Cluster:
        """The machine that words describe, its unstated network as the catalogue's nodes have it."""
        key = repr(words)
        if key not in self._clusters:
            found = self._catalog.resolve("clusters", graft(dict(words), Mark(Source(""))))
            read = build(Cluster, found.tree, found.bad, found.problems)
            self._clusters[key], _ = completed(read, self._catalog)
        return self._clusters[key]

    def _layout(self, words: Mapping[str, object]) -> Layout:
        key = repr(words)
        if key not in self._layouts:
            self._layouts[key] = Layout.model_validate(words)
        return self._layouts[key]
