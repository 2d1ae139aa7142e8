"""The library of claims: honest published runs stay consistent, each trick is caught by its own code."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfmodel.decide.audit.findings import QUESTIONS
from perfmodel.decide.audit.verdict import audit
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.claims import load_claim

CLAIMS = sorted((Path(__file__).parents[2] / "claims").glob("*.yaml"))
CATALOG = Catalog.default()


def expected(path: Path) -> tuple[str, set[str]]:
    """`# expect: VERDICT CODE ...` on the first line."""
    verdict, *codes = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# expect: ").split()
    return verdict, set(codes)


@pytest.mark.parametrize("path", CLAIMS, ids=lambda path: path.stem)
def test_verdict_and_code(path: Path) -> None:
    verdict, codes = expected(path)
    result = audit(load_claim(path, catalog=CATALOG), catalog=CATALOG).result
    weighty = {finding["code"]: finding for finding in result["findings"] if finding["severity"] != "note"}
    assert result["verdict"] == verdict, weighty
    assert codes <= set(weighty)
    if verdict == "consistent":
        assert weighty == {}


def test_the_library_is_large_and_covers_every_code() -> None:
    named = {path.stem.split("-")[0] for path in CLAIMS}
    assert named == {"honest", "trick", "impossible"}
    assert len(CLAIMS) >= 25
    caught = set().union(*(expected(path)[1] for path in CLAIMS))
    notes = {code for code in QUESTIONS if code.endswith(("-missing", "-stated", "-checked"))}
    assert set(QUESTIONS) - notes <= caught


def test_honest_claims_name_their_source() -> None:
    for path in CLAIMS:
        if path.stem.startswith("honest"):
            assert load_claim(path, catalog=CATALOG).source
