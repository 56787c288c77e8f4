"""PostgreSQL as a source: the bounded scan of a table in splits (`JdbcSource`), and lookups of rows by key.

`JdbcSource` reads the rows of a table once, as columns, with up to one reader per split.

**Positions.** A reader resumes where it stopped (G8), so the rows of a split need an order. With a primary key, rows
are in its order, and a position is the key of the last row: the query continues after it. Without one (a view, a table
without a key), rows are ordered by their whole text, and a position is a number of rows. Equal rows are
indistinguishable, so it does not matter which of them comes first.

**One snapshot.** The enumerator exports the snapshot of a transaction that it keeps open, and all splits are read in it
(`pg_export_snapshot`): the rows are from a single moment, regardless of concurrent writes. The transaction stays open
until every reader has been notified of the end, and holds back VACUUM until then. It does not survive the enumerator:
after a failure of the whole job, the remaining rows are read in their state at that time. With a primary key, no row
comes twice, and no row is lost unless it was written in the meantime; without one, there is no such guarantee for a
table that changes. Outside STREAMING mode, the enumerator ends before the parts are read, and each part has a snapshot
of its own.

**Lookups.** `KeyLookup` finds the rows of many keys per query, for lookup joins. `JdbcLookup` finds rows by single keys
with a cache, for functions.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.base.errors import ConfigurationError
from penstock.base.types import Row
from penstock.connectors.conditions import Partitions
from penstock.connectors.postgres import client, text_columns
from penstock.connectors.split_reader import Background, ReadAheadReader
from penstock.runtime import connector
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.records import Batch

if TYPE_CHECKING:
    import psycopg


FETCH_SIZE: Final = 8_192
#: SQLSTATEs for a split whose snapshot no longer exists.
INVALID_SNAPSHOT: Final = ("22023", "42704", "58P01")


@dataclass(frozen=True, slots=True)
class ScannedColumn:
    """A column of the output: its name there, an expression over the table, and its Arrow type."""

    name: str
    expression: str
    type: pa.DataType

    @property
    def title(self) -> str:
        """The column's name in the table, for errors."""
        return self.expression.removeprefix("t.").strip('"')


@dataclass(frozen=True, slots=True)
class Scanned:
    """The definition of a scan.

    Attributes:
        address: the database's address: an `Address`, or a `MySqlAddress` for the engine of MySQL.
        table: its path, in the form that `quoted_path` expects.
        columns: the columns of the output.
        conditions: SQL conditions that all rows must satisfy.
        limit: the maximum number of rows per split; None for all.
        partitions: how the table is cut; None for a single part.
        fetch_size: the number of rows fetched at a time.
        unrepresentable: how to read values that a type cannot hold, see `text_columns`.
    """

    address: Any
    table: str
    columns: tuple[ScannedColumn, ...]
    conditions: tuple[str, ...] = ()
    limit: int | None = None
    partitions: Partitions | None = None
    fetch_size: int = FETCH_SIZE
    unrepresentable: str = text_columns.FAIL


@dataclass(frozen=True, slots=True)
class ScanSplit:
    """A part of a table from a position on.

    Attributes:
        number: the number of the part.
        condition: the SQL condition for its rows; empty for all rows.
        relation: the quoted path of the table.
        key: the columns of its primary key.
        snapshot: the snapshot to read in; None for that of the reader's own transaction.
        after: the key values of the last row that was read, as text; None at the beginning.
        rows: the number of rows that were read.
    """

    number: int
    condition: str
    relation: str
    key: tuple[str, ...]
    snapshot: str | None = None
    after: tuple[str, ...] | None = None
    rows: int = 0

    def behind(self, keys: Sequence[pa.Array], count: int) -> ScanSplit:
        """Return the split after the next `count` rows; `keys` are the key columns, starting with these rows."""
        after = tuple(column[count - 1].as_py() for column in keys) if self.key else None
        return replace(self, after=after, rows=self.rows + count)


def build_query(scanned: Scanned, split: ScanSplit) -> str:
    """Return the query for a split's rows after its position; the key columns follow all others."""
    expressions = [column.expression for column in scanned.columns]
    where = [condition for condition in (split.condition, *scanned.conditions) if condition]
    # Qualify the names: unqualified ones would refer to the output's columns, which are text.
    order = [f"t.{client.quoted(name)}" for name in split.key]
    offset = ""
    if split.key:
        expressions += [f"{name}::text" for name in order]
        if split.after is not None:
            values = ", ".join(map(text_columns.literal, split.after))
            where.append(f"({', '.join(order)}) > ({values})" if len(order) > 1 else f"{order[0]} > {values}")
    else:
        order = [f'(ROW({", ".join(expressions)})::text) COLLATE "C"']
        offset = f" OFFSET {split.rows}"
    # End with a column that is never NULL: COPY writes a single NULL as an empty line, which CSV readers skip.
    text = f"SELECT {', '.join(expressions)}, 1 FROM {split.relation} AS t"
    if where:
        text += " WHERE " + " AND ".join(f"({condition})" for condition in where)
    text += " ORDER BY " + ", ".join(order)
    if scanned.limit is not None:
        text += f" LIMIT {max(0, scanned.limit - split.rows)}"
    return text + offset


@dataclass(frozen=True, slots=True)
class Rows:
    """Fetched rows: their columns, and their key columns as text."""

    columns: pa.RecordBatch
    keys: tuple[pa.Array, ...]


class Fetch:
    """Fetches the rows of one split; `rows` runs in a thread, and `interrupt` stops it."""

    def __init__(self, scanned: Scanned, split: ScanSplit) -> None:
        self._scanned = scanned
        self._split = split
        self._connection: Any = None
        self._is_stopped = False
        #: whether the split's snapshot no longer existed
        self.lost_snapshot = False

    def rows(self) -> Iterator[Rows]:
        """Yield the rows after the split's position."""
        with client.connect(self._scanned.address) as connection:
            self._connection = connection
            connection.execute(text_columns.SESSION)
            connection.execute("SET idle_in_transaction_session_timeout = 0")
            if self._is_stopped:
                return
            self._begin(connection)
            yield from self._copied(connection)
            connection.execute("COMMIT")

    def _begin(self, connection: Any) -> None:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if self._split.snapshot is None:
            return
        try:
            connection.execute(f"SET TRANSACTION SNAPSHOT {text_columns.literal(self._split.snapshot)}")
        except client.driver().Error as error:
            if error.sqlstate not in INVALID_SNAPSHOT:
                raise
            self.lost_snapshot = True
            connection.execute("ROLLBACK")
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def _copied(self, connection: Any) -> Iterator[Rows]:
        scanned = self._scanned
        text = build_query(scanned, self._split)
        lines: list[bytes] = []
        with (
            client.naming(f"cannot read {self._split.relation}"),
            connection.cursor() as cursor,
            cursor.copy(f"COPY ({text}) TO STDOUT (FORMAT csv)") as copy,
        ):
            for line in copy:
                lines.append(bytes(line))
                if len(lines) >= scanned.fetch_size:
                    yield self._made(lines)
                    lines = []
        if lines:
            yield self._made(lines)

    def _made(self, lines: list[bytes]) -> Rows:
        columns = self._scanned.columns
        texts = text_columns.texts_of_csv(b"".join(lines), len(columns) + len(self._split.key) + 1)
        batch = text_columns.parse_batch(
            texts[: len(columns)],
            [column.type for column in columns],
            [column.name for column in columns],
            self._scanned.unrepresentable,
            [column.title for column in columns],
        )
        return Rows(batch, tuple(texts[len(columns) : -1]))

    def interrupt(self) -> None:
        """Stop reading and cancel the running query."""
        self._is_stopped = True
        connection = self._connection
        if connection is not None and not connection.closed:
            connection.cancel_safe(timeout=5)


LOG: Final = logging.getLogger(__name__)


class JdbcSource(connector.Source[Any, ScanSplit]):
    """Reads a table or view of PostgreSQL, MySQL or MariaDB to its end; built by `builder()`. Records are named rows.

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
    def boundedness(self) -> connector.Boundedness:
        """Bounded."""
        return connector.Boundedness.BOUNDED

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[ScanSplit], restored: Any | None
    ) -> connector.SplitEnumerator[ScanSplit]:
        """See `Source`."""
        if not isinstance(self.scanned.address, client.Address):
            from penstock.connectors.mysql.scan import MySqlScanEnumerator

            return MySqlScanEnumerator(context, self.scanned, restored)
        return ScanEnumerator(context, self.scanned, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, ScanSplit]:
        """See `Source`."""
        if not isinstance(self.scanned.address, client.Address):
            from penstock.connectors.mysql.scan import MySqlScanReader

            return MySqlScanReader(context, self.scanned)
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
        self._unrepresentable = text_columns.FAIL

    def set_db_url(self, url: str) -> JdbcSourceBuilder:
        """Set the URL: `jdbc:postgresql://HOST:PORT/DATABASE`, `jdbc:mysql://…` or `jdbc:mariadb://…`."""
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
        self._unrepresentable = text_columns.check_mode(mode)
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
        address = client.read_address(self._url, self._user, self._password)
        partitions = self._partitions
        wanted = [*self._columns, *([] if partitions is None else [partitions.column])]
        described = describe_columns(address, self._table, wanted if self._columns else ())
        columns = described[: len(self._columns)] if self._columns else described
        if partitions is not None and not self._columns:
            describe_columns(address, self._table, wanted)
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


def describe_columns(address: Any, table: str, names: Sequence[str]) -> tuple[ScannedColumn, ...]:
    """Return the scanned columns of a table; all columns if `names` is empty.

    Raises:
        MissingPathError: if the table does not exist.
        UnknownNameError: if it does not have one of the columns.
    """
    if not isinstance(address, client.Address):
        from penstock.connectors.mysql import scan

        return scan.describe_columns(address, table, names)
    with client.connect(address) as connection:
        table_relation = client.relation(connection, table)
    chosen = [table_relation.column(name) for name in names] or list(table_relation.columns)
    return tuple(ScannedColumn(column.name, client.quoted(column.name), column.type) for column in chosen)


class ScanEnumerator(connector.SplitEnumerator[ScanSplit]):
    """Exports a snapshot, cuts the table, and assigns the parts."""

    def __init__(
        self, context: connector.SplitEnumeratorContext[ScanSplit], scanned: Scanned, restored: Any | None
    ) -> None:
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
        holder = client.connect(self._scanned.address)
        try:
            holder.execute("SET idle_in_transaction_session_timeout = 0")
            table_relation = client.relation(holder, self._scanned.table)
            holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            exported = holder.execute("SELECT pg_export_snapshot()").fetchone()
            assert exported is not None
            partitions = self._scanned.partitions
            conditions = [""] if partitions is None else partitions.conditions(client.quoted(partitions.column))
            path = client.quoted_path(self._scanned.table)
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

    def __init__(self, context: connector.SourceReaderContext, scanned: Scanned) -> None:
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


#: How often a query is retried after the connection was lost.
_RETRIES: Final = 3


class KeyLookup:
    """Finds the rows of many keys with one query, as columns.

    Args:
        address: the database's address.
        table: its path.
        columns: the columns to return.
        key: the key columns.
        conditions: SQL conditions that all rows must satisfy.
        retries: how often a query is retried after the connection was lost.
        unrepresentable: how to read values that a type cannot hold, see `text_columns`.
    """

    def __init__(
        self,
        address: client.Address,
        table: str,
        columns: Sequence[ScannedColumn],
        key: Sequence[str],
        conditions: Sequence[str] = (),
        retries: int = _RETRIES,
        unrepresentable: str = text_columns.FAIL,
    ) -> None:
        self._unrepresentable = unrepresentable
        self._link = client.Link(address)
        self._table = table
        self._columns = tuple(columns)
        self._key = tuple(key)
        self._conditions = tuple(conditions)
        self._retries = retries
        self._relation: client.Relation | None = None
        self._connection: Any = None

    def find(self, keys: Sequence[pa.Array]) -> tuple[pa.RecordBatch, pa.Array]:
        """Return the rows of the keys (an array per key column) and, for each row, its key's index, ascending."""
        literals = [text_columns.array_literal(text_columns.to_server_texts(column)) for column in keys]
        lines = self._link.retrying(self._retries, lambda connection: self._ask(connection, literals))
        count = len(self._columns)
        texts = text_columns.texts_of_csv(lines, count + 1) if lines else [pa.array([], pa.string())] * (count + 1)
        kinds = [column.type for column in self._columns]
        names, titles = [f"c{index}" for index in range(count)], [column.title for column in self._columns]
        rows = text_columns.parse_batch(texts[:count], kinds, names, self._unrepresentable, titles)
        return rows, texts[count].cast(pa.int64())

    def _ask(self, connection: Any, literals: Sequence[str]) -> bytes:
        if connection is not self._connection:
            connection.execute(text_columns.SESSION)
            self._relation = client.relation(connection, self._table)
            self._connection = connection
        assert self._relation is not None
        names = [f"k{index}" for index in range(len(literals))]
        kinds = [self._relation.column(name).sql_type for name in self._key]
        arrays = ", ".join(f"{text}::{kind}[]" for text, kind in zip(literals, kinds, strict=True))
        matches = [f"t.{client.quoted(name)} = k.{alias}" for name, alias in zip(self._key, names, strict=True)]
        expressions = ", ".join([*(column.expression for column in self._columns), "k.n - 1"])
        text = (
            f"SELECT {expressions} FROM unnest({arrays}) WITH ORDINALITY AS k({', '.join(names)}, n) "
            f"JOIN {self._relation.path} AS t ON {' AND '.join([*matches, *self._conditions])} ORDER BY k.n"
        )
        with (
            client.naming(f"cannot look up rows of {self._relation.path}"),
            connection.cursor() as cursor,
            cursor.copy(f"COPY ({text}) TO STDOUT (FORMAT csv)") as copy,
        ):
            return b"".join(map(bytes, copy))

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


@dataclass(frozen=True, slots=True)
class LookupCache:
    """How the rows of keys are cached.

    Attributes:
        keys_max: the maximum number of keys; the least recently used key is evicted first.
        expire_after_write_ms: how long an entry is valid; None for no expiry.
        holds_missing: whether to cache keys without rows.
    """

    keys_max: int = 10_000
    expire_after_write_ms: int | None = None
    holds_missing: bool = True


class JdbcLookup:
    """Finds the rows of a key from within an asynchronous function (`AsyncDataStream`), with a cache.

    It is pickled with the function that owns it, and connects at the first lookup. Queries run one at a time on a
    single connection, and lookups that wait at the same time share a query.

        class Enrich(AsyncFunction):
            def __init__(self, customers):
                self.customers = customers

            async def async_invoke(self, order):
                return [(order, *row) for row in await self.customers.rows(order.customer)]

            def close(self):
                self.customers.close()

    Args:
        connection_options: the database's address and user.
        table: a table; `schema.table` for one in another schema.
        key: the key columns.
        columns: the columns to return; all by default.
        cache: the cache settings; None for no cache.
        unrepresentable_values: how to read values that a type cannot hold: `fail`, or `null`.
    """

    def __init__(
        self,
        connection_options: client.JdbcConnectionOptions,
        table: str,
        key: Sequence[str],
        columns: Sequence[str] = (),
        cache: LookupCache | None = None,
        unrepresentable_values: str = text_columns.FAIL,
    ) -> None:
        if not key:
            raise ConfigurationError(f"a look-up in table {table} needs at least one column of its key")
        self._address = connection_options.address()
        self._table = table
        self._key = tuple(key)
        self._names = tuple(columns)
        self._cache = cache
        self._unrepresentable = text_columns.check_mode(unrepresentable_values)
        self._forget()

    def _forget(self) -> None:
        self._lookup: Any = None
        self._held: OrderedDict[Any, tuple[float, list[Row]]] = OrderedDict()
        self._wanted: dict[Any, asyncio.Future[list[Row]]] = {}
        self._asking: asyncio.Task[None] | None = None
        #: the number of lookups answered from the cache, and of keys queried
        self.hits = 0
        self.asked = 0

    def __getstate__(self) -> dict[str, Any]:
        return {key: vars(self)[key] for key in ("_address", "_table", "_key", "_names", "_cache", "_unrepresentable")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    async def rows(self, *key: Any) -> list[Row]:
        """Return the rows of a key; empty if one of its values is None."""
        if len(key) != len(self._key):
            raise ConfigurationError(f"keys of table {self._table} have {len(self._key)} values, not {len(key)}")
        if None in key:
            return []
        cached = self._of_cache(key)
        if cached is not None:
            self.hits += 1
            return cached
        if key not in self._wanted:
            self._wanted[key] = asyncio.get_running_loop().create_future()
        waiting = self._wanted[key]
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        return await asyncio.shield(waiting)

    async def _ask(self) -> None:
        try:
            while self._wanted:
                futures, self._wanted = self._wanted, {}
                try:
                    rows_by_key = await asyncio.to_thread(self._find, list(futures))
                except Exception as error:  # noqa: BLE001 - it is raised in those who wait
                    for future in futures.values():
                        future.set_exception(error)
                    continue
                for key, future in futures.items():
                    self._hold(key, rows_by_key[key])
                    future.set_result(rows_by_key[key])
        finally:
            self._asking = None

    def _find(self, keys: Sequence[Any]) -> dict[Any, list[Row]]:
        self.asked += len(keys)
        if self._lookup is None:
            self._lookup = self._connected()
        columns = [pa.array(values) for values in zip(*keys, strict=True)]
        rows, numbers = self._lookup.find(columns)
        rows_by_key: dict[Any, list[Row]] = {key: [] for key in keys}
        dicts = rows.rename_columns(self._names).to_pylist()
        for number, values in zip(numbers.to_pylist(), dicts, strict=True):
            rows_by_key[keys[number]].append(Row(**values))
        return rows_by_key

    def _connected(self) -> Any:
        columns = describe_columns(self._address, self._table, self._names)
        self._names = tuple(column.name for column in columns)
        if not isinstance(self._address, client.Address):
            from penstock.connectors.mysql import scan

            return scan.KeyLookup(self._address, self._table, columns, self._key, _RETRIES, self._unrepresentable)
        aliased = [replace(column, expression=f"t.{column.expression}") for column in columns]
        return KeyLookup(self._address, self._table, aliased, self._key, unrepresentable=self._unrepresentable)

    def _of_cache(self, key: Any) -> list[Row] | None:
        entry = self._held.get(key)
        if entry is None or self._cache is None:
            return None
        after_ms = self._cache.expire_after_write_ms
        if after_ms is not None and time.monotonic() * 1_000 > entry[0] + after_ms:
            del self._held[key]
            return None
        self._held.move_to_end(key)
        return entry[1]

    def _hold(self, key: Any, rows: list[Row]) -> None:
        if self._cache is None or not (rows or self._cache.holds_missing):
            return
        self._held[key] = (time.monotonic() * 1_000, rows)
        self._held.move_to_end(key)
        if len(self._held) > self._cache.keys_max:
            self._held.popitem(last=False)

    def close(self) -> None:
        """Close the connection; call this from the function's own `close`."""
        lookup, self._lookup = self._lookup, None
        if lookup is not None:
            lookup.close()
