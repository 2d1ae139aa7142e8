"""Whatever stands in a file, reading it gives a job or a SpecError: no traceback, no endless loop."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import SpecError
from perfmodel.frameworks.document import decoded
from perfmodel.frameworks.draft import truth, whole
from perfmodel.frameworks.reader import read_texts
from perfmodel.frameworks.shell import calculated, read_script

SEEDS = (
    "#SBATCH --nodes=2\nA=(--num-layers 4 --hidden-size 64)\ntorchrun --nnodes 2 pretrain_gpt.py ${A[@]} --bf16\n",
    "[training]\nseq_len = 8\nlocal_batch_size = 2\n[parallelism]\ntensor_parallel_degree = 2\n[job]\nx=1\n",
    '{"zero_optimization": {"stage": 2}, "train_batch_size": 8, "bf16": {"enabled": true}}',
    "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config: {fsdp_version: 2}\n",
    "base_model: a/b\nsequence_len: 8\nmicro_batch_size: 2\nfsdp: [full_shard]\n",
    "per_device_batch_size=2 model_name=llama2-7b ici_fsdp_parallelism=-1\n",
)
PIECES = st.sampled_from(
    ["$", "${", "}", "((", "))", "'", '"', "\\\n", "--", "=", "[", "]", "\t", "-1", "1e99", "nan", "&a", "*a", "!!x",
     "\x00", "if ", "fi\n", "\u2028", "'''"]
)  # fmt: skip


def attempt(text: str) -> None:
    with contextlib.suppress(SpecError):
        read_texts([(text, "x")])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SEEDS), st.integers(0, 200), st.integers(0, 200), PIECES)
def test_broken_files_are_refused_or_read(seed: str, cut: int, at: int, piece: str) -> None:
    attempt(seed[:at] + piece + seed[at : len(seed) - cut % max(len(seed), 1)])


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_random_text(text: str) -> None:
    attempt(text)
    read_script(text)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    try:
        attempt(decoded(data, "x"))
    except SpecError:
        return


@given(st.text(alphabet="0123456789+-*/%() _.eE", max_size=30))
def test_arithmetic_never_raises(text: str) -> None:
    found = calculated(text)
    assert found is None or found.lstrip("-").isdigit()
    for read in (whole, truth):
        try:
            read(text)
        except ValueError:
            continue
