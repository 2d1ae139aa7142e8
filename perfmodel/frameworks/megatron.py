"""Megatron-LM: arguments of pretrain_gpt.py and its relatives, and the rules that its arguments.py enforces.

Names and defaults are those of megatron/training/arguments.py (core 0.6 to 0.16) and of the arguments.py before the
core; the rules below are its assertions.
"""

from __future__ import annotations

import re
from typing import Any

from perfmodel.frameworks.draft import Draft, Entry, Rule, pattern, truth, whole
from perfmodel.frameworks.models import in_zoo
from perfmodel.specs.loader import Mark

NAME = "megatron-lm"
ATTENTION = {"flash": "flash", "fused": "cudnn", "unfused": "unfused", "local": "unfused", "auto": None}
RECIPE = {
    "delayed": "delayed",
    "tensorwise": "tensorwise",
    "blockwise": "blockwise",
    "mxfp8": "mxfp8",
    "custom": None,
}
DISPATCHER = {"allgather": "all-gather", "alltoall": "all-to-all", "alltoall_seq": "all-to-all", "flex": None}
CP_EXCHANGE = {"p2p": "ring", "all_gather": "all-gather", "allgather": "all-gather", "a2a": "all-to-all",
               "a2a+p2p": "ring+all-to-all"}  # fmt: skip
RECOMPUTE = {"full": "full", "selective": "selective"}
# Words that a tokenizer has, where its type alone says so.
TOKENIZERS = {"gpt2bpetokenizer": 50257, "llama2tokenizer": 32000}
FSDP_STRATEGY = {"no_shard": "ddp", "optim": "zero1", "optim_grads": "zero2", "optim_grads_params": "fsdp"}


def dashed(name: str) -> str:
    """The flag of an argument's name."""
    return "--" + name.replace("_", "-")


def _true(_: Any) -> bool:
    return True


def _false(_: Any) -> bool:
    return False


TABLE: dict[str, Rule] = {
    "--tensor-model-parallel-size": "layout.tp",
    "--model-parallel-size": "layout.tp",
    "--pipeline-model-parallel-size": "layout.pp",
    "--context-parallel-size": "layout.cp",
    "--expert-model-parallel-size": "layout.ep",
    "--expert-tensor-parallel-size": "layout.etp",
    "--num-virtual-stages-per-pipeline-rank": "layout.vpp",
    "--num-layers-per-virtual-pipeline-stage": "megatron.layers_per_virtual",
    "--micro-batch-size": "layout.micro_batch",
    "--batch-size": "layout.micro_batch",
    "--global-batch-size": "batch.global",
    "--gradient-accumulation-steps": "layout.accumulation",
    "--sequence-parallel": "layout.sequence_parallel",
    "--use-distributed-optimizer": ("layout.sharding", lambda value: "zero1" if truth(value) else None),
    "--use-torch-fsdp2": ("layout.sharding", lambda value: "fsdp" if truth(value) else None),
    "--data-parallel-sharding-strategy": ("megatron.fsdp_strategy", FSDP_STRATEGY),
    "--use-megatron-fsdp": "megatron.fsdp",
    "--use-custom-fsdp": "megatron.fsdp",
    "--num-layers": "model.layers",
    "--encoder-num-layers": "model.layers",
    "--hidden-size": "model.hidden",
    "--num-attention-heads": "model.heads",
    "--num-query-groups": "model.kv_heads",
    "--group-query-attention": "megatron.gqa",
    "--kv-channels": "model.head_dim",
    "--ffn-hidden-size": "model.ffn",
    "--swiglu": ("model.gated", _true),
    "--squared-relu": ("model.gated", _false),
    "--untie-embeddings-and-output-weights": ("model.tied", _false),
    "--disable-bias-linear": ("model.bias", _false),
    "--position-embedding-type": ("model.learned_positions", lambda value: value == "learned_absolute"),
    "--use-rotary-position-embeddings": ("model.learned_positions", _false),
    "--no-position-embedding": ("model.learned_positions", _false),
    "--normalization": ("model.rms_norm", lambda value: str(value).casefold() == "rmsnorm"),
    "--max-position-embeddings": "model.positions",
    "--vocab-size": "model.vocab",
    "--padded-vocab-size": "megatron.padded",
    "--make-vocab-size-divisible-by": "model.vocab_multiple",
    "--seq-length": "seq_len",
    "--encoder-seq-length": "seq_len",
    "--window-size": ("model.attention_window", lambda value: None if "-1" in str(value) else whole(re.findall(r"\d+", str(value))[0])),
    "--num-experts": "model.experts",
    "--moe-router-topk": "model.top_k",
    "--moe-ffn-hidden-size": "model.moe_ffn",
    "--moe-shared-expert-intermediate-size": "model.shared_ffn",
    "--moe-layer-freq": "megatron.moe_layers",
    "--multi-latent-attention": "megatron.mla",
    "--q-lora-rank": "model.q_lora_rank",
    "--kv-lora-rank": "model.kv_lora_rank",
    "--qk-head-dim": "model.qk_nope_head_dim",
    "--qk-pos-emb-head-dim": "model.qk_rope_head_dim",
    "--v-head-dim": "model.v_head_dim",
    "--num-shared-experts": "megatron.shared_experts",
    "--moe-expert-parallel-size": "layout.ep",  # Megatron-DeepSpeed's name
    # The names of MindSpeed-LLM, which drives Megatron core on Ascend.
    "--multi-head-latent-attention": "megatron.mla",
    "--qk-nope-head-dim": "model.qk_nope_head_dim",
    "--qk-rope-head-dim": "model.qk_rope_head_dim",
    "--moe-intermediate-size": "model.moe_ffn",
    "--n-shared-experts": "megatron.shared_experts",
    "--first-k-dense-replace": "model.first_dense",
    "--tokenizer-type": "megatron.tokenizer_type",
    "--tokenizer-model": "megatron.tokenizer",
    "--bf16": "megatron.bf16",
    "--fp16": "megatron.fp16",
    "--fp8-format": "megatron.fp8",
    "--fp8-hybrid": "megatron.fp8",
    "--fp8-e4m3": "megatron.fp8",
    "--fp8-recipe": ("stack.fp8_recipe", RECIPE),
    "--fp4-format": "megatron.fp4",
    "--accumulate-allreduce-grads-in-fp32": "megatron.reduce_fp32",
    "--grad-reduce-in-bf16": "megatron.reduce_bf16",
    "--ddp-bucket-size": "megatron.bucket_elements",
    "--overlap-grad-reduce": "stack.overlap_gradients",
    "--overlap-param-gather": "stack.overlap_gather",
    "--tp-comm-overlap": "stack.overlap_tensor",
    "--overlap-moe-expert-parallel-comm": "stack.overlap_experts",
    "--recompute-granularity": ("layout.recompute", RECOMPUTE),
    "--recompute-activations": ("layout.recompute", lambda value: "selective" if truth(value) else None),
    "--checkpoint-activations": ("layout.recompute", lambda value: "full" if truth(value) else None),
    "--activations-checkpoint-method": ("layout.recompute", lambda value: "full"),
    "--recompute-method": "megatron.recompute_method",
    "--recompute-num-layers": "recompute.layers",
    "--attention-backend": ("stack.attention", ATTENTION),
    "--use-flash-attn": ("stack.attention", lambda value: "flash" if truth(value) else None),
    "--cp-comm-type": ("stack.context_parallel", lambda value: _one_of(value, CP_EXCHANGE)),
    "--moe-token-dispatcher-type": ("stack.dispatcher", DISPATCHER),
    "--moe-enable-deepep": ("stack.dispatcher", lambda value: "deepep" if truth(value) else None),
    "--moe-flex-dispatcher-backend": ("stack.dispatcher", {"deepep": "deepep", "hybridep": "hybridep"}),
    "--optimizer-cpu-offload": ("stack.offload", lambda value: ["optimizer"] if truth(value) else None),
    "--cpu-offloading-num-layers": ("stack.offload", lambda value: ["activations"] if whole(value) else None),
    "--train-iters": "steps",
    "--train-samples": "samples",
    "--train-tokens": "tokens",
    "--zero-stage": ("layout.sharding", {"0": "ddp", "1": "zero1", "2": "zero2", "3": "zero3"}),
    "--cpu-optimizer": ("stack.offload", lambda value: ["optimizer"] if truth(value) else None),
    "--pipeline-model-parallel-layout": "megatron.uneven",
    "--decoder-first-pipeline-num-layers": "megatron.uneven",
    "--decoder-last-pipeline-num-layers": "megatron.uneven",
    "--transformer-impl": "megatron.impl",
    "--DDP-impl": "megatron.ddp",
    "--use-mcore-models": "megatron.core",
}  # fmt: skip
IRRELEVANT = pattern(
    """--lr* --min-lr* --weight-decay* --adam-* --clip-grad --init-method* --save* --load* --data-* --train-data-path
    --valid-data-path --vocab-file --merge-file --split --log-* --eval-* --tensorboard* --wandb* --no-load* --no-save*
    --seed --distributed-* --master* --node_rank --nnodes --nproc* --rdzv* --num-workers --dataloader* --mock-data
    --tokenizer-* --attention-dropout --hidden-dropout --rotary-* --rope-* --use-rope* --norm-epsilon --loss-scale*
    --initial-loss-scale --min-loss-scale --hysteresis --optimizer --dist-ckpt* --ckpt-* --use-dist-ckpt* --async-save
    --manual-gc* --exit-* --profile* --empty-unused* --no-create-attention* --no-mmap* --calculate-per-token*
    --decoupled-* --rampup* --rerun* --override* --finetune --timing* --use-checkpoint* --moe-router-load*
    --moe-aux* --moe-z-loss* --moe-router-* --moe-grouped-gemm --moe-permute* --moe-pad* --moe-token-drop*
    --moe-per-layer* --moe-use-legacy* --apply-layernorm-1p --qk-layernorm --tiktoken*
    --fp8-amax* --fp8-margin --fp8-interval --fp8-param* --first-last-layers-bf16 --no-masked* --no-bias* --no-gradient*
    --no-rope* --no-async* --cross-entropy* --disable-scaled* --no-check* --check-* --tp-comm-* --inference* --legacy*
    --use-legacy* --use-mcore* --enable-* --deterministic* --high-priority* --nccl* --use-sharp --use-nccl*
    --add-qkv-bias --te-* --delay-* --local-rank --local_rank --cuda-graph* --export-* --onnx*
    --start-weight* --end-weight* --override-opt* --auto-detect* --dataset* --reset-* --eod-* --no-query* --make-*
    --use-pytorch-profiler --record-* --logging* --world-size --attention-softmax* --softmax* --ddp-* --align-*
    --overlap-p2p* --no-overlap* --batch-p2p* --defer-* --pipeline-* --apply-query* --bias-* --masked-* --persist*
    --warmup --job-name --cache* --bert-* --short-seq* --shape-order --reuse-fp32* --use-fused-* --moe-alltoall-overlap* --moe-permutation*
    --topk-group --seq-aux --routed-scaling* --spec --group* --use-tp-pp* --use-cpu*
    --num-distributed* --keep-fp8* --trust-* --prompt* --exp-name --scatter-*
    --clone-scatter* --deepspeed* --no-pipeline-parallel --curriculum*
    --moe-loss* --moe-train-cap* --moe-eval-cap* --moe-min-cap* --create-moe* --patch-tokenizer* --extra-vocab* --multiprocessing* --init* --suggested*"""
)


def _one_of(value: Any, words: dict[str, str]) -> str:
    found = {words[str(one)] for one in (value if isinstance(value, list) else [value]) if str(one) in words}
    if len(found) != 1:
        raise ValueError(f"known are {', '.join(words)}, one for all layers")
    return found.pop()


def read(draft: Draft, entries: dict[str, Entry], start: Mark) -> None:
    """Arguments of Megatron-LM, however they were given."""
    draft.apply(entries.values(), TABLE, IRRELEVANT)
    near = next(iter(entries.values())).mark if entries else start
    finish(draft, near)


def finish(draft: Draft, near: Mark) -> None:
    """What follows from several arguments, the defaults of arguments.py, and its assertions."""
    draft.default("stack.framework", NAME, "the framework", near)
    draft.default("rule.megatron", True, "the framework", near)
    _precision(draft, near)
    _sharding(draft, near)
    if draft.get("layout.sharding") == "zero1" or draft.get("megatron.core"):
        draft.default("stack.overlap_gradients", False, "--overlap-grad-reduce", near)
    _legacy(draft, near)
    _model(draft, near)
    _pipeline(draft)
    if draft.get("layout.pp", 1) > 1:
        draft.default("layout.vpp", 1, "--num-virtual-stages-per-pipeline-rank", near)
    _recompute(draft, near)
    rules(draft)


def _legacy(draft: Draft, near: Mark) -> None:
    """Arguments that only Megatron-LM before its core has tell its class of software."""
    before = [
        finding
        for name, finding in draft.findings.items()
        if finding.key in ("--DDP-impl", "--checkpoint-activations", "--activations-checkpoint-method", "--model-parallel-size",
                           "--batch-size")
    ]  # fmt: skip
    if before:
        entry = Entry(before[0].key, True, before[0].mark)
        draft.put("framework", "megatron_eager", entry)
        draft.findings.pop("stack.overlap_gradients", None)


def _precision(draft: Draft, near: Mark) -> None:
    bf16, fp16 = (draft.findings.get(f"megatron.{name}") for name in ("bf16", "fp16"))
    if bf16 is not None and fp16 is not None and truth(bf16.value) and truth(fp16.value):
        draft.refuse("megatron.fp16", "--fp16 and --bf16 exclude each other", "keep one of them")
        return
    half = next((found for found in (bf16, fp16) if found is not None and truth(found.value)), None)
    eight = draft.findings.get("megatron.fp8") or draft.findings.get("megatron.fp4")
    if eight is not None and str(eight.value).casefold() not in ("none", "false"):
        draft.put("precision", "fp8", Entry(eight.key, "fp8", eight.mark))
        if draft.get("megatron.fp4") is not None:
            draft.put("stack.fp8_recipe", "nvfp4", Entry(eight.key, "nvfp4", eight.mark))
        else:
            draft.default("stack.fp8_recipe", "delayed", "--fp8-recipe", near)
    elif half is not None:
        draft.put("precision", half.key.strip("-"), Entry(half.key, True, half.mark))
    elif "precision" not in draft.findings:
        draft.default("precision", "fp32", "--bf16 and --fp16", near)
    wide, narrow = draft.findings.get("megatron.reduce_fp32"), draft.findings.get("megatron.reduce_bf16")
    if narrow is not None and truth(narrow.value):
        draft.put("gradient_dtype", "bf16", Entry(narrow.key, True, narrow.mark))
    elif wide is not None and truth(wide.value):
        draft.put("gradient_dtype", "fp32", Entry(wide.key, True, wide.mark))
    elif half is not None and half.key == "--bf16":
        draft.default("gradient_dtype", "fp32", "--grad-reduce-in-bf16", near)
    elif half is not None:
        draft.default("gradient_dtype", "fp16", "--accumulate-allreduce-grads-in-fp32", near)


def _sharding(draft: Draft, near: Mark) -> None:
    fsdp, strategy = draft.findings.get("megatron.fsdp"), draft.findings.get("megatron.fsdp_strategy")
    if fsdp is not None and truth(fsdp.value):
        # Without a strategy Megatron-FSDP shards nothing (`no_shard` is the default of arguments.py).
        said = strategy.value if strategy is not None else "ddp"
        draft.findings.pop("layout.sharding", None)
        stated = strategy or fsdp
        draft.put("layout.sharding", said, Entry(stated.key, said, stated.mark))
    draft.default("layout.sharding", "ddp", "--use-distributed-optimizer", near)
    elements = draft.get("megatron.bucket_elements")
    if elements is not None:
        found = draft.findings["megatron.bucket_elements"]
        width = 4 if draft.get("gradient_dtype") == "fp32" else 2
        draft.put("bucket", whole(elements) * width, Entry(found.key, elements, found.mark))


def _model(draft: Draft, near: Mark) -> None:
    padded = draft.findings.get("megatron.padded")
    if padded is not None:
        draft.put("model.vocab", whole(padded.value), Entry(padded.key, padded.value, padded.mark))
        draft.findings.pop("model.vocab_multiple", None)
    else:
        draft.default("model.vocab_multiple", 128, "--make-vocab-size-divisible-by", near)
        vocabulary(draft)
    if not draft.get("model.layers"):
        return
    for name, value, key in (
        ("model.tied", True, "--untie-embeddings-and-output-weights"),
        ("model.bias", True, "--disable-bias-linear"),
        ("model.learned_positions", True, "--position-embedding-type"),
    ):
        draft.default(name, value, key, near)
    if (
        draft.get("model.kv_heads")
        and draft.get("megatron.gqa") is None
        and draft.get("megatron.needs_gqa", True)
    ):
        draft.notes.append("--num-query-groups has no effect without --group-query-attention")
        draft.findings.pop("model.kv_heads")
    hidden = draft.get("model.hidden")
    if draft.get("model.gated") and hidden and not draft.get("model.ffn"):
        draft.default("model.ffn", int(4 * hidden * 2 / 3 / 64) * 64, "--ffn-hidden-size", near)
    if draft.get("model.experts"):
        by_deepspeed = "layout.ep" in draft.findings and "--moe-expert" in draft.findings["layout.ep"].key
        draft.default("model.top_k", 1 if by_deepspeed else 2, "--moe-router-topk", near)
        shared = draft.findings.get("megatron.shared_experts")
        if shared is not None and draft.get("model.moe_ffn"):
            width = whole(shared.value) * draft.get("model.moe_ffn")
            draft.put("model.shared_ffn", width, Entry(shared.key, shared.value, shared.mark))
        if not draft.get("model.first_dense"):
            moe_layers(draft)


def vocabulary(draft: Draft) -> None:
    """Words of a tokenizer whose type or model says so."""
    if draft.get("model.vocab"):
        return
    kind, model = draft.findings.get("megatron.tokenizer_type"), draft.findings.get("megatron.tokenizer")
    known = TOKENIZERS.get(str(kind.value).casefold()) if kind is not None else None
    if known is not None and kind is not None:
        draft.put("model.vocab", known, Entry(kind.key, kind.value, kind.mark))
        return
    named = in_zoo(str(model.value)) if model is not None else None
    if named is not None and model is not None:
        from perfmodel.specs.catalog import Catalog

        vocab = Catalog.default().get("workloads", named).vocab
        if vocab:
            draft.put("model.vocab", int(vocab), Entry(model.key, model.value, model.mark))
            return
    if draft.get("model.layers"):
        draft.questions.append(
            "how many words has the vocabulary? The tokenizer does not say: give --vocab-size, or -w with the model"
        )


def moe_layers(draft: Draft) -> None:
    """`--moe-layer-freq`: every n-th layer, or a list such as ([0]*1+[1]*26)."""
    said = draft.findings.get("megatron.moe_layers")
    layers = draft.get("model.layers", 0)
    if said is None:
        return
    if isinstance(said.value, list):
        flags = [str(one) for one in said.value]
        draft.put("model.moe_layers", flags.count("1"), Entry(said.key, "", said.mark))
        return
    text = re.sub(r"[\s'\"]", "", str(said.value))
    if text.isdigit() and int(text) > 0:
        draft.put("model.moe_layers", -(-layers // int(text)), Entry(said.key, text, said.mark))
        return
    pieces = re.findall(r"\[([01](?:,[01])*)\](?:\*(\d{1,4}))?", text)
    rest = re.sub(r"\[([01](?:,[01])*)\](?:\*(\d{1,4}))?", "", text)
    if not pieces or rest.strip("()+"):
        draft.problems.append(said.mark.problem("F003", f"{said.key}: cannot read {text[:60]!r}"))
        return
    flags = [one for ones, times in pieces for one in ones.split(",") * int(times or 1)]
    draft.put("model.moe_layers", flags.count("1"), Entry(said.key, text, said.mark))
    if len(flags) != layers:
        draft.problems.append(
            said.mark.problem("F010", f"{said.key} is for {len(flags)} layers, the model has {layers}")
        )


def _pipeline(draft: Draft) -> None:
    each = draft.findings.get("megatron.layers_per_virtual")
    layers, pp = draft.get("model.layers"), draft.get("layout.pp", 1)
    if each is None or str(each.value) == "None":
        return
    per = whole(each.value)
    if not layers:
        draft.questions.append(
            f"how many virtual stages are {per} layers each? The number of layers is not known"
        )
        return
    if pp < 2:
        draft.problems.append(
            each.mark.problem("F010", f"{each.key} needs a pipeline: its size is {pp}", "leave it out")
        )
    elif layers % (pp * per):
        draft.problems.append(
            each.mark.problem(
                "F010", f"{per} layers per virtual stage do not divide the {layers / pp:g} layers of a stage"
            )
        )
    else:
        draft.put("layout.vpp", layers // (pp * per), Entry(each.key, per, each.mark))


def _recompute(draft: Draft, near: Mark) -> None:
    draft.default("layout.recompute", "none", "--recompute-granularity", near)
    recompute_share(draft)


def recompute_share(draft: Draft) -> None:
    """The share of layers that `block` recomputes, and what arguments.py says of the switches together."""
    method, count = draft.findings.get("megatron.recompute_method"), draft.findings.get("recompute.layers")
    layers = draft.get("model.layers")
    if (
        draft.get("layout.recompute") == "full"
        and method is not None
        and str(method.value) == "block"
        and count
        and layers
    ):
        chunks = draft.get("layout.pp", 1) * max(draft.get("layout.vpp", 1), 1)
        share = min(count.value * chunks / layers, 1.0)
        word: Any = "full" if share >= 1.0 else "none" if share <= 0.0 else round(share, 6)
        draft.findings.pop("layout.recompute")
        draft.put("layout.recompute", word, Entry(count.key, count.value, count.mark))
    if (
        draft.get("layout.recompute") == "full"
        and method is None
        and draft.findings["layout.recompute"].key == "--recompute-granularity"
    ):
        draft.refuse("layout.recompute", "full recomputation needs --recompute-method uniform or block")
    if draft.get("layout.recompute") == "selective" and method is not None:
        draft.refuse(
            "megatron.recompute_method", "--recompute-method has no meaning with selective recomputation"
        )


def rules(draft: Draft) -> None:
    """What arguments.py asserts."""
    tp, pp, vpp = (draft.get(f"layout.{name}", 1) or 1 for name in ("tp", "pp", "vpp"))
    layers, heads, kv = (draft.get(f"model.{name}") for name in ("layers", "heads", "kv_heads"))
    hidden, experts, ep = (
        draft.get("model.hidden"),
        draft.get("model.experts"),
        draft.get("layout.ep", 1) or 1,
    )
    if (
        hidden
        and heads
        and not draft.get("model.head_dim")
        and not draft.get("megatron.mla")
        and hidden % heads
    ):
        draft.refuse("model.heads", f"{heads} heads do not divide the hidden size {hidden}")
    if heads and heads % tp:
        draft.refuse("layout.tp", f"tensor parallel size {tp} does not divide the {heads} attention heads")
    if kv and kv % tp and tp % kv:
        draft.refuse("layout.tp", f"tensor parallel size {tp} does not divide the {kv} query groups")
    if layers and layers % (pp * vpp) and not draft.get("megatron.uneven"):
        draft.refuse("layout.pp", f"{pp * vpp} pipeline stages do not divide the {layers} layers")
    if experts and experts % ep:
        draft.refuse("layout.ep", f"expert parallel size {ep} does not divide the {experts} experts")
    if ep > 1 and not experts and draft.get("model.layers"):
        draft.refuse("layout.ep", "--expert-model-parallel-size needs --num-experts")
    if ep > 1 and draft.get("rule.megatron_flags", True):
        draft.default("layout.etp", tp, "--expert-tensor-parallel-size", draft.mark("layout.ep"))
    sequence = draft.get("layout.sequence_parallel", False)
    if ep > 1 and tp > 1 and not sequence:
        draft.refuse("layout.ep", "expert with tensor parallelism needs --sequence-parallel in training")
    if sequence and tp == 1:
        draft.notes.append("--sequence-parallel has no effect: the tensor parallel size is 1")
    if tp > 1 and draft.get("rule.megatron_flags", True):
        draft.default("layout.sequence_parallel", False, "--sequence-parallel", draft.mark("layout.tp"))
    if draft.get("stack.overlap_tensor") and not sequence:
        draft.refuse("stack.overlap_tensor", "--tp-comm-overlap needs --sequence-parallel")
    if draft.get("stack.overlap_gather") and draft.get("rule.megatron_flags", True):
        if draft.get("layout.sharding") == "ddp":
            draft.refuse("stack.overlap_gather", "--overlap-param-gather needs --use-distributed-optimizer")
        elif not draft.get("stack.overlap_gradients"):
            draft.refuse("stack.overlap_gather", "--overlap-param-gather needs --overlap-grad-reduce")
    seq_len, cp = draft.get("seq_len"), draft.get("layout.cp", 1) or 1
    if seq_len and cp > 1 and seq_len % (2 * cp):
        draft.refuse(
            "layout.cp", f"the sequence of {seq_len} must divide by twice the context parallel size, {2 * cp}"
        )
    if vpp > 1 and pp == 1:
        draft.refuse("layout.vpp", "virtual stages need a pipeline: its size is 1")
