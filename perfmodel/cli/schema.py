"""`perfmodel schema`: JSON Schema for editors."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from perfmodel.cli.options import NoColorOption, OutputOption, write_text


def schema(
    name: Annotated[
        str | None,
        typer.Argument(
            help="accelerator, link, node, cluster, workload, layout, price, grid, job, claim, service-claim, policies."
        ),
    ] = None,
    output: OutputOption = None,
    no_color: NoColorOption = False,
) -> None:
    """Print the JSON Schema of a spec; without a name, the names."""
    from perfmodel.specs.schema import names, to_text

    text = "".join(f"{item}\n" for item in names()) if name is None else to_text(name)
    if output is not None:
        write_text(output, text)
    else:
        sys.stdout.write(text)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("schema")(schema)
