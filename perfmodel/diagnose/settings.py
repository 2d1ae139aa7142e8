"""What the configuration itself gives away: each setting that costs, with the step predicted again without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypedDict

from perfmodel.beliefs.population import Beliefs
from perfmodel.diagnose.causes import Model
from perfmodel.errors import SpecError
from perfmodel.physics.layouts import SHARDED, Sharding
from perfmodel.specs.job import Job
from perfmodel.specs.layout import Layout
from perfmodel.specs.stack import CLASS_OF, Stack
from perfmodel.specs.workload import TRANSFORMER_KINDS
from perfmodel.training.curve import Curve, curve
from perfmodel.training.setup import setup_of

LEAST_GAIN = 0.01  # of the step, from which a setting is told


@dataclass(frozen=True)
class Setting:
    """A change of the job: the key whose setting costs, what to set, and the job with it."""

    name: str
    key: str
    words: str
    job: Job


def settings_of(job: Job, found: Curve) -> Iterator[Setting]:
    """Changes of one setting each that might make the step shorter; the layout's degrees are those of the run."""
    stack = job.stack or Stack()
    layout = job.layout if isinstance(job.layout, Layout) else None
    name = found.names[0]

    def with_stack(**changed: object) -> Job:
        return job.model_copy(update={"stack": stack.model_copy(update=changed)})

    def with_layout(**changed: object) -> Job:
        # Whatever the layout left open stays as the run is taken to have it.
        said = {
            key: name[key]
            for key in ("micro_batch", "accumulation", "recompute")
            if name.get(key) is not None
        }
        base = layout.model_dump(exclude_unset=True) if layout is not None else {}
        return job.model_copy(update={"layout": Layout.model_validate(said | base | changed)})

    if stack.overlap_gradients is False:
        yield Setting(
            "overlap_gradients", "stack.overlap_gradients", "exchange gradients while the backward pass runs",
            with_stack(overlap_gradients=True),
        )  # fmt: skip
    eager, compiled = CLASS_OF.get(str(stack.framework), ("unknown", "unknown"))
    if job.framework == eager and eager != compiled:
        yield Setting(
            "compile", "stack.compiled", "compile the model",
            with_stack(compiled=True).model_copy(update={"framework": compiled}),
        )  # fmt: skip
    if job.gradient_dtype == "fp32" and job.precision != "fp32":
        yield Setting(
            "gradient_dtype", "gradient_dtype", "exchange gradients in bf16",
            with_stack(gradient_dtype="bf16").model_copy(update={"gradient_dtype": "bf16"}),
        )  # fmt: skip
    if layout is None or job.workload.kind not in TRANSFORMER_KINDS:
        return
    repeated = name["recompute"]
    if repeated == "full" or (isinstance(repeated, float) and repeated > 0.0):
        yield Setting(
            "recompute", "layout.recompute", "recompute attention alone", with_layout(recompute="selective")
        )
    if repeated != "none":
        yield Setting("recompute", "layout.recompute", "recompute nothing", with_layout(recompute="none"))
    if layout.tp > 1 and layout.sequence_parallel is False:
        yield Setting(
            "sequence_parallel", "layout.sequence_parallel", "cut norms and residuals by tensor parallelism too",
            with_layout(sequence_parallel=True),
        )  # fmt: skip
    micro, rounds = int(name["micro_batch"]), int(name["accumulation"])
    if rounds % 2 == 0 and micro == name["micro_batch"]:
        yield Setting(
            "micro_batch", "layout.micro_batch", f"a micro-batch of {2 * micro} in {rounds // 2} rounds",
            with_layout(micro_batch=2 * micro, accumulation=rounds // 2),
        )  # fmt: skip
    stages = (job.workload.layers or 1) // max(layout.pp, 1)
    if layout.pp > 1 and name.get("vpp") in (None, 1) and stages % 2 == 0:
        yield Setting(
            "vpp",
            "layout.vpp",
            "two virtual stages on each pipeline stage",
            with_layout(vpp=2, schedule="interleaved"),
        )
    sharding = Sharding[str(name["sharding"]).upper()]
    if sharding in SHARDED and sharding >= Sharding.FSDP and layout.pp == 1:
        yield Setting(
            "sharding", "layout.sharding", "shard optimizer states alone (zero1)",
            with_layout(sharding="zero1", shard_group=None),
        )  # fmt: skip


class Gain(TypedDict):
    """What another setting would give."""

    setting: str
    change: str
    stated_at: str | None
    expected_s: float
    gain: float


def gains(job: Job, found: Curve, beliefs: Beliefs, place: Callable[[str], str | None]) -> list[Gain]:
    """What each setting costs, and what another layout would give, largest first."""
    rows: dict[str, Gain] = {}
    now = float(found.time_s[0])
    for setting in settings_of(job, found):
        try:
            time = _time(setting.job, beliefs)
        except (SpecError, ValueError):  # what the job's other keys do not go with
            continue
        if time is not None and 1.0 - time / now >= LEAST_GAIN:
            row: Gain = {
                "setting": setting.name,
                "change": setting.words,
                "stated_at": place(setting.key),
                "expected_s": time,
                "gain": 1.0 - time / now,
            }
            if setting.name not in rows or row["gain"] > rows[setting.name]["gain"]:
                rows[setting.name] = row
    stated = Model.of(found)
    for fact, words in (
        ("attention", "a fused attention kernel"),
        ("overlap_gather", "gather weights ahead of compute"),
    ):
        without = Model.of(found, without=fact).time_s
        if 1.0 - without / stated.time_s >= LEAST_GAIN:
            rows[fact] = {
                "setting": fact,
                "change": words,
                "stated_at": place(f"stack.{fact}"),
                "expected_s": without,
                "gain": 1.0 - without / stated.time_s,
            }
    if job.layout != "auto" and job.workload.kind in TRANSFORMER_KINDS:
        free = curve(replace(setup_of(job), layout=None), beliefs, draws=0)
        # Where one setting brings as much, it is the better advice.
        alone = max((row["gain"] for row in rows.values()), default=0.0)
        if free.feasible[0] and 1.0 - float(free.time_s[0]) / now >= alone + LEAST_GAIN:
            words = ", ".join(f"{key}={value}" for key, value in free.names[0].items() if value is not None)
            rows["layout"] = {
                "setting": "layout",
                "change": f"the fastest layout: {words}",
                "stated_at": None,
                "expected_s": float(free.time_s[0]),
                "gain": 1.0 - float(free.time_s[0]) / now,
            }
    return sorted(rows.values(), key=lambda row: (-row["gain"], row["setting"]))


def _time(job: Job, beliefs: Beliefs) -> float | None:
    """The step of a job at its K; None where it cannot run."""
    made = curve(setup_of(job), beliefs, draws=0)
    return float(made.time_s[0]) if made.feasible[0] else None
