"""`read_load`: the points of a load test from a file or folder, whichever tool wrote it; the format is recognised by content."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from perfmodel.errors import Problem, SpecError, closest, told_once
from perfmodel.files import csv_faults
from perfmodel.readings.load.point import PLAIN, QUANTITIES, STATISTICS, LoadPoint
from perfmodel.readings.load.tools import points_of
from perfmodel.readings.load.values import Report, ratio
from perfmodel.readings.source import DAMAGED, damaged, open_bytes

KNOWN_TOOLS: Final = (
    "vllm bench serve, sglang bench_serving, genai-perf, aiperf, guidellm, llmperf, trtllm-bench, "
    "MLPerf loadgen, or a CSV with concurrency or rate_per_s"
)
_LARGEST_FILE = 512 << 20  # bytes; reports with every request in them are long


def read_load(paths: Path | str | Sequence[Path | str]) -> list[LoadPoint]:
    """Every point of the files and folders, by load; SpecError with every problem when any cannot be read."""
    given = [paths] if isinstance(paths, (str, Path)) else list(paths)
    points: list[LoadPoint] = []
    problems: list[Problem] = []
    for path in (Path(item) for item in given):
        for file in _files(path, problems):
            try:
                points += _read_file(file)
            except SpecError as error:
                problems += error.problems
    if problems:
        raise SpecError(told_once(problems))
    return sorted(points, key=lambda point: (point.load_kind, point.load))


_KEYS: Final = re.compile(
    r'"(?:mean_ttft_ms|output_throughput|time_to_first_token|request_latency|results_ttft_s_\w+|'
    r'system_output_throughput_tok_s|benchmarks)"\s*:|MLPerf Results Summary|^Metric,avg,'
)


def is_load_test(path: Path) -> bool:
    """Whether a file (or any file of a folder) is the report of a load test or a load curve, from its beginning."""
    if path.is_dir():
        return any(
            is_load_test(item)
            for item in sorted(path.rglob("*"))
            if item.is_file() and _looks_like_report(item)
        )
    try:
        with open_bytes(path) as raw:
            head = raw.read(1 << 20).decode("utf-8-sig", "replace")
    except (SpecError, *DAMAGED):
        return False
    if '"traceEvents"' in head[:4096]:
        return False
    if head.lstrip()[:1] not in ("{", "["):
        lines = [line for line in head.split("\n") if line.strip() and not line.lstrip().startswith("#")]
        cells = {cell.strip().lower() for cell in lines[0].split(",")} if lines else set()
        named = {_SPELLED.get(cell, cell) for cell in cells}
        return "k" not in cells and (
            bool({"concurrency", "rate_per_s"} & named) or bool(_KEYS.search(head[:4096]))
        )
    return bool(_KEYS.search(head))


def _files(path: Path, problems: list[Problem]) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(item for item in path.rglob("*") if item.is_file() and _looks_like_report(item))
    if not found:
        problems.append(
            Problem(
                str(path), code="R002", message="no reports of load tests in this folder", help=KNOWN_TOOLS
            )
        )
    return found


def _looks_like_report(path: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.parts)
    return not hidden and (
        path.suffix.lower() in (".json", ".jsonl", ".csv") or path.name == "mlperf_log_summary.txt"
    )


def _read_file(path: Path) -> list[LoadPoint]:
    with open_bytes(path) as raw:
        try:
            data = raw.read(_LARGEST_FILE + 1)
        except DAMAGED:
            raise damaged(path) from None
    if len(data) > _LARGEST_FILE:
        raise SpecError(Problem(str(path), code="R003", message="longer than 512 MB"))
    text = data.decode("utf-8-sig", "replace")
    reports: list[Report] = []
    points: list[LoadPoint] = []
    start = text.lstrip()[:1]
    if start in ("{", "["):
        reports = _reports(text, str(path))
        for report in reports:
            found = points_of(report)
            if found is None:
                report.problems.append(_unknown(report.file, report.line))
            points += found or []
        problems = [problem for report in reports for problem in report.problems]
    elif "MLPerf Results Summary" in text:
        points, problems = _mlperf(text, str(path))
    else:
        points, problems = _csv(text, str(path))
    if not problems:
        problems = [problem for point in points for problem in _faults(point, str(path))]
    if not points and not problems:
        problems = [_unknown(str(path), None)]
    if problems:
        raise SpecError(problems)
    return points


def _unknown(file: str, line: int | None) -> Problem:
    return Problem(file, line, None, "R004", "not a report of a load test that is known", help=KNOWN_TOOLS)


def _reports(text: str, file: str) -> list[Report]:
    """The objects of a JSON file, or of one with an object a line."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        if len(lines) < 2 and not isinstance(error, json.JSONDecodeError):
            raise SpecError(Problem(file, code="R020", message="nested too deep to be read")) from None
        if not lines[0][1].rstrip().endswith("}") or not lines[0][1].lstrip().startswith("{"):
            line, column, reason = None, None, str(error)
            if isinstance(error, json.JSONDecodeError):
                line, column, reason = error.lineno, error.colno, error.msg
            raise SpecError(Problem(file, line, column, "R020", f"not JSON: {reason}")) from None
        return _json_lines(lines, file)
    items = whole if isinstance(whole, list) else [whole]
    reports = []
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise SpecError(Problem(file, code="R020", message=f"entry {index}: not a mapping"))
        reports.append(Report(item, file, None, f"[{index}]" if isinstance(whole, list) else ""))
    return reports


def _json_lines(lines: Sequence[tuple[int, str]], file: str) -> list[Report]:
    reports, problems = [], []
    for number, line in lines:
        try:
            item: Any = json.loads(line)
        except (ValueError, RecursionError):
            problems.append(Problem(file, number, 1, "R020", "not a line of JSON", line))
            continue
        if isinstance(item, Mapping):
            reports.append(Report(item, file, number))
        else:
            problems.append(Problem(file, number, 1, "R020", "not a mapping", line))
    if problems:
        raise SpecError(problems)
    return reports


_MLPERF: Final = re.compile(r"^\s*([A-Za-z0-9][^:]*?)\s*:\s*(\S.*?)\s*$")


def _mlperf(text: str, file: str) -> tuple[list[LoadPoint], list[Problem]]:
    """`mlperf_log_summary.txt` of loadgen: times in nanoseconds."""
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if found := _MLPERF.match(line):
            key = found.group(1).lower()
            values[key], lines[key] = found.group(2), number
    report = Report(values, file)

    def times(mean: str, percentile: str) -> dict[str, float]:
        names = {name: [(f"{float(name[1:]):.2f} percentile {percentile}",)] for name in STATISTICS[1:]}
        return report.statistics({"mean": [(mean,)], **names}, 1e-9)

    scenario = str(values.get("scenario", "")).lower()
    samples = report.number("completed samples per second") or report.number("samples per second")
    out = report.number("completed tokens per second") or report.number("tokens per second")
    scheduled = report.number("scheduled samples per second") or report.number("target_qps")
    notes = () if values.get("result is", "VALID") == "VALID" else ("the run was reported INVALID",)
    point = LoadPoint(
        source=file,
        tool="mlperf loadgen",
        concurrency=1.0 if scenario == "singlestream" else None,
        rate_per_s=scheduled if scenario in ("server", "interactive") else None,
        requests=report.number("min_query_count") if scenario == "offline" else None,
        output_tokens=ratio(out, samples),
        requests_per_s=samples,
        throughput_out_tokens_per_s=out,
        ttft_s=times("mean first token latency (ns)", "first token latency (ns)"),
        tpot_s=times("mean time to output token (ns)", "time to output token (ns)"),
        e2e_s=times("mean latency (ns)", "latency (ns)"),
        model=report.text("sut name"),
        notes=notes,
    )
    placed = [
        Problem(p.file, lines.get(p.message.split(":")[0]), 1, p.code, p.message) for p in report.problems
    ]
    return [point], placed


#: Other spellings of the columns of a load curve.
_SPELLED: Final = {
    "rate": "rate_per_s",
    "request_rate": "rate_per_s",
    "qps": "rate_per_s",
    "users": "concurrency",
    "isl": "input_tokens",
    "osl": "output_tokens",
    "n_requests": "requests",
    "requests_s": "requests_per_s",
    "request_throughput": "requests_per_s",
    "throughput": "throughput_out_tokens_per_s",
    "throughput_out_tok_s": "throughput_out_tokens_per_s",
    "output_throughput": "throughput_out_tokens_per_s",
    "throughput_total_tok_s": "throughput_total_tokens_per_s",
}
_TIME: Final = re.compile(r"(ttft|tpot|e2e)(?:_(mean|p50|p90|p95|p99))?_(s|ms)(?:_(low|high))?")


def _csv(text: str, file: str) -> tuple[list[LoadPoint], list[Problem]]:
    """A load curve: a row a load. The tables of GenAI-Perf and AIPerf are one load each."""
    lines = io.StringIO(text.replace("\0", " "), newline="")
    with csv_faults(file, "R004"):
        rows = [
            (number, row)
            for number, row in enumerate(csv.reader(lines), start=1)
            if row and any(cell.strip() for cell in row) and not row[0].lstrip().startswith("#")
        ]
    if rows and rows[0][1][0].strip() == "Metric":
        return _genai_table([row for _, row in rows], file)
    if not rows:
        return [], [Problem(file, 1, 1, "R001", "the file is empty", help=KNOWN_TOOLS)]
    # Line numbers count comments and blank lines, which the csv module skips only when they are empty.
    numbers = [
        number
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip(" ,\r") and not line.lstrip().startswith("#")
    ]
    header = [cell.strip().lower() for cell in rows[0][1]]
    places, problems = _columns(header, file, numbers[0])
    points: list[LoadPoint] = []
    if problems:
        return [], problems
    for number, (_, row) in zip(numbers[1:], rows[1:], strict=False):
        if len(row) != len(header):
            message = f"{len(row)} cells, but the header names {len(header)}"
            problems.append(Problem(file, number, 1, "R021", message))
            continue
        cells = {name: cell.strip() for name, cell in zip(header, row, strict=True) if cell.strip()}
        report = Report({name: cells[name] for name in cells if name in places}, file, number)
        points.append(_csv_point(report, places))
        problems += report.problems
    if not points and not problems:
        problems.append(Problem(file, numbers[0], 1, "R001", "no loads under the header"))
    return points, problems


_Place = tuple[str, str | None, str | None, float]  # column of the point, statistic, interval end, unit


def _columns(header: Sequence[str], file: str, line: int) -> tuple[dict[str, _Place], list[Problem]]:
    places: dict[str, _Place] = {}
    problems: list[Problem] = []
    known = [*PLAIN, "model", *(f"{q}_{s}_s" for q in QUANTITIES for s in STATISTICS)]
    for position, name in enumerate(header, start=1):
        meant = _SPELLED.get(name, name)
        if found := _TIME.fullmatch(name):
            quantity, statistic, unit, end = found.groups()
            places[name] = (f"{quantity}_s", statistic or "mean", end, 1e-3 if unit == "ms" else 1.0)
        elif meant in PLAIN:
            places[name] = (meant, None, None, 1.0)
        elif (likely := closest(name, known, 0.75)) is not None and likely not in header:
            message = f'unknown column "{name}"; did you mean "{likely}"?'
            problems.append(Problem(file, line, position, "R021", message))
    targets = [place[:3] for place in places.values()]
    for place in {place for place in targets if targets.count(place) > 1}:
        problems.append(Problem(file, line, 1, "R021", f'two columns for "{place[0]}"'))
    if not problems and not any(place[0] in ("concurrency", "rate_per_s") for place in places.values()):
        problems.append(
            Problem(file, line, 1, "R021", "no column of loads: concurrency or rate_per_s", help=KNOWN_TOOLS)
        )
    return places, problems


def _csv_point(report: Report, places: Mapping[str, _Place]) -> LoadPoint:
    fields: dict[str, Any] = {}
    ends: dict[str, dict[str, float]] = {"low": {}, "high": {}}
    for name in report.data:
        target, statistic, end, scale = places[name]
        if target == "rate_per_s":
            value = report.rate(name)
        else:
            value = report.number(name, scale=scale, zero=statistic is None and target != "concurrency")
        if value is None:
            continue
        if statistic is None:
            fields[target] = value
        elif end is None:
            fields.setdefault(target, {})[statistic] = value
        else:
            ends[end][f"{target.removesuffix('_s')}_{statistic}"] = value
    out = fields.get("output_tokens")
    if "requests_per_s" not in fields and out and "throughput_out_tokens_per_s" in fields:
        fields["requests_per_s"] = fields["throughput_out_tokens_per_s"] / out
    elif "throughput_out_tokens_per_s" not in fields and out and "requests_per_s" in fields:
        fields["throughput_out_tokens_per_s"] = fields["requests_per_s"] * out
    return LoadPoint(
        source=f"{report.file}:{report.line}", tool="csv", low_s=ends["low"], high_s=ends["high"], **fields
    )


_GENAI_ROWS: Final = {
    "time to first token": "time_to_first_token",
    "inter token latency": "inter_token_latency",
    "request latency": "request_latency",
    "output sequence length": "output_sequence_length",
    "input sequence length": "input_sequence_length",
    "output token throughput": "output_token_throughput",
    "request throughput": "request_throughput",
    "request count": "request_count",
}


def _genai_table(rows: Sequence[Sequence[str]], file: str) -> tuple[list[LoadPoint], list[Problem]]:
    """The CSV of GenAI-Perf and AIPerf as the mapping of their JSON. It does not contain the load: the folder's name may."""
    data: dict[str, Any] = {}
    header: Sequence[str] = ()
    for row in rows:
        if row[0].strip() == "Metric":
            header = [cell.strip() for cell in row]
            continue
        name, _, unit = row[0].strip().partition(" (")
        key = _GENAI_ROWS.get(name.strip().lower())
        if key is None or key in data:
            continue
        cells = dict(zip(header[1:], (cell.strip() for cell in row[1:]), strict=False))
        data[key] = {
            ("avg" if column == "Value" else column): cell for column, cell in cells.items() if cell
        } | {"unit": unit.rstrip(")")}
    for key, word in (("concurrency", "concurrency"), ("request_rate", "request_?rate")):
        if found := re.search(rf"(?:^|[-_/]){word}[-_]?(\d+(?:\.\d+)?)", str(Path(file).parent.name)):
            data.setdefault("input_config", {})[key] = float(found.group(1))
    report = Report(data, file)
    return points_of(report) or [], report.problems


def _faults(point: LoadPoint, file: str) -> list[Problem]:
    """What contradicts itself in a point: no figures at all, or percentiles out of order."""
    line = int(found.group(1)) if (found := re.search(r":(\d+)$", point.source)) else None
    problems: list[Problem] = []

    def add(message: str) -> None:
        where = point.source.removeprefix(file).lstrip(":0123456789 ")
        problems.append(Problem(file, line, None, "R022", f"{where}: {message}" if where else message))

    if not any((point.ttft_s, point.tpot_s, point.e2e_s, point.throughput_out_tokens_per_s)):
        add("neither a throughput nor a latency")
    if point.requests == 0.0:
        add("no request was completed")
    for quantity in QUANTITIES:
        values = point.seconds(quantity)
        known = [(name, values[name]) for name in STATISTICS[1:] if name in values]
        for (name, value), (above, larger) in pairwise(known):
            if larger < value * (1.0 - 1e-9):
                add(f"{quantity}: {above} ({larger:g} s) is below {name} ({value:g} s)")
    return problems
