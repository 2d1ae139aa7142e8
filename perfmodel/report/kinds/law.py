"""A scaling law tabulated: its curves, its ceilings, and the serial fraction that keeps an efficiency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
    listed,
    mapping,
    mappings,
    result_of,
)

_NAMES = {
    "amdahl": "Amdahl's law",
    "gustafson": "Gustafson's law",
    "usl": "Universal Scalability Law",
    "communication": "Amdahl plus communication",
}


def title(envelope: Envelope) -> str:
    """The law's name, with the communication term and regime where they matter."""
    result, inputs = result_of(envelope), inputs_of(envelope)
    name = _NAMES.get(str(result.get("law")), "Scaling law")
    if result.get("law") == "communication":
        return f"{name} ({inputs.get('term')}), {inputs.get('regime')} scaling"
    return name


def answer(envelope: Envelope) -> str:
    """For each curve, its ceiling and where it falls below the level."""
    result = result_of(envelope)
    level = result.get("efficiency_level")
    words = []
    for curve in curves(result):
        below = curve.get("smallest_k_below")
        fall = (
            f"E < {level:g} from K = {below:.0f}" if below is not None else f"E never falls below {level:g}"
        )
        ceiling = curve.get("ceiling")
        limit = f"at most {text.number(ceiling)}x" if ceiling is not None else "no ceiling"
        words.append(f"{label(curve)}: {limit}, {fall}")
    return "; ".join(words) + "." if words else ""


def tables(envelope: Envelope) -> list[Table]:
    """The curves, one row for each parameter and K; ceilings; the inverse."""
    result = result_of(envelope)
    ks = listed(result.get("k"))
    named = [
        Column("T", "", 0, "time"), Column("T on one worker", "", 0, "time_on_one"), Column("S", "", 0, "speedup"),
        Column("E", "", 0, "efficiency"), Column("of the ceiling [%]", "", 1, "percent_of_ceiling"),
        Column("more S per worker", "", 2, "marginal_speedup"), Column("cost", "", 1, "relative_cost"),
    ]  # fmt: skip
    found = curves(result)
    shown = [c for c in named if any(v is not None for curve in found for v in curve.get(c.key) or ())]
    rows: list[list[Cell]] = []
    for curve in found:
        lists = [common.array(curve, column.key, len(ks)) for column in shown]
        for i, k in enumerate(ks):
            parameters = [_plain(curve.get(key)) for key in ("serial_fraction", "kappa")]
            values = [
                _percent(v[i]) if c.key == "percent_of_ceiling" else _four(v[i])
                for c, v in zip(shown, lists, strict=True)
            ]
            rows.append([*parameters, k, *values])
    columns = [
        Column("serial", "", 0, "serial_fraction"), Column("kappa", "", 0, "kappa"), Column("K", "", 0, "k"), *shown,
    ]  # fmt: skip
    if result.get("law") != "usl":
        columns = [c for c in columns if c.title != "kappa"]
        rows = [[row[0], *row[2:]] for row in rows]
    note = "Cost: worker-time of the same work, K = 1 is 1."
    return [_ceilings(result), Table("Curves", columns, rows, note=note, role="curve"), *_keeps(result, ks)]


def _ceilings(result: Mapping[str, object]) -> Table:
    level = result.get("efficiency_level")
    rows: list[list[Cell]] = [
        [label(c), c.get("ceiling"), c.get("k_peak"), _whole(c.get("smallest_k_below"))]
        for c in curves(result)
    ]
    columns = [
        Column("parameters", "", 0), Column("ceiling of S", "", 0), Column("K of the largest S", "", 1),
        Column(f"smallest K with E < {level:g}", "", 0),
    ]  # fmt: skip
    return Table("Ceilings", columns, rows, note="- stands for none at any K.", role="decision")


def _keeps(result: Mapping[str, object], ks: Sequence[object]) -> list[Table]:
    keeps = mapping(result.get("keeps"))
    bounds = common.array(keeps, "serial_fraction", len(ks))
    if not ks:
        return []
    level = float(keeps.get("efficiency") or 0.0)
    columns = [Column("K", "", 0, "k"), Column(f"largest {keeps.get('parameter')}", "", 0)]
    rows: list[list[Cell]] = [
        [as_cell(k), None if b is None else f"{b:.6f}"] for k, b in zip(ks, bounds, strict=True)
    ]
    return [Table(f"What keeps E >= {level:g}", columns, rows, role="breakdown")]


def figures(envelope: Envelope) -> list[str]:
    """Speedup and efficiency of every curve."""
    result = result_of(envelope)
    names = ["weak", "efficiency", "speedup"] if result.get("regime") == "weak" else ["speedup", "efficiency"]
    return names if result.get("speedup") else []


def notes(envelope: Envelope) -> list[str]:
    """What T is relative to."""
    law = result_of(envelope).get("law")
    if law == "gustafson":
        return [
            "The problem grows with K: T is the time on K workers, always one unit, and T on one worker that of the same grown "
            "problem there. S is the second over the first, and E = S / K."
        ]
    if law == "communication":
        return ["Times in seconds, for one second of work at K = 1 before communication."]
    return ["T is relative to one worker."]


def charts(envelope: Envelope) -> list[Chart]:
    """Speedup of every curve against the ideal line."""
    result = result_of(envelope)
    k = [float(x) for x in result.get("k") or ()]
    is_weak = result.get("regime") == "weak"
    key = "efficiency" if is_weak else "speedup"
    series = [Series(label(c), k, common.array(c, key, len(k))) for c in curves(result)]
    if not k or not series:
        return []
    if is_weak:
        alt = f"Efficiency against a flat one. {answer(envelope)}"
        ratio = "S / K" if result.get("law") == "gustafson" else "T(K0) / T(K)"
        return [common.weak_chart(series, k, alt, ratio=ratio)]
    series.append(Series("ideal", k, k, style="dashed"))
    alt = f"Speedup against K. {answer(envelope)}"
    return [Chart("Speedup", "K", "speedup", series, alt=alt, y_log=True, y_quantity="x")]


def label(curve: Mapping[str, object]) -> str:
    """The parameters of a curve."""
    if curve.get("kappa") is not None:
        return f"sigma = {curve.get('serial_fraction'):g}, kappa = {curve['kappa']:g}"
    return f"s = {curve.get('serial_fraction'):g}"


def _plain(value: object) -> str | None:
    return None if value is None else f"{value:g}"


def _percent(value: object) -> str | None:
    if text.stated_digits() is not None:
        return _four(value)
    return f"{value:.1f}" if isinstance(value, (int, float)) else None


def _four(value: object) -> str | None:
    """Four decimals, or four digits of what they would not show; as many significant digits as somebody asked for."""
    if not isinstance(value, (int, float)):
        return None
    if text.stated_digits() is not None:
        return text.number(value)
    return f"{value:.4g}" if 0.0 < abs(value) < 1e-3 else f"{value:.4f}"


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None


def curves(result: Mapping[str, object]) -> list[dict[str, Any]]:
    """The curves of a law, one for each set of parameters."""
    return mappings(result.get("curves"))
