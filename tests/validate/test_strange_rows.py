"""A user's folder in which something cannot be: refused at its cell or listed with its place, never scored in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfmodel.errors import SpecError
from perfmodel.report.kinds.validation import notes, tables
from perfmodel.validate.corpus import MOST_POINTS, read_corpus
from perfmodel.validate.validation import shipped_corpus, validate

FAMILIES = """family,group,source,workload,precision,accelerator,accelerators_per_node,scale_up,scale_out,network_gbit_per_s_per_node,framework,framework_class,sharding,shard_group,regime,n_points,k_min,k_max,note
images,g1,mine,resnet50,fp16,a100-sxm4-80gb,8,nvswitch-2,ib-hdr,1600,x,pytorch_eager,ddp,,weak,4,1,32,
text,g2,mine,gpt-3b,bf16,h100-sxm5-80gb,8,nvswitch-3,ib-ndr,3200,x,fsdp_eager,fsdp,,strong,3,8,32,
"""
POINTS = """family,k,nodes,dp,tp,pp,cp,ep,vpp,micro_batch,accumulation,global_batch,seq_len,recompute,variant,step_s,spread_s,repeats,timing,grade,note
images,1,1,1,1,1,1,,,128,1,128,,none,,0.055,,,steady,A,
images,8,1,8,1,1,1,,,128,1,1024,,none,,0.060,,,steady,A,
images,16,2,16,1,1,1,,,128,1,2048,,none,,0.062,,,steady,A,
images,32,4,32,1,1,1,,,128,1,4096,,none,,0.064,,,steady,A,
text,8,1,8,1,1,1,,,4,16,512,4096,none,,12.2,,,steady,A,
text,16,2,16,1,1,1,,,4,8,512,4096,none,,6.2,,,steady,A,
text,32,4,32,1,1,1,,,4,4,512,4096,none,,3.2,,,steady,B,
"""
WORKLOADS = """workload,kind,sample,params,layers,hidden,heads,kv_heads,ffn,gated_mlp,vocab,seq_len
gpt-3b,decoder-transformer,sequence,3000000000,32,2560,32,8,6912,1,32000,4096
"""
SOURCES = "source,title,address\nmine,my runs,example.org/mine\n"


class Folder:
    """A folder of measured runs whose cells a test may change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.texts = {"families": FAMILIES, "points": POINTS, "workloads": WORKLOADS, "sources": SOURCES}

    def change(self, table: str, old: str, new: str) -> Folder:
        assert old in self.texts[table]
        self.texts[table] = self.texts[table].replace(old, new, 1)
        return self

    def written(self) -> Path:
        self.path.mkdir(exist_ok=True)
        for name, text in self.texts.items():
            (self.path / f"{name}.csv").write_text(text, encoding="utf-8")
        return self.path

    def faults(self) -> list[str]:
        """What is said of it when it is refused, as file:line and message."""
        with pytest.raises(SpecError) as caught:
            read_corpus(self.written())
        return [f"{Path(str(p.file)).name}:{p.line} {p.message}" for p in caught.value.problems]

    def result(self, *modes: str) -> dict[str, Any]:
        return validate(self.written(), modes=modes).result


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "runs")


def test_the_folder_as_it_stands_is_scored_without_a_word(folder: Folder) -> None:
    result = folder.result("datasheet", "one_node", "two_point")
    assert [result["modes"][mode]["points"] for mode in result["modes"]] == [7, 4, 3]
    assert result["unresolved"] == result["contradicted"] == result["notes"] == []


@pytest.mark.parametrize(
    ("accelerator", "precision", "lacks"),
    [
        ("a100-sxm4-80gb", "fp8", True),
        ("h100-sxm5-80gb", "fp4", True),
        ("h100-sxm5-80gb", "fp8", False),
        ("tpu-v5e", "fp8", False),  # eight bits as integers
        ("v100-sxm2-16gb", "bf16", False),  # at the nearest rate, as for a job
    ],
)
def test_a_precision_that_the_accelerator_lacks_is_listed_and_not_scored(
    folder: Folder, accelerator: str, precision: str, lacks: bool
) -> None:
    result = folder.change("families", "fp16,a100-sxm4-80gb", f"{precision},{accelerator}").result(
        "datasheet"
    )
    said = [(one["place"], one["reason"].split(";")[0]) for one in result["unresolved"]]
    assert said == ([("families.csv:2", f"{accelerator} has no {precision}")] if lacks else [])
    assert result["modes"]["datasheet"]["points"] == (3 if lacks else 7)


def test_a_decimal_comma_is_refused_though_the_cell_beyond_the_header_is_blank(folder: Folder) -> None:
    folder.change("points", ",12.2,,,steady,A,", ",12,2,,,,,")
    assert folder.faults() == ["points.csv:6 more cells than the 21 columns of the header"]


def test_decimal_commas_are_told_once_a_column(folder: Folder) -> None:
    points = folder.texts["points"].replace(",0.06", ',"0,06').replace(",,,steady", '",,,steady')
    folder.texts["points"] = points.replace('0.055"', "0.055").replace('.2"', ".2")
    assert folder.faults() == ["points.csv:3 step_s has a comma in its number (3 rows: lines 3, 4, 5)"]


def test_a_folder_that_is_not_there_is_told_once(folder: Folder) -> None:
    with pytest.raises(SpecError, match="no folder") as caught:
        read_corpus(folder.path)
    assert len(caught.value.problems) == 1


def test_a_configuration_with_two_timings_is_scored_and_noted_unless_variants_number_them(
    folder: Folder,
) -> None:
    again = "text,16,2,16,1,1,1,,,4,8,512,4096,none,{},6.9,,,steady,A,\n"
    folder.texts["points"] = POINTS + again.format("")
    result = folder.result("datasheet")
    assert result["modes"]["datasheet"]["points"] == 8
    (note,) = result["notes"]
    assert note.startswith("points.csv:9: a point that differs from an earlier line in its timing alone")
    folder.texts["points"] = POINTS + again.format("2")
    assert folder.result("datasheet")["notes"] == []


def test_commas_that_end_every_row_are_a_spreadsheets(folder: Folder) -> None:
    with_header = folder.texts["points"].replace("\n", ",,\n")
    head, _, rows = folder.texts["points"].partition("\n")
    for text in (with_header, head + "\n" + rows.replace("\n", ",,\n")):
        folder.texts["points"] = text
        assert folder.result("datasheet")["modes"]["datasheet"]["points"] == 7


def test_a_cell_under_a_column_without_a_name_is_refused(folder: Folder) -> None:
    folder.texts["points"] = folder.texts["points"].replace("\n", ",\n").replace("B,,", "B,,lost")
    assert folder.faults() == ["points.csv:8 more cells than the 21 columns of the header"]


@pytest.mark.parametrize("grade", ["Z", "a", "AB"])
def test_a_grade_that_nobody_gives_is_refused(folder: Folder, grade: str) -> None:
    folder.change("points", "6.2,,,steady,A", f"6.2,,,steady,{grade}")
    assert folder.faults() == [f'points.csv:7 grade "{grade}" is not known']


def test_a_blank_grade_is_scored_and_a_c_is_counted(folder: Folder) -> None:
    folder.change("points", "6.2,,,steady,A", "6.2,,,steady,").change("points", "B,\n", "C,\n")
    result = folder.result("datasheet")
    assert result["modes"]["datasheet"]["points"] == 6
    assert result["notes"] == ["1 point not scored: grade C"]


def test_a_family_of_more_points_than_can_be_weighed_together_is_refused_once(folder: Folder) -> None:
    last = POINTS.splitlines()[-1]
    folder.texts["points"] += "".join(f"{last}{number}\n" for number in range(MOST_POINTS + 5))
    # Three points before, so this is the line of the first that is too many.
    line = len(POINTS.splitlines()) + MOST_POINTS - 2
    assert folder.faults() == [f'points.csv:{line} family "text" has more than {MOST_POINTS} points']


@pytest.mark.parametrize("sign", [";", "\t"])
def test_families_that_cannot_be_read_are_told_once_and_not_again_for_every_point(
    folder: Folder, sign: str
) -> None:
    folder.texts["families"] = folder.texts["families"].replace(",", sign)
    assert folder.faults() == ["families.csv:1 one column only: the cells must be separated by commas"]


def test_points_do_not_miss_the_families_of_a_file_that_is_not_there(folder: Folder) -> None:
    del folder.texts["families"]
    assert folder.faults() == [f"None:None no file families.csv in {folder.path}"]


def test_families_that_a_mode_cannot_score_are_counted_in_words_and_named_in_json(folder: Folder) -> None:
    folder.texts["points"] = "\n".join(POINTS.splitlines()[:3] + POINTS.splitlines()[5:7]) + "\n"
    found = validate(folder.written())
    modes = found.result["modes"]
    assert modes["one_node"]["skipped_families"] == {"no point beyond one node": ["images"]}
    assert modes["two_point"]["skipped_families"] == {"fewer than three values of K": ["images", "text"]}
    said = notes(found.envelope())
    assert "one node: 1 family not scored: no point beyond one node" in said
    assert "two point: 2 families not scored: fewer than three values of K" in said
    assert not any(line.startswith("datasheet") for line in said)


def test_a_point_without_a_batch_that_no_mode_scores_is_not_called_scored(folder: Folder) -> None:
    folder.texts["points"] += "text,64,8,64,1,1,1,,,,,,4096,none,,0.001,,,steady,B,\n"
    (note,) = folder.result("datasheet", "one_node", "two_point")["notes"]
    assert note.startswith('points.csv:9: 1 point of family "text" without the global_batch that others')
    assert "not scored" in note
    assert "ratios only" not in note


def test_a_sweep_is_not_counted_as_a_family(folder: Folder) -> None:
    folder.texts["collectives"] = (
        "sweep,op,accelerator,ranks,nodes,bytes,time_s\na,all_reduce,zz9000,8,1,1e6,1e-4\n"
    )
    (said,) = notes(validate(folder.written(), modes=()).envelope())
    assert said == 'collectives.csv:2: 1 sweep not scored: accelerator "zz9000" is not in the catalogue'


@pytest.mark.parametrize(
    ("table", "old", "new", "said"),
    [
        ("workloads", "3000000000", "300000000000", "workloads.csv:2 gpt-3b: params is 3e+11, its dimensions make 2.39e+09"),
        ("workloads", "3000000000", "30000000", "workloads.csv:2 gpt-3b: params is 3e+07, its dimensions make 2.39e+09"),
        ("families", ",8,nvswitch-2", ",2.5,nvswitch-2", 'families.csv:2 accelerators_per_node is "2.5": not a positive whole number'),
        ("families", ",8,nvswitch-2", ",1000000,nvswitch-2", 'families.csv:2 accelerators_per_node is "1000000": more than 4096'),
        ("families", "fsdp,,strong", "fsdp,2.5,strong", 'families.csv:3 shard_group is "2.5": not a positive whole number'),
        ("points", "4,16,512,4096", "4,16,512,0.5", 'points.csv:6 seq_len is "0.5": less than 1'),
        ("points", "4,16,512,4096", "4,16,512,٤٠٩٦", 'points.csv:6 seq_len is "٤٠٩٦": not a positive number'),
        ("points", "4,16,512,4096", "4,16,512,4_096", 'points.csv:6 seq_len is "4_096": not a positive number'),
        ("workloads", "3000000000", "3_000_000_000", 'workloads.csv:2 params is "3_000_000_000": not a number'),
        ("points", "4,16,512,4096", "4,16,512,1e9", 'points.csv:6 seq_len is "1e9": more than 1e+08'),
    ],
)  # fmt: skip
def test_a_cell_that_cannot_be_is_refused(folder: Folder, table: str, old: str, new: str, said: str) -> None:
    assert folder.change(table, old, new).faults() == [said]


@pytest.mark.parametrize("column", ["document_len", "vocab"])
def test_documents_and_words_of_what_has_no_attention_are_listed_and_not_scored(
    folder: Folder, column: str
) -> None:
    lines = folder.texts["points"].splitlines()
    folder.texts["points"] = "\n".join([f"{lines[0]},{column}", *(line + ",180" for line in lines[1:])])
    result = folder.result("datasheet")
    said = {one["reason"] for one in result["contradicted"]}
    assert said == {f"{column} is stated, and no attention of resnet50 is counted"}
    assert result["modes"]["datasheet"]["points"] == 3


def test_a_source_that_nobody_described_is_noted(folder: Folder) -> None:
    folder.change("families", "g2,mine", "g2,myne")
    said = notes(validate(folder.written(), modes=()).envelope())
    assert 'families.csv:3: 1 family of source "myne", which sources.csv lacks' in said


def test_a_source_may_be_blank_or_go_without_a_file(folder: Folder) -> None:
    folder.change("families", "g2,mine", "g2,")
    assert read_corpus(folder.written()).families
    (folder.path / "sources.csv").unlink()
    assert read_corpus(folder.path).families


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("nvswitch-3", "ib-ndr", 'scale_up is "ib-ndr", a link between nodes'),
        ("ib-ndr", "pcie-4", 'scale_out is "pcie-4", a link within a node'),
        ("fsdp,,strong", "hsdp,1000000,strong", "shard_group is 1e+06, its largest k 32"),
    ],
)
def test_a_family_that_cannot_be_is_listed_and_not_scored(
    folder: Folder, old: str, new: str, reason: str
) -> None:
    result = folder.change("families", old, new).result("datasheet")
    assert result["unresolved"] == [{"family": "text", "reason": reason, "place": "families.csv:3"}]
    assert result["modes"]["datasheet"]["points"] == 4


def test_a_sharding_group_larger_than_the_first_runs_is_all_of_them_and_one_that_divides_nothing_is_listed(
    folder: Folder,
) -> None:
    assert folder.change("families", "fsdp,,strong", "hsdp,16,strong").result()["contradicted"] == []
    result = folder.change("families", "hsdp,16,strong", "hsdp,3,strong").result()
    assert [one["reason"] for one in result["contradicted"]] == [
        f"shard_group is 3, no part of k over tp times pp, {k}" for k in (8, 16, 32)
    ]


def test_a_spread_beyond_the_step_is_listed_and_not_scored(folder: Folder) -> None:
    result = folder.change("points", ",12.2,,", ",12.2,13,").result("datasheet")
    assert [(one["point"], one["reason"]) for one in result["contradicted"]] == [
        ("points.csv:6", "spread_s is 13, more than step_s, 12.2")
    ]


def test_a_point_that_stands_twice_counts_once(folder: Folder) -> None:
    folder.texts["points"] += POINTS.splitlines()[1] + "\n"
    result = folder.result("datasheet")
    assert [(one["point"], one["reason"]) for one in result["contradicted"]] == [
        ("points.csv:9", "the same in every cell as line 2")
    ]
    assert result["modes"]["datasheet"]["points"] == 7


def test_families_that_the_beliefs_were_fitted_on_are_told_though_they_go_by_another_name(
    folder: Folder,
) -> None:
    fitted = read_corpus(shipped_corpus())
    name = next(iter(fitted.families))
    rows = [row for row in fitted.points if row.text["family"] == name]
    for table, known in (("families", [fitted.families[name]]), ("points", rows)):
        head = folder.texts[table].splitlines()[0].split(",")
        for row in known:
            cells = {**row.text, "family": "renamed", "source": "", "note": ""}
            folder.texts[table] += ",".join(cells[column] for column in head) + "\n"
    result = folder.result("datasheet")
    assert "1 of 3 families was in the fit of the beliefs: such errors flatter" in result["notes"]


def test_a_framework_that_no_class_names_is_said_to_be_unknown(folder: Folder) -> None:
    folder.change("families", "pytorch_eager", "abacus")
    assert folder.result()["notes"] == [
        '1 family of unknown framework_class "abacus": predicted by what all frameworks share'
    ]


def test_the_table_says_what_its_last_columns_are_and_on_how_few_families_knees_rest(folder: Folder) -> None:
    folder.change("points", "3.2,,,steady,B", "6.0,,,steady,B")
    table = tables(validate(folder.written(), modes=("one_node", "two_point")).envelope())[0]
    assert "band: its half-width" in table.note
    assert "knees found within a factor of two (one node of 1 family, two point of 1 family)" in table.note


def test_inputs_tell_folders_apart_by_what_was_read(folder: Folder) -> None:
    first = validate(folder.written(), modes=()).inputs["files"]
    (folder.path / "answer.json").write_text("{}")
    assert validate(folder.path, modes=()).inputs["files"] == first
    folder.change("points", "4,16,512,4096", "4,16,512,2048")
    assert validate(folder.written(), modes=()).inputs["files"]["points"] != first["points"]
