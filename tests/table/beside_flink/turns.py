"""Sources that read in turns, so that the rows of several tables come in one order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from penstock.connectors.collection import CollectionSplit, ColumnsSource
from penstock.runtime.connector import InputStatus, SourceReader, SourceReaderContext
from penstock.runtime.records import Batch

PAUSE_S = 0.02


class Turns:
    """The rows of all tables: each comes in its turn, and a turn is as long as what came before needs."""

    def __init__(self, order: Sequence[str]) -> None:
        self.of: dict[str, list[int]] = {}
        turn = 0
        for place, name in enumerate(order):
            turn += place > 0 and name != order[place - 1]
            self.of.setdefault(name, []).append(turn)
        self._began: float | None = None

    def has_come(self, turn: int) -> bool:
        """Whether a row of this turn may come. The first one asked begins the first turn."""
        self._began = time.monotonic() if self._began is None else self._began
        return time.monotonic() >= self._began + turn * PAUSE_S


class TurnsSource(ColumnsSource):
    """As `ColumnsSource`, a row at a time, each in its turn."""

    def __init__(self, source: ColumnsSource, turns: Turns, mine: Sequence[int]) -> None:
        super().__init__(source._columns, source._kinds, 1)
        self._turns = turns
        self._mine = mine

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, CollectionSplit]:
        """A new reader."""
        return _Reader(super().create_reader(context), self._turns, self._mine)


class _Reader(SourceReader[Any, CollectionSplit]):
    def __init__(self, reader: SourceReader[Any, CollectionSplit], turns: Turns, mine: Sequence[int]) -> None:
        self._reader = reader
        self._turns = turns
        self._mine = list(mine)

    def start(self) -> None:
        self._reader.start()

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        if self._mine and not self._turns.has_come(self._mine[0]):
            return InputStatus.NOTHING_AVAILABLE
        found = self._reader.poll_next(max_records)
        if isinstance(found, Batch):
            del self._mine[: len(found)]
        return found

    def retry_after_ms(self) -> int:
        return 1

    def add_splits(self, splits: Any) -> None:
        self._reader.add_splits(splits)

    def no_more_splits(self) -> None:
        self._reader.no_more_splits()

    def snapshot_state(self, checkpoint_id: int) -> list[CollectionSplit]:
        return self._reader.snapshot_state(checkpoint_id)
