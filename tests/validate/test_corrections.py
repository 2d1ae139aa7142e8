"""What a run was by its publisher's scripts, where they say other than its label."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.physics.constants import BUCKET_BYTES
from perfmodel.specs.catalog import Catalog
from perfmodel.validate.corpus import read_corpus
from perfmodel.validate.corrections import Correction, known
from perfmodel.validate.resolve import resolve
from perfmodel.validate.tables import UNSTATED
from perfmodel.validate.validation import shipped_corpus, validate

FAMILIES = """family,group,source,workload,precision,accelerator,accelerators_per_node,scale_up,scale_out,network_gbit_per_s_per_node,framework,framework_class,sharding,shard_group,regime,n_points,k_min,k_max,note
one,g,s,transformer-xl-base,fp16,a100-sxm4-80gb,8,nvswitch-2,ib-hdr,1600,x,pytorch_eager,ddp,,weak,4,1,32,
"""
POINTS = """family,k,nodes,dp,tp,pp,cp,ep,vpp,micro_batch,accumulation,global_batch,seq_len,recompute,variant,step_s,spread_s,repeats,timing,grade,note
one,1,1,1,1,1,1,,,128,1,128,,none,,55.0,,,steady,A,
one,8,1,8,1,1,1,,,128,1,1024,,none,,60.0,,,steady,A,
one,16,2,16,1,1,1,,,128,1,2048,,none,,62.0,,,steady,A,
one,32,4,32,1,1,1,,,128,1,4096,,none,,64.0,,,steady,A,
"""
WORKLOADS = "workload,kind,sample,params\n"  # none: the zoo's
SOURCES = "source,title,address\ns,somebody,{}\n"


def benchmark(folder: Path, address: str) -> Path:
    """One Transformer-XL family of a source with this address."""
    folder.mkdir()
    (folder / "families.csv").write_text(FAMILIES)
    (folder / "points.csv").write_text(POINTS)
    (folder / "workloads.csv").write_text(WORKLOADS)
    (folder / "sources.csv").write_text(SOURCES.format(address))
    return folder


def test_a_label_that_its_source_contradicts_is_read_as_found(tmp_path: Path) -> None:
    """Replicas that exchange nothing cost at K what they cost alone; another's data folder stays as labelled."""
    folder = benchmark(tmp_path / "d", "github.com/lambdal/deeplearning-benchmark")
    corpus = read_corpus(folder)
    plain = read_corpus(benchmark(tmp_path / "other", "github.com/somebody/else"))
    assert list(corpus.corrected) == ["one"]
    assert "--multi_gpu" in corpus.corrected["one"]
    assert not plain.corrected
    assert [c.families["one"].text["sharding"] for c in (corpus, plain)] == ["none", "ddp"]
    found, labelled = (resolve(c, Catalog.default()).observations for c in (corpus, plain))
    logs = shipped_beliefs().belief(found.features[0]).median[:, None] * np.ones(4)
    alone, together = (np.exp(data.model(logs, np.arange(4))) for data in (found, labelled))
    assert alone[0] == pytest.approx(together[0])
    assert alone[-1] == pytest.approx(alone[0], rel=0.01)
    assert together[-1] > 1.02 * together[0]
    assert np.array_equal(found.target, labelled.target)
    assert validate(folder).envelope()["result"]["corrected"] == [
        {"family": "one", "reason": corpus.corrected["one"]}
    ]


def test_every_correction_fits_the_shipped_corpus() -> None:
    """Each line changes a cell of the corpus, no cell is changed twice, and the families it touches give its reason."""
    folder = shipped_corpus()
    tables: dict[str, list[dict[str, str]]] = {}
    for name in ("sources", "families", "points"):
        with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
            tables[name] = list(csv.DictReader(stream, restval=""))
    addresses = {line["source"]: line["address"] for line in tables["sources"]}
    families = {line["family"]: line for line in tables["families"]}
    corrected = read_corpus(folder).corrected
    changed: dict[tuple[str, int, str], Correction] = {}
    for one in known():
        of_points = one.column not in (*tables["families"][0], *UNSTATED["families.csv"])
        lines = tables["points"] if of_points else tables["families"]
        used = False
        for i, line in enumerate(lines):
            family = families[line["family"]]
            if addresses[family["source"]] == one.address and one.fits({**family, **line}):
                used = True
                assert one.reason in corrected[family["family"]]
                cell = ("point" if of_points else "family", i, one.column)
                assert cell not in changed, (one, changed[cell])
                changed[cell] = one
        assert used, one
        assert one.found != one.labelled
        assert one.column not in ("step_s", "spread_s", "k", "family", "source", "group")
        assert one.column != "workload" or one.found in Catalog.default().names("workloads")
    assert set(corrected) <= set(families)


def test_a_point_that_its_source_does_not_describe_is_read_from_the_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the points meant by `where`, as text and as a number; a share of a forward pass stands for part of a full one."""
    address = "github.com/somebody/else"
    one = Correction(
        address, "*", "k=16|32;accelerator~a100", "recompute", "none", "0.25", "the script says so"
    )
    two = replace(one, where="k=8", column="ep", labelled="", found="2")
    monkeypatch.setattr("perfmodel.validate.corrections.known", lambda: (one, two))
    corpus = read_corpus(benchmark(tmp_path / "d", address))
    assert [row.text["recompute"] for row in corpus.points] == ["none", "none", "0.25", "0.25"]
    assert [(row.text["ep"], row.number["ep"]) for row in corpus.points[:2]] == [("", None), ("2", 2.0)]
    assert resolve(corpus, Catalog.default()).observations.at.recompute.tolist() == [0.0, 0.0, 0.25, 0.25]
    assert corpus.corrected == {"one": "the script says so"}


def test_documents_of_a_packed_sequence_are_a_column_or_a_correction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "github.com/somebody/else"
    folder = benchmark(tmp_path / "d", address)
    whole = resolve(read_corpus(folder), Catalog.default()).observations.ops.attention_flop
    one = Correction(address, "*", "k=16", "document_len", "", "48", "the script packs")
    monkeypatch.setattr("perfmodel.validate.corrections.known", lambda: (one,))
    corpus = read_corpus(folder)
    assert corpus.corrected == {"one": "the script packs"}
    packed = resolve(corpus, Catalog.default()).observations.ops.attention_flop
    assert (packed / whole).tolist() == [1.0, 1.0, 48 / 192, 1.0]
    monkeypatch.setattr("perfmodel.validate.corrections.known", lambda: ())
    lines = POINTS.splitlines()
    (folder / "points.csv").write_text(
        "\n".join([lines[0] + ",document_len", *(line + ",96" for line in lines[1:])])
    )
    stated = resolve(read_corpus(folder), Catalog.default()).observations.ops.attention_flop
    assert (stated / whole).tolist() == [0.5] * 4


def test_logits_that_nobody_padded_are_a_column_or_a_correction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Megatron pads the vocabulary of its models; a run that did not says how many words it had."""
    address = "github.com/somebody/else"
    folder = benchmark(tmp_path / "d", address)
    stated = FAMILIES.replace("pytorch_eager", "megatron_eager")
    assert stated != FAMILIES
    (folder / "families.csv").write_text(stated)
    one = Correction(address, "*", "k=16", "vocab", "", "50257", "the model pads nothing")
    monkeypatch.setattr("perfmodel.validate.corrections.known", lambda: (one,))
    width = resolve(read_corpus(folder), Catalog.default()).observations.ops.logit_width
    assert width.tolist() == [0.0, 0.0, 50257.0, 0.0]
    monkeypatch.setattr("perfmodel.validate.corrections.known", lambda: ())
    lines = POINTS.splitlines()
    (folder / "points.csv").write_text(
        "\n".join([lines[0] + ",vocab", *(line + ",999" for line in lines[1:])])
    )
    ops = resolve(read_corpus(folder), Catalog.default()).observations.ops
    assert ops.logit_width.tolist() == [999.0] * 4


def test_a_time_stands_for_the_tokens_that_it_was_stated_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sequences of two thirds of the length are half as many again, in passes of the stated size."""
    address = "github.com/somebody/else"
    one = Correction(address, "*", "", "seq_len", "384", "256", "the script says so")
    monkeypatch.setattr("perfmodel.validate.corrections.known", lambda: (one,))
    folder = benchmark(tmp_path / "d", address)
    (folder / "points.csv").write_text(POINTS.replace(",,none", ",384,none"))
    first = read_corpus(folder).points[0]
    said = {name: first.number[name] for name in ("seq_len", "micro_batch", "global_batch", "accumulation")}
    assert said == {"seq_len": 256, "micro_batch": 128, "global_batch": 192, "accumulation": 1.5}
    assert (first.text["global_batch"], first.number["step_s"]) == ("192", 55.0)


def test_two_corrections_of_one_family_both_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = "github.com/lambdal/deeplearning-benchmark"
    (first,) = [one for one in known() if (one.address, one.workload) == (address, "transformer-xl-base")]
    second = replace(first, column="precision", labelled="fp16", found="tf32", reason="the script says tf32")
    monkeypatch.setattr("perfmodel.validate.corrections.known", lambda: (first, second))
    corpus = read_corpus(benchmark(tmp_path / "d", address))
    assert [corpus.families["one"].text[column] for column in ("sharding", "precision")] == ["none", "tf32"]
    assert corpus.corrected["one"] == f"{first.reason}; {second.reason}"


def test_what_families_may_say_besides_is_a_column_or_a_correction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old library, and gradients in one call; nothing of it where nobody says."""
    address = "github.com/somebody/else"
    folder = benchmark(tmp_path / "d", address)
    said = {"cuda": "10.2", "bucket_bytes": "1e12"}
    families = FAMILIES.replace("a100-sxm4-80gb", "v100-sxm2-16gb").replace("nvswitch-2", "")
    (folder / "families.csv").write_text(families)

    def read() -> tuple[float, float]:
        data = resolve(read_corpus(folder), Catalog.default()).observations
        return float(data.machine.plain_flop_per_s[0]), float(data.at.bucket_bytes[0])

    assert read() == (0.0, BUCKET_BYTES)
    (folder / "families.csv").write_text(families.replace("pytorch_eager", "megatron_eager"))
    assert read() == (0.0, 1e12)
    (folder / "families.csv").write_text(families)
    lines = [Correction(address, "*", "", column, "", found, "so it ran") for column, found in said.items()]
    monkeypatch.setattr("perfmodel.validate.corrections.known", lambda: tuple(lines))
    corrected = read()
    assert corrected == (15.7e12, 1e12)
    monkeypatch.setattr("perfmodel.validate.corrections.known", lambda: ())
    header, row = families.splitlines()
    stated = f"{header},{','.join(said)}\n{row},{','.join(said.values())}\n"
    (folder / "families.csv").write_text(stated)
    assert read() == corrected


def test_steps_of_a_whole_run_and_calls_that_hide_are_columns_of_points(tmp_path: Path) -> None:
    folder = benchmark(tmp_path / "d", "github.com/somebody/else")
    unsaid = resolve(read_corpus(folder), Catalog.default()).observations.at
    assert np.isinf(unsaid.run_steps).all()
    assert np.isnan(unsaid.tp_hidden).all()
    header, *lines = POINTS.splitlines()
    said = [header + ",run_steps,tp_hidden", *(line + ",18,0" for line in lines)]
    (folder / "points.csv").write_text("\n".join(said))
    at = resolve(read_corpus(folder), Catalog.default()).observations.at
    assert (at.run_steps.tolist(), at.tp_hidden.tolist()) == ([18.0] * 4, [0.0] * 4)


def test_the_batch_of_a_run_whose_time_is_of_one_sample_is_a_column_of_points(tmp_path: Path) -> None:
    """It makes the layout, and the time stays that of one sample per accelerator."""
    folder = benchmark(tmp_path / "d", "github.com/somebody/else")
    header, *lines = POINTS.splitlines()
    blank = [
        ",".join("" if i in (9, 10, 11) else cell for i, cell in enumerate(line.split(","))) for line in lines
    ]
    (folder / "points.csv").write_text("\n".join([header, *blank]))
    unsaid = resolve(read_corpus(folder), Catalog.default()).observations
    (folder / "points.csv").write_text(
        "\n".join([f"{header},run_batch", *(f"{line},3840" for line in blank)])
    )
    said = resolve(read_corpus(folder), Catalog.default()).observations
    assert said.at.global_batch.tolist() == [3840.0] * 4
    assert said.at.global_batch.tolist() != unsaid.at.global_batch.tolist()
    seconds = np.array([55.0, 60.0, 62.0, 64.0])
    for data in (said, unsaid):
        assert np.exp(data.target) == pytest.approx(seconds * data.at.global_batch / data.at.k)
        assert data.normalised.all()


def test_a_language_model_without_a_batch_on_ever_more_devices_gets_a_usual_one(tmp_path: Path) -> None:
    folder = benchmark(tmp_path / "d", "github.com/somebody/else")
    strong = FAMILIES.replace("transformer-xl-base", "gpt2-xl").replace(",weak,", ",strong,")
    (folder / "families.csv").write_text(strong)
    header, *lines = POINTS.splitlines()
    cells = [line.split(",") for line in lines]
    blank = [",".join("" if i in (9, 10, 11) else cell for i, cell in enumerate(row)) for row in cells]
    (folder / "points.csv").write_text("\n".join([header, *blank]))
    at = resolve(read_corpus(folder), Catalog.default()).observations.at
    assert at.global_batch.tolist() == pytest.approx([2e6 / 1024] * 4, rel=1e-3)
