"""Step times out of training logs: presets for Megatron, torchtitan, NeMo, Lightning and Hugging Face Trainer, or a
regular expression of your own.

A preset gives the time of a step directly (Megatron, NeMo), through the log's clock (torchtitan: time stamps of
successive steps) or through a progress bar's elapsed time (Lightning, Hugging Face; whole seconds, so steps are
averaged over at least `BAR_SECONDS`). Your own expression names its groups: `step` and one of `time_s`, `time_ms`,
`time_us`, `steps_per_s`; `global_batch`, `k` and `quality` when the line has them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import UsageError, did_you_mean
from perfmodel.readings.pattern import compiled_pattern, search_within
from perfmodel.readings.source import (
    WARMUP_RULE,
    Reading,
    Tally,
    number,
    numbered_lines,
    warmup_steps,
    without_launcher,
)

BAR_SECONDS = 20.0
BATCHES = 10  # batch means per run: neighbouring steps are not independent repeats
MOST_WORKERS = 10**7  # that a log may name
LINES_LOOKED_AT = 20_000  # for the preset that a log is in
_STAMP = r"(?P<stamp>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,]\d{3,6})"
# Every repetition but one has a bound: without, the time of a search grows with the cube of a hostile line.
_BAR = (
    r"(?P<step>\d{1,15})/(?P<total>\d{1,15})\s{0,9}\[(?P<elapsed>(?:\d{1,4}:)?\d{1,4}:\d\d)<[^,\]]{0,40},"
    r"\s{0,9}(?P<rate>[\d.]{1,25})\s{0,9}(?P<unit>it/s|s/it)"
)


@dataclass(frozen=True)
class Preset:
    """How one framework prints a step. `hint` recognises a step's line cheaply; `pattern` must then match."""

    name: str
    hint: str
    pattern: re.Pattern[str]
    about: str


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "megatron",
            "elapsed time per iteration",
            re.compile(
                r"iteration\s{1,20}(?P<step>\d{1,40})\s{0,20}/.*?elapsed time per iteration \((?P<unit>ms|s)\):"
                r"\s{0,20}(?P<time>[\d.]{1,40})(?:.*?global batch size:\s{0,20}(?P<global_batch>\d{1,15}))?"
            ),
            "iteration 10/ 500 | ... | elapsed time per iteration (ms): 1147.6 | ...",
        ),
        Preset(
            "torchtitan",
            "step:",
            re.compile(
                _STAMP + r".*?\bstep:\s{0,20}(?P<step>\d{1,40})\s{1,20}loss:\s{0,20}(?P<loss>[\d.]{1,40})"
            ),
            "[titan] 2025-10-30 20:35:34,953 - root - INFO - step: 50  loss:  7.1839 ... tps: 11,481",
        ),
        Preset(
            "nemo",
            "train_step_timing in s",
            re.compile(
                r"(?:global_step[:=]\s{0,9}(?P<step>\d{1,40})|iteration (?P<iteration>\d{1,40})/)?.*?"
                r"train_step_timing in s[:=]\s{0,9}(?P<time>[\d.]{1,40}|\[[\d., ]{1,4000}\])"
            ),
            "Training epoch 0, iteration 9/99 | ... | global_step: 9 | ... | train_step_timing in s: 6.48",
        ),
        Preset(
            "lightning",
            "Epoch",
            re.compile(r"Epoch\s{1,9}(?P<epoch>\d{1,15}).*?" + _BAR),
            "Epoch 0:  10%|# | 10/100 [00:12<01:48,  0.83it/s, v_num=0]",
        ),
        Preset(
            "hf-trainer",
            "/",
            re.compile(_BAR),
            " 10%|# | 50/500 [00:25<03:45,  2.00it/s] and {'train_runtime': ...}",
        ),
    )
}
# Where logs name the number of workers and the batch.
_K = (
    re.compile(r"(?i)\bworld[ _]size['\"]?\s*[:=]\s*(\d{1,7})\b"),
    re.compile(r"Starting with (\d{1,7}) processes"),
    re.compile(r"(?i)\bnum(?:ber of)?[ _](?:processes|gpus|devices)\s*[:=]\s*(\d{1,7})\b"),
)
_MESH = re.compile(r"Building \d{1,3}-D device mesh with .{0,400}?\], \[([\d, ]{1,80})\]")
_BATCH = re.compile(
    r"(?i)(?:global[ _]batch[ _]size|Total train batch size[^=:]{0,60})\s{0,9}[:= ]\s{0,9}(\d{1,15})"
)
_NAME_K = re.compile(
    r"(?i)(?:^|[_.-])k[_=-]?(\d+)(?=[_.-]|$)|(\d+)[_-]?(?:gpus?|ranks|workers|accelerators)(?=[_.-]|$)"
)


LONGEST_STEP_LINE = 1 << 12  # characters that are searched: the time grows with their square on hostile lines


@dataclass(frozen=True, kw_only=True)
class TrainLog(Reading):
    """Step times of one run [s] after warm-up, each that of the steps logged up to step number `step`."""

    preset: str = "none"
    step: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    time_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    k: int | None = None
    global_batch: float | None = None
    quality: float | None = None
    warmup: int = 0

    def batch_means(self) -> NDArray[np.float64]:
        """Up to `BATCHES` means over equal runs of steps: the repeats of a study [s].

        Neighbouring steps share their noise; means of long batches are nearly independent (Law, *Simulation
        Modeling and Analysis*, ch. 9).
        """
        if self.time_s.size < 2 * BATCHES:
            return self.time_s
        return np.array([part.mean() for part in np.array_split(self.time_s, BATCHES)])


@dataclass
class _Found:
    """What has been seen so far in one log."""

    step: list[int] = field(default_factory=list)
    time_s: list[float] = field(default_factory=list)
    # step, elapsed or time of day, printed step time
    clock: list[tuple[int, float, float]] = field(default_factory=list)
    k: int | None = None
    global_batch: float | None = None
    quality: float | None = None


def read_train_log(
    path: Path | str, *, preset: str | None = None, pattern: str | None = None, k: int | None = None
) -> TrainLog:
    """Read a log by a preset, by `pattern`, or by the first preset whose lines it holds."""
    where = Path(path)
    chosen = _chosen(where, preset, pattern)
    tally = Tally(where)
    found = _Found()
    bar = "elapsed" in chosen.pattern.groupindex
    for line, raw in numbered_lines(where, tally, redrawn=bar):
        text = without_launcher(raw)[:LONGEST_STEP_LINE]
        _facts(text, found)
        if chosen.hint not in text:
            continue
        match = chosen.pattern.search(text) if pattern is None else search_within(chosen.pattern, text)
        if match is None:
            # The hints of these stand in other lines too.
            if chosen.name not in ("lightning", "hf-trainer", "torchtitan"):
                tally.reject(line, raw, f"not the form of {chosen.name}: {chosen.about}")
            continue
        reason = _take(match, found)
        if reason is None:
            tally.used += 1
        else:
            tally.reject(line, raw, reason)
    return _finish(chosen, found, tally, k or found.k or k_of_name(where.stem))


def detect_preset(path: Path | str) -> str | None:
    """The preset with the most matching lines near the beginning; None when none matches."""
    where = Path(path)
    counts = dict.fromkeys(PRESETS, 0)
    for seen, (_, text) in enumerate(numbered_lines(where, Tally(where), redrawn=True)):
        if seen >= LINES_LOOKED_AT:
            break
        text = text[:LONGEST_STEP_LINE]
        for name, preset in PRESETS.items():
            if preset.hint in text and preset.pattern.search(text):
                counts[name] += 1
                break  # Hugging Face's bar is part of Lightning's
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] else None


def _chosen(path: Path, preset: str | None, pattern: str | None) -> Preset:
    if pattern is not None:
        if preset is not None:
            raise UsageError("--pattern and --preset are two ways to read the log: give one", code="U041")
        return Preset("pattern", "", compiled_pattern(pattern), pattern)
    name = preset or detect_preset(path)
    if name is None:
        return PRESETS["megatron"]  # nothing matches: every preset would give the same empty result
    if name not in PRESETS:
        raise UsageError(
            f'--preset: unknown "{name}"{did_you_mean(name, PRESETS)}',
            code="U042",
            help=f"one of {', '.join(PRESETS)}",
        )
    return PRESETS[name]


def _facts(text: str, found: _Found) -> None:
    """World size and batch, wherever the log names them."""
    if found.k is None:
        for form in _K:
            if match := form.search(text):
                found.k = int(match.group(1))
        if mesh := _MESH.search(text):
            sizes = [int(part) for part in mesh.group(1).split(",") if 0 < len(part.strip()) < 8]
            found.k = math.prod(sizes) if math.prod(sizes) < MOST_WORKERS else None
    if match := _BATCH.search(text):
        found.global_batch = float(match.group(1))


def _take(match: re.Match[str], found: _Found) -> str | None:
    """Keep one matched line; the reason when its numbers cannot be used."""
    groups = match.groupdict()
    step_text = groups.get("step") or groups.get("iteration")
    if step_text and len(step_text) > 15:
        return "the step number is absurd"
    step = (
        int(step_text) if step_text and step_text.isdecimal() else (found.step[-1] + 1 if found.step else 0)
    )
    if groups.get("k"):
        found.k = int(min(number(groups["k"]) or 0.0, 1e9)) or None
    for name in ("quality", "global_batch"):
        if groups.get(name) and (value := number(groups[name])) is not None:
            setattr(found, name, value)
    if groups.get("stamp"):
        try:
            clock = datetime.fromisoformat(groups["stamp"].replace(",", ".")).replace(tzinfo=UTC).timestamp()
        except ValueError:
            return "the time stamp is no time"
        found.clock.append((step, clock, 0.0))
        return None
    if groups.get("elapsed"):
        rate = number(groups["rate"])
        if not rate:
            return "the rate of the progress bar is not a number above zero"
        elapsed = 0.0
        for part in groups["elapsed"].split(":"):
            elapsed = 60.0 * elapsed + int(part)
        found.clock.append((step, elapsed, rate if groups["unit"] == "s/it" else 1.0 / rate))
        return None
    times = _times(groups)
    if not times or any(time <= 0.0 for time in times):
        return "the step time is not a number above zero"
    for offset, time in enumerate(times):
        found.step.append(step + offset)
        found.time_s.append(time)
    return None


def _times(groups: dict[str, str]) -> list[float]:
    if groups.get("time"):  # one number, or NeMo's list of all steps
        scale = 1e-3 if groups.get("unit") == "ms" else 1.0
        values = [number(part) for part in groups["time"].strip("[]").split(",")]
        return [value * scale for value in values if value is not None]
    for name, scale in (("time_s", 1.0), ("time_ms", 1e-3), ("time_us", 1e-6)):
        if groups.get(name):
            value = number(groups[name])
            return [] if value is None else [value * scale]
    rate = number(groups.get("steps_per_s") or "")
    return [1.0 / rate] if rate else []


def _finish(chosen: Preset, found: _Found, tally: Tally, k: int | None) -> TrainLog:
    if found.clock:
        bar = "elapsed" in chosen.pattern.groupindex
        found.step, found.time_s = _differences(found.clock, BAR_SECONDS if bar else 0.0)
        if not found.time_s and bar:
            found.step, found.time_s = [found.clock[-1][0]], [found.clock[-1][2]]
            tally.note("the run is too short for its clock: the progress bar's own rate was used")
    skip = warmup_steps(found.time_s)
    if skip:
        tally.note(f"{WARMUP_RULE} ({skip} of {len(found.time_s)} rows)")
    return tally.finish(
        TrainLog,
        preset=chosen.name,
        step=np.array(found.step[skip:], np.int64),
        time_s=np.array(found.time_s[skip:], np.float64),
        k=k,
        global_batch=found.global_batch,
        quality=found.quality,
        warmup=skip,
    )


def _differences(clock: list[tuple[int, float, float]], least_s: float) -> tuple[list[int], list[float]]:
    """Time per step between log lines at least `least_s` apart; a step that goes back starts again."""
    steps: list[int] = []
    times: list[float] = []
    from_step, from_time = clock[0][0], clock[0][1]
    for step, time, _ in clock[1:]:
        if step <= from_step or time < from_time:
            if step < from_step or time < from_time:
                from_step, from_time = step, time
            continue
        if time - from_time < max(least_s, 1e-9):
            continue
        steps.append(step)
        times.append((time - from_time) / (step - from_step))
        from_step, from_time = step, time
    return steps, times


def k_of_name(stem: str) -> int | None:
    """K by the name of a file or folder; None where neither has it.

    >>> k_of_name("train_k8"), k_of_name("run-16gpus"), k_of_name("k4.pt.trace"), k_of_name("rank0")
    (8, 16, 4, None)
    """
    match = _NAME_K.search(stem)
    return int(next(group for group in match.groups() if group)) if match else None
