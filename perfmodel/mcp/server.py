"""The tools on standard input and output, by the official Python SDK."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from perfmodel.errors import SpecError
from perfmodel.mcp.tools import Tools
from perfmodel.results.envelope import __version__

ABOUT = (
    "Predicts how distributed training and serving of models scales: step time with 90 % bands, memory, cost, energy, the best "
    "layout, and why a run is slow. Answers are Markdown, or JSON with form=json. Nothing is written."
)


def serve(tools: Tools) -> None:
    """Answer until the client closes standard input."""
    server_of(tools).run(transport="stdio")


def server_of(tools: Tools) -> Any:
    """The server with every tool, each marked as one that only reads."""
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations

    def told(tool: Callable[..., str]) -> Callable[..., str]:
        """The tool with its complaints as the SDK hands them to a client."""

        @functools.wraps(tool)
        def call(*args: Any, **said: Any) -> str:
            try:
                return tool(*args, **said)
            except SpecError as error:
                raise ToolError(str(error)) from None

        return call

    server = MCPServer("perfmodel", instructions=ABOUT, version=__version__, log_level="ERROR")
    only_reads = ToolAnnotations(read_only_hint=True, open_world_hint=False, destructive_hint=False)
    for tool in tools.all():
        server.tool(name=tool.__name__, annotations=only_reads, structured_output=False)(told(tool))
    return server
