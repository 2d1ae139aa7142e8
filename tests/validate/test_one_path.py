"""A measured run is a job like any other: its file, read and predicted, gives the number that `validate` scores."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.job import Job
from perfmodel.specs.jobs import job_from_tree
from perfmodel.specs.loader import Mark, Source, graft
from perfmodel.training.curve import curve
from perfmodel.training.setup import setup_of
from perfmodel.validate.corpus import Corpus
from perfmodel.validate.jobs import Jobs, words_of, workload_of
from perfmodel.validate.protocol import Scored, score_mode
from perfmodel.validate.resolve import Resolved, known_workload

SAME = 1e-9
CATALOG = Catalog.default()


@pytest.fixture(scope="module")
def scored(resolved: Resolved) -> Scored:
    """Every family that states its batches, with the shipped beliefs."""
    data = resolved.observations
    ids = [i for i, rows in enumerate(data.rows) if rows.size and not data.normalised[rows].any()]
    return score_mode(data, "datasheet", ids, lambda family: shipped_beliefs())


def written(corpus: Corpus, resolved: Resolved, row: int) -> Job:
    """The job of a point as a person would write it, read as a file is."""
    family, point = resolved.families[resolved.observations.family[row]], resolved.points[row]
    workload = known_workload(family.text["workload"], corpus, CATALOG)
    assert workload is not None
    device = CATALOG.get("accelerators", family.text["accelerator"])
    words: dict[str, Any] = words_of(family, point, workload, device.memory)
    words["workload"] = workload_of(point, workload).model_dump(mode="json", exclude_none=True)
    if "bucket" in words:
        words["bucket"] = f"{words['bucket']:.0f} B"
    return job_from_tree(graft(words, Mark(Source(""))), Path(), CATALOG, {})


def differing(jobs: Iterable[tuple[int, Job]], scored: Scored) -> dict[int, float]:
    """Points whose job is predicted otherwise than `validate` scores them: time, or width of the band (log)."""
    position = {int(row): i for i, row in enumerate(scored.rows)}
    apart = {}
    for row, job in jobs:
        found = curve(setup_of(job), shipped_beliefs(), draws=0)
        if found.feasible[0]:
            i = position[row]
            time = abs(np.log(found.time_s[0]) - scored.predicted[i])
            width = abs(np.log(found.high_s[0] / found.time_s[0]) - scored.half[i])
            if max(time, width) > SAME:
                apart[row] = max(time, width)
    return apart


def test_job_files_of_measured_runs_are_predicted_as_validate_scores_them(
    corpus: Corpus, resolved: Resolved, scored: Scored
) -> None:
    families = np.unique(resolved.observations.family[scored.rows])
    rows = [int(resolved.observations.rows[i][-1]) for i in families[::24]]
    assert len(rows) > 40
    assert differing(((row, written(corpus, resolved, row)) for row in rows), scored) == {}


@pytest.mark.slow
def test_every_family_is_predicted_as_validate_scores_it(
    corpus: Corpus, resolved: Resolved, scored: Scored
) -> None:
    jobs = Jobs(CATALOG)
    found = []
    for i in np.unique(resolved.observations.family[scored.rows]):
        family = resolved.families[i]
        workload = known_workload(family.text["workload"], corpus, CATALOG)
        assert workload is not None
        rows = resolved.observations.rows[i]
        found += [(int(row), jobs.job(family, resolved.points[row], workload)) for row in {rows[0], rows[-1]}]
    assert len(found) > 1000
    assert differing(found, scored) == {}


def test_a_job_made_without_its_file_is_the_one_that_the_file_makes(
    corpus: Corpus, resolved: Resolved
) -> None:
    for row in range(0, len(resolved.points), 601):
        family = resolved.families[resolved.observations.family[row]]
        workload = known_workload(family.text["workload"], corpus, CATALOG)
        assert workload is not None
        made = Jobs(CATALOG).job(family, resolved.points[row], workload)
        read = written(corpus, resolved, row)
        for name in (
            "precision", "seq_len", "global_batch", "k", "framework", "layout", "sync_every", "bucket", "timed_steps",
        ):  # fmt: skip
            mine, theirs = getattr(made, name), getattr(read, name)
            if name == "layout":  # which a file's reader completes by its sharding
                theirs = theirs.model_copy(update={"sharding": mine.sharding})
            assert mine == theirs, name
        assert made.cluster.network_bytes_per_s == read.cluster.network_bytes_per_s
        assert (made.stack or None) == (read.stack or made.stack)
