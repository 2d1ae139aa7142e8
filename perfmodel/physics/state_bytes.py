"""Memory per device: weights, gradients, optimizer states, activations, logits and buffers. Bytes.

References: Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054) for the sharding of states; Korthikanti et al. 2022
(arXiv:2205.05198), table 2, for activations under tensor and sequence parallelism and recomputation; Narayanan et
al. 2021 (arXiv:2104.04473) for the micro-batches that a pipeline stage keeps alive.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

RESERVED_BYTES = 1.2e9  # driver context, libraries' workspaces and communication buffers


def state_bytes(
    params: ArrayLike,
    *,
    trainable_fraction: ArrayLike,
    weight_bytes: ArrayLike,
    weight_shards: ArrayLike,
    gradient_shards: ArrayLike,
    optimizer_shards: ArrayLike,
    gradient_bytes: ArrayLike = 0.0,
    optimizer_bytes: ArrayLike = -1.0,
    frozen_bytes: ArrayLike = 0.0,
) -> tuple[Array, Array, Array]:
    """(weights, gradients, optimizer) of `params` parameters held by one device.

    Mixed-precision Adam keeps a 16-bit weight, a 16-bit gradient and 12 bytes of master weight and moments; in 32
    bit the weight is its own master and the moments take 8 bytes; another optimizer keeps its own `optimizer_bytes`. A
    gradient is as wide as its weight, or as `gradient_bytes` where that is wider. Weights that are not trained may be
    stored in `frozen_bytes`.

    Parameters
    ----------
    params : parameters held by the device before sharding.
    trainable_fraction : share of them that is trained.
    weight_bytes : of a weight in the type of the training [B].
    weight_shards, gradient_shards, optimizer_shards : devices over which each is cut.
    gradient_bytes : of a gradient, where wider than a weight [B].
    optimizer_bytes : of the states of a parameter [B]; below 0: those of Adam.
    frozen_bytes : of a weight that is not trained [B]; 0: as any other.

    Returns
    -------
    Bytes of a device.

    >>> w, g, o = state_bytes(1e9, trainable_fraction=1, weight_bytes=2, weight_shards=1, gradient_shards=1,
    ...                       optimizer_shards=8)
    >>> float(w / 1e9), float(g / 1e9), float(o / 1e9)
    (2.0, 2.0, 1.5)
    """
    count, width = np.asarray(params, float), np.asarray(weight_bytes, float)
    trained = count * np.asarray(trainable_fraction, float)
    states = np.where(np.asarray(optimizer_bytes) >= 0.0, optimizer_bytes, np.where(width > 2.0, 8.0, 12.0))
    frozen = np.where(np.asarray(frozen_bytes) > 0.0, frozen_bytes, width)
    return (
        np.asarray((trained * width + (count - trained) * frozen) / weight_shards),
        np.asarray(trained * np.maximum(width, gradient_bytes) / gradient_shards),
        np.asarray(trained * states / optimizer_shards),
    )


def transformer_activation_bytes(
    hidden: ArrayLike,
    inner: ArrayLike,
    boundary: ArrayLike,
    *,
    tp: ArrayLike,
    sequence_parallel: ArrayLike,
    recompute: ArrayLike,
    element_bytes: ArrayLike = 2.0,
) -> Array:
    """Activations kept for the backward pass of `hidden` elements that norms and residuals keep and `inner` ones.

    .. math:: w \\left(n_h + \\frac{n_i}{t}\\right) \\quad\\text{or}\\quad w\\, n_b
        \\text{ with full recomputation, which keeps the inputs of layers}                    (1)

    With sequence parallelism the terms in n_h and n_b are divided by t as well. Fused attention keeps no score matrix.

    Parameters
    ----------
    hidden, inner : n_h and n_i, elements of the widths of norms and of products.
    boundary : n_b, elements of the inputs of layers.
    tp : t, tensor ranks.
    sequence_parallel : above 0 where norms are cut too.
    recompute : share of the forward pass that is repeated, 0 to 1.
    element_bytes : w, of an element [B].

    Returns
    -------
    Bytes of a device.

    >>> float(transformer_activation_bytes(5.0, 12.0, 1.0, tp=1, sequence_parallel=1, recompute=0.0))
    34.0
    """
    t = np.asarray(tp, float)
    norms = np.where(np.asarray(sequence_parallel, float) > 0, t, 1.0)
    share = np.clip(np.asarray(recompute, float), 0.0, 1.0)
    kept = np.asarray(hidden, float) / norms + np.asarray(inner, float) / t
    return np.asarray(
        np.asarray(element_bytes, float)
        * (kept * (1.0 - share) + np.asarray(boundary, float) / norms * share)
    )


def chunks_alive(pp: ArrayLike, vpp: ArrayLike, micro_batches: ArrayLike, *, last: bool = False) -> Array:
    """Micro-batches, as parts of a stage's layers, whose activations the first or the last stage holds under 1F1B.

    The first stage keeps min(p, m) micro-batches and the last one; interleaving adds (p - 1)/(p v) of it to the first and
    keeps p (v - 1)/v more on the last, but never more than there are. Where nobody said how many virtual stages there are (NaN) there is one.

    Parameters
    ----------
    pp : p, stages.
    vpp : v, virtual stages; NaN: one.
    micro_batches : m, of a step.
    last : whether of the last stage.

    Returns
    -------
    Micro-batches, in units of a stage's layers.

    >>> float(chunks_alive(4, 1, 16)), float(chunks_alive(4, 1, 16, last=True)), float(chunks_alive(1, 1, 16))
    (4.0, 1.0, 1.0)
    """
    p, m = np.asarray(pp, float), np.asarray(micro_batches, float)
    v = np.where(np.isnan(vpp), 1.0, vpp)
    if last:
        return np.asarray(np.minimum(m, ((v - 1.0) * p + 1.0) / v))
    interleaving = np.where(v > 1.0, 1.0 + (p - 1.0) / (p * v), 1.0)
    return np.asarray(np.minimum(np.minimum(p, m) * interleaving, m))
