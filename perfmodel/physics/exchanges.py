"""Communication of a step, by kind: what travels, over which links, and how much of it shows.

Ranks are placed tensor first, then context, data, and pipeline outermost (the order of Megatron-LM), so a group
of stride `s` holds ``min(size, domain / s)`` ranks of one scale-up domain. Groups that run at once share the
NICs: each accelerator brings its own share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.algorithms import ALGORITHMS
from perfmodel.physics.coefficients import Coefficients
from perfmodel.physics.constants import BUS_PAIR, GRADIENT_BYTES, IN_SWITCH_SHARE, KNEE, TABLE_VECTORS
from perfmodel.physics.fabric import collective_time, soft_max
from perfmodel.physics.layouts import Layouts, Sharding, custom_buckets
from perfmodel.physics.machine import Machine
from perfmodel.physics.operations import Operations

Array = NDArray[np.float64]

LIBRARY = np.zeros(())  # code of the algorithm that a library takes where nobody says


@dataclass(frozen=True, slots=True)
class Links:
    """Everything `collective_time` needs besides the message and the group."""

    machine: Machine
    at: Layouts
    c: Coefficients

    @property
    def reach(self) -> Array:
        """Accelerators of the job that share one scale-up domain."""
        share = np.maximum(self.at.per_node, 1.0) * self.machine.domain / self.machine.node
        return np.asarray(np.minimum(self.machine.domain, share))

    def time(
        self, op: str, message_bytes: Array, ranks: Array, stride: Array, algorithm: Array = LIBRARY
    ) -> Array:
        """Seconds of one collective among `ranks` accelerators that lie `stride` apart.

        `algorithm` holds codes of `algorithms.CODES`, as a rule one for all.
        """
        if algorithm.any():
            codes = np.unique(algorithm)
            if codes.size > 1:
                parts = [self.time(op, message_bytes, ranks, stride, np.asarray(code)) for code in codes]
                return np.asarray(np.select([algorithm == code for code in codes], parts))
        reach = self.reach
        inside = np.clip(reach / stride, 1.0, ranks)
        up = self.machine.up_bytes_per_s * self.c.up_efficiency * self.machine.share(inside, stride, reach)
        span = ranks * stride / np.maximum(self.at.per_node, 1.0)
        out = self.machine.out_bytes_per_s * self.c.out_efficiency * inside / self.machine.taper(span)
        seconds = collective_time(
            op,
            message_bytes,
            ranks,
            ranks / inside,
            base_s=self.c.base_s,
            step_up_s=self.c.up_step_s + self.machine.up_latency_s,
            step_out_s=self.c.out_step_s + self.machine.out_latency_s,
            up_bytes_per_s=up,
            out_bytes_per_s_per_node=out,
            in_switch_bytes_per_s=self.machine.in_switch * up * IN_SWITCH_SHARE,
            in_network_bytes_per_s=self.machine.in_network * out,
            p=KNEE,
            algorithm=ALGORITHMS[int(algorithm.flat[0])],
        )
        if not np.any(self.machine.shared_bus + self.machine.staged):
            return seconds
        return soft_max(seconds, self._bus(op, message_bytes, np.where(ranks > 1.0, inside, 1.0), stride))

    def _bus(self, op: str, message_bytes: Array, inside: Array, stride: Array) -> Array:
        """Seconds in which the host moves what the ranks of a node exchange over it.

        A ring among n sends ``2 (n - 1) S`` in all. Without peer access it goes through the memory of the host, except
        between bridged cards. In one half of the node, as cards of one socket do, each card writes and reads its own
        ``2 (n - 1) / n S`` over lanes of its own; once both halves take part, all of it passes in turns (runs of four
        RTX 3070 exchange as fast as runs of two, those of eight take four times as long). With peer access, a pair
        leaves 0.3 of a round to the bus. Groups of a node exchange at once, and what they share they share.
        """
        passes = 2.0 if op == "all_reduce" else 1.0
        staged, hops = self.machine.staged, np.maximum(inside - 1.0, 0.0)
        groups = np.maximum(self.reach / inside, 1.0)
        both_halves = np.clip(inside * stride - 0.5 * self.machine.node, 0.0, 1.0)
        own = hops * (both_halves * groups + (1.0 - both_halves) * 2.0 / inside)
        own = own * staged * np.where(staged < 1.0, np.clip(inside - 2.0, 0.0, 1.0), 1.0)
        direct = self.machine.shared_bus * np.maximum(inside - BUS_PAIR, 0.0) * groups
        rounds = np.where(staged > 0.0, own, direct)
        return np.asarray(passes * rounds * message_bytes / self.c.bus_bytes_per_s)


def _any_above_one(degree: Array) -> bool:
    return bool(np.any(np.asarray(degree) > 1.0))


def tensor_parallel(ops: Operations, at: Layouts, links: Links, repeated: Array) -> Array:
    r"""Exposed seconds per micro-batch and stage: two all-reduces forward, two backward, again when recomputed.

    .. math:: t = x\,\frac{L}{p}\,(4 + 2r)\;t_{\mathrm{all\,reduce}}(b\,s\,h\,w/c,\;t)                              (1)

    x shows of it, L layers on p stages, b sequences of s tokens over c context ranks, width h, w bytes an element.
    Reference: Shoeybi et al. 2019, arXiv:1909.08053, sec. 3.

    Parameters
    ----------
    ops : operations of one sample (`physics.operations`).
    at : layouts (`physics.layouts`).
    links : the links of the machine with their coefficients.
    repeated : share of a forward pass that is recomputed, 0 to 1.

    Returns
    -------
    Seconds that show, per micro-batch and stage.

    >>> from perfmodel.physics.coefficients import quiet
    >>> from perfmodel.physics.examples import node, transformer
    >>> from perfmodel.physics.layouts import layouts

    >>> at = layouts(8, global_batch=8, accelerators_per_node=8, tp=2)
    >>> from perfmodel.physics.coefficients import textbook
    >>> links = Links(node(), at, textbook())
    >>> one, again = (tensor_parallel(transformer(), at, links, np.asarray(r)) for r in (0.0, 1.0))
    >>> round(float(again / one), 12)  # six calls for four
    1.5
    """
    if not _any_above_one(at.tp):
        return np.zeros(())
    message = at.micro_batch * ops.tokens / at.cp * ops.hidden * links.machine.element_bytes
    one = links.time("all_reduce", message, at.tp, np.ones(()), at.tensor_algorithm)
    calls = 4.0 + 2.0 * repeated
    shown = np.where(np.isnan(at.tp_hidden), calls * links.c.tp_exposed, calls - at.tp_hidden)
    return np.asarray(one * ops.layers / at.pp * shown * ops.is_transformer)


def context_parallel(ops: Operations, at: Layouts, links: Links, repeated: Array) -> Array:
    r"""Keys and values gathered forward; gathered again and their gradients reduced backward.

    .. math:: t = x\,\frac{L_a}{p}\,(3 + r)\;t_{\mathrm{all\,gather}}(b\,s\,d_{kv}\,w/t,\;c)                          (2)

    L_a layers with attention, d_kv the width of keys and values. Reference: Dubey et al. 2024, arXiv:2407.21783, sec. 3.3.

    Parameters
    ----------
    ops : operations of one sample (`physics.operations`).
    at : layouts (`physics.layouts`).
    links : the links of the machine with their coefficients.
    repeated : share of a forward pass that is recomputed, 0 to 1.

    Returns
    -------
    Seconds that show, per micro-batch and stage.

    >>> from perfmodel.physics.coefficients import quiet
    >>> from perfmodel.physics.examples import node, transformer
    >>> from perfmodel.physics.layouts import layouts

    >>> at = layouts(8, global_batch=8, accelerators_per_node=8)
    >>> float(context_parallel(transformer(), at, Links(node(), at, quiet()), np.asarray(0.0)))  # one context rank
    0.0
    """
    if not _any_above_one(at.cp):
        return np.zeros(())
    message = at.micro_batch * ops.tokens * ops.kv_width / at.tp * links.machine.element_bytes
    message = message * copies_of_kv_heads(ops, at)
    one = links.time("all_gather", message, at.cp, at.tp, at.context_algorithm)
    return one * ops.attention_layers / at.pp * (3.0 + repeated) * links.c.cp_exposed


def expert_parallel(ops: Operations, at: Layouts, links: Links, repeated: Array) -> Array:
    r"""Dispatch and combine, forward and backward; recommender tables exchange their vectors the same way.

    .. math:: t = x\,\frac{L_e}{p}\,(4 + 2r)\;t_{\mathrm{all\,to\,all}}(b\,s\,k\,h_e\,w/(c\,t),\;e)                     (3)

    x is the share that shows, 1 where the job says whether compute hides the exchange: then `training.step` takes off what
    it hides. L_e layers of experts, each token sent to k of them in h_e elements. Tables of a recommender: two exchanges of their
    vectors. Ranks that share an expert (`etp`) also gather what each received and scatter the sums of their results.
    Reference: Lepikhin et al. 2020, arXiv:2006.16668; Naumov et al. 2019, arXiv:1906.00091.

    Parameters
    ----------
    ops : operations of one sample (`physics.operations`).
    at : layouts (`physics.layouts`).
    links : the links of the machine with their coefficients.
    repeated : share of a forward pass that is recomputed, 0 to 1.

    Returns
    -------
    Seconds, per micro-batch and stage.

    >>> from perfmodel.physics.coefficients import quiet
    >>> from perfmodel.physics.examples import node, transformer
    >>> from perfmodel.physics.layouts import layouts

    >>> at = layouts(8, global_batch=8, accelerators_per_node=8)
    >>> float(expert_parallel(transformer(), at, Links(node(), at, quiet()), np.asarray(0.0)))  # no experts
    0.0
    """
    total: Array = np.zeros(())
    shown = np.where(np.isnan(at.expert_hidden), links.c.ep_exposed, 1.0)
    if _any_above_one(at.ep) or _any_above_one(at.etp):
        message = (
            at.micro_batch
            * ops.tokens
            / (at.cp * at.tp)
            * ops.top_k
            * ops.routed_width
            * links.machine.element_bytes
        )
        one = links.time("all_to_all", message, at.ep, at.expert_cut, at.expert_algorithm)
        if _any_above_one(at.etp):
            gathered = links.time("all_gather", message * at.expert_cut, at.expert_cut, np.ones(()))
            one = one + np.where(at.etp > 1.0, gathered, 0.0)
        total = one * ops.moe_layers / at.pp * (4.0 + 2.0 * repeated) * shown
    if np.any(ops.table_params > 0):
        message = at.micro_batch * TABLE_VECTORS * links.machine.element_bytes
        one = links.time("all_to_all", message, at.dp, np.ones(()), at.expert_algorithm)
        total = total + np.where(ops.table_params > 0, 2.0 * one * shown, 0.0)
    return total


def pipeline_message(ops: Operations, at: Layouts, links: Links) -> Array:
    r"""Seconds of one message from a pipeline stage to the next.

    .. math:: t = t_{\mathrm{p2p}}(b\,s\,h\,w/(c\,t))                                                                (4)

    Reference: Narayanan et al. 2021, arXiv:2104.04473, sec. 4.1 (each tensor rank sends its part).

    Parameters
    ----------
    ops : operations of one sample (`physics.operations`).
    at : layouts (`physics.layouts`).
    links : the links of the machine with their coefficients.

    Returns
    -------
    Seconds of one message.

    >>> from perfmodel.physics.coefficients import quiet
    >>> from perfmodel.physics.examples import node, transformer
    >>> from perfmodel.physics.layouts import layouts

    >>> at = layouts(8, global_batch=8, accelerators_per_node=8, pp=2)
    >>> float(pipeline_message(transformer(), at, Links(node(), at, quiet())).round(6))  # 4.2 MB over 100 GB/s, and latency
    4.9e-05
    """
    if not _any_above_one(at.pp):
        return np.zeros(())
    message = at.micro_batch * ops.tokens / at.cp * ops.hidden * links.machine.element_bytes / at.tp
    return links.time("p2p", message, np.minimum(at.pp, 2.0), at.tp * at.cp * at.dp)


def pipeline_messages(at: Layouts, message_s: Array, shown: Array) -> Array:
    r"""Exposed point-to-point seconds per micro-batch: forward and backward, once per virtual stage.

    .. math:: t = 2\,v\,x\,t_{\mathrm{message}}                                                                     (5)

    Parameters
    ----------
    at : layouts (`physics.layouts`).
    message_s : seconds of one message (`pipeline_message`).
    shown : share of a message that nothing hides.

    Returns
    -------
    Seconds that show, per micro-batch.

    >>> from perfmodel.physics.layouts import layouts

    >>> at = layouts(8, global_batch=8, accelerators_per_node=8, pp=2, vpp=3)
    >>> float(pipeline_messages(at, np.asarray(1e-3), np.asarray(0.5)))  # six messages, half of each
    0.003
    """
    return 2.0 * at.vpp * message_s * shown


def copies_of_kv_heads(ops: Operations, at: Layouts) -> Array:
    """Ranks of a tensor group that hold the same key-value head, where tp exceeds their number; else 1.

    Parameters
    ----------
    ops : operations of one sample (`physics.operations`).
    at : layouts (`physics.layouts`).

    Returns
    -------
    Numbers of ranks.

    >>> from perfmodel.physics.examples import transformer
    >>> from perfmodel.physics.layouts import layouts
    >>> float(copies_of_kv_heads(transformer(), layouts(32, global_batch=32, accelerators_per_node=32, tp=32)))
    2.0
    """
    return np.asarray(
        np.where(ops.kv_heads > 0.0, np.maximum(at.tp / np.maximum(ops.kv_heads, 1.0), 1.0), 1.0)
    )


def local_parameters(ops: Operations, at: Layouts) -> tuple[Array, Array]:
    r"""Parameters held by one device before sharding: (replicated over dp, in experts).

    .. math:: n = \frac{n_{\mathrm{blocks}}}{t\,p} + \frac{n_{\mathrm{words}}}{t}\,(1 \text{ or } \tfrac12), \qquad
        n_e = \frac{n_{\mathrm{experts}}}{\max(e, t)\,p}                                                           (6)

    A pipeline holds the words on its first and last stage. Reference: Narayanan et al. 2021, arXiv:2104.04473.

    Parameters
    ----------
    ops : operations of one sample (`physics.operations`).
    at : layouts (`physics.layouts`).

    Returns
    -------
    Numbers of parameters.

    >>> from perfmodel.physics.examples import transformer
    >>> from perfmodel.physics.layouts import layouts

    >>> at = layouts(8, global_batch=8, accelerators_per_node=8, tp=2)
    >>> [float(count) for count in local_parameters(transformer(), at)]
    [28966912.0, 0.0]
    """
    embedding = ops.embedding_params / at.tp * np.where(at.pp > 1, 0.5, 1.0)
    copied = ops.hidden * ops.kv_width * ops.attention_layers * (copies_of_kv_heads(ops, at) - 1.0)
    dense = (ops.block_params + copied) / (at.tp * at.pp) + embedding
    return dense, ops.expert_params / (at.expert_ranks * at.pp)


@dataclass(frozen=True, slots=True)
class Exchange:
    """Seconds of gradient and weight traffic of one step, before overlap."""

    gradients: Array  # once a step
    shards: Array  # every micro-batch (FSDP)
    repeated: Array  # in every micro-batch but the last as well (ZeRO-2)
    gradient_bytes: Array  # of a rank, before compression
    call_s: Array  # of a call without bytes; 0 where buckets are the usual ones


def data_parallel(ops: Operations, at: Layouts, links: Links) -> Exchange:
    r"""All-reduce, reduce-scatter plus all-gather, parameter server, or sharded weights.

    Gradients travel in their declared type, over the compression's ratio; weights in the type of the training.

    With n parameters of a rank, g bytes a gradient and w a weight, over a group of dp cp ranks:

    .. math:: t = t_{\mathrm{all\,reduce}}(n g) \quad\text{or}\quad t_{\mathrm{reduce\,scatter}}(n g)
        + t_{\mathrm{all\,gather}}(n w)                                                                           (7)

    the first with plain replicas, the second with sharded states; sharded weights are gathered twice and their gradients
    scattered once in every micro-batch. Reference: Rajbhandari et al. 2020, arXiv:1910.02054, sec. 7.

    Parameters
    ----------
    ops : operations of one sample (`physics.operations`).
    at : layouts (`physics.layouts`).
    links : the links of the machine with their coefficients.

    Returns
    -------
    Seconds and bytes of a step's exchanges, before anything hides.

    >>> from perfmodel.physics.coefficients import quiet
    >>> from perfmodel.physics.examples import node, transformer
    >>> from perfmodel.physics.layouts import layouts

    >>> at = layouts(8, global_batch=8, accelerators_per_node=8)
    >>> found = data_parallel(transformer(), at, Links(node(), at, quiet()))
    >>> float(found.gradient_bytes / 2.0) == float(transformer().params)
    True
    """
    zero: Array = np.zeros(())
    if not _any_above_one(at.dp * at.cp):
        return Exchange(zero, zero, zero, zero, zero)
    machine = links.machine
    dense, expert = local_parameters(ops, at)
    group = at.dp * at.cp
    element = np.where(machine.element_bytes > 2, 4.0, GRADIENT_BYTES)
    gradient = np.where(at.gradient_bytes > 0.0, at.gradient_bytes, element)
    wire = gradient / at.compression
    trained = dense * ops.trainable_fraction
    message = trained * wire
    kind = at.sharding
    by = at.data_algorithm
    reduced = links.time("all_reduce", message, group, at.tp, by)
    seconds = reduced
    repeated, call = zero, zero
    ranks = np.minimum(at.shard_group, group)
    copies = group / ranks
    states = (kind == Sharding.ZERO1) | (kind == Sharding.ZERO2)
    sharded = (kind == Sharding.FSDP) | (kind == Sharding.HSDP)
    # Each copy of the shards sums up with the others.
    across = (
        links.time("all_reduce", message / ranks, copies, at.tp * ranks, by)
        if _any_above_one(copies)
        else zero
    )
    if np.any(states):
        scattered = links.time("reduce_scatter", message, ranks, at.tp, by)
        gathered = links.time("all_gather", trained * element, ranks, at.tp, by)
        seconds = np.where(states, scattered + across + gathered, seconds)
        repeated = np.where((kind == Sharding.ZERO2) & (at.accumulation > 1.0), scattered, 0.0)
    if np.any(kind == Sharding.PARAMETER_SERVER):
        served = _parameter_server(message + trained * element, at, links)
        seconds = np.where(kind == Sharding.PARAMETER_SERVER, served, seconds)
    shards: Array = zero
    if np.any(sharded):
        layers = np.maximum(ops.layers / at.pp, 1.0)
        gather = links.time("all_gather", dense * element / layers, ranks, at.tp, by)
        scatter = links.time(
            "reduce_scatter", dense * wire / layers * ops.trainable_fraction, ranks, at.tp, by
        )
        shards = np.where(sharded, layers * (2.0 * gather + scatter), 0.0)
        seconds = np.where(sharded, across, seconds)
    if np.any(expert > 0):
        routed = links.time(
            "all_reduce", expert * ops.trainable_fraction * wire, at.expert_copies, at.expert_ranks, by
        )
        seconds = seconds + np.where(expert > 0, routed, 0.0)
    if custom_buckets(at):
        call = links.time("all_reduce", np.zeros_like(message), group, at.tp, by)
    apart = group > 1.0
    return Exchange(
        np.where(apart, seconds, 0.0), shards, np.where(apart, repeated, 0.0), trained * gradient, call
    )


def _parameter_server(moved_bytes: Array, at: Layouts, links: Links) -> Array:
    """Gradients pushed and weights pulled, `moved_bytes` together, through the host of each node.

    Servers are spread over the nodes (Li et al., OSDI 2014).
    """
    machine, c = links.machine, links.c
    nodes = at.k / at.per_node
    local = moved_bytes * at.per_node / (machine.host_link_bytes_per_s * c.server * 2.0)
    network = (
        moved_bytes
        * (1.0 - 1.0 / nodes)
        * machine.taper(nodes)
        / (machine.out_bytes_per_s * machine.node * c.out_efficiency * c.server)
    )
    return np.where(at.k > 1, local + network * np.where(nodes > 1, 1.0, 0.0) + c.base_s, 0.0)
