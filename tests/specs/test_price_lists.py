"""Price lists of others: SkyPilot's form and tables like it, as records that `--specs` reads."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from perfmodel.cli.main import main
from perfmodel.errors import SpecError
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.jobs import load_job
from perfmodel.specs.lint import lint
from perfmodel.specs.price_lists import import_prices, read_list

SKYPILOT = """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice,AvailabilityZone
p5.48xlarge,H100,8.0,192.0,2048.0,50.0,us-east-1,"{'Gpus': [{'Name': 'H100'}]}",20.0,us-east-1a
p5.48xlarge,H100,8.0,192.0,2048.0,50.0,us-east-1,"{'Gpus': [{'Name': 'H100'}]}",20.0,us-east-1b
p5.48xlarge,H100,8.0,192.0,2048.0,60.0,us-west-2,,,us-west-2a
p5.48xlarge,H100,8.0,192.0,2048.0,70.0,eu-north-1,,30.0,eu-north-1a
m5.large,,,2.0,8.0,0.096,us-east-1,,0.04,us-east-1a
my-l40s,L40S,4,64,256,9.0,here,,,
odd,H100,8,64,256,33.0,here,,,
strange,Banana,1,64,256,33.0,here,,,
"""


def skypilot(tmp_path: Path, text: str = SKYPILOT) -> Path:
    path = tmp_path / "aws" / "vms.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_become_records_that_jobs_pay(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    found = import_prices([skypilot(tmp_path)], folder, dated="2026-11-01")
    assert found.written == ("aws/p5.48xlarge", "aws/my-l40s")
    assert [item.name for item in found.refused] == ["odd (H100)", "strange (Banana)"]
    assert "h100-pcie-80gb" in found.refused[0].reason
    assert "--accelerator H100=NAME" in found.refused[0].reason
    offer = Catalog.default((folder,)).get("prices", "p5.48xlarge")
    hour = 3600.0
    # The median over regions, of which zones are no part.
    assert offer.on_demand is not None
    assert offer.on_demand * hour == pytest.approx(60.0)
    assert (offer.on_demand_min or 0) * hour == pytest.approx(50.0)
    assert (offer.spot or 0) * hour == pytest.approx(25.0)
    assert (offer.date, offer.node, offer.accelerator) == ("2026-11-01", "p5.48xlarge", "h100-sxm5-80gb")
    job = load_job(
        None, overrides={"workload": "llama3-8b", "cluster": "p5.48xlarge", "k": 8}, extra_dirs=(folder,)
    )
    assert (job.price.per_accelerator or 0) * hour == pytest.approx(60.0 / 8)
    assert "2026-11-01" in (job.price.note or "")
    assert not lint(folder, today=date(2026, 11, 19)).errors


def test_own_prices_and_newer_ones_stay(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    own = folder / "prices" / "aws" / "my-l40s.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("name: my-l40s\naccelerator: l40s\naccelerators: 4\non_demand: 5 USD/h\n")
    found = import_prices([skypilot(tmp_path)], folder, dated="2026-11-01")
    assert [(item.name, item.reason) for item in found.kept] == [("my-l40s", "your own price stays")]
    assert "5 USD/h" in own.read_text()
    older = import_prices([skypilot(tmp_path)], folder, dated="2026-01-01")
    assert [item.name for item in older.kept] == ["p5.48xlarge", "my-l40s"]
    newer = import_prices([skypilot(tmp_path)], folder, dated="2026-12-01", names={"H100": "h100-sxm5-80gb"})
    assert newer.written == ("aws/p5.48xlarge", "aws/odd")
    assert '"2026-12-01"' in (folder / "prices" / "aws" / "p5.48xlarge.yaml").read_text()


def test_lists_of_other_forms(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text(
        "Provider;x\n".replace(
            ";x", ",API Name,GPU model,GPUs,On Demand,Reserved 1y,Effective date\n"
        ).rstrip()
        + "\n"
        'acme,big-box,NVIDIA L40S,8,"$1,032.50 hourly",$20.1 hourly,2026-10-05T00:00:00\n'
        "acme,no-price,NVIDIA L40S,8,unavailable,,2026-10-05\n",
        encoding="utf-8",
    )
    (one,) = read_list(path)
    assert (one.provider, one.machine, one.count, one.dates) == ("acme", "big-box", 8.0, ["2026-10-05"])
    assert one.prices == {"on_demand": [1032.5], "reserved_1y": [20.1]}
    found = import_prices([path], tmp_path / "mine")
    assert found.written == ("acme/big-box",)
    assert not found.undated


def test_accelerators_that_are_billed_beside_their_machine(tmp_path: Path) -> None:
    text = "InstanceType,AcceleratorName,AcceleratorCount,Price,Region\na2-x,A100,8,10,r\n,A100,8,20,r\n"
    (one,) = read_list(skypilot(tmp_path, text))
    assert one.prices == {"on_demand": [30.0]}


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("a.csv", "k,time_s\n1,2\n", "this is no price list"),
        ("a.csv", "", "this is no price list"),
        ("a.csv", "instance,price,gpu\nx,1,l4\n", "the provider of these prices"),
        ("vms.csv", "instance,price,gpu,currency\nx,1,l4,EUR\n", "2: error[F033]: prices in EUR"),
    ],
)
def test_what_is_no_list_is_refused(tmp_path: Path, name: str, text: str, wrong: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        import_prices([path], tmp_path / "mine")
    assert wrong in str(caught.value)


def test_names_of_machines_stay_inside_the_folder(tmp_path: Path) -> None:
    text = "InstanceType,AcceleratorName,AcceleratorCount,Price\n../../evil: x,L40S,1,2\n"
    folder = tmp_path / "mine"
    import_prices([skypilot(tmp_path, text)], folder)
    files = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.yaml")]
    assert len(files) == 1
    assert files[0].startswith("mine/prices/aws/")
    assert not lint(folder, today=date(2026, 11, 19)).errors


def test_the_command_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["catalog", "prices", "import", str(skypilot(tmp_path)), "-o", str(tmp_path / "mine")]
    assert main([*words, "--accelerator", "H100=h100-sxm5-80gb"]) == 0
    out, err = capsys.readouterr()
    assert out.split() == ["aws/p5.48xlarge", "aws/my-l40s", "aws/odd"]
    assert "3 prices written" in err
    assert "no dates" in err
    for bad, wrong in ((["--accelerator", "H100"], "NAME=ENTRY"), (["--accelerator", "H100=x"], 'no accelerator "x"'),
                       (["--date", "soon"], "--date: cannot read")):  # fmt: skip
        assert main([*words, *bad]) == 2
        assert wrong in capsys.readouterr().err
