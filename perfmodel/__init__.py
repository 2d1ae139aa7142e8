"""Predict how a distributed training job scales before renting the hardware.

`import perfmodel as pm` costs nothing; `pm.predict`, `pm.plan` and the rest load what they need when they are first used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import inspect

    from perfmodel.api import (
        Catalog,
        Job,
        Result,
        StudyOptions,
        __version__,
        audit,
        calibrate,
        catalog,
        check,
        compare,
        diagnose,
        explain,
        load_job,
        plan,
        predict,
        study,
        validate,
    )
    from perfmodel.errors import SpecError

__all__ = [
    "Catalog",
    "Job",
    "Result",
    "SpecError",
    "StudyOptions",
    "__version__",
    "audit",
    "calibrate",
    "catalog",
    "check",
    "compare",
    "diagnose",
    "explain",
    "load_job",
    "plan",
    "predict",
    "study",
    "validate",
]
_ELSEWHERE = {
    "SpecError": "perfmodel.errors",
    "Result": "perfmodel.results.envelope",
    "__version__": "perfmodel.results.envelope",
}
_PACKAGES = frozenset(
    {"study", "calibrate", "validate", "explain", "diagnose"}
)  # verbs whose code is a package of that name


class _VerbPackage(ModuleType):
    """A package that is called as its verb: `perfmodel.study(...)`, beside `from perfmodel.study.table import ...`."""

    @property
    def __wrapped__(self) -> Any:
        return getattr(importlib.import_module("perfmodel.api"), self.__name__.rpartition(".")[2])

    @property
    def __signature__(self) -> inspect.Signature:
        signature: inspect.Signature = importlib.import_module("inspect").signature(self.__wrapped__)
        return signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)


class _Package(ModuleType):
    """This package: whichever module first imports one of its verbs' packages makes it callable."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _PACKAGES and isinstance(value, ModuleType):
            value.__class__ = _VerbPackage
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    # Looked up when asked for: `perfmodel --help` must not wait for numpy.
    if name in _PACKAGES:
        return importlib.import_module(f"perfmodel.{name}")
    if name in __all__:
        return getattr(importlib.import_module(_ELSEWHERE.get(name, "perfmodel.api")), name)
    raise AttributeError(f"module 'perfmodel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
