"""`perfmodel workdepth` on graphs in three forms and on a job; every fault of a file told with its line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CSV = "name,time_s,after\nread,1,\nleft,4,read\nright,2,read\nmerge,1,left right\n"
JSON = json.dumps(
    {
        "nodes": [{"id": n, "time_s": t} for n, t in (("read", 1), ("left", 4), ("right", 2), ("merge", 1))],
        "edges": [
            ["read", "left"],
            {"source": "read", "target": "right"},
            ["left", "merge"],
            ["right", "merge"],
        ],
    }
)
DOT = """// a fork and a join
digraph work {
  node [time_s=1];
  read; merge;
  left [time_s=4]; "right" [label="b", time_s="2"]
  read -> left -> merge; read -> "right" -> merge
}
"""
FORMS = {"graph.csv": CSV, "graph.json": JSON, "graph.dot": DOT}


@pytest.mark.parametrize("name", FORMS)
def test_a_fork_and_a_join_in_every_form(run, tmp_path, name):
    (tmp_path / name).write_text(FORMS[name], encoding="utf-8")
    done = run("workdepth", name, "--workers", "1,2,3", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    assert (result["work_s"], result["span_s"]) == (8.0, 6.0)
    assert result["critical_path"] == ["read", "left", "merge"]
    assert result["greedy_s"] == [8.0, 6.0, 6.0]
    assert result["brent_low_s"] == [8.0, 6.0, 6.0]
    assert result["brent_high_s"] == pytest.approx([8.0, 7.0, 20 / 3])
    assert result["speedup"] == pytest.approx([1.0, 4 / 3, 4 / 3])


BAD = {
    "missing.csv": ("name,after\na,\n", 'missing.csv:1: error[T004]: missing column "time_s"'),
    "unknown.csv": ("name,time_s,after\na,1,b\n", 'unknown.csv:2: error[T004]: "b" is no operation'),
    "negative.csv": ("name,time_s,after\na,-1,\n", "negative.csv:2: error[T004]: time_s of"),
    "words.csv": ("name,time_s,after\na,quick,\nb,nan,\n", "words.csv:3: error[T004]: time_s of"),
    "twice.csv": (
        "name,time_s,after\na,1,\na,2,\n",
        'twice.csv:3: error[T004]: operation "a" stands there twice',
    ),
    "loop.csv": ("name,time_s,after\na,1,b\nb,1,a\n", "wait for each other in a loop"),
    "self.csv": ("name,time_s,after\na,1,a\n", "waits for itself"),
    "empty.csv": ("name,time_s,after\n", "no operation in the file"),
    "broken.json": ('{"nodes": [', "broken.json:1: error[T004]: not JSON"),
    "list.json": ("[1, 2]", 'no list "nodes"'),
    "edge.json": ('{"nodes": [{"id": "a", "time_s": 1}], "edges": [["a"]]}', "an edge is [before, after]"),
    "graph.dot": ("graph { a -- b }", "not a directed graph"),
    "odd.dot": ("digraph {\n a [time_s=1]\n a => b\n}", "odd.dot:3: error[T004]: cannot read"),
    "bytes.csv": (b"\xff\xfe\x00", "not UTF-8 text"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_fault_of_a_file_is_told_with_its_line(run, tmp_path, name):
    text, words = BAD[name]
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    done = run("workdepth", name, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert not done.stdout


def test_flags_of_a_job_mean_nothing_to_a_graph(run, tmp_path):
    (tmp_path / "graph.csv").write_text(CSV, encoding="utf-8")
    done = run("workdepth", "graph.csv", "-w", "resnet50", cwd=tmp_path)
    assert done.returncode == 2
    assert "a graph has no workload" in done.stderr
    assert run("workdepth", "gone.csv", cwd=tmp_path).returncode == 2
    assert run("workdepth", "graph.csv", "--workers", "0", cwd=tmp_path).returncode == 2


def test_a_job_as_a_command_of_its_own(tmp_path):
    command = [
        sys.executable,
        "-m",
        "perfmodel",
        "workdepth",
        "-w",
        "pythia-1b",
        "-c",
        "dgx-a100",
        "-k",
        "8..64",
    ]
    plot = tmp_path / "admitted.svg"
    done = subprocess.run([*command, "--plot", str(plot)], capture_output=True, text=True, check=True)
    assert "the computation admits" in " ".join(done.stdout.split())
    assert "predicted" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "ceiling W/D" in plot.read_text(encoding="utf-8")
