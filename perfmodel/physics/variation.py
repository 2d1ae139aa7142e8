"""How one worker's step time varies, in any of the forms that a job may declare, and what waiting for K of them costs.

A variation is a family with its spread (and the index of a Pareto tail), a part of the step that never varies, a
mixture of families, or measured samples. Times are relative to the mean of one worker.

With c the part that never varies and X of mean 1, a step is ``c + (1 - c) X``, so that

.. math:: E[\\max_K] = c + (1 - c)\\, E[\\max_K X]                                                       (1)

where X has the spread ``s / (1 - c)``. A mixture of components with shares w, means m and distributions F has
``F(x) = sum of w F_i(x / m_i)`` and

.. math:: E[\\max_K] = x_0 + \\int_{x_0}^{\\infty} 1 - F(x)^K\\, dx                                         (2)

over its own mean. Samples have the exact maximum of `perfmodel.physics.stragglers.expected_max_empirical`.

References: David, Nagaraja, *Order Statistics* (2003), ch. 4; Dean, Barroso, CACM 56 (2013) 74.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.stragglers import (
    PARETO_TAIL,
    expected_max,
    expected_max_empirical,
    weibull_shape,
)

Array = NDArray[np.float64]

_LEAST_SPREAD: Final = 1e-6  # of a component: less is a point
_TAIL: Final = 1e-15  # probability beyond which the integral of equation (2) stops
_POINTS: Final = 1500  # of a component, on either side of its middle


@dataclass(frozen=True)
class Component:
    """One kind of step in a mixture: how often, how long on the mean, and how it varies."""

    share: float
    mean: float
    family: str = "lognormal"
    spread: float = 0.0
    tail: float = PARETO_TAIL


@dataclass(frozen=True)
class Variation:
    """The distribution of one worker's step time over its mean."""

    family: str = "lognormal"  # of `stragglers.FAMILIES`, or "mixture" or "empirical"
    spread: float = 0.0  # standard deviation over mean
    tail: float = PARETO_TAIL
    constant: float = 0.0  # share of the mean that never varies
    parts: tuple[Component, ...] = ()
    samples: tuple[float, ...] = ()

    @property
    def is_plain_lognormal(self) -> bool:
        """Whether the step model has it in closed form."""
        return self.family == "lognormal" and self.constant == 0.0

    def in_words(self) -> str:
        """For people.

        >>> Variation("pareto", 0.02, tail=2.5).in_words()
        'pareto, spread 0.02, tail index 2.5'
        """
        if self.family == "mixture":
            each = (
                f"{p.share:.3g} of {p.family} with mean {p.mean:.3g}, spread {p.spread:.3g}"
                for p in self.parts
            )
            return f"mixture: {'; '.join(each)}"
        if self.family == "empirical":
            return f"{len(self.samples)} measured samples, spread {spread_of(self):.3g}"
        words = f"{self.family}, spread {self.spread:.4g}"
        words += f", tail index {self.tail:g}" if self.family == "pareto" else ""
        return words + (f", {self.constant:.3g} of the step constant" if self.constant else "")


def expected_factor(k: ArrayLike, variation: Variation) -> Array:
    """Mean of the slowest of `k` workers over the mean of one, by equations (1) and (2).

    Parameters
    ----------
    k : number of workers, 1 or more.
    variation : of one worker's step.

    Returns
    -------
    A plain number, 1 or more.

    >>> expected_factor([1, 4], Variation("exponential", 0.5, constant=0.5)).round(6).tolist()    # 1 - 1/2 + 25/24
    [1.0, 1.541667]
    >>> slow = Variation("mixture", parts=(Component(0.5, 1.0), Component(0.5, 3.0)))
    >>> expected_factor([1, 2], slow).round(4).tolist()    # both quick with probability 1/4: (1 + 3 * 3)/4 over 2
    [1.0, 1.25]
    """
    ks = np.maximum(np.asarray(k, float), 1.0)
    if variation.family == "empirical":
        samples = np.asarray(variation.samples, float)
        return expected_max_empirical(ks, samples / samples.mean())
    if variation.family == "mixture":
        return _mixture(ks, variation.parts)
    varying = 1.0 - variation.constant
    inner = expected_max(ks, variation.family, 1.0, variation.spread / varying, tail=variation.tail)
    return np.asarray(variation.constant + varying * inner)


def spread_of(variation: Variation) -> float:
    """Standard deviation over mean of one worker's step, a plain number.

    Parameters
    ----------
    variation : of one worker's step; a mixture's is ``sqrt(sum w m^2 (1 + s^2) / M^2 - 1)`` with M its mean.

    Returns
    -------
    Zero or more.

    >>> round(spread_of(Variation("mixture", parts=(Component(0.5, 1.0), Component(0.5, 3.0)))), 6)
    0.5
    """
    if variation.family == "empirical":
        samples = np.asarray(variation.samples, float)
        return float(samples.std() / samples.mean())
    if variation.family != "mixture":
        return variation.spread
    mean = sum(p.share * p.mean for p in variation.parts)
    square = sum(p.share * p.mean**2 * (1.0 + p.spread**2) for p in variation.parts)
    return float(np.sqrt(max(square / mean**2 - 1.0, 0.0)))


def _mixture(k: Array, parts: tuple[Component, ...]) -> Array:
    """Equation (2), by the trapezoidal rule on points that are dense in the tail of every component."""
    made = [(p.share, p.mean, _distribution(p)) for p in parts]
    low, high = np.geomspace(_TAIL, 0.5, _POINTS), np.geomspace(_TAIL, 0.5, _POINTS)
    x = np.unique(np.concatenate([m * np.concatenate([d.ppf(low), d.isf(high)]) for _, m, d in made]))
    survival = np.zeros_like(x)
    for share, mean, distribution in made:
        survival = survival + share * distribution.sf(x / mean)
    with np.errstate(divide="ignore"):
        log_cdf = np.log1p(-np.minimum(survival, 1.0))
    above = -np.expm1(k[..., None] * log_cdf)
    area = 0.5 * ((above[..., 1:] + above[..., :-1]) * np.diff(x)).sum(axis=-1)
    return np.asarray((x[0] + area) / sum(share * mean for share, mean, _ in made))


def _distribution(part: Component) -> Any:
    """A family of mean 1 as scipy has it."""
    from scipy import stats
    from scipy.special import gamma

    s = max(part.spread, _LEAST_SPREAD)
    if part.family == "normal":
        return stats.norm(1.0, s)
    if part.family == "lognormal":
        sigma = float(np.sqrt(np.log1p(s * s)))
        return stats.lognorm(sigma, scale=np.exp(-0.5 * sigma * sigma))
    if part.family == "gamma":
        return stats.gamma(1.0 / s**2, scale=s**2)
    if part.family == "weibull":
        shape = weibull_shape(s)
        return stats.weibull_min(shape, scale=1.0 / float(gamma(1.0 + 1.0 / shape)))
    if part.family == "gumbel":
        beta = s * np.sqrt(6.0) / np.pi
        return stats.gumbel_r(1.0 - np.euler_gamma * beta, beta)
    if part.family == "exponential":
        return stats.expon(1.0 - s, s)
    if part.family == "pareto":
        a = part.tail
        scale = s * (a - 1.0) * np.sqrt((a - 2.0) / a)
        return stats.lomax(a, loc=1.0 - scale / (a - 1.0), scale=scale)
    raise ValueError(f"unknown family {part.family!r}")
