"""Functions that note in which attempts they are opened, for jobs of several regions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.datastream import KeyedProcessFunction, MapFunction
from penstock.datastream.state import ValueStateDescriptor


class Numbered(KeyedProcessFunction):
    """Counts the records of each key, and notes each time it is opened; breaks once at a record, if it is to."""

    def __init__(self, folder: Path, name: str, breaks_at: int | None = None) -> None:
        self.folder, self.name, self.breaks_at = folder, name, breaks_at

    def open(self, runtime_context: Any) -> None:
        note_opened(self.folder, self.name, runtime_context)
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: int, ctx: Any) -> Iterable[str]:
        if value == self.breaks_at and not (broken := self.folder / "broken").exists():
            broken.touch()
            raise RuntimeError("planned")
        self.count.update((self.count.value() or 0) + 1)
        yield f"{self.name} {ctx.get_current_key()} {self.count.value()}"


class Noted(MapFunction):
    """Passes numbers on as text, and notes each time it is opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, runtime_context: Any) -> None:
        note_opened(self.folder, "forward", runtime_context)

    def map(self, value: int) -> str:
        return str(value)


def note_opened(folder: Path, name: str, runtime_context: Any) -> None:
    attempt = runtime_context.get_attempt_number()
    (folder / f"{name}-{runtime_context.get_index_of_this_subtask()}-{attempt}").touch()
