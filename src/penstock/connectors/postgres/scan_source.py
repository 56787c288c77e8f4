"""`JdbcSource`: reads the rows of a table once, as columns, with up to one reader per split."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.base.errors import ConfigurationError
from penstock.connectors.background import Background
from penstock.connectors.postgres.client import Address, connect, quoted, quoted_path
from penstock.connectors.postgres.relations import relation
from penstock.connectors.postgres.scan import (
    FETCH_SIZE,
    Fetch,
    Partitions,
    Rows,
    Scanned,
    ScannedColumn,
    ScanSplit,
)
from penstock.connectors.postgres.unrepresentable import FAIL, check_mode
from penstock.connectors.read_ahead import ReadAheadReader
from penstock.core.columns.batch import ColumnBatch
from penstock.core.connector import (
    Boundedness,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from penstock.core.records import Batch

if TYPE_CHECKING:
    import psycopg

LOG: Final = logging.getLogger(__name__)


class JdbcSource(Source[Any, ScanSplit]):
    """Reads a PostgreSQL table or view to its end; built by `builder()`. Records are named rows.

    Readers resume where they stopped after a failure (`penstock.connectors.postgres.scan` describes the exact
    conditions).
    """

    def __init__(self, scanned: Scanned) -> None:
        self.scanned = scanned

    @staticmethod
    def builder() -> JdbcSourceBuilder:
        """Return a builder."""
        return JdbcSourceBuilder()

    @property
    def boundedness(self) -> Boundedness:
        """Bounded."""
        return Boundedness.BOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[ScanSplit], restored: Any | None
    ) -> SplitEnumerator[ScanSplit]:
        """See `Source`."""
        return ScanEnumerator(context, self.scanned, restored)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, ScanSplit]:
        """See `Source`."""
        return ScanReader(context, self.scanned)


class JdbcSourceBuilder:
    """Builds a `JdbcSource`."""

    def __init__(self) -> None:
        self._url: str | None = None
        self._user: str | None = None
        self._password: str | None = None
        self._table: str | None = None
        self._columns: tuple[str, ...] = ()
        self._conditions: tuple[str, ...] = ()
        self._partitions: Partitions | None = None
        self._fetch_size = FETCH_SIZE
        self._unrepresentable = FAIL

    def set_db_url(self, url: str) -> JdbcSourceBuilder:
        """Set the URL: `jdbc:postgresql://HOST:PORT/DATABASE`, or `postgresql://…`."""
        self._url = url
        return self

    def set_username(self, username: str) -> JdbcSourceBuilder:
        """Set the user name."""
        self._user = username
        return self

    def set_password(self, password: str) -> JdbcSourceBuilder:
        """Set the password."""
        self._password = password
        return self

    def set_table_name(self, name: str) -> JdbcSourceBuilder:
        """Set the table or view; `schema.table` for one in another schema."""
        self._table = name
        return self

    def set_columns(self, *names: str) -> JdbcSourceBuilder:
        """Set the columns to read; by default all."""
        self._columns = names
        return self

    def set_condition(self, condition: str) -> JdbcSourceBuilder:
        """Read only rows that satisfy a condition, written in the server's SQL."""
        self._conditions = (condition,)
        return self

    def set_partitions(self, column: str, lower_bound: int, upper_bound: int, number: int) -> JdbcSourceBuilder:
        """Cut the table by an integer column. The bounds determine only the cuts; rows outside are read regardless."""
        self._partitions = Partitions(column, lower_bound, upper_bound, number)
        return self

    def set_fetch_size(self, rows: int) -> JdbcSourceBuilder:
        """Set the number of rows fetched at a time."""
        if rows < 1:
            raise ConfigurationError(f"at least one row is fetched at a time, not {rows}")
        self._fetch_size = rows
        return self

    def set_unrepresentable_values(self, mode: str) -> JdbcSourceBuilder:
        """Set how to read values that a type cannot hold, such as NaN in a DECIMAL: `fail` (default), or `null`."""
        self._unrepresentable = check_mode(mode)
        return self

    def build(self) -> JdbcSource:
        """Build the source; this queries the database for the columns.

        Raises:
            ConfigurationError: if the URL or the table is missing.
            MissingPathError: if the table does not exist.
            UnknownNameError: if the table does not have one of the columns.
        """
        if self._url is None or self._table is None:
            raise ConfigurationError("a JdbcSource needs set_db_url() and set_table_name()")
        address = Address(self._url, self._user, self._password)
        with connect(address) as connection:
            table_relation = relation(connection, self._table)
        if self._partitions is not None:
            table_relation.column(self._partitions.column)
        chosen = [table_relation.column(name) for name in self._columns] or list(table_relation.columns)
        columns = tuple(ScannedColumn(column.name, quoted(column.name), column.type) for column in chosen)
        return JdbcSource(
            Scanned(
                address,
                self._table,
                columns,
                self._conditions,
                partitions=self._partitions,
                fetch_size=self._fetch_size,
                unrepresentable=self._unrepresentable,
            )
        )


class ScanEnumerator(SplitEnumerator[ScanSplit]):
    """Exports a snapshot, cuts the table, and assigns the parts."""

    def __init__(self, context: SplitEnumeratorContext[ScanSplit], scanned: Scanned, restored: Any | None) -> None:
        self._context = context
        self._scanned = scanned
        self._splits: list[ScanSplit] | None = restored
        self._waiting: list[int] = []
        self._ended: set[int] = set()
        self._is_ready = False
        self._holder: psycopg.Connection[Any] | None = None
        # Splits are found in another thread, which may finish after the job has ended.
        self._lock = threading.Lock()
        self._is_closed = False

    def start(self) -> None:
        """Find the splits, or give the remaining ones a new snapshot."""
        if self._splits is None or self._splits:
            self._context.call_async(self._find, self._on_found)
        else:
            self._is_ready = True

    def _find(self) -> list[ScanSplit]:
        holder = connect(self._scanned.address)
        try:
            holder.execute("SET idle_in_transaction_session_timeout = 0")
            table_relation = relation(holder, self._scanned.table)
            holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            exported = holder.execute("SELECT pg_export_snapshot()").fetchone()
            assert exported is not None
            partitions = self._scanned.partitions
            conditions = [""] if partitions is None else partitions.conditions()
            path = quoted_path(self._scanned.table)
            splits = [
                ScanSplit(number, condition, path, table_relation.key, exported[0])
                for number, condition in enumerate(conditions)
            ]
            with self._lock:
                if self._is_closed:
                    holder.close()
                else:
                    self._holder = holder
            return splits
        except BaseException:
            holder.close()
            raise

    def _on_found(self, result: Any, error: BaseException | None) -> None:
        if error is not None:
            raise error
        splits: list[ScanSplit] = result
        if self._splits is None:
            self._splits = splits
        else:  # replace unread splits, whose snapshot no longer exists
            numbers = {split.number for split in self._splits if not split.rows}
            fresh = {split.number: split for split in splits if split.number in numbers}
            self._splits = [fresh.get(split.number, split) for split in self._splits]
        self._is_ready = True
        for subtask_index in self._waiting:
            self.handle_split_request(subtask_index)
        self._waiting = []

    def handle_split_request(self, subtask_index: int) -> None:
        """See `SplitEnumerator`."""
        if not self._is_ready:
            self._waiting.append(subtask_index)
        elif self._splits:
            self._context.assign_split(self._splits.pop(0), subtask_index)
        else:
            self._context.signal_no_more_splits(subtask_index)
            self._ended.add(subtask_index)
            if len(self._ended) >= self._context.parallelism:
                self.close()  # all is read: stop holding back VACUUM

    def add_splits_back(self, splits: Sequence[ScanSplit], subtask_index: int) -> None:
        """See `SplitEnumerator`."""
        self._waiting = [other for other in self._waiting if other != subtask_index]
        self._ended.discard(subtask_index)
        if splits:
            self._splits = [*splits, *(self._splits or ())]

    def snapshot_state(self, checkpoint_id: int) -> Any:
        """Return the remaining splits; None if they are not known yet."""
        return None if self._splits is None else list(self._splits)

    def close(self) -> None:
        """Release the snapshot."""
        with self._lock:
            self._is_closed = True
            holder, self._holder = self._holder, None
        if holder is not None:
            holder.close()


class ScanReader(ReadAheadReader[ScanSplit, Rows]):
    """Reads its splits one after the other."""

    def __init__(self, context: SourceReaderContext, scanned: Scanned) -> None:
        super().__init__(context)
        self._scanned = scanned
        self._fetch: Fetch | None = None
        self._place = 0

    def begin(self, split: ScanSplit) -> Background[Rows]:
        """See `ReadAheadReader`."""
        self._fetch = Fetch(self._scanned, split)
        return Background(self._fetch.rows, self._fetch.interrupt)

    def part(self, split: ScanSplit, rows: Rows, max_records: int) -> tuple[Batch, ScanSplit]:
        """See `ReadAheadReader`."""
        count = min(max_records, rows.columns.num_rows - self._place)
        part = rows.columns.slice(self._place, count)
        keys = [column.slice(self._place, count) for column in rows.keys]
        self._place += count
        if self._place == rows.columns.num_rows:
            self._rows, self._place = None, 0
        return ColumnBatch(part), split.behind(keys, count)

    def on_end(self, split: ScanSplit) -> None:
        """Log a warning if the split could not be read in its snapshot."""
        fetch, self._fetch = self._fetch, None
        if fetch is not None and fetch.lost_snapshot:
            LOG.warning(
                "the snapshot in which part %d of table %s was to be read is gone, with an earlier attempt of the job "
                "or, in a batch, before its tasks began: the part was read as the table is now",
                split.number,
                split.relation,
            )
