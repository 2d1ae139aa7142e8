"""Who measured a family, and on which half of all publishers its errors count.

A publisher is an organisation with its code base, `nvidia/megatron`: one code, one way to time, one way to label. It is
named by the family, else by its source (`sources.csv`), else it is the source itself. Choices of form are made on the
families of one half of the publishers and reported on those of the other; a name decides, so that nobody can.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

from perfmodel.validate.tables import Row

Half = Literal["choose", "report"]
HALVES: tuple[Half, ...] = get_args(Half)
COLUMN, STACK = "publisher", "stack"


def half_of(publisher: str) -> Half:
    """The half of a publisher: the parity of the SHA-256 digest of its name, even to choose, odd to report.

    >>> half_of("nvidia/megatron"), half_of("nvidia/mlperf"), half_of("csc/ml-benchmarks")
    ('choose', 'report', 'report')
    """
    return HALVES[hashlib.sha256(publisher.encode("utf-8")).digest()[-1] % len(HALVES)]


def with_publisher(family: Row, sources: Mapping[str, Row]) -> Row:
    """The family with its publisher in the column of that name; blank only where its source is blank too.

    What its source states of the software of all its families (`stack`) stands in for what the family leaves blank.
    """
    source = family.text["source"]
    of_source = sources[source].text if source in sources else {}
    found = family.text.get(COLUMN, "") or of_source.get(COLUMN, "") or source
    stack = family.text.get(STACK, "") or of_source.get(STACK, "")
    return replace(family, text={**family.text, COLUMN: found, STACK: stack})
