"""A tree becomes a model, or a list of problems at their lines. One mistake gives one problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from perfmodel.errors import Problem, SpecError, closest, did_you_mean
from perfmodel.specs.fields import FROM_FILE, ORIGIN_KEYS, Origin
from perfmodel.specs.loader import Mark, Tree
from perfmodel.specs.refusals import refusal

M = TypeVar("M", bound=BaseModel)
Path = tuple[str | int, ...]
# Where `perfmodel schema` lists the keys of a model that is not named like its file.
_SCHEMAS = {
    "JobFile": "job",
    "ServiceClaim": "service-claim",
    "ClaimedService": "service-claim",
    **dict.fromkeys(
        ("ServingFile", "Serving", "OfferedLoad", "Objectives", "ServedLayout", "Lengths", "Limits"), "job"
    ),
    "Offer": "price",
    "PriceWords": "job",
    "PolicyFile": "policies",
    "Point": "claim",
}


def build(model: type[M], tree: Tree, known_bad: Sequence[Path] = (), earlier: Sequence[Problem] = ()) -> M:
    """Validate a tree; raise every problem at once.

    `earlier` are problems found before (unresolved references); what is wrong below a path of `known_bad`
    follows from those and is not said again.
    """
    problems = list(earlier)
    tree = _check_origins(tree, problems)
    made: M | None = None
    try:
        made = model.model_validate(tree.plain(), context=FROM_FILE)
    except ValidationError as error:
        problems.extend(_explain(model, tree, error, known_bad))
    if problems or made is None:
        raise SpecError(sorted(dict.fromkeys(problems), key=_order))
    return made


def _order(problem: Problem) -> tuple[str, int, int, str]:
    return (problem.file or "", problem.line or 0, problem.column or 0, problem.code)


def _check_origins(tree: Tree, problems: list[Problem]) -> Tree:
    """Check every `{value: ..., source: ...}` and return the tree without the faulty keys of those."""
    if isinstance(tree.value, list):
        return Tree([_check_origins(item, problems) for item in tree.value], tree.mark)
    if not isinstance(tree.value, dict):
        return tree
    if "value" not in tree.value:
        items = {key: _check_origins(item, problems) for key, item in tree.value.items()}
        return Tree(items, tree.mark, tree.keys)
    bad: list[str] = []
    for key in tree.value:
        if key not in ORIGIN_KEYS:
            bad.append(key)
            hint = "a value may carry source, date, confidence and note"
            problems.append(
                tree.keys[key].problem(
                    "S003", f'unknown key "{key}" beside "value"{did_you_mean(key, ORIGIN_KEYS)}', hint
                )
            )
    try:
        Origin.model_validate(
            {key: item.plain() for key, item in tree.value.items() if key not in bad and key != "value"}
        )
    except ValidationError as error:
        problems.extend(_explain(Origin, tree, error, ()))
        bad.extend(str(item["loc"][0]) for item in error.errors() if item["loc"])
    return tree.without(*bad)


def _explain(
    model: type[BaseModel], tree: Tree, error: ValidationError, known_bad: Sequence[Path]
) -> Iterator[Problem]:
    details = [item for item in error.errors(include_url=False) if not _below(item["loc"], known_bad)]
    missing = {item["loc"] for item in details if item["type"] == "missing"}
    typos: dict[Path, str] = {}
    for item in details:
        if item["type"] != "extra_forbidden":
            continue
        # A misspelt key is unknown and leaves its right spelling missing: one mistake, said once.
        siblings = [str(loc[-1]) for loc in missing if loc[:-1] == item["loc"][:-1]]
        meant = closest(str(item["loc"][-1]), siblings)
        if meant is not None:
            typos[item["loc"]] = meant
            missing.discard((*item["loc"][:-1], meant))
    for item in details:
        if item["type"] != "missing" or item["loc"] in missing:
            yield _problem(model, tree, dict(item), typos.get(item["loc"]))


def _below(loc: Path, known_bad: Sequence[Path]) -> bool:
    return any(loc[: len(path)] == path for path in known_bad)


def _problem(model: type[BaseModel], tree: Tree, item: dict[str, Any], meant: str | None) -> Problem:
    loc: Path = item["loc"]
    kind = item["type"]
    context = item.get("ctx") or {}
    node, key_mark, inside = find(tree, loc)
    where = _where(loc[:-1])
    if kind == "spec":
        return _ours(node, context)
    if kind == "extra_forbidden":
        owner = _model_at(model, loc[:-1])
        key = str(loc[-1])
        parent = find(tree, loc[:-1])[0]
        # In a file a slip is for a key that is not there yet; a flag changes those that are.
        is_flag = key_mark is not None and key_mark.line is None
        free = [name for name in owner.model_fields if is_flag or parent.get(name) is None]
        guess = (
            f'; did you mean "{meant}"?'
            if meant
            else did_you_mean(key, free) or did_you_mean(key, owner.model_fields)
        )
        known = ", ".join(owner.model_fields)
        named = _SCHEMAS.get(owner.__name__, owner.__name__.lower())
        hint = f"known keys: {known}" if len(known) < 120 else f"perfmodel schema {named} lists the keys"
        return (key_mark or node.mark).problem("S003", f'unknown key "{key}"{where}{guess}', hint)
    if kind == "missing":
        owner = _model_at(model, loc[:-1])
        about = owner.model_fields[str(loc[-1])].description if str(loc[-1]) in owner.model_fields else None
        return (key_mark or node.mark).problem("S004", f'missing key "{loc[-1]}"{where}', about)
    mark = key_mark if loc and loc[-1] == "[key]" and key_mark is not None else inside.mark
    return mark.problem("S011" if kind == "literal_error" else "S005", *refusal(item))


def _ours(node: Tree, context: dict[str, Any]) -> Problem:
    at = context.get("at")
    mark = node.mark
    if at is not None and isinstance(node.value, dict) and at in node.value:
        item = node.value[at]
        mark = _value_of(item).mark if item.get("value") is not None else node.mark_at(at)
    elif not isinstance(node.value, dict) or "value" in node.value:
        mark = _value_of(node).mark
    return mark.problem(str(context["code"]), str(context["text"]), context.get("help"))


def find(tree: Tree, loc: Path) -> tuple[Tree, Mark | None, Tree]:
    """The node at a location (as deep as the document goes), the mark of its key, and its bare value.

    Parts that are not in the document are skipped: pydantic names union members and dictionary keys too.
    """
    node, key_mark = tree, None
    for part in loc:
        node = _value_of(node) if node.get(str(part)) is None else node
        if isinstance(node.value, dict) and str(part) in node.value:
            key_mark = node.keys.get(str(part))
            node = node.value[str(part)]
        elif isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
            node, key_mark = node.value[part], None
    return node, key_mark, _value_of(node)


def _value_of(node: Tree) -> Tree:
    inner = node.get("value")
    return node if inner is None else inner


def _model_at(model: type[BaseModel], loc: Path) -> type[BaseModel]:
    """The model that validates the mapping at a location."""
    owner = model
    for part in loc:
        field = owner.model_fields.get(str(part))
        inner = _model_in(field.annotation) if field is not None else None
        owner = inner or owner
    return owner


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if get_origin(annotation) is None:
        return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
    return next((found for part in get_args(annotation) if (found := _model_in(part)) is not None), None)


def _where(loc: Path) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return f" in {text}" if text else ""
