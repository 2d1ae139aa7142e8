"""`--export`: what is written, what is refused, and that the job comes back with the same prediction."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfmodel.cli.main import main
from perfmodel.decide.prediction import predict
from perfmodel.frameworks.export.formats import FORMATS
from perfmodel.specs.jobs import load_job

BASE = ["-w", "llama3-8b", "-c", "dgx-h100", "-k", "32", "--global-batch", "128", "--seq-len", "4096"]
LAYOUTS = {
    "megatron": "tp=2,pp=2,vpp=2,sharding=zero1,micro_batch=1,recompute=selective,sequence_parallel=true",
    "bridge": "tp=2,cp=2,sharding=zero1,micro_batch=1,recompute=none,sequence_parallel=true",
    "torchtitan": "tp=2,sharding=hsdp,shard_group=8,micro_batch=2,recompute=full,sequence_parallel=true",
    "deepspeed": "sharding=zero3,micro_batch=2,recompute=full",
    "accelerate": "sharding=fsdp,micro_batch=2,recompute=full",
    "maxtext": "tp=2,sharding=fsdp,micro_batch=2,recompute=full,sequence_parallel=true",
    "slurm": "tp=2,pp=2,vpp=1,sharding=zero1,micro_batch=1,recompute=none,sequence_parallel=true",
}


def run(*words: str, capsys: Any) -> tuple[int, str, str]:
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("name", FORMATS)
def test_the_job_comes_back_with_the_prediction_that_was_written(
    name: str, tmp_path: Path, capsys: Any
) -> None:
    path = tmp_path / "train.sh"
    command = ["predict", *BASE, "--layout", LAYOUTS[name], "--export", name, "-o", str(path)]
    assert run(*command, capsys=capsys)[0] == 0
    text = path.read_text(encoding="utf-8")
    for word in (
        "Expected step",
        "tokens/s on each accelerator",
        "Expected memory",
        "relies on",
        "Left to you",
    ):
        assert word in text
    job = load_job(path, overrides={"cluster": "dgx-h100"})
    assert job.k == (32,)
    made = predict(job, draws=0).result
    found = float(made["time_s"][0])
    said = next(line for line in text.split("\n") if "Expected step" in line)
    written = float(said.split("Expected step: ")[1].split(" ")[0]) * (1e-3 if " ms " in said else 1.0)
    assert found == pytest.approx(written, rel=0.03)  # Megatron pads the vocabulary


def test_what_a_framework_cannot_express_is_refused_all_at_once(capsys: Any) -> None:
    code, out, err = run(
        "predict", *BASE, "--layout", "tp=2,pp=2,sharding=zero1,recompute=selective,sequence_parallel=true",
        "--export", "accelerate", capsys=capsys,
    )  # fmt: skip
    assert (code, out) == (2, "")
    assert "U040" in err
    for word in ("pp 2", "zero1", "recompute selective", "sequence_parallel"):
        assert word in err


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["-k", "8,16"], "one K"),
        (["--format", "json"], "exclude each other"),
        (["--set", "stack.framework=maxtext"], "of maxtext"),
        (["--set", "framework=xla"], "predicted as xla"),
        (["-w", "resnet50", "--set", "seq_len=null"], "only decoders"),
        (["-k", "1", "-w", "llama3-405b", "--layout", "tp=1"], "not feasible"),
    ],
)
def test_bad_requests_are_refused(words: list[str], wrong: str, capsys: Any) -> None:
    code, out, err = run("predict", *BASE, "--export", "megatron", *words, capsys=capsys)
    assert (code, out) == (2, "")
    assert wrong in err


def test_a_plan_writes_the_best_that_can_be_expressed(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    command = [sys.executable, "-m", "perfmodel", "plan", *BASE, "--export", "maxtext", "-o", str(path)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert made.stdout == ""
    assert "ici_fsdp_parallelism" in path.read_text(encoding="utf-8")
    checked = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_a_slurm_script_asks_for_the_time_that_the_run_may_take(capsys: Any) -> None:
    layout = ["--layout", LAYOUTS["slurm"]]
    code, out, _ = run("predict", *BASE, *layout, "--set", "steps=50000", "--export", "slurm", capsys=capsys)
    assert code == 0
    assert out.startswith("#!/bin/bash\n#SBATCH --job-name=")
    assert "#SBATCH --time=" in out
    assert "#SBATCH --nodes=4" in out
    assert "srun torchrun" in out
    code, out, _ = run("predict", *BASE, *layout, "--export", "slurm", capsys=capsys)
    assert "#SBATCH --time=" not in out
    assert "No --time" in out


def test_a_script_that_writes_its_configuration_is_read_with_it(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(
        "#!/bin/bash\nSTAGE=3\ncat <<EOT > $HOME/ds.json\n"
        '{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,\n'
        ' "bf16": {"enabled": true}, "zero_optimization": {"stage": $STAGE}}\nEOT\n'
        "deepspeed --num_nodes 2 --num_gpus 8 train.py --deepspeed_config ds.json\n",
        encoding="utf-8",
    )
    job = load_job(path, overrides={"cluster": "dgx-h100", "workload": "llama3-8b", "seq_len": 2048})
    assert (job.k, job.global_batch, job.layout.sharding) == ((16,), 128, "zero3")  # type: ignore[union-attr]
