"""Files are read with errors that a person can act on, and written whole."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from perfmodel.errors import SpecError
from perfmodel.files import held, parse_json, write_whole


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": ', "a.json:1:7: error[X001]: not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "too many digits"),
    ],
)
def test_json_that_python_does_not_read_is_bad_input(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        parse_json(text, "a.json", "X001")


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "result.json"
    target.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(target, b"new")
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_mode_and_link_survive_a_write(tmp_path: Path) -> None:
    target, link = tmp_path / "real", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write_whole(tmp_path / "new", b"1")
    finally:
        os.umask(mask)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


def test_a_pipe_is_written_in_place(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"data")
    reader.join()
    assert heard == [b"data"]


def test_a_folder_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    order: list[str] = []
    inside = threading.Event()

    def first() -> None:
        with held(tmp_path):
            inside.set()
            order.append("first in")
            threading.Event().wait(0.05)
            order.append("first out")

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait()
    with held(tmp_path):
        order.append("second in")
    thread.join()
    assert order == ["first in", "first out", "second in"]
