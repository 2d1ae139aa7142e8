"""Runs of the corpus whose public configuration is known: predicted from it, and from the labels of the table.

Both predictions take the machine, K and, where the table has one, the batch of the measured point, and the shipped priors; the
configuration gives the model, the layout and the stack. The priors were fitted on these labels, this family's among them: the
comparison tells what reading the file changes, not how far a stranger's run would be off.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.errors import SpecError
from perfmodel.frameworks.reader import read_texts
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.job import Job
from perfmodel.specs.jobs import job_from_tree
from perfmodel.specs.loader import read_file
from perfmodel.training.curve import centre, coefficients
from perfmodel.training.given import as_run
from perfmodel.training.setup import setup_of
from perfmodel.training.step import step
from perfmodel.validate.corpus import read_corpus
from perfmodel.validate.jobs import Jobs, cluster_words
from perfmodel.validate.resolve import known_workload
from perfmodel.validate.tables import Row

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "frameworks" / "cases"

# framework, configuration: families of runs that were started with it; their sources name it.
FAMILIES: dict[tuple[str, str], tuple[str, ...]] = {
    ("maxtext", "two-slices-v4"): ("maxtext-22b-v4-128",),
    ("maxtext", "128b-v5p"): ("maxtext-128b-v5p-256", "maxtext-128b-v5p-512"),
    ("maxtext", "512b-v5p"): ("maxtext-512b-v5p-1024",),
    ("maxtext", "gpt3-175b-int8"): ("v5p-gpt3-175b-int8",),
    ("maxtext", "gpu-llama2-7b"): ("maxtext-llama2-7b-a3",),
    ("maxtext", "recipe-llama2-7b-a3mega"): ("gcp-a3m-llama2-7b",),
    ("maxtext", "recipe-llama3-70b-a3ultra"): ("gcp-a3u-llama70b-maxtext",),
    ("maxtext", "recipe-llama3-405b-a4"): ("gcp-a4-llama405b-maxtext",),
    ("maxtext", "recipe-llama3-70b-a4"): ("gcp-a4-llama70b-maxtext",),
    # The file is of 2024, with Megatron core; of the tables of its repository the latest one.
    ("nemo", "gpt3-5b-training"): ("nemolauncher-gpt-5b-2023-10-04",),
    ("nemo", "recipe-gpt3-175b-a3mega"): ("gcp-a3m-gpt3-175b",),
    ("nemo", "recipe-mixtral-a3ultra"): ("gcp-a3u-mixtral-bf16",),
    ("megatron-lm", "llama3-8b-fp8"): ("mlm-llama8b-fp8",),
    ("megatron-bridge", "llama31-405b-container"): ("bridge-llama3-405b-fp8-h100-sxm5-80gb-distopt",),
}  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """One measured point: predicted over measured, from the configuration and from the labels."""

    family: str
    configuration: str
    k: int
    measured_s: float
    by_configuration: float
    by_labels: float


def compared(folder: Path) -> tuple[list[Compared], list[str]]:
    """Every point that both can predict, and why others are left out."""
    catalog = Catalog.default()
    corpus = read_corpus(folder, catalog)
    jobs = Jobs(catalog)
    rows: list[Compared] = []
    left_out: list[str] = []
    for (framework, name), families in FAMILIES.items():
        case = next(one for one in read_file(CASES / f"{framework}.yaml").plain() if one["name"] == name)
        for family_name in families:
            family = corpus.families[family_name]
            workload = known_workload(family.text["workload"], corpus, catalog)
            if workload is None:
                left_out.append(f"{family_name}: its workload is not known")
                continue
            for point in _points(corpus.points, family_name):
                k = int(_number(point, "k"))
                try:
                    labels = jobs.job(family, point, workload)
                    said = _configured(case, family, point, catalog)
                    ratios = [_ratio(job, point) for job in (said, labels)]
                except SpecError as error:
                    left_out.append(f"{family_name} at K = {k}: {error.problems[0].message}")
                    continue
                if not np.isfinite(ratios).all():
                    left_out.append(f"{family_name} at K = {k}: one of them has no time")
                    continue
                rows.append(
                    Compared(family_name, f"{framework}: {name}", k, _number(point, "step_s"), *ratios)
                )
    return rows, left_out


def _number(point: Row, name: str) -> float:
    value = point.number[name]
    assert value is not None
    return value


def _points(points: tuple[Row, ...] | list[Row], family: str) -> Iterator[Row]:
    """The steady points of a family without a variant: those of the configuration as it was published."""
    for point in points:
        if point.text["family"] == family and not point.text.get("variant"):
            yield point


def _configured(case: dict[str, object], family: Row, point: Row, catalog: Catalog) -> Job:
    """The job of a configuration on the machine, at the K and the batch of a point."""
    files = case.get("files") or {f"{case['name']}.txt": case["text"]}
    assert isinstance(files, dict)
    given = dict(case.get("given") or {})  # type: ignore[call-overload]
    given["k"] = str(int(_number(point, "k")))
    reading = read_texts([(str(text), str(name)) for name, text in files.items()], given)
    overrides = {**given, "cluster": cluster_words(family, point), "precision": family.text["precision"]}
    if point.text.get("global_batch"):
        overrides["global_batch"] = int(_number(point, "global_batch"))
    return job_from_tree(reading.assembled.tree, Path(), catalog, overrides)


def _ratio(job: Job, point: Row) -> float:
    """Predicted over measured; points without a batch state the time of one sample, or token, on each accelerator."""
    setup = setup_of(job)
    _, logs = centre(setup, shipped_beliefs())
    at, _ = as_run(setup)  # it took place, whatever memory the model holds that it needs
    made = step(setup.operations, setup.machine, at, coefficients(setup, logs[:, None], setup.k))
    seconds = float(made.time_s[0])
    if not point.text.get("global_batch"):
        per = float(setup.global_batch[0]) / float(setup.k[0])
        tokens = float(setup.operations.tokens) if "one token" in point.text.get("note", "") else 1.0
        seconds /= per * tokens
    return seconds / _number(point, "step_s")


def table(rows: list[Compared]) -> str:
    """Errors by family, and over all of them."""
    lines = [f"{'family':48} {'points':>6} {'configuration':>14} {'labels':>8}"]
    errors: list[tuple[float, float]] = []
    for family in dict.fromkeys(row.family for row in rows):
        own = [row for row in rows if row.family == family]
        pair = tuple(
            float(np.median([abs(getattr(row, by) - 1.0) for row in own]))
            for by in ("by_configuration", "by_labels")
        )
        errors.append((pair[0], pair[1]))
        lines.append(f"{family:48} {len(own):6d} {pair[0]:14.1%} {pair[1]:8.1%}")
    medians = [float(np.median(side)) for side in zip(*errors, strict=True)]
    lines.append(f"{'median over families':48} {len(rows):6d} {medians[0]:14.1%} {medians[1]:8.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    found, missing = compared(ROOT / "validation" / "measured")
    print(table(found))
    print("\n".join(missing), file=sys.stderr)
