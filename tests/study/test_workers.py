"""Workers step by step: who idles for whom, in the result, the picture and the plot."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfmodel.cli.main import main
from perfmodel.report import workers as picture
from perfmodel.study.rubric import study_file
from perfmodel.study.workers import MOST_RANKS, MOST_STEPS


def ranks_csv(path: Path, own: np.ndarray[Any, Any]) -> Path:
    rows = [
        f"{rank},{step},{own[step, rank]:.6f}" for step in range(own.shape[0]) for rank in range(own.shape[1])
    ]
    path.write_text("rank,step,time_s\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def own() -> np.ndarray[Any, Any]:
    """Twenty steps of four ranks, of which rank 2 is the slowest in all but the last."""
    times = np.tile([1.0, 0.8, 1.25, 0.9], (20, 1))
    times[-1] = [1.0, 2.0, 1.0, 1.0]
    return times


def test_a_worker_idles_until_the_slowest_is_done(tmp_path: Path, own: np.ndarray[Any, Any]) -> None:
    (row,) = study_file(ranks_csv(tmp_path / "ranks_k4.csv", own)).result["workers"]
    kept = own[1:]  # the first step is warm-up
    slowest = kept.max(axis=1)
    assert row["k"] == 4
    assert row["step_s"] == pytest.approx(slowest.mean())
    assert row["idle_share"] == pytest.approx((slowest[:, None] - kept).sum() / (4 * slowest.sum()))
    assert (row["slowest_rank"], row["slowest_share"]) == (2, pytest.approx(18 / 19))
    busy, idle = np.array(row["busy_s"]), np.array(row["idle_s"])
    assert busy.shape == idle.shape == (4, MOST_STEPS)
    np.testing.assert_allclose(busy + idle, np.broadcast_to(1.25, busy.shape))


def test_the_bars_of_the_picture_are_as_long_as_the_times(tmp_path: Path, own: np.ndarray[Any, Any]) -> None:
    (row,) = study_file(ranks_csv(tmp_path / "ranks_k4.csv", own)).result["workers"]
    svg = picture.draw(row)
    widths = [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"', svg)]
    assert len(widths) == 2 * 4 * MOST_STEPS
    expected = np.stack([row["busy_s"], row["idle_s"]], axis=-1).ravel()
    np.testing.assert_allclose(np.array(widths) / sum(widths), expected / expected.sum(), atol=2e-5)


def test_many_ranks_are_thinned_and_equal_times_said(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    times = 1.0 + 0.1 * rng.random((8, 200))
    times[:, 77] = 2.0
    (row,) = study_file(ranks_csv(tmp_path / "many_k200.csv", times)).result["workers"]
    assert len(row["ranks"]) == MOST_RANKS
    assert 77 in row["ranks"]
    (flat,) = study_file(ranks_csv(tmp_path / "flat_k4.csv", np.ones((8, 4)))).result["workers"]
    assert flat["same_times"]
    assert "waiting included" in picture.figures([flat])


def test_the_verb_draws_them(
    tmp_path: Path, own: np.ndarray[Any, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path, plot, page = (tmp_path / name for name in ("ranks_k4.csv", "w.svg", "w.html"))
    ranks_csv(path, own)
    assert main(["study", str(path), "--plot", str(plot), "--report", str(page)]) == 0
    assert "slowest" in capsys.readouterr().out
    assert "idle" in plot.read_text(encoding="utf-8")
    assert "Workers step by step" in page.read_text(encoding="utf-8")
    assert main(["study", "examples/alexnet-k80.csv", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["workers"] == []
