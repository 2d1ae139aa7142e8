"""Faults put into a predicted run are found, and healthy runs are left in peace."""

from __future__ import annotations

from typing import Any

import numpy as np
from studies import faults


def test_faults_are_found_and_healthy_runs_left_in_peace(monkeypatch: Any) -> None:
    monkeypatch.setattr(faults, "JOBS", faults.JOBS[:1])
    monkeypatch.setattr(faults, "SEVERITIES", 1)
    found = list(faults.trials())
    ill = [trial for trial in found if trial.fault is not None and trial.traced]
    well = [trial for trial in found if trial.fault is None]
    assert len({trial.fault for trial in ill}) >= 8
    assert np.mean([trial.fault in trial.named[:3] for trial in ill]) >= 0.8
    assert np.mean([trial.verdict == "slow" for trial in well]) <= 0.15
    assert "with a trace" in faults.table(found)
