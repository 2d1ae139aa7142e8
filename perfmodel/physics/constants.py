"""The numbers that stand in the equations: each with its unit, its source and the modules that use it.

A constant is the same for every job. What differs between accelerators, frameworks or kinds of workload is a
coefficient (`physics.coefficients`), with a spread and a fitted value. What a datasheet states is in the catalogue.
Two kinds of numbers are not listed: those that an equation derives (the 2 of ``2 (n - 1)/n`` in a ring), and
tolerances of arithmetic.

`about()` reads the table below, and a test compares its last column with the imports. ``assumed`` starts the source of
a number that nobody measured or published.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, NamedTuple, get_type_hints


class About(NamedTuple):
    """What is known of one constant: SI unit (``1``: a plain number), source, and modules below `perfmodel`."""

    unit: str
    source: str
    users: str

    @property
    def is_assumed(self) -> bool:
        """Whether it was neither measured nor published."""
        return self.source.startswith("assumed")


# --- Work that an operation asks for ----------------------------------------------------------------------------------

#: Bytes that norms, residuals and dropouts read and write, per token and hidden unit.
HIDDEN_TRAFFIC: Annotated[
    float,
    About(
        "B at 2 B per element",
        "Korthikanti 2022, arXiv:2205.05198, sec. 4",
        "physics.counting physics.compute",
    ),
] = 26.0
#: The same of the activation function and the rotary embedding, per token and unit of FFN or QKV width.
INNER_TRAFFIC: Annotated[
    float,
    About(
        "B at 2 B per element",
        "Korthikanti 2022, arXiv:2205.05198, sec. 4",
        "physics.counting physics.compute",
    ),
] = 5.2
#: Traffic of a gated activation over that of a plain one: three widths forward and five backward against two and three.
GATED_TRAFFIC: Annotated[float, About("1", "counted: widths read and written", "physics.counting")] = (
    8.0 / 5.0
)
#: Elements that products of a layer read per hidden unit: what a cast to 8 bit converts.
CAST_READS: Annotated[
    float, About("1", "counted: four products read the hidden width", "physics.compute")
] = 4.0
#: FLOP of fused attention, forward and backward, over those of its forward pass (the backward pass repeats the scores).
ATTENTION_PASSES: Annotated[
    float,
    About(
        "1",
        "Dao 2023, arXiv:2307.08691, sec. 4.1: 1 forward + 2.5 backward",
        "physics.operations explain.roofline validate.resolve",
    ),
] = 3.5
#: Multiplications of a direct 3x3 convolution over those of Winograd's F(2x2, 3x3): 36 / 16.
FAST_CONVOLUTION: Annotated[
    float,
    About(
        "1",
        "Lavin & Gray 2016, arXiv:1509.09308, sec. 4.1",
        "physics.compute validate.resolve decide.audit.subject",
    ),
] = 2.25
#: Tokens of a chunk of the state-space scan.
SCAN_CHUNK: Annotated[
    float, About("tokens", "Dao & Gu 2024, arXiv:2405.21060, sec. 6", "physics.counting")
] = 256.0
#: Share of its tokens that a masked language model projects on the vocabulary.
MASKED_SHARE: Annotated[
    float, About("1", "BERT pretraining: 80 predictions of 512 tokens, 20 of 128", "physics.counting")
] = 0.156
#: FLOP per byte moved in 16 bit of a convolutional or recurrent network whose traffic nobody counted.
UNCOUNTED_INTENSITY: Annotated[float, About("FLOP/B", "assumed", "physics.counting")] = 40.0
#: Bytes moved forward per activation kept, where the kept ones were not counted.
TRAFFIC_PER_KEPT: Annotated[float, About("B", "assumed", "physics.counting")] = 28.0
#: Width of an attention head where the workload states neither heads nor their width.
HEAD_WIDTH: Annotated[float, About("1", "assumed: the width of GPT-2 and BERT heads", "physics.counting")] = (
    64.0
)
#: Tokens of a sample where neither job nor workload states them.
TYPICAL_TOKENS: Annotated[float, About("tokens", "assumed: BERT's longest sequence", "physics.counting")] = (
    512.0
)
#: Width of the feed-forward block over the hidden width where it is not stated.
TYPICAL_FFN: Annotated[float, About("1", "Vaswani 2017, arXiv:1706.03762, table 3", "physics.counting")] = 4.0
#: Kernel launches of a transformer's layer, forward.
LAYER_KERNELS: Annotated[
    float, About("1", "assumed: an eager layer without fusion beyond attention", "physics.counting")
] = 14.0
#: Kernel launches of a forward pass of any other network, and of a recommender, where nobody counted them.
NETWORK_KERNELS: Annotated[float, About("1", "assumed", "physics.counting")] = 150.0
RECOMMENDER_KERNELS: Annotated[float, About("1", "assumed", "physics.counting")] = 40.0
#: Bytes that a loader prepares for a token, and for a sample of a kind that is not listed.
TOKEN_INPUT_BYTES: Annotated[float, About("B", "counted: an index in 32 bit", "physics.counting")] = 4.0
SAMPLE_INPUT_BYTES: Annotated[float, About("B", "assumed", "physics.counting")] = 1e3
#: Elements looked up per sample of a recommender.
TABLE_VECTORS: Annotated[
    float,
    About("1", "Criteo: 26 categorical features, vectors of width 128 (MLPerf DLRM)", "physics.exchanges"),
] = 26 * 128.0
#: Difference between a stated and a counted number of parameters that means nothing.
ROUNDED: Annotated[float, About("1", "assumed", "physics.counting")] = 0.05

# --- Kernels ----------------------------------------------------------------------------------------------------------

#: Element-wise bytes of a backward pass over those of a forward one.
BACKWARD_TRAFFIC: Annotated[
    float, About("1", "assumed: gradients are read beside what was kept", "physics.compute")
] = 1.6
#: Time of a fused kernel's backward pass over its forward one: 2.5 times the FLOP at 0.84 of the rate.
ATTENTION_BACKWARD: Annotated[
    float, About("1", "Dao 2023, arXiv:2307.08691, sec. 4.1", "physics.compute")
] = 3.0
#: Tokens on which a fused kernel reaches half its rate; twice as many under a causal mask, whose diagonal tiles are half
#: in vain. Forward on an H100, head width 128, causal: 315, 410, 484, 518, 529, 539 TFLOP/s (cuDNN) and 191, 260, 298,
#: 319, 333, 335 (FlashAttention-2) for 512 to 16,384 tokens; without a mask 309, 350, 362, 368, 370, 370; with backward,
#: width 64, no mask: 204, 252, 275, 288, 302.
ATTENTION_RAMP: Annotated[
    float,
    About(
        "tokens", "Shah 2024, arXiv:2407.08608, fig. 5; flash-attention pull request 2688", "physics.compute"
    ),
] = 200.0
#: Unfused attention: passes of its two products backward over forward.
PRODUCTS_BACKWARD: Annotated[
    float, About("1", "counted: two gradients of each product", "physics.compute explain.roofline")
] = 2.0
#: Unfused attention: bytes per probability in 16 bit, (forward, backward), that the products move: each writes or reads
#: the scores once.
PRODUCT_BYTES: Annotated[tuple[float, float], About("B", "counted", "physics.compute explain.roofline")] = (
    4.0,
    8.0,
)
#: The same that softmax, mask and dropout move.
SOFTMAX_BYTES: Annotated[tuple[float, float], About("B", "counted", "physics.compute explain.roofline")] = (
    9.0,
    11.0,
)
#: Kernels of a backward pass over those of a forward one.
BACKWARD_HOST: Annotated[
    float, About("1", "assumed: two products for each, element-wise kernels once", "physics.compute")
] = 1.65
#: Share by which the host takes longer with every doubling of tensor-parallel ranks. Layers too small for the device take
#: 3.2, 3.4, 3.2 and 4.0 ms on 1, 2, 4 and 8 ranks.
TENSOR_HOST: Annotated[
    float,
    About(
        "1", "vTrain's runs of one or two sequences at widths 1,024 and 2,048, MICRO 2024", "physics.compute"
    ),
] = 0.12
#: 16-bit elements that one instruction loads.
WIDEST_LOAD: Annotated[int, About("1", "CUDA: loads of 128 bit", "physics.products")] = 8
#: 16-bit elements that a load must take for tensor cores before cuBLAS 11. NVIDIA's guide asks for eight; in DeepBench's
#: results on a V100, products of 5,124 rows (four) and of depth 1,530 (two) reach 97 TFLOP/s, of 35 rows (one) 22 at most.
LEAST_ALIGNED: Annotated[int, About("1", "DeepBench's results on a V100", "physics.products")] = 2
#: Share of a call that a grouped product pays for each further expert.
EXPERT_CALL_SHARE: Annotated[float, About("1", "assumed: some 10 us", "physics.products")] = 0.5
#: Outputs that a compute unit makes at once: 128 x 256 of them in 16 bit, half as many in 32 bit.
TILE_BYTES: Annotated[
    float, About("B", "NVIDIA's guide to matrix products: the largest common tile", "physics.products")
] = 128.0 * 256.0 * 2.0
#: Part of a wave of tiles below which a product's loss grows no further, thanks to smaller tiles and a split inner
#: dimension. Of five such forms this one and another (a square root) did best.
LEAST_FILL: Annotated[
    float, About("1", "DeepBench's products on V100, P100, T4 and GTX 1080 Ti", "physics.roofline")
] = 0.1
#: Bytes per trained parameter that Adam moves: gradient, master weight and two moments read, the last
#: three written, the weight written in 16 bit, the gradient read for its norm.
OPTIMIZER_BYTES: Annotated[float, About("B", "counted", "training.step explain.roofline")] = 34.0
#: Part of a micro-batch that its backward pass lasts: behind it gradients travel. Two passes of three, rounded down.
BACKWARD_SHARE: Annotated[
    float, About("1", "counted: two products backward for each forward", "training.step explain.collectives")
] = 0.66

# --- Collectives ------------------------------------------------------------------------------------------------------

#: Exponent p of the knee between latency and bandwidth (`physics.fabric`, equation 1).
KNEE: Annotated[
    float,
    About(
        "1",
        "read off the collective sweeps of the corpus: 0.6 to 0.7",
        "physics.exchanges calibrate.sweep_fit validate.collectives",
    ),
] = 0.65
#: Part of its own shard that each rank copies: why two ranks stay below the bus bandwidth of eight.
OWN_SHARD_COPY: Annotated[
    float, About("1", "read off the collective sweeps of the corpus", "physics.fabric")
] = 0.38
#: Ranks below which libraries prefer a ring to reduction in the switch.
IN_SWITCH_RANKS: Annotated[
    float,
    About("1", "read off the collective sweeps of the corpus", "physics.fabric calibrate.collective_form"),
] = 4.2
#: Rate of reduction inside the switch over the rate of its links.
IN_SWITCH_SHARE: Annotated[float, About("1", "assumed", "physics.exchanges")] = 0.7
#: Ranks of a ring within one domain; beyond, libraries join such rings by trees.
RING_RANKS: Annotated[float, About("1", "assumed: racks and tori of the corpus", "physics.fabric")] = 16.0
#: Steps that each doubling beyond `RING_RANKS` adds.
HOPS_PER_DOUBLING: Annotated[float, About("1", "assumed: racks and tori of the corpus", "physics.fabric")] = (
    8.0
)
#: Part of its link that a group under several PCIe switches loses, beyond a pair.
PCIE_TREE_LOSS: Annotated[
    float, About("1", "assumed: the root complex or host bridge is shared", "physics.fabric")
] = 0.46
#: Part of its link that remains where every byte is staged through the host's memory.
STAGED_SHARE: Annotated[
    float, About("1", "assumed: every byte passes the host's memory", "physics.fabric")
] = 0.36
#: Ranks that exchange directly over a shared bus; a pair leaves 0.3 of a round to it.
BUS_PAIR: Annotated[
    float, About("1", "assumed: read off runs of PCIe servers in the corpus", "physics.exchanges")
] = 1.7
#: Bytes of a 16-bit gradient; 4 in 32 bit.
GRADIENT_BYTES: Annotated[float, About("B", "counted", "physics.exchanges decide.audit.bounds")] = 2.0
#: Bytes of the first bucket of gradients, small so that communication starts early, and of the others.
FIRST_BUCKET_BYTES: Annotated[
    float,
    About(
        "B",
        "PyTorch DistributedDataParallel, Li 2020, VLDB 13, 3005",
        "physics.exposure physics.layouts",
    ),
] = 1.0 * 2**20
BUCKET_BYTES: Annotated[
    float,
    About(
        "B",
        "PyTorch DistributedDataParallel, bucket_cap_mb",
        "physics.exposure physics.layouts",
    ),
] = 25.0 * 2**20

# --- Machines about which nothing is stated ---------------------------------------------------------------------------

#: 100 Gbit/s a node; a belief widens it.
DEFAULT_NETWORK_BYTES_PER_S: Annotated[float, About("B/s", "assumed", "physics.machine decide.facts")] = (
    12.5e9
)
DEFAULT_NETWORK_LATENCY_S: Annotated[float, About("s", "assumed", "physics.machine")] = 2e-6
DEFAULT_HOST_LATENCY_S: Annotated[float, About("s", "assumed", "physics.machine")] = 2e-6
#: PCIe 3 x16 as copied; also what a parameter server on the host sees.
HOST_LINK_BYTES_PER_S: Annotated[
    float, About("B/s", "assumed: PCIe 3 x16 as copied, 12 of 15.75 GB/s", "physics.machine decide.facts")
] = 12e9
#: Generation of PCIe where the device does not state it, its x16 rate and latency; each generation doubles the rate.
DEFAULT_PCIE: Annotated[int, About("1", "assumed", "physics.wiring physics.topology")] = 3
PCIE3_BYTES_PER_S: Annotated[
    float, About("B/s", "PCI-SIG: 8 GT/s, 16 lanes, 128b/130b", "physics.topology")
] = 15.75e9
PCIE_LATENCY_S: Annotated[float, About("s", "assumed", "physics.topology")] = 1e-6
#: Axes of a torus whose ports are not stated.
DEFAULT_AXES: Annotated[float, About("1", "assumed: two, as TPU v2 and v3 have", "physics.wiring")] = 2.0


def about() -> Mapping[str, About]:
    """Each constant of this module by name.

    Returns
    -------
    What is known of each constant, by name.

    >>> about()["TILE_BYTES"].unit, about()["DEFAULT_AXES"].is_assumed
    ('B', True)
    """
    hints = get_type_hints(sys.modules[__name__], include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}
