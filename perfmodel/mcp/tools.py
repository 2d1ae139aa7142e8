"""What a client may ask: each tool is a verb, run as the command would be, in a process of its own.

Nothing is written, and of files only those in one folder are read: flags that write are not offered, and a word that names
a file elsewhere is refused. A process of its own keeps a call from another's state, and can be stopped when it takes too
long.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from perfmodel.errors import SpecError, UsageError

Form = Literal["md", "json"]
LONGEST_S = 300.0
MOST_CHARACTERS = 400_000
_CODE = "{torch:"


@dataclass(frozen=True)
class Tools:
    """The tools over one folder; `specs` and `beliefs` go with every question that takes them."""

    root: Path
    specs: tuple[Path, ...] = ()
    beliefs: Path | None = None

    def predict(
        self, job: str | None = None, workload: str | None = None, cluster: str | None = None, k: str | None = None,
        changes: dict[str, object] | None = None, wall_time: bool = False, form: Form = "md",
    ) -> str:  # fmt: skip
        """Predict step time, speedup, efficiency, memory, cost and energy of a training job, or how a server answers.

        Name a job file (or a framework's configuration), or a workload and a cluster of the catalogue. `k` is a range of
        accelerators such as "8..256". `changes` sets keys of the job: {"global_batch": 512, "layout": {"tp": 2}}. With
        `wall_time` the answer is what to ask Slurm or Kueue for; the run then needs "steps".
        """
        extra = ["--wall-time"] if wall_time else []
        return self._job("predict", job, workload, cluster, k, changes, form, extra)

    def explain(
        self, k: int, job: str | None = None, workload: str | None = None, cluster: str | None = None,
        changes: dict[str, object] | None = None, form: Form = "md",
    ) -> str:  # fmt: skip
        """Every term of the step at one number of accelerators: formula, inputs, their sources, share, sensitivity."""
        return self._job("explain", job, workload, cluster, str(k), changes, form)

    def plan(
        self, job: str | None = None, workload: str | None = None, cluster: str | None = None,
        clusters: list[str] | None = None, max_k: int | None = None, deadline: str | None = None,
        budget: str | None = None, changes: dict[str, object] | None = None, form: Form = "md",
    ) -> str:  # fmt: skip
        """Search layouts, numbers of accelerators and hardware for the fastest or cheapest way within limits.

        `deadline` and `budget` are texts such as "30 day" and "2M USD".
        """
        extra = _flags({"clusters": ",".join(clusters) if clusters else None, "max-k": max_k})
        extra += _flags({"deadline": deadline, "budget": budget})
        return self._job("plan", job, workload, cluster, None, changes, form, extra)

    def compare(self, a: str, b: str, form: Form = "md") -> str:
        """Two job files side by side, and which changed input caused how much of the difference."""
        return self.run(["compare", a, b, *self._known()], form)

    def diagnose(
        self, config: list[str], log: str | None = None, traces: list[str] | None = None, ranks: str | None = None,
        cluster: str | None = None, changes: dict[str, object] | None = None, form: Form = "md",
    ) -> str:  # fmt: skip
        """Whether a run is slow, and why: its log against what its configuration lets expect, causes ranked."""
        words = [*(f"--config={path}" for path in config), *(f"--trace={path}" for path in traces or ())]
        words += _flags({"log": log, "ranks": ranks, "cluster": cluster}) + _set(changes)
        return self.run(["diagnose", *words, *self._known()], form)

    def import_configuration(
        self,
        files: list[str],
        cluster: str | None = None,
        changes: dict[str, object] | None = None,
        form: Form = "json",
    ) -> str:
        """The job that configurations and launch scripts of a training framework describe, and what they leave open."""
        return self.run(["import", *files, *_flags({"cluster": cluster}), *_set(changes)], form)

    def study(
        self, timings: list[str], regime: str | None = None, price: str | None = None, form: Form = "md"
    ) -> str:
        """Measured times by number of workers: speedup, fits, where the curve bends and why, cost, verdict."""
        return self.run(["study", *timings, *_flags({"regime": regime, "price": price})], form)

    def audit(self, claim: str, form: Form = "md") -> str:
        """A vendor's claim (a YAML file): consistent, suspicious or impossible, with the questions to ask."""
        return self.run(["audit", claim, *self._known()], form)

    def check(self, file: str = "perfmodel.yaml", form: Form = "md") -> str:
        """The policies of a file against predictions: pass, fail or undecided."""
        return self.run(["check", file, *self._known()], form)

    def catalog(self, kind: str | None = None, name: str | None = None, form: Form = "md") -> str:
        """The catalogue: without arguments its kinds, with a kind its entries, with a name that entry and its sources."""
        words = ["show", name] if name else ["list", *([kind] if kind else [])]
        return self.run(["catalog", *words, *self._folders()], form)

    def collective(
        self, op: str, bytes: str, ranks: str, cluster: str | None = None, form: Form = "md"
    ) -> str:
        """One collective operation by every algorithm: its time, and where algorithms change places."""
        words = _flags({"bytes": bytes, "ranks": ranks, "cluster": cluster})
        return self.run(["collective", op, *words], form)

    def law(
        self, name: Literal["amdahl", "gustafson", "usl"], serial: str, k: str = "1..1024", kappa: str | None = None,
        form: Form = "md",
    ) -> str:  # fmt: skip
        """Speedup and efficiency by a law, from its serial fraction ("0.05", or several "0.01,0.05") and kappa of the USL."""
        return self.run(["law", name, *_flags({"serial": serial, "k": k, "kappa": kappa})], form)

    # -- how it is done ------------------------------------------------------------------------------------------------

    def all(self) -> list[Callable[..., str]]:
        """The tools."""
        return [
            self.predict, self.explain, self.plan, self.compare, self.diagnose, self.import_configuration, self.study,
            self.audit, self.check, self.catalog, self.collective, self.law,
        ]  # fmt: skip

    def _job(
        self, verb: str, job: str | None, workload: str | None, cluster: str | None, k: str | None,
        changes: Mapping[str, object] | None, form: Form, extra: Sequence[str] = (),
    ) -> str:  # fmt: skip
        words = [job] if job else []
        words += [*_flags({"workload": workload, "cluster": cluster, "k": k}), *_set(changes), *extra]
        return self.run([verb, *words, *self._known()], form)

    def _folders(self) -> list[str]:
        return [f"--specs={folder}" for folder in self.specs]

    def _known(self) -> list[str]:
        return [*self._folders(), *_flags({"beliefs": self.beliefs})]

    def run(self, words: Sequence[str], form: Form) -> str:
        """What a command prints; its complaint is raised."""
        self.guard(words)
        command = [sys.executable, "-m", "perfmodel", *words, f"--format={form}", "--no-color"]
        try:
            done = subprocess.run(
                command,
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UsageError(
                f"{words[0]} took longer than {LONGEST_S:g} s", code="U046", help="ask for less at once"
            ) from None
        text, said = (part.decode("utf-8", "replace") for part in (done.stdout, done.stderr))
        if done.returncode not in (0, 1):  # 1: a policy or an audit failed, which is an answer
            raise SpecError(said.strip() or f"{words[0]} ended with {done.returncode}")
        if len(text) > MOST_CHARACTERS:
            text = text[:MOST_CHARACTERS] + "\n[cut here: the answer is longer]\n"
        return text

    def guard(self, words: Sequence[str]) -> None:
        """Refuse what would write, run code, or read outside the folder."""
        own = {str(path) for path in (*self.specs, self.beliefs) if path is not None}
        for word in words:
            if (word.startswith("-") and word.split("=", 1)[0] not in _FLAGS) or "\0" in word:
                raise UsageError(f"{word[:200]}: no flag of a tool", code="U045")
            if _CODE in word.replace(" ", "") or '"torch"' in word:
                raise UsageError(
                    "a workload from code is not read here", code="U045", help="write it as numbers"
                )
            for part in {word, word.split("=", 1)[-1]}:
                if part not in own and not self._is_inside(part):
                    raise UsageError(
                        f"{part[:200]}: files outside {self.root} are not read", code="U045",
                        help="start perfmodel mcp with --root of a folder above it",
                    )  # fmt: skip

    def _is_inside(self, text: str) -> bool:
        """Whether a word is no path out of the folder. What does not look like a path is none."""
        if len(text) > 1000 or "\n" in text:
            return ".." not in text and "/" not in text
        pieces = [
            piece
            for piece in _pieces(text)
            if "/" in piece or piece.startswith("~") or (self.root / piece).is_symlink()
        ]
        root = self.root.resolve()
        for piece in pieces:
            if piece.startswith("~"):
                return False
            try:
                inside = (self.root / piece).resolve().is_relative_to(root)
            except OSError:
                inside = False
            if not inside:
                return False
        return True


# Those that write, or read code, are not among them.
_FLAGS = frozenset(
    f"--{name}"
    for name in (
        "workload", "cluster", "k", "set", "wall-time", "clusters", "max-k", "deadline", "budget", "config", "trace", "log", "ranks",
        "regime", "price", "specs", "beliefs", "bytes", "serial", "kappa",
    )
)  # fmt: skip


def _pieces(text: str) -> list[str]:
    """The words of an argument that may be paths: those of a YAML value too, without units such as GB/s.

    >>> _pieces("workload={file: /etc/passwd}"), _pieces("price={per_accelerator: 2 USD/h}")
    (['workload', 'file', '/etc/passwd'], ['price', 'per_accelerator', '2'])
    """
    words = [word.strip("\"'") for word in text.replace("=", " ").translate(_BLANKS).split()]
    units = {"USD/h", "USD/kWh", "g/kWh", "GB/s", "MB/s", "TB/s", "Gbit/s", "TFLOP/s", "USD/GB"}
    return [word for word in words if word and word not in units]


_BLANKS = str.maketrans(dict.fromkeys("{}[],:", " "))


def _flags(said: Mapping[str, object]) -> list[str]:
    """`--flag=value` of what was said."""
    return [f"--{name}={value}" for name, value in said.items() if value is not None]


def _set(changes: Mapping[str, object] | None) -> list[str]:
    """`--set=path=value`; JSON is YAML."""
    import json

    return [f"--set={path}={json.dumps(value)}" for path, value in (changes or {}).items()]
