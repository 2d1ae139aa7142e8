"""SARIF 2.1.0: findings with the line of the policy file, as code-scanning pages show them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from urllib.parse import quote

from perfmodel.errors import Problem
from perfmodel.report.ci.rows import RULES, Row, moved_by, rows
from perfmodel.report.model import Envelope

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def _location(file: str, line: int, column: int) -> list[dict[str, object]]:
    if not file:
        return []
    # An absolute path would tie the log to one machine's folders; a relative one is read from the repository root.
    path = PurePath(file)
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    region = {"startLine": max(1, line), "startColumn": max(1, column)}
    return [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}]


def _result(row: Row, cause: Mapping[str, object] | None) -> dict[str, object]:
    """A policy that did not pass stands where the input was changed that moves it, and names the policy beside."""
    policy = _location(row.file, row.line, row.column)
    changed = (
        _location(str(cause["file"]), int(str(cause.get("line") or 1)), int(str(cause.get("column") or 1)))
        if cause and cause.get("file")
        else []
    )
    text = row.sentence + (f"; cause: {cause['cause']}" if cause and row.verdict != "pass" else "")
    level = "error" if row.blocking else "warning"
    return {
        "ruleId": f"perfmodel/{row.rule}",
        "level": level if row.verdict != "pass" else "none",
        "kind": "fail" if row.verdict != "pass" else "pass",
        "message": {"text": text},
        "locations": changed if changed and row.verdict != "pass" else policy,
        **({"relatedLocations": policy} if changed and row.verdict != "pass" and policy else {}),
        # Stable across runs and line moves: the service tracks a finding by it.
        "partialFingerprints": {"policy/v1": f"{row.job}: {row.expression}"},
    }


def _log(version: str, rules: Sequence[Mapping[str, object]], results: Sequence[Mapping[str, object]]) -> str:
    index = {rule["id"]: at for at, rule in enumerate(rules)}
    results = [{**result, "ruleIndex": index[result["ruleId"]]} for result in results]
    driver = {"name": "perfmodel", "version": version, "semanticVersion": version, "rules": rules}
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def render(envelope: Envelope) -> str:
    """Every policy that did not pass, as a result on its line; passing ones with kind `pass`."""
    found = rows(envelope)
    used = sorted({row.rule for row in found})
    rules = [
        {
            "id": f"perfmodel/{name}",
            "name": f"policy-{name.replace('_', '-')}",
            "shortDescription": {"text": RULES[name]},
            "defaultConfiguration": {"level": "error"},
        }
        for name in used
    ]
    return _log(
        str(envelope["version"]),
        rules,
        [_result(row, next(iter(moved_by(envelope, row)), None)) for row in found],
    )


def render_problems(problems: Sequence[Problem], version: str) -> str:
    """Files that could not be read: each problem on its line and column."""
    rules = [
        {
            "id": f"perfmodel/{code}",
            "name": f"input-{code}",
            "shortDescription": {"text": "An input cannot be read"},
        }
        for code in sorted({problem.code for problem in problems})
    ]
    results = [
        {
            "ruleId": f"perfmodel/{problem.code}",
            "level": problem.severity,
            "kind": "fail",
            "message": {"text": problem.message + (f" ({problem.help})" if problem.help else "")},
            "locations": _location(problem.file or "", problem.line or 1, problem.column or 1),
        }
        for problem in problems
    ]
    return _log(version, rules, results)
