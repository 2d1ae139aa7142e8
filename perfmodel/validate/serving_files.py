"""Where a folder of measured data has its serving runs, and which answers of them are scored."""

from __future__ import annotations

from pathlib import Path
from typing import Final

NAME: Final = "runs.csv"
SERVED: Final = ("throughput", "tpot", "ttft", "tpot_p99", "ttft_p99")
_PLACES: Final = (NAME, f"serving/{NAME}")


def runs_file(folder: Path) -> Path | None:
    """Beside the tables of training, or below `serving`.

    >>> runs_file(Path("nowhere")) is None
    True
    """
    return next((folder / place for place in _PLACES if (folder / place).is_file()), None)
