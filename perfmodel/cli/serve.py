"""`perfmodel serve`: the what-if page and its JSON API, on loopback."""

from __future__ import annotations

import functools
import importlib.util
import os
from typing import Annotated

import typer

from perfmodel.cli.options import BeliefsOption, QuietOption, SpecsOption, load_beliefs
from perfmodel.errors import UsageError

HostOption = Annotated[
    str, typer.Option("--host", help="Address to listen on; anything but loopback needs --allow-host.")
]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")]
AllowOption = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="Another Host name to answer to. Repeatable."),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers", min=0, max=256, help="Processes that predict; default one a core, 0 for threads."
    ),
]
BrowserOption = Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")]


def serve(
    host: HostOption = "127.0.0.1",
    port: PortOption = 8765,
    allow_host: AllowOption = None,
    workers: WorkersOption = None,
    open_page: BrowserOption = False,
    beliefs: BeliefsOption = None,
    specs: SpecsOption = None,
    quiet: QuietOption = False,
) -> None:
    """The what-if page: pick a workload and a cluster, drag the sliders, see the curve."""
    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} not installed", help='pip install "perfmodel[web]"')
    from perfmodel.web import server
    from perfmodel.web.answers import Library
    from perfmodel.web.workshop import Workers

    if not server.is_loopback(host) and not allow_host:
        raise UsageError(
            f"--host {host} would answer other machines",
            help="name the Host they will use with --allow-host NAME; there is no password, so put a proxy in front",
        )
    known = load_beliefs(beliefs)
    make = functools.partial(Library, tuple(specs or ()), known)
    processes = (os.cpu_count() or 1) if workers is None else workers
    listener = server.bind(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listener.getsockname()[1]}/"
    if not quiet:
        typer.echo(f"perfmodel is listening on {address} (Ctrl-C stops it)", err=True)
    if open_page:
        typer.launch(address)
    limits = server.limits_for(host, tuple(allow_host or ()))
    server.build(Workers(make, processes), limits).run(sockets=[listener])


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("serve")(serve)
