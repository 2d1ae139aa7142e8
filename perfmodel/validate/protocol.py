"""The three modes: what calibrates, what is predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.bands import SLOPES, computing_share, held_back
from perfmodel.beliefs.extrapolation import (
    Asked,
    Joined,
    Laws,
    LawTrust,
    Seen,
    join,
    laws_at,
    need_of_laws,
    population_signs,
)
from perfmodel.beliefs.features import retuned
from perfmodel.beliefs.population import Beliefs
from perfmodel.calibrate.observations import Observations
from perfmodel.calibrate.population import population_logs
from perfmodel.calibrate.posterior import condition_jobs, predict_rows, prior_variances

Array = NDArray[np.float64]
Index = NDArray[np.intp]

MODES = ("datasheet", "one_node", "two_point")


@dataclass(frozen=True)
class Split:
    """Rows of one family that calibrate and rows that are predicted."""

    family: int
    calibration: Index
    target: Index


def split(data: Observations, family: int, mode: str) -> Split | str:
    """Divide a family's rows, or say why the mode does not apply."""
    rows = data.rows[family]
    if mode == "datasheet":
        usable = rows[~data.normalised[rows]]
        return (
            Split(family, rows[:0], usable)
            if usable.size
            else "no batch stated: only ratios over K mean something"
        )
    k = data.at.k[rows]
    if mode == "two_point":
        distinct = np.unique(k)
        if distinct.size < 3:
            return "fewer than three values of K"
        calibrates = k <= distinct[1]
    else:
        calibrates = k <= data.machine.node[rows]
        if not calibrates.any():
            return "no point within one node"
        if calibrates.all():
            return "no point beyond one node"
    return Split(family, rows[calibrates], rows[~calibrates])


@dataclass(frozen=True)
class Scored:
    """Predictions of one mode at the target rows of many families."""

    mode: str
    rows: Index
    predicted: Array  # log
    half: Array  # log half-width of the 90 % band
    signs: Array  # what the band is made of, (n, rows)
    at: Array  # what scales it besides levels, (n, rows): see `Beliefs.band_at`
    calibration: dict[int, Index]  # family -> calibration rows
    skipped: dict[str, str]  # family name -> reason

    def error(self, data: Observations) -> Array:
        """ln(predicted / measured)."""
        return self.predicted - data.target[self.rows]


def score_mode(
    data: Observations, mode: str, ids: Sequence[int], beliefs_for: Callable[[int], Beliefs]
) -> Scored:
    """Predict every family of `ids` in one mode; `beliefs_for` gives the beliefs that did not see the family."""
    splits: list[Split] = []
    skipped: dict[str, str] = {}
    for family in ids:
        found = split(data, family, mode)
        if isinstance(found, str):
            skipped[data.names[family]] = found
        else:
            splits.append(found)
    groups: dict[int, tuple[Beliefs, list[Split]]] = {}
    for item in splits:
        beliefs = beliefs_for(item.family)
        groups.setdefault(id(beliefs), (beliefs, []))[1].append(item)
    rows: list[Index] = []
    predicted: list[Array] = []
    half: list[Array] = []
    signs: list[Array] = []
    scaled: list[Array] = []
    for beliefs, members in groups.values():
        found_rows, value, width, made_of, at = _predict(data, mode, beliefs, members)
        rows.append(found_rows)
        predicted.append(value)
        half.append(width)
        signs.append(made_of)
        scaled.append(at)
    empty: list[Array] = [np.zeros(0)]
    return Scored(
        mode,
        np.concatenate(rows).astype(np.intp) if rows else np.zeros(0, dtype=np.intp),
        np.concatenate(predicted or empty),
        np.concatenate(half or empty),
        np.concatenate(signs, axis=1) if signs else np.zeros((0, 0)),
        np.concatenate(scaled, axis=1) if scaled else np.zeros((len(SLOPES[mode]), 0)),
        {item.family: item.calibration for item in splits},
        skipped,
    )


def _predict(
    data: Observations, mode: str, beliefs: Beliefs, members: list[Split]
) -> tuple[Index, Array, Array, Array, Array]:
    """Rows, log times, log half-widths of their bands, the signs of these, and what scales them."""
    families = [item.family for item in members]
    logs = population_logs(beliefs, data, families)
    prior = prior_variances(beliefs, data, families)
    posterior = None
    if mode != "datasheet":
        posterior = condition_jobs(beliefs, data, families, [item.calibration for item in members], logs)
    rows = np.concatenate([item.target for item in members])
    owner = np.repeat(np.arange(len(members)), [item.target.size for item in members])
    value, sd, slopes = predict_rows(beliefs, data, posterior, logs, rows, owner, prior)
    left_open = prior[owner].T - beliefs.scatter[:, None]
    plain = population_signs(slopes.T, beliefs.scatter, np.maximum(left_open, 0.0))
    computing = computing_share(slopes.T)

    def widths(mode: str, signs: Array) -> tuple[Array, Array]:
        half, at = np.empty(rows.size), np.empty((len(SLOPES[mode]), rows.size))
        for position, family in enumerate(families):
            mine, features = owner == position, data.features[family]
            k = data.at.k[rows[mine]]
            at[:, mine] = beliefs.band_at(mode, features, computing[mine], k)
            spread = beliefs.band_spread(mode, features, signs[:, mine], computing[mine], k)
            half[mine] = beliefs.factor(mode, data.kinds[family]) * spread
        return half, at

    if posterior is None:
        half, at = widths(mode, plain)
        return rows, value, half, plain, at
    untimed = value - (slopes * posterior.mean[owner]).sum(axis=1)
    joined = _join_laws(data, members, logs, value, sd, LawTrust.read(beliefs.meta))
    half, at = widths(mode, joined.signs)
    before, _ = widths("datasheet", plain)
    return rows, joined.value, held_back(half, before, joined.value - untimed), joined.signs, at


def _join_laws(
    data: Observations, members: list[Split], logs: Array, value: Array, sd: Array, trust: LawTrust
) -> Joined:
    """Join the laws through each family's calibration points at its target rows; `logs` are population centres."""
    seen = np.concatenate([item.calibration for item in members])
    owner = np.repeat(np.arange(len(members)), [item.calibration.size for item in members])
    surprise = np.split(
        data.target[seen] - data.model(logs[:, owner], seen), np.flatnonzero(np.diff(owner)) + 1
    )
    values, signs, start = [], [], 0
    for item, errors in zip(members, surprise, strict=True):
        rows, target = item.calibration, item.target
        part = slice(start, start + target.size)
        start += target.size
        laws = laws_of(data, rows, target, trust, need_of_laws(errors, data.at.k[rows]))
        work = np.log(accelerator_time(data, target, np.zeros(target.size)))
        found = join(value[part], sd[part], laws.log_tau - work, laws)
        values.append(found.value)
        signs.append(found.signs)
    return Joined(np.concatenate(values), np.concatenate(signs, axis=1))


def laws_of(data: Observations, rows: Index, target: Index, trust: LawTrust, need: float = 1.0) -> Laws:
    """The laws through the calibration `rows` of one family at its `target` rows."""
    at, machine = data.at, data.machine
    batch = at.global_batch / at.k
    seen = Seen(at.k[rows], accelerator_time(data, rows, data.target[rows]), batch[rows])
    asked = Asked(
        at.k[target],
        batch[target],
        machine.node[target],
        machine.shared_bus[target],
        retuned(data.features[int(data.family[target[0]])]),
    )
    return laws_at(seen, asked, trust, need)


def accelerator_time(data: Observations, rows: Index, log_time: Array) -> Array:
    """k T / work of each row; work counts tokens where sequences have a length."""
    work = data.at.global_batch[rows] * data.ops.tokens[rows]
    return np.asarray(np.exp(log_time) * data.at.k[rows] / work)
