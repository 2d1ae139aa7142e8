"""A workload read from a config or traced from code: parameters, FLOP by operator, shapes."""

from __future__ import annotations

from perfmodel.report.model import Column, Envelope, Table, result_of


def title(envelope: Envelope) -> str:
    return f"Workload {result_of(envelope)['workload']['name']}"


def answer(envelope: Envelope) -> str:
    """Parameters, and per sample what a training step costs where it was traced."""
    result = result_of(envelope)
    said = f"{result['params']:,} parameters"
    active = result.get("active_params")
    if active is not None and active != result["params"]:
        said += f", {active:,} of them active for a token"
    return f"{said}; kind {result['workload']['kind']}."


def tables(envelope: Envelope) -> list[Table]:
    result = result_of(envelope)
    found = [Table("Spec", ("field", "value"), list(result["workload"].items()), role="decision")]
    parts = result.get("params_by_part")
    if parts:
        total = result["params"]
        rows = [(name, value, value / total) for name, value in parts.items()]
        found.append(
            Table("Parameters", ("part", "parameters", Column("share", "%")), rows, role="breakdown")
        )
    operators = result.get("flop_by_operator")
    if operators:
        columns = (Column("operator"), Column("forward FLOP per sample", "FLOP", key="forward_flop"))
        found.append(Table("FLOP by operator", columns, list(operators.items()), role="breakdown"))
    shapes = result.get("gemms")
    if shapes:
        heads = ("m", "n", "k", "count", Column("share of FLOP", "%", key="share"))
        rows = [tuple(shape[key] for key in ("m", "n", "k", "count", "share")) for shape in shapes]
        found.append(Table("Matrix products of a forward pass", heads, rows))
    return found


def notes(envelope: Envelope) -> list[str]:
    return [str(note) for note in result_of(envelope).get("notes", [])]
