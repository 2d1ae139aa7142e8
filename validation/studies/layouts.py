"""Does the model choose layouts as measurement would? Pairs that were measured, and searches beside the authors' choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import Beliefs
from perfmodel.calibrate.observations import Observations
from perfmodel.calibrate.population import population_logs
from perfmodel.decide.energy import PowerModel
from perfmodel.decide.plan.candidates import Limits, Target, Task
from perfmodel.decide.plan.search import run_task
from perfmodel.decide.pricing import on_demand
from perfmodel.physics.coefficients import from_logs
from perfmodel.physics.layouts import pick
from perfmodel.physics.operations import TRANSFORMER_KINDS, take
from perfmodel.training.curve import describe
from perfmodel.training.rules import Shape
from perfmodel.training.space import Bounds
from perfmodel.validate.protocol import Scored
from perfmodel.validate.resolve import Resolved

Array = NDArray[np.float64]
Index = NDArray[np.intp]

GAP = (
    0.10  # two layouts whose measured throughputs differ by less cannot be told apart by a measurement either
)
_LAYOUT = ("tp", "pp", "cp", "ep", "vpp", "micro_batch", "accumulation", "sharding", "recompute", "dp")
_SAME = ("source", "workload", "accelerator", "accelerators_per_node", "precision", "framework_class")


@dataclass(frozen=True)
class Ordering:
    """How often the model orders two measured layouts as the measurement does."""

    pairs: int
    agree: int

    @property
    def share(self) -> float | None:
        """Agreeing share; None without pairs."""
        return self.agree / self.pairs if self.pairs else None


def ordering(resolved: Resolved, scored: Scored) -> dict[str, Any]:
    """Pairs of layouts of one model on one machine at one K and batch, by one source, that differ by `GAP`.

    `scored` holds held-out predictions (datasheet mode: nothing of the family is known). Sources that measured
    many pairs would drown the others, so the share is also given with every (source, workload) weighing the same.
    """
    data = resolved.observations
    groups: dict[tuple[Any, ...], list[int]] = {}
    for position, row in enumerate(scored.rows):
        family = resolved.families[int(data.family[row])]
        if data.kinds[int(data.family[row])] not in TRANSFORMER_KINDS or data.normalised[row]:
            continue
        size = (float(data.at.k[row]), float(data.ops.tokens[row]), float(data.at.global_batch[row]))
        key = (*(family.text[name] for name in _SAME), *size)
        groups.setdefault(key, []).append(position)
    by: dict[str, dict[str, Ordering]] = {}
    for key, positions in groups.items():
        found = _pairs(data, scored, np.array(positions))
        if found.pairs:
            table = by.setdefault(str(key[0]), {})
            before = table.get(str(key[1]), Ordering(0, 0))
            table[str(key[1])] = Ordering(before.pairs + found.pairs, before.agree + found.agree)
    sources = {
        source: Ordering(sum(o.pairs for o in table.values()), sum(o.agree for o in table.values()))
        for source, table in sorted(by.items())
    }
    shares = [o.agree / o.pairs for table in by.values() for o in table.values()]
    total = Ordering(sum(o.pairs for o in sources.values()), sum(o.agree for o in sources.values()))
    return {
        "pairs": total.pairs,
        "agree": total.agree,
        "share": total.share,
        "share_by_model": float(np.mean(shares)) if shares else None,
        "models": len(shares),
        "by_source": {
            name: {"pairs": o.pairs, "agree": o.agree, "share": o.share} for name, o in sources.items()
        },
    }


def _pairs(data: Observations, scored: Scored, positions: Index) -> Ordering:
    """Pairs of distinct layouts of one group; a layout that was run several times counts once, by its mean."""
    rows = scored.rows[positions]
    columns = [np.broadcast_to(getattr(data.at, name), data.target.shape)[rows] for name in _LAYOUT]
    layout = np.nan_to_num(np.stack(columns, axis=1), nan=-1.0)
    distinct, which = np.unique(layout, axis=0, return_inverse=True)
    runs = np.bincount(which.ravel(), minlength=len(distinct))
    measured, predicted = (
        np.bincount(which.ravel(), weights=values, minlength=len(distinct)) / runs
        for values in (data.target[rows], scored.predicted[positions])
    )
    i, j = np.triu_indices(len(distinct), k=1)
    differ = np.abs(measured[i] - measured[j]) > np.log1p(GAP)
    same_way = np.sign(measured[i] - measured[j]) == np.sign(predicted[i] - predicted[j])
    return Ordering(int(differ.sum()), int((differ & same_way).sum()))


def search_beside(
    resolved: Resolved,
    beliefs_for: Callable[[int], Beliefs],
    rows: Sequence[int],
) -> list[dict[str, Any]]:
    """For measured runs, the layout that a search finds at the same K and batch, beside the authors' own."""
    data = resolved.observations
    found = []
    for row in rows:
        family = int(data.family[row])
        logs = population_logs(beliefs_for(family), data, [family])[:, 0]
        at = np.array([row])
        target = _target(resolved, row, logs)
        k = int(data.at.k[row])
        task = Task(0, (k,), "time", 1, Limits(), Bounds())
        best = run_task(target, task).best
        theirs = float(np.exp(data.model(logs[:, None], at)[0]))
        meta = resolved.families[family].text
        found.append(
            {
                "source": meta["source"],
                "workload": meta["workload"],
                "accelerator": meta["accelerator"],
                "k": k,
                "global_batch": float(data.at.global_batch[row]),
                "measured_s": float(np.exp(data.target[row])),
                "theirs": describe(pick(data.at, at), 0),
                "theirs_s": theirs,
                "found": best[0].layout() if best else None,
                "found_s": best[0].time_s if best else None,
            }
        )
    return found


def _target(resolved: Resolved, row: int, logs: Array) -> Target:
    data = resolved.observations
    machine = pick(data.machine, row)
    ops = take(data.ops, np.array(row))
    batch, k = round(float(data.at.global_batch[row])), int(data.at.k[row])
    return Target(
        name=resolved.families[int(data.family[row])].text["family"],
        ops=ops,
        machine=machine,
        coefficients=from_logs(logs),
        shape=Shape(
            layers=int(ops.layers),
            heads=int(ops.heads),
            experts=int(ops.experts),
            seq_len=int(ops.tokens),
            is_transformer=bool(ops.is_transformer > 0),
            node=int(machine.node),
            domain=int(machine.domain),
        ),
        tariff=on_demand(0.0),
        power=PowerModel(1.0, 0.0),
        global_batch={k: batch},
        work={k: 1.0},
        declared={
            name: float(np.broadcast_to(getattr(data.at, name), data.target.shape)[row])
            for name in ("bucket_bytes", "gradient_bytes")
        },
    )
