"""Write docs/purchases.md: runs that somebody bought, as a buyer would have asked for them, beside what was published.

Run from a checkout: `python validation/purchases.py`. Every row is one command; its band is the prediction's own.
"""

from __future__ import annotations

import json
import shlex
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel.decide.prediction import predict
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.jobs import load_job
from perfmodel.specs.loader import read_file

HERE = Path(__file__).resolve().parent
RECORDS = HERE / "purchases.yaml"
OUTPUT = HERE.parent / "docs" / "purchases.md"
FLAGS = {
    "workload": "-w",
    "cluster": "-c",
    "k": "-k",
    "seq_len": "--seq-len",
    "global_batch": "--global-batch",
    "precision": "--precision",
}
DAY_S, HOUR_S = 86400.0, 3600.0
REPEATED = 4.0 / 3.0  # FLOP that hardware did over those of the model, where the forward pass is repeated
# What is published -> words, unit, and whether it grows with the time of a step.
MEASURES = {
    "gpu_hours": ("accelerator hours", True),
    "days": ("days", True),
    "step_s": ("s a step", True),
    "tokens_per_s_each": ("tokens/s each", False),
    "tflop_per_s_each": ("TFLOP/s each", False),
    "hardware_tflop_per_s_each": ("TFLOP/s each, repeated ones too", False),
}


@dataclass(frozen=True)
class Scored:
    """One record with its prediction in the published measure."""

    name: str
    source: str
    command: str
    measure: str
    published: float
    predicted: float
    low: float
    high: float
    miss: str
    read: str
    ours: str

    @property
    def inside(self) -> bool:
        """Whether the published number is in the band."""
        return self.low <= self.published <= self.high


def records() -> list[dict[str, Any]]:
    """The records as they are written."""
    return [_plain(item) for item in read_file(RECORDS).value]


def _plain(tree: Any) -> Any:
    value = getattr(tree, "value", tree)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def arguments(job: dict[str, Any]) -> list[str]:
    """The command that a buyer types, without its program."""
    made = ["predict"]
    for key, value in job.items():
        if key == "layout":
            made += ["--layout", ",".join(f"{name}={said}" for name, said in value.items())]
        elif key in FLAGS and not isinstance(value, dict):
            made += [FLAGS[key], str(value)]
        else:
            made += ["--set", f"{key}={json.dumps(value) if isinstance(value, dict) else value}"]
    return made


def scored(record: dict[str, Any], catalog: Catalog) -> Scored:
    """The prediction of one record."""
    job = load_job(record["job"], catalog=catalog)
    result = predict(job, draws=0).result
    ((measure, published),) = record["published"].items()
    if result["time_s"][0] is None:
        raise ValueError(f"{record['name']}: {result['reason'][0]}")
    time, low, high = (float(result[key][0]) for key in ("time_s", "time_s_low", "time_s_high"))
    tflop = result["tflop_per_s_per_accelerator"][0]
    value = {
        "step_s": lambda: time,
        "days": lambda: result["run"]["time_s"][0] / DAY_S,
        "gpu_hours": lambda: result["run"]["time_s"][0] / HOUR_S * result["k"][0],
        "tokens_per_s_each": lambda: result["tokens_per_s_per_accelerator"][0],
        "tflop_per_s_each": lambda: tflop,
        "hardware_tflop_per_s_each": lambda: tflop * REPEATED,
    }[measure]()
    ends = (low / time, high / time) if MEASURES[measure][1] else (time / high, time / low)
    command = shlex.join(["perfmodel", *arguments(record["job"])])
    predicted = float(value)
    return Scored(
        record["name"], record["source"], command, measure, float(published), predicted, predicted * ends[0], predicted * ends[1],
        str(record.get("miss", "")), str(record["read"]), str(record.get("ours", "")),
    )  # fmt: skip


def page(rows: list[Scored]) -> str:
    """The page as Markdown."""
    inside = sum(row.inside for row in rows)
    lines = [
        "# Purchases on record",
        "",
        "Written by `validation/purchases.py` from `validation/purchases.yaml`. Training runs whose size and length their buyers",
        "published, each asked for as a buyer would: by model, machine, number of accelerators, batch, and the layout or software",
        "where the record names them. Nothing is fitted to these rows here, though the beliefs saw step times of some of the runs.",
        "",
        "Read the share inside with care. The bands are wide, a factor of two each way where nobody states the software. Some records",
        "were first asked with layouts and software that we had chosen after a miss; those choices are gone: a job now holds what its",
        "record states, what the tool cannot do without is named under *ours*, and the tool chooses the rest. The last seven records were",
        "added after that, unseen. Which facts were read again, in copies and citations of the sources, is said with each record; the",
        "others stand as remembered. Hours that buyers publish mostly hold restarts, which the predictions do not.",
        "",
        f"Of {len(rows)} records {inside} lie inside the 90 % band ({inside / len(rows):.0%}). In time, the middle record takes "
        f"{_middle(rows):.2f} times as long as predicted.",
        "",
        "| run | predicted | band | published | of | inside |",
        "|---|--:|--:|--:|---|---|",
    ]
    lines += [
        f"| {row.name} | {_number(row.predicted)} | {_number(row.low)} to {_number(row.high)} | {_number(row.published)} "
        f"| {MEASURES[row.measure][0]} | {'yes' if row.inside else 'no'} |"
        for row in rows
    ]
    lines += ["", "## Misses", ""]
    lines += [
        f"- **{row.name}**, {row.predicted / row.published:.2f} times the published: {row.miss or 'not explained'}."
        for row in rows
        if not row.inside
    ]
    lines += ["", "## Commands and sources", ""]
    for row in rows:
        facts = f"Read again: {row.read}." + (f" Ours: {row.ours}." if row.ours else "")
        lines += [f"- {row.name} ({row.source}). {facts}", "", "  ```", f"  {row.command}", "  ```", ""]
    return "\n".join(lines)


def _middle(rows: list[Scored]) -> float:
    """The median of published over predicted time."""
    return statistics.median(
        row.published / row.predicted if MEASURES[row.measure][1] else row.predicted / row.published
        for row in rows
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def main() -> None:
    """Write the page."""
    catalog = Catalog.default()
    rows = [scored(record, catalog) for record in records()]
    OUTPUT.write_text(page(rows), encoding="utf-8")
    print(f"wrote {OUTPUT.name}: {sum(row.inside for row in rows)} of {len(rows)} inside")


if __name__ == "__main__":
    main()
