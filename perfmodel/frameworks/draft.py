"""What was read of a framework's configuration, before it is a job: findings with their lines, and what is open."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from perfmodel.errors import Problem, SpecError
from perfmodel.specs.loader import Mark, Source

UNKNOWN = "\ufffc"  # stands in a value for what only a running shell would know


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting of a file: its key as the framework writes it (dotted where nested), its value, its place."""

    key: str
    value: Any
    mark: Mark

    @property
    def is_known(self) -> bool:
        """Whether the value stands in the file, not in the environment of a running shell."""
        return UNKNOWN not in str(self.value) and "${" not in str(self.value)


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact of a job with the setting that states it; `line` is None for a default of the framework."""

    field: str
    value: Any
    key: str
    mark: Mark

    @property
    def place(self) -> str:
        """`file:line`, or the file's name where a default stands behind the value."""
        name = self.mark.source.name
        return f"{name}:{self.mark.line}" if self.mark.line is not None else name


Rule = str | tuple[str, Mapping[str, Any] | Callable[[Any], Any]]
_WHOLE = frozenset(
    [
        "layout.dp",
        "layout.tp",
        "layout.pp",
        "layout.cp",
        "layout.ep",
        "layout.vpp",
        "layout.etp",
        "layout.micro_batch",
        "layout.accumulation",
        "layout.shard_group",
        "layout.dp_replicate",
        "layout.dp_shard",
        "world.nodes",
        "world.gpus_per_node",
        "world.gpus",
        "seq_len",
        "batch.global",
        "batch.local",
        "batch.global_tokens",
        "batch.micro_tokens",
        "steps",
        "samples",
        "tokens",
        "model.layers",
        "model.hidden",
        "model.heads",
        "model.kv_heads",
        "model.head_dim",
        "model.ffn",
        "model.vocab",
        "model.experts",
        "model.top_k",
        "model.moe_ffn",
        "model.shared_ffn",
        "model.positions",
        "model.q_lora_rank",
        "model.kv_lora_rank",
        "model.qk_nope_head_dim",
        "model.qk_rope_head_dim",
        "model.v_head_dim",
        "model.vocab_multiple",
        "recompute.layers",
        "model.first_dense",
    ]
)
_TRUTH = frozenset(
    [
        "layout.sequence_parallel",
        "stack.compiled",
        "stack.overlap_gradients",
        "stack.overlap_gather",
        "stack.overlap_tensor",
        "stack.overlap_experts",
        "stack.reshard_after_forward",
        "model.tied",
        "model.gated",
    ]
)


def whole(value: Any) -> int:
    """A whole number, from text or from a float without a fraction; `1_000` and `2e6` are read too.

    >>> whole("8"), whole("1_024"), whole("2e6"), whole(4.0)
    (8, 1024, 2000000, 4)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("a whole number is expected")
    if isinstance(value, int):
        number = value
    else:
        text = str(value).strip().replace("_", "")
        if not re.fullmatch(r"[+-]?\d{1,18}(\.\d*)?([eE]\+?\d{1,2})?", text):
            raise ValueError("a whole number is expected")
        number_ = float(text) if re.search("[.eE]", text) else int(text)
        number = int(number_)
        if number != number_:
            raise ValueError("a whole number is expected")
    if abs(number) > 10**15:
        raise ValueError("that is more than any run has")
    return number


def truth(value: Any) -> bool:
    """A truth value as the files write it.

    >>> truth("True"), truth("no"), truth(1)
    (True, False, True)
    """
    if isinstance(value, bool):
        return value
    found = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False,
             "on": True, "off": False}.get(str(value).strip().casefold())  # fmt: skip
    if found is None:
        raise ValueError("true or false is expected")
    return found


@dataclass
class Draft:
    """The findings of one or several files, what was not understood, what is missing, what is wrong."""

    findings: dict[str, Finding] = field(default_factory=dict)
    not_understood: list[Entry] = field(default_factory=list)
    unknown_values: list[Entry] = field(default_factory=list)
    ignored: int = 0
    questions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    frameworks: list[str] = field(default_factory=list)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a field, or the default."""
        found = self.findings.get(name)
        return default if found is None else found.value

    def mark(self, name: str) -> Mark:
        """Where a field was stated."""
        found = self.findings.get(name)
        return found.mark if found is not None else Mark(Source(""))

    def put(self, name: str, value: Any, entry: Entry) -> None:
        """A fact; one that another file states differently is kept as it was first, and asked about."""
        before = self.findings.get(name)
        if before is None or before.mark.line is None:
            self.findings[name] = Finding(name, value, entry.key, entry.mark)
        elif before.value != value and entry.mark.line is not None:
            if before.mark.source.name == entry.mark.source.name:  # the last of a command line holds
                self.findings[name] = Finding(name, value, entry.key, entry.mark)
                return
            here = Finding(name, value, entry.key, entry.mark)
            self.questions.append(
                f"{name}: {before.place} says {before.value}, {here.place} says {value}; which one holds? "
                f"{before.value} is taken"
            )

    def default(self, name: str, value: Any, key: str, near: Mark) -> None:
        """A fact that the framework's own default states, where the file says nothing."""
        if name not in self.findings:
            mark = Mark(near.source)
            self.findings[name] = Finding(name, value, f"default of {key}", mark)

    def take(self, entry: Entry, rule: Rule) -> None:
        """One setting by its rule: a field, with the words or the function that turn the value."""
        if entry.value is None:
            self.ignored += 1
            return
        if not entry.is_known:
            self.unknown_values.append(entry)
            return
        name, turn = (rule, None) if isinstance(rule, str) else rule
        try:
            value = self._turned(name, turn, entry.value)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            shown = str(entry.value)[:60]
            what = str(error) if isinstance(error, ValueError) else "not a value that is known here"
            self.problems.append(
                entry.mark.problem("F003", f"{entry.key}: cannot read {shown!r}: {what}"[:300])
            )
            return
        if value is None:
            self.ignored += 1
        else:
            self.put(name, value, entry)

    @staticmethod
    def _turned(name: str, turn: Any, value: Any) -> Any:
        if isinstance(turn, Mapping):
            word = str(value).strip().casefold()
            if word not in turn:
                raise ValueError(f"known are {', '.join(str(item) for item in turn)}")
            return turn[word]
        if turn is not None:
            value = turn(value)
        if value is None:
            return None
        if name in _WHOLE:
            number = whole(value)
            if number < 0:
                raise ValueError("a negative number has no meaning here")
            return number
        return truth(value) if name in _TRUTH else value

    def apply(self, entries: Iterable[Entry], table: Mapping[str, Rule], irrelevant: re.Pattern[str]) -> None:
        """Every setting by the table of a framework; what neither maps nor is known not to matter is listed."""
        for entry in entries:
            rule = table.get(entry.key)
            if rule is not None:
                self.take(entry, rule)
            elif entry.value is None or entry.value in ([], {}) or irrelevant.fullmatch(entry.key):
                self.ignored += 1
            else:
                self.not_understood.append(entry)

    def refuse(self, name: str, message: str, help: str | None = None) -> None:
        """Something that the framework itself would refuse, at the line of a field."""
        self.problems.append(self.mark(name).problem("F010", message, help))

    def raise_problems(self) -> None:
        """Raise what is wrong, all at once."""
        if self.problems:
            raise SpecError(dict.fromkeys(self.problems))


def pattern(*words: str) -> re.Pattern[str]:
    """Keys that do not matter to a prediction: words with `*`, as one expression."""
    joined = "|".join(re.escape(word).replace(r"\*", ".*") for text in words for word in text.split())
    return re.compile(joined)
