"""The tools of `perfmodel mcp`: what they answer, what they refuse, and the protocol itself where its SDK is installed."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from perfmodel.cli.main import main
from perfmodel.errors import SpecError
from perfmodel.mcp.tools import Tools

HAS_SDK = importlib.util.find_spec("mcp") is not None


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    root = tmp_path / "root"
    root.mkdir()
    (root / "job.yaml").write_text("workload: llama3-8b\ncluster: dgx-h100\nglobal_batch: 512\nk: 64\n")
    (tmp_path / "outside.yaml").write_text("workload: llama3-8b\ncluster: dgx-h100\n")
    return Tools(root)


def test_a_tool_answers_as_the_command_does(tools: Tools, capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(
        tools.predict(job="job.yaml", changes={"layout": {"tp": 2}, "steps": 1000}, form="json")
    )
    path = str(tools.root / "job.yaml")
    assert main(["predict", path, "--set", "layout={tp: 2}", "--set", "steps=1000", "--format", "json"]) == 0
    assert answer["result"]["time_s"] == json.loads(capsys.readouterr().out)["result"]["time_s"]
    assert "Slurm" in tools.predict(job="job.yaml", changes={"steps": 1000}, wall_time=True)


def test_a_complaint_is_raised_with_its_line(tools: Tools) -> None:
    (tools.root / "bad.yaml").write_text("workload: llama3-8b\ncluster: dgx-h1000\n")
    with pytest.raises(SpecError, match=r"bad.yaml:2:\d+: error\[S008\]") as caught:
        tools.predict(job="bad.yaml")
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "../outside.yaml"],
        ["predict", "/etc/passwd"],
        ["predict", "--set=workload={file: /etc/passwd}"],
        ["predict", "--set=jitter={file: ../x.csv}"],
        ["predict", '--set=workload={"torch": "os:system"}'],
        ["predict", "--set=workload={torch: 'os:system'}"],
        ["predict", "job.yaml", "--output=x.json"],
        ["predict", "job.yaml", "-o", "x.json"],
        ["predict", "job.yaml", "--report=x.html"],
        ["predict", "--workload=~/secret.yaml"],
        ["study", "link.csv"],
    ],
)
def test_nothing_is_written_run_or_read_elsewhere(tools: Tools, words: list[str]) -> None:
    (tools.root / "link.csv").symlink_to("/etc/passwd")
    before = sorted(path.name for path in tools.root.iterdir())
    with pytest.raises(SpecError, match="U045"):
        tools.run(words, "md")
    assert sorted(path.name for path in tools.root.iterdir()) == before


def test_units_are_no_paths(tools: Tools) -> None:
    tools.guard(
        [
            "predict",
            "--set=price={per_accelerator: 2 USD/h}",
            '--set=cluster.node.scale_up="25 GB/s"',
            "job.yaml",
        ]
    )


def test_every_tool_is_described_and_typed(tools: Tools) -> None:
    named = [tool.__name__ for tool in tools.all()]
    assert len(named) == len(set(named)) >= 12
    for tool in tools.all():
        assert inspect.getdoc(tool)
        hints = inspect.signature(tool, eval_str=True).parameters.values()
        assert all(parameter.annotation is not inspect.Parameter.empty for parameter in hints)


@pytest.mark.skipif(HAS_SDK, reason="the mcp package is installed")
def test_without_the_sdk_the_extra_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp"]) == 2
    assert 'pip install "perfmodel[mcp]"' in capsys.readouterr().err


@pytest.mark.skipif(not HAS_SDK, reason="the mcp package is not installed")
def test_a_client_calls_tools_over_stdio(tools: Tools) -> None:
    from mcp import ClientSession, StdioServerParameters, stdio_client

    async def talk() -> tuple[set[str], Any, Any]:
        started = StdioServerParameters(
            command=sys.executable, args=["-m", "perfmodel", "mcp", "--root", str(tools.root)]
        )
        async with stdio_client(started) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            listed = await session.list_tools()
            assert all(tool.annotations.read_only_hint for tool in listed.tools)
            good = await session.call_tool("predict", {"job": "job.yaml"})
            bad = await session.call_tool("predict", {"job": "/etc/passwd"})
            return {tool.name for tool in listed.tools}, good, bad

    names, good, bad = asyncio.run(talk())
    assert names == {tool.__name__ for tool in tools.all()}
    assert not good.is_error
    assert "llama3-8b" in good.content[0].text
    assert bad.is_error
    assert "are not read" in bad.content[0].text
