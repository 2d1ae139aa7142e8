"""Measured runs with prefill on replicas of its own, beside predictions that nothing of the kind was fitted to.

python validation/serving_pools.py    # prints the errors; seconds

Only rows whose note states how many replicas each pool has can be predicted. They wait apart from the rows that are
scored by `perfmodel validate`: nothing of them shaped any coefficient. Lengths are those of their source (0.9 of the
nominal ones, ten requests for each in flight).
"""

from __future__ import annotations

import ast
import csv
import re
import sys
from pathlib import Path

import numpy as np

from perfmodel.decide.serving.pool_ratio import pooled
from perfmodel.errors import SpecError
from perfmodel.physics.serving import CLOSED, serving_answer
from perfmodel.serving.beliefs import shipped_beliefs
from perfmodel.serving.setup import service_of
from perfmodel.specs.jobs import load_any_job
from perfmodel.specs.serving import ServedLayout, ServingJob

ROWS = Path(__file__).parent / "measured" / "serving" / "runs.csv"
CLUSTERS = {
    "GB200 NVL72": "gb200-nvl72",
    "GB300 NVL72": "gb300-nvl72",
    "B200 SXM": "dgx-b200",
    "H200 SXM": "hgx-h200",
    "H100 SXM": "dgx-h100",
}
MODELS = {
    "deepseek-ai/DeepSeek-R1": "deepseek-v3",
    "deepseek-ai/DeepSeek-V3": "deepseek-v3",
    "openai/gpt-oss-120b": "gpt-oss-120b",
}
ENGINES = {"trtllm": "tensorrt-llm", "sglang": "sglang"}
POOLS = re.compile(r"batch=(\[.*?\]) decode=(\[.*?\])")
LENGTH_SHARE, WAVES = 0.9, 10.0


def layout(numbers: list[int]) -> ServedLayout:
    """Of workers, tp, pp, dp, expert tensor ranks, expert ranks, batch: experts lie on all ranks of a stage or are cut by them."""
    _, tp, pp, dp, _, expert_ranks, _ = numbers
    return ServedLayout(tp=tp, pp=pp, dp=dp, ep=tp * dp if expert_ranks > 1 or dp > 1 else 1)


def ratios(row: dict[str, str]) -> tuple[float, float, float] | None:
    """Predicted over measured time per token, first token and throughput; None for a row that leaves its pools open."""
    found = POOLS.search(row["note"])
    if row["disagg"] != "True" or found is None or row["model"] not in MODELS:
        return None
    prefill, decode = (ast.literal_eval(part) for part in found.groups())
    if "" in (prefill[0], decode[0]):
        return None
    inputs, outputs = (LENGTH_SHARE * float(row[key]) for key in ("isl", "osl"))
    flight = float(row["concurrency"])
    job = load_any_job(
        {
            "workload": MODELS[row["model"]],
            "cluster": CLUSTERS[row["accelerator"]],
            "serving": {
                "engine": ENGINES[row["engine"]],
                "date": row["date"],
                "precision": row["precision"],
                "input_tokens": inputs,
                "output_tokens": outputs,
                "prefill": "disaggregated",
            },
        }
    )
    assert isinstance(job, ServingJob)
    service = service_of(job, shipped_beliefs())
    group = pooled(layout(decode), layout(prefill), prefill[0], decode[0])
    load = service.load(CLOSED, concurrency=flight, requests=WAVES * flight)
    answer = serving_answer(
        service.shape, service.machine, service.deployment([group]), load, service.coefficients
    )
    token, first = float(row["tpot_mean_s"]), float(row["ttft_mean_s"])
    made = flight * outputs / (first + (outputs - 1.0) * token)
    return (
        float(answer.tpot_s) / token,
        float(answer.ttft_s) / first,
        float(answer.throughput_out_tokens_per_s) / made,
    )


def main() -> int:
    """Median, mean and 90th percentile of the error, and the median ratio."""
    found = []
    with ROWS.open(encoding="utf-8", newline="") as text:
        for row in csv.DictReader(text):
            try:
                ratio = ratios(row)
            except SpecError as error:
                print(f"not predicted: {row['model']} on {row['accelerator']}: {error}", file=sys.stderr)
                continue
            if ratio is not None and np.isfinite(ratio).all():
                found.append(ratio)
    values = np.array(found)
    errors = np.abs(values - 1.0)
    print(
        f"{len(found)} runs with both pools stated: median / mean / 90th percentile of the error, median ratio"
    )
    for column, name in enumerate(("time per token", "first token", "throughput")):
        one = 100.0 * errors[:, column]
        print(
            f"{name:15s} {np.median(one):5.1f} / {one.mean():5.1f} / {np.quantile(one, 0.9):5.1f} %   x{np.median(values[:, column]):.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
