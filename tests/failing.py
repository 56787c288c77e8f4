"""Functions that fail, for tests of what comes after."""

from __future__ import annotations

import os
import signal
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


class Dies(MapFunction):
    """Kills its process at a record, once in the life of a marker file."""

    def __init__(self, marker: Path, at: int) -> None:
        self.marker, self.at = marker, at

    def map(self, value: Any) -> Any:
        if value == self.at and not self.marker.exists():
            self.marker.write_text("died")
            os.kill(os.getpid(), signal.SIGKILL)
        return value
