"""`make test-lowest`: the lowest versions that pyproject.toml declares, as constraints for pip.

python tests/supply/lowest.py > lowest.txt
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

EXTRAS = ("web", "dask", "load")  # those that a user installs; test tools and torch are taken as they come


def lowest(text: str) -> list[str]:
    """Pins of every requirement of a pyproject that says from which version on.

    >>> lowest('[project]\\ndependencies = ["numpy>=1.26", "pydantic>=2.7,<3", "x"]')
    ['numpy==1.26', 'pydantic==2.7']
    """
    project = tomllib.loads(text)["project"]
    optional = project.get("optional-dependencies", {})
    asked = [*project["dependencies"], *(item for extra in EXTRAS for item in optional.get(extra, []))]
    found = (re.match(r"([\w.-]+)>=([\w.]+)", item) for item in asked)
    return [f"{match[1]}=={match[2]}" for match in found if match]


if __name__ == "__main__":
    sys.stdout.write("\n".join(lowest((Path(__file__).parents[2] / "pyproject.toml").read_text())) + "\n")
