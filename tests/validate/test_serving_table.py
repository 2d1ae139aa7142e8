"""`runs.csv`: every fault at its line and column, all at once; names as sources write them."""

from pathlib import Path

import pytest

from perfmodel.errors import SpecError
from perfmodel.specs.catalog import Catalog
from perfmodel.validate.serving_names import accelerator_entry, known_engine, model_entry, names
from perfmodel.validate.serving_table import read_runs

HEADER = "source,model,accelerator,engine,scenario,isl,osl,concurrency,request_rate,n_accel,ttft_mean_s,tpot_mean_s\n"
GOOD = "lab,Llama-3-8B,H100,vllm,closed-loop,1024,256,8,,1,0.05,0.009\n"


def written(folder: Path, *lines: str) -> Path:
    path = folder / "runs.csv"
    path.write_text(HEADER + "".join(lines))
    return path


def test_a_good_row_is_read(tmp_path: Path) -> None:
    (row,) = read_runs(written(tmp_path, GOOD)).rows
    assert row.number["concurrency"] == 8.0
    assert row.number["request_rate"] is None
    assert row.place == "runs.csv:2"


@pytest.mark.parametrize(
    ("cell", "column"),
    [
        ("nan", "ttft_mean_s"),
        ("-1", "ttft_mean_s"),
        ("inf", "ttft_mean_s"),
        ("fast", "ttft_mean_s"),
        ("1e30", "ttft_mean_s"),
    ],
)
def test_a_cell_that_is_no_time_is_refused_at_its_place(tmp_path: Path, cell: str, column: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_runs(written(tmp_path, GOOD, GOOD.replace("0.05", cell)))
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (3, GOOD.index("0.05") + 1)
    assert column in problem.message


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    bad = GOOD.replace("1024", "-5").replace("0.009", "soon").replace("lab", "")
    with pytest.raises(SpecError) as caught:
        read_runs(written(tmp_path, bad))
    assert len(caught.value.problems) == 3


def test_zero_and_blank_mean_that_nobody_measured_and_an_endless_rate_is_a_burst(tmp_path: Path) -> None:
    row = read_runs(written(tmp_path, "lab,Llama-3-8B,H100,vllm,server,1024,256,,inf,1,0,0.009\n")).rows[0]
    assert row.number["ttft_mean_s"] is None
    assert row.number["request_rate"] == float("inf")


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("source,model\na,b\n")
    with pytest.raises(SpecError, match="missing column accelerator, engine"):
        read_runs(tmp_path / "runs.csv")


def test_every_name_of_the_table_is_in_the_catalogue() -> None:
    catalog, table = Catalog.default(), names()
    assert {str(entry["is"]) for _, entry in table.models.entries} <= set(catalog.names("workloads"))
    assert {str(entry["is"]) for _, entry in table.accelerators.entries} <= set(catalog.names("accelerators"))
    assert {str(entry["is"]) for _, entry in table.stated.entries} <= set(table.precisions)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3-70b"),
        ("LLaMA v3.1 8B", "llama3-8b"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "llama3-70b"),
        ("gptj-99.9", "gpt-j-6b"),
        ("GLM-4.5-Air-FP8", "glm-4.5-air"),
        ("zai-org/GLM-4.6", "glm-4.5"),
        ("nobody/Knows-7B", "knows-7b"),
    ],
)
def test_models_as_sources_write_them(written: str, meant: str) -> None:
    assert model_entry(written)["is"] == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("NVIDIA H100-SXM-80GB", "h100-sxm5-80gb"),
        ("NVIDIA H100 NVL", "h100-nvl-94gb"),
        ("GH200 480GB", "gh200-96gb"),
        ("AMD Instinct MI300X-NPS1-SPX-192GB-750W", "mi300x"),
        ("RTX 6000 Pro Blackwell Server Edition", "rtx-pro-6000"),
        ("H20", "h20"),
        ("NVIDIA L4", "l4"),
    ],
)
def test_accelerators_as_sources_write_them(written: str, meant: str) -> None:
    assert accelerator_entry(written)["is"] == meant


def test_an_engine_of_its_older_generation_by_version_or_date() -> None:
    assert known_engine("vllm", "0.6.3", "2026-01").era == "vllm-v0"
    assert known_engine("vllm", "", "2024").era == "vllm-v0"
    assert known_engine("vLLM 0.4.3+rocm614, PyTorch 2.3.0", "", "2024-08").era == "vllm-v0"
    assert known_engine("optimum-habana/deepspeed", "", "2024").era == "gaudi"
    assert known_engine("", "", "").era == "unknown"
