"""A request as the job file and the command that ask the same question, for "copy as"."""

from __future__ import annotations

import json
import shlex
from typing import Any

from perfmodel.web.requests import WhatIf


def job_yaml(request: WhatIf) -> str:
    """A job file. Values that vary the cluster's network stand under `cluster`, which extends the catalogue's.

    >>> print(job_yaml(WhatIf(workload="resnet50", cluster="dgx-a100", global_batch=4096)), end="")
    workload: resnet50
    cluster: dgx-a100
    k: 1..1024
    regime: strong
    global_batch: 4096
    """
    lines: list[str] = []
    for key, value in _tree(request).items():
        lines += _lines(key, value, 0)
    for row in request.timings:
        lines += (
            []
            if lines[-1].startswith("#")
            else ["# calibrated with these steps (perfmodel calibrate --timings):"]
        )
        lines.append(f"#   k: {row.k}, time_s: {row.time_s}")
    return "\n".join(lines) + "\n"


def command(request: WhatIf) -> str:
    """The `perfmodel predict` command.

    >>> command(WhatIf(workload="resnet50", cluster="dgx-a100", bandwidth=25e9))
    "perfmodel predict -w resnet50 -c dgx-a100 -k 1..1024 --set 'cluster.scale_out.bandwidth=25 GB/s'"
    """
    words = ["perfmodel", "predict"]
    flags = {
        "workload": "-w",
        "cluster": "-c",
        "k": "-k",
        "global_batch": "--global-batch",
        "seq_len": "--seq-len",
    }
    flags |= {"precision": "--precision"}
    for key, value in request.overrides().items():
        if key in flags:
            words += [flags[key], str(value)]
        elif key == "regime":
            words += ["--regime", str(value)] if value != "strong" else []
        elif key == "layout":
            words += ["--layout", ",".join(f"{name}={item}" for name, item in value.items())]
        else:
            words += ["--set", f"{key}={_inline(value)}"]
    if request.seed:
        words += ["--seed", str(request.seed)]
    if request.timings:
        words += ["--beliefs", "beliefs.json"]
    return shlex.join(words)


def _tree(request: WhatIf) -> dict[str, Any]:
    """The overrides with dotted paths unfolded."""
    tree: dict[str, Any] = {}
    for path, value in request.overrides().items():
        first, *rest = path.split(".")
        if not rest:
            tree[first] = value
            continue
        if not isinstance(tree.get(first), dict):
            tree[first] = {"extends": tree[first]}
        place = tree[first]
        for part in rest[:-1]:
            place = place.setdefault(part, {})
        place[rest[-1]] = value
    return tree


def _lines(key: str, value: Any, depth: int) -> list[str]:
    indent = "  " * depth
    if isinstance(value, dict):
        inner = [line for name, item in value.items() for line in _lines(name, item, depth + 1)]
        return [f"{indent}{key}:", *inner]
    return [f"{indent}{key}: {_inline(value)}"]


def _inline(value: Any) -> str:
    """A value in YAML's flow form; names and quantities need no quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, str):
        plain = (
            value.replace(" ", "")
            .replace("/", "")
            .replace(".", "")
            .replace("-", "")
            .replace("_", "")
            .isalnum()
        )
        return value if plain and not value.replace(".", "", 1).isdigit() else json.dumps(value)
    return json.dumps(value)
