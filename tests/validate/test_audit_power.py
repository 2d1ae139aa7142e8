"""The audit on measured families: few false alarms, and tricks that are seen from a stated size on."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from studies.audit_power import (
    Alarm,
    BeliefsFor,
    Power,
    alarms,
    applicable,
    by_code,
    codes_of,
    held_out,
    honest_claims,
    power,
    rate,
)
from studies.honest_claims import TRICKS

from perfmodel.physics.machine import machine
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.claims import Claim
from perfmodel.validate.corpus import Corpus
from perfmodel.validate.fitting import measured_groups
from perfmodel.validate.resolve import Resolved

CATALOG = Catalog.default()
PAGE = Path(__file__).parents[2] / "docs" / "audit-power.md"


@pytest.fixture(scope="module")
def beliefs_for(resolved: Resolved) -> BeliefsFor:
    return held_out(resolved)


def test_beliefs_do_not_count_the_group_that_they_have_not_seen(
    corpus: Corpus, resolved: Resolved, beliefs_for: BeliefsFor
) -> None:
    everything = measured_groups(resolved, np.ones(len(resolved.families), dtype=bool))
    row = corpus.families["mxnet-alexnet-p2.16xlarge"]
    seen = beliefs_for(row).groups
    assert sum(seen.values()) < sum(everything.values())
    assert all(count <= everything[cell] for cell, count in seen.items())


@pytest.fixture(scope="module")
def claims(corpus: Corpus) -> dict[str, Claim]:
    return honest_claims(corpus, CATALOG)


def test_a_share_that_is_recomputed_is_claimed_as_that_share(
    corpus: Corpus, claims: dict[str, Claim]
) -> None:
    shares: dict[str, set[str]] = {}
    for point in corpus.points:
        shares.setdefault(point.text["family"], set()).add(point.text["recompute"])
    for share in ("0.09", "0.26", "0.55"):
        told = [claims[family] for family, cells in shares.items() if cells == {share} and family in claims]
        assert told, share
        assert {point.recompute for claim in told for point in claim.points} == {float(share)}


def test_a_family_is_audited_on_the_machine_on_which_it_is_validated(
    corpus: Corpus, resolved: Resolved, claims: dict[str, Claim]
) -> None:
    data = resolved.observations
    first = {
        row.text["family"]: data.rows[i][0] for i, row in enumerate(resolved.families) if data.rows[i].size
    }
    for family, point in first.items():
        claim = claims.get(family)
        if claim is None:
            continue
        cluster = claim.cluster
        assert cluster is not None
        found = machine(cluster, claim.precision or "bf16")
        assert found.domain == data.machine.domain[point], family
        if cluster.scale_out is not None or cluster.network_per_node is not None:
            assert found.out_bytes_per_s == pytest.approx(data.machine.out_bytes_per_s[point]), family
            assert found.out_latency_s == pytest.approx(data.machine.out_latency_s[point]), family
        else:
            row = corpus.families[family]
            assert (row.text["scale_out"], row.number["network_gbit_per_s_per_node"]) == ("", None)


def test_nearly_every_family_can_be_told_as_a_claim(corpus: Corpus, claims: dict[str, Claim]) -> None:
    assert len(claims) > 0.95 * len(corpus.families)
    relative = [claim for claim in claims.values() if claim.baseline is not None]
    assert relative
    assert all(
        point.speedup is not None and point.time_s is None for claim in relative for point in claim.points
    )


def test_the_published_rate_keeps_its_limit() -> None:
    found = re.search(r"([\d.]+)% of (\d+) honest families raise an alarm", PAGE.read_text(encoding="utf-8"))
    assert found is not None
    assert float(found[1]) <= 5.0
    assert int(found[2]) > 1000


def test_false_alarms_on_a_sample_are_few(
    corpus: Corpus, claims: dict[str, Claim], beliefs_for: BeliefsFor
) -> None:
    sample = list(claims.items())[7::90]
    found = alarms(sample, corpus, CATALOG, beliefs_for)
    # 5 % of 15 is 0.8; three or more have a chance below 5 % even at the limit.
    assert len(found) >= 15
    assert sum(1 for alarm in found if alarm.codes) <= 2, by_code(found)


@pytest.mark.parametrize(
    ("name", "size"), [("superlinear", 2.0), ("batch", 2.0), ("baseline", 3.0), ("peak", 100.0)]
)
def test_a_large_trick_is_caught_and_an_honest_claim_is_not(
    corpus: Corpus, claims: dict[str, Claim], beliefs_for: BeliefsFor, name: str, size: float
) -> None:
    trick = TRICKS[name]
    family = [family for family, claim in claims.items() if applicable(name, claim)][3]
    beliefs = beliefs_for(corpus.families[family])
    assert trick.code not in codes_of(claims[family], beliefs, CATALOG), family
    assert trick.code in codes_of(trick.apply(claims[family], size), beliefs, CATALOG), family
    found = power(trick, [(claims[family], beliefs)], CATALOG)
    assert found.sizes[0] is not None
    assert found.sizes[0] <= size


def test_counting() -> None:
    found = [Alarm("a", "s", "weak", "convnet", ("x", "y")), Alarm("b", "s", "weak", "convnet", ())]
    assert rate(found) == 0.5
    assert rate([]) == 0.0
    assert by_code(found) == {"x": 1, "y": 1}
    assert Power("a", "", (1.1, 1.2, 1.3, None)).quantile(0.5) == 1.2
    assert Power("a", "", (1.1, 1.2, 1.3, None)).quantile(0.9) is None
    assert Power("a", "", ()).quantile(0.5) is None
