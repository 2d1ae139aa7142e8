"""The serving part of validation/REPORT.md: errors of every answer under three schemes, targets met and missed."""

from __future__ import annotations

from typing import Any

SCHEMES = (
    ("group", "model on accelerator left out"),
    ("source", "whole publisher left out"),
    ("accelerator", "whole accelerator left out"),
)
NAMES = {
    "throughput": "throughput",
    "tpot": "time per token",
    "ttft": "first token",
    "tpot_p99": "time per token, p99",
    "ttft_p99": "first token, p99",
}
ERRORS = ("median_ape", "mean_ape", "p90_ape")
BANDS = ("bias", "coverage_90", "band_width_median")
SIDES = {"below_saturation": "below saturation", "above_saturation": "above saturation"}
LAWS = {"roofs": "roofs of the datasheet", "constant_shares": "constant shares of the roofs, by kind of load"}
#: What is asked, as (words, scheme, where in the figures, limits in percent of median, mean, p90).
TARGETS: tuple[tuple[str, str, tuple[str, ...], tuple[float, float, float]], ...] = (
    ("offline throughput", "group", ("throughput", "by", "kind", "offline"), (8, 16, 33)),
    ("closed-loop throughput", "group", ("throughput", "by", "kind", "closed-loop"), (12, 16, 30)),
    ("time per token, closed loop", "group", ("tpot", "by", "kind", "closed-loop"), (12, 18, 34)),
    ("first token below saturation", "group", ("ttft", "below_saturation"), (20, 30, 60)),
    ("throughput, publisher left out", "source", ("throughput", "by_source_weight"), (15, 25, 50)),
    ("time per token, publisher left out", "source", ("tpot", "by_source_weight"), (16, 25, 45)),
    ("throughput, one point measured", "group", ("throughput", "calibrated", "one_point"), (6, 8, 18)),
    ("time per token, one point measured", "group", ("tpot", "calibrated", "one_point"), (6, 9, 18)),
    ("first token, one point measured", "group", ("ttft", "calibrated", "one_point"), (9, 20, 45)),
    ("throughput, two points measured", "group", ("throughput", "calibrated", "two_points"), (2.5, 4, 9)),
    ("time per token, two points measured", "group", ("tpot", "calibrated", "two_points"), (2.5, 4, 9)),
    ("first token, two points measured", "group", ("ttft", "calibrated", "two_points"), (7, 18, 30)),
)


def percent(value: float | None) -> str:
    """One decimal."""
    return "-" if value is None else f"{100 * value:.1f}"


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def serving(results: dict[str, Any]) -> list[str]:
    """The section; `results` are those of `validate` by scheme."""
    found = {scheme: result["serving"] for scheme, result in results.items()}
    group = found["group"]
    lines = [
        "## Serving",
        "",
        f"{group['scored']:,} of {group['runs']:,} measured runs of servers (`measured/serving`). Errors are |predicted / measured - 1| in",
        "percent, over rows; in the lines that say so every source weighs the same, however long its table. No run is predicted by",
        "beliefs that saw its model on its accelerator; then its publisher; then its accelerator. Folds are cut by names: eight",
        "of groups, eight of accelerators, each publisher one. Levels and the form of the model were chosen on these scores. Bands are",
        "learnt on the errors of whole publishers left out, so those of the second table are no test of them: there are too few",
        "publishers to leave out twice. What each publisher has of its own is fitted beside the beliefs and predicts nobody.",
        "Latencies of bursts are not scored: their first tokens are a queue. DeepSeek runs on TensorRT-LLM may draft tokens",
        "without saying so. Bursts over a network run at half of the predicted rate and have a band of their own. MLPerf's servers",
        "run just below their saturation, where 15 % of the rate is a factor of four in latency.",
        "",
    ]
    for scheme, words in SCHEMES:
        rows = [row for name in NAMES for row in _rows(found[scheme], name)]
        header = [
            "",
            "rows",
            "sources",
            "median",
            "mean",
            "p90",
            "bias",
            "inside the 90 % band",
            "half-width",
        ]
        lines += [f"### {words.capitalize()}", "", *table(header, rows)]
    lines += _targets(found)
    lines += _curves(found)
    lines += _laws(group)
    lines += (
        _by(group, "source")
        + _by(found["accelerator"], "accelerator")
        + _by(group, "engine")
        + _by(group, "kind")
    )
    lines += _left(group)
    return lines


def _rows(found: dict[str, Any], name: str) -> list[list[str]]:
    figures = found[name]
    if not figures["rows"]:
        return []
    parts = [(NAMES[name], figures), (f"{NAMES[name]}, sources weigh the same", figures["by_source_weight"])]
    parts += [(f"{NAMES[name]}, {words}", figures[side]) for side, words in SIDES.items() if side in figures]
    return [
        [words, str(one["rows"]), str(one["sources"]), *(percent(one.get(key)) for key in (*ERRORS, *BANDS))]
        for words, one in parts
    ]


def _targets(found: dict[str, Any]) -> list[str]:
    rows = []

    def told(words: str, asked: str, reached: str, is_met: bool) -> None:
        rows.append([words, asked, reached, "met" if is_met else "missed"])

    for words, scheme, where, limits in TARGETS:
        figures: Any = found[scheme]
        for key in where:
            figures = figures[key]
        values = [100 * figures[key] for key in ERRORS]
        asked = " / ".join(f"{limit:g}" for limit in limits)
        is_met = all(value <= limit for value, limit in zip(values, limits, strict=True))
        told(words, asked, " / ".join(f"{value:.1f}" for value in values), is_met)
    tail = found["group"]["ttft_p99"].get("below_saturation", {}).get("within_factor_1_5", 0.0)
    told(
        "p99 of the first token within a factor of 1.5, below saturation",
        "70 of 100",
        f"{100 * tail:.0f}",
        tail >= 0.7,
    )
    knee = found["group"]["knee"]
    within = knee.get("within_factor_1_5", 0.0)
    told(
        "load at which the time per token doubles, within 1.5",
        "75 of 100",
        f"{100 * within:.0f}",
        within >= 0.75,
    )
    for scheme, words in SCHEMES:
        for name in ("throughput", "tpot", "ttft"):
            cover = found[scheme][name]["by_source_weight"]["coverage_90"]
            told(f"band of {NAMES[name]}, {words}", "87 to 93", f"{100 * cover:.0f}", 0.87 <= cover <= 0.93)
    return ["### Serving: targets", "", *table(["median / mean / p90", "asked", "reached", ""], rows)]


def _curves(found: dict[str, Any]) -> list[str]:
    words = {"none": "nothing", "one_point": "its middle", "two_points": "its two ends"}
    rows = [
        [
            NAMES[name],
            scheme,
            str(one["calibrated"]["curves"]),
            measured,
            *(percent(one["calibrated"][key][e]) for e in ERRORS),
        ]
        for scheme in ("group", "source")
        for name in ("throughput", "tpot", "ttft")
        if "calibrated" in (one := found[scheme][name])
        for key, measured in words.items()
    ]
    header = ["", "left out", "curves", "measured of the curve", "median", "mean", "p90"]
    return ["### Curves of four loads or more", "", *table(header, rows)]


def _laws(group: dict[str, Any]) -> list[str]:
    rows = []
    for name in ("throughput", "tpot", "ttft"):
        rows.append([NAMES[name], "**perfmodel**", *(percent(group[name][key]) for key in ERRORS)])
        laws = group[name].get("baselines", {})
        rows += [
            [NAMES[name], LAWS[law], *(percent(one[key]) for key in ERRORS)] for law, one in laws.items()
        ]
    return [
        "### Serving: against simpler laws, groups left out",
        "",
        *table(["", "", "median", "mean", "p90"], rows),
    ]


def _by(found: dict[str, Any], by: str) -> list[str]:
    rows = [
        [NAMES[name], key, str(one["rows"]), *(percent(one[e]) for e in (*ERRORS, "bias", "coverage_90"))]
        for name in ("throughput", "tpot", "ttft")
        for key, one in found[name]["by"][by].items()
    ]
    what = "accelerators" if by == "accelerator" else "groups"
    header = ["", by, "rows", "median", "mean", "p90", "bias", "inside"]
    return [f"### Serving: by {by}, {what} left out", "", *table(header, rows)]


def _left(group: dict[str, Any]) -> list[str]:
    rows = [[one["reason"], str(one["rows"])] for one in (*group["unresolved"], *group["contradicted"])]
    rows += [
        [f"{NAMES[name]} measured where no steady state is predicted", str(count)]
        for name, count in group["not_predicted"].items()
        if count
    ]
    return ["### Serving: what is not scored", "", *table(["reason", "rows"], rows)]
