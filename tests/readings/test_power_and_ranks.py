"""Power logs and per-rank step times, written as the tools print them."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from perfmodel.errors import SpecError
from perfmodel.readings.power import read_power
from perfmodel.readings.rank_times import read_rank_times

START = datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC)


def save(tmp_path, lines, name="log.csv"):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return path


def adds_up(reading):
    return reading.used + reading.ignored + reading.rejected_count == reading.lines


def smi(samples=61, devices=2, *, header=True, units=True):
    """200 W on device 0 and 300 W on device 1 for a minute: 12 kJ and 18 kJ."""
    lines = ["timestamp, index, name, power.draw [W], utilization.gpu [%]"] if header else []
    for second in range(samples):
        stamp = (START + timedelta(seconds=second)).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
        for device in range(devices):
            watts = 200.0 + 100.0 * device
            lines.append(
                f"{stamp}, {device}, NVIDIA A100-SXM4-80GB, {watts:.2f}{' W' if units else ''}, 98{' %' if units else ''}"
            )
    return lines


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("units", [True, False])
def test_nvidia_smi(tmp_path, header, units):
    log = read_power(save(tmp_path, smi(header=header, units=units)))
    assert [device.device for device in log.devices] == ["0", "1"]
    assert log.energy_j() == pytest.approx(30_000.0)
    assert log.mean_w() == pytest.approx(500.0)
    assert log.rejected_count == 0
    assert adds_up(log)


def test_dcgm_tables_and_dmon(tmp_path):
    rows = ["Time,gpu,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_DEV_POWER_USAGE"]
    rows += [f"{1714564800.0 + t},{gpu},97,{250.0 + 50 * gpu}" for t in range(0, 31) for gpu in range(2)]
    assert read_power(save(tmp_path, rows)).energy_j() == pytest.approx(30 * 550.0)
    dmon = [
        "#Entity   POWER",
        "ID        W",
        *(f"GPU {gpu}     {67.0 + gpu}" for _ in range(11) for gpu in range(2)),
    ]
    path = save(tmp_path, dmon, "dmon.txt")
    assert read_power(path, interval_s=2.0).energy_j() == pytest.approx(20 * 67.0 + 20 * 68.0)
    refused = read_power(path)
    assert refused.devices == ()
    assert "interval" in refused.rejected[0].reason


def test_gaps_are_left_out_and_said(tmp_path):
    lines = smi(devices=1)
    late = (START + timedelta(hours=1)).strftime("%Y/%m/%d %H:%M:%S.000")
    lines.append(f"{late}, 0, NVIDIA A100-SXM4-80GB, 200.00 W, 3 %")
    log = read_power(save(tmp_path, lines))
    assert log.energy_j() == pytest.approx(12_000.0)
    assert "3.54e+03 s without samples" in log.notes[0]


def test_bad_samples_are_rejected(tmp_path):
    lines = smi(devices=1)
    lines[5] = lines[5].replace("200.00 W", "[N/A]")
    lines[9] = lines[9][:20]
    lines[12] = lines[12].replace("2024/05/01", "yesterday")
    log = read_power(save(tmp_path, lines))
    assert [(item.line, item.reason) for item in log.rejected] == [
        (6, "power is not a number of watts"),
        (10, "the row has too few columns"),
        (13, "the time cannot be read"),
    ]
    assert log.energy_j() == pytest.approx(12_000.0)


def rank_rows(ranks=8, steps=60, seed=0):
    rng = np.random.default_rng(seed)
    time = 0.4 * np.exp(rng.normal(0.0, 0.03, (steps, ranks)))
    time[:, 5] *= 1.2
    time[0] *= 4.0
    return time


def forms(time):
    steps, ranks = time.shape
    pairs = [(step, rank) for step in range(steps) for rank in range(ranks)]
    return {
        "long": ["rank,step,time_s", *(f"{r},{s},{time[s, r]:.6f}" for s, r in pairs)],
        "milliseconds": ["step,rank,step_time_ms", *(f"{s},{r},{time[s, r] * 1e3:.4f}" for s, r in pairs)],
        "wide": [
            "step," + ",".join(f"rank{r}" for r in range(ranks)),
            *(f"{s}," + ",".join(f"{t:.6f}" for t in row) for s, row in enumerate(time)),
        ],
        "json": [
            json.dumps({"rank": r, "step": s, "time_s": round(time[s, r], 6), "host": "a"}) for s, r in pairs
        ],
        "text": [
            f"[rank{r}]: 2024-05-01 INFO rank {r} step {s} time: {time[s, r] * 1e3:.3f} ms" for s, r in pairs
        ],
        "no steps": ["rank,time_s", *(f"{r},{time[s, r]:.6f}" for s, r in pairs)],
    }


@pytest.mark.parametrize("form", ["long", "milliseconds", "wide", "json", "text", "no steps"])
def test_every_form_gives_the_same_table(tmp_path, form):
    time = rank_rows()
    log = read_rank_times(save(tmp_path, forms(time)[form]))
    assert log.ranks.tolist() == list(range(8))
    assert log.warmup == (0,)
    np.testing.assert_allclose(log.time_s, time[1:], rtol=1e-4)
    assert 0.025 < np.std(log.jitter()) < 0.035
    assert log.rejected_count == 0
    assert adds_up(log)


def test_the_jitter_of_a_log_is_fitted_and_its_tail_checked(tmp_path):
    rng = np.random.default_rng(3)
    time = 0.4 * np.exp(rng.normal(0.0, 0.04, (300, 4)))
    time[:, 2] *= 1.3
    lines = ["rank,step,time_s", *(f"{10 + r},{s},{time[s, r]:.7f}" for s in range(300) for r in range(4))]
    good = read_rank_times(save(tmp_path, lines)).fit()
    assert good.slowest_rank == 12
    assert good.slowest_factor == pytest.approx(1.3, rel=0.02)
    assert good.best.spread == pytest.approx(0.04, rel=0.1)
    assert good.tail_is_trusted

    time[rng.random(time.shape) < 0.01] *= 3.0  # one step in a hundred stalls: no smooth family has that tail
    lines = ["rank,step,time_s", *(f"{r},{s},{time[s, r]:.7f}" for s in range(300) for r in range(4))]
    assert not read_rank_times(save(tmp_path, lines)).fit().tail_is_trusted


def test_too_few_times_for_a_distribution(tmp_path):
    log = read_rank_times(save(tmp_path, ["rank,step,time_s", "0,1,0.5", "0,2,0.6"]))
    with pytest.raises(SpecError, match="2 step times after warm-up are too few"):
        log.fit()


def test_a_step_that_a_rank_gives_twice_is_named_by_its_line(tmp_path):
    rows = ["rank,step,time_s", "0,1,0.5", "1,1,0.6", "0,1,9.0", "0,2,0.5"]
    log = read_rank_times(save(tmp_path, rows))
    assert log.time_s[0].tolist() == [0.5, 0.6]
    assert [(item.line, item.text) for item in log.rejected] == [(4, "0,1,9.0")]
    assert "given before" in log.rejected[0].reason


def test_a_rank_with_one_step_has_no_jitter(tmp_path):
    one_each = read_rank_times(save(tmp_path, ["rank,step,time_s", *(f"{r},1,{1 + r}" for r in range(40))]))
    assert one_each.jitter().size == 0
    with pytest.raises(SpecError, match="0 step times"):
        one_each.fit()
    mixed = read_rank_times(save(tmp_path, ["rank,step,time_s", "0,1,0.9", "0,2,1.1", "1,1,7.0"]))
    assert sorted(mixed.jitter()) == pytest.approx([0.9, 1.1])


def test_missing_ranks_stay_missing(tmp_path):
    log = read_rank_times(save(tmp_path, ["rank,step,time_s", "0,1,0.5", "1,1,0.6", "0,2,0.5"]))
    assert np.isnan(log.time_s[1, 1])
    assert log.jitter().size == 2


@pytest.mark.parametrize("seed", range(40))
def test_damage_never_crashes(tmp_path, seed):
    rng = random.Random(seed)
    lines = rng.choice([*forms(rank_rows(steps=20)).values(), smi(), smi(header=False)])
    data = bytearray("\n".join(lines).encode())
    for _ in range(rng.randrange(1, 80)):
        at = rng.randrange(len(data))
        if rng.random() < 0.5:
            data[at] = rng.randrange(256)
        else:
            del data[at : at + rng.randrange(40)]
    path = tmp_path / "damaged.csv"
    path.write_bytes(bytes(data[: rng.randrange(1, len(data))]))
    for read in (read_rank_times, read_power):
        assert adds_up(read(path))
