"""`perfmodel mcp`: the verbs as tools of the Model Context Protocol, on standard input and output."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.options import BeliefsOption, SpecsOption, load_beliefs
from perfmodel.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("mcp")(mcp)


def mcp(
    root: Annotated[
        Path, typer.Option("--root", metavar="DIR", help="The folder whose files may be read.")
    ] = Path(),
    beliefs: BeliefsOption = None,
    specs: SpecsOption = None,
) -> None:
    """The verbs as MCP tools on stdio, for assistants and editors: read-only, files of one folder alone."""
    if importlib.util.find_spec("mcp") is None:
        raise UsageError("the MCP SDK is not installed", help='pip install "perfmodel[mcp]"')
    if not root.is_dir():
        raise UsageError(f"--root: no folder {root}", code="U014")
    load_beliefs(beliefs)  # bad ones are told before a client is there
    from perfmodel.mcp.server import serve
    from perfmodel.mcp.tools import Tools

    folders = tuple(folder.resolve() for folder in specs or ())
    serve(Tools(root.resolve(), folders, None if beliefs is None else beliefs.resolve()))
