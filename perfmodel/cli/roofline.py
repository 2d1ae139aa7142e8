"""`perfmodel roofline JOB.yaml`: where each phase sits under the roofs; or one kernel by its FLOP and bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.groups import JobFlags, ResultFlags, expanded
from perfmodel.cli.options import JobFile
from perfmodel.cli.readings import quantity
from perfmodel.errors import UsageError

_LARGEST = 1e30


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("roofline")(expanded(roofline))


def roofline(
    job: JobFile = None,
    *,
    flop: Annotated[
        str | None, typer.Option(help="One kernel instead of a job: its work, such as 2e12 or 2 TFLOP.")
    ] = None,
    traffic: Annotated[
        str | None,
        typer.Option("--bytes", help="With --flop: what it moves through device memory, such as 24 MB."),
    ] = None,
    m: Annotated[
        int | None,
        typer.Option(min=1, help="One matrix product (m, k) x (k, n) instead of a job: with --n and --k."),
    ] = None,
    n: Annotated[
        int | None, typer.Option(min=1, help="Columns of the product; --k is its inner dimension then.")
    ] = None,
    flags: JobFlags,
    to: ResultFlags,
) -> None:
    """Place each phase of the step under the roofline: FLOP per byte, rate reached, roofs, as the batch per worker shrinks.

    With --flop and --bytes, or --m, --n and --k, one kernel on the accelerator of -c.
    """
    if any(value is not None for value in (flop, traffic, m, n)):
        _kernel(job, flop, traffic, (m, n), flags, to)
        return
    from perfmodel.specs.jobs import serves

    if serves(job):
        from perfmodel.explain.service import roofline_service

        to.emit(roofline_service(flags.service(job), flags.known_serving(), seed=to.seed))
        return
    known, found = flags.known(), flags.job(job)
    from perfmodel.explain.roofline import roofline as roofline_of

    to.emit(roofline_of(found, known, seed=to.seed))


def _kernel(
    job: Path | None,
    flop: str | None,
    traffic: str | None,
    sides: tuple[int | None, int | None],
    flags: JobFlags,
    to: ResultFlags,
) -> None:
    """One kernel: both of --flop and --bytes, or all of --m, --n and --k."""
    product = any(side is not None for side in sides)
    if product and (flop is not None or traffic is not None):
        raise UsageError(
            "both a product and FLOP or bytes", code="U016", help="--m, --n and --k, or --flop and --bytes"
        )
    others = replace(flags, cluster=None, precision=None, specs=None, k=None if product else flags.k)
    if job is not None or others != JobFlags():
        raise UsageError(
            "a kernel has no job",
            code="U016",
            help="name its accelerator with -c, and --precision; leave out the rest",
        )
    if flags.cluster is None:
        raise UsageError(
            "no accelerator given", code="U002", help="name a cluster with -c, such as -c dgx-h100"
        )
    shape = None
    if product:
        m, n = sides
        if m is None or n is None or flags.k is None:
            raise UsageError("a product has three sides", code="U002", help="give --m, --n and --k")
        shape = (m, n, _side(flags.k))
    elif flop is None or traffic is None:
        raise UsageError("a kernel has FLOP and bytes", code="U002", help="give both --flop and --bytes")
    from perfmodel.explain.kernel import place
    from perfmodel.specs.jobs import load_job

    # Any workload will do to look the accelerator up: nothing of it reaches the result.
    found = load_job(
        None,
        overrides={"workload": "resnet50", "cluster": flags.cluster},
        extra_dirs=tuple(flags.specs or ()),
    )
    to.emit(
        place(
            found.cluster,
            flags.precision,
            _above("--flop", flop, "FLOP"),
            _above("--bytes", traffic, "B"),
            shape,
            seed=to.seed,
        )
    )


def _above(flag: str, text: str | None, dimension: str) -> float | None:
    value = _bare(text) if text is not None else None
    value = quantity(flag, text, dimension) if value is None else value
    if value is not None and not 0.0 < value <= _LARGEST:
        raise UsageError(f"{flag} must be above zero and finite, got {text}", code="U021")
    return value


def _bare(text: str) -> float | None:
    """A number without a unit: FLOP and bytes have but one."""
    from perfmodel.units import plain_number

    try:
        return plain_number(text.strip())
    except ValueError:
        return None


def _side(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 99 and 0 < int(text) <= 10**12):
        raise UsageError(f"--k: the inner dimension of a product is a whole number, got {text}", code="U021")
    return int(text)
