"""`perfmodel law amdahl|gustafson|usl|communication|stragglers`: the scaling laws from the shell."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.groups import ResultFlags, expanded
from perfmodel.cli.options import K_OPTION, RegimeOption
from perfmodel.cli.readings import quantity, worker_counts
from perfmodel.errors import UsageError

KAPPA, ALPHA, MESSAGE, SPREAD = "0.0001", "1 ms", "0 B", "0.05"  # where nobody says


class LawName(StrEnum):
    """The laws."""

    amdahl = "amdahl"
    gustafson = "gustafson"
    usl = "usl"
    communication = "communication"
    stragglers = "stragglers"


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
            show_default=False,
            help="amdahl, gustafson, usl, communication (Amdahl plus alpha-beta), or stragglers (E[max of K]).",
        ),
    ],
    serial: Annotated[
        str,
        typer.Option(
            "--serial", "--sigma", metavar="S,...", help="Serial fractions (usl: sigma), separated by commas."
        ),
    ] = "0.01,0.05,0.20",
    k: Annotated[str, K_OPTION] = "1..512",
    kappa: Annotated[
        str | None,
        typer.Option(
            metavar="X,...", show_default=KAPPA, help="usl: coherency coefficients, separated by commas."
        ),
    ] = None,
    efficiency: Annotated[float, typer.Option(help="Level for the smallest K below it.")] = 0.5,
    keep: Annotated[float, typer.Option(help="Level that the largest serial fraction keeps.")] = 0.8,
    term: Annotated[
        TermName | None,
        typer.Option(show_default=TermName.log2.value, help="communication: how it grows with K."),
    ] = None,
    alpha: Annotated[
        str | None,
        typer.Option(
            show_default=ALPHA, help="communication: latency of one message, for one second of work at K = 1."
        ),
    ] = None,
    message: Annotated[
        str | None, typer.Option(show_default=MESSAGE, help="communication: message size.")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(help="communication: bandwidth of one link, such as 400 Gbit/s.")
    ] = None,
    regime: RegimeOption = None,
    spread: Annotated[
        str | None,
        typer.Option(
            show_default=SPREAD, help="stragglers: standard deviation over mean of one worker's step."
        ),
    ] = None,
    distribution: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            show_default="all",
            help="stragglers: normal, lognormal, gamma, weibull, gumbel, pareto, exponential, or all.",
        ),
    ] = None,
    tail: Annotated[
        float | None, typer.Option(show_default="3", help="stragglers: tail index of pareto, above 2.")
    ] = None,
    shift: Annotated[
        float | None, typer.Option(show_default="0", help="stragglers: share of the step that never varies.")
    ] = None,
    samples: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="stragglers: measured step times, a number a line or a column time_s."
        ),
    ] = None,
    *,
    to: ResultFlags,
) -> None:
    """T, S, E over K, ceilings, the smallest K below an efficiency, the serial fraction that keeps one."""
    from perfmodel.study.lawtable import LawOptions, parse_fractions, tabulate

    waiting: dict[str, object] = {
        "--spread": spread, "--distribution": distribution, "--tail": tail, "--shift": shift, "--samples": samples,
    }  # fmt: skip
    exchange: dict[str, object] = {
        "--term": term,
        "--alpha": alpha,
        "--message": message,
        "--bandwidth": bandwidth,
    }
    others: dict[LawName, dict[str, object]] = {
        LawName.usl: exchange | waiting,
        LawName.communication: {"--kappa": kappa} | waiting,
        LawName.stragglers: exchange | {"--kappa": kappa, "--regime": regime},
    }
    usual = exchange | {"--kappa": kappa} | waiting
    strange = [name for name, said in others.get(law, usual).items() if said is not None]
    if strange:
        raise UsageError(
            f"{', '.join(strange)}: no part of {law.value}",
            code="U016",
            help="perfmodel law --help lists the options of each law",
        )
    if law == LawName.stragglers:
        from perfmodel.study.stragglertable import StragglerOptions
        from perfmodel.study.stragglertable import tabulate as waits

        asked = StragglerOptions(
            k=worker_counts("--k", k),
            spread=parse_fractions("--spread", SPREAD if spread is None else spread),
            families=()
            if distribution in (None, "all")
            else tuple(w.strip() for w in str(distribution).split(",")),
            tail=3.0 if tail is None else tail,
            shift=0.0 if shift is None else shift,
            efficiency=efficiency,
            samples=samples,
        )
        to.emit(waits(asked, seed=to.seed))
        return
    moved = quantity("--message", MESSAGE if message is None else message, "B") or 0.0
    if moved and bandwidth is None:
        raise UsageError(
            "--message needs a --bandwidth", code="U022", help='such as --bandwidth "400 Gbit/s"'
        )
    options = LawOptions(
        law=law.value,  # type: ignore[arg-type]
        k=worker_counts("--k", k),
        serial=parse_fractions("--serial", serial),
        kappa=parse_fractions("--kappa", KAPPA if kappa is None else kappa),
        efficiency=efficiency,
        keep=keep,
        term=(term or TermName.log2).value,
        alpha_s=quantity("--alpha", ALPHA if alpha is None else alpha, "s") or 0.0,
        message_bytes=moved,
        bandwidth_bytes_per_s=quantity("--bandwidth", bandwidth or "1000000 PB/s", "B/s") or 0.0,
        regime="strong" if regime is None else regime.value,
    )
    to.emit(tabulate(options, seed=to.seed))
