from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from perfmodel.errors import SpecError, UsageError
from perfmodel.report import html, notebook, svg

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
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&<!--\u2028"
VOID = {"meta", "br", "img", "input", "link", "hr"}


class Checker(HTMLParser):
    """Counts tags and insists that they nest."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open = []
        self.tags = []
        self.attributes = []
        self.text = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parsed(page):
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


@pytest.mark.parametrize("kind", KINDS)
def test_pages_nest_stay_small_load_nothing_and_read_back(kind, make):
    envelope = make[kind]()
    page = html.render(envelope, command="perfmodel x")
    checker = parsed(page)
    assert len(page.encode()) < 500_000
    urls = [value for _, name, value in checker.attributes if name in ("src", "href", "action", "data")]
    assert urls == []
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", page)
    assert html.read(page) == envelope
    assert "perfmodel x" in page


@pytest.mark.parametrize("kind", KINDS)
def test_same_input_same_bytes(kind, make):
    assert html.render(make[kind]()) == html.render(make[kind]())


def test_the_answer_comes_before_the_curve_and_that_before_the_tables(make):
    page = html.render(make["prediction"](), command="perfmodel predict job.yaml")
    body = page[page.index("<body>") :]
    order = [
        'class="answer"',
        "<svg",
        ">Decision<",
        ">Breakdown<",
        ">Assumptions",
        ">Sensitivity<",
        ">What is not modelled",
    ]
    order += [">Reproduce<"]
    places = [body.index(word) for word in order]
    assert places == sorted(places)


def test_assumptions_show_source_and_confidence_and_limits_their_bias(make):
    text = " ".join(parsed(html.render(make["prediction"]())).text)
    for word in (
        "vendor data sheet",
        "datasheet",
        "assumed",
        "network congestion from other jobs",
        "too fast",
    ):
        assert word in text


def test_the_stamp_holds_version_seed_command_and_input_hashes(make):
    page = html.render(make["prediction"](), command="perfmodel predict job.yaml --seed 0")
    footer = page[page.index("<footer>") :]
    for word in ("perfmodel 0.1.0", "seed 0", "perfmodel predict job.yaml --seed 0", "ab" * 8, "cd" * 8):
        assert word in footer


def test_charts_have_alt_text_and_hover_values(make):
    checker = parsed(html.render(make["prediction"]()))
    charts = [value for tag, name, value in checker.attributes if tag == "svg" and name == "role"]
    assert len(charts) == 8  # four charts, each for wide and narrow screens
    text = "\n".join(checker.text)
    assert "Speedup of llama3-8b on dgx-h100 against K" in text
    assert re.search(r"K = 64\npredicted 55\.\dx \(", text)


def test_identifiers_are_unique(make):
    checker = parsed(html.render(make["prediction"]()))
    found = [value for _, name, value in checker.attributes if name == "id"]
    assert len(found) == len(set(found))


def hostile(value):
    """The envelope with every text replaced by hostile text, keys of free mappings included."""
    if isinstance(value, dict):
        return {key: hostile(item) for key, item in value.items()}
    if isinstance(value, list):
        return [hostile(item) for item in value]
    return HOSTILE if isinstance(value, str) else value


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_text_stays_text(kind, make):
    envelope = make[kind]()
    envelope["inputs"] = hostile(envelope["inputs"])
    envelope["result"] = hostile(envelope["result"])
    if "parts_s" in envelope["result"]:
        envelope["result"]["parts_s"][HOSTILE] = envelope["result"]["parts_s"]["compute"]
    envelope["inputs"][HOSTILE] = HOSTILE
    page = html.render(envelope, command=HOSTILE)
    checker = parsed(page)
    assert checker.tags.count("script") == 2  # the result and our own
    assert "img" not in checker.tags
    assert not [name for _, name, _ in checker.attributes if name.startswith("on")]
    assert html.read(page) == envelope


def test_large_results_are_packed_and_read_back(make):
    envelope = make["validation"]()
    points = envelope["result"]["families"][0]["points"]
    for family in envelope["result"]["families"]:
        family["points"] = [dict(point, k=i, measured_s=1.0 + i / 7) for i in range(80) for point in points]
    envelope["result"]["families"] *= 2
    raw = len(json.dumps(envelope))
    assert raw > 1_000_000
    page = html.render(envelope)
    assert len(page.encode()) < 500_000
    assert html.read(page) == envelope


@pytest.mark.parametrize(
    "page",
    [
        "",
        "<html>nothing</html>",
        '<script type="application/json" id="perfmodel-result">{not json</script>',
        '<script type="application/json" id="perfmodel-result">[1]</script>',
        '<script type="text/plain" id="perfmodel-result" data-packed="gzip">!!!</script>',
        '<script type="text/plain" id="perfmodel-result" data-packed="gzip">H4sIAAAA</script>',
    ],
)
def test_damaged_pages_are_refused_with_a_reason(page):
    with pytest.raises(SpecError, match=r"error\[R00[12]\]"):
        html.read(page)


def test_script_is_small_and_pinned_by_the_policy(make):
    page = html.render(make["prediction"]())
    assert len(html.asset("report.js").splitlines()) <= 200
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/=]{44}'", page)


def test_long_tables_are_cut_and_say_so(make):
    envelope = make["plan"]()
    envelope["result"]["candidates"] *= 60
    page = html.render(envelope)
    assert "350 more rows are in the embedded result." in page


@pytest.mark.parametrize("kind", KINDS)
def test_notebook_fragment_nests_and_keeps_its_style_to_itself(kind, make):
    fragment = notebook.html(make[kind]())
    parsed(fragment)
    style = fragment[fragment.index("<style>") + 7 : fragment.index("</style>")]
    selectors = re.findall(r"(?:^|[{}])([^{}@]+)\{", re.sub(r"@media[^{]*\{", "", style))
    assert selectors
    assert all(s.strip().startswith(".perfmodel-result") for group in selectors for s in group.split(","))


def test_frame_has_a_row_per_k(make, monkeypatch):
    class DataFrame(list):
        def __init__(self, rows, columns):
            super().__init__(dict(zip(columns, row, strict=True)) for row in rows)

    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=DataFrame))
    envelope = make["prediction"]()
    frame = notebook.frame(envelope)
    assert [row["k"] for row in frame] == envelope["result"]["k"]
    assert [row["time_s"] for row in frame] == envelope["result"]["time_s"]


def test_frame_without_pandas_says_what_to_do(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="pip install pandas"):
        notebook.frame(make["prediction"]())


def test_times_stand_on_round_decimal_ticks_and_the_deadline_is_drawn(make):
    told = make["plan"]()
    told["inputs"]["deadline_s"] = 20.0
    shown = html.render(told)
    assert "deadline 20 s" in shown.split("Cost against time", 1)[1].split("</svg>", 1)[0]
    assert svg.amount_ticks(1.7, 184.0) == [2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
    assert svg.amount_ticks(3.0, 4.0)  # within a decade
