"""`perfmodel law amdahl|gustafson|usl|communication`: the scaling laws from the shell."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from perfmodel.cli.groups import ResultFlags, expanded
from perfmodel.cli.options import (
    KOption,
    RegimeOption,
)
from perfmodel.cli.readings import quantity
from perfmodel.errors import UsageError


class LawName(StrEnum):
    """The laws."""

    amdahl = "amdahl"
    gustafson = "gustafson"
    usl = "usl"
    communication = "communication"


class TermName(StrEnum):
    """How the exchange grows with K."""

    linear = "linear"
    log2 = "log2"
    log2p1 = "log2p1"
    ring = "ring"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("law")(expanded(law))


def law(
    law: Annotated[
        LawName,
        typer.Argument(
            show_default=False, help="amdahl, gustafson, usl, or communication (Amdahl plus alpha-beta)."
        ),
    ],
    serial: Annotated[
        str,
        typer.Option(
            "--serial", "--sigma", metavar="S,...", help="Serial fractions (usl: sigma), separated by commas."
        ),
    ] = "0.01,0.05,0.20",
    k: KOption = "1..512",
    kappa: Annotated[
        str, typer.Option(metavar="X,...", help="usl: coherency coefficients, separated by commas.")
    ] = "0.0001",
    efficiency: Annotated[float, typer.Option(help="Level for the smallest K below it.")] = 0.5,
    keep: Annotated[float, typer.Option(help="Level that the largest serial fraction keeps.")] = 0.8,
    term: Annotated[TermName, typer.Option(help="communication: how it grows with K.")] = TermName.log2,
    alpha: Annotated[
        str, typer.Option(help="communication: latency of one message, for one second of work at K = 1.")
    ] = "1 ms",
    message: Annotated[str, typer.Option(help="communication: message size.")] = "0 B",
    bandwidth: Annotated[
        str | None, typer.Option(help="communication: bandwidth of one link, such as 400 Gbit/s.")
    ] = None,
    regime: RegimeOption = None,
    *,
    to: ResultFlags,
) -> None:
    """T, S, E over K, ceilings, the smallest K below an efficiency, the serial fraction that keeps one."""
    from perfmodel.specs.ranges import parse_k
    from perfmodel.study.lawtable import LawOptions, parse_fractions, tabulate

    moved = quantity("--message", message, "B") or 0.0
    if moved and bandwidth is None:
        raise UsageError(
            "--message needs a --bandwidth", code="U022", help='such as --bandwidth "400 Gbit/s"'
        )
    options = LawOptions(
        law=law.value,
        k=parse_k(k or "1..512"),
        serial=parse_fractions("--serial", serial),
        kappa=parse_fractions("--kappa", kappa),
        efficiency=efficiency,
        keep=keep,
        term=term.value,
        alpha_s=quantity("--alpha", alpha, "s") or 0.0,
        message_bytes=moved,
        bandwidth_bytes_per_s=quantity("--bandwidth", bandwidth or "1000000 PB/s", "B/s") or 0.0,
        regime="strong" if regime is None else regime.value,
    )
    to.emit(tabulate(options, seed=to.seed))
