"""What `perfmodel measure` found on a machine: each item with its rate and spread, and the spec made from them."""

from __future__ import annotations

from perfmodel.report.model import Cell, Column, Envelope, Table, mappings, result_of


def title(envelope: Envelope) -> str:
    result = result_of(envelope)
    return f"Measured {result.get('measured', 'machine')}: {result.get('device', '')}".rstrip(": ")


def answer(envelope: Envelope) -> str:
    """The figures that other verbs will use."""
    result = result_of(envelope)
    spec = result.get("spec", {})
    if result.get("measured") == "device":
        peaks = ", ".join(f"{name} {value}" for name, value in spec.get("peak", {}).items())
        reached = peaks or f"matmul fraction {spec.get('matmul_fraction')}"
        bandwidth = spec.get("memory_bandwidth") or f"fraction {spec.get('memory_fraction')}"
        return f"Reached {reached}; memory {bandwidth}; a launch costs {spec.get('launch_overhead')}."
    if result.get("measured") == "collective":
        error = result.get("fit_median_error")
        fit = f" (fit within {error:.0%} in the median)" if isinstance(error, float) else ""
        return f"{result.get('ranks')} ranks: alpha {spec.get('latency')}, {spec.get('bandwidth')} per direction{fit}."
    return f"K={result.get('k')}: {result.get('mean_s'):.4g} s a step, spread {result.get('spread'):.1%}."


def tables(envelope: Envelope) -> list[Table]:
    result = result_of(envelope)
    items = mappings(result.get("items"))
    if result.get("measured") == "device":
        rows: list[tuple[Cell, ...]] = [
            (
                item["item"],
                item["time_s"],
                item["rate"] if item["item"].startswith("matmul") else None,
                item["rate"] if item["item"].startswith("memory") else None,
                item["spread"],
            )
            for item in items
        ]
        columns = (
            "item",
            Column("time", "s", key="time_s"),
            Column("matmul rate", "FLOP/s", key="flop_per_s"),
            Column("memory rate", "B/s", key="bytes_per_s"),
            Column("spread", "%", 2),
        )
        return [Table("Items", columns, rows, role="curve")]
    if result.get("measured") == "collective":
        keys = ("op", "bytes", "time_s", "bus_bandwidth_bytes_per_s", "spread")
        heads = (
            "op",
            Column("bytes", "B"),
            Column("time", "s", key="time_s"),
            Column("bus bandwidth", "B/s", key="bus_bytes_per_s"),
            Column("spread", "%", 2),
        )
        return [Table("Sweeps", heads, [tuple(item[key] for key in keys) for item in items], role="curve")]
    repeats = ("repeat", Column("time of a step", "s", key="time_s"))
    return [
        Table("Repeats", repeats, [(i, t) for i, t in enumerate(result.get("times_s", []))], role="curve")
    ]


def notes(envelope: Envelope) -> list[str]:
    result = result_of(envelope)
    said = [f"not measured: {line}" for line in result.get("skipped", [])]
    noisy = result.get("noisy", [])
    if noisy:
        said.append(
            f"noisy (spread above 10 %): {', '.join(noisy[:8])}{' ...' if len(noisy) > 8 else ''}; measure on a quiet machine"
        )
    return said
