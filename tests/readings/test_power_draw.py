"""The draw of a run out of logs that begin before it, end after it, and show other devices too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from perfmodel.errors import SpecError, UsageError
from perfmodel.readings import read_draws
from perfmodel.readings.power import read_power
from perfmodel.readings.power_draw import draw_of, power_argument
from perfmodel.readings.source import Reading

START = datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC)


def log(path: Path, busy: int, watts: float, *, devices: int = 8, rest: int = 10, run: int = 60) -> Path:
    """One sample a second: `rest` seconds at 60 W, the run, rest again; devices beyond `busy` stay at rest."""
    lines = ["timestamp, index, power.draw [W]"]
    for second in range(2 * rest + run):
        stamp = (START + timedelta(seconds=second)).strftime("%Y/%m/%d %H:%M:%S.000")
        for device in range(devices):
            at_work = device < busy and rest <= second < rest + run
            lines.append(f"{stamp}, {device}, {watts if at_work else 60.0:.2f} W")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_rest_before_after_and_beside_is_left_out_and_read_as_idle(tmp_path: Path) -> None:
    found = draw_of(read_power(log(tmp_path / "power.csv", 4, 350.0)))
    assert (found.k, found.devices) == (4, 4)
    assert found.watts == pytest.approx(350.0)
    assert found.idle_watts == pytest.approx(60.0)
    assert found.seconds == pytest.approx(59.0)
    assert "at rest" in found.notes[0]


def test_a_pause_inside_the_run_belongs_to_it(tmp_path: Path) -> None:
    path = log(tmp_path / "power.csv", 1, 400.0, devices=1, rest=0, run=61)
    lines = path.read_text().splitlines()
    lines[21:31] = [line.replace("400.00", "100.00") for line in lines[21:31]]
    path.write_text("\n".join(lines) + "\n")
    found = draw_of(read_power(path))
    assert found.idle_watts is None
    assert found.watts == pytest.approx(350.0)  # 10 of 60 s at 100 W


def test_without_contrast_the_log_is_the_run(tmp_path: Path) -> None:
    found = draw_of(read_power(log(tmp_path / "power.csv", 2, 300.0, devices=2, rest=0)))
    assert (found.k, found.idle_watts, found.notes) == (2, None, ())
    assert found.watts == pytest.approx(300.0)


def test_k_from_the_argument_the_name_or_the_devices(tmp_path: Path) -> None:
    named = log(tmp_path / "power_k16.csv", 8, 300.0)
    found = draw_of(read_power(named))
    assert found.k == 16
    assert "8 of 16 devices were logged" in found.notes[0]
    assert draw_of(read_power(named), 2).notes[0].startswith("more than 2 devices")
    assert power_argument(f"4={named}") == (4, named)
    odd = tmp_path / "a=b.csv"
    odd.write_text("")
    assert power_argument(str(odd)) == (None, odd)
    with pytest.raises(UsageError, match="cannot read"):
        power_argument("four=power.csv")


def test_logs_of_one_k_are_put_together_and_rejected_lines_have_numbers(tmp_path: Path) -> None:
    a, b = log(tmp_path / "a.csv", 8, 300.0), log(tmp_path / "b.csv", 8, 400.0)
    lines = b.read_text().splitlines()
    lines[3:5] = ["garbage", "2024/05/01 12:00:00.000, 3, [N/A]"]
    lines[9] = "x"
    b.write_text("\n".join(lines) + "\n")
    readings: list[Reading] = []
    found = read_draws([f"16={a}", f"16={b}"], readings=readings)
    assert [draw.k for draw in found] == [16]
    assert found[0].watts == pytest.approx(350.0)
    assert found[0].devices == 16
    assert readings[1].rejected_lines == ((4, 5), (10, 10))
    assert readings[1].rejected_count == 3


def test_a_log_without_samples_is_refused_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "power.csv"
    path.write_text("timestamp, index, power.draw [W]\n2024/05/01 12:00:00.000, 0, [N/A]\n")
    with pytest.raises(SpecError, match="no samples of power") as caught:
        read_draws([str(path)])
    assert caught.value.problems[0].line == 2
