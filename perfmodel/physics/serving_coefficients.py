"""The coefficients of a serving step: what each means, where it starts, and by what it varies.

A coefficient is positive and lives on a log scale, as those of a training step do: `median` and `spread` (the standard
deviation of the logarithm) are what is believed before anything is fitted, and `levels` name the features of a
deployment by which the belief may differ. A belief about a deployment is the median times the shifts of its levels.
Fitted values are data in `perfmodel/priors/serving.yaml`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.coefficients import _coefficient

Array = NDArray[np.float64]


_KERNELS = "published kernel tables of large and small matrix products"
_FLOORS = "published kernel tables: floors of small kernels and collectives"
_ROUND = "assumed: a round number of the right size"
_EXACT = "the equation itself; the coefficient says how far runs may differ from it"


@dataclass(frozen=True, slots=True)
class ServingCoefficients:
    """One array per coefficient; each broadcasts against the deployments and may carry a leading axis of draws."""

    # device
    compute: Array = _coefficient(
        0.60, 0.25, "generation*width", "1",
        "fraction of the dense datasheet peak that large products of a step reach", _KERNELS,
    )  # fmt: skip
    weight_read: Array = _coefficient(
        0.75, 0.15, "width", "1",
        "fraction of the memory bandwidth at which weights are read", _KERNELS,
    )  # fmt: skip
    cache_read: Array = _coefficient(
        0.70, 0.30, "", "1",
        "fraction of the memory bandwidth at which keys and values are read", _KERNELS,
    )  # fmt: skip
    attention: Array = _coefficient(
        0.40, 0.40, "", "1", "fraction of the 16-bit peak that attention reaches", _KERNELS,
    )  # fmt: skip
    expert_compute: Array = _coefficient(
        0.60, 0.40, "", "1",
        "rate of the products of routed experts against that of dense products", _ROUND,
    )  # fmt: skip
    popularity: Array = _coefficient(
        0.50, 0.70, "", "1",
        "variance over squared mean of how often the experts of a layer are chosen", _ROUND,
    )  # fmt: skip
    imbalance: Array = _coefficient(
        0.30, 0.60, "", "1",
        "work that the fullest rank has beyond the mean when experts are spread over many ranks", _ROUND,
    )  # fmt: skip
    # launches
    layer_s: Array = _coefficient(
        30e-6, 0.60, "engine", "s",
        "time of a layer that no work explains: floors of its small kernels and gaps between them", _FLOORS,
    )  # fmt: skip
    moe_layers: Array = _coefficient(
        1.0, 0.50, "", "1", "the same of a layer with routed experts, in addition, against a plain layer", _ROUND,
    )  # fmt: skip
    linear_layers: Array = _coefficient(
        1.0, 0.60, "", "1", "the same of a layer with linear or state-space attention, in addition", _ROUND,
    )  # fmt: skip
    latent_layers: Array = _coefficient(
        0.5, 0.60, "", "1", "the same of a layer with latent attention, in addition", _ROUND,
    )  # fmt: skip
    eager: Array = _coefficient(
        2.0, 0.60, "engine", "1",
        "launch time of a step with prompts against a step without: such steps are seldom replayed graphs", _ROUND,
    )  # fmt: skip
    sequence_s: Array = _coefficient(
        12e-6, 0.80, "engine", "s", "host time of a step for each sequence that decodes: sampling, lists, output", _ROUND,
    )  # fmt: skip
    first_s: Array = _coefficient(
        20e-3, 0.80, "engine front", "s", "time to the first token outside the steps: network, tokenizer, scheduler", _ROUND,
    )  # fmt: skip
    # links
    exchange_s: Array = _coefficient(
        3e-6, 0.50, "link", "s", "latency of a message of a collective inside a step, skew of its ranks included", _FLOORS,
    )  # fmt: skip
    exchange_rate: Array = _coefficient(
        0.70, 0.30, "", "1", "fraction of the datasheet bandwidth of a link that such a collective reaches", _FLOORS,
    )  # fmt: skip
    stage: Array = _coefficient(
        0.25, 0.60, "", "1", "time that pipeline stages lose to one another, as a share of a step", _ROUND,
    )  # fmt: skip
    # the queue
    interference: Array = _coefficient(
        1.0, 0.25, "", "1", "time that prompts add to the steps of the others against what their work says", _EXACT,
    )  # fmt: skip
    rest: Array = _coefficient(
        0.5, 0.50, "", "1", "part of the running step that a new request waits for", _EXACT,
    )  # fmt: skip
    line: Array = _coefficient(
        1.0, 0.50, "", "1", "wait of a prompt behind other prompts against that of a queue with random arrivals", _EXACT,
    )  # fmt: skip
    wave: Array = _coefficient(
        1.0, 0.40, "", "1", "wait in the burst with which a benchmark starts against half a burst of prompts", _EXACT,
    )  # fmt: skip
    drain: Array = _coefficient(
        0.5, 0.50, "", "1", "time in which an offline run empties, as a share of the time of one request", _ROUND,
    )  # fmt: skip
    cache_room: Array = _coefficient(
        0.92, 0.08, "", "1", "share of the memory left by the weights that holds keys and values", _ROUND,
    )  # fmt: skip
    draft: Array = _coefficient(
        1.5, 0.60, "", "1", "time of one drafted token against one layer of the model", _ROUND,
    )  # fmt: skip
    pace: Array = _coefficient(
        1.0, 0.15, "vendor engine", "1", "time of a step on such a stack against what its parts explain", _EXACT,
    )  # fmt: skip


# What is known of a level before anything is fitted, where it differs from the coefficient's own median.
KNOWN_MEDIANS: dict[tuple[str, str, str], float] = {
    ("compute", "generation*width", "ampere*16bit"): 0.75,
    ("compute", "generation*width", "hopper*16bit"): 0.60,
    ("compute", "generation*width", "hopper*fp8"): 0.50,
    ("compute", "generation*width", "blackwell*16bit"): 0.50,
    ("compute", "generation*width", "blackwell*fp8"): 0.50,
    ("compute", "generation*width", "blackwell*fp4"): 0.38,
    ("compute", "generation*width", "blackwell-ultra*16bit"): 0.50,
    ("compute", "generation*width", "blackwell-ultra*fp8"): 0.50,
    ("compute", "generation*width", "blackwell-ultra*fp4"): 0.38,
    ("weight_read", "width", "fp8"): 0.65,
    ("weight_read", "width", "fp4"): 0.50,
    # Engines that launch every kernel from the host.
    ("layer_s", "engine", "vllm-v0"): 120e-6,
    ("layer_s", "engine", "deepspeed-mii"): 150e-6,
    ("layer_s", "engine", "transformers"): 250e-6,
    ("layer_s", "engine", "llama.cpp"): 60e-6,
    # Compiled beforehand: a step with prompts launches what any other does.
    ("eager", "engine", "tensorrt-llm-v0"): 1.0,
    ("exchange_s", "link", "pcie"): 6e-6,
    ("first_s", "front", "api"): 2e-3,
}

# How far a value of a level may shift a coefficient, as a standard deviation of the logarithm (assumed). Engines differ
# by what they launch and when; what remains of a step is alike.
SHIFT_SPREADS: dict[tuple[str, str], float] = {
    ("compute", "generation*width"): 0.20,
    ("weight_read", "width"): 0.10,
    ("layer_s", "engine"): 0.60,
    ("eager", "engine"): 0.60,
    ("sequence_s", "engine"): 0.40,
    ("first_s", "engine"): 0.40,
    ("first_s", "front"): 1.50,
    ("exchange_s", "link"): 0.25,
    ("pace", "vendor"): 0.15,
    ("pace", "engine"): 0.20,
}

NAMES: tuple[str, ...] = tuple(f.name for f in fields(ServingCoefficients))
MEDIANS: dict[str, float] = {f.name: f.metadata["median"] for f in fields(ServingCoefficients)}
SPREADS: dict[str, float] = {f.name: f.metadata["spread"] for f in fields(ServingCoefficients)}
LEVELS: dict[str, tuple[str, ...]] = {f.name: f.metadata["levels"] for f in fields(ServingCoefficients)}
UNITS: dict[str, str] = {f.name: f.metadata["unit"] for f in fields(ServingCoefficients)}
MEANINGS: dict[str, str] = {f.name: f.metadata["meaning"] for f in fields(ServingCoefficients)}
SOURCES: dict[str, str] = {f.name: f.metadata["source"] for f in fields(ServingCoefficients)}
#: The known medians as shifts of the logarithm.
KNOWN: dict[tuple[str, str, str], float] = {
    key: float(np.log(median / MEDIANS[key[0]])) for key, median in KNOWN_MEDIANS.items()
}


def from_logs(logs: Array) -> ServingCoefficients:
    """Coefficients from their logarithms, `logs[i]` belonging to `NAMES[i]`; further axes are draws and deployments.

    Parameters
    ----------
    logs : logarithms, one coefficient each on the first axis.

    Returns
    -------
    Coefficients in their units.

    >>> float(from_logs(np.zeros(len(NAMES))).compute)
    1.0
    """
    return ServingCoefficients(**dict(zip(NAMES, np.exp(logs), strict=True)))


def textbook() -> ServingCoefficients:
    """The starting medians, as scalars.

    Returns
    -------
    Coefficients in their units.

    >>> float(textbook().line)
    1.0
    """
    return from_logs(np.log(np.array([MEDIANS[name] for name in NAMES])))


def ideal() -> ServingCoefficients:
    """A machine at its datasheet rates without latency, launches or skew: the roofs that no deployment exceeds.

    Returns
    -------
    Coefficients in their units.

    >>> float(ideal().compute), float(ideal().layer_s)
    (1.0, 0.0)
    """
    rates = {"compute", "weight_read", "cache_read", "attention", "expert_compute", "exchange_rate", "interference",
             "pace", "eager", "cache_room"}  # fmt: skip
    values = {name: np.asarray(1.0 if name in rates else 0.0) for name in NAMES}
    return ServingCoefficients(**values)
