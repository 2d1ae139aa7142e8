"""Framework files become jobs: lines kept, nothing run, illegal layouts refused, questions for what is missing."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfmodel.cli.main import main
from perfmodel.errors import SpecError
from perfmodel.frameworks.reader import Reading, read_texts
from perfmodel.specs.jobs import load_job

SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=8
#SBATCH --gres=gpu:8
TP=4
MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --num-attention-heads 32 # heads
    --seq-length 4096 --max-position-embeddings 4096
    --vocab-size 50257
)
if [ "$USE_FP8" = "1" ]; then
    MODEL_ARGS+=(--fp8-format hybrid)
fi
torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES pretrain_gpt.py \\
    ${MODEL_ARGS[@]} --tensor-model-parallel-size $TP --pipeline-model-parallel-size 2 \\
    --micro-batch-size 1 --global-batch-size 256 --bf16 --use-distributed-optimizer \\
    --overlap-grad-reduce --sequence-parallel --lr 1e-4 --unheard-of 3 $(touch /tmp/never)
"""


def read(text: str, name: str = "train.sh", **given: Any) -> Reading:
    return read_texts([(text, name)], given)


def job(text: str, name: str = "train.sh", **given: Any) -> dict[str, Any]:
    return read(text, name, **given).assembled.plain()


def test_a_launch_script_with_its_lines() -> None:
    reading = read(SCRIPT)
    found = reading.assembled.plain()
    assert reading.frameworks == ("megatron-lm",)
    assert found["k"] == 64
    assert found["layout"] == {
        "tp": 4,
        "pp": 2,
        "vpp": 1,
        "micro_batch": 1,
        "sharding": "zero1",
        "recompute": "none",
        "sequence_parallel": True,
    }
    assert (found["precision"], found["gradient_dtype"], found["global_batch"]) == ("bf16", "fp32", 256)
    assert found["workload"]["vocab"] == 50688  # 50257 up to a multiple of 128 * tp
    assert found["stack"]["overlap_gradients"] is True
    origins = reading.assembled.origins
    assert (origins["layout.pp"].place, origins["layout.pp"].key) == (
        "train.sh:16",
        "--pipeline-model-parallel-size",
    )
    assert origins["precision"].place == "train.sh:17"
    keys = [entry.key for entry in reading.draft.not_understood]
    assert "--unheard-of" in keys
    assert "--fp8-format" in keys  # under a condition that nobody knows
    assert any("condition" in question for question in reading.draft.questions)
    assert any("which cluster" in question for question in reading.draft.questions)


@pytest.mark.parametrize(
    ("change", "line", "wrong"),
    [
        (("TP=4", "TP=3"), 16, "does not divide the 32 attention heads"),
        (("--global-batch-size 256", "--global-batch-size 255"), 17, "does not divide by 8 replicas"),
        (("--bf16", "--bf16 --fp16"), 17, "exclude each other"),
        (("--pipeline-model-parallel-size 2", "--pipeline-model-parallel-size 5"), 16, "do not divide the 32 layers"),
        (("--overlap-grad-reduce", "--overlap-param-gather"), 18, "needs --overlap-grad-reduce"),
        (("--micro-batch-size 1", "--micro-batch-size many"), 17, "a whole number is expected"),
        (("--micro-batch-size 1", "--micro-batch-size -1"), 17, "negative"),
        (("--sequence-parallel", "--tp-comm-overlap"), 18, "needs --sequence-parallel"),
    ],
)  # fmt: skip
def test_what_the_framework_refuses_is_refused_at_its_line(
    change: tuple[str, str], line: int, wrong: str
) -> None:
    with pytest.raises(SpecError) as error:
        read(SCRIPT.replace(*change))
    assert any(item.line == line and wrong in item.message for item in error.value.problems), str(error.value)


def test_the_loader_takes_the_file_and_refuses_at_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT, encoding="utf-8")
    found = load_job(path, overrides={"cluster": "dgx-h100"})
    assert found.k == (64,)
    assert "read from" in found.notes[0]
    with pytest.raises(SpecError, match="which cluster"):
        load_job(path)


def test_the_job_that_was_written_is_the_job_that_was_read(tmp_path: Path, capsys: Any) -> None:
    path, written = tmp_path / "train.sh", tmp_path / "job.yaml"
    path.write_text(SCRIPT, encoding="utf-8")
    assert main(["import", str(path), "-c", "dgx-h100", "-o", str(written)]) == 0
    again, first = load_job(written), load_job(path, overrides={"cluster": "dgx-h100"})
    skip = {"notes", "name"}
    assert again.model_dump(exclude=skip) == first.model_dump(exclude=skip)
    assert "train.sh:17 --bf16" in written.read_text(encoding="utf-8")


def test_the_verb_as_a_command_and_from_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT, encoding="utf-8")
    run = [sys.executable, "-m", "perfmodel", "import"]
    made = subprocess.run(
        [*run, "-", "-c", "dgx-h100", "--format", "json"], input=SCRIPT, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (made.returncode, made.stderr) == (0, "")
    found = json.loads(made.stdout)
    assert found["schema"] == "perfmodel/import/1"
    assert found["result"]["complete"] is True
    assert {item["field"] for item in found["result"]["findings"]} >= {"layout.tp", "batch.global", "seq_len"}
    nothing = tmp_path / "notes.txt"
    nothing.write_text("a: 1\n", encoding="utf-8")
    made = subprocess.run([*run, str(nothing)], capture_output=True, text=True, check=False)
    assert made.returncode == 2
    assert "error[F004]" in made.stderr
    assert made.stdout == ""


def test_several_files_of_one_run(tmp_path: Path) -> None:
    arguments = "model_name_or_path: meta-llama/Llama-3.1-8B\nper_device_train_batch_size: 2\nbf16: true\nmax_seq_length: 4096\n"
    deepspeed = (
        '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3, "overlap_comm": true}}'
    )
    launch = "#SBATCH --nodes 2\n#SBATCH --gpus-per-node=h100:8\nsrun torchrun --nproc_per_node 8 train.py\n"
    reading = read_texts([(arguments, "args.yaml"), (deepspeed, "ds.json"), (launch, "run.sh")])
    found = reading.assembled.plain()
    assert (found["workload"], found["k"], found["global_batch"]) == ("llama3-8b", 16, 32)
    assert found["layout"]["sharding"] == "zero3"
    assert reading.frameworks == ("transformers", "deepspeed")


def test_nothing_is_executed(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    script = f'X=$(touch {trap})\nsource {trap}.sh\n`touch {trap}`\neval "touch {trap}"\n' + SCRIPT
    read(script)
    assert not trap.exists()


@pytest.mark.parametrize(
    "text",
    [
        "A=x\n" + "".join("A=$A$A\n" for _ in range(60)) + "torchrun pretrain_gpt.py --num-layers $A --hidden-size 4\n",
        "a: &a [1,2]\n" + "".join(f"x{i}: &x{i} [*{'a' if i == 0 else f'x{i - 1}'}, *{'a' if i == 0 else f'x{i - 1}'}]\n" for i in range(40)),
        "a: &a {b: *a}\n",
        "base_model: !!python/object/apply:os.system ['true']\nsequence_len: 4\n",
        "[" * 100_000,
        "{" * 5000,
        "[training]\nseq_len = " + "[" * 5000,
        "A=(" * 2000,
        "$((" * 2000,
        '"' * 5001,
        "if [ 1 ]; then\n" * 500,
    ],
)  # fmt: skip
def test_hostile_text_is_refused_in_bounds(text: str) -> None:
    with contextlib.suppress(SpecError):
        read(text, "x")


@pytest.mark.parametrize(
    ("script", "wrong"),
    [
        # Megatron-LM examples/code_parrot/pretrain_parrot_torchrun_seq_parallel.sh: four ranks' degrees on two GPUs
        (
            'GPT_ARGS="--num-layers 10\n--hidden-size 4096\n--num-attention-heads 32\n--seq-length 1024\n--micro-batch-size 2\n'
            '--global-batch-size 4\n--fp16\n"\ntorchrun --nproc_per_node 2 --nnodes 1 pretrain_gpt.py --vocab-size 32768 '
            "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel $GPT_ARGS",
            "tp * pp = 4 does not divide the 2 accelerators",
        ),
        # Megatron-LM examples/bert/train_bert_340m_distributed.sh: 16 stages of 24 layers on one node
        (
            "torchrun --nproc_per_node 8 --nnodes 1 pretrain_bert.py --num-layers 24 --hidden-size 1024 --fp16 "
            "--num-attention-heads 16 --seq-length 512 --micro-batch-size 4 --global-batch-size 32 "
            "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 16",
            "16 pipeline stages do not divide the 24 layers",
        ),
    ],
)  # fmt: skip
def test_public_scripts_that_cannot_run_are_refused(script: str, wrong: str) -> None:
    with pytest.raises(SpecError) as error:
        read(script)
    assert any(wrong in item.message for item in error.value.problems), str(error.value)


def test_a_setting_that_may_matter_is_asked_about() -> None:
    reading = read(SCRIPT.replace("--unheard-of 3", "--expert-width-per-head 3"))
    assert any("--expert-width-per-head" in question for question in reading.draft.questions)
