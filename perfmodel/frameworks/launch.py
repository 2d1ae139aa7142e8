"""Commands that start a training: the launcher's own arguments, the script, and the script's arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from perfmodel.frameworks.draft import Draft, Entry, Rule
from perfmodel.frameworks.shell import Word, read_script
from perfmodel.specs.loader import Mark, Source

LAUNCHERS = (
    "torchrun",
    "deepspeed",
    "accelerate",
    "composer",
    "srun",
    "mpirun",
    "python",
    "axolotl",
    "llamafactory-cli",
)
_VALUE = re.compile(r"-?[\d.].*")


@dataclass
class Command:
    """One command: `launch` settings of torchrun, srun and the like, the script's name, its settings."""

    script: str
    launch: list[Entry] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)
    files: list[Entry] = field(default_factory=list)  # configuration files that the arguments name
    mark: Mark = field(default_factory=lambda: Mark(Source("")))


def commands_of(text: str, source: Source) -> tuple[list[Command], list[Entry], list[Entry]]:
    """The training commands of a script, its #SBATCH directives, and flags under conditions nobody knows."""
    script = read_script(text)
    commands = []
    for words in script.commands:
        made = _command(_resplit(words), source)
        if made is not None:
            commands.append(made)
    if not commands and not script.directives:  # variables that hold arguments, for a script elsewhere
        for pieces in script.variables.values():
            words = [
                Word("".join(c for c, _ in piece), piece[0][1])
                for whole in pieces
                for piece in _on_blanks(whole)
            ]
            if sum(word.text.startswith("--") for word in words) >= 3:
                made = _command(words, source)
                commands += [made] if made is not None else []
    directives = list(_pairs(script.directives, source))
    doubtful = [entry for entry in _pairs(script.doubtful, source) if entry.key.startswith("-")]
    return commands, directives, doubtful


def _on_blanks(chars: list[tuple[str, int]]) -> list[list[tuple[str, int]]]:
    words: list[list[tuple[str, int]]] = [[]]
    for item in chars:
        if item[0].isspace():
            if words[-1]:
                words.append([])
        else:
            words[-1].append(item)
    return [word for word in words if word]


def _resplit(words: list[Word]) -> list[Word]:
    """Commands inside a word (`bash -c "torchrun ..."`) and words that hold a flag with its value, taken apart."""
    made: list[Word] = []
    for word in words:
        inner = word.text.split()
        is_command = len(inner) > 1 and any(piece.endswith(".py") or piece in LAUNCHERS for piece in inner)
        if len(inner) > 1 and (is_command or inner[0].startswith("--")):
            made += [Word(piece.strip("\"'"), word.line) for piece in inner if piece not in ("&&", ";", "\\")]
        else:
            made.append(word)
    return made


def _command(words: list[Word], source: Source) -> Command | None:
    names = [word.text.rsplit("/", 1)[-1] for word in words]
    is_launch = any(name in LAUNCHERS or name.startswith("python") for name in names[:12])
    flags = sum(word.text.startswith("--") for word in words)
    if not is_launch and not names[0].endswith(".py") and not (names[0].startswith("--") and flags >= 2):
        return None
    last = max(
        (at for at, name in enumerate(names[:80]) if name in LAUNCHERS or name.startswith("python")),
        default=-1,
    )
    at = next((i for i in range(max(last, 0), len(names)) if _is_script(words, names, i)), None)
    if at is None:
        at = last if names[0].startswith("--") is False else -1
        if at >= 0 and names[at] == "srun":
            return None
        if names and names[0] in ("torchrun", "srun", "mpirun") and flags < 3:
            return None
    launch_words, rest = words[: max(at, 0)], words[at + 1 :]
    command = Command(names[at] if at >= 0 else "", mark=Mark(source, words[0].line))
    if at >= 0 and words[at - 1].text == "-m":
        command.script = words[at].text
    command.launch = [
        Entry(f"{launcher} {entry.key}", entry.value, entry.mark)
        for launcher, part in _by_launcher(launch_words)
        for entry in _pairs(part, source)
    ]
    for entry in _pairs(rest, source):
        if entry.key == "":
            if re.search(r"\.(ya?ml|json|toml)$", str(entry.value)):
                command.files.append(entry)
        else:
            command.entries[entry.key] = entry
            if re.search(r"\.(ya?ml|json|toml)$", str(entry.value)):
                command.files.append(entry)
    return command


def _is_script(words: list[Word], names: list[str], at: int) -> bool:
    if names[at].endswith(".py"):
        return True
    if at and words[at - 1].text == "-m" and not words[at].text.startswith("torch.distributed"):
        return True
    return (
        at > 0 and names[at - 1] in ("axolotl", "llamafactory-cli") and names[at] in ("train", "preprocess")
    )


def _by_launcher(words: list[Word]) -> list[tuple[str, list[Word]]]:
    """The words before the script, each group under the launcher that reads it."""
    groups: list[tuple[str, list[Word]]] = []
    for word in words:
        name = word.text.rsplit("/", 1)[-1]
        if name in ("torchrun", "deepspeed", "accelerate", "composer", "srun", "mpirun", "torch.distributed.run",
                    "torch.distributed.launch", "torch.distributed.elastic"):  # fmt: skip
            groups.append(("torchrun" if name.startswith("torch") else name, []))
        elif groups:
            groups[-1][1].append(word)
    return groups


def _pairs(words: list[Word], source: Source) -> list[Entry]:
    """`--key value`, `--key=value`, `key=value`, `--flag`; a word that belongs to none has the key ''."""
    found: list[Entry] = []
    at = 0
    while at < len(words):
        word = words[at]
        mark = Mark(source, word.line)
        at += 1
        if word.text in ("\\", ""):
            continue
        is_flag = word.text.startswith("-") and not _VALUE.fullmatch(word.text)
        if not is_flag:
            key, equals, value = word.text.partition("=")
            if equals and re.fullmatch(r"\+{0,2}[A-Za-z_][\w.\-]*", key):
                found.append(Entry(key.lstrip("+"), value, mark))
            else:
                found.append(Entry("", word.text, mark))
            continue
        key, equals, value = word.text.partition("=")
        if equals:
            found.append(Entry(key, value.strip("'\""), mark))
            continue
        values: list[str] = []
        while at < len(words) and not (
            words[at].text.startswith("-") and not _VALUE.fullmatch(words[at].text)
        ):
            if words[at].text in ("\\", "|", "2>&1", ">") or ("=" in words[at].text and values):
                break
            values.append(words[at].text)
            at += 1
        found.append(Entry(key, True if not values else values[0] if len(values) == 1 else values, mark))
    return found


_LAUNCH: dict[str, Rule] = {
    "torchrun --nproc_per_node": "world.gpus_per_node",
    "torchrun --nproc-per-node": "world.gpus_per_node",
    "torchrun --nnodes": ("world.nodes", lambda value: str(value).rpartition(":")[2]),
    "deepspeed --num_gpus": "world.gpus_per_node",
    "deepspeed --num_nodes": "world.nodes",
    "accelerate --num_processes": "world.gpus",
    "accelerate --num_machines": "world.nodes",
    "accelerate --num-processes": "world.gpus",
    "accelerate --num-machines": "world.nodes",
    "accelerate --mixed_precision": (
        "precision",
        {"bf16": "bf16", "fp16": "fp16", "no": "fp32", "fp8": "fp8"},
    ),
    "composer -n": "world.gpus_per_node",
    "composer --nproc": "world.gpus_per_node",
    "composer --world_size": "world.gpus",
    "srun --nodes": "world.nodes",
    "srun -N": "world.nodes",
    "mpirun -np": "world.gpus",
    "mpirun -n": "world.gpus",
}
_DIRECTIVES: dict[str, Rule] = {
    "--nodes": ("world.nodes", lambda value: str(value).partition("-")[0]),
    "-N": ("world.nodes", lambda value: str(value).partition("-")[0]),
    "--gpus-per-node": ("world.gpus_per_node", lambda value: str(value).rpartition(":")[2]),
    "--gres": ("world.gpus_per_node", lambda value: gres_count(str(value))),
    "--gpus": ("world.gpus", lambda value: str(value).rpartition(":")[2]),
    "-G": ("world.gpus", lambda value: str(value).rpartition(":")[2]),
}


def gres_count(text: str) -> str | None:
    """GPUs of `--gres`; None where it asks for none, one where it gives no number.

    >>> gres_count("gpu:h100:8"), gres_count("gpu:4"), gres_count("gpu"), gres_count("tmp:1G")
    ('8', '4', '1', None)
    """
    for part in text.split(","):
        words = part.split(":")
        if words[0] == "gpu":
            return words[-1] if words[-1].isdigit() else "1"
    return None


def read_launch(draft: Draft, commands: list[Command], directives: list[Entry]) -> None:
    """Nodes and GPUs, from the launcher's line first and the Slurm header where that says nothing."""
    for command in commands:
        for entry in command.launch:
            rule = _LAUNCH.get(entry.key)
            if rule is not None and entry.is_known and str(entry.value) not in ("gpu", "auto"):
                draft.take(entry, rule)
    said = {name for name in draft.findings if name.startswith("world.")}
    tasks: Entry | None = None
    for entry in directives:
        if entry.key == "--ntasks-per-node":
            tasks = entry
        rule = _DIRECTIVES.get(entry.key)
        field_name = rule[0] if isinstance(rule, tuple) else rule
        if rule is not None and field_name not in said and entry.is_known:
            draft.take(Entry(f"#SBATCH {entry.key}", entry.value, entry.mark), rule)
        kind = re.search(r"(?:gpu:|^)([a-z]+\d+\w*):\d+", str(entry.value)) if "g" in entry.key else None
        if kind:
            draft.notes.append(
                f"the Slurm header asks for GPUs of type {kind.group(1)} (line {entry.mark.line})"
            )
    if tasks is not None and not {"world.gpus_per_node", "world.gpus"} & set(draft.findings):
        draft.take(Entry("#SBATCH --ntasks-per-node", tasks.value, tasks.mark), "world.gpus_per_node")
