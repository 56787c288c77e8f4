"""A reader for sources that read a split in a thread, some rows ahead of the task."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, Generic, TypeVar

from penstock.connectors.background import Background
from penstock.connectors.split_reader import PositionedReader
from penstock.core.connector import InputStatus, SourceReaderContext
from penstock.core.records import Batch

SplitT = TypeVar("SplitT")
RowsT = TypeVar("RowsT")

#: How long (s) a poll waits for rows that are being read: too short to be noticed, and usually long enough. The next
#: poll follows at once.
WAIT_S: Final = 0.01


class ReadAheadReader(PositionedReader[SplitT], Generic[SplitT, RowsT]):
    """Reads its splits one after the other."""

    def __init__(self, context: SourceReaderContext) -> None:
        super().__init__(context)
        self._background: Background[RowsT] | None = None
        #: rows that were read but not handed out yet
        self._rows: RowsT | None = None

    @abstractmethod
    def begin(self, split: SplitT) -> Background[RowsT]:
        """Begin to read at the split's position."""

    @abstractmethod
    def part(self, split: SplitT, rows: RowsT, max_records: int) -> tuple[Batch, SplitT]:
        """Return some of the rows and the split after them; set `_rows` to the remaining rows, or None."""

    def on_end(self, split: SplitT) -> None:
        """Called when a split was read to its end; a hook."""

    def read(self, split: SplitT, max_records: int) -> tuple[Batch, SplitT] | InputStatus | None:
        """See `PositionedReader`."""
        if self._rows is None:
            if self._background is None:
                self._background = self.begin(split)
            self._rows = self._background.take(WAIT_S)
            if self._rows is None:
                if not self._background.is_done:
                    return InputStatus.NOTHING_AVAILABLE
                self.close_split()
                self.on_end(split)
                return None
        return self.part(split, self._rows, max_records)

    def close_split(self) -> None:
        """Stop the current read."""
        background, self._background, self._rows = self._background, None, None
        if background is not None:
            background.close()

    def retry_after_ms(self) -> int:
        """Return 0 while a split is being read: an epoch that has begun to read it waits for the rest."""
        return 0 if self._background is not None else super().retry_after_ms()

    def close(self) -> None:
        """Stop reading."""
        self.close_split()
