"""The expected slowest of K workers over the mean, by distribution."""

from __future__ import annotations

from perfmodel.report.kinds import common
from perfmodel.report.model import Cell, Chart, Column, Envelope, Series, Table, listed, mapping, result_of


def title(envelope: Envelope) -> str:
    """What waiting costs."""
    return "Waiting for the slowest of K"


def tables(envelope: Envelope) -> list[Table]:
    """E[max of K] over the mean, a column a distribution; and where waiting alone costs the level."""
    result = result_of(envelope)
    ks = listed(result.get("k"))
    curves = mapping(result.get("expected_max"))
    lists = {str(name): common.array(curves, name, len(ks)) for name in curves}
    rows: list[list[Cell]] = [[k, *(_four(values[i]) for values in lists.values())] for i, k in enumerate(ks)]
    columns = [Column("K", "", 0, "k"), *(Column(name.replace("_", " "), "", 1, name) for name in lists)]
    return [Table("E[max of K] over the mean", columns, rows, role="curve"), *_levels(envelope)]


def _levels(envelope: Envelope) -> list[Table]:
    result = result_of(envelope)
    falls, words = mapping(result.get("smallest_k_below")), mapping(result.get("distributions"))
    level = result.get("efficiency_level")
    if not falls or level is None:
        return []
    rows: list[list[Cell]] = [
        [str(words.get(name) or name), None if k is None else int(k)] for name, k in falls.items()
    ]
    columns = [Column("distribution", "", 0), Column(f"smallest K with 1/E[max] < {level:g}", "", 0)]
    note = "- stands for none up to ten million."
    return [Table("Where waiting alone costs that much", columns, rows, note=note, role="breakdown")]


def _four(value: object) -> str | None:
    return f"{value:.4f}" if isinstance(value, (int, float)) else None


def figures(envelope: Envelope) -> list[str]:
    """A line a distribution."""
    return ["straggler"]


def notes(envelope: Envelope) -> list[str]:
    """What the workers are."""
    return ["Workers are independent and alike; 1/E[max] is the efficiency that waiting alone leaves."]


def charts(envelope: Envelope) -> list[Chart]:
    """E[max of K] of each distribution."""
    result = result_of(envelope)
    k = [float(x) for x in result.get("k") or ()]
    curves = mapping(result.get("expected_max"))
    series = [Series(str(name), k, common.array(curves, name, len(k))) for name in curves]
    if not k or not series:
        return []
    series.append(Series("no wait", k, [1.0] * len(k), style="dashed"))
    return [
        Chart(
            "Waiting for the slowest of K",
            "K",
            "E[max of K] / mean",
            series,
            alt=common.answer(envelope),
            y_quantity="x",
        )
    ]
