"""`perfmodel collective`: textbook times to the printed digit, algorithms on a cluster, measured calls, refusals."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LINK = ("--alpha", "5 us", "--bandwidth", "25 GB/s")


def rows(run, *arguments):
    done = run("collective", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    return result, {(r["algorithm"], r["bytes"], r["ranks"]): r for r in result["rows"]}


# T of 100 MB among 64 ranks with alpha = 5 us and 25 GB/s, by hand:
# ring 2*63*5us + 2*63/64*100MB/25GB/s; one tree 2*6*(5us + 4ms); two trees 2*6*5us + 8ms + 2 sqrt(60us*8ms).
TEXTBOOK = {
    "ring": "8.5050 ms",
    "tree": "9.4456 ms",
    "binomial_tree": "48.0600 ms",
    "recursive_doubling": "24.0300 ms",
    "halving_doubling": "7.9350 ms",
    "in_switch": "4.0100 ms",
    "parameter_server": "512.0100 ms",
}


@pytest.mark.parametrize("name", TEXTBOOK)
def test_the_textbook_times_to_the_printed_digit(run, name):
    _, found = rows(run, "all_reduce", "--bytes", "100MB", "--ranks", "64", *LINK)
    assert f"{1e3 * found[name, 1e8, 64]['time_s']:.4f} ms" == TEXTBOOK[name]


def test_steps_bytes_and_gamma_add_up(run):
    flags = ("--reduce-rate", "100 GB/s", "--algorithm", "ring,binomial_tree,halving_doubling")
    _, found = rows(run, "all_reduce", "--bytes", "100MB", "--ranks", "64", *LINK, *flags)
    ring = found["ring", 1e8, 64]
    assert (ring["steps"], ring["alpha_s"]) == (126, pytest.approx(630e-6))
    assert ring["gamma_s"] == pytest.approx(63 / 64 * 1e-3)
    for row in found.values():
        assert row["time_s"] == pytest.approx(row["alpha_s"] + row["beta_s"] + row["gamma_s"])


def test_crossover_is_where_both_take_as_long(run):
    result, _ = rows(run, "all_reduce", "--bytes", "1MB", "--ranks", "64", *LINK, "--algorithm", "ring,tree")
    (crossing,) = result["crossovers"]
    assert (crossing["from"], crossing["to"]) == ("tree", "ring")
    _, found = rows(
        run,
        "all_reduce",
        "--bytes",
        f"{crossing['bytes']} B",
        "--ranks",
        "64",
        *LINK,
        "--algorithm",
        "ring,tree",
    )
    ring, tree = found.values()
    assert ring["time_s"] == pytest.approx(tree["time_s"], rel=1e-4)


def test_ring_and_tree_on_a_cluster_beside_what_was_measured(run):
    result, found = rows(run, "all_reduce", "--bytes", "1kB,256MB", "--ranks", "8", "-c", "dgx-h100")
    assert found["ring", 1e3, 8]["steps"] == 14
    assert found["tree", 1e3, 8]["steps"] == 6
    assert found["tree", 1e3, 8]["time_s"] < found["ring", 1e3, 8]["time_s"]
    assert (
        found["tree", 256e6, 8]["time_s"]
        > found["ring", 256e6, 8]["time_s"]
        > found["in_switch", 256e6, 8]["time_s"]
    )
    large = [m for m in result["measured"] if m["bytes"] > 2e8]
    assert large
    assert all(0.7 < m["predicted_over_measured"] < 1.4 for m in large)


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter", "all_to_all", "broadcast"])
def test_every_operation_has_a_price(run, op):
    for where in (LINK, ("-c", "dgx-a100")):
        result, found = rows(run, op, "--bytes", "1kB..4kB", "--ranks", "4,32", *where)
        assert all(row["time_s"] > 0 for row in found.values())
        assert result["bytes"] == [1e3, 2e3, 4e3]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("all_gathr", "--bytes", "1MB", "--ranks", "8", *LINK), 'did you mean "all_gather"'),
        (("all_reduce", "--bytes", "0 B", "--ranks", "8", *LINK), "from 1 B to 1 PB"),
        (("all_reduce", "--bytes", "2MB..1MB", "--ranks", "8", *LINK), "upwards"),
        (("all_reduce", "--bytes", "many", "--ranks", "8", *LINK), "--bytes"),
        (("all_reduce", "--bytes", "1MB", "--ranks", "0", *LINK), "--ranks"),
        (("all_reduce", "--bytes", "1MB", "--ranks", "8"), "no links given"),
        (
            ("all_reduce", "--bytes", "1MB", "--ranks", "8", "-c", "dgx-h100", *LINK),
            "both a cluster and --alpha",
        ),
        (
            ("all_reduce", "--bytes", "1MB", "--ranks", "8", "-c", "dgx-1v", "--algorithm", "in_switch"),
            "no in_switch",
        ),
        (
            ("all_reduce", "--bytes", "1MB", "--ranks", "8", "--alpha", "-1 us", "--bandwidth", "1 GB/s"),
            "--alpha",
        ),
        (
            ("all_reduce", "--bytes", "1MB", "--ranks", "8", "--alpha", "1 us", "--bandwidth", "0 B/s"),
            "--bandwidth",
        ),
    ],
)
def test_bad_input_is_told(run, arguments, words):
    done = run("collective", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert not done.stdout


def test_as_a_command_of_its_own(tmp_path):
    plot = tmp_path / "ring-and-tree.svg"
    command = [
        sys.executable,
        "-m",
        "perfmodel",
        "collective",
        "all_reduce",
        "--bytes",
        "100MB",
        "--ranks",
        "64",
    ]
    done = subprocess.run(
        [*command, "-c", "dgx-h100", "--plot", str(plot)], capture_output=True, text=True, check=True
    )
    assert "steps x" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "tree" in plot.read_text(encoding="utf-8")
