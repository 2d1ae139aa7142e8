"""Launch scripts as text: variables, arrays and conditions are followed, and nothing is ever run.

What only a running shell can resolve (`$1`, `$(hostname)`, a variable of the environment) becomes `UNKNOWN` inside the word.
Every character keeps its line, so that a flag from an array or a variable keeps the line where it is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from perfmodel.frameworks.draft import UNKNOWN

Chars = list[tuple[str, int]]  # characters with the lines they come from
MOST_CHARS = 30_000  # of one expanded word: variables can double each other without end
MOST_WORDS = 20_000
_NAME = re.compile(r"[A-Za-z_]\w*")
_NUMBER_TESTS = {"-eq": "==", "-ne": "!=", "-gt": ">", "-ge": ">=", "-lt": "<", "-le": "<="}


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command, expanded, with the line it is written on."""

    text: str
    line: int


@dataclass
class Script:
    """What a script would run, as far as its text shows; `doubtful` are flags under unknown conditions."""

    commands: list[list[Word]] = field(default_factory=list)
    directives: list[Word] = field(default_factory=list)  # of #SBATCH
    doubtful: list[Word] = field(default_factory=list)
    variables: dict[str, list[Chars]] = field(default_factory=dict)


def read_script(text: str) -> Script:
    """The commands of a script, with its variables in place.

    >>> found = read_script("TP=4\\nARGS=(--tp $TP # degrees\\n --pp ${PP:-2})\\ntorchrun x.py ${ARGS[@]} --n $((TP*2))")
    >>> [(word.text, word.line) for word in found.commands[0]][2:]
    [('--tp', 2), ('4', 1), ('--pp', 3), ('2', 3), ('--n', 4), ('8', 4)]
    """
    return _Reader(text).read()


@dataclass
class _Statement:
    line: int
    parts: list[Chars]  # raw words, quotes kept
    array: str | None = None
    adds: bool = False


class _Reader:
    def __init__(self, text: str) -> None:
        self.script = Script()
        self.blocks: list[bool | None] = []
        self.taken: list[bool | None] = []
        self.words = 0
        for number, line in enumerate(text.split("\n"), start=1):
            found = re.match(r"\s*#SBATCH\s+(.*)", line)
            if found:
                for word in found.group(1).split("#")[0].split():
                    self.script.directives.append(Word(word, number))
        self.chars: Chars = []
        line_no = 1
        for char in text.replace("\r\n", "\n"):
            self.chars.append((char, line_no))
            line_no += char == "\n"
        self._slurm_variables()

    def _slurm_variables(self) -> None:
        words = self.script.directives
        said: dict[str, tuple[str, int]] = {}
        for index, word in enumerate(words):
            key, equals, value = word.text.partition("=")
            if not equals and index + 1 < len(words) and not words[index + 1].text.startswith("-"):
                value = words[index + 1].text
            said[key] = (value, word.line)
        named = {
            "SLURM_NNODES": ("--nodes", "-N"), "SLURM_JOB_NUM_NODES": ("--nodes", "-N"),
            "SLURM_NTASKS_PER_NODE": ("--ntasks-per-node",), "SLURM_NTASKS": ("--ntasks", "-n"),
            "SLURM_GPUS_PER_NODE": ("--gpus-per-node",), "SLURM_CPUS_PER_TASK": ("--cpus-per-task", "-c"),
        }  # fmt: skip
        for name, keys in named.items():
            for key in keys:
                if key in said:
                    value, line = said[key]
                    last = value.rsplit(":", 1)[-1]
                    self.script.variables[name] = [[(char, line) for char in last]]

    def read(self) -> Script:
        for statement in self._statements():
            self._do(statement)
            if self.words > MOST_WORDS:
                break
        return self.script

    # -- splitting ---------------------------------------------------------------------------------------------

    def _statements(self) -> list[_Statement]:
        """Raw statements: words with their quotes, arrays as one statement; comments and here-documents left out."""
        found: list[_Statement] = []
        words: list[Chars] = []
        word: Chars = []
        chars, at, end = self.chars, 0, len(self.chars)
        heredocs: list[str] = []
        array: tuple[str, bool, int] | None = None
        outer: list[Chars] = []

        def close_word() -> None:
            nonlocal word
            if word:
                words.append(word)
                word = []

        def close(line: int) -> None:
            nonlocal words
            close_word()
            if words and array is None:
                found.append(_Statement(words[0][0][1] or line, words))
                words = []

        while at < end:
            char, line = chars[at]
            if char == "\\" and at + 1 < end:
                follows = chars[at + 1][0]
                if follows == "\n":
                    if array is None and not word and not words:
                        pass
                    at += 2
                    continue
                if follows == " " and self._blank_to_end(at + 1):  # a stray space after the backslash
                    at += 1
                    while at < end and chars[at][0] != "\n":
                        at += 1
                    at += 1
                    continue
                word += [("'", line), (follows, line), ("'", line)] if follows != "'" else [("\u2019", line)]
                at += 2
                continue
            if char in "'\"`":
                stop = self._quoted(at)
                word += chars[at:stop]
                at = stop
                continue
            if char == "$" and at + 1 < end and chars[at + 1][0] in "({":
                stop = self._bracketed(at + 1)
                word += chars[at:stop]
                at = stop
                continue
            if char == "#" and not word:
                while at < end and chars[at][0] != "\n":
                    at += 1
                continue
            if char == "(" and array is None and word and word[-1][0] == "=":
                text = "".join(c for c, _ in word)
                name = _NAME.match(text)
                if name and text[name.end() :] in ("=", "+="):
                    array = (name.group(), text.endswith("+="), line)
                    outer, words, word = words, [], []
                    at += 1
                    continue
            if char == ")" and array is not None:
                close_word()
                found.append(_Statement(array[2], words, array[0], array[1]))
                array, words, outer = None, outer, []
                at += 1
                continue
            if char == "<" and at + 1 < end and chars[at + 1][0] == "<" and array is None:
                rest = "".join(c for c, _ in chars[at : at + 80])
                here = re.match(r"<<-?\s*['\"]?(\w+)['\"]?", rest)
                if here:
                    heredocs.append(here.group(1))
                    at += here.end()
                    continue
            if char == "\n" or (array is None and char in ";&|"):
                close(line)
                at += 1
                if char == "\n" and heredocs:
                    at = self._after(heredocs, at)
                continue
            if char in " \t":
                close_word()
                at += 1
                continue
            if char in "{}()" and array is None and not word and self._alone(at):
                close(line)
                at += 1
                continue
            word.append((char, line))
            at += 1
        if array is not None:  # no closing bracket: what was read still counts
            close_word()
            found.append(_Statement(array[2], words, array[0], array[1]))
        else:
            close(chars[-1][1] if chars else 1)
        return found

    def _alone(self, at: int) -> bool:
        after = self.chars[at + 1][0] if at + 1 < len(self.chars) else "\n"
        return after in " \t\n;"

    def _blank_to_end(self, at: int) -> bool:
        while at < len(self.chars) and self.chars[at][0] in " \t":
            at += 1
        return at >= len(self.chars) or self.chars[at][0] == "\n"

    def _after(self, heredocs: list[str], at: int) -> int:
        """The place after the here-documents that begin here."""
        while heredocs and at < len(self.chars):
            line = []
            while at < len(self.chars) and self.chars[at][0] != "\n":
                line.append(self.chars[at][0])
                at += 1
            at += 1
            if "".join(line).strip() == heredocs[0]:
                heredocs.pop(0)
        heredocs.clear()
        return at

    def _quoted(self, at: int) -> int:
        quote, at = self.chars[at][0], at + 1
        while at < len(self.chars) and self.chars[at][0] != quote:
            if self.chars[at][0] == "\\" and quote != "'":
                at += 1
            at += 1
        return min(at + 1, len(self.chars))

    def _bracketed(self, at: int) -> int:
        opening = self.chars[at][0]
        closing, depth = {"(": ")", "{": "}"}[opening], 0
        while at < len(self.chars):
            char = self.chars[at][0]
            depth += (char == opening) - (char == closing)
            at += 1
            if depth == 0:
                break
        return at

    # -- meaning -----------------------------------------------------------------------------------------------

    @property
    def _state(self) -> bool | None:
        """True: these lines run; False: they do not; None: nobody knows."""
        if False in self.blocks:
            return False
        return None if None in self.blocks else True

    def _do(self, statement: _Statement) -> None:
        first = _plain(statement.parts[0]) if statement.parts else ""
        if statement.array is None and self._control(first, statement):
            return
        if self._state is False:
            return
        if statement.array is not None:
            self._array(statement)
            return
        parts = statement.parts
        while parts and _plain(parts[0]) in ("export", "local", "readonly", "declare", "then", "do", "else", "!",
                                             "time", "exec", "command"):  # fmt: skip
            parts = parts[1:]
        while parts:
            text = _plain(parts[0], 400)
            name = _NAME.match(text)
            if name is None or text[name.end() : name.end() + 1] != "=":
                break
            value = parts[0][name.end() + 1 :]
            known = self._expand(value) if self._state else [[(UNKNOWN, parts[0][0][1])]]
            joined: Chars = []
            for index, piece in enumerate(known):
                joined += ([(" ", piece[0][1])] if index and piece else []) + piece
            self.script.variables[name.group()] = [joined[:MOST_CHARS]]
            parts = parts[1:]
        if parts:
            words = [word for part in parts for word in self._words(part)]
            if words:
                self.words += len(words)
                self.script.commands.append(words)

    def _array(self, statement: _Statement) -> None:
        items = [piece for part in statement.parts for piece in self._expand(part)]
        assert statement.array is not None
        if self._state is None:
            self.script.doubtful += [Word(_plain(item), item[0][1]) for item in items if item][:1000]
            return
        before = self.script.variables.get(statement.array, []) if statement.adds else []
        self.script.variables[statement.array] = (before + items)[:MOST_WORDS]

    def _control(self, first: str, statement: _Statement) -> bool:
        if first in ("if", "while", "until", "case", "for"):
            state = (
                self._condition(statement.parts[1:]) if first == "if" else None if first != "for" else True
            )
            self.blocks.append(state)
            self.taken.append(state)
            return True
        if first == "elif" and self.blocks:
            state = self._condition(statement.parts[1:])
            before = self.taken[-1]
            self.blocks[-1] = False if before is True else None if before is None else state
            self.taken[-1] = (
                True if before is True or state is True else None if None in (before, state) else False
            )
            return True
        if first == "else" and self.blocks:
            before = self.taken[-1]
            self.blocks[-1] = None if before is None else not before
            statement.parts = statement.parts[1:]
            return not statement.parts
        if first in ("fi", "done", "esac") and self.blocks:
            self.blocks.pop()
            self.taken.pop()
            return True
        return first in ("then", "do", "fi", "done", "esac", "function") and len(statement.parts) == 1

    def _condition(self, parts: list[Chars]) -> bool | None:
        """What a simple test says, where its words are known; None where nobody knows."""
        words = ["".join(_plain(piece) for piece in self._expand(part)) for part in parts]
        if not words or words[0] not in ("[", "[[") or words[-1] not in ("]", "]]"):
            return None
        inner = words[1:-1]
        negated = bool(inner) and inner[0] == "!"
        inner = inner[1:] if negated else inner
        if any(UNKNOWN in word for word in inner):
            return None
        found: bool | None = None
        if len(inner) == 2 and inner[0] in ("-z", "-n"):
            found = (inner[1] == "") == (inner[0] == "-z")
        elif len(inner) == 3 and inner[1] in ("=", "==", "!="):
            found = (inner[0] == inner[2]) == (inner[1] != "!=")
        elif len(inner) == 3 and inner[1] in _NUMBER_TESTS:
            found = _compared(inner[0], _NUMBER_TESTS[inner[1]], inner[2])
        return None if found is None else found != negated

    def _words(self, part: Chars) -> list[Word]:
        return [Word(_plain(piece), piece[0][1]) for piece in self._expand(part) if piece]

    def _expand(self, part: Chars, depth: int = 0) -> list[Chars]:
        """The words that one raw word becomes: quotes off, variables in, unquoted blanks split."""
        if re.fullmatch(r'"?\$\{?[@*]\}?"?', "".join(char for char, _ in part[:8])):
            return []  # what a caller adds: more arguments, no value of the one before
        done: list[Chars] = []
        now: Chars = []
        was_quoted = False
        at = 0
        while at < len(part):
            char, line = part[at]
            if char == "'":
                stop = at + 1
                while stop < len(part) and part[stop][0] != "'":
                    stop += 1
                now += part[at + 1 : stop]
                at, was_quoted = stop + 1, True
                continue
            if char == '"':
                stop = at + 1
                while stop < len(part) and part[stop][0] != '"':
                    stop += 2 if part[stop][0] == "\\" else 1
                inner = self._substituted(part[at + 1 : stop], depth)
                if len(inner) > 1:  # "${ARRAY[@]}" keeps its words
                    now += inner[0]
                    done += [now, *inner[1:-1]]
                    now = inner[-1]
                elif inner:
                    now += inner[0]
                at, was_quoted = stop + 1, True
                continue
            if char == "`":
                now.append((UNKNOWN, line))
                at += 1
                while at < len(part) and part[at][0] != "`":
                    at += 1
                at += 1
                continue
            if char == "$":
                stop = _end_of_reference(part, at)
                for index, piece in enumerate(self._substituted(part[at:stop], depth)):
                    for number, split in enumerate(_split(piece)):
                        if (index or number) and now:
                            done.append(now)
                            now = []
                        now = now + split
                at = stop
                continue
            now.append((char, line))
            at += 1
            if len(now) > MOST_CHARS:
                return [[(UNKNOWN, line)]]
        if now or was_quoted:
            done.append(now)
        return done

    def _substituted(self, text: Chars, depth: int) -> list[Chars]:
        """Text with its variables in place; an array in it gives several words."""
        words: list[Chars] = [[]]
        at = 0
        while at < len(text):
            char, line = text[at]
            if char == "\\" and at + 1 < len(text):
                if text[at + 1][0] == "\n":
                    words[-1].append((" ", line))
                else:
                    words[-1].append(text[at + 1])
                at += 2
                continue
            if char != "$":
                words[-1].append((char, line))
                at += 1
                continue
            stop = _end_of_reference(text, at)
            value = self._value(text[at:stop], depth)
            if value:
                words[-1] = words[-1] + value[0]
                words += value[1:]
            at = stop
            if sum(map(len, words)) > MOST_CHARS:
                return [[(UNKNOWN, line)]]
        return words

    def _value(self, reference: Chars, depth: int) -> list[Chars]:
        """What `$NAME`, `${NAME:-default}`, `${ARRAY[@]}` or `$((1 + 2))` stands for."""
        line = reference[0][1]
        text = _plain(reference, MOST_CHARS)
        unknown: list[Chars] = [[(UNKNOWN, line)]]
        if depth > 20 or len(reference) < 2:
            return unknown if depth > 20 else [[("$", line)]]
        if text.startswith("$(("):
            found = self._arithmetic(reference[3:-2], depth)
            return unknown if found is None else [[(char, line) for char in found]]
        if text.startswith("$("):
            return unknown
        if not text.startswith("${"):
            return self.script.variables.get(text[1:], unknown)
        inner = reference[2:-1]
        body = text[2:-1]
        name = _NAME.match(body)
        if name is None:
            given = re.match(r"\d+:?-", body)  # ${1:-default}: the default, since no argument is known
            return self._substituted(_unquoted(inner[given.end() :]), depth + 1) if given else unknown
        rest = body[name.end() :]
        known = self.script.variables.get(name.group())
        if rest in ("", "[@]", "[*]"):
            return known if known is not None else unknown
        default = re.match(r":?[-=]", rest)
        if default:
            empty = known is None or (default.group().startswith(":") and not any(known))
            if empty:
                made = self._substituted(_unquoted(inner[name.end() + default.end() :]), depth + 1)
                if default.group().endswith("=") and self._state:  # `: "${BATCH:=8}"` sets it as well
                    self.script.variables[name.group()] = made[:MOST_WORDS]
                return made
            return known if known is not None else unknown
        return unknown

    def _arithmetic(self, text: Chars, depth: int) -> str | None:
        named = re.sub(
            r"(?<![\w$])([A-Za-z_]\w*)", lambda found: "${" + found.group() + "}", _plain(text, 400).replace("${", "\0")
        )  # fmt: skip
        if "\0" in named:  # already in its long form: leave the names in it as they are
            named = _plain(text, 400)
        line = text[0][1] if text else 1
        made = "".join(_plain(piece) for piece in self._substituted([(c, line) for c in named], depth + 1))
        return calculated(made)


def calculated(text: str) -> str | None:
    """The value of sums and products of whole numbers; None for anything else.

    >>> calculated("8 * (2+1) / 4"), calculated("2**99999"), calculated("__import__('os')"), calculated("7 % 4")
    ('6', None, None, '3')
    """
    tokens = re.findall(r"\d+|[-+*/%()]|\S", text)
    if len(tokens) > 200 or any(not re.fullmatch(r"\d{1,18}|[-+*/%()]", token) for token in tokens):
        return None
    at = 0

    def total() -> int:
        nonlocal at
        value = product()
        while at < len(tokens) and tokens[at] in "+-":
            at += 1
            value = value + product() if tokens[at - 1] == "+" else value - product()
        return value

    def product() -> int:
        nonlocal at
        value = unit()
        while at < len(tokens) and tokens[at] in "*/%":
            sign, at = tokens[at], at + 1
            other = unit()
            value = value * other if sign == "*" else value // other if sign == "/" else value % other
        return value

    def unit() -> int:
        nonlocal at
        token, at = tokens[at], at + 1
        if token == "(":
            value = total()
            if tokens[at] != ")":
                raise ValueError
            at += 1
            return value
        if token == "-":
            return -unit()
        return int(token)

    try:
        value = total()
    except (ValueError, IndexError, ZeroDivisionError, RecursionError):
        return None
    return str(value) if at == len(tokens) and abs(value) < 10**18 else None


def _compared(left: str, sign: str, right: str) -> bool | None:
    try:
        a, b = int(left), int(right)
    except ValueError:
        return None
    return {"==": a == b, "!=": a != b, ">": a > b, ">=": a >= b, "<": a < b, "<=": a <= b}[sign]


def _plain(chars: Chars, most: int = MOST_CHARS) -> str:
    return "".join(char for char, _ in chars[:most])


def _unquoted(chars: Chars) -> Chars:
    return [item for item in chars if item[0] not in "\"'"]


def _end_of_reference(chars: Chars, at: int) -> int:
    """The place after the `$...` that begins at `at`."""
    after = at + 1
    if after >= len(chars):
        return after
    opening = chars[after][0]
    if opening in "({":
        closing, depth = {"(": ")", "{": "}"}[opening], 0
        while after < len(chars):
            depth += (chars[after][0] == opening) - (chars[after][0] == closing)
            after += 1
            if depth == 0:
                break
        return after
    if opening.isdigit() or opening in "@*#?$!-":
        return after + 1
    while after < len(chars) and (chars[after][0].isalnum() or chars[after][0] == "_"):
        after += 1
    return after


def _split(chars: Chars) -> list[Chars]:
    """Words between blanks."""
    words: list[Chars] = [[]]
    for item in chars:
        if item[0] in " \t\n":
            if words[-1]:
                words.append([])
        else:
            words[-1].append(item)
    return [word for word in words if word] or [[]]
