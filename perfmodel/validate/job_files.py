"""Families of a folder that a job file describes: the least that scoring one's own runs needs.

Beside `points.csv` with the columns `family,k,step_s`, a file `NAME.yaml` says of the family NAME what a job file says: the
workload, the cluster, the layout, the software. What a line of points.csv states wins over it, cell by cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from perfmodel.errors import Problem, SpecError
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.folders import SUFFIXES
from perfmodel.specs.job import Job
from perfmodel.specs.jobs import load_job
from perfmodel.validate.tables import Row

# Columns of families.csv that a job file has no words for; a family is a group and a publisher of its own.
_NO_WORDS = ("source", "scale_up", "scale_out", "sharding", "publisher")


def job_files(folder: Path, points: Iterable[Row]) -> dict[str, Path]:
    """Job files in `folder` of the families that points name."""
    names = dict.fromkeys(row.text["family"] for row in points)
    found: dict[str, Path] = {}
    for name in names:
        if not name or Path(name).name != name:
            continue
        path = next((p for suffix in SUFFIXES if (p := folder / f"{name}{suffix}").is_file()), None)
        if path is not None:
            found[name] = path
    return found


def read_jobs(files: Mapping[str, Path], catalog: Catalog | None, problems: list[Problem]) -> dict[str, Job]:
    """The jobs; what is wrong with a file goes to `problems`."""
    if not files:
        return {}
    catalog = catalog or Catalog.default()
    found = {}
    for name, path in files.items():
        try:
            found[name] = load_job(path, catalog=catalog)
        except SpecError as error:
            problems += error.problems
    return found


def family_of_job(path: Path, name: str, job: Job) -> Row:
    """The line of families.csv that a job file stands for."""
    node = job.cluster.node
    text = {
        "family": name,
        "group": name,
        "workload": job.workload.name or name,
        "precision": str(job.precision),
        "accelerator": node.accelerator.name,
        "accelerators_per_node": str(node.accelerators_per_node),
        "framework_class": job.framework if job.framework_given else "",
        "regime": "tuned" if job.stack is not None and job.stack.retuned else job.regime,
        **dict.fromkeys(_NO_WORDS, ""),
    }
    number = {
        "accelerators_per_node": float(node.accelerators_per_node),
        "network_gbit_per_s_per_node": None,
        "shard_group": None,
        "cuda": None,
        "bucket_bytes": None,
    }
    return Row(str(path), 1, text, number, "", ())


def with_batch(point: Row, job: Job | None) -> Row:
    """A point with the batch of its job, where it states none itself."""
    if job is None or point.number["global_batch"] is not None or point.number["run_batch"] is not None:
        return point
    batch = float(job.global_batch or round(point.get("k", 1.0)) * (job.batch_per_accelerator or 1))
    return replace(point, number={**point.number, "global_batch": batch})
