"""Write again what README, docs and notebooks show: accuracy table, console output, picture, notebook outputs.

    python docs/refresh_readme.py                              # everything; validates (minutes at most)
    python docs/refresh_readme.py --validation result.json     # the table from a saved `perfmodel validate -o`
    python docs/refresh_readme.py --no-validation              # leave the table as it is

Run it after the priors are fitted again. Every number then comes from the tool.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_tools"))

import accuracy  # noqa: E402
import notebooks  # noqa: E402
import snippets  # noqa: E402


def refresh_table(saved: Path | None) -> None:
    """The accuracy table of the README."""
    if saved is not None:
        envelope: dict[str, Any] = json.loads(saved.read_text(encoding="utf-8"))
    else:
        from perfmodel.validate.validation import validate

        envelope = validate().envelope()
    page = ROOT / "README.md"
    page.write_text(
        accuracy.replaced(page.read_text(encoding="utf-8"), accuracy.table(envelope)), encoding="utf-8"
    )


def refresh_pages() -> None:
    """The output of every marked console block."""
    for page in snippets.pages():
        text = page.read_text(encoding="utf-8")
        if not any(True for _ in snippets.blocks(text)):
            continue
        with tempfile.TemporaryDirectory() as folder, snippets.workplace(Path(folder)):
            fresh = snippets.refreshed(text)
        if fresh != text:
            page.write_text(fresh, encoding="utf-8")
            print(f"renewed {page.relative_to(ROOT)}")


def refresh_picture() -> None:
    """The picture of the README: the job of its first console block."""
    from perfmodel.decide.prediction import predict
    from perfmodel.report.plots import figure, save
    from perfmodel.specs.jobs import load_job

    envelope = predict(load_job(ROOT / "examples" / "purchase.yaml")).envelope()
    save(figure(envelope, "speedup"), ROOT / "docs" / "images" / "speedup.svg")


# Pictures of the theory pages and the commands that draw them; none rests on a belief.
PICTURES = {
    "law-amdahl.svg": "law amdahl --serial 0.01,0.05,0.20 -k 1..512",
    "law-gustafson.svg": "law gustafson --serial 0.01,0.05,0.20 -k 1..512",
    "law-usl.svg": "law usl --sigma 0.03 --kappa 0,0.0002,0.002 -k 1..512",
    "law-communication.svg": "law communication --serial 0.01 --term ring --alpha 20us --message 100MB --bandwidth 25GB/s -k 1..512",
    "bend-serial.svg": "study examples/textbook/bend-serial.csv --regime strong",
    "bend-communication.svg": "study examples/textbook/bend-communication.csv --regime strong",
    "bend-straggler.svg": "study examples/textbook/bend-straggler.csv --regime strong",
}


def refresh_theory_pictures() -> None:
    """The pictures of the theory pages."""
    from perfmodel.cli.main import main as perfmodel

    for name, command in PICTURES.items():
        drawn = ROOT / "docs" / "images" / name
        with tempfile.TemporaryDirectory() as folder, snippets.workplace(Path(folder)):
            if perfmodel([*command.split(), "--quiet", "--plot", str(drawn)]):
                raise ValueError(f"{name}: {command}")


def refresh_notebooks() -> None:
    """The outputs of every notebook."""
    for path in notebooks.notebooks():
        with notebooks.inside(path.parent):
            fresh = notebooks.dump(notebooks.execute(notebooks.read(path)))
        if fresh != path.read_text(encoding="utf-8"):
            path.write_text(fresh, encoding="utf-8")
            print(f"renewed {path.relative_to(ROOT)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--validation", type=Path, help="a saved result of perfmodel validate")
    parser.add_argument("--no-validation", action="store_true", help="leave the accuracy table as it is")
    given = parser.parse_args()
    if not given.no_validation:
        refresh_table(given.validation)
    refresh_pages()
    refresh_picture()
    refresh_theory_pictures()
    refresh_notebooks()


if __name__ == "__main__":
    main()
