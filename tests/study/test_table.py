"""Timings tables: what is read, and what is refused with its file, line and column."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.errors import SpecError
from perfmodel.study import table
from perfmodel.study.table import MOST_COLUMNS, MOST_DISTINCT_K, parse_timings, read_timings


def refused(text: str | bytes) -> list[tuple[int | None, int | None, str, str]]:
    with pytest.raises(SpecError) as caught:
        parse_timings(text, "t.csv")
    return [(p.line, p.column, p.code, p.message) for p in caught.value.problems]


@pytest.mark.parametrize(
    "text",
    [
        "k,time_s\n1,10\n2,5.5\n",
        "k,time_s\r\n1,10\r\n2,5.5\r\n",
        "\ufeffk,time_s\n1,10\n2,5.5",
        "time_s,k\n10,1\n5.5,2\n",
        "# from the lab\nk,time_s\n\n1,10\n# second\n2,5.5\n\n",
        'k,time_s\n"1","10"\n"2",5.5\n',
        "K , Time_S\n 1 , 1e1\n2, 5.5\n",
        "host,k,time_s,repeat\na,1,10,x\nb,2,5.5,y\n",
    ],
    ids=["plain", "crlf", "bom", "order", "comments", "quotes", "spaces", "extra"],
)
def test_spellings_of_one_table(text):
    found = parse_timings(text)
    assert found.k.tolist() == [1.0, 2.0]
    assert found.time_s.tolist() == [10.0, 5.5]


def test_blank_optional_cells_are_nan():
    found = parse_timings("k,time_s,quality,energy_j\n1,10,,5\n2,5,0.5,\n4,3,,\n")
    assert np.isnan(found.columns["quality"]).tolist() == [True, False, True]
    assert np.isnan(found.columns["energy_j"]).tolist() == [False, True, True]


def test_quick_and_careful_reader_agree(monkeypatch):
    text = "quality,k,time_s,host\n,1,10,a\n0.5,2,5.25,b\n0.25,2,5,\n"
    quick = parse_timings(text)
    monkeypatch.setattr(table, "_quick", lambda *_: None)
    careful = parse_timings(text)
    assert np.array_equal(quick.columns["quality"], careful.columns["quality"], equal_nan=True)
    assert quick.k.tolist() == careful.k.tolist()
    assert quick.time_s.tolist() == careful.time_s.tolist()
    assert quick.ignored == careful.ignored == ("host",)


def test_well_formed_tables_take_the_quick_way(monkeypatch):
    def fail(*_):
        raise AssertionError("the careful reader was used")

    monkeypatch.setattr(table, "_slow", fail)
    parse_timings("k,time_s,quality,host\n1,10,,a\n2,5,0.5,b\n")


def test_parts_make_the_time():
    found = parse_timings("k,compute_s,communication_s,idle_s,io_s\n1,8,0,0,1\n2,4,1,0.5,1\n")
    assert found.time_s.tolist() == [9.0, 6.5]
    assert found.time_from_parts
    assert list(found.parts_s) == ["compute", "communication", "idle", "io"]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", [(1, 1, "T001", "the file is empty")]),
        ("\n# nothing\n", [(1, 1, "T001", "the file is empty")]),
        ("k,time_s\n", [(1, 1, "T001", "no timings under the header")]),
        ("time_s\n5\n", [(1, 1, "T002", 'missing column "k" (the number of workers)')]),
        ("k,quality\n1,5\n", [(1, 1, "T002", 'missing column "time_s"')]),
        ("k,tme_s\n1,5\n", [(1, 3, "T002", 'unknown column "tme_s"; did you mean "time_s"?')]),
        ("nodes,time_s\n1,5\n", [(1, 1, "T002", 'unknown column "nodes"; did you mean "k"?')]),
        (
            "k,compute_s,idle_s\n1,5,0\n",
            [(1, 1, "T002", 'missing column "communication_s": without time_s the parts must be complete')],
        ),
        ("k;time_s\n1;2,000\n", [(1, 1, "T002", "one column only: the cells must be separated by commas")]),
        ("k;time_s\n1;2\n2;x\n", [(3, 3, "T004", 'time_s: not a number: "x"')]),
        ("k,time_s,k\n1,2,1\n", [(1, 10, "T003", 'duplicate column "k"')]),
        ("k,,time_s\n1,3,2\n", [(1, 3, "T003", "a column without a name")]),
        ("k,time_s\n1,fast\n", [(2, 3, "T004", 'time_s: not a number: "fast"')]),
        ("k,time_s\n1, 10 s\n", [(2, 4, "T004", 'time_s: not a number: "10 s"')]),
        ("k,time_s\n1,\u0664\n", [(2, 3, "T004", 'time_s: not a number: "\u0664"')]),
        ("k,time_s\n1,1_000\n", [(2, 3, "T004", 'time_s: not a number: "1_000"')]),
        ("k,time_s\n1,\n", [(2, 3, "T004", "time_s: an empty cell")]),
        ("k,time_s\n1,-3\n", [(2, 3, "T005", "time_s: must be above zero, got -3")]),
        ("k,time_s\n1,0\n", [(2, 3, "T005", "time_s: must be above zero, got 0")]),
        ("k,time_s,energy_j\n1,3,-1\n", [(2, 5, "T005", "energy_j: must not be negative, got -1")]),
        ("k,time_s\n1,NaN\n", [(2, 3, "T006", "time_s: not a finite number: NaN")]),
        ("k,time_s,quality\n1,2,nan\n2,1,\n", [(2, 5, "T006", "quality: not a finite number: nan")]),
        ("k,time_s\n1,inf\n", [(2, 3, "T006", "time_s: not a finite number: inf")]),
        ("k,time_s\n0,3\n", [(2, 1, "T007", "k: a run has at least 1 worker, got 0")]),
        ("k,time_s\n2.5,3\n", [(2, 1, "T007", "k: a whole number of workers, got 2.5")]),
        ("k,time_s\n99999999999,3\n", [(2, 1, "T007", "k: more than 10000000 workers: 99999999999")]),
        ("k,time_s\n1,2,3\n", [(2, 5, "T008", "3 cells, but the header names 2")]),
        ("k,time_s\n1\n", [(2, 2, "T008", "1 cells, but the header names 2")]),
        ("k,time_s,quality\n1,2\n2,1,0.5,7\n", [(2, 4, "T008", "2 cells, but the header names 3"),
                                                 (3, 9, "T008", "4 cells, but the header names 3")]),
        (b"k,time_s\n1,2\n2,\xff\n", [(3, 3, "T009", "not UTF-8 text")]),
        (
            "k,compute_s,communication_s,idle_s\n1,0,0,0\n",
            [(2, 1, "T005", "the parts of this run add up to zero")],
        ),
    ],
)  # fmt: skip
def test_refusals_name_line_and_column(text, problems):
    assert refused(text) == problems


def test_all_mistakes_at_once():
    text = "k,time_s,price_usd_per_h\n0,x,1\n2,-1,y\n3,1,2\n4,nan,-2\n"
    found = refused(text)
    assert [(line, column, code) for line, column, code, _ in found] == [
        (2, 1, "T007"),
        (2, 3, "T004"),
        (3, 3, "T005"),
        (3, 6, "T004"),
        (5, 3, "T006"),
        (5, 7, "T005"),
    ]


def test_header_mistakes_do_not_hide_those_in_the_rows():
    codes = [code for *_, code, _ in refused("k,tme_s\n0,3\n")]
    assert codes == ["T002", "T007"]


def test_a_flood_of_mistakes_is_cut_and_counted():
    found = refused("k,time_s\n" + "".join(f"1,x{number}\n" for number in range(500)))
    assert len(found) == 51
    assert found[-1][3] == "and 450 more problems"


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (
            'k,time_s\n1,"10,5"\n2,"5,6"\n',
            (2, 3, "T004", "time_s: a comma in the number (2 rows: lines 2, 3)"),
        ),
        ("k,time_s\n1,10,5\n2,5,6\n", (2, 6, "T008", "3 cells, but the header names 2 (2 rows: lines 2, 3)")),
    ],
)
def test_decimal_commas_are_told_once(table, told):
    assert refused(table) == [told]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "gpus;time_s\n1;10,5\n2;5,25\n",
            ("cells are cut by semicolons, and commas are decimals", 'column "gpus" is read as k'),
        ),
        ("k\ttime_s\n1\t10.5\n2\t5.25\n", ("cells are cut by tabs",)),
        (
            "world_size,seconds\n1,10.5\n2,5.25\n",
            ('column "world_size" is read as k', 'column "seconds" is read as time_s'),
        ),
        ("k,time_s,gpus\n1,10.5,8\n2,5.25,8\n", ()),
    ],
)
def test_common_shapes_are_read_and_told(text, told):
    found = parse_timings(text)
    assert (found.k.tolist(), found.time_s.tolist(), found.told) == ([1.0, 2.0], [10.5, 5.25], told)


def test_a_quote_that_is_left_open_is_refused():
    assert refused('k,time_s\n1,"10\n2,5\n') == [(2, 3, "T004", 'time_s: not a number: ""10"')]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_the_unicode_of_spreadsheets_is_named(encoding):
    assert refused("k,time_s\n1,10\n".encode(encoding)) == [(1, 1, "T009", "not UTF-8 text")]


def test_missing_file_is_named(tmp_path):
    with pytest.raises(SpecError, match=r"nowhere\.csv: error\[T001\]: cannot read: no such file"):
        read_timings(tmp_path / "nowhere.csv")
    with pytest.raises(SpecError, match="cannot read"):
        read_timings(tmp_path)


def test_message_shows_the_line_and_a_caret():
    with pytest.raises(SpecError) as caught:
        parse_timings("k,time_s\n1,2\n2,abc\n", "run.csv")
    assert str(caught.value).splitlines()[:4] == [
        'run.csv:3:3: error[T004]: time_s: not a number: "abc"',
        "  |",
        "3 | 2,abc",
        "  |   ^",
    ]


def test_a_table_beyond_any_curve_is_refused_at_once() -> None:
    rows = "".join(f"{k},1.0\n" for k in range(1, MOST_DISTINCT_K + 2))
    with pytest.raises(SpecError, match=r"2,001 different worker counts: a curve has at most 2,000"):
        parse_timings("k,time_s\n" + rows)
    names = ",".join(f"c{index}" for index in range(MOST_COLUMNS))
    with pytest.raises(SpecError, match=r"1,002 columns: a table of timings has at most 1,000"):
        parse_timings(f"k,time_s,{names}\n1,2\n")
