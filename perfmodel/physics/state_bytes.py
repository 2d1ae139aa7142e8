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
) -> tuple[Array, Array, Array]:
    """(weights, gradients, optimizer) of `params` parameters held by one device.

    Mixed-precision Adam keeps a 16-bit weight, a 16-bit gradient and 12 bytes of master weight and moments; in 32
    bit the weight is its own master and the moments take 8 bytes. A gradient is as wide as its weight, or as
    `gradient_bytes` where that is wider.

    >>> w, g, o = state_bytes(1e9, trainable_fraction=1, weight_bytes=2, weight_shards=1, gradient_shards=1,
    ...                       optimizer_shards=8)
    >>> float(w / 1e9), float(g / 1e9), float(o / 1e9)
    (2.0, 2.0, 1.5)
    """
    count, width = np.asarray(params, float), np.asarray(weight_bytes, float)
    trained = count * np.asarray(trainable_fraction, float)
    states = np.where(width > 2.0, 8.0, 12.0)
    return (
        np.asarray(count * width / weight_shards),
        np.asarray(trained * np.maximum(width, gradient_bytes) / gradient_shards),
        np.asarray(trained * states / optimizer_shards),
    )


def transformer_activation_bytes(
    tokens: ArrayLike,
    hidden: ArrayLike,
    ffn_width: ArrayLike,
    *,
    tp: ArrayLike,
    sequence_parallel: ArrayLike,
    recompute: ArrayLike,
    element_bytes: ArrayLike = 2.0,
) -> Array:
    """Activations of one layer and micro-batch kept for the backward pass.

    .. math:: s b h \\left(10 + \\frac{8 + 4 f / h}{t}\\right) \\frac{w}{2} \\quad\\text{or}\\quad 2 s b h \\frac{w}{2}
        \\text{ with full recomputation}                                                     (1)

    With sequence parallelism the first term is divided by t as well. Fused attention keeps no score matrix.
    With f = 4h and t = 1 this is 34 s b h.

    >>> float(transformer_activation_bytes(1.0, 1.0, 4.0, tp=1, sequence_parallel=1, recompute=0.0))
    34.0
    """
    t = np.asarray(tp, float)
    sbh = np.asarray(tokens, float) * np.asarray(hidden, float) * np.asarray(element_bytes, float) / 2.0
    ratio = np.asarray(ffn_width, float) / np.asarray(hidden, float)
    common = np.where(np.asarray(sequence_parallel, float) > 0, 10.0 / t, 10.0)
    kept = common + (8.0 + 4.0 * ratio) / t
    boundary = np.where(np.asarray(sequence_parallel, float) > 0, 2.0 / t, 2.0)
    share = np.clip(np.asarray(recompute, float), 0.0, 1.0)
    return np.asarray(sbh * (kept * (1.0 - share) + boundary * share))


def layers_alive(layers: ArrayLike, pp: ArrayLike, vpp: ArrayLike, micro_batches: ArrayLike) -> Array:
    """Layers times micro-batches whose activations the first stage holds under 1F1B.

    One stage keeps min(p, m) micro-batches of L/p layers; interleaving adds (p - 1)/(p v).

    >>> float(layers_alive(32, 4, 1, 16)), float(layers_alive(32, 1, 1, 16))
    (32.0, 32.0)
    """
    p, v = np.asarray(pp, float), np.asarray(vpp, float)
    alive = np.minimum(p, np.asarray(micro_batches, float))
    interleaving = np.where(v > 1.0, 1.0 + (p - 1.0) / (p * v), 1.0)
    return np.asarray(np.asarray(layers, float) / p * alive * interleaving)
