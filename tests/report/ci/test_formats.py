"""JUnit, SARIF, GitHub annotations and the pull-request comment: valid, escaped, stable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import Problem
from perfmodel.report.ci import github, junit, pr_comment, sarif
from perfmodel.report.ci.rows import rows

SCHEMAS = Path(__file__).parents[2] / "schemas"
XS = "{http://www.w3.org/2001/XMLSchema}"


def policy(verdict: str, **extra: Any) -> dict[str, Any]:
    base = {
        "job": "llama",
        "expression": "efficiency(k=64) >= 0.7",
        "metric": "efficiency",
        "value": 0.65,
        "low": 0.6,
        "high": 0.69,
        "limit": 0.7,
        "unit": "1",
        "verdict": verdict,
        "blocking": verdict == "fail",
        "reason": "",
        "file": "perfmodel.yaml",
        "line": 7,
        "column": 5,
    }
    return {**base, **extra}


def envelope(*policies: dict[str, Any], changes: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    verdicts = {item["verdict"] for item in policies}
    worst = "fail" if "fail" in verdicts else "undecided" if "undecided" in verdicts else "pass"
    result = {"verdict": worst, "policies": list(policies), "changes": changes or []}
    return {"schema": "perfmodel/check/1", "version": "0.1.0", "seed": 0, "inputs": {}, "result": result}


MIXED = envelope(
    policy("fail"),
    policy("undecided", expression="knee >= 64", metric="knee", unit="K", value=64, low=32, high=128, line=8),
    policy("pass", expression="cost <= 5000 USD", metric="cost", unit="USD", value=4100.0, low=3900.0, high=4300.0),
    policy("fail", job="bert", expression="memory <= 90 %", metric="memory", unit="share", value=None, low=None, high=None, reason="K = 8: does not fit"),
    changes=[{"job": "llama", "metric": "time(k=64)", "before": 0.5, "after": 0.6, "unit": "s", "cause": "global_batch: 512 -> 1024"}],
)  # fmt: skip


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / name).read_text(encoding="utf-8"))


class Xsd:
    """As much of XML Schema as junit-10.xsd uses: elements, references, choices, sequences, attributes."""

    def __init__(self, path: Path) -> None:
        root = ElementTree.parse(path).getroot()
        self.elements = {node.get("name"): node for node in root.findall(f"{XS}element")}

    def check(self, node: ElementTree.Element) -> None:
        declared = self.elements[node.tag]
        body = declared.find(f"{XS}complexType")
        assert body is not None, f"<{node.tag}> holds text only"
        attributes = {item.get("name"): item for item in body.findall(f"{XS}attribute")}
        assert set(node.attrib) <= set(attributes), (
            f"<{node.tag}> has unknown {set(node.attrib) - set(attributes)}"
        )
        required = {name for name, item in attributes.items() if item.get("use") == "required"}
        assert required <= set(node.attrib), f"<{node.tag}> lacks {required - set(node.attrib)}"
        allowed = {item.get("ref") for item in body.iter(f"{XS}element")}
        mixed = body.get("mixed") == "true"
        assert mixed or not (node.text or "").strip(), f"<{node.tag}> must not hold text"
        for child in node:
            assert child.tag in allowed, f"<{child.tag}> may not stand in <{node.tag}>"
            self.check(child)


def assert_junit(text: str) -> ElementTree.Element:
    root = ElementTree.fromstring(text)
    Xsd(SCHEMAS / "junit-10.xsd").check(root)
    return root


def assert_sarif(text: str) -> dict[str, Any]:
    log = json.loads(text)
    # The schema is written in 2020-12 keywords and checks uri formats through the format checker.
    jsonschema.Draft202012Validator(schema("sarif-2.1.0.json")).validate(log)
    return dict(log)


def test_the_reference_checker_refuses_what_the_schema_refuses() -> None:
    with pytest.raises(AssertionError, match="lacks"):
        assert_junit("<testsuites><testsuite name='a'/></testsuites>")
    with pytest.raises(AssertionError, match="unknown"):
        assert_junit("<testsuites colour='red'/>")
    with pytest.raises(AssertionError, match="may not stand"):
        assert_junit("<testsuites><testcase name='a'/></testsuites>")
    with pytest.raises(jsonschema.ValidationError):
        assert_sarif('{"version": "2.1.0", "runs": [{}]}')


def test_junit_counts_failures_and_skips_what_does_not_block() -> None:
    root = assert_junit(junit.render(MIXED))
    llama, bert = root.findall("testsuite")
    assert (llama.get("tests"), llama.get("failures"), llama.get("skipped")) == ("3", "1", "1")
    assert (bert.get("tests"), bert.get("failures")) == ("1", "1")
    assert root.get("failures") == "2"
    failure = llama.find("testcase/failure")
    assert failure is not None
    assert failure.text is not None
    assert failure.text.startswith("perfmodel.yaml:7:5: ")


def test_sarif_puts_each_policy_on_its_line() -> None:
    run = assert_sarif(sarif.render(MIXED))["runs"][0]
    levels = [result["level"] for result in run["results"]]
    assert levels == ["error", "warning", "none", "error"]
    region = run["results"][1]["locations"][0]["physicalLocation"]
    assert region["artifactLocation"]["uri"] == "perfmodel.yaml"
    assert region["region"] == {"startLine": 8, "startColumn": 5}
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def test_github_annotations() -> None:
    lines = github.render(MIXED).splitlines()
    assert [line.split(" ")[0].split(":")[2] for line in lines] == ["error", "warning", "error", "notice"]
    assert lines[0].startswith("::error file=perfmodel.yaml,line=7,col=5,title=perfmodel%3A fail::llama")
    assert "90 %25 band" in lines[0]


def test_the_comment_is_a_sentence_a_table_and_folds() -> None:
    text = pr_comment.render(MIXED)
    lines = text.splitlines()
    assert lines[0] == pr_comment.MARKER
    assert lines[1].startswith("**perfmodel**: Fail: 4 policies (2 fail, 1 undecided, 1 pass).")
    assert text.count("<details>") == text.count("</details>") == 2
    assert "| bert | memory &lt;= 90 % | ❌ fail | - |  |" in lines
    assert "global_batch: 512 -&gt; 1024" in text
    assert "4,100 USD" in text.split("<details>")[1]


def test_a_clean_run_is_one_line_and_one_fold() -> None:
    text = pr_comment.render(envelope(policy("pass")))
    assert text.splitlines()[1] == "**perfmodel**: Pass: 1 policy."
    assert text.count("<details>") == 1


def test_bad_input_is_shown_in_each_format_too() -> None:
    problems = [
        Problem("perfmodel.yaml", 3, 9, "P001", 'unknown metric "kne"', "  - kne >= 3", 'write "knee"'),
        Problem(message="--x"),
    ]
    case = assert_junit(junit.render_problems(problems)).find("testsuite/testcase/error")
    assert case is not None
    assert case.get("type") == "P001"
    first, second = assert_sarif(sarif.render_problems(problems, "0.1.0"))["runs"][0]["results"]
    assert first["locations"][0]["physicalLocation"]["region"] == {"startLine": 3, "startColumn": 9}
    assert second["locations"] == []
    assert github.render_problems(problems).splitlines()[1] == "::error title=perfmodel U000::--x"


TEXT = st.text(max_size=30)


@settings(max_examples=100, deadline=None)
@given(job=TEXT, expression=TEXT, reason=TEXT, file=st.sampled_from(["", "a b/é:,%.yaml", "perfmodel.yaml"]))
def test_hostile_words_stay_words(job: str, expression: str, reason: str, file: str) -> None:
    one = envelope(policy("fail", job=job, expression=expression, reason=reason, file=file))
    assert_junit(junit.render(one))
    assert_sarif(sarif.render(one))
    annotation = github.render(one)
    # One command a line, whatever the words: a newline inside would start a second command.
    assert len(annotation.split("\n")) == 3
    comment = pr_comment.render(one)
    assert comment.count(pr_comment.MARKER) == 1
    table = [line for line in comment.split("\n") if line.startswith("|")]
    assert {line.replace("\\\\", "").replace("\\|", "").count("|") for line in table} == {6}


def test_the_same_envelope_gives_the_same_bytes() -> None:
    for render in (junit.render, sarif.render, github.render, pr_comment.render):
        assert render(MIXED) == render(json.loads(json.dumps(MIXED)))


@pytest.mark.parametrize(
    ("expression", "shown"), [("cost <= 9 USD", "7 USD at K = 8"), ("cost(k = 8) <= 9 USD", "7 USD")]
)
def test_a_number_whose_policy_names_no_k_says_where_it_was_read(expression: str, shown: str) -> None:
    policy = {"expression": expression, "metric": "cost", "unit": "USD", "verdict": "pass", "k": 8}
    row = policy | {"value": 7.0, "low": 6.0, "high": 8.0, "limit": 9.0}
    assert [found.value for found in rows({"result": {"policies": [row]}})] == [shown]


def _changed() -> dict[str, Any]:
    policy = {
        "job": "a", "expression": "time(k=64) <= 2 s", "metric": "time", "k": 64, "value": 3.0, "low": 2.8, "high": 3.2,
        "limit": 2.0, "limit_text": "<= 2 s", "unit": "s", "at_least": False, "verdict": "fail", "blocking": True, "reason": "",
        "file": "perfmodel.yaml", "line": 4, "column": 5,
    }  # fmt: skip
    change = {
        "job": "a", "metric": "time(k=64)", "unit": "s", "before": 1.0, "after": 3.0, "cause": "global_batch: 8 -> 24",
        "file": "job.yaml", "line": 7, "column": 15,
    }  # fmt: skip
    small = change | {"after": 1.1, "cause": "seq_len: 8 -> 9", "line": 8}
    result = {
        "verdict": "fail", "policies": [policy], "changes": [small, change], "notes": [],
        "layouts": [{"job": "a", "k": 64, "before": "dp64 fsdp", "after": "dp32 tp2"}],
    }  # fmt: skip
    return {"schema": "perfmodel/check/1", "version": "0", "seed": 0, "inputs": {}, "result": result}


def test_the_comment_says_cause_and_layout_in_its_first_lines() -> None:
    from perfmodel.report.ci import pr_comment

    first = pr_comment.render(_changed()).splitlines()[2:4]
    assert "time(k=64) goes from 1 s to 3 s by global_batch: 8" in first[0]
    assert "at K = 64 the layout is dp32 tp2, before dp64 fsdp" in first[1]


def test_sarif_points_at_the_input_that_was_changed() -> None:
    from perfmodel.report.ci import sarif

    found = json.loads(sarif.render(_changed()))["runs"][0]["results"][0]
    place = found["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("job.yaml", 7)
    assert found["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "perfmodel.yaml"
    assert "cause: global_batch: 8 -> 24" in found["message"]["text"]
