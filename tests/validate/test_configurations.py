"""Runs of the corpus predicted from their public configuration: read, legal, and near what the labels give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from studies.configurations import FAMILIES, compared, table

#: Families whose file states another run than their labels, and how far off it may be.
OTHERWISE = {
    "maxtext-22b-v4-128": 0.3,  # sixteen sequences a device, of which the label has four
    "maxtext-512b-v5p-1024": 0.2,  # half the batch, with tensors cut by eight
}
MEASURED = Path(__file__).parents[2] / "validation" / "measured"


def test_runs_are_predicted_from_their_configuration() -> None:
    rows, left_out = compared(MEASURED)
    found = {row.family for row in rows}
    assert found == {family for families in FAMILIES.values() for family in families}, left_out
    assert not left_out
    # From the file a run is as near to what was measured as its labels bring it, or within a tenth.
    errors = []
    for family in found:
        own = [row for row in rows if row.family == family]
        by_file, by_labels = (
            float(np.median([abs(getattr(row, by) - 1.0) for row in own]))
            for by in ("by_configuration", "by_labels")
        )
        errors.append(by_file)
        assert by_file < max(2.0 * by_labels, OTHERWISE.get(family, 0.1)), family
    assert np.median(errors) < 0.06
    assert table(rows).splitlines()[-1].startswith("median over families")
