"""`perfmodel law`: T, S and E of a scaling law over K, its ceilings, and the inverses that plan with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

import numpy as np

from perfmodel.errors import Problem, UsageError
from perfmodel.physics import laws
from perfmodel.physics.laws import Array
from perfmodel.results.envelope import Result

Law: TypeAlias = Literal["amdahl", "gustafson", "usl", "communication"]


@dataclass(frozen=True, slots=True)
class LawOptions:
    """What to tabulate. `efficiency` is the level whose K is sought, `keep` the one that must be held at each K.

    The communication law has one second of work at K = 1, `serial` of it serial, plus one exchange of
    `message_bytes` with latency `alpha_s`.
    """

    law: Law
    k: tuple[int, ...]
    serial: tuple[float, ...] = (0.05,)
    kappa: tuple[float, ...] = (0.0,)
    efficiency: float = 0.5
    keep: float = 0.8
    term: laws.Term = "log2"
    alpha_s: float = 0.0
    message_bytes: float = 0.0
    bandwidth_bytes_per_s: float = np.inf
    regime: laws.Regime = "strong"

    def __post_init__(self) -> None:
        problems = []
        for flag, ok, text in (
            ("--serial", all(0.0 <= s <= 1.0 for s in self.serial), "between 0 and 1"),
            ("--kappa", all(0.0 <= x <= 1.0 for x in self.kappa), "zero or above, and at most 1"),
            ("--efficiency", 0.0 < self.efficiency <= 1.0, "above 0 and at most 1"),
            ("--keep", 0.0 < self.keep <= 1.0, "above 0 and at most 1"),
            ("--alpha", 0.0 <= self.alpha_s <= 1e9, "zero or above, and at most 1e9 s"),
            ("--message", 0.0 <= self.message_bytes <= 1e18, "zero or above, and at most 1 EB"),
            ("--bandwidth", self.bandwidth_bytes_per_s > 0.0, "above zero"),
        ):
            if not ok:
                problems.append(Problem(code="U022", message=f"{flag} must be {text}"))
        if problems:
            raise UsageError(problems)


def tabulate(options: LawOptions, *, seed: int = 0) -> Result:
    """The law's table as a result of kind `law`; the seed is only carried into the envelope.

    >>> found = tabulate(LawOptions("amdahl", (1, 16), serial=(0.05,))).result
    >>> found["curves"][0]["ceiling"], found["curves"][0]["smallest_k_below"], found["keeps"]["serial_fraction"]
    (20.0, 22.0, [1.0, 0.016666666666666666])
    """
    k = np.array(options.k, dtype=np.float64)
    curves = [
        _curve(options, k, serial, kappa)
        for serial in options.serial
        for kappa in (options.kappa if options.law == "usl" else (0.0,))
    ]
    result: dict[str, object] = {
        "law": options.law,
        "k": list(options.k),
        "regime": "weak" if options.law == "gustafson" else options.regime,
        "efficiency_level": options.efficiency,
        "curves": curves,
        # The first curve once more in the form that every scaling result has, for plots and scripts.
        "time_s": curves[0]["time"],
        "speedup": curves[0]["speedup"],
        "efficiency": curves[0]["efficiency"],
        "keeps": {
            "efficiency": options.keep,
            "parameter": "sigma" if options.law == "usl" else "serial fraction",
            "serial_fraction": _keeps(options, k),
        },
    }
    return Result("law", asdict(options), result, seed)


def _curve(options: LawOptions, k: Array, serial: float, kappa: float) -> dict[str, object]:
    level = options.efficiency
    ceiling: float
    peak: float = np.inf
    if options.law == "amdahl":
        time = laws.amdahl_time(k, serial)
        speedup = laws.amdahl_speedup(k, serial)
        efficiency = laws.amdahl_efficiency(k, serial)
        ceiling = float(laws.amdahl_ceiling(serial))
        at = float(laws.amdahl_k_at_efficiency(level, serial))
    elif options.law == "gustafson":
        # The problem grows so that the parallel machine always takes one unit of time.
        time = np.ones_like(k)
        speedup = laws.gustafson_speedup(k, serial)
        efficiency = laws.gustafson_efficiency(k, serial)
        ceiling = np.inf if serial < 1.0 else 1.0
        at = float(laws.gustafson_k_at_efficiency(level, serial))
    elif options.law == "usl":
        speedup = laws.usl_speedup(k, serial, kappa)
        time = 1.0 / speedup
        efficiency = laws.usl_efficiency(k, serial, kappa)
        peak = float(laws.usl_peak_k(serial, kappa))
        ceiling = (
            float(laws.usl_speedup(peak, serial, kappa))
            if np.isfinite(peak)
            else float(laws.amdahl_ceiling(serial))
        )
        at = float(laws.usl_k_at_efficiency(level, serial, kappa))
    else:
        return _communication(options, k, serial)
    return {
        "serial_fraction": serial,
        "kappa": kappa if options.law == "usl" else None,
        "time": time,
        "time_on_one": laws.gustafson_speedup(k, serial) if options.law == "gustafson" else None,
        "speedup": speedup,
        "efficiency": efficiency,
        "ceiling": ceiling,
        "k_peak": peak,
        "k_at_efficiency": at,
        "smallest_k_below": float(laws.smallest_integer_above(at)),
        **_worth(speedup, efficiency, ceiling, k),
    }


def _worth(speedup: Array, efficiency: Array, ceiling: float, k: Array) -> dict[str, object]:
    """What the workers bring and cost: share of the ceiling, speedup of each further worker, worker-time of the same work.

    Costs are relative to one worker: `K T(K) / T(1)` for the same work, which is 1/E.
    """
    steps = np.full(k.shape, np.nan)
    steps[1:] = np.diff(speedup) / np.diff(k)
    return {
        "percent_of_ceiling": 100.0 * speedup / ceiling if np.isfinite(ceiling) else None,
        "marginal_speedup": steps,
        "relative_cost": 1.0 / efficiency,
    }


def _communication(options: LawOptions, k: Array, serial: float) -> dict[str, object]:
    def time_at(workers: Array) -> Array:
        return laws.communicating_time(
            workers,
            options.term,
            serial_s=serial,
            parallel_s=1.0 - serial,
            alpha_s=options.alpha_s,
            message_bytes=options.message_bytes,
            bandwidth_bytes_per_s=options.bandwidth_bytes_per_s,
            regime=options.regime,
        )

    one = float(time_at(np.array([1.0]))[0])

    def efficiency_at(workers: Array) -> Array:
        if options.regime == "weak":
            return laws.weak_efficiency(time_at(workers), one)
        return laws.strong_efficiency(workers, time_at(workers), 1.0, one)

    efficiency = efficiency_at(k)
    # Efficiency falls with K, so the first whole K below the level is found by halving an interval.
    low, high = 1, 2**40
    if float(efficiency_at(np.array([float(high)]))[0]) >= options.efficiency:
        below = np.inf
    else:
        while high - low > 1:
            middle = (low + high) // 2
            held = float(efficiency_at(np.array([float(middle)]))[0]) >= options.efficiency - 1e-12
            low, high = (middle, high) if held else (low, middle)
        below = float(high)
    grid = np.unique(np.round(2.0 ** np.arange(0.0, 24.0, 0.05)))
    speedup = grid * efficiency_at(grid)
    top = int(np.argmax(speedup))
    ceiling = float(speedup[top]) if top < grid.size - 1 else np.inf
    return {
        "serial_fraction": serial,
        "kappa": None,
        "time": time_at(k),
        "speedup": k * efficiency,
        "efficiency": efficiency,
        "ceiling": ceiling,
        "k_peak": float(grid[top]) if top < grid.size - 1 else np.inf,
        "k_at_efficiency": None,
        "smallest_k_below": below,
        **_worth(k * efficiency, efficiency, ceiling, k),
    }


def _keeps(options: LawOptions, k: Array) -> list[float]:
    """Largest serial fraction (sigma) that holds `keep` at each K; NaN where none does."""
    bound: Array
    if options.law == "gustafson":
        bound = laws.gustafson_serial_for_efficiency(k, options.keep)
    elif options.law == "usl":
        bound = laws.usl_sigma_for_efficiency(k, options.keep, options.kappa[0])
    elif options.law == "communication":
        bound = _keeps_communication(options, k)
    else:
        bound = laws.amdahl_serial_for_efficiency(k, options.keep)
    return [float(x) for x in bound]


def _keeps_communication(options: LawOptions, k: Array) -> Array:
    """Strong: `K (s + (1 - s)/K + c(K)) = (1 + c(1))/e` solved for s. Weak: serial time does not matter."""

    def exchange(workers: Array) -> Array:
        return laws.communication_time(
            workers,
            options.term,
            alpha_s=options.alpha_s,
            message_bytes=options.message_bytes,
            bandwidth_bytes_per_s=options.bandwidth_bytes_per_s,
        )

    one = 1.0 + exchange(np.ones_like(k))
    if options.regime == "weak":
        return np.where(one / (1.0 + exchange(k)) >= options.keep, 1.0, np.nan)
    room = one / options.keep - 1.0 - k * exchange(k)
    bound = np.where(k > 1.0, room / np.maximum(k - 1.0, 1.0), 1.0)
    return np.minimum(np.where(bound >= 0.0, bound, np.nan), 1.0)


def parse_fractions(flag: str, text: str) -> tuple[float, ...]:
    """`0.01,0.05,0.20` as numbers.

    >>> parse_fractions("--serial", "0.01, 0.2")
    (0.01, 0.2)
    """
    found: list[float] = []
    for part in _split(text):
        try:
            found.append(float(part.encode("ascii")))  # digits of other scripts are refused everywhere
        except ValueError:
            raise UsageError(
                f'{flag}: not a number: "{part}"', code="U022", help=f"write {flag} 0.01,0.05,0.20"
            ) from None
    if not found:
        raise UsageError(f"{flag}: nothing given", code="U022", help=f"write {flag} 0.01,0.05,0.20")
    return tuple(found)


def _split(text: str) -> Sequence[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
