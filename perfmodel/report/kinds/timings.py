"""One's own runs against the prediction: error and band by K, the laws beside, what to declare."""

from __future__ import annotations

from perfmodel.report.kinds import common
from perfmodel.report.model import (
    Cell,
    Chart,
    Column,
    Envelope,
    Series,
    Table,
    listed,
    mapping,
    mappings,
    result_of,
)


def title(envelope: Envelope) -> str:
    """Whose runs."""
    return f"Measured runs of {common.subject(envelope) or 'a job'}"


def tables(envelope: Envelope) -> list[Table]:
    """A row for each K; the laws; the advice."""
    result = result_of(envelope)
    ks = listed(result.get("k"))
    keys = ("measured_s", "predicted_s", "low_s", "high_s", "error")
    lists = [common.array(result, key, len(ks)) for key in keys]
    inside, reasons = (common.array(result, key, len(ks)) for key in ("in_band", "reason"))
    rows: list[list[Cell]] = [
        [k, *(values[i] for values in lists), {True: "yes", False: "no"}.get(inside[i], reasons[i])]
        for i, k in enumerate(ks)
    ]
    columns = [
        Column("K", "", 0, "k"),
        Column("measured", "s", 0, "measured_s", unit_of="measured_s"),
        Column("predicted", "s", 0, "predicted_s", unit_of="measured_s"),
        Column("low", "s", 1, "low_s", unit_of="measured_s"),
        Column("high", "s", 1, "high_s", unit_of="measured_s"),
        Column("error", "%", 0, "error"),
        Column("in band", "", 0, "in_band"),
    ]
    return [Table("By K", columns, rows, role="curve"), *_laws(result), *_advice(result)]


def _laws(result: dict[str, object]) -> list[Table]:
    laws, beyond = mapping(result.get("laws")), mapping(result.get("beyond"))
    if not laws:
        return []
    rows: list[list[Cell]] = [["prediction, which saw no run", beyond.get("median_ape")]]
    rows += [[name.replace("_", " "), mapping(law).get("median_ape")] for name, law in laws.items()]
    rows.sort(key=lambda row: float(row[1] or 0.0) if isinstance(row[1], (int, float)) else 0.0)
    fitted = " and ".join(str(k) for k in beyond.get("fitted_to") or ())
    note = f"Laws are fitted to the runs at K = {fitted}; all are scored at the larger K."
    columns = [Column("by", "", 0), Column("median error", "%", 0, "median_ape")]
    return [Table("Beside the laws", columns, rows, note=note, role="breakdown")]


def _advice(result: dict[str, object]) -> list[Table]:
    rows: list[list[Cell]] = [[str(item.get("what"))] for item in mappings(result.get("advice"))]
    if not rows:
        return []
    note = "In this order: what the job leaves to defaults, then what would explain the errors with the least movement."
    return [Table("What to declare or measure", [Column("what", "", 0)], rows, note=note, role="breakdown")]


def figures(envelope: Envelope) -> list[str]:
    """Measured against predicted, with the band."""
    return ["runs"]


def charts(envelope: Envelope) -> list[Chart]:
    """T(K): measured dots on the predicted line with its band."""
    result = result_of(envelope)
    k = [float(x) for x in result.get("k") or ()]
    if not k:
        return []
    low, high = (common.array(result, key, len(k)) for key in ("low_s", "high_s"))
    predicted = Series("predicted", k, common.array(result, "predicted_s", len(k)), low, high)
    measured = Series("measured", k, common.array(result, "measured_s", len(k)), style="dots")
    return [
        Chart(
            "Step time",
            "K",
            "time",
            [predicted, measured],
            alt=common.answer(envelope),
            y_log=True,
            y_quantity="s",
        )
    ]
