"""A timeline as SVG: a row for each stage and each worker, its streams below one another, coloured by what happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from perfmodel.physics import parts
from perfmodel.report import text
from perfmodel.report.model import amount, listed, mappings
from perfmodel.report.svg import nice_ticks


def _names(*described: parts.Part) -> tuple[str, ...]:
    return tuple(part.name for part in described)


#: What is drawn in one colour, and the colours' order in the page's style.
CLASSES: dict[str, tuple[str, ...]] = {
    "forward": ("forward",),
    "backward": ("backward",),
    "tensor, context, experts": _names(parts.TENSOR_PARALLEL, parts.CONTEXT_PARALLEL, parts.EXPERT_PARALLEL),
    "gradients and weights": _names(parts.DATA_PARALLEL, parts.SHARDED_WEIGHTS),
    "under compute": ("hidden_exchange",),
    "pipeline messages": _names(parts.PIPELINE_MESSAGES),
    "optimizer, host, contention": (*_names(parts.OPTIMIZER, parts.HOST, parts.CONTENTION), "busy"),
    "waiting": (*parts.WAITING, *_names(parts.INPUT_STALL, parts.SERIAL)),
}
_SHORT = {"compute": "compute", "tensor, context, experts": "tensor", "data": "data", "pipeline messages": "messages",
          "waiting": "waiting", "data, under compute": "hidden"}  # fmt: skip
_STREAM = 13.0
_GAP = 7.0
_LABEL = 118.0
MOST_GROUPS = 8


def draw(timeline: Mapping[str, object], width: int = 960, identity: str = "timeline") -> str:
    """The picture as one `<svg>` element; nothing where there are no spans."""
    lanes, spans, total = mappings(timeline["lanes"]), listed(timeline["spans"]), amount(timeline, "time_s")
    if not spans or not total:
        return ""
    used = {span[0] for span in spans}
    rows, groups = _rows(lanes, used)
    left, right, top = _LABEL, width - 10.0, 8.0
    scale = (right - left) / total
    out: list[str] = []
    y = top
    place: dict[int, float] = {}
    for group in groups:
        inside = [index for index in rows if lanes[index]["group"] == group]
        if group != "workers":
            out.append(f'<text x="4" y="{y + 10:.1f}" class="tick">{escape(group)}</text>')
        for index in inside:
            place[index] = y
            stream = str(lanes[index]["stream"])
            label = f"worker {stream}" if group == "workers" else _SHORT.get(stream, "")
            at = 4.0 if group == "workers" else left - 6.0
            anchor = "start" if group == "workers" else "end"
            out.append(
                f'<text x="{at:g}" y="{y + 9:.1f}" text-anchor="{anchor}" class="small">{escape(label)}</text>'
            )
            y += _STREAM
        out.append(
            f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y + _GAP / 2:.1f}" y2="{y + _GAP / 2:.1f}" class="grid"/>'
        )
        y += _GAP
    for index, start, seconds, part, direction, micro_batch, _ in spans:
        if index not in place:
            continue
        label = f"{part.replace('_', ' ')}" + (f", {direction}" if direction else "")
        label += f" {micro_batch}" if micro_batch is not None else ""
        label += f": {text.quantity(seconds, 's')}"
        faint = ' fill-opacity="0.35"' if part == "busy" else ""
        out.append(
            f'<rect x="{left + start * scale:.2f}" y="{place[index]:.1f}" width="{max(seconds * scale, 0.2):.2f}" '
            f'height="{_STREAM - 2:.1f}" class="bar s{_colour(part, direction)}"{faint}><title>{escape(label)}</title></rect>'
        )
    factor, unit = text.scale([total], "s")
    for tick in nice_ticks(0.0, total * factor):
        x = left + tick / factor * scale
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{y:.1f}" class="grid"/>')
        out.append(f'<text x="{x:.1f}" y="{y + 13:.1f}" text-anchor="middle" class="tick">{tick:g}</text>')
    out.append(
        f'<text x="{right:.1f}" y="{y + 28:.1f}" text-anchor="end" class="axis-title">time in the step [{unit}]</text>'
    )
    name = escape(identity, quote=True)
    height = y + 34.0
    alt = _words(timeline)
    return (
        f'<svg viewBox="0 0 {width} {height:.0f}" role="img" aria-labelledby="{name}-t {name}-d" class="chart">'
        f'<title id="{name}-t">One step</title><desc id="{name}-d">{escape(alt)}</desc>{"".join(out)}</svg>'
    )


def figure(timeline: Mapping[str, object]) -> str:
    """The picture with its title and legend, for a page."""
    picture = draw(timeline)
    if not picture:
        return ""
    spans = listed(timeline["spans"])
    seen = {_colour(part, direction) for _, _, _, part, direction, _, _ in spans}
    keys = "".join(
        f'<span class="key"><span class="swatch s{index} block"></span>{escape(name)}</span>'
        for index, name in enumerate(CLASSES)
        if index in seen
    )
    notes = "; ".join(listed(timeline.get("notes")))
    note = f" <small>{escape(notes)}</small>" if notes else ""
    return (
        f'<figure><figcaption>One step, stage by stage{note}</figcaption><div class="legend">{keys}</div>'
        f'<div class="scroll">{picture}</div></figure>'
    )


def _rows(lanes: Sequence[Mapping[str, object]], used: set[int]) -> tuple[list[int], list[str]]:
    """The lanes that are drawn: of many stages the first and the last ones."""
    groups = list(dict.fromkeys(str(lane["group"]) for lane in lanes))
    stages = [group for group in groups if group != "workers"]
    if len(stages) > MOST_GROUPS:
        half = MOST_GROUPS // 2
        stages = [*stages[:half], *stages[-half:]]
    kept = [*stages, *(group for group in groups if group == "workers")]
    return [index for index, lane in enumerate(lanes) if index in used and lane["group"] in kept], kept


def _colour(part: str, direction: str | None) -> int:
    word = direction if part == "compute" and direction is not None else part
    return next((at for at, (_, words) in enumerate(CLASSES.items()) if word in words), 6)


def _words(timeline: Mapping[str, object]) -> str:
    stages, count = timeline["stages"], timeline["micro_batches"]
    return (
        f"One step of {text.quantity(amount(timeline, 'time_s'), 's')}: {count} micro-batches through {stages} "
        f"pipeline {'stage' if stages == 1 else 'stages'}, with what each stage and worker waits"
    )
