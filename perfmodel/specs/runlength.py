"""How long a run is, of a job that states it in steps, in tokens or in passes over the data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from perfmodel.specs.amounts import agree
from perfmodel.specs.job import JobFile, Regime, tokens_per_sample

Refuse = Callable[..., None]


@dataclass(frozen=True)
class Length:
    """The stated length of a job; contradictions are refused at their key."""

    spec: JobFile
    refuse: Refuse
    regime: Regime
    k: tuple[int, ...]
    global_batch: int | None
    per_accelerator: int | None
    seq_len: int | None

    def resolved(self) -> tuple[int | None, int | None]:
        """Steps, and samples, of the whole run; None where not stated or, of steps, where they differ with K."""
        spec, samples = self.spec, self._samples()
        batches = (
            [self.global_batch]
            if self.regime == "strong"
            else [k * (self.per_accelerator or 1) for k in self.k]
        )
        if samples is None:
            batch = batches[0] if len(batches) == 1 else None
            return spec.steps, None if spec.steps is None or batch is None else spec.steps * batch
        steps = [max(1, math.ceil(samples / (batch or 1) - 1e-9)) for batch in batches]
        if spec.steps is not None and not all(agree(spec.steps, count, 1.0) for count in steps):
            self._contradiction(samples, steps)
        if len(steps) > 1:
            return None, round(samples)
        return spec.steps or steps[0], round(samples)

    def _samples(self) -> float | None:
        """Samples of the run by its tokens or epochs, which must agree."""
        spec, each = self.spec, tokens_per_sample(self.spec.workload, self.seq_len)
        name = spec.workload.name
        key = self._token_key()
        if each is None:
            if key is not None:
                self.refuse(
                    key,
                    f"a sample of {name} is no sequence of tokens",
                    "write steps, or epochs with data: {samples: N}",
                )
                return None
            if spec.data is not None and spec.data.tokens is not None:
                self.refuse(
                    "data.tokens", f"a sample of {name} is no sequence of tokens", "write data: {samples: N}"
                )
                return None
        by_epochs = None
        if spec.epochs is not None:
            if spec.data is None:
                self.refuse(
                    "epochs",
                    "epochs of what? One pass over the data is not stated",
                    "add data: {samples: N}, or {tokens: N}",
                    "S004",
                )
                return None
            by_epochs = spec.epochs * (spec.data.samples or (spec.data.tokens or 0) / (each or 1))
        tokens = self._tokens()
        if tokens is None:
            return by_epochs
        by_tokens = tokens / (each or 1)
        if by_epochs is not None and not agree(by_tokens, by_epochs, 1.0):
            self.refuse(
                "epochs",
                f"{spec.epochs:g} epochs are {by_epochs * (each or 1):,.0f} tokens, and {key} says {tokens:,.0f}",
                f"keep one of {key} and epochs",
            )
        return by_tokens

    def _token_key(self) -> str | None:
        """The key that states the tokens of the run."""
        stated = (key for key in ("tokens", "tokens_per_parameter") if getattr(self.spec, key) is not None)
        return next(stated, None)

    def _tokens(self) -> float | None:
        """Tokens of the run, as stated or by the model's parameters; both must agree."""
        spec, ratio = self.spec, self.spec.tokens_per_parameter
        if ratio is None:
            return spec.tokens
        params = spec.workload.params or spec.workload.params_from_dimensions
        if not params:
            self.refuse(
                "tokens_per_parameter",
                f"it is not stated how many parameters {spec.workload.name} has",
                "--set workload.params=... states them, or write tokens",
                "S004",
            )
            return spec.tokens
        if spec.tokens is not None and not agree(spec.tokens, ratio * params, 1.0):
            self.refuse(
                "tokens_per_parameter",
                f"{ratio:g} tokens for each of {params:,} parameters are {ratio * params:,.0f}, and tokens says {spec.tokens:,}",
                "keep one of tokens and tokens_per_parameter",
            )
        return ratio * params

    def told(self) -> list[str]:
        """What a budget by the model's size comes to, and what it says nothing of."""
        spec, ratio = self.spec, self.spec.tokens_per_parameter
        params = spec.workload.params or spec.workload.params_from_dimensions
        if ratio is None or not params or tokens_per_sample(spec.workload, self.seq_len) is None:
            return []
        every = ", those of every expert counted" if spec.workload.experts else ""
        return [
            f"{ratio:g} tokens for each of {params:,} parameters{every} are {ratio * params:,.0f} tokens, some "
            f"{6.0 * ratio * params * params:.3g} FLOP; what loss they reach is not predicted"
        ]

    def _contradiction(self, samples: float, steps: list[int]) -> None:
        key = self._token_key() or "epochs"
        need = (
            f"{steps[0]:,}"
            if len(steps) == 1
            else f"{steps[-1]:,} to {steps[0]:,}, as the batch grows with K,"
        )
        self.refuse(
            "steps",
            f"steps says {self.spec.steps:,}, and {key} make {need} steps of {samples:,.0f} samples",
            f"keep one of steps and {key}; --set steps=null drops it",
        )
