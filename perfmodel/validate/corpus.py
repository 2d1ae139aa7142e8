"""Measured runs in the CSV form of validation/measured/README.md, read and checked."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import numpy as np

from perfmodel.errors import Problem, SpecError, did_you_mean, told_once
from perfmodel.physics.counting import operations
from perfmodel.physics.layouts import SHARDING_CODES
from perfmodel.readings.sweeps import OPS, absurd
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.job import Job
from perfmodel.specs.layout import Recompute, RecomputeWord
from perfmodel.specs.precisions import PRECISIONS
from perfmodel.specs.refusals import refusal
from perfmodel.specs.workload import TRANSFORMER_KINDS, Workload
from perfmodel.units import plain_number
from perfmodel.validate import corrections
from perfmodel.validate.consistency import BATCHLESS
from perfmodel.validate.job_files import family_of_job, job_files, read_jobs, with_batch
from perfmodel.validate.publishers import with_publisher
from perfmodel.validate.software import stack_faults
from perfmodel.validate.tables import Row, Table, read_table, stated_once

FAMILY_COLUMNS = (
    "family", "group", "source", "workload", "precision", "accelerator", "accelerators_per_node", "scale_up",
    "scale_out", "network_gbit_per_s_per_node", "framework_class", "sharding", "regime",
)  # fmt: skip
POINT_COLUMNS = (
    "family", "k", "nodes", "dp", "tp", "pp", "cp", "ep", "vpp", "micro_batch", "accumulation", "global_batch",
    "seq_len", "recompute", "step_s", "grade",
)  # fmt: skip
SWEEP_COLUMNS = ("sweep", "op", "ranks", "nodes", "bytes", "time_s")
TRUTHS = {"1": True, "true": True, "True": True, "0": False, "false": False, "False": False}
GRADES = ("A", "B", "C")
STATED_BATCH = re.compile(r"source batch per accelerator ([-+.\d][^\s;]*)")
MOST_POINTS = 2000  # of a family: they are weighed together, in a matrix of as many rows and columns
PARAMS_APART = 3.0  # factor: tied and adaptive embeddings, adapters and rounding make less
LARGEST_BATCH = 1e9  # of one accelerator, that a note may name
ALONE = "none"  # sharding of replicas that exchange nothing: a benchmark that starts K trainings side by side


# The columns that each table must have; those of its form that it lacks are blank.
TABLES = {
    "workloads.csv": ("workload", "kind"),
    "families.csv": ("family", "workload", "precision", "accelerator", "accelerators_per_node"),
    "points.csv": ("family", "k", "step_s"),
    "collectives.csv": SWEEP_COLUMNS,
    "sources.csv": ("source", "address"),
}
FORMS = {"families.csv": FAMILY_COLUMNS, "points.csv": (*POINT_COLUMNS, "note", "variant")}
MAY_LACK = ("collectives.csv", "sources.csv")
_FORM_HELP = "see the form in validation/measured/README.md"
_LEAST_HELP = (
    "the least is points.csv with family,k,step_s and a job file NAME.yaml for each family; "
    "validation/measured/README.md has the whole form"
)


@dataclass(frozen=True)
class Corpus:
    """Families, points and workloads as read, with nothing resolved yet."""

    families: dict[str, Row]  # each with its publisher, stated or not
    points: tuple[Row, ...]
    workloads: dict[str, Workload]
    collectives: tuple[Row, ...]
    corrected: Mapping[str, str]  # families whose label the source's scripts contradict -> where they do
    unsourced: tuple[Row, ...]  # families whose source has no line in sources.csv
    jobs: Mapping[str, Job] = field(default_factory=dict)  # of families that a job file describes

    @classmethod
    def empty(cls) -> Corpus:
        """Nothing: of a folder that has serving runs alone."""
        return cls({}, (), {}, (), {}, ())


def read_corpus(folder: Path, catalog: Catalog | None = None, *, as_stated: bool = False) -> Corpus:
    """Read a folder; every malformed cell is reported at once, with file, line and column.

    A family is a line of families.csv, or a job file of its name, which is read with `catalog`. `as_stated` keeps the
    labels of the sources: what their scripts say besides (`corrections.csv`) is left out.
    """
    if not folder.is_dir():
        raise SpecError(Problem(code="D001", message=f"no folder {folder}", help=_FORM_HELP))
    problems: list[Problem] = []
    tables: dict[str, Table] = {}
    for name, columns in TABLES.items():
        path = folder / name
        if path.is_file():
            tables[name] = read_table(path, columns, problems, FORMS.get(name, ()))
            continue
        tables[name] = Table()
    described = job_files(folder, tables["points.csv"].rows)
    jobs = read_jobs(described, catalog, problems)
    unsaid = {row.text["family"] for row in tables["points.csv"].rows} - described.keys()
    for name in TABLES:
        of_families = name in ("families.csv", "workloads.csv") and described and not unsaid
        if not (name in MAY_LACK or of_families or (folder / name).is_file()):
            problems.append(Problem(code="D001", message=f"no file {name} in {folder}", help=_LEAST_HELP))
    workloads: dict[str, Workload] = {}
    for row in stated_once(tables["workloads.csv"].rows, "workload", problems):
        built = _workload(row, problems)
        if built is not None:
            _check_params(row, built, problems)
            workloads[row.text["workload"]] = built
    once = stated_once(tables["families.csv"].rows, "family", problems)
    sources = {row.text["source"]: row for row in stated_once(tables["sources.csv"].rows, "source", problems)}
    labelled = {row.text["family"]: with_publisher(row, sources) for row in once}
    addresses = {name: row.text["address"] for name, row in sources.items()}
    unsourced = _unsourced(labelled, addresses) if addresses else ()
    stated = tables["points.csv"].rows
    families, points, reasons = (
        (labelled, stated, {}) if as_stated else corrections.corrected(labelled, stated, addresses)
    )
    for row in families.values():
        _check_family(row, problems)
        if row.text["family"] in described:
            message = f'family "{row.text["family"]}" stands here and has a job file, {described[row.text["family"]].name}'
            problems.append(row.problem("D006", message, "keep one of the two", at="family"))
    for row in points:
        _check_point(row, problems)
    families |= {name: family_of_job(described[name], name, job) for name, job in jobs.items()}
    points = [with_batch(row, jobs.get(row.text["family"])) for row in points]
    if tables["families.csv"].is_whole or described:
        _check_members(points, {**families, **dict.fromkeys(described)}, problems)
    for row in tables["collectives.csv"].rows:
        _check_sweep(row, problems)
    if problems:
        raise SpecError(told_once(problems))
    sweeps = tables["collectives.csv"].rows
    return Corpus(families, tuple(points), workloads, sweeps, reasons, unsourced, jobs)


def _workload(row: Row, problems: list[Problem]) -> Workload | None:
    from pydantic import ValidationError

    known = Workload.model_fields
    data: dict[str, object] = {"name": row.text["workload"]}
    for column, cell in row.text.items():
        if column == "workload" or cell == "" or column not in known:
            continue
        annotation = str(known[column].annotation)
        if "bool" in annotation:
            if cell in TRUTHS:
                data[column] = TRUTHS[cell]
            else:
                problems.append(row.not_a_number(column, "neither 1 nor 0"))
        elif "str" in annotation or "Literal" in annotation:
            data[column] = cell
        else:
            try:
                number = plain_number(cell)
            except ValueError:
                number = np.nan
            if np.isfinite(number):
                data[column] = int(number) if number == int(number) else number
            else:
                problems.append(row.not_a_number(column, "not a number"))
    try:
        return Workload.model_validate(data)
    except ValidationError as error:
        for item in error.errors():
            field = ".".join(str(part) for part in item["loc"]) or "workload"
            message = f"{row.text['workload']}: {field}: {refusal(item)[0]}"
            problems.append(row.problem("D005", message, at=field))
        return None


def _check_params(row: Row, workload: Workload, problems: list[Problem]) -> None:
    """Parameters that the dimensions beside them cannot make: work is counted from these, exchanges from those."""
    counts_all = (
        workload.layers and workload.hidden and (workload.vocab or workload.kind == "vision-transformer")
    )
    if not (workload.params and counts_all and workload.kind in TRANSFORMER_KINDS):
        return
    made = float(operations(workload.model_copy(update={"params": None})).params)
    if made > 0.0 and not made / PARAMS_APART <= workload.params <= made * PARAMS_APART:
        message = f"{workload.name}: params is {workload.params:.3g}, its dimensions make {made:.3g}"
        hint = "check the zeros, and that ffn, experts, moe_ffn and vocab are stated where the model has them"
        problems.append(row.problem("D005", message, hint, at="params"))


def _unsourced(families: Mapping[str, Row], sources: Container[str]) -> tuple[Row, ...]:
    return tuple(row for row in families.values() if row.text["source"] and row.text["source"] not in sources)


def _check_family(row: Row, problems: list[Problem]) -> None:
    def refuse(column: str, message: str, hint: str | None = None) -> None:
        problems.append(row.problem("D006", message, hint, at=column))

    if row.text["family"].endswith(BATCHLESS.format("")):
        hint = "points without a batch beside others of their family are listed under such a name"
        refuse("family", f'family "{row.text["family"]}" ends in "{BATCHLESS.format("").strip()}"', hint)
    precision = row.text["precision"]
    if precision not in PRECISIONS:
        refuse("precision", f'precision "{precision}" is not known', f"one of {', '.join(PRECISIONS)}")
    if row.number["accelerators_per_node"] is None:
        refuse("accelerators_per_node", "accelerators_per_node is blank")
    _check_software(row, problems)


def _check_software(row: Row, problems: list[Problem]) -> None:
    """What a family or one of its points states of its software."""
    sharding = row.text.get("sharding", "")
    if sharding not in (*SHARDING_CODES, ALONE, ""):
        known = ", ".join((*SHARDING_CODES, ALONE))
        message = f'sharding "{sharding}" is not known'
        problems.append(row.problem("D006", message, f"one of {known}", at="sharding"))
    for message, hint in stack_faults(row.text.get("stack", "")):
        problems.append(row.problem("D006", message, hint, at="stack"))


def _check_members(points: Sequence[Row], families: Container[str], problems: list[Problem]) -> None:
    """Points of no family, and families of more points than can be weighed together."""
    counts: dict[str, int] = {}
    for row in points:
        family = row.text["family"]
        counts[family] = counts.get(family, 0) + 1
        if family not in families:
            hint = f"add its line there, or a job file {family}.yaml beside points.csv"
            message = f'family "{family}" is not in families.csv'
            problems.append(row.problem("D007", message, hint, at="family"))
        elif counts[family] == MOST_POINTS + 1:
            message = f'family "{family}" has more than {MOST_POINTS} points'
            hint = "average repeats of one configuration, or split the family by layout"
            problems.append(row.problem("D009", message, hint, at="family"))


def _check_point(row: Row, problems: list[Problem]) -> None:
    def refuse(column: str, message: str, hint: str | None = None) -> None:
        problems.append(row.problem("D004", message, hint, at=column))

    for column in ("k", "step_s"):
        if row.number[column] is None:
            refuse(column, f"{column} is blank")
    replica = row.get("tp", 1.0) * row.get("pp", 1.0) * row.get("cp", 1.0)
    if replica > row.get("k", replica):
        refuse("tp", f"tp times pp times cp is {replica:g}, more than k")
    if row.get("nodes", 1.0) > row.get("k", np.inf):
        refuse("nodes", "nodes is more than k", "k counts the accelerators of all nodes")
    if row.number["global_batch"] is not None and row.get("run_batch", np.nan) > 0.0:
        hint = "give it where step_s is the time of one sample per accelerator, else leave it blank"
        refuse("run_batch", "run_batch stands beside global_batch", hint)
    words, batch = batch_in_note(row)
    if words and batch is None and row.number["global_batch"] is None:
        message = f'the note names a source batch per accelerator of "{words[:40]}"'
        refuse("note", message, f"a number from 1 to {LARGEST_BATCH:.0f}")
    grade = row.text["grade"]
    if grade not in (*GRADES, ""):
        refuse("grade", f'grade "{grade}" is not known', f"{', '.join(GRADES)}, or blank")
    recompute = row.text["recompute"]
    if recompute and recomputed(recompute) is None:
        hint = "none, selective, full, the share of a forward pass that is repeated (0 to 1), or blank"
        refuse("recompute", f'recompute is "{recompute}"', hint)
    _check_software(row, problems)


def _check_sweep(row: Row, problems: list[Problem]) -> None:
    def refuse(column: str, message: str, hint: str | None = None) -> None:
        problems.append(row.problem("D004", message, hint, at=column))

    blank = [column for column in SWEEP_COLUMNS if not row.text[column] and column != "nodes"]
    if blank:
        refuse(blank[0], f"{', '.join(blank)} is blank", "a timing needs each of them")
    if row.get("ranks", 2.0) < 2.0:
        refuse("ranks", "ranks is 1: one rank exchanges nothing", "leave the line out")
    if row.get("nodes", 1.0) > row.get("ranks", np.inf):
        refuse("nodes", "nodes is more than ranks", "ranks counts those of all nodes")
    op = row.text["op"]
    if op and op not in OPS:
        refuse("op", f'op "{op}" is not known{did_you_mean(op, OPS)}', f"one of {', '.join(OPS)}")
    size, time = row.get("bytes", np.nan), row.get("time_s", np.nan)
    if size > 0.0 and time > 0.0 and (why := absurd(size, time)):
        column = "bytes" if absurd(size, 1.0) else "time_s"
        refuse(column, why, "bytes are those of the whole vector, time_s is in seconds")


def recomputed(text: str) -> Recompute | None:
    """What is recomputed, as a word or as the share of a forward pass that is repeated; None where it is neither.

    >>> recomputed("full"), recomputed("0.25"), recomputed("2"), recomputed("nan"), recomputed("half")
    ('full', 0.25, None, None, None)
    """
    words: tuple[RecomputeWord, ...] = get_args(RecomputeWord)
    for word in words:
        if text == word:
            return word
    try:
        share = plain_number(text)
    except ValueError:
        return None
    return share if 0.0 <= share <= 1.0 else None


def batch_in_note(point: Row) -> tuple[str, float | None]:
    """The batch per accelerator that a point's note names: its words, none without one, and the number if they are one."""
    noted = STATED_BATCH.search(point.text.get("note", ""))
    return (noted[1], _named_batch(noted[1])) if noted else ("", None)


def _named_batch(text: str) -> float | None:
    """A batch as a note states it; None where that is no batch.

    >>> _named_batch("48."), _named_batch("0"), _named_batch("-3"), _named_batch("1,024"), _named_batch("9" * 400)
    (48.0, None, None, None, None)
    """
    try:
        batch = float(text.rstrip(".,:)"))
    except ValueError:
        return None
    return batch if 1.0 <= batch <= LARGEST_BATCH else None
