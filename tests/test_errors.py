"""Problems as people see them."""

from __future__ import annotations

from perfmodel.errors import Problem, SpecError, UsageError, closest, did_you_mean


def test_the_caret_stands_under_its_character_after_tabs() -> None:
    problem = Problem("a.yaml", 12, 4, "S006", "odd", "\tk: 3", "fix it")
    assert str(problem).splitlines() == [
        "a.yaml:12:4: error[S006]: odd",
        "   |",
        "12 | \tk: 3",
        "   | \t  ^",
        "  help: fix it",
    ]


def test_a_flag_has_no_position() -> None:
    error = UsageError("--k: nothing", help="give one")
    assert str(error) == "error[U001]: --k: nothing\n  help: give one"
    assert error.problems[0].location == ""


def test_every_problem_is_said() -> None:
    error = SpecError([Problem("a", 1, 1, "S001", "one"), Problem("a", 2, 1, "S002", "two")])
    assert "one" in str(error)
    assert "two" in str(error)
    assert len(error.problems) == 2


def test_a_warning_says_so() -> None:
    assert str(Problem("a", 1, 1, "L002", "old", severity="warning")) == "a:1:1: warning[L002]: old"


def test_an_abbreviation_is_completed_before_a_lookalike_is_offered() -> None:
    names = ["b100-sxm", "h100-sxm5-80gb"]
    assert did_you_mean("h100-sxm", names) == '; did you mean "h100-sxm5-80gb"?'
    assert closest("b100-sxn", names) == "b100-sxm"
    assert did_you_mean("qqq", names) == ""
