"""Reading measured runs: every mistake with its file and line, nothing dropped in silence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfmodel.errors import SpecError
from perfmodel.report.kinds.validation import answer
from perfmodel.specs.catalog import Catalog
from perfmodel.validate.corpus import read_corpus
from perfmodel.validate.resolve import Resolved, known_workload, resolve
from perfmodel.validate.validation import validate

FAMILIES = """family,group,source,workload,precision,accelerator,accelerators_per_node,scale_up,scale_out,network_gbit_per_s_per_node,framework,framework_class,sharding,shard_group,regime,n_points,k_min,k_max,note
one,g,s,resnet50,fp16,a100-sxm4-80gb,8,nvswitch-2,ib-hdr,1600,x,pytorch_eager,ddp,,weak,4,1,32,
"""
POINTS = """family,k,nodes,dp,tp,pp,cp,ep,vpp,micro_batch,accumulation,global_batch,seq_len,recompute,variant,step_s,spread_s,repeats,timing,grade,note
one,1,1,1,1,1,1,,,128,1,128,,none,,0.055,,,steady,A,
one,8,1,8,1,1,1,,,128,1,1024,,none,,0.060,,,steady,A,
one,16,2,16,1,1,1,,,128,1,2048,,none,,0.062,,,steady,A,
one,32,4,32,1,1,1,,,128,1,4096,,none,,0.064,,,steady,A,
"""
WORKLOADS = (
    "workload,kind,sample,params,flop_per_sample_forward\nresnet50,convnet,image,25557032,8178368512\n"
)


def write(folder: Path, families: str = FAMILIES, points: str = POINTS, workloads: str = WORKLOADS) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "families.csv").write_text(families)
    (folder / "points.csv").write_text(points)
    (folder / "workloads.csv").write_text(workloads)
    return folder


def test_a_small_folder_is_scored_in_every_mode(tmp_path: Path) -> None:
    result = validate(write(tmp_path / "d")).envelope()["result"]
    assert result["modes"]["datasheet"]["points"] == 4
    assert result["modes"]["one_node"]["points"] == 2
    assert result["modes"]["two_point"]["points"] == 2
    for mode in ("one_node", "two_point"):
        assert set(result["modes"][mode]["baselines"]) == {
            "ideal",
            "constant_efficiency",
            "amdahl",
            "usl",
            "ring_law",
            "log_law",
        }
    points = next(row for row in result["families"] if row["mode"] == "two_point")["points"]
    assert [p["k"] for p in points] == [16, 32]
    assert all(p["low_s"] < p["predicted_s"] < p["high_s"] for p in points)
    # Four nearly flat points: whoever extrapolates them should stay within a tenth.
    assert result["modes"]["two_point"]["mean_ape"] < 0.1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("points", "0.055", "fast"), "points.csv:2"),
        (("points", "0.060", "-1"), "points.csv:3"),
        (("points", "one,16", "two,16"), 'family "two" is not in families.csv'),
        (("points", ",none,,0.062", ",some,,0.062"), 'recompute is "some"'),
        (("families", "fp16", "fp17"), 'precision "fp17" is not known'),
        (("families", "ddp", "dpd"), 'sharding "dpd" is not known'),
        (("families", "family,group", "familie,group"), "missing column family"),
        (("workloads", "25557032", "many"), "params"),
    ],
)
def test_mistakes_are_named_with_their_place(
    tmp_path: Path, change: tuple[str, str, str], words: str
) -> None:
    name, old, new = change
    texts = {"families": FAMILIES, "points": POINTS, "workloads": WORKLOADS}
    assert old in texts[name]
    texts[name] = texts[name].replace(old, new, 1)
    with pytest.raises(SpecError) as caught:
        read_corpus(write(tmp_path / "d", **texts))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("table", "old", "new", "wrong"),
    [
        ("points", "0.060", "fast", "fast"),
        ("points", "one,16,2", "one,16,99", "99"),
        ("points", ",none,,0.062", ",some,,0.062", "some"),
        ("points", "one,32", "two,32", "two"),
        ("families", "fp16", "fp17", "fp17"),
        ("families", "g,s,resnet50,fp16", '"g, or ""h""",s,resnet50,fp17', "fp17"),
        ("families", "g,s,resnet50,fp16", '"g\nor h",s,resnet50,fp17', "fp17"),
        ("workloads", "25557032", "many", "many"),
        ("families", "32,\n", '32,"a, b",,c\n', "c"),  # beyond the header, the first that is not blank
    ],
)
def test_a_mistake_is_placed_at_its_cell(tmp_path: Path, table: str, old: str, new: str, wrong: str) -> None:
    texts = {"families": FAMILIES, "points": POINTS, "workloads": WORKLOADS}
    texts[table] = texts[table].replace(old, new, 1).replace("\n", "\n\n", 1)  # a blank line is no record
    with pytest.raises(SpecError) as caught:
        read_corpus(write(tmp_path / "d", **texts))
    (problem,) = caught.value.problems
    line = texts[table].split("\n")[(problem.line or 0) - 1]
    assert line[(problem.column or 0) - 1 :].startswith(wrong)


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    points = POINTS.replace("0.055", "x").replace("0.064", "nan")
    with pytest.raises(SpecError) as caught:
        read_corpus(write(tmp_path / "d", points=points))
    assert len(caught.value.problems) == 2


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "d")
    (folder / "points.csv").unlink()
    with pytest.raises(SpecError, match=r"points\.csv"):
        read_corpus(folder)


def test_unknown_hardware_is_listed_not_dropped(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", families=FAMILIES.replace("a100-sxm4-80gb", "a100-sxm4-81gb"))
    found = resolve(read_corpus(folder), Catalog.default())
    reason = 'accelerator "a100-sxm4-81gb" is not in the catalogue; did you mean "a100-sxm4-80gb"?'
    assert [why for _, why in found.unresolved] == [reason]
    result = validate(folder).envelope()["result"]
    assert result["unresolved"] == [{"family": "one", "reason": reason, "place": "families.csv:2"}]
    assert result["modes"]["datasheet"]["families"] == 0
    assert answer({"result": result}) == "1 family could not be scored, see the notes."


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("nvswitch-2", "nvswich-2", 'link "nvswich-2" is not in the catalogue; did you mean "nvswitch-2"?'),
        ("resnet50", "resnet51", 'workload "resnet51" is neither in workloads.csv nor in the zoo; did you mean "resnet50"?'),
        ("a100-sxm4-80gb", "", 'accelerator "" is not in the catalogue'),
    ],
)  # fmt: skip
def test_a_name_that_is_not_known_comes_with_the_nearest_that_is(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    folder = write(tmp_path / "d", families=FAMILIES.replace(old, new))
    assert [why for _, why in resolve(read_corpus(folder), Catalog.default()).unresolved] == [reason]


def test_points_without_a_batch_are_scored_as_ratios(tmp_path: Path) -> None:
    points = POINTS
    for batch in ("128,1,128,", "128,1,1024,", "128,1,2048,", "128,1,4096,"):
        points = points.replace(batch, ",,,")
    scaled = (
        points.replace("0.055", "0.55")
        .replace("0.060", "0.60")
        .replace("0.062", "0.62")
        .replace("0.064", "0.64")
    )
    errors = []
    for name, text in (("a", points), ("b", scaled)):
        result = validate(write(tmp_path / name, points=text)).envelope()["result"]
        assert result["modes"]["datasheet"]["points"] == 0
        errors.append(result["modes"]["two_point"]["mean_ape"])
    # Ten times slower throughout: the ratios over K are the same, and so nearly is the error.
    assert errors[1] == pytest.approx(errors[0], abs=0.02)


def test_points_without_a_batch_among_others_are_scored_apart(tmp_path: Path) -> None:
    """Those that state a batch get the band that they get alone: another unit beside them must not free their offset."""
    ratios = "".join(
        f"one,{k},{max(k // 8, 1)},{k},1,1,1,,,,,,,none,,{seconds},,,steady,B,\n"
        for k, seconds in ((1, 4.3e-4), (2, 4.4e-4), (8, 4.7e-4), (64, 5.1e-4))
    )
    alone = validate(write(tmp_path / "alone")).envelope()["result"]
    mixed = validate(write(tmp_path / "mixed", points=POINTS + ratios)).envelope()["result"]
    of = {(row["family"], row["mode"]): row["points"] for row in mixed["families"]}
    for row in alone["families"]:
        assert of["one", row["mode"]] == row["points"]
    assert [point["k"] for point in of["one (no batch)", "two_point"]] == [8, 64]
    assert ("one (no batch)", "datasheet") not in of
    (note,) = mixed["notes"]
    assert note.startswith(
        'points.csv:6: 4 points of family "one" without the global_batch that others state'
    )
    assert not alone["notes"]


NO_BATCH = "one,64,8,64,1,1,1,,,,,,,none,,5e-4,,,steady,B,\n"


def test_a_family_that_cannot_be_resolved_is_told_once(tmp_path: Path) -> None:
    families = FAMILIES.replace("a100-sxm4-80gb", "abacus-1")
    found = resolve(read_corpus(write(tmp_path / "d", families, POINTS + NO_BATCH)), Catalog.default())
    assert [row.text["family"] for row, _ in found.unresolved] == ["one"]
    assert found.batchless == {}


def test_the_name_of_points_without_a_batch_is_refused_for_a_family(tmp_path: Path) -> None:
    families = FAMILIES + FAMILIES.splitlines()[1].replace("one,", "one (no batch),", 1) + "\n"
    assert faults_of(write(tmp_path / "d", families, POINTS + NO_BATCH)) == [
        'families.csv:3 family "one (no batch)" ends in "(no batch)"'
    ]


@pytest.mark.parametrize(
    ("old", "new", "how"),
    [
        (
            "128,1,1024",
            "128,2,1024",
            "dp times micro_batch times accumulation is 2048, global_batch is 1024",
        ),
        (
            "128,1,1024",
            "128,1,2016",
            "dp times micro_batch times accumulation is 1024, global_batch is 2016",
        ),
        ("128,1,1024", "256,,1024", "dp times micro_batch is 2048, more than global_batch 1024"),
        ("one,8,1,8,1,", "one,8,1,8,2,", "dp times tp times pp times cp is 16, k is 8"),
        ("one,8,1,8,1,1,1,,,128,1", "one,8,1,,3,,,,,,", "k is 8, no multiple of tp times pp times cp, 3"),
        ("one,8,1,8,1,1,1,,,128,1", "one,8,1,,,,3,,,,", "k is 8, no multiple of tp times pp times cp, 3"),
        ("one,8,1,8,1,1,1,,,128,1", "one,8,1,3,,,,,,,", "k is 8, no multiple of dp times cp, 3"),
        ("one,8,1,8,", "one,16,1,16,", "k is 16, more than nodes times accelerators_per_node, 8"),
        ("one,8,1,8,1,", "one,8,1,4,1,", "dp times tp times pp times cp is 4, k is 8"),
        (
            "one,8,1,8,1,1,1",
            "one,8,1,,2,,",
            "dp times micro_batch times accumulation is 512, global_batch is 1024",
        ),
    ],
)
def test_a_point_that_contradicts_itself_is_listed_and_not_scored(
    tmp_path: Path, old: str, new: str, how: str
) -> None:
    result = validate(write(tmp_path / "d", points=POINTS.replace(old, new))).envelope()["result"]
    assert result["contradicted"] == [{"point": "points.csv:3", "family": "one", "reason": how}]
    assert result["modes"]["datasheet"]["points"] == 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("128,1,1024", "100,11,8640"),  # the last micro-batch is partial
        ("128,1,1024", "128,,1024"),
        ("one,8,1,8,1,1,1,,,128,1", "one,8,1,4,,,,,,128,2"),  # who cuts it in two is not said
    ],
)
def test_a_point_that_leaves_something_open_is_scored(tmp_path: Path, old: str, new: str) -> None:
    points = POINTS.replace("0.060", "0.600").replace(old, new)
    result = validate(write(tmp_path / "d", points=points)).envelope()["result"]
    assert result["contradicted"] == []
    assert result["modes"]["datasheet"]["points"] == 4


def test_a_step_faster_than_the_peak_is_listed_and_not_scored(tmp_path: Path) -> None:
    result = validate(write(tmp_path / "d", points=POINTS.replace("0.060", "0.006"))).envelope()["result"]
    assert [(one["point"], one["family"]) for one in result["contradicted"]] == [("points.csv:3", "one")]
    assert "shorter than the 0.0" in result["contradicted"][0]["reason"]
    assert result["modes"]["datasheet"]["points"] == 3


def test_a_family_all_of_whose_points_contradict_themselves_is_listed(tmp_path: Path) -> None:
    points = POINTS.splitlines()[0] + "\none,8,1,8,1,1,1,,,128,2,1024,,none,,0.06,,,steady,A,\n"
    found = resolve(read_corpus(write(tmp_path / "d", points=points)), Catalog.default())
    assert [why for _, why in found.unresolved] == ["no points of grade A or B that agree with themselves"]


def test_the_shipped_corpus_resolves(resolved: Resolved) -> None:
    found = resolved
    data = found.observations
    assert len(data.names) > 1300
    assert len(found.unresolved) <= 5
    assert not found.batchless
    assert not found.contradicted
    assert np.isfinite(data.target).all()


BERT = "workload,kind,sample,params,layers,hidden,heads,ffn,vocab,seq_len\nbert,encoder-transformer,sequence,335e6,24,1024,16,4096,30522,512\n"
LLM = "workload,kind,sample,params,layers,hidden,heads,ffn,vocab,seq_len\nbig,decoder-transformer,sequence,175e9,96,12288,96,49152,51200,2048\n"


def layouts_of(folder: Path, families: str, points: str, workloads: str):
    resolved = resolve(read_corpus(write(folder, families, points, workloads)), Catalog.default())
    return resolved.observations


def test_padding_that_a_source_skips_is_not_computed(tmp_path: Path) -> None:
    families = FAMILIES.replace("resnet50", "bert")
    rows = POINTS.splitlines()
    row = "one,8,1,8,1,1,1,,,32,1,256,512,none,,1.0,,,steady,A,"
    points = "\n".join([rows[0], row, row + "padding is skipped (as its README says)"]) + "\n"
    tokens = layouts_of(tmp_path / "d", families, points, BERT).ops.tokens
    assert tokens.tolist() == [512.0, 256.0]


def test_a_model_too_large_for_a_device_is_cut_where_nobody_says_how(tmp_path: Path) -> None:
    families = FAMILIES.replace("resnet50", "big")
    head = POINTS.splitlines()[0]
    blank = head + "\none,128,16,,,,,,,,,512,2048,,,500,,,steady,A,\n"
    found = layouts_of(tmp_path / "blank", families, blank, LLM).at
    assert found.tp[0] == 8.0
    assert found.pp[0] > 1.0
    stated = head + "\none,128,16,16,8,1,1,,,,,512,2048,,,500,,,steady,A,\n"
    assert layouts_of(tmp_path / "stated", families, stated, LLM).at.pp[0] == 1.0
    sharded = layouts_of(tmp_path / "fsdp", families.replace(",ddp,", ",fsdp,"), blank, LLM).at
    assert sharded.tp[0] == sharded.pp[0] == 1.0


@pytest.mark.parametrize(
    ("degrees", "cut"),
    [
        (",,,,", (8, 4, 1, 2)),
        (",,,8,", (8, 1, 8, 1)),  # context parallelism leaves 8 of 64
        ("16,,,,", (4, 1, 1, 16)),  # so many replicas leave 4
        ("4,,,2,", (8, 1, 2, 4)),
        ("1,,,2,", (8, 4, 2, 1)),
    ],
)
def test_a_cut_that_nobody_states_takes_what_the_stated_degrees_leave(
    tmp_path: Path, degrees: str, cut: tuple[int, ...]
) -> None:
    points = POINTS.splitlines()[0] + f"\none,64,8,{degrees},,,,512,2048,,,500,,,steady,A,\n"
    at = layouts_of(tmp_path / "d", FAMILIES.replace("resnet50", "big"), points, LLM).at
    assert (at.tp[0], at.pp[0], at.cp[0], at.dp[0]) == cut


def test_a_share_of_a_twentieth_is_not_the_word_that_repeats_as_much(tmp_path: Path) -> None:
    families = FAMILIES.replace("resnet50", "big")
    row = "one,128,16,2,8,8,1,,,,,512,2048,{},,50,,,steady,A,"
    points = "\n".join([POINTS.splitlines()[0], row.format("0.05"), row.format("selective")]) + "\n"
    at = layouts_of(tmp_path / "d", families, points, LLM).at
    assert at.recompute.tolist() == [0.05, 0.05]
    assert at.selective.tolist() == at.sequence_parallel.tolist() == [0.0, 1.0]


def test_a_torus_of_hosts_is_one_domain_and_a_slice_that_is_a_node_stays_one(tmp_path: Path) -> None:
    torus = FAMILIES.replace("a100-sxm4-80gb,8,nvswitch-2,ib-hdr,1600", "tpu-v4,{n},ici-v4,,")
    domain = layouts_of(tmp_path / "host", torus.format(n=4), POINTS, WORKLOADS).machine.domain
    assert set(domain.tolist()) == {4096.0}
    domain = layouts_of(tmp_path / "slice", torus.format(n=64), POINTS, WORKLOADS).machine.domain
    assert set(domain.tolist()) == {64.0}


def test_what_the_form_has_no_column_for_comes_from_the_zoo(tmp_path: Path) -> None:
    stated = "workload,kind,sample,params,layers,hidden,heads,ffn,vocab,seq_len,causal\n"
    row = "transformer-xl-base,decoder-transformer,sequence,192000000,16,512,8,2048,267735,192,1\n"
    folder = write(
        tmp_path / "d",
        families=FAMILIES.replace("resnet50", "transformer-xl-base"),
        workloads=stated + row,
    )
    corpus = read_corpus(folder)
    found = known_workload("transformer-xl-base", corpus, Catalog.default())
    assert found is not None
    assert found.memory_len == 192
    assert corpus.workloads["transformer-xl-base"].memory_len is None
    neo = "gpt-neo-125m,decoder-transformer,sequence,125198592,12,768,12,3072,50257,1024,1\n"
    (folder / "workloads.csv").write_text(stated + row + neo)
    found = known_workload("gpt-neo-125m", read_corpus(folder), Catalog.default())
    assert found is not None
    assert found.scores_in_fp32 is True


def test_a_batch_that_a_note_names_is_used_where_none_is_given_in_samples(tmp_path: Path) -> None:
    families = FAMILIES.replace("resnet50", "tacotron2")
    workloads = WORKLOADS.replace("resnet50,convnet,image", "tacotron2,tts,mel frame")
    row = "one,8,1,8,1,1,1,,,,,,,none,,1e-4,,,steady,B,normalised"
    noted = row + "; source batch per accelerator 48"
    points = "\n".join([POINTS.splitlines()[0], row, noted]) + "\n"
    usual, stated = layouts_of(tmp_path / "d", families, points, workloads).at.micro_batch
    # Utterances of 566 frames on average.
    assert stated == 48 * 566
    assert usual != stated


def test_a_sample_that_is_a_token_comes_in_thousands(tmp_path: Path) -> None:
    families = FAMILIES.replace("resnet50", "translation")
    workloads = WORKLOADS.replace("resnet50,convnet,image", "translation,encoder-decoder-transformer,{}")
    points = POINTS.splitlines()[0] + "\none,8,1,8,1,1,1,,,,,,,none,,1e-4,,,steady,B,\n"
    tokens = layouts_of(tmp_path / "t", families, points, workloads.format("token")).at.micro_batch
    pairs = layouts_of(tmp_path / "p", families, points, workloads.format("pair")).at.micro_batch
    assert tokens[0] > 1000 > pairs[0]


def test_a_family_needs_a_name_and_may_be_stated_twice_in_the_same_words(tmp_path: Path) -> None:
    line = FAMILIES.splitlines()[1] + "\n"
    assert list(read_corpus(write(tmp_path / "same", FAMILIES + line)).families) == ["one"]
    assert faults_of(write(tmp_path / "other", FAMILIES + line.replace(",weak,", ",strong,"))) == [
        'families.csv:3 family "one" stands twice, with other values in line 2'
    ]
    nameless = line.replace("one,", ",", 1)
    assert faults_of(write(tmp_path / "blank", FAMILIES + nameless)) == ["families.csv:3 family is blank"]


def test_a_few_hundred_tokens_are_sentences(tmp_path: Path) -> None:
    families = FAMILIES.replace("resnet50", "translation")
    workloads = WORKLOADS.replace("resnet50,convnet,image", "translation,rnn-translation,token")
    row = "one,8,1,8,1,1,1,,,{},1,{},,none,,100,,,steady,A,"
    points = "\n".join([POINTS.splitlines()[0], row.format(384, 3072), row.format(5120, 40960)]) + "\n"
    found = layouts_of(tmp_path / "d", families, points, workloads).at
    assert found.micro_batch.tolist() == [384 * 60, 5120]
    assert found.accumulation.tolist() == [1, 1]


def faults_of(folder: Path) -> list[str]:
    """What is said of a folder that must be refused, as file:line and message."""
    with pytest.raises(SpecError) as caught:
        read_corpus(folder)
    return [f"{Path(str(p.file)).name}:{p.line} {p.message}" for p in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "sources.csv:1 the file is empty"),
        ("source,title\ns,x\n", "sources.csv:1 missing column address"),
        ("source,address,address\ns,a,b\n", "sources.csv:1 column address stands twice"),
        ("source,address\ns,a\ns,b\n", 'sources.csv:3 source "s" stands twice, with other values in line 2'),
        ("source,address\n,a\n", "sources.csv:2 source is blank"),
        ("source,address\ns,a,b\n", "sources.csv:2 more cells than the 2 columns of the header"),
        ('source,address\ns,a\n"t,b\n', "sources.csv:3 not readable as CSV: unexpected end of data"),
    ],
)
def test_sources_that_contradict_themselves_are_refused(tmp_path: Path, text: str, said: str) -> None:
    folder = write(tmp_path / "d")
    (folder / "sources.csv").write_text(text)
    assert faults_of(folder) == [said]


def test_a_byte_that_is_no_text_is_named_by_its_line(tmp_path: Path) -> None:
    folder = write(tmp_path / "d")
    (folder / "sources.csv").write_bytes(b"source,address\ns,a\n\xff,b\n")
    assert faults_of(folder) == ["sources.csv:3 not UTF-8 text"]


@pytest.mark.parametrize(
    "text", ["\ufeffsource,address\ns,a\n", "source,address\ns,a\ns,a\n", "source,address\ns,a,\n"]
)
def test_sources_that_say_the_same_twice_or_come_from_a_spreadsheet_are_read(
    tmp_path: Path, text: str
) -> None:
    folder = write(tmp_path / "d")
    (folder / "sources.csv").write_text(text, encoding="utf-8")
    assert read_corpus(folder).corrected == {}


@pytest.mark.parametrize("batch", ["0", "-3", "1,024", "9" * 400])
def test_a_note_that_names_no_batch_is_refused(tmp_path: Path, batch: str) -> None:
    row = f'one,8,1,8,1,1,1,,,,,,,none,,1e-4,,,steady,B,"source batch per accelerator {batch}"'
    folder = write(tmp_path / "d", points=POINTS + row + "\n")
    assert faults_of(folder) == [
        f'points.csv:6 the note names a source batch per accelerator of "{batch[:40]}"'
    ]


def test_a_point_on_more_nodes_than_accelerators_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", points=POINTS.replace("one,8,1,", "one,8,9,"))
    assert faults_of(folder) == ["points.csv:3 nodes is more than k"]


def test_absurd_counts_and_times_are_refused(tmp_path: Path) -> None:
    points = (
        POINTS.replace("one,32,4,32", "one,1e18,4,32")
        .replace("0.055", "1e17")
        .replace("128,1,1024", "inf,1,1e18")
    )
    assert faults_of(write(tmp_path / "d", points=points)) == [
        'points.csv:2 step_s is "1e17": more than 1e+07',
        'points.csv:3 micro_batch is "inf": more than 1e+12',
        'points.csv:3 global_batch is "1e18": more than 1e+12',
        'points.csv:5 k is "1e18": more than 1e+07',
    ]


def test_columns_that_a_table_may_have_besides_are_checked_like_the_others(tmp_path: Path) -> None:
    family, *_ = FAMILIES.splitlines()[1:]
    header, *lines = POINTS.splitlines()
    said = ["18.5,4,", "0,5,", "inf,-1,0", "18,none,4096"]
    folder = write(
        tmp_path / "d",
        families=f"{FAMILIES.splitlines()[0]},cuda,bucket_bytes\n{family},10.2.89,0\n",
        points="\n".join(
            [
                f"{header},run_steps,tp_hidden,run_batch",
                *(f"{a},{b}" for a, b in zip(lines, said, strict=True)),
            ]
        ),
    )
    assert faults_of(folder) == [
        'families.csv:2 cuda is "10.2.89": not a positive number',
        'families.csv:2 bucket_bytes is "0": not a positive number',
        'points.csv:2 run_steps is "18.5": not a positive whole number',
        'points.csv:3 run_steps is "0": not a positive whole number',
        'points.csv:3 tp_hidden is "5": more than 4',
        'points.csv:4 run_steps is "inf": more than 1e+09',
        'points.csv:4 run_batch is "0": not a positive number',
        'points.csv:4 tp_hidden is "-1": not a number',
        'points.csv:5 tp_hidden is "none": not a number',
        "points.csv:5 run_batch stands beside global_batch",
    ]


def test_a_column_of_the_other_table_is_refused(tmp_path: Path) -> None:
    """It would be read and not used; what sources note under such a name is theirs."""
    header, *lines = POINTS.splitlines()
    points = "\n".join([f"{header},cuda", *(f"{line},10.2" for line in lines)])
    families = FAMILIES.replace(",note\n", ",note,run_steps\n").replace("32,\n", "32,,18\n")
    folder = write(tmp_path / "d", families=families, points=points)
    (folder / "sources.csv").write_text("source,address,cuda\ns,somewhere,cu117\n")
    assert faults_of(folder) == [
        "families.csv:1 column run_steps belongs in points.csv",
        "points.csv:1 column cuda belongs in families.csv",
    ]


def test_every_cell_of_a_workload_is_named_at_once(tmp_path: Path) -> None:
    head = "workload,kind,sample,params,causal,memory_len,projected_vocab,vocab\n"
    rows = "a,decoder-transformer,sequence,many,maybe,nan,0,9\nb,decoder-transformer,sequence,1,1,-1,10,9\na,convnet,image,1,,,,\n"
    found = faults_of(write(tmp_path / "d", workloads=head + rows))
    for said in (
        'workloads.csv:2 params is "many": not a number',
        'workloads.csv:2 causal is "maybe": neither 1 nor 0',
        'workloads.csv:2 memory_len is "nan": not a number',
        "workloads.csv:2 a: projected_vocab: must be at least 1, got 0",
        "workloads.csv:3 b: memory_len: must be at least 0, got -1",
        'workloads.csv:4 workload "a" stands twice, with other values in line 2',
    ):
        assert said in found


def test_another_model_of_a_name_of_the_zoo_keeps_its_own_shape(tmp_path: Path) -> None:
    name = "transformer-xl-base-adaptive"
    head = "workload,kind,sample,params,layers,hidden,heads,vocab,seq_len,flop_per_sample_forward\n"
    for row in ("decoder-transformer,sequence,1000000,2,128,2,100,64,", "convnet,image,1000000,,,,,,1e9"):
        folder = write(tmp_path / "d", FAMILIES.replace("resnet50", name), POINTS, head + f"{name},{row}\n")
        found = known_workload(name, read_corpus(folder), Catalog.default())
        assert found is not None
        assert (found.memory_len, found.projected_vocab) == (None, None)
