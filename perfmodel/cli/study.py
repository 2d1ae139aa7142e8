"""`perfmodel study TIMINGS.csv`: measured timings to the whole rubric."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli.groups import ResultFlags, expanded
from perfmodel.cli.options import (
    RegimeOption,
)
from perfmodel.cli.readings import (
    PatternOption,
    PowerIntervalOption,
    PowerOption,
    quantity,
    sampling_interval,
    say_rejected,
)
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.results.envelope import Result


class Interval(StrEnum):
    """How the 95 % interval of a mean is made."""

    t = "t"
    normal = "normal"


class PricePer(StrEnum):
    """What a price of the table is of."""

    worker = "worker"
    cluster = "cluster"


def _carbon(grid: str | None) -> float | None:
    """Grams per joule of a grid of the catalogue, or of a figure."""
    if grid is None:
        return None
    if grid[:1].isdigit():
        return quantity("--grid", grid, "g/J")
    from perfmodel.specs.catalog import Catalog

    return float(Catalog.default().get("grids", grid).carbon)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("study")(expanded(study))


def study(
    timings: Annotated[
        list[Path],
        typer.Argument(
            metavar="TIMINGS.csv",
            show_default=False,
            help="CSV with k and time_s (or compute_s,communication_s,idle_s[,io_s]); optional repeat, "
            "price_usd_per_h, quality, global_batch, energy_j, carbon_g, throughput, latency_p99_s, setup_s. Or training logs, "
            "sacct output, profiler traces, folders of these; several are one study. Or a load curve: results of load "
            "tools, or CSV with concurrency or rate_per_s, throughput, ttft_p99_s, tpot_mean_s and so on.",
        ),
    ],
    threshold: Annotated[float, typer.Option(help="Efficiency under which the curve has bent.")] = 0.70,
    quality_tolerance: Annotated[
        float, typer.Option(help="Drift of quality from the baseline that still counts as held.")
    ] = 0.005,
    ci: Annotated[Interval, typer.Option(help="Interval of a mean: Student's t or normal.")] = Interval.t,
    regime: RegimeOption = None,
    work: Annotated[
        float | None, typer.Option(help="Work units in one run (weak regime: in the run at the smallest K).")
    ] = None,
    price: Annotated[str | None, typer.Option(help='Price of one worker, such as "3.20 USD/h".')] = None,
    inject_straggler: Annotated[
        str | None,
        typer.Option(metavar="LOW..HIGH", help="Show what one slow worker per point would do: 1.0..1.5."),
    ] = None,
    max_latency_p99: Annotated[
        str | None, typer.Option(help='Limit on p99 latency for the most throughput, such as "200 ms".')
    ] = None,
    min_throughput: Annotated[
        float | None, typer.Option(help="Floor on throughput for the least p99 latency.")
    ] = None,
    regimes: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=PRICE,...",
            help="p* under several prices of a worker-hour: on-demand=3.20,spot=30%,owned=60%@0.5 (@ utilisation), or a CSV.",
        ),
    ] = None,
    baseline_k: Annotated[
        int | None, typer.Option(min=1, help="Measure against this K; runs below it are left out.")
    ] = None,
    price_per: Annotated[
        PricePer | None,
        typer.Option(help="What price_usd_per_h of the table is of. Default: the whole cluster."),
    ] = None,
    grid: Annotated[
        str | None, typer.Option(help='Grams of CO2 from energy_j: a grid of the catalogue, or "400 g/kWh".')
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Read a training log: megatron, torchtitan, nemo, lightning or hf-trainer."),
    ] = None,
    pattern: PatternOption = None,
    job_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Take the jobs of this name from sacct output; * is any text."),
    ] = None,
    power: PowerOption = None,
    power_interval: PowerIntervalOption = None,
    slo: Annotated[
        str | None,
        typer.Option(
            metavar="LIMITS",
            help='Of a load curve: limits such as "ttft_p99=2 s,tpot_p99=50 ms"; the largest load that keeps them.',
        ),
    ] = None,
    *,
    to: ResultFlags,
) -> None:
    """Measured timings -> speedup, efficiency, intervals, fits, bend and cause, quality gate, cost, verdict."""
    from perfmodel.readings.load import is_load_test
    from perfmodel.study.options import StudyOptions, parse_factors
    from perfmodel.study.regimes import parse_regimes
    from perfmodel.study.rubric import study_file

    if preset is None and pattern is None and all(is_load_test(path) for path in timings):
        to.emit(_load_study(timings, slo, max_latency_p99, min_throughput, to.seed))
        return
    if slo is not None:
        raise UsageError(
            "--slo: for load curves; these are timings by K", code="U021", help="--max-latency-p99"
        )
    options = StudyOptions(
        threshold=threshold,
        quality_tolerance=quality_tolerance,
        ci=ci.value,
        regime=None if regime is None else regime.value,
        work=work,
        price_usd_per_s=quantity("--price", price, "USD/s"),
        straggler=None if inject_straggler is None else parse_factors(inject_straggler),
        max_latency_p99_s=quantity("--max-latency-p99", max_latency_p99, "s"),
        min_throughput=min_throughput,
        regimes=() if regimes is None else parse_regimes(regimes),
        baseline_k=baseline_k,
        price_per=None if price_per is None else price_per.value,
        carbon_g_per_j=_carbon(grid),
    )
    result = study_file(
        timings,
        options,
        preset=preset,
        pattern=pattern,
        job_name=job_name,
        power=power or (),
        interval_s=sampling_interval(power_interval, power),
        seed=to.seed,
    )
    say_rejected(result, to.quiet)
    to.emit(result)


def _load_study(
    files: list[Path], slo: str | None, max_latency_p99: str | None, min_throughput: float | None, seed: int
) -> Result:
    """Reports of load tools, or a CSV by concurrency or rate_per_s."""
    from perfmodel.readings.load import read_load
    from perfmodel.results.envelope import fingerprint
    from perfmodel.study.load_curve import Objective, parse_objectives, study_load

    objectives = () if slo is None else parse_objectives(slo)
    limit = quantity("--max-latency-p99", max_latency_p99, "s")
    if limit is not None:
        objectives = (*objectives, Objective("e2e", "p99", limit))
    points = read_load(files)
    return study_load(
        points,
        objectives,
        min_throughput=min_throughput,
        files=[fingerprint(path) for path in files],
        seed=seed,
    )
