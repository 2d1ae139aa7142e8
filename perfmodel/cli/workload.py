"""`perfmodel workload`: a workload spec from a model's config or code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli.options import Format, FormatOption, OutputOption, QuietOption, emit_spec

if TYPE_CHECKING:
    from perfmodel.results.envelope import Result

NameOption = Annotated[
    str | None,
    typer.Option("--name", help="Name of the workload; else that of the output file or of the model."),
]
SHAPES_IN_COMMENTS = 12


def register(app: typer.Typer) -> None:
    """Add the verb with its two ways in."""
    verb = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    verb.command("from-hf")(from_hf)
    verb.command("from-torch")(from_torch)
    app.add_typer(verb, name="workload", help="Write a workload spec from a model's config or code.")


def from_hf(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.json", help="config.json of a model on the hub.")],
    name: NameOption = None,
    seq_len: Annotated[int | None, typer.Option("--seq-len", min=1, help="Tokens per sequence.")] = None,
    output: OutputOption = None,
    format: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Read a Hugging Face config: dimensions and the exact parameter count, as workload YAML."""
    from perfmodel.results.envelope import Result
    from perfmodel.workloads.from_hf import read_config

    found = read_config(config, name=name or _stem(output), seq_len=seq_len)
    parts = {key: getattr(found.parameters, key) for key in found.parameters.__slots__ if key != "active"}
    result = {
        "workload": dict(found.fields),
        "params": found.parameters.total,
        "active_params": found.parameters.active,
        "params_by_part": {key: value for key, value in parts.items() if value},
        "notes": list(found.remarks),
    }
    _write(
        Result("workload", {"config": config.name}, result),
        found.fields,
        found.remarks,
        output,
        format,
        quiet,
    )


def from_torch(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FN", help="Function that returns (module, inputs); a file.py works too."
        ),
    ],
    name: NameOption = None,
    samples: Annotated[
        int | None,
        typer.Option("--samples", min=1, help="Samples in the inputs; else their first dimension."),
    ] = None,
    output: OutputOption = None,
    format: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Trace a PyTorch module on the meta device (no memory, no GPU): FLOP, bytes, shapes, as workload YAML."""
    from perfmodel.results.envelope import Result
    from perfmodel.workloads.from_torch import describe, read_module

    found = read_module(target, name=name or _stem(output), samples=samples)
    comments = describe(found.trace, SHAPES_IN_COMMENTS)
    _write(
        Result("workload", {"target": target}, found.result()), found.fields, comments, output, format, quiet
    )


def _stem(output: Path | None) -> str | None:
    """The catalogue finds an entry by its file name, so a YAML file names what it holds."""
    return output.stem if output is not None and output.suffix in (".yaml", ".yml") else None


def _write(
    result: Result,
    fields: Mapping[str, object],
    comments: Sequence[str],
    output: Path | None,
    format: Format | None,
    quiet: bool,
) -> None:
    from perfmodel.workloads.text import render

    about = f": {fields['name']}, {result.result['params']:,} parameters"
    emit_spec(result, render(fields, comments), format, output, quiet, about)
