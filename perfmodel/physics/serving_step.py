r"""The time of one step of a replica that answers requests, by part.

A step decodes one token of each of D sequences and prefills p prompt tokens, n = D + p in all. With W the bytes of the
weights of a rank, B its memory bandwidth, F its peak, and e the fractions of them that are reached,

.. math:: T(D, p) = \max\Big(\frac{W}{B e_w}, \frac{2 n P}{F e_c}\Big)
          + \max\Big(\frac{f(n) W_x}{B e_w}, \frac{2 n k P_x}{F e_x}\Big)
          + D \max\Big(\frac{c\, b_{kv}}{B e_{kv}}, \frac{a\, c}{F_{16} e_a}\Big)
          + p \frac{a' c'}{F_{16} e_a} + t_{exchange}(n) + t_{launch} + D t_{host}                          (1)

dense weights, routed experts, keys and values of a mean context of c tokens, attention of the prompts, exchange between
the ranks, launches, and the host. Of E experts, of which a token takes k, a batch touches

.. math:: f(n) = 1 - \Big(1 + v \frac{k n}{E}\Big)^{-1/v}                                                  (2)

when their popularity has the gamma distribution of variance v over squared mean; v = 0 is uniform routing. Pipeline
stages are lanes: each holds a share of the sequences, and a token passes all stages one after another.

References: Pope et al. 2022 (arXiv:2211.05102), sec. 3; Williams, Waterman, Patterson, CACM 52 (2009) 65 (the roofs);
Thakur, Rabenseifner, Gropp, IJHPCA 19 (2005) 49 (the exchange); Johnson, Kotz, Kemp, Univariate Discrete Distributions
(2005), 5.1 (the negative binomial in (2)); Leviathan et al. 2023 (arXiv:2211.17192) for drafted tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.algorithms import terms
from perfmodel.physics.machine import Machine
from perfmodel.physics.serving_coefficients import ServingCoefficients
from perfmodel.physics.serving_shape import ServingShape

Array = NDArray[np.float64]
Number = float | Array

LOGIT_BYTES = 2.0  # of an element of the embeddings and the last product, which stay in 16 bit
ACTIVATION_BYTES = 2.0  # of an element that tensor parallelism exchanges
ROUTED_BYTES = 1.5  # of an element on its way to an expert and back: 8 bit there, 16 bit back
#: The parts of a step, in the order of `parts`.
STEP_PARTS = ("weights", "experts", "cache", "prompt_attention", "exchange", "launch", "host", "draft")


@dataclass(frozen=True, slots=True)
class Deployment:
    """How one replica runs: layout, number formats, and the limits of its engine. Arrays that broadcast.

    A replica has ``tensor * pipeline * attention_replicas`` accelerators.
    """

    tensor: Number = 1.0  # ranks that cut the weights of attention
    pipeline: Number = 1.0  # stages
    attention_replicas: Number = 1.0  # groups that hold sequences of their own and share the experts
    expert_ranks: Number = (
        1.0  # ranks over which whole experts are spread; 1: each expert is cut by tensor parallelism
    )
    weight_bytes: Number = 2.0  # of an element of dense weights
    expert_bytes: Number = 2.0  # of an element of routed experts
    cache_bytes: Number = 2.0  # of an element of keys and values
    dense_in_16_bit: Number = 0.0  # 1 where dense products run in 16 bit although the experts' do not
    memory_fraction: Number = 0.9  # share of the memory that the engine takes
    max_sequences: Number = 256.0  # at once, in the whole replica
    chunk_tokens: Number = 8192.0  # budget of a step
    mixed: Number = 1.0  # 1: prompts share a step with decodes; 0: they stop them
    reserve: Number = 0.5  # share of the output that a sequence holds memory for, on average
    draft_tokens: Number = 0.0  # proposed a step
    acceptance: Number = 0.0  # probability that a proposed token is accepted

    @property
    def accelerators(self) -> Array:
        """Of one replica."""
        return np.asarray(self.tensor * np.asarray(self.pipeline, float) * self.attention_replicas)

    @property
    def advance(self) -> Array:
        """Tokens by which a sequence advances in a step: ``(1 - a^(s + 1)) / (1 - a)`` with s drafted tokens.

        >>> Deployment(draft_tokens=np.array([0.0, 3.0]), acceptance=0.7).advance.round(3).tolist()
        [1.0, 2.533]
        """
        a = np.minimum(np.asarray(self.acceptance, float), 0.999999)
        return np.asarray((1.0 - a ** (np.asarray(self.draft_tokens, float) + 1.0)) / (1.0 - a))


def mean_context(values: ArrayLike, window: ArrayLike) -> tuple[Array, Array]:
    """Tokens that a decoding sequence looks at: all of them, and in layers with a window.

    Parameters
    ----------
    values : tokens of a sequence, on average.
    window : tokens that layers with a window look back.

    Returns
    -------
    Tokens.

    >>> [float(tokens) for tokens in mean_context(5000.0, 1024.0)]
    [5000.0, 1024.0]
    """
    tokens = np.asarray(values, float)
    return tokens, np.asarray(np.minimum(tokens, window))


@dataclass(frozen=True, slots=True)
class ServingStep:
    """Equation (1) with everything but D and p put in. Seconds, of one lane, unless the name says otherwise."""

    weights_s: Array
    dense_token_s: Array
    logit_sequence_s: Array
    expert_read_s: Array  # of all experts
    expert_token_s: Array
    experts: Array
    top_k: Array
    popularity: Array
    cache_sequence_s: Array
    prompt_token_s: Array
    exchange_s: Array
    exchange_token_s: Array
    launch_s: Array
    eager: Array
    sequence_s: Array
    rows: Array  # tokens of a sequence in a step: one, and the drafted ones
    draft_share: Array
    pace: Array

    def parts(self, decodes: ArrayLike, prompt_tokens: ArrayLike) -> dict[str, Array]:
        """Seconds by part; they sum to the step."""
        d, p = np.asarray(decodes, float), np.asarray(prompt_tokens, float)
        return dict(zip(STEP_PARTS, np.broadcast_arrays(*self._parts(d, p)), strict=True))

    def seconds(self, decodes: ArrayLike, prompt_tokens: ArrayLike) -> Array:
        """Time of a step [s]."""
        parts = self._parts(np.asarray(decodes, float), np.asarray(prompt_tokens, float))
        total = parts[0] + parts[1]
        for part in parts[2:]:
            total = total + part
        return np.asarray(total)

    def _parts(self, d: Array, p: Array) -> tuple[Array, ...]:
        n = d * self.rows + p
        dense = np.maximum(self.weights_s, n * self.dense_token_s + d * self.logit_sequence_s)
        experts = np.zeros(())
        if self.expert_read_s.any():
            touched = touched_experts(n, self.experts, self.top_k, self.popularity)
            experts = np.maximum(self.expert_read_s * touched, n * self.expert_token_s)
        launch = self.launch_s * np.where(p > 0.0, self.eager, 1.0)
        exchange = self.exchange_s + n * self.exchange_token_s
        pace = self.pace
        draft = self.draft_share * (dense + experts + launch) * pace
        return (
            dense * pace,
            experts * pace,
            d * self.cache_sequence_s * pace,
            p * self.prompt_token_s * pace,
            exchange * pace,
            launch * pace,
            d * self.sequence_s,
            draft,
        )

    def expanded(self) -> ServingStep:
        """The same with one more, last axis on everything, for states beside the loads."""
        return ServingStep(**{f.name: np.asarray(getattr(self, f.name))[..., None] for f in fields(self)})


def touched_experts(tokens: ArrayLike, experts: ArrayLike, top_k: ArrayLike, popularity: ArrayLike) -> Array:
    """Equation (2): the share of a layer's experts that a batch of tokens reads.

    Parameters
    ----------
    tokens : n, in the batch.
    experts : E, of a layer.
    top_k : k, that a token takes.
    popularity : v, variance over squared mean of how often experts are chosen.

    Returns
    -------
    A share, 0 to 1.

    >>> touched_experts(np.array([1.0, 64.0]), 256.0, 8.0, 0.5).round(3).tolist()
    [0.031, 0.75]
    """
    experts = np.asarray(experts, float)
    per_expert = np.asarray(tokens, float) * top_k / experts
    v = np.maximum(np.asarray(popularity, float), 1e-6)
    share = -np.expm1(-np.log1p(v * per_expert) / v)
    return np.asarray(np.maximum(share, np.minimum(per_expert, np.asarray(top_k) / experts)))


def serving_step(
    shape: ServingShape,
    machine: Machine,
    at: Deployment,
    context: ArrayLike,
    prompt_context: ArrayLike,
    c: ServingCoefficients,
) -> ServingStep:
    """A deployment's step at a mean `context` of decoding sequences and of prompt tokens.

    Parameters
    ----------
    shape : the model (`serving_shape`).
    machine : what it runs on (`physics.machine`), at the precision of its arithmetic.
    at : how it runs.
    context : tokens of a decoding sequence, on average.
    prompt_context : tokens that a prompt token looks back at, on average.
    c : coefficients.

    Returns
    -------
    The step as a function of sequences and prompt tokens.

    >>> from perfmodel.physics.examples import decoder, node
    >>> from perfmodel.physics.serving_coefficients import ideal
    >>> shape = decoder()
    >>> step = serving_step(shape, node(), Deployment(), 1000.0, 500.0, ideal())
    >>> bytes_read = 2.0 * (shape.dense_params + shape.logit_params)
    >>> bool(np.isclose(step.parts(1.0, 0.0)["weights"], bytes_read / node().memory_bytes_per_s))
    True
    """
    t, pp, dp = (np.asarray(v, float) for v in (at.tensor, at.pipeline, at.attention_replicas))
    ranks = t * dp
    memory = machine.memory_bytes_per_s
    reads = memory * c.weight_read
    peak = np.where(np.asarray(at.dense_in_16_bit) > 0, machine.peak16_flop_per_s, machine.peak_flop_per_s)
    dense_flops = peak * c.compute
    rows = 1.0 + np.asarray(at.draft_tokens, float)
    dense, whole = shape.dense_params, shape.whole_params
    weights_s = ((dense / t + whole) * at.weight_bytes + LOGIT_BYTES * shape.logit_params / t) / reads
    dense_token_s = 2.0 * (dense / t + whole) / (dense_flops * dp)
    logit_sequence_s = 2.0 * rows * shape.logit_params / (t * dp * machine.peak16_flop_per_s * c.compute)

    is_spread = np.asarray(at.expert_ranks, float) > 1.0
    spread = 1.0 - 1.0 / np.asarray(at.expert_ranks, float)
    fullest = 1.0 + c.imbalance * spread
    expert_read_s = shape.expert_params * at.expert_bytes / (ranks * reads) * fullest
    token_params = shape.expert_params * shape.top_k / shape.experts
    expert_token_s = (
        2.0 * token_params / (ranks * machine.peak_flop_per_s * c.compute * c.expert_compute) * fullest
    )

    seen, in_window = mean_context(context, shape.window)
    cut = np.minimum(t, shape.cache_heads)
    elements = shape.cache_elements * seen + shape.window_elements * in_window
    cache_bytes = elements * at.cache_bytes / cut + 2.0 * shape.state_bytes / t
    attention_flops = machine.peak16_flop_per_s * c.attention * t
    pair_flop = shape.decode_pair_flop * seen + shape.decode_window_flop * in_window
    cache_s = np.maximum(cache_bytes / (memory * c.cache_read), rows * pair_flop / attention_flops) / dp
    seen, in_window = mean_context(prompt_context, shape.window)
    prompt_flop = shape.prompt_pair_flop * seen + shape.prompt_window_flop * in_window
    prompt_token_s = prompt_flop / (attention_flops * dp)

    alpha, per_token = _exchange(shape, machine, t, pp, dp, is_spread, c)
    mixers = shape.attention_layers + shape.linear_layers
    blocks = 0.5 * (mixers + shape.mlp_layers + shape.moe_layers)
    launch_s = c.layer_s * (
        blocks
        + c.moe_layers * shape.moe_layers
        + c.linear_layers * shape.linear_layers
        + c.latent_layers * shape.latent_layers
    )
    return ServingStep(
        weights_s=np.asarray(weights_s),
        dense_token_s=np.asarray(dense_token_s),
        logit_sequence_s=np.asarray(logit_sequence_s),
        expert_read_s=np.asarray(expert_read_s),
        expert_token_s=np.asarray(expert_token_s),
        experts=np.asarray(shape.experts),
        top_k=np.asarray(shape.top_k),
        popularity=np.asarray(c.popularity),
        cache_sequence_s=np.asarray(cache_s),
        prompt_token_s=np.asarray(prompt_token_s),
        exchange_s=np.asarray(alpha),
        exchange_token_s=np.asarray(per_token),
        launch_s=np.asarray(launch_s),
        eager=np.asarray(c.eager),
        sequence_s=np.asarray(c.sequence_s),
        rows=rows,
        draft_share=np.asarray(c.draft * np.asarray(at.draft_tokens, float) / shape.layers),
        pace=np.asarray(c.pace * (1.0 + c.stage * (1.0 - 1.0 / pp))),
    )


def _exchange(
    shape: ServingShape,
    machine: Machine,
    t: Array,
    pp: Array,
    dp: Array,
    is_spread: NDArray[np.bool_],
    c: ServingCoefficients,
) -> tuple[Array, Array]:
    """Latency of all exchanges of a step [s], and what a token adds [s]: the lines of halving and doubling."""
    if not ((t * pp * dp) > 1.0).any():
        return np.zeros(()), np.zeros(())
    ranks = t * dp
    is_routed = (is_spread | (dp > 1.0)) & (ranks > 1.0)
    mixers = shape.attention_layers + shape.linear_layers
    reductions = mixers + shape.mlp_layers + np.where(is_routed, 0.0, shape.moe_layers)
    alpha, beta = _line("all_reduce", "halving_doubling", t, machine, c)
    hidden_bytes = shape.hidden * ACTIVATION_BYTES
    latency = reductions * alpha * (t > 1.0)
    token = reductions * beta * hidden_bytes / dp * (t > 1.0)
    if is_routed.any():
        alpha, beta = _line("all_to_all", "halving_doubling", ranks, machine, c)
        calls = 2.0 * shape.moe_layers * is_routed
        latency = latency + calls * alpha
        token = token + calls * beta * shape.top_k * shape.routed_width * ROUTED_BYTES / ranks
    if (pp > 1.0).any():
        inside = ranks * pp <= machine.domain
        rate = np.where(inside, machine.up_bytes_per_s, machine.out_bytes_per_s) * c.exchange_rate
        wire = np.where(inside, machine.up_latency_s, machine.out_latency_s)
        latency = latency + (pp - 1.0) * (c.exchange_s + wire)
        token = token + (pp - 1.0) * hidden_bytes / (dp * rate)
    return np.asarray(latency), np.asarray(token)


def _line(
    op: str, algorithm: str, ranks: Array, machine: Machine, c: ServingCoefficients
) -> tuple[Array, Array]:
    """Seconds of a collective of no bytes, and seconds a byte, among neighbouring ranks."""
    inside = np.clip(machine.domain, 1.0, ranks)
    found = terms(op, algorithm, 1.0, ranks, ranks / inside)
    up = machine.up_bytes_per_s * machine.share(inside, np.ones(()), machine.domain) * c.exchange_rate
    out = machine.out_bytes_per_s * inside / machine.taper(ranks / machine.node) * c.exchange_rate
    alpha = found.steps_up * (c.exchange_s + machine.up_latency_s)
    alpha = alpha + found.steps_out * (c.exchange_s + machine.out_latency_s)
    return alpha, found.up_bytes / up + found.out_bytes / out


def weight_bytes_per_rank(shape: ServingShape, at: Deployment) -> Array:
    """Bytes of weights that an accelerator holds.

    Parameters
    ----------
    shape : the model (`serving_shape`).
    at : layout and number formats.

    Returns
    -------
    Bytes.

    >>> from perfmodel.physics.examples import decoder
    >>> whole, cut = (float(weight_bytes_per_rank(decoder(), Deployment(tensor=t))) for t in (1.0, 8.0))
    >>> round(whole / 1e9, 2), round(whole / cut, 2)    # 8.03 billion parameters of two bytes
    (16.06, 8.0)
    """
    t, pp = np.asarray(at.tensor, float), np.asarray(at.pipeline, float)
    inside = shape.dense_params + shape.whole_params + shape.expert_params + shape.logit_params
    embedding = np.maximum(shape.params - inside, 0.0)
    cut = (shape.dense_params / t + shape.whole_params) * at.weight_bytes
    routed = shape.expert_params * at.expert_bytes / (t * at.attention_replicas)
    return np.asarray((cut + routed + LOGIT_BYTES * (shape.logit_params + embedding) / t) / pp)


def cache_sequences(
    shape: ServingShape,
    machine: Machine,
    at: Deployment,
    input_tokens: ArrayLike,
    output_tokens: ArrayLike,
    c: ServingCoefficients,
) -> Array:
    """Sequences whose keys and values fit the memory of a replica beside the weights; 0 where those do not fit.

    .. math:: K = d\\, \\frac{\\rho (f M - W)}{b_{kv} (I + \\phi O) / (s\\, p)}                                  (3)

    with f the share of the memory M that the engine takes, W the weights, rho what of the rest holds keys and values, phi
    the share of the output that a sequence holds on average, s the ranks that cut the cache, p stages and d groups.

    Parameters
    ----------
    shape : the model (`serving_shape`).
    machine : the accelerators (`physics.machine`).
    at : layout, number formats, and the share of the memory that the engine takes.
    input_tokens, output_tokens : I and O, of a request.
    c : coefficients (`serving_coefficients`).

    Returns
    -------
    Sequences of one replica.

    >>> from perfmodel.physics.examples import decoder, node
    >>> from perfmodel.physics.serving_coefficients import textbook
    >>> shape = decoder()
    >>> few, many = cache_sequences(shape, node(), Deployment(tensor=np.array([1.0, 8.0])), 1000.0, 1000.0, textbook())
    >>> bool(many > 8.0 * few)  # the weights are cut too
    True
    """
    t, pp = np.asarray(at.tensor, float), np.asarray(at.pipeline, float)
    tokens = np.asarray(input_tokens, float) + np.asarray(at.reserve) * np.asarray(output_tokens, float)
    seen, in_window = mean_context(tokens, shape.window)
    cut = np.minimum(t, shape.cache_heads)
    elements = shape.cache_elements * seen + shape.window_elements * in_window
    bytes_each = elements * at.cache_bytes / (cut * pp) + shape.state_bytes / (t * pp)
    free = machine.memory_bytes * at.memory_fraction - weight_bytes_per_rank(shape, at)
    room = np.maximum(free * np.minimum(c.cache_room, 1.0), 0.0)
    return np.asarray(at.attention_replicas * room / np.maximum(bytes_each, 1e-9))
