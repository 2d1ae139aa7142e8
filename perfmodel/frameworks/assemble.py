"""From findings to a job: derived facts, what the framework would refuse, questions, and the tree of a job file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perfmodel.frameworks.draft import Draft, Entry, Finding
from perfmodel.frameworks.models import in_zoo, workload_from
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.loader import Mark, Tree, graft

DEGREES = ("tp", "pp", "cp", "ep", "vpp")


@dataclass
class Assembled:
    """The job as a tree with the lines of the configuration, and where each of its keys comes from."""

    tree: Tree
    origins: dict[str, Finding] = field(default_factory=dict)  # job key -> the setting behind it

    def plain(self) -> dict[str, Any]:
        """The job as a mapping."""
        return dict(self.tree.plain())


class _Job:
    def __init__(self, draft: Draft, start: Mark, given: Mapping[str, Any], name: str) -> None:
        self.draft, self.given, self.start = draft, given, start
        self.items: dict[str, Tree] = {}
        self.layout: dict[str, Tree] = {}
        self.stack: dict[str, Tree] = {}
        self.origins: dict[str, Finding] = {}
        self.items["name"] = Tree(name, start)

    # -- small steps -------------------------------------------------------------------------------------------

    def put(self, into: dict[str, Tree], key: str, value: Any, *fields: str, path: str = "") -> None:
        """A key of the job, at the line of the first of these fields that was stated."""
        stated = [self.draft.findings[name] for name in fields if name in self.draft.findings]
        lined = next((one for one in stated if one.mark.line is not None), stated[0] if stated else None)
        into[key] = graft(value, lined.mark if lined is not None else self.start)
        if lined is not None:
            self.origins[f"{path}{key}"] = lined

    def ask(self, question: str) -> None:
        if question not in self.draft.questions:
            self.draft.questions.append(question)

    def degree(self, name: str) -> int:
        return int(self.draft.get(f"layout.{name}", 1) or 1)

    @property
    def model_parallel(self) -> int:
        return self.degree("tp") * self.degree("pp") * self.degree("cp")

    # -- the parts of a job ------------------------------------------------------------------------------------

    def workload(self) -> None:
        draft = self.draft
        if "workload" in self.given:
            return
        inline = workload_from(draft)
        named = draft.get("model.name")
        found = in_zoo(str(named)) if named is not None else None
        fields = draft.get("model.fields")
        if found is not None and self._agrees(found):
            inline = None
        if inline is not None:
            self.put(self.items, "workload", inline, "model.layers", "model.hidden")
        elif fields is not None:
            self.put(self.items, "workload", fields, "model.fields")
        elif found is not None:
            self.put(self.items, "workload", found, "model.name")
        elif named is not None:
            self.ask(
                f'which model is "{named}" ({draft.findings["model.name"].place})? Give its config.json beside the '
                "file, or -w with a name of the zoo (perfmodel catalog list workloads)"
            )
        else:
            missing = self._missing_dimensions()
            self.ask(
                f"which model is trained?{missing} Give its config.json beside the file, or -w with a name of the zoo"
            )

    def _agrees(self, name: str) -> bool:
        """Whether a model of the zoo has the dimensions that are stated besides its name."""
        entry = Catalog.default().get("workloads", name)
        said = (("layers", entry.layers), ("hidden", entry.hidden), ("heads", entry.heads))
        return all(self.draft.get(f"model.{key}") in (None, value) for key, value in said)

    def _missing_dimensions(self) -> str:
        stated = [name for name in ("layers", "hidden", "heads", "vocab") if self.draft.get(f"model.{name}")]
        missing = [name for name in ("layers", "hidden", "heads", "vocab") if name not in stated]
        return f" The file does not state its {', '.join(missing)}." if stated and missing else ""

    def cluster(self) -> None:
        if "cluster" in self.given:
            return
        if self.draft.get("cluster"):
            self.put(self.items, "cluster", self.draft.get("cluster"), "cluster")
            return
        self.ask("which cluster? Give -c with a name (perfmodel catalog list clusters), such as -c dgx-h100")

    def accelerators(self) -> int | None:
        """How many accelerators the run has, where the files or the command say."""
        said = self.given.get("k")
        if said is not None:
            text = str(said)
            return int(text) if text.isdigit() else None
        draft = self.draft
        total = draft.get("world.gpus")
        nodes, each = draft.get("world.nodes"), draft.get("world.gpus_per_node")
        if total is None and nodes is None and each is not None and draft.get("world.single"):
            nodes = 1
        if total is None and nodes is not None and each is not None:
            total = nodes * each
        if total is None:
            total = self._from_degrees()
        if total is None:
            self.ask("how many accelerators? Give -k with their number")
            return None
        if total < 1:
            draft.refuse("world.gpus", f"{total} accelerators make no job")
            return None
        fields = ("world.gpus", "world.nodes", "world.gpus_per_node", "layout.dp_shard")
        self.put(self.items, "k", total, *fields)
        return int(total)

    def _from_degrees(self) -> int | None:
        draft = self.draft
        if draft.get("layout.dp"):
            return int(draft.get("layout.dp")) * self.model_parallel
        shard = draft.get("layout.dp_shard")
        if shard:
            return int(shard) * int(draft.get("layout.dp_replicate", 1) or 1) * self.model_parallel
        return None

    def batch(self, k: int | None) -> None:
        """The global batch, from itself, from tokens, or from the batch of a rank and the number of ranks."""
        draft, seq_len = self.draft, self.draft.get("seq_len")
        if {"global_batch", "batch_per_accelerator"} & set(self.given):
            return
        total = draft.get("batch.global")
        fields = ["batch.global"]
        if total is None and draft.get("batch.global_tokens") and seq_len:
            total, fields = draft.get("batch.global_tokens") // seq_len, ["batch.global_tokens"]
        micro = draft.get("layout.micro_batch")
        local = draft.get("batch.local")
        each = draft.get("batch.per_accelerator")
        if total is None and each is not None:
            self._per_accelerator(float(each), k)
            return
        if local is None and micro is not None and draft.get("layout.accumulation") is not None:
            local = micro * draft.get("layout.accumulation")
        if total is None and local is not None:
            fields = ["batch.local", "layout.micro_batch", "layout.accumulation"]
            if k is not None and k % self.model_parallel == 0:
                total = local * (k // self.model_parallel)
            elif k is None and local % self.model_parallel == 0:
                self.put(self.items, "regime", "weak", *fields)
                self.put(self.items, "batch_per_accelerator", local // self.model_parallel, *fields)
                return
        if total is None:
            self.ask("how many samples does a step have? Give --global-batch")
            return
        if total < 1:
            draft.refuse(fields[0], f"a global batch of {total} makes no step")
            return
        self.put(self.items, "global_batch", total, *fields)
        self._divides(total, micro, k, fields)

    def _per_accelerator(self, each: float, k: int | None) -> None:
        """A batch that is stated for one accelerator, which may be a fraction of a sample."""
        steps = self.draft.get("layout.accumulation") or 1
        fields = ["batch.per_accelerator"]
        whole_batch = each * steps * (k or 1)
        if not 0 < each < 1e9 or (k is not None and whole_batch != int(whole_batch)):
            self.draft.refuse(
                fields[0], f"{each:g} samples on each of {k or 'the'} accelerators make no whole batch"
            )
        elif k is not None:
            self.put(self.items, "global_batch", int(whole_batch), *fields)
        elif each * steps == int(each * steps):
            self.put(self.items, "regime", "weak", *fields)
            self.put(self.items, "batch_per_accelerator", int(each * steps), *fields)
        else:
            self.ask("how many accelerators? The batch is a fraction of a sample on each")
        micro = each * self.model_parallel
        if micro == int(micro) and self.degree("pp") == 1:
            entry = self.draft.findings[fields[0]]
            self.draft.put("layout.micro_batch", int(micro), Entry(entry.key, entry.value, entry.mark))

    def _divides(self, total: int, micro: int | None, k: int | None, fields: list[str]) -> None:
        draft = self.draft
        if k is None or micro is None or k % self.model_parallel:
            return
        replicas = k // self.model_parallel
        if micro < 1:
            draft.refuse("layout.micro_batch", f"a micro-batch of {micro} makes no step")
            return
        if total % (micro * replicas):
            draft.refuse(
                next((name for name in fields if name in draft.findings), "layout.micro_batch"),
                f"a global batch of {total} does not divide by {replicas} replicas times a micro-batch of {micro}",
                "change one of the three: every replica must take the same number of micro-batches",
            )
            return
        steps, said = total // (micro * replicas), draft.get("layout.accumulation")
        if said is not None and said != steps and "batch.global" in draft.findings:
            draft.refuse(
                "layout.accumulation",
                f"{said} micro-batches of {micro} on {replicas} replicas are {said * micro * replicas} samples, "
                f"and the global batch is {total}",
            )
        if draft.get("layout.vpp", 1) > 1 and steps % self.degree("pp") and draft.get("rule.megatron"):
            draft.refuse(
                "layout.vpp",
                f"the interleaved schedule needs micro-batches ({steps}) that divide by the {self.degree('pp')} stages",
            )

    def cut(self, k: int | None) -> None:
        """The layout."""
        draft = self.draft
        if "layout" in self.given:
            return
        for name in DEGREES:
            value = draft.get(f"layout.{name}")
            if value is not None and value > 1:
                self.put(self.layout, name, value, f"layout.{name}", path="layout.")
        if self.degree("ep") > 1 and draft.get("layout.etp"):
            self.put(self.layout, "etp", draft.get("layout.etp"), "layout.etp", path="layout.")
        if self.degree("pp") > 1 and draft.get("layout.vpp") == 1:  # nobody need guess how many there are
            self.put(self.layout, "vpp", 1, "layout.vpp", path="layout.")
        for name in ("micro_batch", "sharding", "recompute", "schedule"):
            value = draft.get(f"layout.{name}")
            if value is not None:
                self.put(self.layout, name, value, f"layout.{name}", path="layout.")
        if draft.get("layout.sequence_parallel") is not None and self.degree("tp") > 1:
            said = draft.get("layout.sequence_parallel")
            self.put(self.layout, "sequence_parallel", said, "layout.sequence_parallel", path="layout.")
        group = draft.get("layout.shard_group")
        if group and draft.get("layout.sharding") in ("zero1", "zero2", "zero3", "fsdp", "hsdp"):
            self.put(self.layout, "shard_group", group, "layout.shard_group", path="layout.")
        if k is not None:
            self._fits(k)

    def _fits(self, k: int) -> None:
        draft = self.draft
        if k % self.model_parallel:
            stated = [name for name in ("tp", "pp", "cp") if self.degree(name) > 1]
            draft.refuse(
                f"layout.{stated[0]}",
                f"{' * '.join(stated)} = {self.model_parallel} does not divide the {k} accelerators",
                "K must be a multiple of it",
            )
            return
        replicas = k // self.model_parallel
        said = draft.get("layout.dp")
        if said is not None and said != replicas and "world.gpus" not in self.given:
            draft.refuse(
                "layout.dp",
                f"{said} data-parallel ranks need {said * self.model_parallel} accelerators, not {k}",
            )
        shard, copies = draft.get("layout.dp_shard"), draft.get("layout.dp_replicate", 1) or 1
        if shard and shard * copies != replicas:
            draft.refuse(
                "layout.dp_shard",
                f"{shard} shards of {copies} copies with {self.model_parallel} model-parallel ranks need "
                f"{shard * copies * self.model_parallel} accelerators, not {k}",
            )

    def rest(self, global_batch: int | None) -> None:
        draft = self.draft
        for key in ("precision", "seq_len"):
            if draft.get(key) is not None and key not in self.given:
                self.put(self.items, key, draft.get(key), key)
        steps, fields = draft.get("steps"), ["steps"]
        if steps is None and draft.get("samples") and global_batch:
            steps, fields = draft.get("samples") // global_batch, ["samples"]
        if steps is None and draft.get("tokens") and global_batch and draft.get("seq_len"):
            steps, fields = draft.get("tokens") // (global_batch * draft.get("seq_len")), ["tokens"]
        if steps:
            self.put(self.items, "steps", steps, *fields)
        for key in ("framework", "gradient_dtype"):
            if draft.get(key) is not None:
                self.put(self.items, key, draft.get(key), key)
        if draft.get("bucket"):
            self.put(self.items, "bucket", f"{draft.get('bucket')} B", "bucket")
        for name, found in draft.findings.items():
            if name.startswith("stack."):
                key = name.removeprefix("stack.")
                self.put(self.stack, key, found.value, name, path="stack.")

    def tree(self) -> Tree:
        order = ("name", "workload", "cluster", "precision", "seq_len", "regime", "global_batch",
                 "batch_per_accelerator", "layout", "k", "steps", "framework", "gradient_dtype", "bucket", "stack")  # fmt: skip
        if self.layout:
            self.items["layout"] = _mapping(self.layout, self.start)
        if self.stack:
            self.items["stack"] = _mapping(self.stack, self.start)
        return _mapping({key: self.items[key] for key in order if key in self.items}, self.start)


def _mapping(items: dict[str, Tree], start: Mark) -> Tree:
    return Tree(dict(items), start, {key: item.mark for key, item in items.items()})


def assemble(draft: Draft, start: Mark, given: Mapping[str, Any], name: str) -> Assembled:
    """The job that the findings describe; `given` are the values of flags, which answer questions."""
    job = _Job(draft, start, given, name)
    job.workload()
    job.cluster()
    k = job.accelerators()
    job.batch(k)
    job.cut(k)
    batch = job.items.get("global_batch")
    said = given.get("global_batch")
    job.rest(int(batch.value) if batch is not None else said if isinstance(said, int) else None)
    for entry in draft.unknown_values:
        job.ask(
            f"{entry.key} ({entry.mark.source.name}:{entry.mark.line}) depends on the environment of the running shell; "
            "what is it?"
        )
    return Assembled(job.tree(), job.origins)
