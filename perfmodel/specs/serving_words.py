"""A serving job as people write it, brought to its long form: short forms, traces, defaults, and what it may not hold."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from perfmodel.errors import Problem, SpecError
from perfmodel.specs.catalog import Catalog, Resolution
from perfmodel.specs.checking import build
from perfmodel.specs.loader import Tree, graft
from perfmodel.specs.prices import resolve_price
from perfmodel.specs.serving import TRAINING_ONLY, ServingFile, ServingJob
from perfmodel.specs.usual import completed

KEY: Final = "serving"
_USUAL_OFFLINE: Final = 1000  # requests of an offline run whose length nobody states
# Columns of a trace by what is wanted of it; the first that a file has counts.
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "input_tokens": ("input_tokens", "prompt_tokens", "num_prefill_tokens", "ContextTokens"),
    "output_tokens": ("output_tokens", "completion_tokens", "num_decode_tokens", "GeneratedTokens"),
    "arrivals": ("arrival_s", "arrived_at", "timestamp_s"),
}
_LEAST_ROWS: Final = 2
#: Kinds of workload that are served token by token.
SERVED_KINDS: Final = frozenset({"decoder-transformer", "moe-transformer", "hybrid-mamba-transformer"})


def is_serving(tree: Tree) -> bool:
    """Whether a job file is one of a service."""
    return tree.get(KEY) is not None


def serving_job(resolved: Resolution, folder: Path, catalog: Catalog, default_name: str | None) -> ServingJob:
    """The serving job of a tree whose workload, cluster and grid are looked up; every problem at once."""
    tree = _moved(resolved)
    tree = _price(tree)
    tree = _block(tree, folder, resolved.problems)
    spec = build(ServingFile, tree, resolved.bad, resolved.problems)
    notes: list[str] = []
    price, problems = resolve_price(spec.price, spec.cluster, catalog, tree.mark_at("price"))
    problems = [*problems, *_contradictions(spec, tree)]
    if problems:
        raise SpecError(problems)
    if price.note:
        notes.append(f"price: {price.note}")
    cluster, network = completed(spec.cluster, catalog)
    layout = spec.serving.layout
    if layout is not None and layout.accelerators > cluster.node.accelerators_per_node:
        notes.extend(network)
    if spec.serving.engine is None:
        notes.append(
            "serving.engine is not given: limits are those of the most used engine, and bands are wider"
        )
    made = ServingJob(
        name=spec.name or default_name or f"{spec.workload.name}-on-{spec.cluster.name}",
        workload=spec.workload,
        cluster=cluster,
        serving=spec.serving,
        price=price,
        grid=spec.grid,
        notes=tuple(notes),
    )
    made._tree = tree
    return made


def _moved(resolved: Resolution) -> Tree:
    """Without the keys of training, which are refused; `precision` and `layout` of the job are those of the block."""
    tree = resolved.tree
    for key, instead in TRAINING_ONLY.items():
        if tree.get(key) is None:
            continue
        mark = tree.keys.get(key, tree.mark)
        message = f'"{key}" is a key of training jobs, and this job serves'
        resolved.problems.append(mark.problem("S010", message, instead))
        tree = tree.without(key)
    block = tree.get(KEY)
    for key in ("precision", "layout"):
        item = tree.get(key)
        if item is None:
            continue
        tree = tree.without(key)
        if block is None or not isinstance(block.value, dict):
            continue
        if block.get(key) is not None and item.mark.line is not None:
            message = f"{key} is given twice: here and in serving.{key}"
            resolved.problems.append(item.mark.problem("S010", message, "keep that of serving"))
        block = block.with_item(key, item)  # a flag wins over the file
        block.keys[key] = item.mark
    return tree if block is None else tree.with_item(KEY, block)


def _price(tree: Tree) -> Tree:
    price = tree.get("price")
    if price is not None and isinstance(price.value, (str, int, float)) and not isinstance(price.value, bool):
        return tree.with_item(
            "price", Tree({"per_accelerator": price}, price.mark, {"per_accelerator": price.mark})
        )
    return tree


def _block(tree: Tree, folder: Path, problems: list[Problem]) -> Tree:
    """The short forms of the block in their long form."""
    block = tree.get(KEY)
    if block is None or not isinstance(block.value, dict):
        return tree
    for key in ("input_tokens", "output_tokens"):
        item = block.get(key)
        if item is not None:
            block = _with(block, key, _lengths(item, key, folder, problems))
    layout = block.get("layout")
    if layout is not None and isinstance(layout.value, str):
        if layout.value != "auto":
            message = f'"{layout.value}" is not a layout'
            problems.append(
                layout.mark.problem("S011", message, "write auto, or {tp: 8, pp: 1, replicas: 2}")
            )
        block = block.without("layout")
    load = block.get("load")
    if load is not None:
        block = _with(block, "load", _load(load, block, folder, problems))
        if load.value == "offline" or load.get("offline") is not None:
            block = block.without("requests") if load.value == "offline" else block
    return tree.with_item(KEY, block)


def _with(block: Tree, key: str, item: Tree | None) -> Tree:
    return block.without(key) if item is None else block.with_item(key, item)


def _lengths(item: Tree, key: str, folder: Path, problems: list[Problem]) -> Tree:
    file = item.get("file")
    if file is None:
        if isinstance(item.value, (int, float, str)) and not isinstance(item.value, bool):
            return Tree({"mean": item}, item.mark, {"mean": item.mark})
        return item
    values = _column(file, key, folder, problems)
    if values is None:
        return graft({"mean": 1.0}, item.mark)
    mean = statistics.fmean(values)
    return graft(
        {"mean": max(mean, 1.0), "spread": statistics.pstdev(values) / mean if mean else 0.0}, item.mark
    )


def _load(load: Tree, block: Tree, folder: Path, problems: list[Problem]) -> Tree | None:
    """`offline`, `{offline: {requests: N}}` and `arrivals: {file: trace.csv}` in their long forms."""
    if load.value == "auto":
        return None
    if load.value == "offline":
        count = block.get("requests") or graft(_USUAL_OFFLINE, load.mark)
        return Tree({"offline": count}, load.mark, {"offline": load.mark})
    offline = load.get("offline")
    inner = offline.get("requests") if offline is not None else None
    if inner is not None:
        load = load.with_item("offline", inner)
    arrivals = load.get("arrivals")
    file = arrivals.get("file") if arrivals is not None else None
    if arrivals is None or file is None:
        return load
    times = _column(file, "arrivals", folder, problems)
    if times is None:
        return load.without("arrivals")
    gaps = [late - early for early, late in zip(sorted(times), sorted(times)[1:], strict=False)]
    mean = statistics.fmean(gaps)
    cv = statistics.pstdev(gaps) / mean if mean > 0.0 else 1.0
    return load.with_item("arrivals", graft(min(max(cv, 0.01), 10.0), arrivals.mark))


def _column(file: Tree, wanted: str, folder: Path, problems: list[Problem]) -> Sequence[float] | None:
    """A column of a trace; what is wrong with the file goes to `problems`."""
    if not isinstance(file.value, str):
        problems.append(file.mark.problem("S005", "expected a file name"))
        return None
    path = folder / file.value
    if not path.is_file():
        problems.append(
            file.mark.problem("S012", f"no file {path}", "file names start at the job file's folder")
        )
        return None
    try:
        with path.open(encoding="utf-8-sig", newline="") as text:
            rows = list(csv.DictReader(text))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        problems.append(Problem(str(path), None, None, "S012", f"cannot be read as a table: {error}"))
        return None
    names = rows[0].keys() if rows else ()
    name = next((name for name in _COLUMNS[wanted] if name in names), None)
    if name is None:
        message = f"no column of {wanted}"
        hint = f"a trace has a column {' or '.join(_COLUMNS[wanted])}"
        problems.append(Problem(str(path), 1, None, "S004", message, hint))
        return None
    found: list[float] = []
    for line, row in enumerate(rows, start=2):
        number = _number(row.get(name))
        if number is None:
            message = f'{name} is not a number of zero or more: "{row.get(name)}"'
            problems.append(Problem(str(path), line, None, "S005", message))
            return None
        found.append(number)
    if len(found) < _LEAST_ROWS:
        problems.append(
            Problem(str(path), None, None, "S004", f"a trace needs at least {_LEAST_ROWS} requests")
        )
        return None
    return found


def _number(text: object) -> float | None:
    try:
        value = float(str(text))
    except ValueError:
        return None
    return value if 0.0 <= value < 1e12 else None


def _contradictions(spec: ServingFile, tree: Tree) -> list[Problem]:
    """What the model, the machine and the block say against one another."""
    found: list[Problem] = []
    work, serving, device = spec.workload, spec.serving, spec.cluster.node.accelerator

    def refuse(path: str, message: str, help: str | None = None, code: str = "S010") -> None:
        found.append(tree.mark_at(path).problem(code, message, help))

    if work.kind not in SERVED_KINDS or not work.is_counted:
        refuse("workload", f"{work.name} cannot be served here: only decoders whose dimensions are known can",
               "perfmodel catalog list workloads shows them; {hf: config.json} reads one")  # fmt: skip
        return found
    layout = serving.layout
    if layout is not None:
        experts = work.experts or 1
        if work.heads and work.heads % layout.tp:
            refuse(
                "serving.layout.tp", f"tp {layout.tp} does not divide the {work.heads} heads of {work.name}"
            )
        if work.layers and layout.pp > work.layers:
            refuse(
                "serving.layout.pp", f"pp {layout.pp} is more than the {work.layers} layers of {work.name}"
            )
        if layout.ep > 1 and experts <= 1:
            refuse("serving.layout.ep", f"{work.name} has no experts to spread", "leave ep out")
        elif layout.ep > 1 and layout.ep != layout.tp * layout.dp:
            refuse("serving.layout.ep", f"ep {layout.ep} spreads experts over all {layout.tp * layout.dp} ranks of a stage or none",
                   f"write ep: {layout.tp * layout.dp}, or leave it out")  # fmt: skip
        if layout.dp > 1 and experts <= 1:
            refuse("serving.layout.dp", "groups that share experts need experts; of a dense model they are replicas",
                   f"write replicas: {layout.dp * layout.replicas}")  # fmt: skip
    needed = serving.precision if serving.precision in ("fp8", "int8", "fp4") else None
    if needed and needed not in device.peak:
        refuse("serving.precision", f"{device.name} has no {needed} arithmetic",
               f"it has {', '.join(device.peak)}; int4 and w8a16 are smaller weights with 16-bit arithmetic")  # fmt: skip
    if serving.demand is not None and serving.slo is None:
        refuse("serving.demand", "a fleet is sized for what its users expect, and no slo says that",
               "write slo: {ttft: {p99: 2 s}, tpot: {p99: 50 ms}}", "S004")  # fmt: skip
    if serving.demand is not None and serving.load is not None and serving.load.kind == "concurrency":
        refuse("serving.demand", "a demand arrives at a rate, and the load is a number of requests in flight",
               "leave load out, or write load: {rate: 1..64 /s}")  # fmt: skip
    most = work.max_positions
    total = serving.input_tokens.mean + serving.output_tokens.mean
    if most and total > most:
        refuse(
            "serving.input_tokens",
            f"{total:g} tokens of a request are more than the {most} that {work.name} takes",
        )
    return found
