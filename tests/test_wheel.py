"""The built wheel in a clean environment: catalogue and demo work from another folder."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(target.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment that holds the wheel alone; its dependencies come from the one that runs the tests."""
    home = tmp_path_factory.mktemp("env")
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    site = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def run(home: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PERFMODEL"))
    }
    command = [str(home / "bin" / "perfmodel"), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_ships_the_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert sum(name.startswith("perfmodel/_hardware_specs/accelerators/") for name in names) >= 87
    assert sum(name.startswith("perfmodel/workloads/zoo/") for name in names) >= 188
    assert "perfmodel/cli/templates/job.yaml" in names
    assert "perfmodel/py.typed" in names


def test_it_is_the_wheel_that_runs(installed: Path, tmp_path: Path) -> None:
    code = "import perfmodel; print(perfmodel.__file__)"
    done = subprocess.run(
        [str(installed / "bin" / "python"), "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(installed) in done.stdout


def test_catalog_list(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "catalog", "list", "accelerators", "--sort", "memory", "--format", "csv")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 88


def test_init(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "init", "new")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "new" / "job.yaml").is_file()


def test_demo(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "demo")
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert (tmp_path / "perfmodel-demo.html").stat().st_size > 1000
