"""`perfmodel law` from the shell."""

from __future__ import annotations

import json

import pytest

from perfmodel.cli.main import main
from perfmodel.physics import laws


@pytest.fixture
def law(capsys):
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["law", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def result(out: str) -> dict:
    return json.loads(out)["result"]


def test_table_prints_ceilings_curves_and_the_inverse(law):
    code, out, _ = law("amdahl", "--serial", "0.01,0.05,0.20", "-k", "1..512")
    assert code == 0
    for text in ("E < 0.5 from K = 102", "E < 0.5 from K = 22", "E < 0.5 from K = 7", "19.2844", "0.035714"):
        assert text in " ".join(out.split())


def test_times_too_small_for_four_decimals_keep_four_digits(law):
    _, out, _ = law("amdahl", "--serial", "0", "-k", "1,3000000")
    assert " 3.333e-07 " in out


def test_usl(law):
    _, out, _ = law("usl", "--serial", "0.02", "--kappa", "0.0002", "-k", "1,70,4096", "--format", "json")
    curve = result(out)["curves"][0]
    assert curve["k_peak"] == pytest.approx(70)
    assert curve["ceiling"] == pytest.approx(curve["speedup"][1])
    assert curve["speedup"][2] < curve["speedup"][1]
    below = int(curve["smallest_k_below"])
    assert laws.usl_efficiency(below, 0.02, 0.0002) < 0.5 <= laws.usl_efficiency(below - 1, 0.02, 0.0002)


def test_usl_without_coherency_has_amdahl_s_ceiling(law):
    _, out, _ = law("usl", "--sigma", "0.05", "--kappa", "0", "--format", "json")
    assert result(out)["curves"][0]["ceiling"] == pytest.approx(20)


@pytest.mark.parametrize("term", ["linear", "log2", "log2p1", "ring"])
def test_communication_terms(law, term):
    _, out, _ = law(
        "communication", "--serial", "0.01", "--term", term, "--alpha", "1 ms", "--message", "100 MB",
        "--bandwidth", "400 Gbit/s", "-k", "1..64", "--format", "json",
    )  # fmt: skip
    found = result(out)
    curve = found["curves"][0]
    exact = laws.communicating_time(
        found["k"],
        term,
        serial_s=0.01,
        parallel_s=0.99,
        alpha_s=1e-3,
        message_bytes=1e8,
        bandwidth_bytes_per_s=5e10,
    )
    assert curve["time"] == pytest.approx(exact)
    below = int(curve["smallest_k_below"])

    def efficiency(k: int) -> float:
        one, here = laws.communicating_time(
            [1, k],
            term,
            serial_s=0.01,
            parallel_s=0.99,
            alpha_s=1e-3,
            message_bytes=1e8,
            bandwidth_bytes_per_s=5e10,
        )
        return float(one / (k * here))

    assert efficiency(below) < 0.5 <= efficiency(below - 1) + 1e-12


def test_communication_inverse_keeps_the_efficiency(law):
    _, out, _ = law("communication", "--term", "log2", "--alpha", "1 ms", "-k", "8,4096", "--format", "json")
    bounds = result(out)["keeps"]["serial_fraction"]
    one, here = laws.communicating_time(
        [1, 8], "log2", serial_s=bounds[0], parallel_s=1 - bounds[0], alpha_s=1e-3
    )
    assert one / (8 * here) == pytest.approx(0.8)
    assert bounds[1] is None  # communication alone breaks it


def test_gustafson_never_falls_below_what_is_parallel(law):
    _, out, _ = law("gustafson", "--serial", "0.4", "--format", "json")
    curve = result(out)["curves"][0]
    assert curve["smallest_k_below"] is None
    assert min(curve["efficiency"]) > 0.6
    _, text, _ = law("gustafson", "--serial", "0.4")
    assert "E never falls below 0.5" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["moore"], "moore"),
        (["amdahl", "--serial", "1.5"], "--serial must be between 0 and 1"),
        (["amdahl", "--serial", "x"], '--serial: not a number: "x"'),
        (["amdahl", "--serial", ","], "--serial: nothing given"),
        (["amdahl", "-k", "0"], "--k: a worker count must be between 1"),
        (["amdahl", "-k", ""], '--k: cannot read ""'),
        (["amdahl", "--k", "8..2"], '--k: "8..2" runs backwards'),
        (["amdahl", "--serial", "\u0660.\u0661"], "--serial: not a number"),
        (["amdahl", "--efficiency", "0"], "--efficiency must be above 0"),
        (["usl", "--kappa", "-1"], "--kappa must be zero or above"),
        (["communication", "--alpha", "5"], "--alpha: a number without a unit"),
        (["communication", "--bandwidth", "0 B/s"], "--bandwidth must be above zero"),
    ],
)
def test_bad_arguments_exit_2(law, arguments, message):
    code, out, err = law(*arguments)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize("name", ["amdahl", "gustafson", "usl", "communication"])
def test_every_format(law, name, tmp_path):
    for form in ("table", "json", "csv", "md"):
        code, out, _ = law(name, "--format", form, "-k", "1..8")
        assert code == 0
        assert out.strip()
    plot = tmp_path / "law.svg"
    assert law(name, "--plot", str(plot), "--report", str(tmp_path / "law.html"), "--quiet")[0] == 0
    assert plot.stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("amdahl", "--kappa", "0.1"), "--kappa: no part of amdahl"),
        (("gustafson", "--bandwidth", "1 GB/s"), "--bandwidth: no part of gustafson"),
        (("usl", "--alpha", "3 ms", "--term", "ring"), "--term, --alpha: no part of usl"),
        (("communication", "--kappa", "0.1"), "--kappa: no part of communication"),
        (("usl", "--kappa", ""), "--kappa"),
        (("communication", "--alpha", ""), "--alpha"),
    ],
)
def test_a_number_that_the_law_does_not_have_is_refused(law, arguments, named):
    code, out, err = law(*arguments)
    assert (code, out) == (2, "")
    assert named in err


@pytest.mark.parametrize("serial", ["0", "0.05", "0.4"])
def test_gustafson_agrees_with_its_definitions(law, serial):
    """S is the time of the grown problem on one worker over that on K, and E = S / K."""
    _, out, _ = law("gustafson", "--serial", serial, "-k", "1..512", "--format", "json")
    k, curve = result(out)["k"], result(out)["curves"][0]
    for i, workers in enumerate(k):
        assert curve["speedup"][i] == pytest.approx(curve["time_on_one"][i] / curve["time"][i])
        assert curve["efficiency"][i] == pytest.approx(curve["speedup"][i] / workers)
        assert curve["time_on_one"][i] == pytest.approx(float(serial) + workers * (1 - float(serial)))


def test_what_each_worker_brings_and_costs(law):
    _, out, _ = law("amdahl", "--serial", "0.05", "-k", "1..512", "--format", "json")
    k, curve = result(out)["k"], result(out)["curves"][0]
    assert curve["percent_of_ceiling"][-1] == pytest.approx(100 * curve["speedup"][-1] / 20)
    assert curve["marginal_speedup"][0] is None
    for i in range(1, len(k)):
        gained = (curve["speedup"][i] - curve["speedup"][i - 1]) / (k[i] - k[i - 1])
        assert curve["marginal_speedup"][i] == pytest.approx(gained)
        assert curve["relative_cost"][i] == pytest.approx(k[i] * curve["time"][i])
    _, table, _ = law("amdahl", "--serial", "0.05", "-k", "1,16")
    for words in ("ceiling [%]", "45.7", "1.7500"):
        assert words in " ".join(table.split())
    _, endless, _ = law("gustafson", "--serial", "0.05", "-k", "1,16", "--format", "json")
    assert result(endless)["curves"][0]["percent_of_ceiling"] is None


@pytest.mark.parametrize(
    "arguments",
    [("gustafson",), ("communication", "--regime", "weak", "--alpha", "10 ms", "--term", "log2p1")],
)
def test_weak_laws_are_drawn_against_a_flat_one(law, arguments):
    _, out, _ = law(*arguments, "--serial", "0.04", "-k", "1..64")
    assert "speedup over K" not in out
    top = next(line for line in out.splitlines() if line.strip().startswith("1 |"))
    assert set(top.partition("|")[2].strip()) <= {"●", "·", " "}


def test_digits_are_as_many_as_asked_for(law):
    _, out, _ = law("amdahl", "--serial", "0.05", "-k", "1..64", "--digits", "6")
    for number in ("0.0648438", "15.4217", "0.240964"):
        assert number in out
    _, usual, _ = law("amdahl", "--serial", "0.05", "-k", "1..64")  # nothing is left of the question before
    assert "0.0648 " in usual
    code, _, said = law("amdahl", "--digits", "0")
    assert (code, "--digits" in said) == (2, True)
