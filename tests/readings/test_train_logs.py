"""Training logs and Slurm accounting, written as the frameworks print them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from perfmodel.errors import SpecError, UsageError
from perfmodel.readings.runs import timings
from perfmodel.readings.sacct import read_sacct
from perfmodel.readings.train_log import BATCHES, detect_preset, read_train_log

START = datetime(2025, 4, 13, 23, 41, 0, tzinfo=UTC)
STEPS = 40


def step_times(seed=0, mean=1.2):
    rng = np.random.default_rng(seed)
    times = mean * np.exp(rng.normal(0.0, 0.01, STEPS))
    times[0] *= 10.0
    return times


def hms(seconds):
    minutes, second = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{second:02d}" if hours else f"{minutes:02d}:{second:02d}"


def megatron(times):
    lines = [
        "using world size: 64, data-parallel size: 8, context-parallel size: 1, tensor-model-parallel size: 8",
        "training ...",
    ]
    for step, time in enumerate(times, 1):
        lines.append(
            f" [2025-04-13 23:41:12] iteration {step:8d}/    1000 | consumed samples: {step * 256:12d} | elapsed time per iteration (ms): {time * 1e3:.1f} | throughput per GPU (TFLOP/s/GPU): 410.2 | learning rate: 1.0E-04 | global batch size:   256 | lm loss: 7.39E+00 |"
        )
    return lines


def torchtitan(times):
    lines = [
        "[rank0]:[titan] 2025-04-13 23:40:01,001 - root - INFO - Building 2-D device mesh with ['dp_shard', 'tp'], [16, 4]",
        "[rank0]:[titan] 2025-04-13 23:40:59,001 - root - INFO - Training starts at step 1, with local batch size 4, global batch size 256, sequence length 8192",
    ]
    now = START
    for step, time in enumerate(times, 1):
        now += timedelta(seconds=float(time))
        stamp = now.strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
        lines.append(
            f"[rank0]:\x1b[0m[titan] {stamp} - root - INFO - \x1b[31mstep: {step:2d}  \x1b[32mloss:  7.1839  \x1b[33mmemory: 52.53GiB(66.33%)  \x1b[34mtps: 11,481  \x1b[36mtflops: 207.87\x1b[39m"
        )
    return lines


def nemo(times):
    lines = [
        "[NeMo I 2025-08-19 14:27:47 megatron_init:314] Rank 0 has data parallel rank: 0",
        "Initializing distributed: world_size: 64",
    ]
    for step, time in enumerate(times):
        lines.append(
            f"Training epoch 0, iteration {step}/99 | lr: 9.8e-08 | global_batch_size: 256 | global_step: {step} | reduced_train_loss: 14.66 | train_step_timing in s: {time:.4g} | consumed_samples: {256 * (step + 1)}"
        )
    return lines


def lightning(times):
    text = "distributed_backend=nccl\nAll distributed processes registered. Starting with 64 processes\n"
    elapsed = 0.0
    for step, time in enumerate(times, 1):
        elapsed += time
        text += f"\rEpoch 0: {step * 100 // len(times):3d}%|####      | {step}/{len(times)} [{hms(elapsed)}<01:48, {step / elapsed:5.2f}it/s, v_num=0, train_loss=2.31]"
    return text.split("\n")


def hf_trainer(times):
    text = "  Num processes: 64\n  Total train batch size (w. parallel, distributed & accumulation) = 256\n"
    elapsed = 0.0
    for step, time in enumerate(times, 1):
        elapsed += time
        rate = step / elapsed
        shown = f"{rate:5.2f}it/s" if rate > 1 else f"{1 / rate:5.2f}s/it"
        text += f"\r {step * 100 // len(times):3d}%|####      | {step}/{len(times)} [{hms(elapsed)}<03:45, {shown}]"
    text += "\n{'loss': 2.51, 'grad_norm': 1.1, 'learning_rate': 5e-05, 'epoch': 0.1}\n{'train_runtime': 60.1, 'train_samples_per_second': 81.1}\n"
    return text.split("\n")


WRITERS = {
    "megatron": megatron,
    "torchtitan": torchtitan,
    "nemo": nemo,
    "lightning": lightning,
    "hf-trainer": hf_trainer,
}


def save(tmp_path, lines, name="train.log"):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n", newline="")
    return path


def adds_up(reading):
    return reading.used + reading.ignored + reading.rejected_count == reading.lines


@pytest.mark.parametrize("preset", list(WRITERS))
def test_presets(tmp_path, preset):
    bar = preset in ("lightning", "hf-trainer")
    times = step_times(mean=6.0 if bar else 1.2)
    path = save(tmp_path, WRITERS[preset](times))
    assert detect_preset(path) == preset
    log = read_train_log(path)
    assert (log.preset, log.k) == (preset, 64)
    if preset != "lightning":
        assert log.global_batch == 256
    assert np.mean(log.time_s) == pytest.approx(np.mean(times[1:]), rel=0.05 if bar else 0.01)
    assert log.warmup >= (0 if bar else 1)
    assert log.rejected_count == 0
    assert adds_up(log)
    assert log.batch_means().size <= max(BATCHES, 2 * BATCHES - 1)


def test_steps_after_warm_up_are_exact_for_megatron(tmp_path):
    times = step_times()
    log = read_train_log(save(tmp_path, megatron(times)), preset="megatron")
    np.testing.assert_allclose(log.time_s, times[1:], atol=6e-5)
    assert log.step.tolist() == list(range(2, STEPS + 1))
    assert "warm-up left out" in log.notes[0]
    means = log.batch_means()
    assert means.size == BATCHES
    assert means.mean() == pytest.approx(times[1:].mean(), rel=1e-3)


def test_nemo_list_of_all_steps(tmp_path):
    text = "[NeMo I 2025-03-04 02:58:29 perf_metrics_utils:56] train_step_timing in s: [11.85, 2.18, 2.18, 2.12, 2.14, 2.14]"
    log = read_train_log(save(tmp_path, [text], "nemo_8gpus.log"))
    assert log.time_s.tolist() == [2.18, 2.18, 2.12, 2.14, 2.14]
    assert log.k == 8


def test_a_restart_is_not_a_step(tmp_path):
    first, second = torchtitan(step_times(1)[:20]), torchtitan(step_times(2)[:20])
    second = [line.replace("2025-04-13", "2025-04-14") for line in second]
    log = read_train_log(save(tmp_path, first + second))
    assert log.time_s.max() < 15.0


def test_own_pattern(tmp_path):
    lines = [
        "starting on 4 workers",
        *(f"batch {n}: {300 + n} ms, acc 0.91" for n in range(10)),
        "batch 11: fast",
    ]
    pattern = r"batch (?P<step>\d+): (?P<time_ms>[\d.]+) ms, acc (?P<quality>[\d.]+)"
    log = read_train_log(save(tmp_path, lines), pattern=pattern, k=4)
    assert log.time_s.tolist() == pytest.approx([(300 + n) * 1e-3 for n in range(1, 10)])
    assert (log.k, log.quality) == (4, 0.91)
    assert [item.line for item in log.rejected] == [1, 12]
    with pytest.raises(UsageError, match="no group captures the time"):
        read_train_log(save(tmp_path, lines), pattern="batch")
    with pytest.raises(UsageError, match="not a regular expression"):
        read_train_log(save(tmp_path, lines), pattern="(")
    with pytest.raises(UsageError, match='did you mean "megatron"'):
        read_train_log(save(tmp_path, lines), preset="megatrn")


def test_lines_that_are_nearly_steps_are_rejected(tmp_path):
    lines = megatron(step_times())
    lines[6] = lines[6].replace("(ms): ", "(ms): -")
    lines[7] = lines[7][: lines[7].index("(ms)") + 6]
    lines[8] = lines[8].replace("(ms): 1", "(ms): 0.0 was 1")
    log = read_train_log(save(tmp_path, lines))
    assert [item.line for item in log.rejected] == [7, 8, 9]
    assert adds_up(log)


@pytest.mark.parametrize("preset", list(WRITERS))
@pytest.mark.parametrize("seed", range(8))
def test_damage_never_crashes(tmp_path, preset, seed):
    rng = random.Random(seed)
    data = bytearray("\n".join(WRITERS[preset](step_times())).encode())
    for _ in range(rng.randrange(1, 100)):
        at = rng.randrange(len(data))
        if rng.random() < 0.6:
            data[at] = rng.choice([rng.randrange(256), ord("9"), ord("-")])
        else:
            del data[at : at + rng.randrange(60)]
    path = tmp_path / "damaged.log"
    path.write_bytes(bytes(data[: rng.randrange(1, len(data))]))
    log = read_train_log(path)
    assert adds_up(log)
    assert np.all(log.time_s > 0)


SACCT = [
    "JobID|JobName|Elapsed|NNodes|AllocTRES|State|ConsumedEnergyRaw",
    "101|train|00:10:00|1|billing=8,cpu=64,gres/gpu:a100=8,gres/gpu=8,mem=500G,node=1|COMPLETED|1200000",
    "101.batch|batch|00:10:00|1|cpu=64,gres/gpu=8|COMPLETED|0",
    "101.0|python|00:09:58|1|cpu=64,gres/gpu=8|COMPLETED|0",
    "102|train|1-02:05:30|2|cpu=128,gres/gpu=16,node=2|COMPLETED|0",
    "103|train|00:05:00|4|cpu=256,gres/gpu=32,node=4|FAILED|0",
    "104|other|00:07:00|4|cpu=256,node=4|COMPLETED|0",
    "105|train|soon|4|cpu=256,gres/gpu=32|COMPLETED|0",
]


def test_sacct_parsable(tmp_path):
    table = read_sacct(save(tmp_path, SACCT))
    assert table.k.tolist() == [8, 16, 4]
    assert table.time_s.tolist() == [600.0, 93930.0, 420.0]
    assert table.energy_j[0] == 1.2e6
    assert np.isnan(table.energy_j[1])
    assert [item.line for item in table.rejected] == [6, 8]
    assert "start-up included" in table.notes[0]
    assert adds_up(table)
    assert read_sacct(save(tmp_path, SACCT), name="train").k.tolist() == [8, 16]


def test_jobs_of_other_names_are_another_curve(tmp_path):
    path = save(tmp_path, SACCT)
    with pytest.raises(SpecError, match="not one curve: train at K = 8, 16; other at K = 4") as told:
        timings(path)
    assert told.value.problems[0].help == '--job-name "train" takes those of one name'
    assert timings(path, job_name="tr*").count(b"\n") == 3
    numbered = [
        line.replace("|train|", f"|train-{i}|") for i, line in enumerate(SACCT) if "other" not in line
    ]
    assert timings(save(tmp_path, numbered)).count(b"\n") == 3  # the names of one sweep hold its K


def test_sacct_in_columns(tmp_path):
    lines = [
        "JobID           JobName    Elapsed   NTasks      State ",
        "------------ ---------- ---------- -------- ---------- ",
        "101               train   00:10:00        8  COMPLETED ",
        "102               train   00:06:00       16  CANCELLED+",
        "103          my train x   00:05:30       16  COMPLETED ",
    ]
    table = read_sacct(save(tmp_path, lines))
    assert table.k.tolist() == [8, 16]
    assert table.time_s.tolist() == [600.0, 330.0]
    assert table.rejected_count == 1
