"""A request as the job file and the command that ask the same question, for "copy as"."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from perfmodel.web.requests import WhatIf


def job_yaml(request: WhatIf, link: str | None = None) -> str:
    """A job file. Where the network is varied, `cluster` extends the catalogue's, and its scale-out the link's.

    >>> print(job_yaml(WhatIf(workload="resnet50", cluster="dgx-a100", global_batch=4096)), end="")
    workload: resnet50
    cluster: dgx-a100
    k: 1..1024
    regime: strong
    global_batch: 4096
    """
    lines: list[str] = []
    for key, value in _tree(request, link).items():
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
        elif key == "layout" and isinstance(value, Mapping):
            words += ["--layout", ",".join(f"{name}={item}" for name, item in value.items())]
        else:
            words += ["--set", f"{key}={_inline(value)}"]
    if request.seed:
        words += ["--seed", str(request.seed)]
    if request.timings:
        words += ["--beliefs", "beliefs.json"]
    return shlex.join(words)


def _tree(request: WhatIf, link: str | None) -> dict[str, object]:
    """The overrides with `cluster.scale_out.*` unfolded; names are kept, since beliefs go by them."""
    tree: dict[str, object] = {}
    varied: dict[str, object] = {} if link is None else {"extends": link, "name": link}
    for path, value in request.overrides().items():
        if path.startswith("cluster.scale_out."):
            if isinstance(tree["cluster"], str):
                tree["cluster"] = {"extends": tree["cluster"], "name": tree["cluster"], "scale_out": varied}
            varied[path.removeprefix("cluster.scale_out.")] = value
        else:
            tree[path] = value
    return tree


def _lines(key: str, value: object, depth: int) -> list[str]:
    indent = "  " * depth
    if isinstance(value, dict):
        inner = [line for name, item in value.items() for line in _lines(name, item, depth + 1)]
        return [f"{indent}{key}:", *inner]
    return [f"{indent}{key}: {_inline(value)}"]


def _inline(value: object) -> str:
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
