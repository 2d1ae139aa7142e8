"""How large the package is and how far a prediction reaches: `python benchmarks/house.py`.

Prints code lines (without comments and docstrings), uses of `Any`, files that one `predict` runs through and modules that it
loads, and the processor time of the whole command. `benchmarks/RESULTS.md` keeps what it printed at releases.
"""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "perfmodel"
JOB = ["predict", "-w", "llama3-8b", "-c", "dgx-h100"]
SILENT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
    tokenize.ENCODING,
}  # fmt: skip
#: Modules that read what others wrote, where a value may be anything until it was checked: YAML, logs and traces, the files
#: of training frameworks, configs of models, traced modules.
PARSING = (
    "specs/loader.py", "specs/simple_yaml.py", "specs/checking.py", "specs/fields.py", "readings/", "frameworks/",
    "workloads/from_hf.py", "workloads/from_torch.py", "workloads/torch_trace.py",
)  # fmt: skip

_TRACE = """
import inspect, json, sys
root, sys.argv = sys.argv[1], ["perfmodel", *sys.argv[2:]]
from perfmodel.cli.main import main
reached = set()
def note(frame, event, argument):
    code = frame.f_code
    # A class body runs once, at import, and is no function.
    if event == "call" and code.co_filename.startswith(root) and code.co_flags & inspect.CO_OPTIMIZED:
        reached.add(code.co_filename)
sys.setprofile(note)
try:
    main()
except SystemExit:
    pass
sys.setprofile(None)
loaded = [name for name in sys.modules if name.partition(".")[0] == "perfmodel"]
print(json.dumps({"files": sorted(reached), "modules": len(loaded)}), file=sys.stderr)
"""


def code_lines(text: str) -> int:
    """Lines that hold code."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                documented |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT:
            used |= set(range(token.start[0], token.end[0] + 1))
    return len(used - documented)


def any_uses(text: str) -> int:
    """Uses of `Any` in annotations and elsewhere; its import does not count."""
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(ast.parse(text)))


def reach() -> tuple[list[str], int]:
    """Files whose functions one prediction calls, and modules that it loads."""
    done = subprocess.run(
        [sys.executable, "-c", _TRACE, str(PACKAGE), *JOB],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    found = json.loads(done.stderr.splitlines()[-1])
    return [str(Path(name).relative_to(PACKAGE)) for name in found["files"]], int(found["modules"])


def processor_s() -> float:
    """Least processor time of five runs of the whole command, with compiled modules at hand."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    best = float("inf")
    for _ in range(6):
        before = os.times()
        subprocess.run(
            [sys.executable, "-m", "perfmodel", *JOB],
            capture_output=True,
            check=True,
            cwd=ROOT,
            env=environment,
        )
        after = os.times()
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        best = min(best, spent)
    return best


def main() -> None:
    texts = {
        path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
        for path in PACKAGE.rglob("*.py")
    }
    loose = {name: any_uses(text) for name, text in texts.items()}
    parsing = sum(count for name, count in loose.items() if name.startswith(PARSING))
    files, modules = reach()
    print(f"code lines in the wheel         {sum(code_lines(text) for text in texts.values()):7,}")
    print(f"Any, outside parsing            {sum(loose.values()) - parsing:7,}")
    print(f"Any, parsing                    {parsing:7,}")
    print(f"files that one predict runs     {len(files):7,}")
    print(f"modules that one predict loads  {modules:7,}")
    print(f"processor time of predict [s]   {processor_s():7.2f}")
    if "--files" in sys.argv:
        print("\n".join(files))


if __name__ == "__main__":
    main()
