"""A connector of tables that this process holds, for jobs that run in this process.

A source reads several splits at the same time, in turns, and can be stopped on the way: its readers wait at a position
of each split until a checkpoint is complete or the job is stopped with a savepoint, and one of them fails once. A sink
keeps the changes that are committed, each commit once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
from tests.table.differential.tables import Table

from penstock.base.config_options import ConfigOptions
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collection import ColumnsSource
from penstock.connectors.split_reader import SplitQueue
from penstock.runtime.columns import ColumnBatch, SplitColumnBatch
from penstock.runtime.connector import (
    Boundedness,
    Committer,
    InputStatus,
    Sink,
    SinkWriter,
    SinkWriterContext,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from penstock.runtime.records import Batch
from penstock.sql.data.arrow import to_column
from penstock.sql.logical.nodes import ALL, INSERTS, SHORT, Changes, Scan, Write
from penstock.sql.tables.connector import TableConnector, TableOptions
from penstock.sql.tables.tables import (
    NO_WATERMARKS,
    TableReader,
    TableScan,
    TableWriter,
    WatermarkPushDown,
    column_names,
)

#: a change as a sink gets it: its kind, such as `+I`, and the values of the row
Change = tuple[str, tuple[Any, ...]]

_POLLS_IN_VAIN_MAX: Final = 300


class InjectedFailure(RuntimeError):
    """The failure that a setting asks for."""


@dataclass
class Run:
    """One run of a world: its tables, where readers stop, and the changes that sinks have committed.

    Args:
        tables: by their names.
        is_batch: whether tables are read as the rows that are left.
        hold_at: the share of a split after which its reader waits; None where readers do not wait.
        waits_for_stop: whether readers wait for the job to be stopped, and not for a checkpoint.
        failures_left: how often a reader fails after it has waited.
        has_epochs: whether each epoch ends with a checkpoint, so that there is none to wait for.
    """

    tables: dict[str, Table]
    is_batch: bool = False
    hold_at: float | None = None
    waits_for_stop: bool = False
    failures_left: int = 0
    has_epochs: bool = False
    #: by reader and split, whether it waits or has ended
    waiting: dict[tuple[int, int], bool] = field(default_factory=dict)
    committed: dict[str, list[Change]] = field(default_factory=dict)
    commits: set[tuple[Any, ...]] = field(default_factory=set)
    #: how many changes have come out, those that are not committed and those written again included
    written: int = 0

    def counted(self, changes: Iterable[Change]) -> Iterator[Change]:
        """The same changes, counted one by one."""
        for change in changes:
            self.written += 1
            yield change

    def position_of_hold(self, rows: int) -> int:
        """Where the reader of a split of this many rows waits; beyond its end for never."""
        return rows + 1 if self.hold_at is None else round(rows * self.hold_at)

    def everyone_waits(self) -> bool:
        """Whether all readers with splits wait or have ended."""
        return bool(self.waiting) and all(self.waiting.values())


#: by the name that tables have in their option `run`; readers and sinks look it up in this process
RUNS: dict[str, Run] = {}

_RUN = ConfigOptions.key("run").string_type().no_default_value()
_TABLE = ConfigOptions.key("table").string_type().no_default_value()
_MODE = ConfigOptions.key("changes").string_type().default_value("all")


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """A split and how many of its rows are read."""

    number: int
    position: int = 0


def batches_of(table: Table) -> list[tuple[pa.RecordBatch, bytes | None]]:
    """The rows of each split as columns, and the kinds of the changes; None for inserts alone."""
    batches = []
    for number in range(table.splits):
        changes = [change for change in table.changes if change.split == number]
        arrays = [
            to_column([change.values[place] for change in changes], column.kind.type)
            for place, column in enumerate(table.columns)
        ]
        kinds = bytes(SHORT.index(change.kind) for change in changes) if table.declares_changes else None
        batches.append((pa.RecordBatch.from_arrays(arrays, column_names(len(arrays))), kinds))
    return batches


class MemorySource(Source[Any, Split]):
    """Reads a table of a run."""

    #: a reader that begins again alone would not know how far the others are
    restarts_by_reader = False

    def __init__(self, run: str, table: str) -> None:
        self._run = run
        self._table = table

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(self, context: SplitEnumeratorContext[Split], restored: Any | None) -> SplitEnumerator[Split]:
        splits = RUNS[self._run].tables[self._table].splits
        return SplitQueue(context, [Split(number) for number in range(splits)], restored)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, Split]:
        return _Reader(context, RUNS[self._run], self._table)


class _Reader(SourceReader[Any, Split]):
    """Reads its splits in turns, once it knows all of them: none is late for the watermark of another."""

    def __init__(self, context: SourceReaderContext, run: Run, table: str) -> None:
        self._context = context
        self._run = run
        self._table = table
        self._batches = batches_of(run.tables[table])
        self._splits: list[Split] = []
        self._requested = False
        self._knows_all = False
        self._checkpoints = 0
        self._checkpoints_before_wait: int | None = None
        self._vain_polls = 0

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        if not self._knows_all:
            if not self._requested:
                self._requested = True
                self._context.request_split()
            return InputStatus.NOTHING_AVAILABLE
        for _ in range(len(self._splits)):
            split = self._splits.pop(0)
            batch = self._read(split, max_records)
            if batch is not None:
                return batch
        return InputStatus.NOTHING_AVAILABLE if self._splits else InputStatus.END_OF_INPUT

    def _read(self, split: Split, max_records: int) -> Batch | None:
        columns, kinds = self._batches[split.number]
        rows, run = columns.num_rows, self._run
        hold = run.position_of_hold(rows)
        key = (id(self), split.number)
        if split.position == hold and self._must_wait():
            run.waiting[key] = True
            self._splits.append(split)
            return None
        if split.position == hold:
            self._fail(split)
        if split.position >= rows:
            run.waiting[key] = True
            self._context.close_split(str(split.number))
            return None
        stop = min(split.position + max_records, hold if split.position < hold else rows, rows)
        run.waiting[key] = False
        part = ColumnBatch(columns, None, kinds).slice(split.position, stop)
        self._splits.append(replace(split, position=stop))
        return SplitColumnBatch(part, str(split.number))

    def _must_wait(self) -> bool:
        run = self._run
        if run.waits_for_stop:
            return True
        if not run.failures_left or run.has_epochs:
            return False
        if self._checkpoints_before_wait is None:
            self._checkpoints_before_wait = self._checkpoints
        # A checkpoint that never completes must not look like a hang of the reader.
        self._vain_polls += 1
        return self._checkpoints == self._checkpoints_before_wait and self._vain_polls < _POLLS_IN_VAIN_MAX

    def _fail(self, split: Split) -> None:
        if self._run.failures_left:
            self._run.failures_left -= 1
            raise InjectedFailure(f"at row {split.position} of split {split.number} of table {self._table}")

    def retry_after_ms(self) -> int:
        return 1

    def add_splits(self, splits: Sequence[Split]) -> None:
        self._splits += splits
        for split in splits:
            self._run.waiting[id(self), split.number] = False
            self._context.open_split(str(split.number))
        self._requested = False

    def no_more_splits(self) -> None:
        self._knows_all = True

    def snapshot_state(self, checkpoint_id: int) -> list[Split]:
        return list(self._splits)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._checkpoints += 1


@dataclass(frozen=True, slots=True)
class MemoryScan(TableScan, WatermarkPushDown):
    """A scan of a table of a run, whose splits have watermarks of their own."""

    run: str
    table: str
    strategy: WatermarkStrategy = NO_WATERMARKS

    def reader(self) -> TableReader:
        run = RUNS[self.run]
        table = run.tables[self.table]
        if run.is_batch:
            return TableReader(_rows_left(table), key=table.key)
        source = MemorySource(self.run, self.table)
        if not table.declares_changes:
            return TableReader(source, INSERTS, key=table.key, strategy=self.strategy)
        return TableReader(
            source,
            ALL,
            has_before=not table.is_upsert,
            key=table.key,
            is_upsert=table.is_upsert,
            has_full_deletes=table.has_versions,
            strategy=self.strategy,
        )

    def with_watermarks(self, strategy: WatermarkStrategy) -> MemoryScan:
        return replace(self, strategy=strategy)


def _rows_left(table: Table) -> ColumnsSource:
    arrays = [
        to_column([row[place] for row in table.rows], column.kind.type) for place, column in enumerate(table.columns)
    ]
    return ColumnsSource(pa.RecordBatch.from_arrays(arrays, column_names(len(arrays))))


# --- writing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Committable:
    writer: tuple[str, str, int, int]
    changes: tuple[Change, ...]


class MemorySink(Sink[Any]):
    """Keeps what is committed in a run, under a name. `to_change` makes a change of a record."""

    def __init__(self, run: str, name: str, to_change: Callable[[Any], Change]) -> None:
        self._run = run
        self._name = name
        self._to_change = to_change

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, _Committable]:
        return _Writer(context, self._to_change, RUNS[self._run])

    def create_committer(self, context: SinkWriterContext) -> Committer[_Committable]:
        return _Committer(self._run, self._name)


class _Writer(SinkWriter[Any, _Committable]):
    def __init__(self, context: SinkWriterContext, to_change: Callable[[Any], Change], run: Run) -> None:
        self._context = context
        self._to_change = to_change
        self._run = run
        self._changes: list[Change] = []
        self._prepared = 0

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        self._changes += map(self._to_change, values)
        self._run.written += len(values)

    def prepare_commit(self) -> list[_Committable]:
        if not self._changes:
            return []
        self._prepared += 1
        context = self._context
        writer = (context.job_id, context.run, context.subtask_index, self._prepared)
        changes, self._changes = tuple(self._changes), []
        return [_Committable(writer, changes)]


class _Committer(Committer[_Committable]):
    def __init__(self, run: str, name: str) -> None:
        self._run = RUNS[run]
        self._name = name

    def commit(self, committables: Sequence[_Committable]) -> None:
        for committable in committables:
            key = (self._name, *committable.writer)
            if key not in self._run.commits:
                self._run.commits.add(key)
                self._run.committed.setdefault(self._name, []).extend(committable.changes)


def _held_change(record: tuple[int, tuple[Any, ...]]) -> Change:
    kind, values = record
    return SHORT[kind], tuple(values)


class MemoryConnector(TableConnector):
    """See the module's text.

    A sink's option `changes` says which ones it takes: `all`, `inserts`, or `upserts` by its primary key.
    """

    name = "memory"
    required_options = (_RUN, _TABLE)
    optional_options = (_MODE,)

    def scan(self, scan: Scan, options: TableOptions) -> TableScan:
        return MemoryScan(options.required(_RUN), options.required(_TABLE))

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        sink = MemorySink(options.required(_RUN), options.required(_TABLE), _held_change)
        mode = options.read(_MODE)
        if mode == "inserts":
            return TableWriter(sink, INSERTS)
        if mode == "all":
            return TableWriter(sink, ALL)
        upserts = Changes.INSERT | Changes.UPDATE | Changes.DELETE
        return TableWriter(sink, upserts, wants_before=False, deletes_by_key=mode == "upserts, deletes by key")
