"""From a job's words to a complete job: the documented defaults, and the checks that need several keys at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from perfmodel.errors import Problem, SpecError, UsageError
from perfmodel.specs.amounts import batch_around
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.job import Framework, Job, JobFile, Regime, language
from perfmodel.specs.layout import MISSING_LAYERS, WHOLE_REPLICAS, Layout
from perfmodel.specs.loader import Tree
from perfmodel.specs.precisions import Precision
from perfmodel.specs.prices import resolve_price
from perfmodel.specs.ranges import parse_k
from perfmodel.specs.runlength import Length
from perfmodel.specs.stack import CLASS_OF, GradientType, unmodelled
from perfmodel.specs.usual import completed
from perfmodel.specs.workload import TRANSFORMER_KINDS
from perfmodel.units import counted

DEFAULT_MAX_K = 1024
DEFAULT_TOKENS = 4 * 2**20  # global batch of a language model where nobody says
DEFAULT_SAMPLES = 4096  # and of anything else
DEFAULT_SAMPLES_PER_ACCELERATOR = 64


class Finisher:
    """Defaults and the checks that need several keys at once."""

    def __init__(self, spec: JobFile, tree: Tree, catalog: Catalog) -> None:
        self.spec, self.tree, self.catalog = spec, tree, catalog
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.batch_range: tuple[int, int] | None = None

    def job(self, default_name: str | None) -> Job:
        spec = self.spec
        self._batch_words()
        regime: Regime = spec.regime or ("weak" if spec.batch_per_accelerator is not None else "strong")
        k, k_given = self._k()
        layout = self._layout(k)
        price, problems = resolve_price(spec.price, spec.cluster, self.catalog, self.tree.mark_at("price"))
        self.problems.extend(problems)
        if price.note:
            self.notes.append(f"price: {price.note}")
        seq_len = spec.seq_len or spec.workload.seq_len
        if (
            spec.seq_len is not None
            and spec.workload.kind not in TRANSFORMER_KINDS
            and spec.workload.seq_len is None
        ):
            self.notes.append(f"seq_len has no meaning for {spec.workload.name} and is left out")
            seq_len = None
        precision = self._precision()
        global_batch, per_accelerator = self._batch(regime, seq_len)
        length = Length(spec, self._refuse, regime, k, global_batch, per_accelerator, seq_len)
        steps, run_samples = length.resolved()
        self.notes.extend(length.told())
        framework = spec.framework or self._framework()
        gradient_dtype = self._stack()
        self._algorithms()
        if spec.jitter is not None and spec.jitter.samples and len(spec.jitter.samples) < k[-1]:
            self.notes.append(
                f"jitter: {len(spec.jitter.samples)} samples are too few for the slowest of {k[-1]}: the wait stops growing at "
                "the longest of them; declare a family for the tail"
            )
        cluster, network = completed(spec.cluster, self.catalog)
        if k[-1] > spec.cluster.node.accelerators_per_node:
            self.notes.extend(network)
        if self.problems:
            raise SpecError(self.problems)
        job = Job(
            name=spec.name or default_name or f"{spec.workload.name}-on-{spec.cluster.name}",
            workload=spec.workload,
            cluster=cluster,
            precision=precision,
            seq_len=seq_len,
            regime=regime,
            global_batch=global_batch,
            batch_per_accelerator=per_accelerator,
            layout=layout,
            k=k,
            k_given=k_given,
            headroom=spec.headroom,
            steps=steps,
            run_samples=run_samples,
            batch_range=self.batch_range,
            deadline=spec.deadline,
            budget=spec.budget,
            timed_steps=spec.timed_steps,
            price=price,
            grid=spec.grid,
            jitter=spec.jitter,
            reliability=spec.reliability,
            framework=framework,
            framework_given=spec.framework is not None,
            gradient_dtype=gradient_dtype,
            compression=spec.compression,
            sync_every=spec.sync_every,
            bucket=spec.bucket,
            first_bucket=spec.first_bucket,
            stalls=spec.stalls,
            input=spec.input,
            length_spread=spec.length_spread,
            slow_devices=spec.slow_devices,
            stack=spec.stack,
            algorithm=spec.algorithm,
            notes=tuple(self.notes),
        )
        job._tree = self.tree
        return job

    def _framework(self) -> Framework:
        """The class of software of the stack that was named, else an unknown one."""
        stack = self.spec.stack
        if stack is not None and stack.framework is not None:
            return CLASS_OF[stack.framework][bool(stack.compiled)]
        self.notes.append(
            "the framework is not stated: predicted as an unknown one, with a wider band; framework or stack.framework narrows it"
        )
        return "unknown"

    def _stack(self) -> GradientType | None:
        """Check what the stack says twice, note what nothing models; the type in which gradients are exchanged."""
        stack, given = self.spec.stack, self.spec.gradient_dtype
        if stack is None:
            return given
        if stack.gradient_dtype and given and stack.gradient_dtype != given:
            self._refuse(
                "stack.gradient_dtype",
                f"stack says {stack.gradient_dtype}, the job's gradient_dtype {given}",
                "keep one of them",
            )
        if (stack.fp8_recipe is not None) and self.spec.precision in ("fp32", "fp16"):
            self._refuse(
                "stack.fp8_recipe",
                f"fp8_recipe {stack.fp8_recipe} scales products in 8 bits, and precision is {self.spec.precision}",
                "write precision: fp8, or leave fp8_recipe out",
            )
        for name in unmodelled(stack):
            memory = (
                ": what is held on the device is, the time of the transfers is not"
                if name == "offload"
                else ""
            )
            self.notes.append(f"stack.{name} is stated, not modelled yet{memory}")
        return given or stack.gradient_dtype

    def _scheduled(self, layout: Layout) -> Layout:
        """The layout with the order of micro-batches that the stack states."""
        said = self.spec.stack.schedule if self.spec.stack is not None else None
        if said is None or said == "dualpipe":  # that one is noted: no input of the step model is like it
            return layout
        if layout.schedule is not None and layout.schedule != said:
            self._refuse("stack.schedule", f"stack says {said}, the layout's schedule {layout.schedule}",
                         "keep one of them")  # fmt: skip
            return layout
        if said in ("gpipe", "1f1b") and (layout.vpp or 1) > 1:
            self._refuse("stack.schedule", f"schedule {said} does not interleave, yet vpp is {layout.vpp}")
        return layout.model_copy(update={"schedule": said})

    def _sharded_in_a_node(self, layout: Layout, shared: Sequence[int]) -> Layout:
        """The group of `hsdp` where none is stated: the ranks of a node, where they divide those that share weights."""
        in_node = max(self.spec.cluster.node.accelerators_per_node // layout.tp, 1)
        uneven = [ranks for ranks in shared if ranks > in_node and ranks % in_node]
        if uneven:  # a group of all ranks: fsdp by another name
            self.notes.append(
                f"hsdp shards over all ranks, as fsdp does: the {in_node} of a node do not divide the {uneven[0]} that "
                f"share weights at K = {uneven[0] * layout.tp * layout.pp}; give a shard_group"
            )
            return layout
        self.notes.append(f"shard_group {in_node}, the ranks of a node, is a default: none was stated")
        return layout.model_copy(update={"shard_group": in_node})

    def _refuse(self, path: str, message: str, help: str | None = None, code: str = "S010") -> None:
        self.problems.append(self.tree.mark_at(path).problem(code, message, help))

    def _algorithms(self) -> None:
        """Reduction in the switch needs a switch that reduces; a note names what an exchange cannot do."""
        chosen, cluster = self.spec.algorithm, self.spec.cluster
        if chosen is None:
            return
        links = (cluster.node.scale_up, cluster.network)
        reduces = any(link is not None and link.in_network_reduction for link in links)
        if chosen.expert_parallel in ("tree", "in_switch", "parameter_server"):
            self.notes.append(
                f"algorithm {chosen.expert_parallel} is none of an all-to-all: exchanges between experts stay auto"
            )
        if "in_switch" in chosen.model_dump().values() and not reduces:
            self._refuse(
                "algorithm",
                f"no link of {cluster.name} reduces inside its switch: algorithm in_switch is not possible",
                "take ring, tree or hierarchical, or state in_network_reduction: true for the link",
            )

    def _batch_words(self) -> None:
        spec = self.spec
        twice = "batch_per_accelerator" if spec.batch_per_accelerator is not None else "global_batch"
        if spec.global_batch_tokens is not None and getattr(spec, twice) is not None:
            self._refuse(
                "global_batch_tokens",
                f"both global_batch_tokens and {twice}",
                f"keep one; --set {twice}=null drops it",
            )
        elif spec.global_batch_tokens is not None and spec.regime == "weak":
            self._refuse(
                "global_batch_tokens",
                "weak scaling fixes batch_per_accelerator, not global_batch_tokens",
                "write batch_per_accelerator: N, or regime: strong",
            )
        if spec.global_batch is not None and spec.batch_per_accelerator is not None:
            self._refuse(
                "batch_per_accelerator",
                "both global_batch and batch_per_accelerator",
                "strong scaling fixes global_batch, weak scaling batch_per_accelerator",
            )
        elif spec.regime == "weak" and spec.global_batch is not None:
            self._refuse(
                "global_batch",
                "weak scaling fixes batch_per_accelerator, not global_batch",
                "write batch_per_accelerator: N, or regime: strong",
            )
        elif spec.regime == "strong" and spec.batch_per_accelerator is not None:
            self._refuse(
                "batch_per_accelerator",
                "strong scaling fixes global_batch, not batch_per_accelerator",
                "write global_batch: N, or regime: weak",
            )

    def _batch(self, regime: Regime, seq_len: int | None) -> tuple[int | None, int | None]:
        spec = self.spec
        in_tokens = language(spec.workload, seq_len)
        if spec.global_batch_tokens is not None:
            return self._batch_in_tokens(seq_len if in_tokens else None), None
        if regime == "strong":
            if spec.global_batch is None:
                batch = max(1, DEFAULT_TOKENS // (seq_len or 1)) if in_tokens else DEFAULT_SAMPLES
                self.notes.append(
                    f"global_batch {batch} {spec.workload.sample}s is a default: none was stated"
                )
                return batch, None
            return spec.global_batch, None
        if spec.batch_per_accelerator is None:
            each = (
                max(1, DEFAULT_TOKENS // DEFAULT_MAX_K // (seq_len or 1))
                if in_tokens
                else DEFAULT_SAMPLES_PER_ACCELERATOR
            )
            self.notes.append(f"batch_per_accelerator {each} is a default: none was stated")
            return None, each
        return None, spec.batch_per_accelerator

    def _batch_in_tokens(self, seq_len: int | None) -> int:
        """Sequences of a step that is stated in tokens; sets those that would do as well."""
        about, name = self.spec.global_batch_tokens, self.spec.workload.name
        assert about is not None
        if seq_len is None:
            self._refuse(
                "global_batch_tokens", f"a sample of {name} is no sequence of tokens", "write global_batch: N"
            )
            return 1
        if about.value < seq_len * (1.0 - about.give):
            self._refuse(
                "global_batch_tokens",
                f"{about.value:,.0f} tokens are less than one sequence of {seq_len:,}",
                "state a larger batch, or a shorter seq_len",
                "S007",
            )
            return 1
        nearest, low, high = batch_around(about, seq_len)
        self.batch_range = (low, high) if low < high else None
        if nearest * seq_len != about.value:
            self.notes.append(
                f"global_batch {nearest} sequences, {nearest * seq_len:,} tokens, is the nearest to the {about.value:,.0f} tokens "
                "that were stated"
            )
        return nearest

    def _precision(self) -> Precision:
        accelerator = self.spec.cluster.accelerator
        wanted = self.spec.precision
        choices: tuple[Precision, ...] = ("bf16", "fp16", "fp32")
        if wanted is None:
            # A rate below that of fp32 (fp16 on some consumer parts) is not one that anybody trains at.
            floor = accelerator.peak.get("fp32", 0.0)
            usable = [
                name
                for name in choices
                if accelerator.peak.get(name, 0.0) >= floor and name in accelerator.peak
            ]
            return usable[0] if usable else next(iter(accelerator.peak))
        if not accelerator.trains_in(wanted):
            self._refuse(
                "precision", f"{accelerator.name} has no {wanted}", f"it has {', '.join(accelerator.peak)}"
            )
        elif wanted not in accelerator.peak:
            self.notes.append(
                f"{accelerator.name} states no {wanted} rate: that of the nearest precision is used"
            )
        return wanted

    def _k(self) -> tuple[tuple[int, ...], bool]:
        spec, most = self.spec, self.spec.cluster.max_accelerators
        if spec.k is None:
            layout = spec.layout
            if layout is not None and layout.dp is not None:
                return (layout.dp * layout.model_parallel,), True
            limit = min(DEFAULT_MAX_K, most or DEFAULT_MAX_K)
            return parse_k(f"1..{limit}"), False
        try:
            k = parse_k(spec.k if isinstance(spec.k, (str, int, list)) else str(spec.k))
        except UsageError as error:
            for item in error.problems:
                self._refuse("k", item.message, item.help, "S007")
            return (1,), True
        if most is not None and k[-1] > most:
            self._refuse(
                "k",
                f"{spec.cluster.name} has {counted(most, 'accelerator', 'accelerators')}, k reaches {k[-1]}",
                "raise max_nodes, or ask for less",
                "S007",
            )
        return k, True

    def _layout(self, k: tuple[int, ...]) -> Layout | Literal["auto"]:
        layout, workload = self.spec.layout, self.spec.workload
        if layout is None:
            if self.spec.stack is not None and self.spec.stack.schedule is not None:
                self.notes.append("stack.schedule is left out: with layout auto the search picks the order")
            return "auto"
        layout = self._scheduled(layout)
        for key, of, total in (("tp", "heads", workload.heads), ("ep", "experts", workload.experts)):
            degree = getattr(layout, key)
            if total and degree > 1 and total % degree:
                self._refuse(
                    f"layout.{key}", f"{key} {degree} does not divide the {total} {of} of {workload.name}"
                )
        spare = (
            MISSING_LAYERS if (layout.vpp or 1) > 1 else 0
        )  # embeddings and logits may take a virtual stage each
        if workload.layers and layout.pp * (layout.vpp or 1) > workload.layers + spare:
            self._refuse(
                "layout.pp",
                f"pp {layout.pp} with vpp {layout.vpp or 1} exceeds the {workload.layers} layers of {workload.name}",
            )
        if layout.ep > 1 and not workload.experts and workload.kind in TRANSFORMER_KINDS:
            self._refuse("layout.ep", f"{workload.name} has no experts to spread: ep is {layout.ep}")
        if (self.spec.sync_every or 1) > 1 and layout.sharding not in (None, *WHOLE_REPLICAS):
            self._refuse(
                "sync_every",
                f"replicas that meet every {self.spec.sync_every} steps must each hold the whole state; "
                f"{layout.sharding} spreads it over them",
                "write sharding: ddp, or hsdp with a shard_group",
            )
        if workload.kv_heads and layout.tp > workload.kv_heads and not workload.kv_lora_rank:
            self.notes.append(
                f"tp {layout.tp} is above the {workload.kv_heads} key-value heads of {workload.name}: "
                f"{-(-layout.tp // workload.kv_heads)} ranks hold a copy of each"
            )
        size = layout.model_parallel * (layout.dp or 1)
        if self.problems:
            return layout  # a degree that is wrong by itself fits no K either
        fits = [
            count
            for count in k
            if count % layout.model_parallel == 0 and (layout.dp is None or count == size)
        ]
        if not fits:
            shown = f"does not fit K = {k[0]}" if len(k) == 1 else f"fits no K from {k[0]} to {k[-1]}"
            what = f"tp*pp*cp = {layout.model_parallel}" + (f" with dp {layout.dp}" if layout.dp else "")
            key = next(
                (name for name in ("dp", "tp", "pp", "cp") if getattr(layout, name) not in (None, 1)), "tp"
            )
            self._refuse(
                f"layout.{key}",
                f"{what} {shown}",
                f"K must be a multiple of {layout.model_parallel}"
                if layout.dp is None
                else f"K must be {size}",
            )
        group = layout.shard_group or 1
        shared = [count // (layout.tp * layout.pp) for count in fits]  # ranks that hold the same weights
        uneven = [ranks for ranks in shared if ranks > group and ranks % group]
        if uneven:
            self._refuse(
                "layout.shard_group",
                f"shard_group {group} does not divide the {uneven[0]} ranks that share weights at "
                f"K = {uneven[0] * layout.tp * layout.pp}",
            )
        if shared and group > max(shared):
            self.notes.append(
                f"shard_group {group} is more than the {max(shared)} ranks that share weights at K = {fits[-1]}: "
                "they are one group"
            )
        if layout.sharding == "hsdp" and layout.shard_group is None:
            layout = self._sharded_in_a_node(layout, shared)
        if layout.sharding is None:
            alone = (self.spec.sync_every or 1) > 1
            sharding = "zero1" if workload.kind in TRANSFORMER_KINDS and not alone else "ddp"
            layout = layout.model_copy(update={"sharding": sharding})
        return layout
