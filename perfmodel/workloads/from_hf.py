"""A Hugging Face `config.json` becomes a workload: dimensions, exact parameter count, kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from perfmodel.errors import Problem, SpecError, did_you_mean
from perfmodel.files import parse_json, read_bytes
from perfmodel.specs.refusals import refusal
from perfmodel.specs.workload import Workload
from perfmodel.workloads.hf_families import FAMILIES, Family
from perfmodel.workloads.parameters import Dimensions, ParameterCount, count
from perfmodel.workloads.text import size_name, slug

# A config states the longest sequence a model can read, rarely the one it is trained at.
LONGEST_DEFAULT = 8192


@dataclass(frozen=True, slots=True)
class HfWorkload:
    """What was read: fields of a workload spec, the parameters by part, and remarks for people."""

    fields: Mapping[str, object]
    parameters: ParameterCount
    remarks: tuple[str, ...]


class _Config:
    """Keys of one JSON object; what is missing or malformed is noted, to be refused all at once."""

    def __init__(self, data: Mapping[str, object], text: str, file: str) -> None:
        self._data, self._lines, self._file = data, text.splitlines(), file
        self.problems: list[Problem] = []

    def get(self, key: str) -> object:
        return self._data.get(key)

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._data.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            is_negative = type(value) is int
            wanted = "at least 0" if is_negative else "a whole number"
            what = f'"{key}" is missing' if value is None else f'"{key}" must be {wanted}, not {value!r}'
            self.note("W102", what, key)
            return 1
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._data.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.note("W102", f'"{key}" must be true or false, not {value!r}', key)
            return default
        return value

    def integers(self, key: str) -> list[int] | None:
        value = self._data.get(key)
        if value is None or (isinstance(value, list) and all(type(item) is int for item in value)):
            return value
        self.note("W102", f'"{key}" must be a list of whole numbers, not {value!r}', key)
        return None

    def note(self, code: str, message: str, key: str | None = None, help: str | None = None) -> None:
        problem = self.problem(code, message, key, help)
        if problem not in self.problems:
            self.problems.append(problem)

    def problem(self, code: str, message: str, key: str | None = None, help: str | None = None) -> Problem:
        """A problem at the line that holds `key`, or at the start of the file."""
        for number, line in enumerate(self._lines, start=1):
            found = re.search(rf'"{re.escape(key)}"\s*:', line) if key else None
            if found:
                return Problem(self._file, number, found.start() + 1, code, message, line, help)
        return Problem(self._file, 1, 1, code, message, None, help)


def read_config(path: str | Path, *, name: str | None = None, seq_len: int | None = None) -> HfWorkload:
    """Read a config file; refuse one that is no JSON, of an unknown family, or incomplete."""
    file = Path(path)
    try:
        text = read_bytes(file).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise SpecError(Problem(str(path), code="W100", message=f"cannot be read: {reason}")) from error
    return parse_config(text, file=str(path), name=name or _name_from_path(file), seq_len=seq_len)


def parse_config(
    text: str, *, file: str = "config.json", name: str | None = None, seq_len: int | None = None
) -> HfWorkload:
    """The same, from the text of a config."""
    outer = _load(text, file)
    config, family_name, nested = _text_part(outer, text, file)
    family = FAMILIES[family_name]
    try:
        dimensions = family.build(config)
    except ZeroDivisionError:
        dimensions = Dimensions(hidden=1)
        config.note("W102", '"num_attention_heads" must not be 0', "num_attention_heads")
    window = {} if config.problems else family.window(config, dimensions.attention_layers)
    longest = config.integer(family.positions) if config.get(family.positions) is not None else None
    if config.problems:
        raise SpecError(config.problems)
    parameters = count(dimensions)
    remarks = [family.note] if family.note else []
    if family.window_every > 1 and not window:
        remarks.append("no sliding_window is stated: layers that have one are counted as full attention")
    if config.get("use_sliding_window") is True and not window:
        remarks.append(
            "use_sliding_window is not read: layers that have a window are counted as full attention"
        )
    if nested:
        remarks.append("the text model alone: other towers are not counted")
    tokens = seq_len
    if tokens is None and longest is not None:
        tokens = min(longest, LONGEST_DEFAULT)
        if longest > tokens:
            remarks.append(f"seq_len is a choice: the model reads up to {longest} tokens")
    found = _hub_name(outer) or f"{family_name}-{size_name(parameters.total)}"
    fields = workload_fields(dimensions, parameters, family, seq_len=tokens) | window
    fields = {"name": name or slug(found), **fields, "source": f"config.json of model type {family_name}"}
    _check(fields, config)
    return HfWorkload(fields, parameters, tuple(remarks))


def _check(fields: Mapping[str, object], config: _Config) -> None:
    """Refuse what no verb would take: sizes of 0, or more than any model has."""
    try:
        Workload.model_validate(dict(fields))
    except ValidationError as error:
        for item in error.errors():
            field = ".".join(str(part) for part in item["loc"])
            config.note("W102", f"makes no workload: {field + ': ' if field else ''}{refusal(item)[0]}")
        raise SpecError(config.problems) from error


def workload_fields(
    d: Dimensions, parameters: ParameterCount, family: Family, *, seq_len: int | None
) -> dict[str, object]:
    """Fields of a workload spec for these dimensions, in the order in which specs are written."""
    layers = d.attention_layers
    fields: dict[str, object] = {
        "kind": family.kind,
        "sample": "sequence",
        "params": parameters.total,
        "params_note": "computed from the dimensions, biases and norms included",
        "layers": layers,
        "hidden": d.hidden,
        "heads": d.heads,
        "kv_heads": d.kv_heads,
        "head_dim": d.head_dim,
        "ffn": d.moe_ffn if d.experts else d.ffn,
        "gated_mlp": d.gated,
        "vocab": d.vocab,
        "seq_len": seq_len,
        "tied_embeddings": d.tied,
        "causal": family.kind != "encoder-transformer",
        "max_positions": d.positions or None,
        "scores_in_fp32": family.scores_in_fp32 or None,
    }
    if d.experts:
        fields |= {
            "experts": d.experts,
            "top_k": d.top_k,
            "moe_ffn": d.moe_ffn,
            "shared_experts": 1 if d.shared_ffn else 0,
            "shared_expert_ffn": d.shared_ffn or None,
            "dense_ffn": d.ffn if d.mlp_layers else None,
            "moe_layers": d.moe_layers,
        }
    if d.kv_lora_rank:
        names = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        fields |= {name: getattr(d, name) or None for name in names}
    if d.cross_attention_layers:
        fields["encoder_layers"] = layers - d.cross_attention_layers
        fields["decoder_layers"] = d.cross_attention_layers
    return {key: value for key, value in fields.items() if value is not None}


def _load(text: str, file: str) -> dict[str, object]:
    data = parse_json(text, file, "W101")
    if not isinstance(data, dict):
        message = f"a config is a JSON object, this is a {type(data).__name__}"
        raise SpecError(Problem(file, 1, 1, "W101", message))
    return data


def _text_part(outer: dict[str, object], text: str, file: str) -> tuple[_Config, str, bool]:
    """The object that describes the language model: the config itself or its `text_config`."""
    config = _Config(outer, text, file)
    stated = outer.get("model_type")
    inner = outer.get("text_config")
    if isinstance(stated, str) and stated in FAMILIES:
        return config, stated, False
    if isinstance(inner, dict) and inner.get("model_type") in FAMILIES:
        merged = {"tie_word_embeddings": outer.get("tie_word_embeddings"), **inner}
        return _Config(merged, text, file), inner["model_type"], True
    known = ", ".join(sorted(FAMILIES))
    if stated is None:
        message = '"model_type" is missing: the family of the model is unknown'
    else:
        classes = outer.get("architectures")
        architecture = classes[0] if isinstance(classes, list) and classes else "architecture not stated"
        message = f'no reader for model type "{stated}" ({architecture})'
        message += did_you_mean(str(stated), FAMILIES)
    needed = "kind, layers, hidden, heads, kv_heads, ffn, gated_mlp, vocab, seq_len and params"
    help = f"known: {known}. Otherwise write {needed} by hand, or use `perfmodel workload from-torch`"
    raise SpecError(config.problem("W103", message, "model_type", help))


def _hub_name(data: Mapping[str, object]) -> str | None:
    """The last part of `_name_or_path`, which exported configs carry."""
    path = data.get("_name_or_path")
    return path.rstrip("/").rsplit("/", 1)[-1] or None if isinstance(path, str) else None


def _name_from_path(file: Path) -> str | None:
    """`llama3.json` names the model; in `Llama-3/config.json` nothing does but the config itself."""
    return None if file.stem == "config" else slug(file.stem)
