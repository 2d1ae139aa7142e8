"""JUnit XML: one test suite a job, one test case a policy (the form that CI servers read)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from perfmodel.errors import Problem
from perfmodel.report.ci.rows import Row, rows
from perfmodel.report.model import Envelope

# What XML 1.0 cannot hold even escaped; a policy may carry any character that a YAML file can.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("?", text)


def _where(row: Row) -> str:
    return f"{row.file}:{row.line}:{row.column}" if row.file else row.job


def _case(parent: ElementTree.Element, row: Row) -> None:
    case = ElementTree.SubElement(
        parent, "testcase", name=_clean(row.expression), classname=_clean(f"perfmodel.{row.job}"), time="0"
    )
    if row.verdict == "pass":
        return
    # An undecided policy that does not block is a skipped test: seen, counted, not red.
    tag = "failure" if row.blocking else "skipped"
    node = ElementTree.SubElement(case, tag, message=_clean(row.sentence), type=row.verdict)
    node.text = _clean(f"{_where(row)}: {row.sentence}")


def render(envelope: Envelope) -> str:
    """The document, ending in a newline; the same envelope gives the same bytes."""
    by_job: dict[str, list[Row]] = {}
    for row in rows(envelope):
        by_job.setdefault(row.job, []).append(row)
    root = ElementTree.Element("testsuites", name="perfmodel check")
    totals = {"tests": 0, "failures": 0, "errors": 0}
    for job, group in by_job.items():
        failures = sum(1 for row in group if row.blocking)
        skipped = sum(1 for row in group if row.verdict != "pass" and not row.blocking)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_clean(job),
            tests=str(len(group)),
            failures=str(failures),
            errors="0",
            skipped=str(skipped),
            time="0",
        )
        totals["tests"] += len(group)
        totals["failures"] += failures
        for row in group:
            _case(suite, row)
    root.attrib.update({key: str(value) for key, value in totals.items()})
    return _document(root)


def render_problems(problems: Sequence[Problem]) -> str:
    """Files that could not be read, as errors of one suite."""
    count = str(len(problems))
    root = ElementTree.Element("testsuites", name="perfmodel check", tests=count, failures="0", errors=count)
    suite = ElementTree.SubElement(
        root, "testsuite", name="input", tests=count, failures="0", errors=count, time="0"
    )
    for problem in problems:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            name=_clean(problem.location or "command line"),
            classname="perfmodel.input",
            time="0",
        )
        error = ElementTree.SubElement(case, "error", message=_clean(problem.message), type=problem.code)
        error.text = _clean(str(problem))
    return _document(root)


def _document(root: ElementTree.Element) -> str:
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"
