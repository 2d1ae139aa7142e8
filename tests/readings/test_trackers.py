"""What W&B, TensorBoard and MLflow keep of a run, written here byte by byte, then read as step times."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfmodel.cli.main import main
from perfmodel.errors import SpecError
from perfmodel.readings.detect import detect
from perfmodel.readings.runs import read_steps, timings

STEPS = range(1, 21)


def time_of(step: int) -> float:
    return 2.0 + 0.01 * (step % 3) if step > 1 else 9.0


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: bytes | int | float, *, single: bool = False) -> bytes:
    if isinstance(value, float):
        kind, body = (5, struct.pack("<f", value)) if single else (1, struct.pack("<d", value))
        return varint(number << 3 | kind) + body
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


# -- TensorBoard -------------------------------------------------------------------------------------------------------


def tf_record(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + b"crc0" + data + b"crc1"


def events(tag: str = "iteration-time", *, tensors: bool = False, scale: float = 1.0) -> bytes:
    out = tf_record(field(1, 1e9) + field(3, b"brain.Event:2"))
    for step in STEPS:
        number: float = time_of(step) * scale
        if tensors:
            tensor = field(1, 1) + field(2, b"") + field(4, struct.pack("<f", number))
            value = field(1, tag.encode()) + field(8, tensor)
        else:
            value = field(1, tag.encode()) + field(2, number, single=True)
        batch = field(1, b"batch-size") + field(2, 128.0, single=True)
        picture = field(1, b"image") + field(4, b"x" * 400)
        summary = b"".join(field(1, one) for one in (value, batch, picture))
        out += tf_record(field(1, 1e9 + 3.0 * step) + field(2, step) + field(5, summary))
    return out


@pytest.mark.parametrize("tensors", [False, True])
def test_scalars_of_an_event_file(tmp_path: Path, tensors: bool) -> None:
    folder = tmp_path / "run_k64"
    folder.mkdir()
    path = folder / "events.out.tfevents.1.host"
    path.write_bytes(events(tensors=tensors))
    assert detect(path) == "tensorboard"
    log = read_steps(path)
    assert (log.k, log.global_batch, log.warmup) == (64, 128.0, 1)
    np.testing.assert_allclose(log.time_s, [time_of(step) for step in STEPS][1:], rtol=1e-6)
    assert log.used + log.ignored + log.rejected_count == log.lines
    assert b"\n64," in timings(path)


def test_without_a_metric_of_time_the_clock_is_read(tmp_path: Path) -> None:
    path = tmp_path / "events_k8.tfevents"
    path.write_bytes(events("loss"))
    log = read_steps(path)
    np.testing.assert_allclose(log.time_s, 3.0)
    assert "differenced" in log.notes[0]


def test_rates_and_milliseconds_are_turned(tmp_path: Path) -> None:
    for tag, expected in (("perf/step_time_ms", 2e-3), ("train/steps_per_second", 0.5)):
        path = tmp_path / "e_k8"
        path.write_bytes(events(tag))
        assert read_steps(path).time_s.max() == pytest.approx(expected, rel=0.02)
    path.write_bytes(events("eval/step_time"))  # of an evaluation: the clock is better
    np.testing.assert_allclose(read_steps(path).time_s, 3.0)


# -- W&B ---------------------------------------------------------------------------------------------------------------


def item(key: str, value: Any, *, nested: bool = False) -> bytes:
    names = b"".join(field(2, part.encode()) for part in key.split("/")) if nested else field(1, key.encode())
    return field(1, names + field(16, json.dumps(value).encode()))


def offline() -> bytes:
    """An offline run whose records cross the blocks of the log."""
    config = item("world_size", 64) + item("train", {"global_batch_size": 256})
    records = [field(17, field(4, config))]
    for step in STEPS:
        row = item("train/global_step", step) + item("step_time", time_of(step), nested=step % 2 == 0)
        row += item("_timestamp", 1e9 + 5.0 * step) + item("blob", "x" * 4000)
        records.append(field(2, row + field(2, field(1, 10 * step))))
    out = bytearray(b":W&B" + bytes([0xE1, 0xBE, 0]))
    for data in records:
        first, left = True, data
        while first or left:
            space = 32768 - len(out) % 32768
            if space < 7:
                out += bytes(space)
                continue
            piece, left = left[: space - 7], left[space - 7 :]
            kind = 1 if first and not left else 2 if first else 3 if left else 4
            out += b"crc_" + struct.pack("<HB", len(piece), kind) + piece
            first = False
    return bytes(out)


def test_an_offline_run(tmp_path: Path) -> None:
    path = tmp_path / "run-abc.wandb"
    data = offline()
    assert len(data) > 2 * 32768
    path.write_bytes(data)
    assert detect(path) == "wandb"
    log = read_steps(path)
    assert (log.k, log.global_batch) == (64, 256.0)
    np.testing.assert_allclose(log.time_s, [time_of(step) for step in STEPS][1:])
    path.write_bytes(data[: len(data) // 2])  # a run that was killed
    cut = read_steps(path)
    assert 3 < cut.time_s.size < log.time_s.size
    assert any("inside a record" in note for note in cut.notes)


def rows() -> list[dict[str, Any]]:
    return [
        {
            "_step": 3 * step,
            "_timestamp": 1e9 + 4.0 * step,
            "train/global_step": step,
            "loss": 5.0,
            "time/step_time": time_of(step),
        }
        for step in STEPS
    ]


@pytest.mark.parametrize("form", ["lines", "list", "columns", "history.csv", "chart.csv"])
def test_exports(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"run_k16_{form}"
    if form == "lines":
        text = "\n".join(json.dumps(row) for row in rows())
    elif form == "list":
        text = json.dumps(rows(), indent=1)
    elif form == "columns":
        text = json.dumps({key: {str(i): row[key] for i, row in enumerate(rows())} for key in rows()[0]})
    elif form == "history.csv":
        text = "\n".join(
            [",".join(rows()[0]), *(",".join(str(cell) for cell in row.values()) for row in rows())]
        )
    else:
        name = "llama-run - time/step_time"
        text = f'"trainer/global_step","{name}","{name}__MIN","{name}__MAX"\n'
        text += "\n".join(f'"{step}","{time_of(step)}","1","99"' for step in STEPS)
    path.write_text(text + "\n", encoding="utf-8")
    assert detect(path) == "wandb"
    log = read_steps(path)
    assert log.k == 16
    np.testing.assert_allclose(log.time_s, [time_of(step) for step in STEPS][1:])
    assert b"\n16," in timings(path)


def test_a_chart_of_several_runs_is_no_run(tmp_path: Path) -> None:
    path = tmp_path / "chart.csv"
    path.write_text('"Step","a - step_time","b - step_time"\n1,2,3\n', encoding="utf-8")
    with pytest.raises(SpecError, match="2 runs: a, b"):
        read_steps(path)


# -- MLflow ------------------------------------------------------------------------------------------------------------


def test_a_run_of_mlflow_and_one_of_its_files(tmp_path: Path) -> None:
    run = tmp_path / "mlruns" / "0" / "f00d"
    for name in ("metrics/train", "params"):
        (run / name).mkdir(parents=True)
    (run / "meta.yaml").write_text("run_id: f00d\n")
    (run / "params" / "world_size").write_text("32")
    metric = run / "metrics" / "train" / "step_time"
    metric.write_text("".join(f"{1700000000000 + 2500 * step} {time_of(step)} {step}\n" for step in STEPS))
    (run / "metrics" / "loss").write_text("1700000000000 nan 1\nnot a metric\n")
    assert detect(run) == detect(metric) == "mlflow"
    log = read_steps(run)
    assert (log.k, log.rejected_count) == (32, 2)
    np.testing.assert_allclose(log.time_s, [time_of(step) for step in STEPS][1:])
    assert read_steps(metric).time_s.size == log.time_s.size
    assert timings(run).startswith(b"k,time_s")
    assert b"\n32," in timings(tmp_path / "mlruns")


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [events, offline], ids=["tensorboard", "wandb"])
def test_damage_is_survived(tmp_path: Path, make: Any) -> None:
    rng = random.Random(11)
    data = make()
    path = tmp_path / "run_k8.bin"
    for _ in range(60):
        broken = bytearray(data[: rng.randrange(80, len(data))])
        for _ in range(rng.randrange(6)):
            broken[rng.randrange(60, len(broken))] = rng.randrange(256)
        path.write_bytes(bytes(broken))
        log = read_steps(path)
        assert np.all(log.time_s > 0.0)
        assert log.used + log.ignored + log.rejected_count == log.lines


def test_a_record_that_claims_to_be_endless_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events_k8"
    path.write_bytes(events() + struct.pack("<Q", 1 << 62) + b"crc0" + b"x" * 5000)
    log = read_steps(path)
    assert log.time_s.size == len(STEPS) - 1
    assert log.rejected[-1].reason == "the last record is cut off"


def test_study_and_calibrate_take_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for k in (8, 16):
        text = "\n".join(
            ["_step,_timestamp,step_time", *(f"{s},{1e9 + s},{16.0 / k + 0.01 * (s % 3)}" for s in STEPS)]
        )
        (tmp_path / f"run_k{k}.csv").write_text(text + "\n", encoding="utf-8")
    paths = [str(tmp_path / f"run_k{k}.csv") for k in (8, 16)]
    assert main(["study", *paths, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["result"]
    assert found["k"] == [8, 16]
    assert found["mean_s"] == pytest.approx([2.01, 1.01], rel=0.01)
    event = tmp_path / "run_k8" / "events.out.tfevents.1"
    event.parent.mkdir()
    event.write_bytes(events(scale=6.0))
    words = ["-w", "llama3-8b", "-c", "dgx-h100", "--global-batch", "128", "--timings", str(event)]
    assert main(["calibrate", *words, "--format", "json"]) == 0
    points = json.loads(capsys.readouterr().out)["result"]["points"]
    assert [point["k"] for point in points] == [8]
