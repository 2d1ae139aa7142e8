"""The verbs as functions: `import perfmodel as pm`, then `pm.predict("job.yaml", k="8..256")`.

A job is a `Job`, a file, a mapping with the keys of a job file, or these keys as keyword arguments; keywords win over a
file or mapping, and a dotted key reaches inside: `pm.predict("job.yaml", **{"workload.layers": 40})`. Bad input raises
`SpecError` with everything that is wrong. Every function returns a `Result`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from perfmodel.beliefs.population import Beliefs, shipped_beliefs
from perfmodel.beliefs.stored import beliefs_of, read_beliefs
from perfmodel.decide.knee import DEFAULT_THRESHOLD
from perfmodel.decide.prediction import DRAWS, Prediction
from perfmodel.errors import Problem, UsageError, gathered
from perfmodel.explain.explanation import Explanation
from perfmodel.results.envelope import Result, __version__, plain
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.job import Job
from perfmodel.specs.jobs import load_any_job as _load_any
from perfmodel.specs.jobs import load_job as _load
from perfmodel.specs.jobs import serves
from perfmodel.specs.serving import ServingJob
from perfmodel.study.options import StudyOptions
from perfmodel.units import UnitError, parse

if TYPE_CHECKING:
    from perfmodel.serving.beliefs import ServingBeliefs

JobLike = Job | ServingJob | str | Path | Mapping[str, object]
BeliefsLike = Beliefs | Result | str | Path
Files = str | Path | Sequence[str | Path]

__all__ = [
    "BeliefsLike",
    "Catalog",
    "Files",
    "Job",
    "JobLike",
    "Result",
    "StudyOptions",
    "__version__",
    "audit",
    "calibrate",
    "catalog",
    "check",
    "compare",
    "diagnose",
    "explain",
    "load_job",
    "load_service",
    "plan",
    "predict",
    "study",
    "validate",
]


def load_job(job: JobLike | None = None, *, specs: Sequence[str | Path] = (), **keys: object) -> Job:
    """A job with every name looked up and every default filled in; `specs` are folders of your own hardware.

    >>> load_job(workload="llama3-8b", cluster="dgx-h100", k="8..32").k
    (8, 16, 32)
    """
    if isinstance(job, ServingJob):
        raise UsageError(
            f"{job.name} serves requests: of a service, predict, plan and check are answered", code="U002"
        )
    if not isinstance(job, Job):
        return _load(job, overrides=keys, extra_dirs=specs)
    _refuse_more(keys, specs)
    return job


def load_service(
    job: JobLike | None = None, *, specs: Sequence[str | Path] = (), **keys: object
) -> ServingJob | None:
    """The job of `load_job` where it serves requests; None of a training job.

    >>> chat = {"workload": "llama3-8b", "cluster": "dgx-h100", "serving": {"input_tokens": 512, "output_tokens": 128}}
    >>> load_service(chat).serving.output_tokens.mean
    128.0
    """
    if isinstance(job, (Job, ServingJob)):
        _refuse_more(keys, specs)
        return job if isinstance(job, ServingJob) else None
    if not _serves(job, keys):
        return None
    found = _load_any(job, overrides=keys, extra_dirs=specs)
    return found if isinstance(found, ServingJob) else None


def _serves(job: str | Path | Mapping[str, object] | None, keys: Mapping[str, object]) -> bool:
    if any(key.partition(".")[0] == "serving" for key in keys):
        return True
    return "serving" in job if isinstance(job, Mapping) else serves(None if job is None else Path(job))


def _refuse_more(keys: Mapping[str, object], specs: Sequence[str | Path]) -> None:
    if keys or specs:
        raise UsageError(
            f"a loaded job takes no more keys: {', '.join(keys) or 'specs'}",
            code="U002",
            help="give them where it is loaded: Job.from_yaml(path, k=64)",
        )


def catalog(*folders: str | Path) -> Catalog:
    """The catalogue of hardware, workloads and prices; your own folders of specs win.

    >>> "dgx-h100" in catalog().names("nodes")
    True
    """
    return Catalog.default(folders)


def predict(
    job: JobLike | None = None,
    *,
    beliefs: BeliefsLike | None = None,
    threshold: float = DEFAULT_THRESHOLD,
    draws: int = DRAWS,
    seed: int = 0,
    specs: Sequence[str | Path] = (),
    **keys: object,
) -> Prediction | Result:
    """T(K), speedup and efficiency with 90 % bands, the knee and its cause, p*, cost, energy and carbon.

    Of a job that serves: the load curve with bands, the knee, the fleet and the price of a token.

    >>> found = predict(workload="llama3-8b", cluster="dgx-h100", k="64..128:64", draws=0)
    >>> found["k"].tolist(), found["time_s"].shape
    ([64, 128], (2,))
    """
    from perfmodel.decide.prediction import predict as run

    service = load_service(job, specs=specs, **keys)
    if service is not None:
        from perfmodel.decide.serving.prediction import predict_serving

        return predict_serving(service, _known_serving(beliefs), seed=seed)
    return run(
        load_job(job, specs=specs, **keys), _known(beliefs), draws=draws, seed=seed, threshold=threshold
    )


def explain(
    job: JobLike | None = None,
    *,
    beliefs: BeliefsLike | None = None,
    seed: int = 0,
    specs: Sequence[str | Path] = (),
    **keys: object,
) -> Explanation | Result:
    """Every term of the step at one K: formula, inputs, their sources, share and sensitivity."""
    from perfmodel.explain.explanation import explain as run

    service = load_service(job, specs=specs, **keys)
    if service is not None:
        from perfmodel.explain.service import explain_service

        return explain_service(service, _known_serving(beliefs), seed=seed)
    found = load_job(job, specs=specs, **keys)
    if len(found.k) != 1:
        raise UsageError("explain shows one K", code="U016", help=f"add k={found.k[-1]}")
    return run(found, _known(beliefs), seed=seed)


def compare(
    a: JobLike,
    b: JobLike | None = None,
    *,
    at: int | None = None,
    beliefs: BeliefsLike | None = None,
    seed: int = 0,
    specs: Sequence[str | Path] = (),
    **keys: object,
) -> Result:
    """Two jobs side by side, and the difference by changed input. Without `b`, the second is `a` with `keys`."""
    from perfmodel.explain.comparison import compare as run

    left = load_service(a, specs=specs, **({} if b is None else keys))
    right = load_service(a if b is None else b, specs=specs, **keys)
    if left is not None and right is not None:
        from perfmodel.explain.service_comparison import compare_services

        return compare_services(left, right, _known_serving(beliefs), seed=seed)
    first, second = gathered(
        [
            partial(load_job, a, specs=specs, **({} if b is None else keys)),
            partial(load_job, a if b is None else b, specs=specs, **keys),
        ]
    )
    return run(first, second, _known(beliefs), at=at, seed=seed)


def plan(
    job: JobLike | None = None,
    *,
    clusters: Sequence[str] = (),
    objective: Literal["time", "cost", "energy"] | None = None,
    max_k: int | None = None,
    min_efficiency: float | None = None,
    top: int = 10,
    beliefs: BeliefsLike | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    specs: Sequence[str | Path] = (),
    **keys: object,
) -> Result:
    """The best layout, K and hardware; `deadline`, `budget`, `tokens` and the rest are keys of the job."""
    from perfmodel.decide.plan.elsewhere import elsewhere
    from perfmodel.decide.plan.planner import Request
    from perfmodel.decide.plan.run import plan_job

    if load_service(job, specs=specs, **keys) is not None:
        from perfmodel.decide.serving.search import Wanted, plan_serving

        each: Iterable[dict[str, object]] = [{"cluster": name} for name in clusters] or [{}]
        services = [
            found for one in each if (found := load_service(job, specs=specs, **(keys | one))) is not None
        ]
        return plan_serving(
            services, Wanted(keep=top, most_accelerators=max_k, seed=seed), _known_serving(beliefs)
        )[0]
    cheap = "deadline" in keys and "budget" not in keys
    request = Request(
        objective=objective or ("cost" if cheap else "time"),
        objective_unpriced=None if objective else "time",
        max_k=max_k,
        min_efficiency=min_efficiency,
        keep=top,
        draws=draws,
        seed=seed,
    )

    def load(more: Mapping[str, object]) -> Job:
        return load_job(job, specs=specs, **(keys | dict(more)))

    jobs = gathered([partial(elsewhere, load, name) for name in clusters] or [partial(load, {})])
    return plan_job(
        jobs, request, _known(beliefs) or shipped_beliefs(), catalog=Catalog.default(specs)
    ).result


def study(
    timings: Files,
    *,
    regime: Literal["strong", "weak"] | None = None,
    price: str | None = None,
    work: float | None = None,
    slo: str | None = None,
    job_name: str | None = None,
    options: StudyOptions | None = None,
    seed: int = 0,
) -> Result:
    """Measured timings (or a load curve) to speedup, intervals, fits, bend and cause, cost and verdict.

    `price` is of one worker ("3.20 USD/h"), `slo` of a load curve ("ttft_p99=2 s"), `job_name` of sacct output; `options`
    has everything else.
    """
    from dataclasses import replace

    from perfmodel.readings.load import is_load_test, read_load
    from perfmodel.results.envelope import fingerprint
    from perfmodel.study.load_curve import parse_objectives, study_load
    from perfmodel.study.rubric import study_file

    paths = _paths(timings)
    if all(is_load_test(path) for path in paths):
        files = [fingerprint(path) for path in paths]
        return study_load(read_load(paths), parse_objectives(slo) if slo else (), files=files, seed=seed)
    if slo is not None:
        raise UsageError("slo: for load curves; these are timings by K", code="U021")
    given = {"regime": regime, "work": work, "price_usd_per_s": _in_si("price", price, "USD/s")}
    said = {key: value for key, value in given.items() if value is not None}
    settled = replace(options or StudyOptions(), **said)  # type: ignore[arg-type]
    return study_file(paths, settled, job_name=job_name, seed=seed)


def diagnose(
    config: Files,
    log: str | Path | None = None,
    *,
    traces: Files = (),
    ranks: str | Path | None = None,
    beliefs: BeliefsLike | None = None,
    seed: int = 0,
    specs: Sequence[str | Path] = (),
    **keys: object,
) -> Result:
    """A run against what its configuration lets expect: `fine`, `slow` or `fast`, and causes by what they explain.

    `config` is a job file or the files of a training framework; `log` what the run, or a tracker, wrote of its steps.
    """
    from perfmodel.diagnose.diagnosis import diagnose as run

    return run(
        _paths(config),
        None if log is None else Path(log),
        _paths(traces),
        None if ranks is None else Path(ranks),
        overrides=keys,
        beliefs=_known(beliefs),
        specs=[Path(folder) for folder in specs],
        seed=seed,
    )


def audit(
    claim: str | Path | Mapping[str, object],
    *,
    goal: Literal["efficiency", "cost", "time"] = "efficiency",
    beliefs: BeliefsLike | None = None,
    seed: int = 0,
    specs: Sequence[str | Path] = (),
) -> Result:
    """A vendor's claim, as a file or a mapping: consistent, suspicious or impossible, with the questions to ask."""
    from perfmodel.decide.audit.verdict import audit as run
    from perfmodel.specs.claims import load_claim

    known = Catalog.default(specs)
    if _serves(claim, {}):
        from perfmodel.decide.audit.service import audit_service
        from perfmodel.specs.serving_claims import load_service_claim

        return audit_service(
            load_service_claim(claim, catalog=known),
            beliefs=_known_serving(beliefs),
            seed=seed,
            catalog=known,
        )
    return run(load_claim(claim, catalog=known), beliefs=_known(beliefs), goal=goal, seed=seed, catalog=known)


def check(
    file: str | Path = "perfmodel.yaml",
    *,
    undecided: Literal["pass", "fail"] | None = None,
    beliefs: BeliefsLike | None = None,
    seed: int = 0,
    specs: Sequence[str | Path] = (),
) -> Result:
    """Policies and the committed baseline of a file; the baseline is read, never written."""
    from perfmodel.decide.gate import baseline
    from perfmodel.decide.gate.check import check as run
    from perfmodel.decide.gate.predictor import predictor
    from perfmodel.specs.policies import load_policies

    gate = load_policies(file, extra_dirs=specs)
    known = _known(beliefs if beliefs is not None else gate.beliefs)
    word = undecided or gate.spec.undecided or "pass"
    lock = baseline.read(gate.baseline)
    return run(gate, predictor(known, seed), lock=lock, undecided=word, seed=seed).result


def calibrate(
    job: JobLike | None = None,
    *,
    timings: str | Path | None = None,
    nccl: Files = (),
    traces: Files = (),
    ranks: str | Path | None = None,
    power: Sequence[str] = (),
    beliefs: BeliefsLike | None = None,
    seed: int = 0,
    specs: Sequence[str | Path] = (),
    **keys: object,
) -> Result:
    """Beliefs of one job given its measurements; the result goes where `beliefs` are asked for."""
    service = load_service(job, specs=specs, **keys)
    if service is not None:
        from perfmodel.calibrate.service import calibrate_service

        if timings is None:
            raise UsageError(
                "nothing to calibrate with", code="U016", help="give timings: the report of a load tool"
            )
        return calibrate_service(service, [Path(timings)], _known_serving(beliefs), seed=seed)
    from perfmodel.calibrate.run import calibrate_job
    from perfmodel.study.table import parse_timings

    return calibrate_job(
        load_job(job, specs=specs, **keys),
        _known(beliefs),
        parse_timings,
        timings=None if timings is None else Path(timings),
        nccl=_paths(nccl),
        traces=_paths(traces),
        ranks=None if ranks is None else Path(ranks),
        power=power,
        seed=seed,
    )


def validate(
    job: JobLike | None = None,
    *,
    timings: str | Path | None = None,
    data: str | Path | None = None,
    leave_out: Literal["group", "source", "accelerator"] = "group",
    beliefs: BeliefsLike | None = None,
    seed: int = 0,
    specs: Sequence[str | Path] = (),
    **keys: object,
) -> Result:
    """Predictions against measured runs: of a job with `timings`, of a folder with `data`, else of the shipped corpus."""
    if timings is not None:
        from perfmodel.validate.own_timings import validate_job

        return validate_job(load_job(job, specs=specs, **keys), Path(timings), _known(beliefs), seed=seed)
    if job is not None or keys:
        raise UsageError(
            "a job is validated with measured timings", code="U002", help='add timings="steps.csv"'
        )
    from perfmodel.validate.validation import validate as run

    folder = None if data is None else Path(data)
    return run(folder, scheme=leave_out, catalog=Catalog.default(specs), seed=seed)


def _known_serving(beliefs: BeliefsLike | None) -> ServingBeliefs | None:
    """Beliefs about services: a file or a result of `calibrate`, or None for the shipped ones."""
    if beliefs is None:
        return None
    if isinstance(beliefs, (str, Path)):
        from perfmodel.serving.stored import read_serving_beliefs

        return read_serving_beliefs(Path(beliefs))
    if isinstance(beliefs, Result) and beliefs.kind == "serving-calibration":
        from perfmodel.serving.beliefs import shipped_beliefs as shipped
        from perfmodel.serving.calibrated import from_mapping

        return from_mapping(plain(beliefs.result["beliefs"]), shipped())
    raise UsageError(
        "beliefs of training jobs say nothing of services", code="U015", help="leave beliefs out"
    )


def _known(beliefs: BeliefsLike | None) -> Beliefs | None:
    """Beliefs as the verbs take them: what was read, what a calibration found, or None for the shipped ones."""
    if isinstance(beliefs, (str, Path)):
        return read_beliefs(Path(beliefs), "beliefs")
    if isinstance(beliefs, Result):
        return beliefs_of(plain(beliefs.result.get("beliefs")), f"a result of kind {beliefs.kind}")
    return beliefs


def _paths(files: Files) -> list[Path]:
    return [Path(files)] if isinstance(files, (str, Path)) else [Path(file) for file in files]


def _in_si(name: str, text: str | None, dimension: str) -> float | None:
    if text is None:
        return None
    try:
        return parse(text, dimension)
    except UnitError as error:
        raise UsageError(Problem(code="U021", message=f"{name}: {error.message}", help=error.hint)) from None
