from __future__ import annotations

import csv
import io

import pytest
from rich.console import Console

from perfmodel.report import markdown, spark, tables, terminal, text
from perfmodel.report.kinds import generic, rendering, rendering_of
from perfmodel.report.model import Column, Table

KINDS = [
    "prediction",
    "study",
    "plan",
    "audit",
    "check",
    "validation",
    "calibration",
    "comparison",
    "explanation",
]
KINDS += ["roofline", "straggler", "collective", "workdepth", "timings"]


def printed(envelope, width=80, encoding="utf-8", **options):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    console = Console(file=stream, width=width, **options)
    terminal.render(envelope, console)
    stream.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_fits_80_columns_and_pipes_clean(kind, make):
    output = printed(make[kind]())
    assert output.strip()
    assert max(len(line) for line in output.splitlines()) <= 80
    assert "\x1b" not in output


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_comes_first(kind, make):
    envelope = make[kind]()
    module = rendering_of(envelope)
    lines = printed(envelope).splitlines()
    assert lines[0].startswith(module.title(envelope)[:60].rstrip())
    answer = module.answer(envelope)
    if answer:
        assert lines[1].startswith(answer[:40].rstrip())


def test_a_validation_says_what_it_left_out_and_what_it_read_otherwise(make):
    said = " ".join(printed(make["validation"]()).split())
    assert "families.csv:9: 1 family not scored: no workload" in said
    assert "2 families read otherwise than labelled: the script says so" in said


def test_a_validation_of_collectives_alone_speaks_of_them_and_of_no_mode(make):
    envelope = make["validation"]()
    result = envelope["result"]
    empty = {name: {"points": 0, "families": 0, "median_ape": None} for name in result["modes"]}
    envelope["result"] = {**result, "modes": empty, "families": [], "unresolved": []}
    answer = rendering_of(envelope).answer(envelope)
    assert answer.startswith("collectives: median error ")
    assert answer.endswith(" over 2000 points.")
    said = printed(envelope)
    assert "Collectives" in said
    assert "datasheet" not in said


def test_a_mode_without_points_is_in_the_table_but_not_in_the_answer(make):
    envelope = make["validation"]()
    envelope["result"]["modes"]["one_node"] = {"points": 0, "families": 0, "median_ape": None}
    answer = rendering_of(envelope).answer(envelope)
    assert "one node" not in answer
    assert "collectives" in answer
    assert "one node" in printed(envelope)


@pytest.mark.parametrize(("layout", "is_said"), [("auto", True), ({"tp": 8}, False), (None, False)])
def test_a_layout_that_was_chosen_among_few_says_who_searches_more(layout, is_said, make):
    envelope = make["prediction"]()
    envelope["inputs"] = {**envelope["inputs"], "layout": layout}
    said = " ".join(printed(envelope).split())
    assert ("Layouts: the fastest of the usual ones; `perfmodel plan` searches more." in said) is is_said


def test_points_that_contradict_themselves_are_told_by_line_or_counted(make):
    envelope = make["validation"]()
    rows = [{"point": f"points.csv:{i}", "family": "f", "reason": "it does not add up"} for i in range(40)]
    envelope["result"]["contradicted"] = rows[:2]
    assert "points.csv:1: not scored: it does not add up" in printed(envelope)
    envelope["result"]["contradicted"] = rows
    said = " ".join(printed(envelope).split())
    assert (
        "40 points not scored, which contradict themselves: `contradicted` of --format json has each" in said
    )
    assert "points.csv:1" not in said


def test_many_reasons_are_counted_not_told(make):
    envelope = make["validation"]()
    rows = [{"family": f"f{i}", "reason": f"script {i} says so"} for i in range(40)]
    envelope["result"]["corrected"] = rows
    said = " ".join(printed(envelope).split())
    assert (
        "40 families read otherwise than labelled, for 40 reasons: `corrected` of --format json has each"
        in said
    )
    assert "script 7" not in said


@pytest.mark.parametrize("kind", KINDS)
def test_ascii_terminals_get_ascii(kind, make):
    output = printed(make[kind](), encoding="ascii")
    assert output.isascii()


def test_no_color_is_honoured_on_a_terminal(make, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    plain = printed(make["audit"](), force_terminal=True)
    assert "\x1b[3" not in plain  # no colour; bold and dim may stay
    assert "suspicious" in plain


def test_a_narrow_terminal_drops_columns_by_priority_and_names_them(make):
    output = printed(make["prediction"](), width=60)
    assert max(len(line) for line in output.splitlines()) <= 60
    assert "more columns with --format csv" in output
    assert "carbon" in output or "CO2" in output


def test_columns_left_out_are_promised_by_a_format_that_has_them(make):
    envelope = make["validation"]()
    words = [line for line in printed(envelope, width=44).splitlines() if line.startswith("more columns")]
    assert any("--format md" in line for line in words)
    kept = tables.to_csv(envelope).splitlines()[0]
    for line in words:
        if "--format csv" in line:
            assert all(name.strip() in kept for name in line.partition(": ")[2].split(","))


def test_prediction_answer_states_knee_cause_and_both_ends(make):
    envelope = make["prediction"]()
    answer = rendering_of(envelope).answer(envelope)
    result = envelope["result"]
    assert f"K = {result['knee']['threshold']['k']}" in answer
    assert "inter-node all-reduce" in answer
    assert f"Cheapest is K = {result['p_star']['k']}" in answer
    assert f"fastest is K = {result['fastest']['k']}" in answer


def test_infeasible_everywhere_says_why(make):
    envelope = make["prediction"]()
    n = len(envelope["result"]["k"])
    envelope["result"] |= {
        "time_s": [None] * n,
        "speedup": [None] * n,
        "efficiency": [None] * n,
        "cost_usd": [None] * n,
        "feasible": [False] * n,
        "reason": ["weights need 350 GB of 80 GB"] * n,
        "p_star": {"k": None},
        "fastest": {"k": None},
        "knee": {"threshold": {"k": None, "cause": "nothing fits"}},
        "parts_s": {},
        "ledger_accelerator_s": {},
        "measured": [],
    }
    assert "weights need 350 GB" in rendering_of(envelope).answer(envelope)
    assert printed(envelope)


@pytest.mark.parametrize("kind", KINDS)
def test_markdown_tables_have_as_many_cells_as_heads(kind, make):
    lines = markdown.render(make[kind]()).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert rows
    block: list[int] = []
    for line in [*lines, ""]:
        if line.startswith("|"):
            block.append(line.replace("\\|", "").count("|"))
        else:
            assert len(set(block)) <= 1
            block = []


def test_markdown_draws_the_speedup_in_one_line(make):
    line = next(
        line
        for line in markdown.render(make["prediction"]()).splitlines()
        if line.startswith("Speedup, K = 1 to 1,024")
    )
    assert {"▁", "█"} <= set(line)
    assert not any(line.startswith("Speedup,") for line in markdown.render(make["check"]()).splitlines())


def test_markdown_keeps_hostile_names_as_text(make):
    envelope = make["prediction"](name="x")
    envelope["inputs"]["workload"]["name"] = "<img src=x onerror=alert(1)>|[a](javascript:b)\n# head"
    output = markdown.render(envelope)
    assert "<img" not in output
    assert "\n# head" not in output
    assert "\\[a]" in output


def test_terminal_shows_control_characters_as_replacement(make):
    envelope = make["prediction"]()
    envelope["inputs"]["workload"]["name"] = "evil\x1b[2J[bold]x"
    output = printed(envelope)
    assert "\x1b" not in output
    assert "[bold]x" in output


@pytest.mark.parametrize("kind", KINDS)
def test_csv_reads_back(kind, make):
    rows = list(csv.reader(io.StringIO(tables.to_csv(make[kind]()))))
    assert len(rows) >= 2
    assert len({len(row) for row in rows}) == 1


def test_csv_of_a_prediction_keeps_full_precision_and_empty_for_null(make):
    envelope = make["prediction"]()
    rows = list(csv.DictReader(io.StringIO(tables.to_csv(envelope))))
    assert [int(row["k"]) for row in rows] == envelope["result"]["k"]
    assert rows[0]["time_s"] == ""
    assert float(rows[5]["time_s"]) == envelope["result"]["time_s"][5]


def test_csv_text_is_no_spreadsheet_formula():
    assert tables._safe("=1+1") == "'=1+1"
    assert tables._safe(-1.5) == -1.5


def test_unknown_and_hostile_kinds_fall_back_to_generic():
    for kind in ("", "no_such_kind", "../../etc/passwd", "os.path", "__init__", "common"):
        assert rendering(kind).tables is generic.tables


def test_curve_draws_ideal_dots_band_and_marks():
    k = [1, 2, 4, 8, 16]
    speedup = [1, 1.9, 3.5, 5.8, 7.1]
    lines = spark.curve(
        k, speedup, low=[s * 0.8 for s in speedup], high=[s * 1.2 for s in speedup], marks=[("K", 8)]
    )
    picture = "\n".join(lines)
    assert {"●", "·", "░", "K"} <= set(picture)
    assert max(map(len, lines)) <= 80
    assert spark.curve([1], [1.0]) == []


def test_every_mark_stands_under_its_k_the_first_and_shared_ones_too():
    lines = spark.curve([1, 2, 4], [1.0, 1.9, 3.5], marks=[("K", 4), ("P", 1), ("F", 4)], width=40)
    axis, curve = lines[-2], lines[-3]
    assert axis.index("P") == curve.index("●")
    assert axis.endswith("FK")
    assert len(axis) == 40
    assert lines[-1].endswith("4")
    assert len(lines[-1]) == 40


def test_cells_break_as_sentences_do(make):
    envelope = make["audit"]()
    evidence = "The step takes 21.93 s at K = 1024 against 312 TFLOP/s in 16 bit. " * 4
    envelope["result"]["findings"][0]["evidence"] = evidence
    ends = [line.split()[-1] for line in printed(envelope).splitlines() if line.strip()]
    assert not {"21.93", "K", "=", "312", "16"} & set(ends)


def test_sensitivities_of_a_curve_say_at_which_k(make):
    assert "Change of the step time at K = " in printed(make["prediction"]())


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(0.5, "s", "500 ms"), (7200 * 3, "s", "6 h"), (8.5e10, "B", "85 GB"), (0.004, "USD", "0.00400 USD")],
)
def test_quantities_read_well(value, unit, shown):
    assert text.quantity(value, unit) == shown


def test_a_column_has_one_unit():
    heading, cells = text.column_text(Column("time", "s"), [0.001, 0.01, 0.1, 1.0])
    assert heading == "time [ms]"
    assert cells == ["1", "10", "100", "1,000"]


def test_a_band_takes_the_unit_of_what_it_lies_around():
    heads = [Column("time", "s", key="time_s"), Column("low", "s", unit_of="time_s"), Column("spare", "s")]
    table = Table("", heads, [(2.0, 0.4, 0.4), (3.0, 0.6, 0.6)])
    assert [heading for heading, _ in text.table_text(table)] == ["time [s]", "low [s]", "spare [ms]"]


def test_a_column_of_no_values_gives_its_place_to_others():
    """Nor is it promised in another format; where what is always shown is empty too, all are as they were."""
    columns = [Column("K", "", 0), Column("time", "s", 0), Column("cost", "USD", 2), Column("CO2", "g", 6)]
    table = Table("t", columns, [[1, 9.0, 2.0, None], [2, 5.0, 4.0, None]])
    assert list(terminal.fit_columns(table, 80)) == [0, 1, 2]
    for rows in ([], [[1, None, None, None]]):
        assert list(terminal.fit_columns(Table("t", columns, rows), 80)) == [0, 1, 2, 3]
    out = io.StringIO()
    terminal.print_table(table, Console(file=out, width=80))
    assert "CO2" not in out.getvalue()


@pytest.mark.parametrize("width", range(24, 140, 4))
@pytest.mark.parametrize("kind", KINDS)
def test_both_ends_of_a_band_are_shown_or_neither(kind, width, make):
    for table in tables.tables(make[kind]()):
        shown = [table.heads[i].title for i in terminal.fit_columns(table, width)]
        for low, high in (("low", "high"), ("time, low", "time, high")):
            assert (low in shown) == (high in shown), table.title


def test_a_band_outlives_what_can_be_worked_out(make):
    """At 80 columns a plan keeps both ends: without them candidates look more apart than they are."""
    ranking = next(table for table in tables.tables(make["plan"]()) if table.title == "Candidates")
    shown = [ranking.heads[i].title for i in terminal.fit_columns(ranking, 77)]
    assert {"low", "high"} <= set(shown)


@pytest.mark.parametrize(
    ("clusters", "named"),
    [(["a"], "m on a"), (["a", "b"], "m on a, b"), (["a", "b", "c", "d"], "m on one of 4 clusters")],
)
def test_a_plan_is_named_after_all_it_searched(clusters, named):
    inputs = {"workload": {"name": "m"}, "cluster": {"name": "a"}, "clusters": clusters, "objective": "cost"}
    envelope = {"schema": "perfmodel/plan/1", "inputs": inputs, "result": {}}
    assert rendering_of(envelope).title(envelope) == f"Plan: {named}, least cost"


def test_short_rows_are_filled():
    assert tables.rows(Table("t", ("a", "b"), [(1,), (1, 2)])) == [[1, None], [1, 2]]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("kind", KINDS)
def test_no_number_is_cut(kind, width, make):
    envelope = make[kind]()
    output = printed(envelope, width=width)
    for table in tables.tables(envelope):
        if table.role in ("detail", "assumptions", "limits"):
            continue
        for i in terminal.fit_columns(table, width - (3 if table.marked else 0)):
            values = table.values(i)
            if text.numeric(values):
                for shown in text.column_text(table.heads[i], values)[1]:
                    assert shown in output


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("validation", {"family", "k", "measured_s", "predicted_s", "low_s", "high_s"}),
        ("comparison", {"k", "time_s_a", "time_s_b", "time_ratio", "time_ratio_low"}),
        ("plan", {"k", "layout", "time_s", "time_s_low", "time_s_high", "cost_usd"}),
    ],
)
def test_csv_holds_the_data_and_not_the_summary(kind, wanted, make):
    rows = list(csv.DictReader(io.StringIO(tables.to_csv(make[kind]()))))
    assert rows
    assert wanted <= set(rows[0])
    assert not any(cell.startswith("#") for row in rows for cell in row.values())


def test_an_effect_that_would_show_as_nothing_is_no_cause(make):
    envelope = make["comparison"]()
    causes = envelope["result"]["changes"]
    causes[0]["cost_effect"] = 4e-4
    causes.append(causes[0] | {"input": "framework", "effect": -4e-4})
    causes.append(causes[0] | {"input": "precision", "effect": None, "cost_effect": None})
    table = next(t for t in tables.tables(envelope) if t.title.startswith("Causes"))
    assert [row[0] for row in table.rows] == ["cluster.scale_out.bandwidth", "precision"]
    assert table.rows[0][-1] == 0


def test_both_sides_of_a_long_change_fit_80_columns(make):
    envelope = make["comparison"]()
    words = "bytes_per_sample 400 MB, flop_per_sample 24 GFLOP, params 25000000"
    envelope["result"]["changes"][0] |= {
        "before": words,
        "after": words.upper(),
        "cost_effect": 0.1,
        "knee_alone": 8,
    }
    output = printed(envelope)
    assert max(len(line) for line in output.splitlines()) <= 80
    assert "24 GFLOP" in output
    assert "FLOP_PER_SAMPLE" in output


def test_a_remedy_is_told_with_what_it_saves_and_only_where_it_helps(make):
    envelope = make["prediction"]()
    assert "Remedy: double the scale-out bandwidth; beyond the knee it would save 8 %" in words_of(envelope)
    knee = envelope["result"]["knee"]["threshold"]
    knee |= {"remedy_saves": 0.004, "k_after_remedy": knee["k"]}
    assert "Remedy: " not in words_of(envelope)
    assert "No remedy is known: double the scale-out bandwidth would save less than 1 %" in words_of(envelope)


def words_of(envelope):
    return " ".join(printed(envelope).split())


@pytest.mark.parametrize(
    ("clusters", "said"),
    [
        ([], ""),
        (["a"], "E counts from K = 8 as tp2 zero1, the fastest layout found there."),
        (["a", "b"], "E counts from each cluster's smallest K that fits, at the fastest layout found there."),
    ],
)
def test_a_plan_says_what_its_efficiencies_count_from(make, clusters, said):
    envelope = make["plan"]()
    layout = {"tp": 2, "sharding": "zero1"}
    envelope["result"]["baselines"] = [{"cluster": c, "k": 8, "layout": layout} for c in clusters]
    ranking = next(table for table in tables.tables(envelope) if table.title == "Candidates")
    assert ranking.note == said


def test_a_prediction_says_what_its_efficiencies_count_from(make):
    curve = next(table for table in tables.tables(make["prediction"]()) if table.title == "Curve")
    assert "S and E count from K = " in curve.note


def test_long_labels_do_not_push_the_axis():
    lines = spark.curve([1, 1_000, 10_000_000], [1.0, 900.0, 9e6], width=60)
    *rows, axis, ticks = lines
    assert {line.index("|") for line in rows} == {axis.index("+")}
    assert rows[0].startswith("10,000,000 |")
    assert max(map(len, (axis, ticks))) <= 60
