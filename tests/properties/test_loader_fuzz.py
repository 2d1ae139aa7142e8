"""Whatever stands in a file: a model or a SpecError, never another exception."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import Problem, SpecError
from perfmodel.specs.catalog import KINDS, MODELS, Catalog
from perfmodel.specs.claims import Claim, claim_from_tree
from perfmodel.specs.jobs import job_from_tree
from perfmodel.specs.loader import Mark, Source, Tree, graft, parse_text
from perfmodel.specs.policies import load_policies

CATALOG = Catalog.default()

WORDS = sorted({key for model in MODELS.values() for key in model.model_fields} | {"extends", "value", "k", "layout", "workload", "cluster", "points", "jobs", "policies", "file", "tp", "price", "grid"})  # fmt: skip
NAMES = ["h100-sxm5-80gb", "dgx-h100", "ib-ndr", "llama3-8b", "resnet50", "US-VA", "auto", "1..64", "80 GB", "3 TB/s", "2 us", "400 Gb/s", "2 USD/h", "bf16"]  # fmt: skip
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(max_size=12)
    | st.sampled_from(NAMES)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=6), inner, max_size=6)
    ),
    max_leaves=20,
)
mappings = st.dictionaries(st.sampled_from(WORDS), values, max_size=10)


def as_tree(data: object) -> Tree:
    return graft(data, Mark(Source("fuzz.yaml", ("fuzz",)), 1, 1))


def problems_of(read: Callable[[], object]) -> tuple[Problem, ...] | None:
    """None where it was read; else what was said. Any other exception fails the test."""
    try:
        read()
    except SpecError as error:
        return error.problems
    return None


@settings(deadline=None, max_examples=60)
@given(data=values | mappings, kind=st.sampled_from(KINDS))
def test_catalogue_models(data: object, kind: str) -> None:
    said = problems_of(lambda: CATALOG.build(kind, as_tree(data)))
    assert said is None or (said and all(item.message and item.code.startswith("S") for item in said))


@settings(deadline=None, max_examples=50)
@given(data=mappings, base=st.sampled_from([{}, {"workload": "llama3-8b", "cluster": "dgx-h100"}]))
def test_jobs_and_claims(data: dict[str, object], base: dict[str, object]) -> None:
    deep = {f"{key}.x": item for key, item in data.items()}
    for read in (
        lambda: job_from_tree(as_tree({**data, **base}), Path(), CATALOG, {}),
        lambda: job_from_tree(as_tree(base), Path(), CATALOG, deep),
        lambda: claim_from_tree(Claim, as_tree({**data, **base}), Path(), CATALOG),
    ):
        assert problems_of(read) != ()


@settings(deadline=None, max_examples=300)
@given(text=st.text(max_size=80) | st.text(alphabet="{}[]:,-&*!|>#'\"%@` \n\tab1.?", max_size=60))
def test_any_text_is_read_or_refused_with_a_line(text: str) -> None:
    said = problems_of(lambda: parse_text(text, "x.yaml").plain())
    assert said is None or all(item.file == "x.yaml" and item.line for item in said)


@settings(deadline=None, max_examples=60)
@given(data=st.binary(max_size=60))
def test_any_bytes_in_a_policy_file(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "perfmodel.yaml"
        path.write_bytes(data)
        assert problems_of(lambda: load_policies(path)) != ()
