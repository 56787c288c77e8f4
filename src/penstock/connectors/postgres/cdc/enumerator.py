"""`CdcEnumerator`: prepares the server, cuts the tables into chunks, and assigns the splits.

Any reader reads chunks, and reports their snapshots. When all chunks have been read, one reader gets the split of the
log, with the key ranges of all chunks and their snapshots. Where readers cannot report, in BATCH and MICRO_BATCH, a
single reader reads the tables and then the log; so does one that continues a savepoint of a single reader.

**Reports are not lost.** A report may reach the enumerator after its snapshot, while the reader's snapshot no longer
has the chunk. So a reader keeps a finished chunk in its state, and reports it again after a restart, until the
enumerator has answered and a later checkpoint has the answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from penstock.base.errors import ConfigurationError, MissingPathError, UnsupportedError
from penstock.connectors.postgres.cdc import slots, table_chunks
from penstock.connectors.postgres.cdc.options import SNAPSHOT, CdcSettings
from penstock.connectors.postgres.cdc.position import ChunkSplit, Heard, Key, KeyRange, LogSplit, TablePosition
from penstock.connectors.postgres.client import connect
from penstock.runtime import connector

#: The tables that are cut at a time; readers begin with their chunks meanwhile.
TABLES_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """How far the tables have been read by chunks.

    Attributes:
        log: the split of the log as it was prepared; its tables are those to be read.
        uncut: the number of the tables, from the last one on, that have not been cut into chunks.
        numbers: how many chunks each table that was cut has, by OID.
        chunks: the chunks that have not been assigned.
        finished: the positions of the chunks that were read, by the OID of the table and the number of the chunk.
        is_assigned: whether a reader has the split of the log.
    """

    log: LogSplit
    uncut: int
    numbers: dict[int, int] = field(default_factory=dict)
    chunks: tuple[ChunkSplit, ...] = ()
    finished: dict[tuple[int, int], TablePosition] = field(default_factory=dict)
    is_assigned: bool = False


class CdcEnumerator(connector.SplitEnumerator[Any]):
    """See the module docstring.

    Args:
        context: the enumerator's context.
        settings: which tables to read, and how.
        restored: the state: `SnapshotState`, or the split of a single reader in a list unless it is assigned.
        has_events: whether readers emit events.
    """

    def __init__(
        self,
        context: connector.SplitEnumeratorContext[Any],
        settings: CdcSettings,
        restored: SnapshotState | list[Any] | None,
        has_events: bool = False,
    ) -> None:
        self._context = context
        self._settings = settings
        self._has_events = has_events
        #: the split of a single reader
        self._splits: list[Any] | None = restored if isinstance(restored, list) else None
        self._log: LogSplit | None = None
        self._uncut = 0
        self._numbers: dict[int, int] = {}
        self._chunks: deque[ChunkSplit] = deque()
        self._finished: dict[tuple[int, int], TablePosition] = {}
        self._is_assigned = False
        self._waiting: list[int] = []
        if isinstance(restored, SnapshotState):
            self._log, self._uncut, self._numbers = restored.log, restored.uncut, dict(restored.numbers)
            self._chunks.extend(restored.chunks)
            self._finished = dict(restored.finished)
            self._is_assigned = restored.is_assigned
            if not (self._is_assigned or context.receives_source_events):
                raise UnsupportedError(
                    "the savepoint is of a job that was reading tables by several readers: continue it in STREAMING "
                    "mode until the tables are read"
                )

    def start(self) -> None:
        """Prepare the server, unless the state was restored."""
        if self._log is not None:
            self._cut_more()
        elif self._splits is None:
            self._context.call_async(lambda: slots.prepared(self._settings, self._has_events), self._on_prepared)

    def _on_prepared(self, split: LogSplit | None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        assert split is not None
        is_bounded = self._settings.startup == SNAPSHOT
        has_rows = any(state.position is not None for state in split.tables)
        if has_rows and (is_bounded or self._context.receives_source_events):
            self._log, self._uncut, self._is_assigned = split, len(split.tables), is_bounded
            self._cut_more()
        else:
            self._splits = [split]
            self._serve()

    # --- chunks ------------------------------------------------------------------------------------------------------

    def _cut_more(self) -> None:
        if self._uncut:
            self._context.call_async(self._cut, self._on_cut)

    def _cut(self) -> list[list[ChunkSplit]]:
        """Cut the next tables into chunks."""
        log = self._log
        assert log is not None
        begin = len(log.tables) - self._uncut
        with connect(self._settings.address) as connection:
            cut = []
            for state in log.tables[begin : begin + TABLES_AT_ONCE]:
                settings = replace(self._settings, outputs=()) if self._has_events else self._settings
                try:
                    table, _ = slots.described(connection, settings, state.id)
                except MissingPathError as error:
                    raise ConfigurationError(f"table {state.id} is gone: begin without the state of the job") from error
                bounds: list[Key | None] = [
                    None,
                    *table_chunks.find_cuts(connection, table, self._settings.chunk_size),
                    None,
                ]
                cut.append(
                    [
                        ChunkSplit(replace(state, position=TablePosition((KeyRange(last, None),))), number, after)
                        for number, (after, last) in enumerate(pairwise(bounds))
                    ]
                )
        return cut

    def _on_cut(self, cut: list[list[ChunkSplit]] | None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        assert cut is not None
        for chunks in cut:
            self._numbers[chunks[0].table.oid] = len(chunks)
            self._chunks.extend(chunks)
        self._uncut -= len(cut)
        self._serve()
        self._cut_more()

    def handle_source_event(self, subtask_index: int, event: Any) -> None:
        """Take finished chunks from a reader, and answer that they are known."""
        chunks: Sequence[ChunkSplit] = event
        for split in chunks:
            if not self._is_assigned and split.table.position is not None:
                self._finished[split.table.oid, split.number] = split.table.position
        self._context.assign_split(Heard(tuple((split.table.oid, split.number) for split in chunks)), subtask_index)
        self._serve()

    @property
    def _is_snapshot_read(self) -> bool:
        """Whether all chunks have been read, as far as a bounded source needs to know: assigned."""
        if self._uncut or self._chunks:
            return False
        return self._settings.startup == SNAPSHOT or len(self._finished) == sum(self._numbers.values())

    def _assemble(self) -> LogSplit:
        """Return the split of the log, with the key ranges of all chunks."""
        assert self._log is not None
        tables = []
        for state in self._log.tables:
            position = TablePosition()
            for number in range(self._numbers[state.oid]):
                position = position.followed_by(self._finished[state.oid, number])
            tables.append(replace(state, position=position))
        return replace(self._log, tables=tuple(tables))

    # --- splits ------------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        waiting, self._waiting = self._waiting, []
        for subtask_index in waiting:
            self.handle_split_request(subtask_index)

    def handle_split_request(self, subtask_index: int) -> None:
        """See `SplitEnumerator`."""
        if self._chunks:
            self._context.assign_split(self._chunks.popleft(), subtask_index)
        elif self._log is not None and not self._is_assigned and self._is_snapshot_read:
            self._is_assigned = True
            self._context.assign_split(self._assemble(), subtask_index)
            self._finished = {}
            self._serve()
        elif self._log is not None and not (self._is_assigned and not self._uncut):
            self._wait(subtask_index)
        elif self._log is not None or self._splits == []:
            self._context.signal_no_more_splits(subtask_index)
        elif self._splits is None:
            self._wait(subtask_index)
        else:
            self._context.assign_split(self._splits.pop(), subtask_index)

    def _wait(self, subtask_index: int) -> None:
        if subtask_index not in self._waiting:
            self._waiting.append(subtask_index)

    def add_splits_back(self, splits: Sequence[Any], subtask_index: int) -> None:
        """See `SplitEnumerator`."""
        self._waiting = [other for other in self._waiting if other != subtask_index]
        for split in splits:
            if isinstance(split, ChunkSplit):
                self._chunks.appendleft(split)
            elif not isinstance(split, Heard):
                self._splits = [split]

    def snapshot_state(self, checkpoint_id: int) -> SnapshotState | list[Any] | None:
        """Return how far the tables have been read, or the split of a single reader; None if nothing is known yet."""
        if self._log is None:
            return None if self._splits is None else list(self._splits)
        finished, chunks = dict(self._finished), tuple(self._chunks)
        return SnapshotState(self._log, self._uncut, dict(self._numbers), chunks, finished, self._is_assigned)
