"""The enumeration against brute force, and its rules."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.training import space
from perfmodel.training.rules import REASONS, Refusal, Shape, divides_layers
from perfmodel.training.space import Bounds, Rows

GPT3 = Shape(layers=96, heads=96, experts=1, seq_len=2048, is_transformer=True, node=8, domain=8)
MOE = Shape(layers=32, heads=32, experts=8, seq_len=4096, is_transformer=True, node=8, domain=8)
RESNET = Shape(layers=1, heads=1, experts=1, seq_len=1, is_transformer=False, node=8, domain=8)


def enumerate_rows(shape: Shape, batches: dict[int, int], bounds: Bounds) -> tuple[Rows, dict[str, int]]:
    made = space.enumerate_rows(shape, list(batches), list(batches.values()), bounds)
    return made.rows, made.refused


def brute(shape: Shape, k: int, batch: int, bounds: Bounds) -> set[tuple[int, ...]]:
    """The same set by plain loops over every integer."""
    found = set()
    powers = {2**i for i in range(12)}
    for tp in range(1, min(bounds.max_tp, k) + 1):
        for pp in range(1, min(bounds.max_pp, k, shape.layers) + 1):
            for cp in (1, 2, 4, 8, 16, 32):
                for ep in range(1, shape.experts + 1):
                    if k % (tp * pp * cp) or shape.heads % tp or shape.seq_len % cp or shape.experts % ep:
                        continue
                    if cp > max(shape.seq_len // bounds.shortest_sequence, 1):
                        continue
                    if pp not in powers and not divides_layers(shape.layers, pp):
                        continue
                    dp = k // (tp * pp * cp)
                    if batch < dp or (dp * tp * cp) % ep:
                        continue
                    most = -(-batch // dp)
                    sizes = {n for n in range(1, min(bounds.max_micro_batch, most) + 1) if most % n == 0}
                    sizes |= {
                        p
                        for p in powers
                        if p <= min(bounds.max_micro_batch, most) and not any(p / 2 < n <= p for n in sizes)
                    }
                    for micro in sizes:
                        steps = -(-most // micro)
                        for vpp in range(1, bounds.max_vpp + 1):
                            if vpp > 1 and (pp == 1 or steps % pp):
                                continue
                            if vpp > 1 and not divides_layers(shape.layers, pp * vpp):
                                continue
                            found.add((tp, pp, cp, ep, dp, vpp, micro, steps))
    return found


@pytest.mark.parametrize(
    ("shape", "k", "batch"), [(GPT3, 512, 1536), (GPT3, 96, 48), (MOE, 64, 256), (MOE, 24, 100)]
)
def test_rows_are_exactly_the_divisible_ones(shape: Shape, k: int, batch: int) -> None:
    bounds = Bounds()
    rows, _ = enumerate_rows(shape, {k: batch}, bounds)
    columns = (rows.tp, rows.pp, rows.cp, rows.ep, rows.dp, rows.vpp, rows.micro_batch, rows.accumulation)
    listed = [tuple(int(v) for v in row) for row in zip(*columns, strict=True)]
    assert len(listed) == len(set(listed))
    assert set(listed) == brute(shape, k, batch, bounds)


def test_a_network_that_nothing_else_cuts_tries_its_whole_share_and_halves() -> None:
    rows, _ = enumerate_rows(RESNET, {2: 6 * 1024}, Bounds())
    tried = set(rows.micro_batch.tolist())
    assert {128, 192, 384, 768, 1536, 3072} <= tried
    assert max(tried) == 3072
    bound, _ = enumerate_rows(RESNET, {2: 6 * 1024}, Bounds(max_share=500))
    assert max(bound.micro_batch.tolist()) == 384
    cut, _ = enumerate_rows(GPT3, {1: 6 * 1024}, Bounds())
    assert max(cut.micro_batch.tolist()) == 128


def test_products_hold() -> None:
    rows, _ = enumerate_rows(GPT3, {1024: 1536}, Bounds())
    assert (rows.dp * rows.tp * rows.pp * rows.cp == 1024).all()
    made = rows.dp * rows.micro_batch * rows.accumulation
    assert (made >= 1536).all()
    assert (made - 1536 < rows.dp * rows.micro_batch).all()


def test_refusals_are_counted_by_reason() -> None:
    _, refused = enumerate_rows(GPT3, {1024: 1536}, Bounds())
    assert refused[REASONS[Refusal.DIVISION]] > 0
    assert refused[space.INTERLEAVE] > 0
    _, prime = enumerate_rows(GPT3, {1024: 7}, Bounds())
    assert prime[REASONS[Refusal.BATCH]] > 0


def test_a_model_that_is_not_a_transformer_has_data_parallelism_only() -> None:
    rows, _ = enumerate_rows(RESNET, {16: 256}, Bounds())
    assert set(rows.dp.tolist()) == {16}
    assert rows.micro_batch.tolist() == [1, 2, 4, 8, 16]


def test_no_layout_at_all_gives_empty_rows() -> None:
    rows, refused = enumerate_rows(RESNET, {16: 12}, Bounds())
    assert len(rows) == 0
    assert refused == {REASONS[Refusal.BATCH]: 1}


def test_sharding_rules() -> None:
    rows, _ = enumerate_rows(GPT3, {512: 1536}, Bounds())
    assert space.sharding_allowed(rows, "ddp", 8).all()
    for sharding, reason in (
        ("zero2", space.SHARDED_GRADIENTS),
        ("fsdp", space.SHARDED_PIPELINE),
        ("hsdp", space.SHARDED_PIPELINE),
    ):
        refused, why = space.sharding_refused(rows, sharding)
        assert why == reason
        assert refused[rows.pp > 1].all()
    assert not space.sharding_refused(rows, "zero1")[0].any()
    hybrid = space.sharding_allowed(rows, "hsdp", 8)
    group = space.shard_group(rows, "hsdp", 8)
    assert (group[hybrid] * rows.tp[hybrid] == 8).all()
    alone, _ = enumerate_rows(GPT3, {8: 8}, Bounds())
    single = alone.dp * alone.cp == 1
    assert single.any()
    assert not space.sharding_allowed(alone, "zero1", 8)[single].any()


def test_simplicity_orders_kinds_then_degrees() -> None:
    rows, _ = enumerate_rows(GPT3, {512: 1536}, Bounds())
    score = space.simplicity(rows)
    plain = (rows.tp == 2) & (rows.pp == 1) & (rows.cp == 1)
    mixed = (rows.tp == 2) & (rows.pp == 2) & (rows.cp == 1) & (rows.vpp == 1)
    wide = (rows.tp == 8) & (rows.pp == 1) & (rows.cp == 1)
    assert score[plain].max() < score[wide].min() < score[mixed].min()


def test_a_row_keeps_its_place_whatever_else_is_enumerated() -> None:
    alone, _ = enumerate_rows(GPT3, {96: 1536}, Bounds())
    among, _ = enumerate_rows(GPT3, {8: 1536, 96: 1536, 2048: 1536}, Bounds())
    mine = among.take(np.flatnonzero(among.k == 96))
    for name in ("tp", "pp", "cp", "vpp", "micro_batch", "position"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(mine, name))
    assert (np.diff(among.k) >= 0).all()
