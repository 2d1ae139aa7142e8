"""Plots: each a function of an envelope that returns a matplotlib Figure, in one house style.

`figure(envelope, name)` draws one by name, `save` writes it: the same input gives the same bytes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from perfmodel.errors import UsageError
from perfmodel.files import write_whole
from perfmodel.report.kinds import rendering_of
from perfmodel.report.model import Envelope, kind_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MODULES = {
    "speedup": "scaling",
    "efficiency": "scaling",
    "weak": "scaling",
    "comparison": "scaling",
    "parts": "breakdown",
    "shares": "breakdown",
    "ledger": "breakdown",
    "terms": "breakdown",
    "workers": "workers",
    "cost": "money",
    "pareto": "money",
    "tornado": "money",
    "sweep": "planning",
    "serving": "serving",
    "serving_load": "serving",
    "serving_step": "serving",
    "serving_front": "serving",
    "roofline": "physics",
    "straggler": "physics",
    "collective": "physics",
    "admitted": "physics",
    "validation": "evidence",
    "runs": "evidence",
    "error_by_k": "evidence",
    "calibration": "evidence",
    "sweeps": "evidence",
    "policies": "evidence",
    "audit": "evidence",
}
NAMES = tuple(_MODULES)
FORMATS = ("svg", "png", "pdf")


def figure(envelope: Envelope, name: str | None = None) -> Figure:
    """The plot `name` of a result; without a name, the main one of its kind."""
    from perfmodel.report.plots import style

    fitting = rendering_of(envelope).figures(envelope)
    chosen = name or (fitting[0] if fitting else None)
    if chosen not in _MODULES:
        known = ", ".join(fitting) or "none"
        what = f'plot "{name}"' if name else "plot"
        raise UsageError(f"a {kind_of(envelope) or 'result'} has no {what}; it has: {known}")
    module = importlib.import_module(f"perfmodel.report.plots.{_MODULES[chosen]}")
    draw: Callable[[Envelope], Figure] = module.PLOTS[chosen]
    with style.context():
        return draw(envelope)


def save(drawn: Figure | Envelope, target: str | Path | IO[bytes], form: str | None = None) -> None:
    """Write a figure, or the main plot of an envelope, as svg, png or pdf by the ending of the path.

    No dates are written, so the bytes repeat.
    """
    from perfmodel.report.plots import style

    if form is None:
        form = Path(str(target)).suffix.lstrip(".").lower() if isinstance(target, (str, Path)) else "svg"
    if form not in FORMATS:
        raise UsageError(f'cannot write a plot as "{form}"; use one of: {", ".join(FORMATS)}')
    metadata = {
        "svg": {"Date": None},
        "pdf": {"CreationDate": None, "ModDate": None},
        "png": {"Software": None},
    }[form]
    drawn = figure(drawn) if isinstance(drawn, Mapping) else drawn
    import io

    out = io.BytesIO()
    with style.context():
        drawn.savefig(out, format=form, metadata=metadata)
    if isinstance(target, (str, Path)):
        write_whole(Path(target), out.getvalue())
    else:
        target.write(out.getvalue())


def svg(envelope: Envelope, name: str | None = None) -> str:
    """A plot as SVG text."""
    import io

    out = io.BytesIO()
    save(figure(envelope, name), out, "svg")
    return out.getvalue().decode()
