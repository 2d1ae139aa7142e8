"""The configurations of the fixtures with random damage, and files that are long on purpose."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from perfmodel.errors import SpecError
from perfmodel.frameworks.draft import UNKNOWN
from perfmodel.frameworks.reader import read_texts
from perfmodel.specs.loader import read_file

CASES = Path(__file__).parent / "cases"
TRICKS = (
    "$(touch /tmp/x)", "`id`", "${IFS}", "&a", "*a", "!!python/object/apply:os.system [id]", "<<: *a", "\x00", "\ufeff", "\u2028",
    "9" * 400, "-1", "1e999", "nan", "[[[[", "}}}}", "'", '"', "\\", "$((1/0))", "${X:-${X}}", "- - - -", "|", ">", "%YAML 9", "---",
    "=", "--", "--num-layers", "null", "{}", "[]", UNKNOWN,
)  # fmt: skip


def texts() -> list[dict[str, str]]:
    found = []
    for path in sorted(CASES.glob("*.yaml")):
        for case in read_file(path).plain():
            found.append(dict(case.get("files") or {f"{case['name']}.txt": case["text"]}))
    return found


def damaged(rng: random.Random, text: str) -> str:
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(text) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            text = text[:at] + rng.choice(TRICKS) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + rng.randrange(1, 40) :]
        elif kind == 2:
            lines = text.split("\n")
            rng.shuffle(lines)
            text = "\n".join(lines)
        elif kind == 3:
            text = text[:at] + text[at : at + 200] * 3 + text[at:]
        else:
            text = text[:at] + chr(rng.randrange(1, 0x2FF)) + text[at + 1 :]
    return text


def test_damage_gives_a_job_or_an_error_with_a_line() -> None:
    rng = random.Random(20)
    outcomes = {True: 0, False: 0}
    for files in texts():
        for _ in range(4):
            broken = [(damaged(rng, text), name) for name, text in files.items()]
            try:
                read_texts(broken, {})
                outcomes[True] += 1
            except SpecError:
                outcomes[False] += 1
    assert min(outcomes.values()) > 20


MUCH = {
    "repeated keys": "trainer:\n" + "  devices: 8\n" * 5000,
    "many items": "base_model: x\nsequence_len: 1\ndatasets: [" + "{path: a}," * 4000 + "]\n",
    "far too much": "base_model: x\n" + "a: 1\n" * 200_000,
    "doubling": "A=1\n" + "A=${A}${A}\n" * 200 + "torchrun x.py --num-layers $A --hidden-size 4\n",
    "many flags": "torchrun pretrain_gpt.py " + "--num-layers 4 " * 12_000,
    "aliases": "a: &a [x, x, x, x]\n"
    + "".join(f"b{i}: &b{i} [{', '.join([f'*b{i - 1}' if i else '*a'] * 8)}]\n" for i in range(30)),
}
BOUNDED = """
import json, resource, sys
from perfmodel.errors import SpecError
from perfmodel.frameworks.reader import read_texts
resource.setrlimit(resource.RLIMIT_AS, (1_200_000_000, 1_200_000_000))
for name, text in json.load(sys.stdin).items():
    try:
        read_texts([(text, name)], {})
    except SpecError:
        pass
    print(name)
"""


def test_much_text_takes_little_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED],
        input=json.dumps(MUCH),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.splitlines() == list(MUCH)
