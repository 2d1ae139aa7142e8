"""One collective by every algorithm: what each time is made of, where they change places, and what was measured."""

from __future__ import annotations

from perfmodel.report import text
from perfmodel.report.kinds import common
from perfmodel.report.model import (
    Cell,
    Chart,
    Column,
    Envelope,
    Series,
    Table,
    as_cell,
    inputs_of,
    mapping,
    mappings,
    result_of,
)


def title(envelope: Envelope) -> str:
    """The operation, and where."""
    inputs = inputs_of(envelope)
    return f"{result_of(envelope).get('op')} on {inputs.get('cluster') or 'the stated link'}"


def tables(envelope: Envelope) -> list[Table]:
    """A row for each algorithm, size and group; crossovers; measured calls; links; formulas."""
    result = result_of(envelope)
    return [_times(result), *_crossovers(result), *_measured(result), *_links(result), *_formulas(result)]


def _times(result: dict[str, object]) -> Table:
    rows = mappings(result.get("rows"))
    several = {key: len({row.get(key) for row in rows}) > 1 for key in ("ranks", "bytes")}
    best = {(b.get("bytes"), b.get("ranks")): b.get("algorithm") for b in mappings(result.get("fastest"))}
    columns = [
        Column("algorithm", "", 0, "algorithm"),
        Column("ranks", "", 0 if several["ranks"] else 3, "ranks"),
        Column("bytes", "B", 0 if several["bytes"] else 3, "bytes"),
        Column("steps", "", 1, "steps"),
        Column("steps x alpha", "s", 0, "alpha_s"),
        Column("bytes x beta", "s", 0, "beta_s"),
        Column("gamma", "s", 2, "gamma_s"),
        Column("time", "s", 0, "time_s"),
    ]
    cells: list[list[Cell]] = [[as_cell(row.get(column.key)) for column in columns] for row in rows]
    marked = tuple(
        i
        for i, row in enumerate(rows)
        if row.get("algorithm") == best.get((row.get("bytes"), row.get("ranks")))
    )
    return Table("Algorithms", columns, cells, role="curve", marked=marked)


def _crossovers(result: dict[str, object]) -> list[Table]:
    rows = mappings(result.get("crossovers"))
    columns = [
        Column("ranks", "", 0, "ranks"),
        Column("up to this size", "", 0, "from"),
        Column("size", "B", 0, "bytes"),
        Column("beyond it", "", 0, "to"),
    ]
    cells: list[list[Cell]] = [[as_cell(row.get(column.key)) for column in columns] for row in rows]
    return [Table("Crossovers", columns, cells, role="breakdown")] if cells else []


def _measured(result: dict[str, object]) -> list[Table]:
    rows = mappings(result.get("measured"))
    columns = [
        Column("bytes", "B", 0, "bytes"),
        Column("ranks", "", 1, "ranks"),
        Column("nodes", "", 3, "nodes"),
        Column("measured", "s", 0, "measured_s"),
        Column("predicted", "s", 0, "predicted_s"),
        Column("predicted / measured", "", 0, "predicted_over_measured"),
        Column("algorithm", "", 2, "algorithm"),
        Column("source", "", 4, "source"),
    ]
    cells: list[list[Cell]] = [[as_cell(row.get(column.key)) for column in columns] for row in rows]
    note = (
        "Predicted is auto, or the ring where the ring was forced. Sources are those of the shipped corpus."
    )
    return [Table("Measured on such a machine", columns, cells, note=note, role="breakdown")] if cells else []


def _links(result: dict[str, object]) -> list[Table]:
    links = mapping(result.get("links"))
    rows: list[list[Cell]] = [
        [name.replace("_", " "), mapping(link).get("alpha_s"), mapping(link).get("bytes_per_s")]
        for name, link in links.items()
    ]
    columns = [
        Column("link", "", 0),
        Column("alpha, a message", "s", 0, "alpha_s"),
        Column("bandwidth", "B/s", 0, "bytes_per_s"),
    ]
    note = "beta is one over the bandwidth: of a rank each way, of the network that of a whole domain."
    return [Table("Links", columns, rows, note=note if len(rows) > 1 else "", role="breakdown")]


def _formulas(result: dict[str, object]) -> list[Table]:
    seen = {str(row.get("algorithm")): row.get("formula") for row in mappings(result.get("rows"))}
    rows: list[list[Cell]] = [[name, as_cell(formula)] for name, formula in seen.items() if formula]
    note = (
        "n ranks, S bytes; g ranks in a domain, k domains; L = log2 n rounded up; a alpha, b beta, g gamma."
    )
    columns = [Column("algorithm", "", 0), Column("time", "", 0)]
    return [Table("Formulas", columns, rows, note=note, role="breakdown")] if rows else []


def figures(envelope: Envelope) -> list[str]:
    """Time against size."""
    return ["collective"]


def charts(envelope: Envelope) -> list[Chart]:
    """Time of each algorithm over sizes, with the measured calls as dots."""
    result = result_of(envelope)
    curves = mapping(result.get("curves"))
    sizes = [float(x) for x in curves.get("bytes") or ()]
    series = [Series(name, sizes, list(times)) for name, times in mapping(curves.get("time_s")).items()]
    if not sizes or not series:
        return []
    dots = [row for row in mappings(result.get("measured")) if row.get("ranks") == curves.get("ranks")]
    if dots:
        x, y = ([float(row[key]) for row in dots] for key in ("bytes", "measured_s"))
        series.append(Series("measured", x, y, style="dots"))
    ranks = text.number(float(curves.get("ranks") or 0))
    name = f"{result.get('op')} among {ranks} ranks"
    return [
        Chart(name, "message [B]", "time", series, alt=common.answer(envelope), y_log=True, y_quantity="s")
    ]
