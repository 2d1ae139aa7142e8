"""A serving job in the arrays that the physics takes: model, machine, engine, deployments of many layouts, beliefs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.machine import Machine, machine
from perfmodel.physics.serving import Load
from perfmodel.physics.serving_coefficients import ServingCoefficients
from perfmodel.physics.serving_shape import ServingShape, serving_shape
from perfmodel.physics.serving_step import Deployment, Number
from perfmodel.serving.beliefs import ServingBelief, ServingBeliefs, serving_features
from perfmodel.serving.calibrated import CalibratedBeliefs, population_of
from perfmodel.serving.engine import Engine, chunk_on, engine, sequences_on
from perfmodel.serving.precision import CACHE_BYTES, EXPERTS_ALONE, FORMATS, usual_precision
from perfmodel.specs.serving import ServedLayout, ServingJob

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Service:
    """A job with one precision, ready to be asked at any layout and load."""

    job: ServingJob
    shape: ServingShape
    machine: Machine
    engine: Engine
    precision: str
    belief: ServingBelief
    beliefs: ServingBeliefs
    is_usual: bool  # nobody stated the precision
    root: Array | None = None  # of the joint covariance, where loads of this very stack were measured

    @property
    def coefficients(self) -> ServingCoefficients:
        """The medians of the belief."""
        return self.belief.coefficients

    @property
    def cache_bytes(self) -> float:
        """Of an element of keys and values, where the job does not say: 16 bits; 8 of TensorRT-LLM beside 8-bit weights."""
        said = self.job.serving.kv_precision
        if said is not None:
            return CACHE_BYTES[said]
        return (
            1.0
            if self.engine.era.startswith("tensorrt-llm") and FORMATS[self.precision].weight_bits <= 8.0
            else 2.0
        )

    @property
    def max_sequences(self) -> float:
        """At once in a replica of one attention group, by the engine's own limit."""
        device = self.job.cluster.node.accelerator
        return float(sequences_on(self.engine, device.memory, device.generation))

    @property
    def chunk_tokens(self) -> int:
        """Budget of a step, by the engine's own limit."""
        device = self.job.cluster.node.accelerator
        return chunk_on(self.engine, device.memory, device.generation)

    def deployment(self, layouts: Sequence[ServedLayout], **changed: Number) -> Deployment:
        """The layouts as arrays with the job's limits; a single layout gives scalars. `changed` fields win."""
        said, found = self.job.serving, self.engine
        weight = FORMATS[self.precision].weight_bits / 8.0
        apart = self.precision in EXPERTS_ALONE and float(self.shape.experts) > 1.0
        degrees = np.array([[one.tp, one.pp, one.dp, one.ep] for one in layouts], float).T
        if len(layouts) == 1:
            degrees = degrees[:, 0]
        tensor, pipeline, groups, experts = degrees
        speculative = said.speculative
        made: dict[str, Number] = {
            "tensor": tensor,
            "pipeline": pipeline,
            "attention_replicas": groups,
            "expert_ranks": experts,
            "weight_bytes": 2.0 if apart else weight,
            "expert_bytes": weight,
            "cache_bytes": self.cache_bytes,
            "dense_in_16_bit": float(apart),
            "memory_fraction": said.memory_fraction or found.memory_fraction,
            "max_sequences": float(said.max_batch) if said.max_batch else self.max_sequences * groups,
            "chunk_tokens": float(said.max_batched_tokens or self.chunk_tokens),
            "mixed": float(found.mixed if said.prefill is None else said.prefill == "chunked"),
            "reserve": found.reserve if said.cache is None else 1.0 if said.cache == "reserve" else 0.5,
            "draft_tokens": float(speculative.tokens) if speculative else 0.0,
            "acceptance": float(speculative.acceptance) if speculative else 0.0,
        }
        return Deployment(**(made | changed))

    def load(self, kind: float, **given: Number) -> Load:
        """A load of one replica with the lengths of the job."""
        said = self.job.serving
        arrivals = said.load.arrivals if said.load is not None else None
        return Load(
            kind=kind,
            input_tokens=said.input_tokens.mean,
            output_tokens=said.output_tokens.mean,
            input_cv=said.input_tokens.spread,
            output_cv=said.output_tokens.spread,
            arrival_cv=1.0 if arrivals is None or np.isnan(arrivals) else arrivals,
            prefix_hit=said.prefix_hit,
            **given,
        )


def service_of(job: ServingJob, beliefs: ServingBeliefs, precision: str | None = None) -> Service:
    """Put a job's words into numbers; `precision` in the place of the job's own."""
    said, device = job.serving, job.cluster.node.accelerator
    chosen = precision or said.precision or usual_precision(device)
    arithmetic = FORMATS[chosen].arithmetic
    known = engine(said.engine, said.version, said.date)
    features = serving_features(
        device, arithmetic if arithmetic in device.peak else "bf16", known.era, job.cluster.node.scale_up
    )
    belief, root = beliefs.belief(features), None
    if isinstance(beliefs, CalibratedBeliefs):
        if beliefs.matches(features):
            belief, root = beliefs.posterior(), beliefs.root
        else:
            beliefs = population_of(beliefs)
    return Service(
        job=job,
        shape=serving_shape(job.workload),
        machine=machine(job.cluster, arithmetic),
        engine=known,
        precision=chosen,
        belief=belief,
        beliefs=beliefs,
        is_usual=precision is None and said.precision is None,
        root=root,
    )


def layouts_of(service: Service) -> list[ServedLayout]:
    """The layouts of a replica that are worth a look: the job's own, else all that the model and the links allow.

    Tensor ranks stay inside scale-up links and divide the heads; stages come where one domain is too small; experts are
    cut by tensor ranks, or spread over all ranks of a stage with attention in groups of its own or without.
    """
    job = service.job
    if job.serving.layout is not None:
        return [job.serving.layout]
    heads = job.workload.heads or 1
    domain = int(service.machine.domain)
    widths = [2**i for i in range(8) if 2**i <= domain and heads % 2**i == 0] or [1]
    found = [ServedLayout(tp=tp) for tp in widths]
    widest = widths[-1]
    found += [ServedLayout(tp=widest, pp=pp) for pp in (2, 4, 8) if pp <= (job.workload.layers or 1)]
    if float(service.shape.experts) > 1.0:
        ranks = [n for n in (2**i for i in range(1, 8)) if n <= domain]
        found += [ServedLayout(tp=tp, ep=tp) for tp in widths if tp > 1]
        found += [ServedLayout(tp=1, dp=n, ep=n) for n in ranks]
    return found
