"""What differs between two jobs, in pieces that can be put into a job one at a time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from perfmodel.decide.gate.changes import Difference, apply, differences

Inputs = Mapping[str, object]

# Words of a job that name it or choose where it is looked at: they change no prediction.
_NAMES = frozenset({"name", "k"})
# Keys that make sense together only.
_BATCH = ("regime", "global_batch", "batch_per_accelerator")
_GROUPS = (
    "layout",
    "price",
    "grid",
    "jitter",
    "reliability",
    "compression",
    "stalls",
    "input",
    "slow_devices",
    "algorithm",
)
# A cluster of another name differs in pieces that one could buy apart; the paths of each start at `cluster`.
_PIECES: dict[str, tuple[tuple[str, ...], ...]] = {
    "accelerator": (("node", "accelerator"),),
    "scale-up": (
        ("node", "scale_up"),
        ("node", "scale_up_domain"),
        ("node", "topology"),
        ("node", "accelerators_per_node"),
    ),
    "network": (
        ("scale_out",),
        ("nics_per_node",),
        ("topology",),
        ("node", "scale_out"),
        ("node", "nics_per_node"),
    ),
}
# Everything else of a node: its host, which draws power and is on the bill.
_HOST = "rest of the node"
_LISTED = 6  # values of one change that are named


@dataclass(frozen=True)
class Change:
    """One input, or inputs that make sense together, with what stands there in A and in B."""

    name: str
    before: str
    after: str
    parts: tuple[Difference, ...]

    @property
    def key(self) -> str:
        """The first key of a job file under which it stands."""
        return self.parts[0].path[0]

    def onto(self, inputs: Inputs) -> dict[str, object]:
        """The inputs with B's values put in."""
        made = dict(inputs)
        for part in self.parts:
            made = apply(made, part)
        return made

    def undone(self) -> Change:
        """The way back."""
        back = tuple(Difference(part.path, part.after, part.before) for part in self.parts)
        return Change(self.name, self.after, self.before, back)


def changes(a: Inputs, b: Inputs, most: float = math.inf) -> list[Change]:
    """Everything in which the job B differs from A, in a fixed order; where that is more than `most`, by first key.

    >>> [(c.name, c.before, c.after) for c in changes({"global_batch": 8, "k": [1]}, {"global_batch": 16, "k": [2]})]
    [('global_batch', '8', '16')]
    """
    keys = sorted({*a, *b} - _NAMES)
    batch = _BATCH if a.get("regime") != b.get("regime") else ()
    found = [_whole("regime and batch", batch, a, b)] if batch else []
    for key in keys:
        old, new = a.get(key), b.get(key)
        if old == new or key in batch:
            continue
        if key in _GROUPS:
            found.append(_whole(key, (key,), a, b))
        elif (
            key == "cluster" and isinstance(old, Mapping) and isinstance(new, Mapping) and _renamed(old, new)
        ):
            found += _pieces(old, new)
        else:
            found += [
                Change(
                    ".".join(part.path), _text(part.path, part.before), _text(part.path, part.after), (part,)
                )
                for part in differences({key: old}, {key: new})
            ]
    return _few([change for change in found if change.parts], a, b, most)


def _few(found: list[Change], a: Inputs, b: Inputs, most: float) -> list[Change]:
    """Changes below one first key reported as one where there are too many to list: a workload is one thing, a cluster less so."""
    keys = Counter(change.key for change in found)
    for key in sorted(keys, key=lambda key: (key != "workload", -keys[key])):
        if len(found) <= most or keys[key] == 1:
            continue
        place = next(i for i, change in enumerate(found) if change.key == key)
        rest = [change for change in found if change.key != key]
        found = [*rest[:place], _whole(key, (key,), a, b), *rest[place:]]
    return found


def _renamed(old: Inputs, new: Inputs) -> bool:
    return old.get("name") != new.get("name")


def _whole(name: str, keys: tuple[str, ...], a: Inputs, b: Inputs) -> Change:
    parts = tuple(Difference((key,), a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key))
    leaves = [leaf for part in parts for leaf in _leaves(part)]
    return Change(name, _list(leaves, "before"), _list(leaves, "after"), parts)


def _leaves(part: Difference) -> list[Difference]:
    if isinstance(part.before, Mapping) and isinstance(part.after, Mapping):
        return differences({part.path[0]: part.before}, {part.path[0]: part.after})
    return [part]


def _list(leaves: list[Difference], side: str) -> str:
    words = []
    for leaf in leaves[:_LISTED]:
        value = _text(leaf.path, getattr(leaf, side))
        words.append(value if len(leaf.path) == 1 else f"{leaf.path[-1]} {value}")
    more = len(leaves) - _LISTED
    return ", ".join([*words, *([f"and {more} more"] if more > 0 else [])])


def _pieces(old: Inputs, new: Inputs) -> list[Change]:
    """A cluster in the pieces that one could swap: accelerator, scale-up links, network, and the rest."""
    found: list[Change] = []
    taken: set[tuple[str, ...]] = set()
    for name, paths in _PIECES.items():
        parts = tuple(
            Difference(("cluster", *path), _at(old, path), _at(new, path))
            for path in paths
            if _at(old, path) != _at(new, path)
        )
        taken.update(paths)
        if parts:
            found.append(Change(f"cluster: {name}", _named(parts, "before"), _named(parts, "after"), parts))
    rest = [
        Difference(("cluster", *path), _at(old, path), _at(new, path))
        for path in _rest(old, new)
        if path not in taken
    ]
    shown = [part for part in rest if part.path[-1] != "name"]
    if rest:
        host = Change(
            f"cluster: {_HOST}", _named(tuple(shown), "before"), _named(tuple(shown), "after"), tuple(rest)
        )
        found.append(host)
    return found


def _rest(old: Inputs, new: Inputs) -> list[tuple[str, ...]]:
    """Paths of the cluster and of its node that differ."""
    tops = [(key,) for key in sorted({*old, *new} - {"node"})]
    node = sorted({key for side in (old, new) if isinstance(at := side.get("node"), Mapping) for key in at})
    paths = [*tops, *(("node", key) for key in node)]
    return [path for path in paths if _at(old, path) != _at(new, path)]


def _at(inputs: Inputs, path: tuple[str, ...]) -> object:
    value: object = inputs
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _named(parts: tuple[Difference, ...], side: str) -> str:
    """Names of the records, and the plain values that have none."""
    words = []
    for part in parts:
        value = getattr(part, side)
        text = _text(part.path, value)
        words.append(text if isinstance(value, Mapping) and value.get("name") else f"{part.path[-1]} {text}")
    return ", ".join(dict.fromkeys(words))


def _text(path: tuple[str, ...], value: object) -> str:
    """The words that the changes of a gate use for a value."""
    return str(Difference(path, value, value)).rpartition(" -> ")[2]
