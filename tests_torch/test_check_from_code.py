"""The gate reads the model from the code that is committed: a wider layer moves the prediction."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MODEL = """import torch
from torch import nn

WIDTH = 4096


def build():
    layers = [nn.Linear(1024, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1024)]
    return nn.Sequential(*layers), torch.randn(8, 1024)
"""
JOB = """workload: {torch: "mypkg.model:build"}
cluster: dgx-a100
global_batch: 65536
k: 1..64
"""
POLICIES = """jobs: {train: job.yaml}
policies:
  - change(time, k=8) <= 5 %
"""


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("perfmodel")
    return subprocess.run(
        [str(program), "check", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_a_wider_model_fails_the_gate_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg" / "__init__.py").write_text("", encoding="utf-8")
    code = tmp_path / "mypkg" / "model.py"
    code.write_text(MODEL, encoding="utf-8")
    (tmp_path / "job.yaml").write_text(JOB, encoding="utf-8")
    (tmp_path / "perfmodel.yaml").write_text(POLICIES, encoding="utf-8")
    first = check(tmp_path, "--update-baseline", "--quiet")
    assert (first.returncode, first.stderr) == (0, "")
    assert check(tmp_path, "--quiet").returncode == 0
    code.write_text(MODEL.replace("WIDTH = 4096", "WIDTH = 8192"), encoding="utf-8")
    wider = check(tmp_path, "--format", "json")
    assert wider.returncode == 1, wider.stderr
    result = json.loads(wider.stdout)["result"]
    assert [policy["verdict"] for policy in result["policies"]] == ["fail"]
    assert any(change["cause"].startswith("workload") for change in result["changes"])
