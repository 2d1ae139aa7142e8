"""No line of a file can keep a regular expression busy: long runs of what the expressions repeat, searched by all of them."""

from __future__ import annotations

import importlib
import pkgutil
import re
import time

import perfmodel

LONG = 1500  # characters: a search whose time grows with their cube takes minutes, a good one milliseconds
MOST_S = 1.0  # of processor time
RUNS = ("9", " ", "a", "1 ")
NEED_MORE = ("__main__", "from_torch", "torch_trace", "pytest_plugin")


def patterns() -> dict[str, re.Pattern[str]]:
    """Every expression that a module of the package keeps, alone or in a collection."""
    found: dict[str, re.Pattern[str]] = {}
    for module in pkgutil.walk_packages(perfmodel.__path__, "perfmodel."):
        if module.name.endswith(NEED_MORE):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            items = tuple(value.values()) if isinstance(value, dict) else value
            for item in items if isinstance(items, (tuple, list)) else (value,):
                pattern = item if isinstance(item, re.Pattern) else getattr(item, "pattern", None)
                if isinstance(pattern, re.Pattern) and isinstance(pattern.pattern, str):
                    found.setdefault(pattern.pattern, pattern)
    return found


def hostile(pattern: str) -> list[str]:
    """Runs alone, and behind the words that the expression looks for."""
    plain = re.sub(r"\\[a-zA-Z]|\(\?P<\w+>|\(\?i\)", "~", pattern)
    words = dict.fromkeys(re.findall(r"[A-Za-z][A-Za-z_ ]{1,30}[:=(/\[]?", plain))
    texts = []
    for word in ("", *list(words)[:3]):
        texts += [word + run * (LONG // len(run)) for run in RUNS]
        texts += [(word + run) * (LONG // len(word + run)) for run in RUNS]
    return texts


def test_no_expression_takes_long_on_any_line() -> None:
    found = patterns()
    assert len(found) > 50
    slow = {}
    for text, pattern in found.items():
        for line in hostile(text):
            began = time.process_time()
            pattern.search(line)
            if (spent := time.process_time() - began) > MOST_S:
                slow[text] = (spent, line[:40])
                break
    assert slow == {}
