"""What to ask a scheduler for at each K."""

from __future__ import annotations

from perfmodel.report.kinds import common
from perfmodel.report.model import Column, Envelope, Table, as_cell, result_of


def title(envelope: Envelope) -> str:
    """The run."""
    return f"Wall time of {common.subject(envelope) or 'a run'}"


def tables(envelope: Envelope) -> list[Table]:
    """A row for each K."""
    result = result_of(envelope)
    count = len(result.get("k") or ())
    columns = [
        Column("K", "", 0, "k"),
        Column("steps", "", 2, "steps"),
        Column("expected", "s", 1, "expected_s"),
        Column("95 % bound", "s", 0, "bound_s", unit_of="expected_s"),
        Column("Slurm", "", 0, "slurm"),
        Column("Kueue, label of the job", "", 1, "kueue"),
        Column("why not", "", 3, "reason"),
    ]
    values = {column.key: common.array(result, column.key, count) for column in columns}
    shown = [column for column in columns if column.key != "reason" or any(values["reason"])]
    rows = [[as_cell(values[column.key][i]) for column in shown] for i in range(count)]
    return [Table("What to ask for", shown, rows, role="decision")]
