"""Predictions against measured runs: errors by mode beside the baselines, coverage, and the worst families."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from perfmodel.report import text
from perfmodel.report.kinds import common, served_runs
from perfmodel.report.model import (
    Cell,
    Chart,
    Column,
    Envelope,
    Series,
    Table,
    amount,
    mapping,
    mappings,
    result_of,
)
from perfmodel.report.svg import MOST_DOTS
from perfmodel.units import counted

WORST = 15
FEW_KNEES = 20  # families: one more or less moves the share by a twentieth
MOST_REASONS = 5  # that are told one by one


def title(envelope: Envelope) -> str:
    """What was validated against, and what the beliefs had seen of it."""
    data = common.name_of(common.setting(envelope, "data"))
    data = "the shipped runs" if data == "shipped" else data
    scheme = result_of(envelope).get("scheme")
    return "Validation" + (f" on {data}" if data else "") + (f", {scheme}" if scheme else "")


def answer(envelope: Envelope) -> str:
    """Median error and coverage of each mode that has points, and the error of the collectives."""
    result, words = result_of(envelope), []
    for name, mode in _with_points(result).items():
        words.append(
            f"{name.replace('_', ' ')}: median error {text.quantity(amount(mode, 'median_ape'), '%')} "
            f"over {counted(int(amount(mode, 'points') or 0), 'point', 'points')} "
            f"of {counted(int(amount(mode, 'families') or 0), 'family', 'families')}, "
            f"the 90 % band holds {text.quantity(amount(mode, 'coverage_90'), '%')}"
        )
    collectives = result.get("collectives")
    if isinstance(collectives, Mapping) and collectives.get("points"):
        words.append(
            f"collectives: median error {text.quantity(collectives.get('median_ape'), '%')} "
            f"over {counted(collectives['points'], 'point', 'points')}"
        )
    memory = result.get("memory")
    if isinstance(memory, Mapping) and memory.get("runs"):
        words.append(
            f"memory: median error {text.quantity(memory.get('median_ape'), '%')}, worst "
            f"{text.quantity(memory.get('worst_ape'), '%')} over {counted(memory['runs'], 'peak', 'peaks')}"
        )
    words += filter(None, [served_runs.answer(result)])
    left_out = {row["family"] for row in result.get("unresolved") or () if row.get("family")}
    if left_out:
        words.append(f"{counted(len(left_out), 'family', 'families')} could not be scored, see the notes")
    return "; ".join(words) + "." if words else "Nothing was scored."


def tables(envelope: Envelope) -> list[Table]:
    """Scores by mode, baselines, groups, collectives, worst families."""
    result = result_of(envelope)
    return [
        *_scores(result),
        *_baselines(result),
        *_groups(result),
        *_collectives(result),
        *_memory(result),
        *served_runs.tables(result),
        *_worst(result),
    ]


def data(envelope: Envelope) -> Table | None:
    """Every prediction beside its measurement."""
    keys = ("k", "measured_s", "predicted_s", "low_s", "high_s")
    rows: list[list[Cell]] = [
        [family.get("mode"), family.get("family"), family.get("kind"), *(point.get(key) for key in keys)]
        for family in result_of(envelope).get("families") or ()
        for point in family.get("points") or ()
    ]
    columns = [Column(key, key=key) for key in ("mode", "family", "kind", *keys)]
    return Table("Points", columns, rows) if rows else None


def figures(envelope: Envelope) -> list[str]:
    """Predicted against measured, error by K."""
    return ["validation", "error_by_k"] if result_of(envelope).get("families") else []


def notes(envelope: Envelope) -> list[str]:
    """Families that were left out, everywhere or in a mode, or read otherwise than labelled; then the run's own notes and hints."""
    result = result_of(envelope)
    unresolved = result.get("unresolved") or ()
    families = [one for one in unresolved if "sweep" not in one]
    sweeps = [one for one in unresolved if "sweep" in one]
    return [
        *_by_reason(families, ("family", "families"), "not scored", "unresolved"),
        *_by_reason(sweeps, ("sweep", "sweeps"), "not scored", "unresolved"),
        *_skipped(result),
        *_by_reason(
            result.get("corrected") or (),
            ("family", "families"),
            "read otherwise than labelled",
            "corrected",
        ),
        *_contradicted(result),
        *served_runs.notes(result),
        *common.notes_of(result),
        *(str(hint) for hint in result.get("hints") or ()),
    ]


def _by_reason(rows: Sequence[Mapping[str, object]], noun: tuple[str, str], said: str, key: str) -> list[str]:
    """A line for each reason, with the first place, or one for all where they are many."""
    reasons = Counter(str(one.get("reason")) for one in rows)
    if len(reasons) > MOST_REASONS:
        every = counted(reasons.total(), *noun)
        return [f"{every} {said}, for {len(reasons)} reasons: `{key}` of --format json has each"]
    return [
        f"{_first_place(one for one in rows if one.get('reason') == reason)}{counted(count, *noun)} {said}: "
        f"{reason.removeprefix('collectives: ')}"
        for reason, count in reasons.items()
    ]


def _skipped(result: Mapping[str, object]) -> list[str]:
    """Families that some mode cannot score: what it lacks, most frequent first."""
    found = []
    for name, mode in modes(result).items():
        reasons = Counter(mapping(mode.get("skipped"))).most_common()
        if reasons:
            every = counted(sum(count for _, count in reasons), "family", "families")
            told = "; ".join(
                f"{reason}: {count}" if len(reasons) > 1 else reason for reason, count in reasons
            )
            found.append(f"{name.replace('_', ' ')}: {every} not scored: {told}")
    return found


def _first_place(rows: Iterable[Mapping[str, object]]) -> str:
    place = next((str(row["place"]) for row in rows if row.get("place")), "")
    return f"{place}: " if place else ""


def _contradicted(result: Mapping[str, object]) -> list[str]:
    rows = mappings(result.get("contradicted"))
    if len(rows) > MOST_REASONS:
        return [
            f"{len(rows)} points not scored, which contradict themselves: `contradicted` of --format json has each"
        ]
    return [f"{row.get('point')}: not scored: {row.get('reason')}" for row in rows]


def charts(envelope: Envelope) -> list[Chart]:
    """Predicted against measured step time, dots on the diagonal are exact."""
    groups: dict[str, tuple[list[float], list[float | None]]] = {}
    for family in result_of(envelope).get("families") or ():
        x, y = groups.setdefault(str(family.get("mode")), ([], []))
        for point in family.get("points") or ():
            if point.get("measured_s") and point.get("predicted_s"):
                x.append(float(point["measured_s"]))
                y.append(float(point["predicted_s"]))
    values = [v for x, _ in groups.values() for v in x]
    if not values:
        return []
    ends = [min(values), max(values)]
    series = [Series(name.replace("_", " "), x, y, style="dots") for name, (x, y) in groups.items()]
    series.append(Series("exact", ends, ends, style="dashed"))
    alt = f"Predicted against measured step time, {len(values)} points. {answer(envelope)}"
    return [
        Chart(
            "Predicted against measured",
            "measured [s]",
            "predicted [s]",  # in the unit of the other axis: exact is then where both labels agree
            series,
            alt=alt,
            y_log=True,
            note=f"at most {MOST_DOTS} points of each mode are drawn" if len(values) > MOST_DOTS else "",
        )
    ]


def modes(result: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """The modes that were asked for."""
    found = result.get("modes")
    return {str(k): dict(v) for k, v in found.items()} if isinstance(found, Mapping) else {}


def _with_points(result: Mapping[str, object]) -> dict[str, dict[str, object]]:
    return {name: mode for name, mode in modes(result).items() if mode.get("points") != 0}


def _scores(result: Mapping[str, object]) -> list[Table]:
    if not _with_points(result):
        return []
    columns = [
        Column("mode", "", 0, "mode"),
        Column("families", "", 2, "families"),
        Column("points", "", 1, "points"),
        Column("median", "%", 0, "median_ape"),
        Column("mean", "%", 0, "mean_ape"),
        Column("p90", "%", 0, "p90_ape"),
        Column("bias", "%", 1, "bias"),
        Column("cover", "%", 1, "coverage_90"),
        Column("band", "%", 2, "band_width_median"),
        Column("knee x2", "%", 3, "knee_within_factor_2"),
    ]
    rows: list[list[Cell]] = [
        [name.replace("_", " "), *common.cells(mode, (c.key for c in columns[1:]))]
        for name, mode in modes(result).items()
    ]
    note = (
        "Absolute percentage error; every family weighs the same. Cover: points inside the 90 % band; band: its "
        f"half-width. Knee x2: knees found within a factor of two{_few_knees(result)}; - where none is scored."
    )
    return [Table("Error by mode", columns, rows, note=note, role="decision")]


def _few_knees(result: Mapping[str, object]) -> str:
    """Families behind the share of knees, where they are so few that it says little."""
    counts = {name: mapping(mode.get("knee")).get("families") for name, mode in modes(result).items()}
    few = [
        f"{name.replace('_', ' ')} of {counted(count, 'family', 'families')}"
        for name, count in counts.items()
        if count and count < FEW_KNEES
    ]
    return f" ({', '.join(few)})" if few else ""


def _baselines(result: Mapping[str, object]) -> list[Table]:
    rows: list[list[Cell]] = []
    for name, mode in _with_points(result).items():
        keys = ("median_ape", "mean_ape", "p90_ape")
        rows.append([name.replace("_", " "), "perfmodel", *common.cells(mode, keys)])
        for baseline, score in mapping(mode.get("baselines")).items():
            rows.append([name.replace("_", " "), str(baseline).replace("_", " "), *common.cells(score, keys)])
    columns = [Column("mode", "", 0), Column("predictor", "", 0)]
    columns += [Column("median", "%", 0), Column("mean", "%", 0), Column("p90", "%", 0)]
    return [Table("Beside simpler laws on the same points", columns, rows, role="curve")] if rows else []


def _groups(result: Mapping[str, object]) -> list[Table]:
    rows: list[list[Cell]] = []
    for name, mode in modes(result).items():
        for by, groups in mapping(mode.get("by")).items():
            for group, score in mapping(groups).items():
                keys = ("points", "median_ape", "mean_ape", "p90_ape", "coverage_90")
                rows.append([name.replace("_", " "), str(by), str(group), *common.cells(score, keys)])
    columns = [Column("mode", "", 0), Column("by", "", 1), Column("group", "", 0), Column("points", "", 1)]
    columns += [
        Column("median", "%", 0),
        Column("mean", "%", 0),
        Column("p90", "%", 1),
        Column("cover", "%", 2),
    ]
    return [Table("Error by group", columns, rows, role="breakdown")] if rows else []


def _collectives(result: Mapping[str, object]) -> list[Table]:
    score = result.get("collectives")
    if not isinstance(score, Mapping) or not score.get("points"):
        return []
    columns = [
        Column("points", "", 0),
        Column("median", "%", 0),
        Column("mean", "%", 0),
        Column("p90", "%", 0),
    ]
    row = [score.get(key) for key in ("points", "median_ape", "mean_ape", "p90_ape")]
    return [Table("Collectives", columns, [row], role="breakdown")]


def _memory(result: Mapping[str, object]) -> list[Table]:
    """Errors of published peaks of memory, by source."""
    memory = result.get("memory")
    if not isinstance(memory, Mapping) or not memory.get("runs"):
        return []
    keys = ("runs", "median_ape", "mean_ape", "worst_ape", "bias", "inside_band")
    columns = [
        Column("source", "", 0),
        *(Column(key.replace("_ape", ""), "" if key == "runs" else "%", 1) for key in keys),
    ]
    found = {**(memory.get("by_source") or {}), "all": memory}
    rows: list[list[Cell]] = [[name, *(row.get(key) for key in keys)] for name, row in found.items()]
    out = memory.get("out_of_memory") or 0
    note = (
        f"Peaks that an allocator read. {memory.get('fit_rightly')} of {memory['runs']} are said to fit, and "
        f"{memory.get('out_rightly')} of {counted(out, 'run', 'runs')} out of memory not to."
    )
    return [Table("Memory", columns, rows, note=note, role="breakdown")]


def _worst(result: Mapping[str, object]) -> list[Table]:
    rows: list[list[Cell]] = [
        [row.get("family"), name.replace("_", " "), row.get("mean_ape"), row.get("reason")]
        for name, mode in modes(result).items()
        for row in mappings(mode.get("worst"))
    ]
    rows.sort(key=lambda row: -float(row[2] or 0.0))
    columns = [
        Column("family", "", 0),
        Column("mode", "", 0),
        Column("mean error", "%", 0),
        Column("likely reason", "", 1),
    ]
    note = "The belief that, moved by the factor, would explain the given part of the errors."
    title = f"The {WORST} worst families"
    return [Table(title, columns, rows[:WORST], note=note, role="detail")] if rows else []
