"""The three ways to plan: one job (on one or many clusters), a fleet of jobs, one job with a value swept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from perfmodel.beliefs.population import Beliefs
from perfmodel.decide.plan import backends as runners
from perfmodel.decide.plan.answer import Plan, make_plan
from perfmodel.decide.plan.fleet import fleet_result
from perfmodel.decide.plan.planner import Found, Request, search
from perfmodel.decide.plan.sweep import parse_sweep, run_sweep
from perfmodel.decide.prediction import inputs_of, priced
from perfmodel.errors import UsageError
from perfmodel.results.envelope import Result
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.job import Job


@dataclass(frozen=True)
class Place:
    """Where the search runs, over how many workers, and the function that shows its progress."""

    runner: runners.Runner = runners.run_here
    workers: int = 1
    progress: runners.Progress | None = None


def plan_job(
    jobs: Sequence[Job],
    request: Request,
    beliefs: Beliefs,
    place: Place | None = None,
    catalog: Catalog | None = None,
) -> Plan:
    """Plan one job; `jobs` holds it once per cluster."""
    at, request = place or Place(), _payable(jobs, limited(jobs[0], request))
    found = search(jobs, request, beliefs, runner=at.runner, workers=at.workers, progress=at.progress)
    inputs = _inputs(jobs[0], request, beliefs)
    if len(jobs) > 1:
        inputs["clusters"] = [job.cluster.name for job in jobs]
    return make_plan(found, beliefs, catalog or Catalog.default(), inputs)


def limited(job: Job, request: Request) -> Request:
    """The request with the job's own deadline and budget where it has none."""
    deadline = request.deadline_s if request.deadline_s is not None else job.deadline
    budget = request.budget_usd if request.budget_usd is not None else job.budget
    objective = request.objective
    if request.deadline_s is None and deadline is not None and budget is None and request.objective_unpriced:
        objective = "cost"  # as where the deadline is a flag: nobody named another objective
    return dataclasses.replace(request, deadline_s=deadline, budget_usd=budget, objective=objective)


def plan_fleet(
    jobs: Mapping[str, Job],
    request: Request,
    beliefs: Beliefs,
    accelerators: int | None,
    place: Place | None = None,
) -> Plan:
    """Plan many jobs that run at once and share accelerators; budget and deadline are the fleet's."""
    at, request = place or Place(), _payable(list(jobs.values()), request)
    # The fleet shares the budget: no job is held to it alone.
    alone = dataclasses.replace(request, budget_usd=None, deadline_s=None)
    founds: list[Found] = []
    for job in jobs.values():
        found = search([job], alone, beliefs, runner=at.runner, workers=at.workers, progress=at.progress)
        founds.append(dataclasses.replace(found, request=request))
        if found.interrupted:
            break
    names = list(jobs)[: len(founds)]
    inputs = _request_inputs(request) | {
        "jobs": {name: inputs_of(jobs[name], beliefs) for name in names},
        "accelerators": accelerators,
    }
    result, met = fleet_result(names, founds, accelerators, inputs)
    return Plan(result, met, any(found.interrupted for found in founds))


def plan_sweep(
    text: str,
    load: Callable[[str | None], Job],
    request: Request,
    beliefs: Beliefs,
    place: Place | None = None,
    catalog: Catalog | None = None,
) -> Plan:
    """Plan a job as it is, and see how knee, p* and fastest K move with one of its values.

    `load` makes the job, with one more `path=value` when given.
    """
    at = place or Place()
    sweep = parse_sweep(text)
    base = load(None)
    # Every value is read before the long work: a bad path or unit fails at once.
    swept = [load(f"{sweep.path}={value}") for value in sweep.texts]
    plan = plan_job([base], request, beliefs, at, catalog)
    result = dict(plan.result.result)
    result["sweep"] = run_sweep(sweep, swept, request, beliefs, progress=at.progress)
    inputs = plan.result.inputs | {"sweep": text}
    return dataclasses.replace(plan, result=Result("plan", inputs, result, request.seed))


def _payable(jobs: Sequence[Job], request: Request) -> Request:
    """The request where a price is known; else with another objective than cost, or refused."""
    if any(priced(job)[1] for job in jobs):
        return request
    objective = request.objective_unpriced if request.objective == "cost" else request.objective
    if request.budget_usd is None and objective is not None:
        return dataclasses.replace(request, objective=objective)
    wrong = "--budget" if request.budget_usd is not None else "--objective cost"
    names = ", ".join(dict.fromkeys(job.cluster.name for job in jobs))
    raise UsageError(
        f"{wrong}: no price of {names} is known",
        code="U024",
        help='give one, such as --set "price={per_accelerator: 2.10 USD/h}"',
    )


def _inputs(job: Job, request: Request, beliefs: Beliefs) -> dict[str, object]:
    return inputs_of(job, beliefs) | _request_inputs(request)


def _request_inputs(request: Request) -> dict[str, object]:
    names = ("objective", "deadline_s", "budget_usd", "max_k", "min_efficiency")
    given = {name: getattr(request, name) for name in names if getattr(request, name) is not None}
    return given | {"bounds": request.bounds.as_dict(), "draws": request.draws, "top": request.keep}
