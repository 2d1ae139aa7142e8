"""Flags that several verbs share, as groups: a verb names a group, the command line shows its flags one by one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, get_type_hints

from perfmodel.cli.options import (
    BeliefsOption,
    ClusterOption,
    DigitsOption,
    FormatOption,
    FullOption,
    GlobalBatchOption,
    HeadroomOption,
    KOption,
    LayoutOption,
    NoColorOption,
    OutputOption,
    PlotOption,
    PrecisionOption,
    PricesOption,
    QuietOption,
    RegimeOption,
    ReportOption,
    SeedOption,
    SeqLenOption,
    SetOption,
    SpecsOption,
    WorkloadOption,
    emit,
    load_beliefs,
    parse_layout,
    parse_set,
)

if TYPE_CHECKING:
    from perfmodel.beliefs.population import Beliefs
    from perfmodel.results.envelope import Result
    from perfmodel.serving.beliefs import ServingBeliefs
    from perfmodel.specs.catalog import Catalog
    from perfmodel.specs.jobs import Job
    from perfmodel.specs.loader import Tree
    from perfmodel.specs.serving import ServingJob


@dataclass(frozen=True)
class JobFlags:
    """What the command line says of a job, on top of a file or in its place."""

    workload: WorkloadOption = None
    cluster: ClusterOption = None
    k: KOption = None
    regime: RegimeOption = None
    global_batch: GlobalBatchOption = None
    seq_len: SeqLenOption = None
    precision: PrecisionOption = None
    layout: LayoutOption = None
    headroom: HeadroomOption = None
    beliefs: BeliefsOption = None
    set_: SetOption = None
    prices: PricesOption = None
    specs: SpecsOption = None

    @property
    def changes(self) -> bool:
        """Whether a flag, `--set` aside, says something else than a file would."""
        return replace(self, set_=None) != self.unchanged()

    def unchanged(self) -> JobFlags:
        """The same without what changes a job: the range of K, the beliefs and the folders of specs stay."""
        return JobFlags(k=self.k, beliefs=self.beliefs, specs=self.specs)

    def job(
        self,
        path: Path | None,
        catalog: Catalog | None = None,
        changed: Mapping[str, Tree] = MappingProxyType({}),
    ) -> Job:
        """The job that a file and the flags describe together; a flag wins over the file, `changed` over both."""
        from perfmodel.specs.jobs import load_job

        overrides = self.overrides() | dict(changed)
        return load_job(path, overrides=overrides, catalog=catalog or self.catalog())

    def catalog(self) -> Catalog:
        """The catalogue, with the user's own folders and quotes."""
        from perfmodel.specs.catalog import Catalog

        made = Catalog.default(tuple(self.specs or ()))
        if self.prices is not None:
            from perfmodel.specs.quotes import read_quotes

            made.quotes = read_quotes(self.prices, made)
        return made

    def any_job(
        self, path: Path | None, changed: Mapping[str, Tree] = MappingProxyType({})
    ) -> Job | ServingJob:
        """The same, where a job that serves is answered too."""
        from perfmodel.specs.jobs import load_any_job

        overrides = self.overrides() | dict(changed)
        return load_any_job(path, overrides=overrides, extra_dirs=tuple(self.specs or ()))

    def service(self, path: Path | None, changed: Mapping[str, Tree] = MappingProxyType({})) -> ServingJob:
        """The same of a job that serves."""
        from perfmodel.errors import UsageError
        from perfmodel.specs.serving import ServingJob

        found = self.any_job(path, changed)
        if not isinstance(found, ServingJob):
            raise UsageError(f"{found.name} serves no requests", code="U002")
        return found

    def overrides(self) -> dict[str, object]:
        """What the flags say, by dotted path."""
        said: dict[str, object] = {
            "workload": self.workload, "cluster": self.cluster, "k": self.k,
            "regime": None if self.regime is None else str(self.regime), "global_batch": self.global_batch,
            "seq_len": self.seq_len, "precision": self.precision,
            "headroom": self.headroom,
            "layout": None if self.layout is None else parse_layout(self.layout),
        }  # fmt: skip
        given = {key: value for key, value in said.items() if value is not None}
        return given | parse_set(self.set_)

    def known(self) -> Beliefs | None:
        """The beliefs that were named, or None for the shipped ones."""
        return load_beliefs(self.beliefs)

    def known_serving(self) -> ServingBeliefs | None:
        """Beliefs of serving that were named, or None for the shipped ones."""
        if self.beliefs is None:
            return None
        from perfmodel.serving.stored import read_serving_beliefs

        return read_serving_beliefs(self.beliefs)


@dataclass(frozen=True)
class ResultFlags:
    """Where a result goes, and the seed behind it."""

    seed: SeedOption = 0
    format: FormatOption = None
    output: OutputOption = None
    plot: PlotOption = None
    report: ReportOption = None
    digits: DigitsOption = None
    full: FullOption = False
    quiet: QuietOption = False
    no_color: NoColorOption = False

    def emit(self, result: Result) -> None:
        """Write a result where the flags say."""
        emit(result, self.format, self.output, self.plot, self.report, self.quiet, self.digits, self.full)


def expanded(verb: Callable[..., object], without: Collection[str] = ()) -> Callable[..., object]:
    """The verb with every parameter that is a group replaced by the group's flags, in their order.

    Flags named in `without` mean nothing to the verb: they keep their defaults.
    """
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, tuple[type, list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        kind = hints[name]
        if not is_dataclass(kind):
            parameters.append(parameter.replace(annotation=kind))
            continue
        shown = [f for f in fields(kind) if f.name not in without]
        groups[name] = kind, [f.name for f in shown]  # type: ignore[assignment]
        own = get_type_hints(kind, include_extras=True)
        parameters += [
            inspect.Parameter(f.name, parameter.kind, default=f.default, annotation=own[f.name])
            for f in shown
        ]

    @functools.wraps(verb)
    def command(**given: object) -> object:
        made = {
            name: group(**{flag: given.pop(flag) for flag in flags})
            for name, (group, flags) in groups.items()
        }
        return verb(**given, **made)

    del command.__dict__["__wrapped__"]  # or the verb's own signature would be read
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    vars(command)["__signature__"] = inspect.Signature(parameters)
    return command
