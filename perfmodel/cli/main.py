"""The command line. A verb's module is imported only when that verb is asked for."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from perfmodel.cli.interruption import interruptible
from perfmodel.cli.overwriting import refuse_overwriting
from perfmodel.errors import EXIT_FAULT, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, SpecError

# verb: its line in --help. perfmodel.cli.<verb> exposes register(app).
VERBS: dict[str, str] = {
    "demo": "Predict a built-in job: no input, no network.",
    "init": "Write a commented job.yaml, perfmodel.yaml and a CI snippet.",
    "import": "Framework configs and launch scripts -> a job file.",
    "predict": "T(K) with bands, knee, cost and energy of a job.",
    "explain": "Every term at one K: formula, inputs, sources, share.",
    "diagnose": "Is my run slow: expected against measured, causes ranked.",
    "study": "Measured timings -> speedup, bend, cause, cost, verdict.",
    "plan": "Search layouts and hardware for a deadline or budget.",
    "compare": "Two jobs side by side, and which changed input caused what.",
    "audit": "A vendor's claim -> consistent, suspicious or impossible.",
    "check": "CI gate: policies and a committed baseline.",
    "calibrate": "Measurements -> beliefs, with a fit report.",
    "validate": "Predictions against measured runs.",
    "measure": "Time this machine: collectives, matmul, memory, a step.",
    "workload": "Write a workload spec from a model's config or code.",
    "roofline": "Where each phase of a job sits.",
    "collective": "One collective by ring, tree and the others.",
    "workdepth": "Work, span and the speedup that a computation admits.",
    "law": "Amdahl, Gustafson, USL from the shell.",
    "catalog": "The hardware, workload and price catalogue.",
    "schema": "JSON Schema of a spec, for editors.",
    "report": "Render a saved result again.",
    "mcp": "The verbs as tools for assistants, on stdio.",
    "serve": "The what-if page, on loopback.",
}
_MODULES = {"import": "import_"}  # a verb that is a word of Python
_EPILOG = "Exit codes: 0 good; 1 a policy, validation or audit failed; 2 bad usage or input; 3 a fault of ours; 130 interrupted."


def _print_version(wanted: bool) -> None:
    if wanted:
        from perfmodel.results.envelope import __version__

        typer.echo(f"perfmodel {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Declare the hardware and the workload; get the scaling curve, the knee and the price."""


def build_app(verb: str | None) -> typer.Typer:
    """The app with one verb loaded, or, for `--help` and typing errors, with every verb as its help line only."""
    app = typer.Typer(
        name="perfmodel",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
        epilog=_EPILOG,
    )
    app.callback(epilog=_EPILOG)(_root)
    if verb is not None:
        importlib.import_module(f"perfmodel.cli.{_MODULES.get(verb, verb)}").register(app)
        return app
    for name, text in VERBS.items():
        app.command(name, help=text)(_placeholder)
    return app


def _placeholder() -> None:
    """Stands for a verb where only its name and help line are needed."""


def _verb_of(arguments: Sequence[str]) -> str | None:
    """The verb that is being called or completed."""
    completing: list[str] = []
    if "_PERFMODEL_COMPLETE" in os.environ:
        # Bash gives the words under one name, the other shells under another.
        typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
        completing = typed.split()[1:]
    first = next((word for word in [*arguments, *completing] if not word.startswith("-")), None)
    return first if first in VERBS else None


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Every exception ends here."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal of another encoding lacks some characters
        sys.stdout.reconfigure(errors="replace")
    colour_before = os.environ.get("NO_COLOR")
    if "--no-color" in arguments:
        os.environ["NO_COLOR"] = "1"
    verb = _verb_of(arguments)
    try:
        with interruptible(verb):
            refuse_overwriting(arguments)
            code = build_app(verb)(arguments, prog_name="perfmodel", standalone_mode=False)
            sys.stdout.flush()
        if code == EXIT_INTERRUPTED:  # typer turns KeyboardInterrupt into this code without a word
            return _say("interrupted", EXIT_INTERRUPTED)
        return code if isinstance(code, int) else EXIT_OK
    except SpecError as error:
        return _say(str(error), EXIT_USAGE)
    except KeyboardInterrupt:
        return _say("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of a pipe (head, less) went away; what it wanted, it has.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich has seen the same, and leaves with 1
            return EXIT_OK
        raise
    except OSError as error:  # a full disk, a name that is too long: nothing that we could mend
        where = f"{error.filename}: " if error.filename else ""
        if error.filename is None:  # standard output itself: do not fail again when it is flushed at exit
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _say(f"error[U014]: {where}{error.strerror or error}", EXIT_USAGE)
    except Exception as error:
        return _other(error)
    finally:
        if colour_before is None:
            os.environ.pop("NO_COLOR", None)
        else:
            os.environ["NO_COLOR"] = colour_before


def _other(error: Exception) -> int:
    if isinstance(error, typer.Abort) and isinstance(error.__cause__, EOFError):
        error = error.__cause__  # typer takes the end of any file for a user who left
    if isinstance(error, typer.Abort):
        return _say("interrupted", EXIT_INTERRUPTED)
    # typer's own usage errors; their class lives in click or inside typer, depending on its version.
    describe = getattr(error, "format_message", None)
    if describe is not None:
        if type(error).__name__ == "NoArgsIsHelpError":  # the message is the help itself
            return _say(describe(), EXIT_USAGE)
        from perfmodel.cli.wording import complaint

        return _say(str(complaint(error)), EXIT_USAGE)
    if os.environ.get("PERFMODEL_DEBUG") == "1":
        traceback.print_exception(error)
    return _say(
        f"internal fault: {type(error).__name__}: {' '.join(str(error).split())}; this is our mistake: please report it "
        "with the command and its input (PERFMODEL_DEBUG=1 shows the traceback)",
        EXIT_FAULT,
    )


def _say(message: str, code: int) -> int:
    with contextlib.suppress(
        OSError
    ):  # the reader of stderr is gone, or its disk is full: the code says it all the same
        print(message, file=sys.stderr, flush=True)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
