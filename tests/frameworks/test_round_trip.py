"""Random layouts written as configurations and read back; configurations with random damage."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.cli.exporting import ExportFormat, export_prediction, exported, job_of_framework
from perfmodel.errors import SpecError
from perfmodel.frameworks.draft import UNKNOWN
from perfmodel.frameworks.reader import read_texts
from perfmodel.specs.job import Job
from perfmodel.specs.jobs import load_job
from perfmodel.specs.layout import Layout
from perfmodel.specs.loader import read_file
from perfmodel.training.curve import curve
from perfmodel.training.setup import setup_of

CASES = Path(__file__).parent / "cases"
SHARDINGS = {
    "megatron": ("zero1", "ddp"),
    "bridge": ("zero1", "ddp"),
    "torchtitan": ("fsdp", "hsdp", "zero2", "ddp"),
    "deepspeed": ("zero1", "zero2", "zero3"),
    "accelerate": ("fsdp", "zero2"),
    "maxtext": ("fsdp", "ddp"),
    "slurm": ("zero1", "fsdp"),
}
PIPELINES = {"megatron", "bridge", "slurm"}


def drawn(rng: random.Random, name: str) -> dict[str, Any]:
    """A job with a layout that the framework may be able to express."""
    parallel = name not in ("deepspeed", "accelerate")
    tp = rng.choice((1, 2, 4, 8)) if parallel else 1
    pp = rng.choice((1, 2, 4)) if name in PIPELINES else 1
    sharding = rng.choice(SHARDINGS[name])
    if name == "slurm" and pp > 1:
        sharding = "zero1"
    layout: dict[str, Any] = {"tp": tp, "pp": pp, "sharding": sharding, "micro_batch": rng.choice((1, 2))}
    if rng.random() < 0.3 and parallel and name != "maxtext":
        layout["cp"] = 2
    if pp > 1:
        layout["vpp"] = rng.choice((1, 2))
    if tp > 1:
        layout["sequence_parallel"] = name in ("torchtitan", "maxtext") or rng.random() < 0.7
    if sharding == "hsdp":
        layout["shard_group"] = 2
    recompute = ("none", "full", "selective") if name in ("megatron", "bridge") else ("none", "full")
    layout["recompute"] = rng.choice(recompute)
    workload = rng.choice(("llama3-8b", "qwen3-8b", "llama3.2-3b", "llama2-7b"))
    return {
        "workload": workload, "cluster": "dgx-h100", "k": rng.choice((16, 32, 64)), "global_batch": rng.choice((128, 256)),
        "seq_len": rng.choice((2048, 4096)), "precision": "bf16", "layout": layout,
    }  # fmt: skip


def facts(job: Job) -> dict[str, Any]:
    """What decides a prediction, with the layout as it is run."""
    found = curve(setup_of(job), shipped_beliefs(), draws=0)
    stack = job.stack
    usual = "interleaved" if (found.names[0]["vpp"] or 1) > 1 else "1f1b"
    return {
        "k": job.k, "global_batch": job.global_batch, "seq_len": job.seq_len, "precision": job.precision,
        "layout": found.names[0], "framework": job.framework, "gradient_dtype": job.gradient_dtype,
        "compiled": bool(stack and stack.compiled), "overlap": None if stack is None else stack.overlap_gradients is not False,
        "schedule": (job.layout.schedule or usual) if isinstance(job.layout, Layout) else None,
        "layers": job.workload.layers, "hidden": job.workload.hidden, "heads": job.workload.heads, "ffn": job.workload.ffn,
    }  # fmt: skip


def written(keys: dict[str, Any], name: str) -> tuple[str, Job]:
    """The export, and the job that it was predicted from."""
    export = ExportFormat(name)

    def load(changed: Any) -> Job:
        return load_job(keys, overrides=dict(changed))

    text = export_prediction(export, load, None, True)
    whose = job_of_framework(export, load)
    stated: list[Job] = []

    def load_and_keep(changed: Any) -> Job:
        stated.append(load(whose | dict(changed)))
        return stated[-1]

    first = load(whose)
    chosen = curve(setup_of(first), shipped_beliefs(), draws=0).names[0]
    exported(export, load_and_keep, chosen, first.k[0], None)
    return text, stated[-1]


@pytest.mark.parametrize("name", SHARDINGS)
def test_what_is_read_back_is_the_job_that_was_written(name: str, tmp_path: Path) -> None:
    rng = random.Random(f"round trip {name}")
    back = refused = 0
    path = tmp_path / "train.sh"
    while back < 6 and refused < 40:
        keys = drawn(rng, name)
        try:
            text, stated = written(keys, name)
        except SpecError:  # it does not fit or divide, or the framework has no word for it
            refused += 1
            continue
        path.write_text(text, encoding="utf-8")
        again = load_job(path, overrides={"cluster": "dgx-h100"})
        assert facts(again) == facts(stated), keys
        back += 1
    assert back == 6, refused


# -- damage ------------------------------------------------------------------------------------------------------------

TRICKS = (
    "$(touch /tmp/x)", "`id`", "${IFS}", "&a", "*a", "!!python/object/apply:os.system [id]", "<<: *a", "\x00", "\ufeff", "\u2028",
    "9" * 400, "-1", "1e999", "nan", "[[[[", "}}}}", "'", '"', "\\", "$((1/0))", "${X:-${X}}", "- - - -", "|", ">", "%YAML 9", "---",
    "=", "--", "--num-layers", "null", "{}", "[]", UNKNOWN,
)  # fmt: skip


def texts() -> list[dict[str, str]]:
    found = []
    for path in sorted(CASES.glob("*.yaml")):
        for case in read_file(path).plain():
            found.append(dict(case.get("files") or {f"{case['name']}.txt": case["text"]}))
    return found


def damaged(rng: random.Random, text: str) -> str:
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(text) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            text = text[:at] + rng.choice(TRICKS) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + rng.randrange(1, 40) :]
        elif kind == 2:
            lines = text.split("\n")
            rng.shuffle(lines)
            text = "\n".join(lines)
        elif kind == 3:
            text = text[:at] + text[at : at + 200] * 3 + text[at:]
        else:
            text = text[:at] + chr(rng.randrange(1, 0x2FF)) + text[at + 1 :]
    return text


def test_damage_gives_a_job_or_an_error_with_a_line() -> None:
    rng = random.Random(20)
    outcomes = {True: 0, False: 0}
    for files in texts():
        for _ in range(4):
            broken = [(damaged(rng, text), name) for name, text in files.items()]
            try:
                read_texts(broken, {})
                outcomes[True] += 1
            except SpecError:
                outcomes[False] += 1
    assert min(outcomes.values()) > 20


MUCH = {
    "repeated keys": "trainer:\n" + "  devices: 8\n" * 5000,
    "many items": "base_model: x\nsequence_len: 1\ndatasets: [" + "{path: a}," * 4000 + "]\n",
    "far too much": "base_model: x\n" + "a: 1\n" * 200_000,
    "doubling": "A=1\n" + "A=${A}${A}\n" * 200 + "torchrun x.py --num-layers $A --hidden-size 4\n",
    "many flags": "torchrun pretrain_gpt.py " + "--num-layers 4 " * 12_000,
    "aliases": "a: &a [x, x, x, x]\n"
    + "".join(f"b{i}: &b{i} [{', '.join([f'*b{i - 1}' if i else '*a'] * 8)}]\n" for i in range(30)),
}
BOUNDED = """
import json, resource, sys
from perfmodel.errors import SpecError
from perfmodel.frameworks.reader import read_texts
resource.setrlimit(resource.RLIMIT_AS, (1_200_000_000, 1_200_000_000))
for name, text in json.load(sys.stdin).items():
    try:
        read_texts([(text, name)], {})
    except SpecError:
        pass
    print(name)
"""


def test_much_text_takes_little_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED],
        input=json.dumps(MUCH),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.splitlines() == list(MUCH)
