"""From a job to what the search prices: one target per cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from perfmodel.beliefs.features import discrepancy
from perfmodel.beliefs.population import Beliefs
from perfmodel.decide.energy import measured_power, power_of
from perfmodel.decide.plan.candidates import Candidate, Target
from perfmodel.decide.prediction import refuse_empty
from perfmodel.decide.tariffs import tariff_of
from perfmodel.physics.layouts import pick
from perfmodel.specs.job import Job
from perfmodel.specs.layout import Layout
from perfmodel.training.curve import centre, coefficients, curve, offsets_of
from perfmodel.training.rules import shape_of
from perfmodel.training.setup import Setup, setup_of
from perfmodel.training.step import step


def setup_at(job: Job, ks: Sequence[int]) -> Setup:
    """The job as the step model's set-up at the given K, layout left open."""
    return dataclasses.replace(setup_of(job.model_copy(update={"k": tuple(sorted(ks))})), layout=None)


def target_of(job: Job, ks: Sequence[int], beliefs: Beliefs) -> Target:
    """Everything the search needs to price `job` on its cluster at the given K."""
    setup = setup_at(job, ks)
    refuse_empty(job, setup, beliefs)
    _, logs = centre(setup, beliefs)
    spread = np.broadcast_to(coefficients(setup, logs, setup.k).jitter, setup.k.shape)
    target = Target(
        name=job.cluster.name or "cluster",
        ops=setup.operations,
        machine=setup.machine,
        coefficients=coefficients(setup, logs),
        shape=shape_of(setup.workload, setup.machine, setup.seq_len),
        tariff=tariff_of(job.price, job.cluster, job.reliability),
        power=power_of(job, measured_power(beliefs)),
        global_batch={int(k): int(batch) for k, batch in zip(setup.k, setup.global_batch, strict=True)},
        work={
            int(k): float(batch / setup.global_batch[0])
            for k, batch in zip(setup.k, setup.global_batch, strict=True)
        },
        steps=_steps(job, float(setup.global_batch[0])),
        offsets=offsets_of(setup, beliefs),
        declared=setup.declared,
        sequence_parallel=setup.sequence_parallel,
        jitter={int(k): float(s) for k, s in zip(setup.k, spread, strict=True)} if np.ptp(spread) > 0 else {},
        headroom=setup.headroom,
    )
    return dataclasses.replace(target, calibrated=_calibrated(target, setup, beliefs))


def _steps(job: Job, batch: float) -> float:
    """Steps of the whole run at the smallest K, 1 where its length is not stated."""
    if job.steps is None and job.run_samples is not None:
        return float(np.ceil(job.run_samples / batch))
    return float(job.steps or 1)


def _calibrated(target: Target, setup: Setup, beliefs: Beliefs) -> dict[int, float]:
    """K -> time of a calibrated curve over that of the search, at the layout that the curve takes there.

    A calibrated curve moves along slopes and leans on laws through the measured points, K by K; the search prices
    layouts by the step model alone. A K whose curve has no layout takes the factor of the nearest that has.
    """
    known = beliefs.calibration
    if known is None or target.offsets is None or not known.k.size:
        return {}
    found = curve(setup, beliefs, draws=0)
    factors = np.full(found.k.shape, np.nan)
    for i in np.flatnonzero(found.feasible):
        at = pick(found.at, np.array([i]))
        here = target.coefficients_at(found.k[i : i + 1])(np.zeros(1, dtype=np.int64))
        alone = step(target.ops, target.machine, at, here).time_s
        scale = np.exp(np.tensordot(target.offsets, discrepancy(target.ops, at), axes=1))
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
