"""Functions that fail, for tests of what comes after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.datastream.functions import MapFunction


class FailsOnce(MapFunction):
    """Raises at the record after `after` of a subtask, once in the life of a marker file."""

    def __init__(self, marker: Path, after: int) -> None:
        self.marker, self.after = marker, after

    def open(self, runtime_context: Any) -> None:
        self.seen = 0

    def map(self, value: Any) -> Any:
        self.seen += 1
        if self.seen > self.after and not self.marker.exists():
            self.marker.write_text("failed")
            raise RuntimeError("once")
        return value
