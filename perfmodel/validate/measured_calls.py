"""Calls of the measured corpus that were made on a given machine, to stand beside what a model says of them."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.explain.one_collective import Measurement
from perfmodel.specs.hardware import Cluster
from perfmodel.validate.corpus import SWEEP_COLUMNS
from perfmodel.validate.tables import Row, read_table
from perfmodel.validate.validation import shipped_corpus

NEAR = 8.0  # times a size that is asked for, up or down: a call beyond it says little of it
MOST = 24  # calls shown


def measured_calls(
    op: str, ranks: Sequence[int], sizes: Sequence[float], cluster: Cluster
) -> list[Measurement]:
    """Measured times of `op` on the cluster's accelerator and links, among as many ranks, at sizes near those asked for."""
    path = shipped_corpus() / "collectives.csv"
    if not path.is_file():
        return []
    found = [
        Measurement(
            row.get("bytes", 0.0),
            int(row.get("ranks", 1.0)),
            int(row.get("nodes", 1.0)),
            row.text.get("algorithm", ""),
            row.get("time_s", 0.0),
            row.text.get("source", ""),
        )
        for row in read_table(path, SWEEP_COLUMNS, []).rows
        if row.text["op"] == op and int(row.get("ranks", 0.0)) in ranks and _there(row, cluster)
    ]
    near = [m for m in found if any(size / NEAR <= m.message_bytes <= size * NEAR for size in sizes)]
    near.sort(key=lambda m: (m.ranks, m.message_bytes, m.source, m.algorithm, m.time_s))
    step = -(-len(near) // MOST) if near else 1  # an even choice where there are many
    return near[::step]


def _there(row: Row, cluster: Cluster) -> bool:
    """Whether a row was measured on such accelerators, such nodes and, across nodes, such a network."""
    node, network = cluster.node, cluster.network
    if row.text["accelerator"] != node.accelerator.name:
        return False
    if row.get("accelerators_per_node", node.accelerators_per_node) != node.accelerators_per_node:
        return False
    if row.get("nodes", 1.0) > 1.0:
        return network is not None and row.text["scale_out"] in ("", network.name)
    return node.scale_up is None or row.text["scale_up"] in ("", node.scale_up.name)
