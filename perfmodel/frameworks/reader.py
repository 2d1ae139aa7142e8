"""Files of training frameworks, detected by their content and read together into one job."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel.errors import Problem, SpecError
from perfmodel.frameworks.assemble import Assembled, assemble
from perfmodel.frameworks.detect import ROLES, roles_of
from perfmodel.frameworks.document import Document, parse, read_text
from perfmodel.frameworks.draft import Draft
from perfmodel.frameworks.here import written_by
from perfmodel.frameworks.launch import read_launch

# Which name the job gets, where several frameworks are in one run: the one that drives the training.
_FIRST = ("megatron-lm", "megatron-bridge", "nemo", "torchtitan", "maxtext", "llm-foundry", "axolotl", "llama-factory",
          "olmo-core", "lightning", "transformers", "accelerate", "deepspeed")  # fmt: skip
# Flags of logging, data and checkpoints, which matter to no prediction whatever the condition before them.
_HARMLESS = re.compile(
    "--(wandb|log|save|load|tensorboard|data|eval|mock|tokenizer|vocab|merge|split|lr|profile)"
)
# Settings that may not be passed over in silence.
_TELLING = re.compile(
    "layer|expert|head|hidden|dim|parallel|degree|batch|seq|vocab|shard|recompute|offload", re.IGNORECASE
)


@dataclass
class Reading:
    """What `perfmodel import` tells: the job, the findings, and all that is open."""

    draft: Draft
    assembled: Assembled
    frameworks: tuple[str, ...]
    files: tuple[str, ...]


def read_paths(paths: Sequence[Path], given: Mapping[str, Any] | None = None) -> Reading:
    """Read files of one run; `given` are values that flags state."""
    texts = [(read_text(path), str(path), path.parent) for path in paths]
    return read_texts(
        [(text, name) for text, name, _ in texts], given, folders=[folder for *_, folder in texts]
    )


def read_texts(
    texts: Sequence[tuple[str, str]], given: Mapping[str, Any] | None = None, folders: Sequence[Path] = ()
) -> Reading:
    """The same from texts with their names; a config.json in one of `folders` describes the model."""
    documents: list[Document] = []
    problems: list[Problem] = []
    for text, name in texts:
        try:
            documents.append(parse(text, name))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return read_documents(documents, given or {}, folders)


def read_documents(
    documents: Sequence[Document], given: Mapping[str, Any], folders: Sequence[Path] = ()
) -> Reading:
    """Every document by the frameworks whose names it has."""
    draft = Draft()
    found: list[tuple[str, Document]] = []
    given_files, documents = documents, list(documents)
    for document in given_files:
        written, failed = written_by(document)
        documents += [one for one in written if roles_of(one)]
        draft.questions += [
            f"{document.source.name} writes {name}, which cannot be read as it stands there; give that file as well"
            for name in failed
        ]
    for document in documents:
        roles = roles_of(document)
        if not roles:
            raise SpecError(
                Problem(
                    document.source.name, 1, code="F004", message="no framework's names are in this file",
                    help=f"known are {', '.join(ROLES)}; a job is written by perfmodel init",
                )
            )  # fmt: skip
        found += [(role, document) for role in roles]
    order = {name: at for at, name in enumerate((*_FIRST, "model", "slurm"))}
    found.sort(key=lambda pair: order.get(pair[0], 99))
    for document in documents:
        read_launch(draft, document.commands, document.directives)
    draft.frameworks = [role for role, _ in found]
    for role, document in found:
        _read(draft, role, document)
    names = tuple(dict.fromkeys(role for role, _ in found if role not in ("model", "slurm")))
    _beside(draft, folders)
    _doubts(draft, documents)
    telling = [entry.key for entry in draft.not_understood if _TELLING.search(entry.key)]
    if telling:
        draft.questions.append(
            f"do {', '.join(telling[:8])}{' and others' if len(telling) > 8 else ''} change the model, the layout or the "
            "batch? Their names say so, and they are not understood"
        )
    start = documents[0].start
    stem = Path(documents[0].source.name).stem or "imported"
    made = assemble(draft, start, given, stem if stem not in ("-", "stdin") else "imported")
    draft.raise_problems()
    return Reading(draft, made, names, tuple(document.source.name for document in given_files))


def _read(draft: Draft, role: str, document: Document) -> None:
    module, _, function = ROLES[role].partition(":")
    if not module:
        return
    entries = dict(document.entries)
    for command in document.commands:
        entries |= command.entries
    read = getattr(importlib.import_module(f"perfmodel.frameworks.{module}"), function)
    try:
        read(draft, entries, document.start)
    except (ValueError, TypeError, OverflowError) as error:  # a value of another kind than stands there
        message = (
            f"cannot read it as {role}: a value is of another kind than {role} has there ({str(error)[:120]})"
        )
        draft.problems.append(document.start.problem("F003", message))


def _beside(draft: Draft, folders: Sequence[Path]) -> None:
    """The model's config.json in the folder of a file, where nothing else states the model."""
    if draft.get("model.fields") is not None:
        return
    for folder in dict.fromkeys(folders):
        config = folder / "config.json"
        if config.is_file():
            try:
                document = parse(read_text(config), str(config))
            except SpecError:
                continue
            if "model" in roles_of(document):
                _read(draft, "model", document)
                return


def _doubts(draft: Draft, documents: Sequence[Document]) -> None:
    given = {Path(document.source.name).name for document in documents}
    given |= {document.written for document in documents if document.written is not None}
    for document in documents:
        doubtful = [entry for entry in document.doubtful if not _HARMLESS.match(entry.key)]
        draft.not_understood += doubtful[:50]
        if doubtful:
            at = doubtful[0].mark.line
            draft.questions.append(
                f"{document.source.name}:{at}: some flags stand under a condition that only the running shell decides; "
                "do they apply? They are left out"
            )
        for command in document.commands:
            for entry in command.files:
                name = Path(str(entry.value)).name
                if name not in given and name not in ("base.yml", "tokenizer.json") and entry.is_known:
                    draft.questions.append(
                        f"the command names {str(entry.value)[:120]} ({document.source.name}:{entry.mark.line}); "
                        "give that file as well"
                    )
