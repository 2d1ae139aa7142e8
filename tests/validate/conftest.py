"""The shipped corpus, read and resolved once: nothing that holds it can be changed."""

from __future__ import annotations

import pytest

from perfmodel.specs.catalog import Catalog
from perfmodel.validate.corpus import Corpus, read_corpus
from perfmodel.validate.resolve import Resolved, resolve
from perfmodel.validate.validation import shipped_corpus


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    return read_corpus(shipped_corpus())


@pytest.fixture(scope="session")
def resolved(corpus: Corpus) -> Resolved:
    return resolve(corpus, Catalog.default())
