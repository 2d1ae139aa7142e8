"""Finished measurements on disk, one JSON line each, so that Ctrl-C loses nothing and a second run goes on.

The first line is the fingerprint of what is being measured. A journal of something else is set aside, never mixed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Journal:
    """`journal.get(key)` finds what an earlier run finished; `journal.add(key, record)` keeps it at once."""

    def __init__(self, path: Path | None, fingerprint: Mapping[str, Any]) -> None:
        self.path = path
        self.resumed = 0
        self._records: dict[str, Any] = {}
        self._fingerprint = json.dumps(fingerprint, sort_keys=True)
        if path is not None:
            self._load(path)

    def _load(self, path: Path) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            lines = []
        if lines and lines[0] == self._fingerprint:
            for line in lines[1:]:
                try:
                    record = json.loads(line)
                    self._records[str(record["key"])] = record["value"]
                except (ValueError, KeyError, TypeError):
                    continue  # the line that was being written when the run was stopped
            self.resumed = len(self._records)
        elif lines:
            path.replace(path.with_name(path.name + ".old"))
        # Written anew, so that a torn last line does not swallow the next record.
        kept = [json.dumps({"key": key, "value": value}) for key, value in self._records.items()]
        path.write_text("\n".join([self._fingerprint, *kept, ""]), encoding="utf-8")

    def get(self, key: str) -> Any:
        """The record of `key`, or None."""
        return self._records.get(key)

    def add(self, key: str, value: Any) -> None:
        """Keep a record, on disk before this returns."""
        self._records[key] = value
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "value": value}) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def finish(self) -> None:
        """The measurement is complete and written elsewhere: the journal goes."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
