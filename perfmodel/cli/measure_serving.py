"""`perfmodel measure serving URL`: a load curve of a running server. Needs the extra `load`."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.options import FormatOption, QuietOption, check_folder, emit, write_text
from perfmodel.cli.readings import quantity, worker_counts
from perfmodel.errors import UsageError


class Api(StrEnum):
    """Which of the two endpoints is asked."""

    completions = "completions"
    chat = "chat"


def serving(
    url: Annotated[str, typer.Argument(metavar="URL", help="Such as http://localhost:8000.")],
    model: Annotated[
        str | None, typer.Option("--model", help="Name of the model; else the first that the server lists.")
    ] = None,
    concurrency: Annotated[
        str | None, typer.Option("--concurrency", help="Requests held open: 8, 1,4,16 or 1..64 (doubling).")
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", help="Requests a second that start at random: 0.5,2,8.")
    ] = None,
    input_tokens: Annotated[int, typer.Option("--input-tokens", min=1, max=1_000_000)] = 512,
    output_tokens: Annotated[int, typer.Option("--output-tokens", min=2, max=1_000_000)] = 128,
    requests: Annotated[
        int, typer.Option("--requests", min=1, max=100_000, help="Measured requests of each load.")
    ] = 200,
    warmup: Annotated[
        int, typer.Option("--warmup", min=0, max=10_000, help="Requests before them that are not counted.")
    ] = 8,
    max_time: Annotated[
        str, typer.Option("--max-time", help='Longest time of one load, such as "2 min".')
    ] = "2 min",
    arrival_cv: Annotated[
        float, typer.Option("--arrival-cv", min=0.01, max=10.0, help="Burstiness of --rate; 1 is random.")
    ] = 1.0,
    api: Annotated[Api, typer.Option("--api", help="Endpoint.")] = Api.completions,
    api_key_variable: Annotated[
        str | None,
        typer.Option("--api-key-variable", metavar="NAME", help="Environment variable with the key."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of prompts and arrivals.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="CSV", help="Load curve for `study` and `calibrate`."),
    ] = None,
    format: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Load a running server -> TTFT, time per token and throughput by load, with percentiles and intervals."""
    from perfmodel.readings.load.point import load_csv
    from perfmodel.readings.measure.progress import tracked
    from perfmodel.readings.measure.serving import Plan, Target, measure_curve
    from perfmodel.study.load_curve import study_load

    if (concurrency is None) == (rate is None):
        raise UsageError(
            "give either --concurrency or --rate", code="M020", help="such as --concurrency 1..64"
        )
    if not url.startswith(("http://", "https://")):
        raise UsageError(f'not an address: "{url}"', code="M020", help="such as http://localhost:8000")
    if output is not None:
        check_folder(output)
    key = None
    if api_key_variable is not None:
        key = os.environ.get(api_key_variable)
        if not key:
            raise UsageError(f"--api-key-variable: {api_key_variable} is not set", code="M020")
    counts = () if concurrency is None else worker_counts("--concurrency", concurrency)
    rates = () if rate is None else _rates(rate)
    plan = Plan(
        requests=requests,
        warmup=warmup,
        most_s=quantity("--max-time", max_time, "s") or 0.0,
        arrival_cv=arrival_cv,
        seed=seed,
    )
    if not 0.0 < plan.most_s <= 86400.0:
        raise UsageError(f"--max-time: above zero and at most a day, got {max_time}", code="M020")
    target = Target(url.rstrip("/"), model, api.value, input_tokens, output_tokens, key)
    curve = measure_curve(target, concurrency=counts, rate_per_s=rates, plan=plan)
    points = list(tracked(curve, len(counts) + len(rates), "loads", quiet=quiet))
    result = study_load(points, seed=seed)
    about = (
        f"{url}, model {points[0].model}, {input_tokens} words in, {output_tokens} tokens out, "
        f"{requests} requests a load after warm-up, seed {seed}"
    )
    if output is not None:
        write_text(output, load_csv(points, comment=about))
        if not quiet:
            typer.echo(f"wrote {output}", err=True)
    if output is None or format is not None or not quiet:
        emit(result, format, None, quiet=quiet)


def _rates(text: str) -> tuple[float, ...]:
    found: list[float] = []
    for word in text.removesuffix("/s").split(","):
        try:
            value = float(word)
        except ValueError:
            value = 0.0
        if not 0.0 < value <= 1e5:
            raise UsageError(
                f'--rate: cannot read "{word.strip()}"',
                code="M020",
                help="requests a second, such as 0.5,2,8",
            )
        found.append(value)
    return tuple(found)
