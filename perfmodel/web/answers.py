"""The library behind the server: requests in, envelopes out. The only module here that knows how to predict."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from perfmodel.errors import Problem, SpecError, did_you_mean
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.jobs import load_job
from perfmodel.specs.loader import Mark, Source
from perfmodel.specs.prices import resolve_price
from perfmodel.web.kept import Kept
from perfmodel.web.requests import WhatIf
from perfmodel.web.service import ServiceIf

if TYPE_CHECKING:
    from perfmodel.beliefs.population import Beliefs
    from perfmodel.physics.layouts import Layouts
    from perfmodel.specs.hardware import Cluster
    from perfmodel.specs.job import Job
    from perfmodel.training.curve import Curve
    from perfmodel.training.search import Search

MOST_FITS = 64
SEARCH_BYTES = 5 * 1024 * 1024
CURVE_BYTES = 5 * 1024 * 1024  # sixty or so in each worker
# What a drag may move without moving the curve, and without moving the layouts to choose from.
MONEY: dict[str, object] = {"price": None, "fixed": None, "steps": None, "grid": None}
LINKS: dict[str, object] = {"bandwidth": None, "latency": None, "jitter": None, "timings": (), "seed": 0}
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")
SHARDINGS = ("ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp")


class Answers(Protocol):
    """What the server asks for. Every method runs in a worker thread and may raise `SpecError`."""

    def catalogue(self) -> dict[str, object]:
        """Workloads, clusters and grids to choose from, with the values that the page's sliders start at."""
        ...

    def predict(self, request: WhatIf) -> dict[str, object]:
        """The envelope of a prediction."""
        ...

    def compare(self, a: WhatIf, b: WhatIf) -> dict[str, object]:
        """The envelope of a comparison."""
        ...

    def scale_out(self, request: WhatIf) -> str | None:
        """The catalogue's name of the link between the cluster's nodes."""
        ...

    def service(self, request: ServiceIf) -> dict[str, object]:
        """The envelope of a predicted service."""
        ...


class Library:
    """Answers from this package. Specs are read from the catalogue's folders and nowhere else."""

    def __init__(self, extra_dirs: Sequence[Path] = (), beliefs: Beliefs | None = None) -> None:
        from perfmodel.beliefs.population import shipped_beliefs

        self._catalog = Catalog.default(extra_dirs)
        self._beliefs = beliefs or shipped_beliefs()
        self._fits: dict[str, Beliefs] = {}
        self._curves: Kept[Curve] = Kept(CURVE_BYTES)
        self._searches: Kept[Search] = Kept(SEARCH_BYTES)
        self._known = {
            "workload": frozenset(self._catalog.names("workloads")),
            "cluster": frozenset((*self._catalog.names("clusters"), *self._catalog.names("nodes"))),
            "grid": frozenset(self._catalog.names("grids")),
        }
        self._reading = threading.Lock()  # the catalogue remembers what it read

    def catalogue(self) -> dict[str, object]:
        """Names with what a person needs to choose; an entry that cannot be read is left out and counted."""
        catalog, unreadable = self._catalog, 0
        workloads, clusters = [], []
        with self._reading:
            for name in catalog.names("workloads"):
                try:
                    found = catalog.get("workloads", name)
                except SpecError:
                    unreadable += 1
                    continue
                row = {"name": name, "label": found.title or name, "kind": found.kind, "params": found.params}
                workloads.append(row | {"seq_len": found.seq_len, "sample": found.sample})
            for name in sorted({*catalog.names("clusters"), *catalog.names("nodes")}):
                try:
                    clusters.append(self._cluster(name, catalog.cluster(name)))
                except SpecError:
                    unreadable += 1
        return {
            "workloads": workloads,
            "clusters": clusters,
            "grids": catalog.names("grids"),
            "precisions": PRECISIONS,
            "shardings": SHARDINGS,
            "unreadable": unreadable,
        }

    def predict(self, request: WhatIf) -> dict[str, object]:
        """The envelope of a prediction; the measured steps of a calibration stand beside the curve."""
        from perfmodel.decide.prediction import predict

        job = self._job(request)
        known = self._calibrated(job, request)
        found = self._curve(job, known, request)
        envelope = predict(job, known, seed=request.seed, found=found).envelope()
        if request.timings:
            envelope["result"]["measured"] = [{"k": row.k, "time_s": row.time_s} for row in request.timings]
        return envelope

    def compare(self, a: WhatIf, b: WhatIf) -> dict[str, object]:
        """Both predictions, and the changed inputs that explain the difference."""
        from perfmodel.explain.comparison import compare

        if a.timings or b.timings:
            message = "a comparison takes no timings: each side would be calibrated apart"
            raise SpecError(Problem("--timings", code="R012", message=message))
        names = (f"{a.workload} on {a.cluster}", f"{b.workload} on {b.cluster}")
        shown = None if names[0] == names[1] else names
        return compare(self._job(a), self._job(b), self._beliefs, names=shown, seed=a.seed).envelope()

    def scale_out(self, request: WhatIf) -> str | None:
        """The catalogue's name of the link between the cluster's nodes."""
        job = self._job(request)
        link = job.cluster.network
        return link.name if link is not None else None

    def service(self, request: ServiceIf) -> dict[str, object]:
        """The envelope of a predicted service."""
        from perfmodel.decide.serving.prediction import predict_serving
        from perfmodel.specs.jobs import load_any_job
        from perfmodel.specs.serving import ServingJob

        self._refuse_unknown(request)
        with self._reading:
            job = load_any_job(request.job(), catalog=self._catalog)
        if not isinstance(job, ServingJob):  # the request always has the block
            raise SpecError(Problem("--serving", code="S010", message="no service was asked for"))
        return predict_serving(job).envelope()

    def _cluster(self, name: str, cluster: Cluster) -> dict[str, object]:
        link = cluster.network
        price, _ = resolve_price(None, cluster, self._catalog, Mark(Source("")))
        return {
            "name": name,
            "label": cluster.title or cluster.node.title or name,
            "accelerator": cluster.accelerator.name,
            "accelerators_per_node": cluster.node.accelerators_per_node,
            "max_accelerators": cluster.max_accelerators,
            "bandwidth": link.bandwidth if link else None,
            "latency": link.latency if link else None,
            "price_usd_per_h": round(price.per_accelerator * 3600, 6)
            if price.per_accelerator is not None
            else None,
        }

    def _job(self, request: WhatIf) -> Job:
        """The job, from names that the catalogue holds: a name that looks like a file is not one here."""
        self._refuse_unknown(request)
        with self._reading:
            return load_job(None, overrides=request.overrides(), catalog=self._catalog)

    def _refuse_unknown(self, request: WhatIf | ServiceIf) -> None:
        problems = []
        for field, names in self._known.items():
            name = getattr(request, field, None)
            if name is not None and name not in names:
                problems.append(
                    Problem(
                        f"--{field}",
                        code="S008",
                        message=f'no {field} named "{name}"{did_you_mean(name, names)}',
                    )
                )
        if problems:
            raise SpecError(problems)

    def _curve(self, job: Job, beliefs: Beliefs, request: WhatIf) -> Curve:
        """The curve, or the one kept from a question that differs in money alone."""
        from perfmodel.decide.prediction import curve_of
        from perfmodel.training.search import search
        from perfmodel.training.setup import setup_of

        bare = request.model_copy(update=MONEY)
        key = bare.canonical()
        found = self._curves.get(key)
        if found is None:
            layouts = bare.model_copy(update=LINKS).canonical()
            among = self._searches.get(layouts)
            if among is None:
                among = search(setup_of(job))
                self._searches.put(layouts, among, _bytes_in(among.at))
            found = curve_of(job, beliefs, seed=request.seed, among=among)
            self._curves.put(key, found, 3 * _bytes_in(found))
        return found

    def _calibrated(self, job: Job, request: WhatIf) -> Beliefs:
        """The beliefs, conditioned on the request's measured steps when it has some."""
        if not request.timings:
            return self._beliefs
        # Money and the range of K say nothing about the fit.
        key = request.model_copy(update={**MONEY, "k": "1", "seed": 0}).canonical()
        found = self._fits.get(key)
        if found is None:
            found = self._fit(job, request)
            if len(self._fits) >= MOST_FITS:
                self._fits.pop(next(iter(self._fits)))
            self._fits[key] = found
        return found

    def _fit(self, job: Job, request: WhatIf) -> Beliefs:
        import numpy as np

        from perfmodel.calibrate.job import calibrate
        from perfmodel.calibrate.timed import batch_of_timings, faster_than_peak
        from perfmodel.training.setup import setup_of

        k = np.array([row.k for row in request.timings], dtype=float)
        limit = job.cluster.max_accelerators
        if limit is not None and k.max() > limit:
            message = f"K = {int(k.max())} was measured, but the cluster has {limit} accelerators"
            raise SpecError(Problem("--timings", code="R010", message=message))
        given = np.array([row.global_batch or np.nan for row in request.timings], dtype=float)
        batch = batch_of_timings(job, k, given)
        times = np.array([row.time_s for row in request.timings])
        for message in faster_than_peak(job, k, batch, times).values():
            raise SpecError(Problem("--timings", code="R013", message=message))
        found, _ = calibrate(replace(setup_of(job), k=k, global_batch=batch), times, self._beliefs)
        if found.calibration is None or not np.isfinite(found.calibration.mean).all():
            raise SpecError(Problem("--timings", code="R011", message="the timings do not fit this job"))
        return found


def _bytes_in(struct: Curve | Layouts) -> int:
    """Size of a struct's own arrays, and something for the rest of it."""
    return 8192 + sum(int(getattr(getattr(struct, f.name), "nbytes", 0)) for f in fields(struct))
