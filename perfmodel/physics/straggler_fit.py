"""Which distribution do measured step times follow, and can its tail be trusted?

Per-rank samples are split into what stays with a rank (persistent speed) and what changes from step to step (jitter);
families are fitted to the jitter by maximum likelihood, ranked by AIC, and the best is checked twice: by
Kolmogorov-Smirnov with a parametric bootstrap (parameters were fitted to the same data, so the tabulated p-value would
flatter), and in the tail, where the wait of a synchronous step is decided: mean excess over the 90 % quantile and the mean
maximum of blocks, measured against fitted.

References: Lilliefors, JASA 62 (1967) 399 (KS with fitted parameters); Akaike, IEEE TAC 19 (1974) 716; Davison, Smith,
J. R. Stat. Soc. B 52 (1990) 393 (mean excess).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.stragglers import FAMILIES, PARETO_TAIL, expected_max, weibull_shape

Array = NDArray[np.float64]

TAIL_QUANTILE: Final = 0.9
TAIL_TOLERANCE: Final = 0.25  # of the mean excess, measured over fitted
LEAST_SAMPLES: Final = 20
BLOCK: Final = 16
_SCIPY: Final = {
    "normal": "norm",
    "lognormal": "lognorm",
    "gamma": "gamma",
    "weibull": "weibull_min",
    "gumbel": "gumbel_r",
    "pareto": "lomax",
    "exponential": "expon",
}


@dataclass(frozen=True)
class FamilyFit:
    """One family fitted to samples whose mean is 1."""

    family: str
    mean: float
    spread: float  # standard deviation over mean
    tail: float  # tail index of the Pareto-tailed family; that of no other
    aic: float
    ks: float  # largest distance between the empirical and the fitted distribution


@dataclass(frozen=True)
class JitterFit:
    """What per-rank samples say about waiting."""

    best: FamilyFit
    candidates: tuple[FamilyFit, ...]  # by AIC, the best first
    p_value: float  # of the best family's KS distance, by parametric bootstrap
    excess_ratio: float  # mean excess over the 90 % quantile, measured over fitted
    block_ratio: float  # mean maximum of blocks, measured over fitted
    slowest_rank: int
    slowest_factor: float  # its mean over the median rank's
    samples: int

    @property
    def tail_is_trusted(self) -> bool:
        """Whether the fitted tail may be used beyond the samples."""
        return abs(self.excess_ratio - 1.0) <= TAIL_TOLERANCE and self.p_value >= 0.01

    def factor(self, k: ArrayLike) -> Array:
        """Mean of the slowest of `k` workers over the mean of one, by the best family."""
        best = self.best
        return expected_max(k, best.family, best.mean, best.spread, tail=best.tail) / best.mean


def fit_jitter(times_s: ArrayLike, *, seed: int = 0, resamples: int = 60) -> JitterFit:
    """Fit step times [s] of shape (steps,) or (ranks, steps); NaN marks a missing sample.

    Parameters
    ----------
    times_s : step times of shape (steps,) or (ranks, steps) [s].
    seed : of the bootstrap and of drawn tails.
    resamples : of the bootstrap.

    Returns
    -------
    The best family, how well it fits, and the slowest rank.

    >>> rng = np.random.default_rng(1)
    >>> found = fit_jitter(0.5 * rng.lognormal(0.0, 0.05, (8, 200)) * np.array([[1.0]] * 7 + [[1.1]]), resamples=9)
    >>> found.slowest_rank, round(found.slowest_factor, 1)
    (7, 1.1)
    >>> 0.04 < found.best.spread < 0.06
    True
    """
    times = np.atleast_2d(np.asarray(times_s, float))
    finite = np.isfinite(times)
    if finite.sum() < LEAST_SAMPLES or not finite.any(axis=1).all() or (times[finite] <= 0.0).any():
        raise ValueError(f"at least {LEAST_SAMPLES} positive step times are needed, and one per rank")
    own = np.nanmean(times, axis=1)
    jitter = (times / own[:, None])[finite]
    candidates = sorted((fit_family(family, jitter) for family in FAMILIES), key=lambda found: found.aic)
    best = candidates[0]
    rng = np.random.default_rng(seed)
    excess, block = _tail_ratios(jitter, best, rng)
    slowest = int(own.argmax())
    return JitterFit(
        best=best,
        candidates=tuple(candidates),
        p_value=_bootstrap_p(jitter.size, best, rng, resamples),
        excess_ratio=excess,
        block_ratio=block,
        slowest_rank=slowest,
        slowest_factor=float(own[slowest] / np.median(own)),
        samples=int(jitter.size),
    )


def fit_family(family: str, samples: Array) -> FamilyFit:
    """Maximum likelihood of one family; two parameters, three for the Pareto-tailed one.

    Shifted families (exponential, Pareto-tailed) start at the least sample, their likelihood's maximum.

    Parameters
    ----------
    family : one of `physics.stragglers.FAMILIES`.
    samples : of mean 1, positive.

    Returns
    -------
    The fitted family with its AIC and KS distance.

    >>> found = fit_family("normal", np.array([0.9, 1.0, 1.1]))
    >>> round(found.mean, 6), round(found.spread, 3)
    (1.0, 0.082)
    """
    frozen, tail = _frozen(family, samples)
    mean, deviation = float(frozen.mean()), float(frozen.std())
    ordered = np.sort(samples)
    count = ordered.size
    cdf = frozen.cdf(ordered)
    steps = np.arange(count + 1) / count
    ks = float(max((steps[1:] - cdf).max(), (cdf - steps[:-1]).max()))
    with np.errstate(divide="ignore"):
        likelihood = float(np.sum(frozen.logpdf(samples)))
    parameters = 3 if family == "pareto" else 2
    return FamilyFit(family, mean, deviation / mean, tail, 2.0 * parameters - 2.0 * likelihood, ks)


def _frozen(family: str, samples: Array) -> tuple[Any, float]:
    from scipy import stats

    law = getattr(stats, _SCIPY[family])
    low = float(samples.min())
    if family == "normal":
        return law(samples.mean(), samples.std()), PARETO_TAIL
    if family == "lognormal":
        logs = np.log(samples)
        return law(logs.std(), scale=np.exp(logs.mean())), PARETO_TAIL
    if family == "exponential":
        return law(low, samples.mean() - low), PARETO_TAIL
    if family == "pareto":
        # A tail index in (2.05, 50) keeps the spread finite; the scale follows from the mean excess over the minimum.
        excess = samples - low
        indices = np.geomspace(2.05, 50.0, 60)
        scales = excess.mean() * (indices - 1.0)
        scores = [
            samples.size * np.log(a / c) - (a + 1.0) * np.log1p(excess / c).sum()
            for a, c in zip(indices, scales, strict=True)
        ]
        chosen = int(np.argmax(scores))
        return law(indices[chosen], low, scales[chosen]), float(indices[chosen])
    if family == "gumbel":
        return law(*law.fit(samples)), PARETO_TAIL
    return law(*law.fit(samples, floc=0.0)), PARETO_TAIL


def _draw(best: FamilyFit, count: int, rng: np.random.Generator) -> Array:
    """Samples of a fitted family by its unit-mean parameters."""
    mean, spread = best.mean, best.spread
    if best.family == "normal":
        return rng.normal(mean, spread * mean, count)
    if best.family == "lognormal":
        sigma = float(np.sqrt(np.log1p(spread * spread)))
        return mean * rng.lognormal(-0.5 * sigma * sigma, sigma, count)
    if best.family == "gamma":
        return rng.gamma(1.0 / spread**2, mean * spread**2, count)
    if best.family == "gumbel":
        scale = mean * spread * np.sqrt(6.0) / np.pi
        return rng.gumbel(mean - np.euler_gamma * scale, scale, count)
    if best.family == "exponential":
        return mean * (1.0 - spread) + rng.exponential(mean * spread, count)
    if best.family == "pareto":
        scale = mean * spread * (best.tail - 1.0) * float(np.sqrt((best.tail - 2.0) / best.tail))
        return np.asarray(mean - scale / (best.tail - 1.0) + scale * rng.pareto(best.tail, count))
    from scipy.special import gamma

    shape = weibull_shape(spread)
    return np.asarray(mean / float(gamma(1.0 + 1.0 / shape)) * rng.weibull(shape, count))


def _bootstrap_p(count: int, best: FamilyFit, rng: np.random.Generator, resamples: int) -> float:
    """Share of samples drawn from the fit, and fitted again, that lie farther from their fit than ours."""
    floor = np.finfo(float).tiny
    farther = sum(
        fit_family(best.family, np.maximum(_draw(best, count, rng), floor)).ks >= best.ks
        for _ in range(resamples)
    )
    return (1.0 + farther) / (1.0 + resamples)


def _tail_ratios(samples: Array, best: FamilyFit, rng: np.random.Generator) -> tuple[float, float]:
    """Measured over fitted: mean excess over the 90 % quantile, and the mean of block maxima above 1."""
    drawn = _draw(best, 200_000, rng)

    def mean_excess(values: Array) -> float:
        level = np.quantile(values, TAIL_QUANTILE)
        return float((values[values >= level] - level).mean())

    blocks = rng.permutation(samples)[: samples.size // BLOCK * BLOCK].reshape(-1, BLOCK)
    measured = float(blocks.max(axis=1).mean()) if blocks.size else float("nan")
    fitted = float(expected_max(BLOCK, best.family, best.mean, best.spread, tail=best.tail))
    excess = max(mean_excess(drawn), np.finfo(float).tiny)
    return mean_excess(samples) / excess, measured / fitted
