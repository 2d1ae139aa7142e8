"""`perfmodel init`: a commented job, policies and a CI snippet to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.options import NoColorOption, QuietOption, write_text
from perfmodel.errors import Problem, UsageError

TEMPLATES = Path(__file__).with_name("templates")
NAMES = ("job.yaml", "perfmodel.yaml", "perfmodel-ci.yml")
SCHEMAS = {"job": ".perfmodel/job.json", "policies": ".perfmodel/policies.json"}


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where to write; made when missing.")
    ] = Path(),
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> None:
    """Write job.yaml, perfmodel.yaml and perfmodel-ci.yml; never overwrite."""
    from perfmodel.specs.schema import to_text

    texts = {name: (TEMPLATES / name).read_text(encoding="utf-8") for name in NAMES}
    texts |= {path: to_text(name) for name, path in SCHEMAS.items()}
    _refuse_existing(folder, list(texts))
    try:
        (folder / ".perfmodel").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {folder}: {error.strerror}", code="U014") from None
    for name, text in texts.items():
        write_text(folder / name, text)
        if not quiet:
            typer.echo(f"wrote {folder / name}")
    if not quiet:
        typer.echo(f"next: perfmodel predict {folder / 'job.yaml'}")


def _refuse_existing(folder: Path, names: list[str]) -> None:
    if folder.suffix in (".yaml", ".yml") or (folder.exists() and not folder.is_dir()):
        raise UsageError(
            f"{folder} is not a folder",
            code="U014",
            help="`perfmodel init mine` writes mine/job.yaml and more",
        )
    present = [folder / name for name in names if (folder / name).exists()]
    if present:
        hint = "nothing was written; choose another folder, or move these away"
        raise UsageError(
            [Problem(str(path), code="U017", message="is already there", help=hint) for path in present]
        )


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("init")(init)
