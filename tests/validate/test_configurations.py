"""Runs of the corpus predicted from their public configuration: read, legal, and near what the labels give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from studies.configurations import FAMILIES, compared, table

MEASURED = Path(__file__).parents[2] / "validation" / "measured"


def test_runs_are_predicted_from_their_configuration() -> None:
    rows, left_out = compared(MEASURED)
    found = {row.family for row in rows}
    assert found == {family for families in FAMILIES.values() for family in families}, left_out
    assert not left_out
    # From the file a run is near what was measured, and none is far off where its labels are not.
    errors = []
    for family in found:
        own = [row for row in rows if row.family == family]
        by_file, by_labels = (
            float(np.median([abs(getattr(row, by) - 1.0) for row in own]))
            for by in ("by_configuration", "by_labels")
        )
        errors.append(by_file)
        assert by_file < max(2.0 * by_labels, 0.3), family
    assert np.median(errors) < 0.08
    assert table(rows).splitlines()[-1].startswith("median over families")
