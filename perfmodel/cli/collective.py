"""`perfmodel collective OP --bytes --ranks`: one collective by every algorithm, and what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli.groups import ResultFlags, expanded
from perfmodel.cli.options import BeliefsOption, ClusterOption, SpecsOption, load_beliefs
from perfmodel.cli.readings import quantity, worker_counts
from perfmodel.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from perfmodel.explain.one_collective import Asked, Measurement
    from perfmodel.specs.hardware import Cluster

_LEAST, _MOST = 1.0, 1e15  # bytes of a message
_MOST_SIZES = 200


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("collective")(expanded(collective))


def collective(
    operation: Annotated[
        str,
        typer.Argument(
            metavar="OP",
            show_default=False,
            help="all_reduce, all_gather, reduce_scatter, all_to_all or broadcast.",
        ),
    ],
    sizes: Annotated[
        str,
        typer.Option(
            "--bytes", metavar="SIZE,...", help="Message sizes: 100MB | 1kB,1MB | 1kB..1GB (doubling)."
        ),
    ],
    ranks: Annotated[
        str,
        typer.Option("--ranks", metavar="RANGE", help="Ranks of the group: 64 | 8,64 | 2..1024 (doubling)."),
    ],
    cluster: ClusterOption = None,
    algorithm: Annotated[
        str,
        typer.Option(
            help="all, or names separated by commas: auto, ring, tree, halving_doubling, in_switch, hierarchical, "
            "parameter_server."
        ),
    ] = "all",
    alpha: Annotated[
        str | None, typer.Option(help='Latency of one message, such as "5 us", in place of a cluster.')
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(help='Bandwidth of one link, such as "25 GB/s", in place of a cluster.')
    ] = None,
    reduce_rate: Annotated[
        str | None,
        typer.Option(
            help='Rate at which a rank adds, such as "100 GB/s" (gamma is one over it); free by default.'
        ),
    ] = None,
    servers: Annotated[int, typer.Option(min=1, help="Servers of the parameter server, with --alpha.")] = 1,
    beliefs: BeliefsOption = None,
    specs: SpecsOption = None,
    *,
    to: ResultFlags,
) -> None:
    """Price one collective by each algorithm: messages x alpha, bytes x beta, gamma, crossovers, measured times beside."""
    from perfmodel.explain.one_collective import OPERATIONS, Asked, Stated, by_letters, on_cluster

    op = operation.replace("-", "_")
    if op not in OPERATIONS:
        raise UsageError(
            f'no collective "{operation}"{did_you_mean(op, OPERATIONS)}',
            code="U016",
            help=f"one of {', '.join(OPERATIONS)}",
        )
    asked = Asked(
        op, message_sizes("--bytes", sizes), worker_counts("--ranks", ranks), _names(algorithm), servers
    )
    stated = {"--alpha": alpha, "--bandwidth": bandwidth, "--reduce-rate": reduce_rate}
    said = [flag for flag, value in stated.items() if value is not None] + (
        ["--servers"] if servers != 1 else []
    )
    if cluster is not None:
        if said:
            raise UsageError(
                f"both a cluster and {', '.join(said)}",
                code="U016",
                help="a cluster has links of its own; leave one of the two out",
            )
        known = load_beliefs(beliefs)
        found = _cluster(cluster, specs)
        to.emit(on_cluster(asked, found, known, _measured(asked, found), seed=to.seed))
        return
    if alpha is None or bandwidth is None:
        raise UsageError(
            "no links given",
            code="U002",
            help='name a cluster with -c, or state --alpha "5 us" --bandwidth "25 GB/s"',
        )
    link = Stated(
        _positive("--alpha", alpha, "s", zero=True),
        _positive("--bandwidth", bandwidth, "B/s"),
        0.0 if reduce_rate is None else _positive("--reduce-rate", reduce_rate, "B/s"),
    )
    to.emit(by_letters(asked, link, seed=to.seed))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip().replace("-", "_") for part in text.split(",") if part.strip()))
    if not names:
        raise UsageError("--algorithm: nothing given", code="U016", help="write all, or ring,tree")
    return () if names == ("all",) else names


def _positive(flag: str, text: str, dimension: str, *, zero: bool = False) -> float:
    value = quantity(flag, text, dimension) or 0.0
    if value < 0 or (value == 0 and not zero) or value > 1e18:
        raise UsageError(
            f"{flag} must be {'zero or ' if zero else ''}above zero and finite, got {text}", code="U021"
        )
    return value


def message_sizes(flag: str, text: str) -> tuple[float, ...]:
    """`100MB`, `1kB,1MB` or `1kB..1GB` (doubling) in bytes, in order.

    >>> message_sizes("--bytes", "1kB..4kB"), message_sizes("--bytes", "100 MB")
    ((1000.0, 2000.0, 4000.0), (100000000.0,))
    """
    found: list[float] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        low_text, dots, high_text = part.partition("..")
        low = quantity(flag, low_text, "B") or 0.0
        high = (quantity(flag, high_text, "B") or 0.0) if dots else low
        if not _LEAST <= low <= high <= _MOST:
            raise UsageError(f"{flag}: sizes run from 1 B to 1 PB, upwards, got {part}", code="U021")
        while low <= high * (1 + 1e-12):
            found.append(low)
            low *= 2.0
    sizes = tuple(sorted(set(found)))
    if not sizes:
        raise UsageError(
            f"{flag}: nothing given", code="U021", help=f"write {flag} 100MB, or {flag} 1kB..1GB"
        )
    if len(sizes) > _MOST_SIZES:
        raise UsageError(f"{flag}: more than {_MOST_SIZES} sizes", code="U021")
    return sizes


def _cluster(name: str, specs: object) -> Cluster:
    from perfmodel.specs.jobs import load_job

    # Any workload will do to look a cluster up: nothing of it reaches the result.
    job = load_job(None, overrides={"workload": "resnet50", "cluster": name}, extra_dirs=tuple(specs or ()))  # type: ignore[arg-type]
    return job.cluster


def _measured(asked: Asked, cluster: Cluster) -> list[Measurement]:
    """Calls of the shipped corpus on that accelerator and network, among as many ranks."""
    from perfmodel.validate.measured_calls import measured_calls

    return measured_calls(asked.op, asked.ranks, asked.sizes, cluster)
