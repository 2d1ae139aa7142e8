"""Write validation/REPORT.md, its figures and the HTML page: every measured run predicted by beliefs that did not see it.

Usage: python validation/report.py   (tests/validate/test_headline.py compares the headline figures with the code's)
"""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.beliefs.weighted import weighted_quantile
from perfmodel.report import html, plots
from perfmodel.results.envelope import Result, plain
from perfmodel.validate.knees import ALARMS
from perfmodel.validate.validation import validate

sys.path.insert(0, str(Path(__file__).resolve().parent))
from serving_report import serving

HERE = Path(__file__).resolve().parent
FIGURES = HERE / "figures"
HEADLINE = HERE / "headline.json"

DENSE = ("decoder-transformer", "hybrid-mamba-transformer")
# What is asked of predictions for strangers, on the half of the sources on which no choice was made: (label, mode, class of
# workload or all of them, largest median, mean and 90th percentile).
TARGETS: tuple[tuple[str, str, str | None, tuple[float, ...]], ...] = (
    ("datasheet, dense language models", "datasheet", "language", (0.12, 0.17, 0.38)),
    ("datasheet, mixture of experts", "datasheet", "mixture of experts", (0.18, 0.23)),
    ("datasheet, everything else", "datasheet", "everything else", (0.18, 0.28)),
    ("one node", "one_node", None, (0.04, 0.075, 0.18)),
    ("two points", "two_point", None, (0.025, 0.06, 0.15)),
)
COVERAGE = (0.87, 0.93)  # of the 90 % bands, all sources
KNEE_COVERAGE = (0.85, 0.93)
CLOSED_KNEES = 0.5
LEAST_COVERAGE, LEAST_SOURCES = 0.82, 8  # of every class with so many sources, and of every band of K
# How often the reported half was scored with the form as it is: raise it by hand with every look.
SCORED = 13  # of which nine by choices of how far one-line laws may move the model
SCHEMES = {
    "stranger": "Strangers: whole source left out, its own labels",
    "source": "Whole source left out, labels by the runs' scripts",
    "group": "Known stacks: group left out",
    "accelerator": "Whole accelerator left out",
}
# Published simulators on the same runs (families by pattern): mean error as shipped, or as their authors state.
PEERS: tuple[tuple[str, str, str, str], ...] = (
    ("Korthikanti 2022, table 5", r"korthikanti-2022-.*", "Calculon 3.65 %", "llm-analysis 25.9 %"),
    (
        "Narayanan 2021, table 1",
        r"narayanan-2021-.*-80gb",  # the runs of its table 2 (ZeRO-3 against pipelines) have a suffix
        "Calculon 10.3 %",
        "llm-analysis 5.8 % at its best setting, 46 % as documented",
    ),
    ("vTrain, one node", r"vtrain-2024-.*-single", "Calculon 39.0 %", "vTrain 8.37 % (profiles the GPU)"),
    ("vTrain, 64 to 512 GPUs", r"vtrain-2024-.*-multi", "Calculon 15.3 %", "vTrain 14.73 %"),
)

# What the predictor of a sweep has seen.
COLLECTIVES = {
    "sweep": "all sweeps but its own",
    "fabric": "all sweeps but those of its accelerator and links",
    "two_points": "its own smallest and largest message",
}
COLLECTIVE_LIMITS = {
    "sweep": (0.08, 0.12, 0.30),
    "fabric": (0.20, 0.26, 0.55),
    "two_points": (0.06, 0.09, 0.23),
}
ERRORS = ("median_ape", "mean_ape", "p90_ape")
FIGURES_OF_A_ROW = (*ERRORS, "bias", "coverage_90", "band_width_median")
BASELINES = {
    "constant_mfu": "one utilisation by class, generation and width",
    "textbook": "the physics with textbook beliefs, nothing fitted",
}


def main() -> None:
    """Run all schemes and write."""
    results = {scheme: validate(scheme=scheme).result for scheme in SCHEMES}
    headline = headline_of(results)
    FIGURES.mkdir(exist_ok=True)
    HEADLINE.write_text(json.dumps(headline, indent=1) + "\n", encoding="utf-8")
    (HERE / "REPORT.md").write_text(report(results), encoding="utf-8")
    envelope = Result(
        "validation", {"data": "shipped", "scheme": "group"}, plain(results["group"])
    ).envelope()
    for name in ("validation", "error_by_k"):
        plots.save(plots.figure(envelope, name), FIGURES / f"{name}.png")
    (HERE / "report.html").write_text(html.render(envelope, command="perfmodel validate"), encoding="utf-8")
    print("wrote validation/REPORT.md, headline.json, figures/ and report.html")


def headline_of(results: dict[str, Any]) -> dict[str, Any]:
    """The figures that a test compares with the committed ones."""
    keys = (
        "families",
        "points",
        "median_ape",
        "mean_ape",
        "p90_ape",
        "bias",
        "coverage_90",
        "band_width_median",
    )
    told: dict[str, Any] = {
        scheme: {
            mode: {key: round(figures[key], 4) for key in keys} for mode, figures in result["modes"].items()
        }
        for scheme, result in results.items()
    }
    served = ("rows", *keys[2:])
    told["serving"] = {
        scheme: {
            answer: {key: round(result["serving"][answer][key], 4) for key in served}
            for answer in ("throughput", "tpot", "ttft")
        }
        for scheme, result in results.items()
    }
    return told


def merged(result: dict[str, Any], mode: str, keep: Any) -> dict[str, float]:
    """Median, mean, p90, bias and half-width of the band over the families that `keep` accepts."""
    errors, weights, halves = [], [], []
    for row in result["families"]:
        if row["mode"] == mode and keep(row):
            ratio = [point["predicted_s"] / point["measured_s"] for point in row["points"]]
            errors += [r - 1.0 for r in ratio]
            weights += [1.0 / len(ratio)] * len(ratio)
            halves += [0.5 * np.log(point["high_s"] / point["low_s"]) for point in row["points"]]
    e, w = np.array(errors), np.array(weights)
    return {
        "families": float(w.sum()),
        "median_ape": weighted_quantile(np.abs(e), w, 0.5),
        "mean_ape": float(w @ np.abs(e) / w.sum()),
        "p90_ape": weighted_quantile(np.abs(e), w, 0.9),
        "bias": weighted_quantile(e, w, 0.5),
        "band_width_median": weighted_quantile(np.sinh(np.array(halves)), w, 0.5),
    }


def percent(value: float | None) -> str:
    """One decimal."""
    return "-" if value is None else f"{100 * value:.1f}"


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table."""
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def report(results: dict[str, Any]) -> str:
    """The whole page."""
    group = results["group"]
    lines = [
        "# Accuracy on measured runs",
        "",
        "![Predicted against measured step time, and a factor of 1.2 around exact](figures/validation.png)",
        "",
        "![Predicted over measured time by K](figures/error_by_k.png)",
        "",
        "Markers are the middle of the points of an octave of K, bars hold the inner 80 % of them.",
        "",
        "Times below a millisecond are mostly of sources that state no batch: seconds per sample and accelerator, of which",
        "only ratios over K are scored, after a calibration.",
        "",
        "Generated by `make validate`. Errors are |predicted / measured - 1| in percent.",
        "",
        *strangers(results["stranger"]),
        *targets(results),
        "## Every family weighing the same",
        "",
        "Below, every family weighs the same. A source is a publisher with its code base. Beliefs are coefficients of the step",
        "model; those of a scheme have not seen what it leaves out. Groups (model x machine) are left out a twentieth at a time,",
        "sources one by one, accelerators three at a time. Bands are learnt on the errors of sources left out, without those of the",
        "fold that is scored, so they are wide for known stacks.",
        "",
    ]
    for scheme, words in SCHEMES.items():
        rows = []
        for mode, figures in results[scheme]["modes"].items():
            rows.append(
                [
                    mode,
                    str(figures["families"]),
                    str(figures["points"]),
                    *(
                        percent(figures[key])
                        for key in (
                            "median_ape",
                            "mean_ape",
                            "p90_ape",
                            "bias",
                            "coverage_90",
                            "band_width_median",
                        )
                    ),
                ]
            )
        lines += [
            f"## {words}",
            "",
            *table(
                [
                    "mode",
                    "families",
                    "points",
                    "median",
                    "mean",
                    "p90",
                    "bias",
                    "inside the 90 % band",
                    "half-width",
                ],
                rows,
            ),
        ]
    lines += ["## Against one-line laws on the same points", ""]
    for mode in ("one_node", "two_point"):
        for key, words in (
            ("baselines", "all"),
            ("baselines_crossing", "where the node boundary is crossed"),
        ):
            laws = group["modes"][mode].get(key, {})
            if key == "baselines_crossing" and laws == group["modes"][mode]["baselines"]:
                continue  # every point crosses: the same table again
            ours = (
                group["modes"][mode]
                if key == "baselines"
                else group["modes"][mode]["by"]["crossing"]["crosses the node"]
            )
            rows = [["**perfmodel**", *(percent(ours[f]) for f in ERRORS)]]
            rows += [[name, *(percent(values[f]) for f in ERRORS)] for name, values in laws.items()]
            lines += [f"{mode}, {words}:", "", *table(["", "median", "mean", "p90"], rows)]
    lines += (
        peers(results["source"])
        + tuning()
        + knees(group, results["stranger"])
        + collectives(group)
        + by_kind(group)
        + noise()
        + worst(group)
        + serving(results)
    )
    return "\n".join(lines) + "\n"


def strangers(result: dict[str, Any]) -> list[str]:
    """The first table: predictions for runs of sources that no fit has seen, with the labels that they state."""
    lines = [
        "## Strangers",
        "",
        "What someone gets whose software nobody here has seen: the whole source (a publisher with its code base) is left out of",
        "every fit, labels are those that the source states in its table, sources weigh the same, their families alike. Choices of",
        "form were made on one half of the sources (by the hash of their names); the other half is reported beside all.",
        f"Times that the reported half was scored since the form was last changed: {SCORED}.",
        "The shipped population is, of four fits that differ by small changes of form, the one with the smallest errors on the",
        "choosing half; it was made before stages with unequal layers changed. Another fit moves the figures of a class by 1 to 4.",
        "",
    ]
    header = ["mode", "", "sources", "points", "median", "mean", "p90", "bias", "inside", "half-width"]
    rows = []
    for mode, figures in result["modes"].items():
        found = figures["by_source_weight"]
        parts = {"all": found, **found["by"]["class"]}
        parts |= {"reported half": found["reported"]}
        parts |= {f"reported half, {name}": value for name, value in found["reported"]["by_class"].items()}
        parts |= {f"K {name}": value for name, value in found["by"]["k"].items()}
        rows += [
            [
                mode,
                name,
                str(value["sources"]),
                str(value["points"]),
                *(percent(value[key]) for key in FIGURES_OF_A_ROW),
            ]
            for name, value in parts.items()
            if value["points"]
        ]
    lines += table(header, rows)
    lines += [
        "Answers that need no fit of the physics, on the same points, every source weighing the same:",
        "",
    ]
    for mode, figures in result["modes"].items():
        others = {
            BASELINES.get(name, name): value["by_source_weight"]
            for name, value in figures["baselines"].items()
        }
        ours = {"**perfmodel**": figures["by_source_weight"]}
        rows = [[name, *(percent(value[key]) for key in ERRORS)] for name, value in (ours | others).items()]
        lines += table([mode, "median", "mean", "p90"], rows)
    return lines


def targets(results: dict[str, Any]) -> list[str]:
    """What was asked, what was reached."""
    rows: list[list[str]] = []

    def told(label: str, name: str, limit: float, value: float) -> None:
        reached = "met" if value <= limit else f"missed by {100 * (value - limit):.2g}"
        rows.append([label, name, percent(limit), percent(value), reached])

    def covered(label: str, value: float, least: float, most: float) -> None:
        off = max(least - value, value - most)
        asked = f"{percent(least)} to {percent(most)}" if most < 1.0 else f"{percent(least)} or more"
        rows.append(
            [
                label,
                "inside the band",
                asked,
                percent(value),
                "met" if off <= 0 else f"missed by {100 * off:.2g}",
            ]
        )

    modes = results["stranger"]["modes"]
    for label, mode, which, limits in TARGETS:
        found = modes[mode]["by_source_weight"]["reported"]
        found = found if which is None else found["by_class"][which]
        for figure, limit in zip(ERRORS, limits, strict=False):
            told(label, figure.replace("_ape", ""), limit, found[figure])
    for mode, figures in modes.items():
        of_all = figures["by_source_weight"]
        covered(f"{mode}, all sources", of_all["coverage_90"], *COVERAGE)
        for key, values in (("class", of_all["by"]["class"]), ("K", of_all["by"]["k"])):
            for name, value in values.items():
                if key == "K" or value["sources"] >= LEAST_SOURCES:
                    words = f"{mode}, K {name}" if key == "K" else f"{mode}, {name}"
                    covered(words, value["coverage_90"], LEAST_COVERAGE, 1.0)
    knee = modes["datasheet"]["knee_bands"]
    covered("knees from datasheets, of curves that bend", knee["inside_bending"], *KNEE_COVERAGE)
    rows.append(
        [
            "knees from datasheets, of curves that bend",
            "closed bands",
            f"{percent(CLOSED_KNEES)} or more",
            percent(knee["closed_bending"]),
            "met"
            if knee["closed_bending"] >= CLOSED_KNEES
            else f"missed by {100 * (CLOSED_KNEES - knee['closed_bending']):.2g}",
        ]
    )
    for scheme, seen in COLLECTIVES.items():
        figures = results["group"]["collectives"]["schemes"][scheme]
        for figure, limit in zip(ERRORS, COLLECTIVE_LIMITS[scheme], strict=True):
            told(f"collectives, from {seen}", figure.replace("_ape", ""), limit, figures[figure])
    return [
        "## Targets",
        "",
        "Errors on the reported half of the sources, coverage on all of them, every source weighing the same.",
        "",
        *table(["what", "figure", "target", "reached", ""], rows),
    ]


def of_runs(source: dict[str, Any], pattern: str) -> dict[str, float]:
    """Figures of the families whose names fit a pattern, from datasheets."""
    return merged(source, "datasheet", lambda row: re.fullmatch(pattern, row["family"]) is not None)


def peers(source: dict[str, Any]) -> list[str]:
    """Published simulators on the same runs; ours with the whole source left out of the fit."""
    rows = []
    for label, pattern, first, second in PEERS:
        found = of_runs(source, pattern)
        rows.append([label, percent(found["mean_ape"]), percent(found["median_ape"]), first, second])
    note = (
        "Peers as shipped, or by their own claim; ours predicts with the source left out and nothing profiled.",
        "These are few runs, and what follows is of earlier fits: some forty variants of the model gave 0.8 to 14.3 % on Korthikanti's, so a point or two is no",
        "difference. How the host's time grows with tensor ranks was read off vTrain's one-node runs, and that their vocabulary is",
        "not padded was first seen in their times, then in its code: that row owes both something. Korthikanti's came out 4 % too",
        "slow before what their paper says of overlap in the backward pass was a label of theirs; nothing was fitted to them.",
        "Narayanan's moved between 1.8 and 3.1 % with other sources' labels, and with two by its own script",
        "(torch's DDP in the four smallest, no virtual stages in the largest).",
    )
    return [
        "## Published simulators on the same runs",
        "",
        *note,
        "",
        *table(["runs", "mean", "median", "", ""], rows),
    ]


def tuning() -> list[str]:
    """What the reported figures owe to numbers that were tuned on the same held-out errors."""
    found = shipped_beliefs().meta.get("tuning")
    if not found:
        return []
    words = {"same": "tuned on all sources, as shipped", "nested": "tuned without the fold that is scored"}
    rows = [
        [mode, words[how], *(percent(value) for value in found[how][mode])]
        for mode in ("one_node", "two_point")
        for how in words
    ]
    return [
        "## What tuning on held-out errors gains",
        "",
        "Coefficients never see the source that is scored. The scatter between jobs and the trust in one-line laws are",
        "chosen by held-out errors; here are the errors when that choice, too, does without the source. The second row of each",
        "mode is what to expect of a stranger's runs of this sort. Both are found on the model made linear around each job, so",
        "the first is a little off the table above.",
        "",
        *table(["mode", "", "median", "mean", "p90"], rows),
    ]


def knees(group: dict[str, Any], strangers_of: dict[str, Any]) -> list[str]:
    """Knees beyond the calibration points."""
    rows = []
    for mode in ("one_node", "two_point"):
        k = group["modes"][mode]["knee"]
        rows.append(
            [
                mode,
                str(k["families"]),
                percent(k["within_factor_2"]),
                percent(k["at_risk_flagged"]),
                str(k["straight"]),
                percent(k["false_alarms"]),
            ]
        )
    return [
        "## Knees",
        "",
        *table(
            [
                "mode",
                "families that bend",
                "within a factor of two",
                "flagged at risk in time",
                "families that do not",
                "false alarms",
            ],
            rows,
        ),
        "A knee is declared at the first measured K where the predicted chance of an efficiency below 70 % exceeds odds that",
        f"were chosen, for each fold, on the other folds (most knees found at no more than {100 * ALARMS:g} % false alarms).",
        "Both knees are read at the measured K: one predicted just beyond the last of them counts as missed.",
        "",
        *knee_bands(strangers_of["modes"]["datasheet"]["knee_bands"]),
    ]


def knee_bands(found: dict[str, Any]) -> list[str]:
    """Stated knees of strangers' jobs of which nothing was measured."""
    return [
        f"From datasheets, with the source left out and every source weighing the same: of {found['families']} curves the knee",
        f"lies in the stated band in {percent(found['inside'])} %, of the {found['bending']} that bend within the measured K in",
        f"{percent(found['inside_bending'])} %; of these, {percent(found['closed_bending'])} % of the bands end within the measured K.",
        "",
    ]


def collectives(group: dict[str, Any]) -> list[str]:
    """Collective sweeps."""
    figures = group["collectives"]
    rows = [
        [name, str(values["points"]), *(percent(values[f]) for f in ERRORS)]
        for name, values in ((COLLECTIVES[key], figures["schemes"][key]) for key in COLLECTIVES)
    ]
    return [
        "## Collectives of 8 KiB and more",
        "",
        *table(["predicted from", "points", "median", "mean", "p90"], rows),
    ]


def by_kind(group: dict[str, Any]) -> list[str]:
    """Every kind of workload in every mode."""
    rows = []
    for mode, figures in group["modes"].items():
        for kind, values in figures["by"]["kind"].items():
            rows.append(
                [
                    mode,
                    kind,
                    str(values["families"]),
                    *(percent(values[f]) for f in (*ERRORS, "coverage_90")),
                ]
            )
    return [
        "## By kind of workload",
        "",
        *table(["mode", "kind", "families", "median", "mean", "p90", "inside"], rows),
    ]


def noise() -> list[str]:
    """What the same benchmark gives on other machines of the same type."""
    cells: dict[tuple[str, str, str], list[float]] = {}
    with (HERE / "measured" / "repeats.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            cells.setdefault((row["key"], row["stack"], row["k"]), []).append(float(row["throughput"]))
    spread = [
        abs(v / float(np.median(values)) - 1.0)
        for values in cells.values()
        if len(values) > 1
        for v in values
    ]
    s = np.array(spread)
    text = f"Same GPU, batch and software on another machine: median {percent(float(np.median(s)))}, mean {percent(float(s.mean()))}, p90 {percent(float(np.quantile(s, 0.9)))} from the cell's median ({len(spread)} repeats)."
    return ["## Noise floor", "", text, ""]


def worst(group: dict[str, Any]) -> list[str]:
    """The families missed most, in each mode."""
    lines = [
        "## Worst families",
        "",
        "The likely reason is the belief that, all beliefs of the job moved as little as may be to explain its errors,",
        "makes up most of them, with the factor by which it would move and its part of the errors.",
        "",
    ]
    for mode, figures in group["modes"].items():
        rows = [
            [
                row["family"],
                ", ".join(map(str, row["k"][:5])),
                ", ".join(f"{100 * e:+.0f}" for e in row["error"][:5]),
                row["reason"],
            ]
            for row in figures["worst"]
        ]
        lines += [f"{mode}:", "", *table(["family", "K", "error", "likely reason"], rows)]
    return lines


if __name__ == "__main__":
    main()
