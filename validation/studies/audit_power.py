"""How well the audit sees: false alarms on honest measured families, and how large a trick must be to be caught."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from perfmodel.beliefs.population import Beliefs, shipped_beliefs
from perfmodel.decide.audit.verdict import audit
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.claims import Claim
from perfmodel.validate import fitting
from perfmodel.validate.corpus import Corpus
from perfmodel.validate.folds import shipped_folds
from perfmodel.validate.resolve import Resolved
from perfmodel.validate.tables import Row
from studies.honest_claims import TRICKS, Trick, claim_of

SIZES = (1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0, 30.0, 100.0)
BeliefsFor = Callable[[Row], Beliefs]


@dataclass(frozen=True)
class Alarm:
    """What an audit of an honest family found, notes left out."""

    family: str
    source: str
    regime: str
    kind: str
    codes: tuple[str, ...]


@dataclass(frozen=True)
class Power:
    """The size from which a trick is caught by its own code, family by family; None where no size tried was."""

    code: str
    words: str
    sizes: tuple[float | None, ...]

    def quantile(self, share: float) -> float | None:
        """The size at which `share` of the families are caught, or None where fewer ever are.

        >>> Power("a", "", (1.2, 1.5, None)).quantile(0.5)
        1.5
        """
        ordered = sorted(size if size is not None else float("inf") for size in self.sizes)
        if not ordered:
            return None
        size = ordered[max(0, math.ceil(share * len(ordered)) - 1)]
        return None if size == float("inf") else size


def held_out(resolved: Resolved) -> BeliefsFor:
    """Beliefs fitted without the group of a family: those of the validation suite."""
    shipped = shipped_beliefs()
    known = fitting.held_out(resolved, shipped_folds(), shipped, "group")
    member = {row.text["group"]: family for family, row in enumerate(resolved.families)}

    def find(row: Row) -> Beliefs:
        family = member.get(row.text["group"])
        return shipped if family is None else known(family)

    return find


def codes_of(claim: Claim, beliefs: Beliefs, catalog: Catalog) -> tuple[str, ...]:
    """Codes of all findings that are more than notes."""
    found = audit(claim, beliefs=beliefs, catalog=catalog).result["findings"]
    return tuple(item["code"] for item in found if item["severity"] != "note")


def honest_claims(corpus: Corpus, catalog: Catalog) -> dict[str, Claim]:
    """Every family that can be told as a claim, by name."""
    points: dict[str, list[Row]] = {}
    for point in corpus.points:
        points.setdefault(point.text["family"], []).append(point)
    found = {}
    for family in corpus.families:
        own = replace(corpus, points=tuple(points.get(family, ())), collectives=())
        claim = claim_of(own, family, catalog)
        if claim is not None:
            found[family] = claim
    return found


def alarms(
    claims: Iterable[tuple[str, Claim]], corpus: Corpus, catalog: Catalog, beliefs_for: BeliefsFor
) -> list[Alarm]:
    """Audit every honest claim."""
    found = []
    for family, claim in claims:
        row = corpus.families[family]
        kind = claim.workload.kind if claim.workload else ""
        codes = codes_of(claim, beliefs_for(row), catalog)
        found.append(Alarm(family, row.text["source"], row.text["regime"], kind, codes))
    return found


def rate(found: Sequence[Alarm]) -> float:
    """Share of families with any alarm."""
    return sum(1 for alarm in found if alarm.codes) / len(found) if found else 0.0


def by_code(found: Sequence[Alarm]) -> dict[str, int]:
    """Families that raised each code, most frequent first."""
    counted = Counter(code for alarm in found for code in set(alarm.codes))
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def applicable(name: str, claim: Claim) -> bool:
    """Whether a trick can be played on a claim: a ratio needs two points, a line three over a factor of four."""
    timed = [point for point in claim.points if point.time_s is not None and point.global_batch is not None]
    if name in ("rates", "peak"):
        return bool(timed)
    if name == "straight":
        return len(timed) >= 3 and timed[-1].k >= 4 * timed[0].k
    return len(timed) >= (3 if name == "baseline" else 2)


def power(trick: Trick, claims: Sequence[tuple[Claim, Beliefs]], catalog: Catalog) -> Power:
    """The smallest of `SIZES` at which each claim is caught; larger sizes are assumed to be caught too."""

    def caught(claim: Claim, beliefs: Beliefs, size: float) -> bool:
        return trick.code in codes_of(trick.apply(claim, size), beliefs, catalog)

    sizes: list[float | None] = []
    for claim, beliefs in claims:
        low, high = 0, len(SIZES)
        while low < high:
            middle = (low + high) // 2
            if caught(claim, beliefs, SIZES[middle]):
                high = middle
            else:
                low = middle + 1
        sizes.append(SIZES[low] if low < len(SIZES) else None)
    return Power(trick.code, trick.words, tuple(sizes))


def powers(
    claims: dict[str, Claim],
    honest: Sequence[Alarm],
    corpus: Corpus,
    catalog: Catalog,
    beliefs_for: BeliefsFor,
    most: int,
) -> list[Power]:
    """Every trick on up to `most` families that raise no alarm by themselves, spread evenly over the corpus."""
    quiet = [alarm.family for alarm in honest if not alarm.codes]
    found = []
    for name, trick in TRICKS.items():
        fit = [family for family in quiet if applicable(name, claims[family])]
        step = max(1, len(fit) // most)
        chosen = [(claims[family], beliefs_for(corpus.families[family])) for family in fit[::step][:most]]
        found.append(power(trick, chosen, catalog))
    return found
