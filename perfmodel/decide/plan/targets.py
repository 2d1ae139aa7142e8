"""From a job to what the search prices: one target per cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from perfmodel.beliefs.features import discrepancy
from perfmodel.beliefs.population import Beliefs
from perfmodel.decide.plan.candidates import Candidate, Target
from perfmodel.decide.plan.space import Shape
from perfmodel.decide.power import measured_power, power_of
from perfmodel.decide.tariffs import tariff_of
from perfmodel.physics.coefficients import NAMES, from_logs
from perfmodel.physics.layouts import pick
from perfmodel.specs.job import Job
from perfmodel.specs.layout import Layout
from perfmodel.training.curve import centre, curve
from perfmodel.training.setup import Setup, setup_of
from perfmodel.training.step import step


def setup_at(job: Job, ks: Sequence[int]) -> Setup:
    """The job as the step model's set-up at the given K, layout left open."""
    return dataclasses.replace(setup_of(job.model_copy(update={"k": tuple(sorted(ks))})), layout=None)


def shape_of(setup: Setup) -> Shape:
    """What the divisibility rules need."""
    workload, machine = setup.workload, setup.machine
    transformer = bool(setup.operations.is_transformer > 0)
    return Shape(
        layers=int(workload.layers or 1) if transformer else 1,
        heads=int(workload.heads or 1) if transformer else 1,
        experts=int(workload.experts or 1) if transformer else 1,
        seq_len=int(setup.seq_len or workload.seq_len or 1) if transformer else 1,
        is_transformer=transformer,
        node=int(machine.node),
        domain=int(machine.domain),
    )


def target_of(job: Job, ks: Sequence[int], beliefs: Beliefs) -> Target:
    """Everything the search needs to price `job` on its cluster at the given K."""
    setup = setup_at(job, ks)
    _, logs = centre(setup, beliefs)
    calibration = beliefs.calibration
    target = Target(
        name=job.cluster.name or "cluster",
        ops=setup.operations,
        machine=setup.machine,
        coefficients=from_logs(logs),
        shape=shape_of(setup),
        tariff=tariff_of(job.price, job.cluster, job.reliability),
        power=power_of(job, measured_power(beliefs)),
        global_batch={int(k): int(batch) for k, batch in zip(setup.k, setup.global_batch, strict=True)},
        work={
            int(k): float(batch / setup.global_batch[0])
            for k, batch in zip(setup.k, setup.global_batch, strict=True)
        },
        steps=float(job.steps or 1),
        offsets=None if calibration is None else calibration.mean[len(NAMES) :],
        declared=setup.declared,
    )
    return dataclasses.replace(target, calibrated=_calibrated(target, setup, beliefs))


def _calibrated(target: Target, setup: Setup, beliefs: Beliefs) -> dict[int, float]:
    """K -> time of a calibrated curve over that of the search, at the layout that the curve takes there.

    A calibrated curve moves along slopes and leans on laws through the measured points, K by K; the search prices
    layouts by the step model alone. A K whose curve has no layout takes the factor of the nearest that has.
    """
    known = beliefs.calibration
    if known is None or not known.k.size:
        return {}
    found = curve(setup, beliefs, draws=0)
    factors = np.full(found.k.shape, np.nan)
    for i in np.flatnonzero(found.feasible):
        at = pick(found.at, np.array([i]))
        alone = step(target.ops, target.machine, at, target.coefficients).time_s
        scale = np.exp(np.tensordot(known.mean[len(NAMES) :], discrepancy(target.ops, at), axes=1))
        factors[i] = float(found.time_s[i] / np.ravel(alone * scale)[0])
    usable = np.flatnonzero(np.isfinite(factors))
    if not usable.size:
        return {}
    nearest = usable[np.abs(np.log(found.k[:, None] / found.k[usable])).argmin(axis=1)]
    return {int(k): float(factor) for k, factor in zip(found.k, factors[nearest], strict=True)}


def candidate_setup(job: Job, candidate: Candidate) -> Setup:
    """The set-up of one candidate: its K and its layout, nothing left open."""
    layout = Layout(
        tp=candidate.tp,
        pp=candidate.pp,
        cp=candidate.cp,
        ep=candidate.ep,
        vpp=candidate.vpp,
        micro_batch=candidate.micro_batch,
        accumulation=candidate.accumulation,
        sharding=candidate.sharding,
        shard_group=candidate.shard_group if candidate.sharding == "hsdp" else None,
        recompute=candidate.recompute,
    )
    return dataclasses.replace(setup_at(job, [candidate.k]), layout=layout)
