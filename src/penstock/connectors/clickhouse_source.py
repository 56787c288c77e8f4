"""ClickHouse as a source: `ClickHouseSource`, the bounded scan of a table in parts, and `KeyLookup` of rows by key.

**Positions.** Tables of ClickHouse have no unique key. So the rows of a part are read in the order of the table's
sorting key and, where that is equal, of all columns that are read. A position is a number of rows: after a failure the
query leaves out as many. Rows that are equal in all these columns are indistinguishable, so it does not matter which of
them comes first.

**Moments.** One query reads a part and sees the table as of its start. After a failure another query reads the
remaining rows as of a later moment. Rows added before the position meanwhile shift it, so that others come twice.
Merges of the server do not matter.

**Types.** The server's type says how a column is selected (`Reading`), and each value is converted without loss here; a
value that does not fit is an error. Answers are streams of Arrow. A stream that the server breaks off has no end mark,
and is never taken for a whole one.

**Conditions** are translated by the types of the server (`resolve_condition`).
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec
import pyarrow as pa

from penstock.base.errors import ConfigurationError, OperationError, UnknownNameError
from penstock.base.secrets import hide
from penstock.codecs.arrow_columns import exact_cast
from penstock.connectors import clickhouse
from penstock.connectors.clickhouse import ClickHouseServer, ClickHouseTable, ServerType, literal, quote
from penstock.connectors.conditions import Condition, Partitions
from penstock.connectors.http_client import Response
from penstock.connectors.split_reader import Background, DiscoveredSplits, ReadAheadReader
from penstock.runtime import connector
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.records import Batch

T = TypeVar("T")

FETCH_SIZE: Final = 65_536
RETRIES: Final = 5
RETRY_MS: Final = 500
_RETRY_MAX_MS: Final = 10_000
_CONNECT_S: Final = 10.0
#: how Arrow's streams end
_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_STRINGS: Final = ("String", "FixedString")
_FORMAT_SETTINGS: Final = {
    "output_format_arrow_string_as_string": "1",
    "output_format_arrow_low_cardinality_as_dictionary": "0",
}
#: about how many characters the keys of a query of a look-up have; a query has at most 262,144
_KEYS_CHARS: Final = 100_000
_OPERATORS: Final = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_NS_PER_S: Final = 1_000_000_000
#: seconds since 1970 that a DateTime64 of nanoseconds has
_SECONDS: Final = range(-2_208_988_800, 9_214_646_400)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a column is read.

    Attributes:
        name: its name in the output.
        expression: what is selected.
        type: its type in the output.
        title: its name on the server and its type there, for errors.
    """

    name: str
    expression: str
    type: pa.DataType
    title: str

    @staticmethod
    def of(name: str, column: str, kind: ServerType, type: pa.DataType | None) -> Reading:
        """Return how a column of the server is read as a type; None for the type that fits best.

        Raises:
            ConfigurationError: if the type cannot have the column's values.
        """
        chosen = choose_type(kind) if type is None else type
        expression = select(quote(column), kind, chosen)
        title = f"'{column}' of {kind.text}"
        if expression is None:
            raise ConfigurationError(
                f"column {title} on the server cannot be read as {chosen}: declare a type that has its values, or "
                "STRING"
            )
        return Reading(name, expression, chosen, title)

    def read(self, column: pa.Array) -> pa.Array:
        """Return a column of an answer in the output's type. Raises `OperationError` for a value that does not fit."""
        try:
            if pa.types.is_boolean(self.type) and pa.types.is_integer(column.type):
                _check_truths(column)
            return exact_cast(column, self.type)
        except (pa.ArrowException, ValueError) as error:
            raise OperationError(f"column {self.title} has a value that {self.type} has not: {error}") from error


def _check_truths(column: pa.Array) -> None:
    wrong = [value for value in column.unique().to_pylist() if value not in (0, 1, None)]
    if wrong:
        raise ValueError(f"{wrong[0]} is neither true nor false")


def choose_type(kind: ServerType) -> pa.DataType:
    """Return the type of Arrow that fits a column of the server best; text where there is none."""
    wire = kind.wire_type
    return pa.string() if wire is None or select("c", kind, wire) is None else wire


def select(name: str, kind: ServerType, type: pa.DataType) -> str | None:
    """Return what is selected to read a column of the server as a type; None if the type does not fit."""
    is_type, wire = pa.types, kind.wire_type
    if is_type.is_string(type):
        return name if kind.name == "String" else f"toString({name})"
    if is_type.is_binary(type):
        return name if kind.name in _STRINGS else None
    if wire is None:
        return None
    fits = False
    if is_type.is_timestamp(type) and is_type.is_timestamp(wire):
        digits = kind.arguments.partition(",")[0] if kind.name == "DateTime64" else "0"
        return f"toDateTime64({name}, {digits}, 'UTC')"
    if is_type.is_list(type) and is_type.is_list(wire):
        inner = select("x", kind.element, type.value_type)
        return None if inner is None else name if inner == "x" else f"arrayMap(x -> {inner}, {name})"
    if is_type.is_boolean(type):
        fits = is_type.is_boolean(wire) or wire in (pa.int8(), pa.uint8())
    elif is_type.is_integer(type):
        fits = is_type.is_integer(wire)
    elif is_type.is_floating(type):
        fits = is_type.is_floating(wire) and wire.bit_width <= type.bit_width
    elif is_type.is_decimal(type):
        fits = is_type.is_decimal(wire) or is_type.is_integer(wire)
    elif is_type.is_date(type):
        fits = is_type.is_date(wire)
    return name if fits else None


def resolve_condition(condition: Condition, kinds: Mapping[str, ServerType]) -> str | None:
    """Return a condition in the server's SQL that all rows satisfy which meet a condition; None if there is none."""
    if condition.kind in ("and", "or"):
        parts = [part for each in condition.parts if (part := resolve_condition(each, kinds)) is not None]
        if len(parts) < (len(condition.parts) if condition.kind == "or" else 1):
            return None
        return "(" + f" {condition.kind.upper()} ".join(parts) + ")"
    kind = kinds.get(condition.field)
    if kind is None:
        return None
    name = quote(condition.field)
    if condition.kind in ("exists", "missing"):
        return f"{name} IS {'NOT ' if condition.kind == 'exists' else ''}NULL"
    literals = [_literal(value, condition.type, kind) for value in condition.values]
    if None in literals:
        return None
    if condition.kind == "range":
        # Text is ordered by bytes in ClickHouse, and truths have no order in SQL.
        is_ordered = condition.type in ("integer", "double", "time")
        text = f"{name} {_OPERATORS[condition.operator]} {literals[0]}"
        is_nan = f" OR isNaN({name})" if condition.type == "double" else ""
        return f"({text}{is_nan})" if is_ordered else None
    if condition.type == "double":
        return None
    negation = "NOT " if condition.kind == "not in" else ""
    return f"{name} {negation}IN ({', '.join(map(str, literals))})"


def _literal(value: Any, type: str, kind: ServerType) -> str | None:
    """Return a value as queries have it; None if the server would compare it otherwise."""
    wire = kind.wire_type
    if wire is None:
        return None
    if type == "integer" and pa.types.is_integer(wire):
        bits = wire.bit_width
        least, most = (
            (-(1 << bits - 1), (1 << bits - 1) - 1) if pa.types.is_signed_integer(wire) else (0, (1 << bits) - 1)
        )
        return str(value) if least <= value <= most else None
    if type == "double" and kind.name == "Float64":
        return repr(value) if abs(value) < float("inf") else None
    if type == "text" and kind.name == "String":
        return literal(value)
    if type == "boolean" and kind.name == "Bool":
        return "true" if value else "false"
    if type == "time" and pa.types.is_timestamp(wire):
        seconds, nanos = divmod(value, _NS_PER_S)
        if seconds not in _SECONDS:
            return None
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
        return f"toDateTime64('{moment:%Y-%m-%d %H:%M:%S}.{nanos:09}', 9, 'UTC')"
    return None


@dataclass(frozen=True, slots=True)
class PartSplit:
    """A part of a table, after a position.

    Attributes:
        number: the number of the part.
        query: what selects its rows in order.
        rows: how many were read.
    """

    number: int
    query: str
    rows: int = 0


#: makes a batch of columns
ToBatch = Callable[[pa.RecordBatch], Batch]


@dataclass(frozen=True, slots=True)
class TableScan:
    """What is read of a table.

    Attributes:
        table: the table.
        columns: the columns: the name in the output, that on the server, and the type, or None for the best one; None
            for all columns.
        to_batch: makes a batch of columns.
        conditions: conditions that rows must meet; those that the server would answer otherwise are left out.
        where: a condition in the server's SQL; empty without one.
        partitions: how the table is cut; None for one part.
        limit: the maximum number of rows per part; None for all.
        is_final: whether rows are those of a SELECT … FINAL.
        fetch_size: how many rows a block of an answer has at most.
        retries: how often a query is repeated.
    """

    table: ClickHouseTable
    columns: tuple[tuple[str, str, pa.DataType | None], ...] | None
    to_batch: ToBatch
    conditions: tuple[Condition, ...] = ()
    where: str = ""
    partitions: Partitions | None = None
    limit: int | None = None
    is_final: bool = False
    fetch_size: int = FETCH_SIZE
    retries: int = RETRIES

    def __post_init__(self) -> None:
        if self.fetch_size < 1:
            raise ConfigurationError(f"fetch_size is {self.fetch_size}; it must be positive")

    def read_kinds(self) -> tuple[dict[str, ServerType], str]:
        """Return the types of the server's columns, and the sorting key.

        Raises:
            ConfigurationError: if there is no such table.
            OperationError: if the server cannot be reached, or refuses.
        """
        server = ClickHouseServer(self.table)
        try:
            return repeat(self.table, self.retries, lambda: describe_table(server))
        finally:
            server.close()

    def build_readings(self, kinds: Mapping[str, ServerType]) -> list[Reading]:
        """Return how the columns are read. Raises `UnknownNameError` for one that the server does not have."""
        columns = tuple((name, name, None) for name in kinds) if self.columns is None else self.columns
        readings = []
        for name, column, type in columns:
            if column not in kinds:
                raise UnknownNameError(
                    f"table {self.table.title} of the server has no column '{column}': it has {list(kinds)}"
                )
            readings.append(Reading.of(name, column, kinds[column], type))
        return readings

    def find_splits(self) -> list[PartSplit]:
        """Return the parts of the table. Raises as `read_kinds` and `build_readings` do."""
        kinds, sorting_key = self.read_kinds()
        expressions = [reading.expression for reading in self.build_readings(kinds)]
        resolved = [resolve_condition(condition, kinds) for condition in self.conditions]
        filters = [f"({self.where})"] if self.where else []
        filters += [condition for condition in resolved if condition is not None]
        parts = [""] if self.partitions is None else self._cut(self.partitions, kinds)
        order = ", ".join([*([sorting_key] if sorting_key else []), *expressions])
        # SELECT names no column by its own name, so that ORDER BY and WHERE mean the table's.
        selected = ", ".join(f"{each} AS `:{at}`" for at, each in enumerate(expressions)) or "1 AS `:0`"
        text = f"SELECT {selected} FROM {self.table.quoted}{' FINAL' if self.is_final else ''}"
        splits = []
        for number, part in enumerate(parts):
            where = " AND ".join(f"({each})" for each in (part, *filters) if each)
            query = text + (f" WHERE {where}" if where else "") + (f" ORDER BY {order}" if order else "")
            splits.append(PartSplit(number, query))
        return splits

    def _cut(self, partitions: Partitions, kinds: Mapping[str, ServerType]) -> list[str]:
        kind = kinds.get(partitions.column)
        if kind is None or kind.wire_type is None or not pa.types.is_integer(kind.wire_type):
            raise ConfigurationError(
                f"table {self.table.title} is cut by a column of integers, and '{partitions.column}' is "
                f"{'none of its columns' if kind is None else kind.text}"
            )
        return partitions.conditions(quote(partitions.column))


def describe_table(server: ClickHouseServer) -> tuple[dict[str, ServerType], str]:
    """Return the types of a table's columns, and its sorting key. Raises `ConfigurationError` without such a table."""
    table = server.table
    where = f"database = {literal(table.database)} AND "
    lines = server.select(
        f"SELECT name, type FROM system.columns WHERE {where}table = {literal(table.table)} AND default_kind != "
        "'EPHEMERAL' ORDER BY position FORMAT JSONEachRow"
    )
    columns = [msgspec.json.decode(line) for line in lines.splitlines()]
    if not columns:
        raise ConfigurationError(f"ClickHouse has no table {table.title}, or the user may not see it")
    about = server.select(
        f"SELECT sorting_key FROM system.tables WHERE {where}name = {literal(table.table)} FORMAT JSONEachRow"
    )
    sorting_key = msgspec.json.decode(about.splitlines()[0])["sorting_key"] if about else ""
    return {column["name"]: ServerType.parse(column["type"]) for column in columns}, sorting_key


def repeat(table: ClickHouseTable, retries: int, action: Callable[[], T]) -> T:
    """Return what an action returns, repeating it while the server is away or refuses for now.

    Raises:
        OperationError: after the last attempt, and for other errors of the server.
    """
    pause_ms = RETRY_MS
    for left in range(retries, -1, -1):
        try:
            return action()
        except (OSError, clickhouse.ServerError) as error:
            if not left or not clickhouse.is_passing(error):
                if isinstance(error, clickhouse.ServerError):
                    raise
                raise OperationError(f"ClickHouse does not answer for {table.title}: {hide(str(error))}") from error
        time.sleep(pause_ms / 1_000)
        pause_ms = min(2 * pause_ms, _RETRY_MAX_MS)
    raise AssertionError("the last attempt returns or raises")


class _Body(io.RawIOBase):
    """The body of a response, which keeps its last bytes."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.tail = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._response.readinto(buffer)
        if count:
            self.tail = (self.tail + bytes(memoryview(buffer)[max(0, count - len(_END)) : count]))[-len(_END) :]
        return count


class Query:
    """A query whose answer is read as it comes. `batches` runs in a thread, and `interrupt` stops it."""

    def __init__(self, table: ClickHouseTable, fetch_size: int) -> None:
        self._table, self._fetch_size = table, fetch_size
        self._socket: socket.socket | None = None
        self._is_stopped = False

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yield the blocks of the answer.

        Raises:
            ServerError: if the server refuses.
            OSError: if the server cannot be reached, or breaks off.
        """
        table = self._table
        parts = urlsplit(table.url)
        connection: http.client.HTTPConnection
        timeout_s = table.timeout_ms / 1_000
        host = parts.hostname or ""
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, parts.port, timeout=_CONNECT_S, context=context)
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=_CONNECT_S)
        try:
            connection.connect()
            self._socket = connection.sock
            connection.sock.settimeout(timeout_s)
            if self._is_stopped:
                return
            settings = {**dict(table.settings), **_FORMAT_SETTINGS, "max_block_size": str(self._fetch_size)}
            headers = {"User-Agent": "penstock"}
            if table.user is not None:
                headers |= {"X-ClickHouse-User": table.user, "X-ClickHouse-Key": table.password or ""}
            path = f"{parts.path.rstrip('/')}/?{urlencode(settings)}"
            connection.request("POST", path, f"{query} FORMAT ArrowStream".encode(), headers)
            yield from self._read(connection.getresponse())
        except http.client.HTTPException as error:
            raise ConnectionError(f"the server broke off its answer: {type(error).__name__}") from error
        finally:
            connection.close()

    def _read(self, response: http.client.HTTPResponse) -> Iterator[pa.RecordBatch]:
        names = {name.lower(): value for name, value in response.getheaders()}
        if response.status != http.client.OK or "x-clickhouse-exception-code" in names:
            clickhouse.read_response(self._table, Response(response.status, names, response.read()))
        body = _Body(response)
        try:
            with pa.ipc.open_stream(pa.PythonFile(body, "r")) as stream:
                yield from stream
        except (pa.ArrowInvalid, OSError) as error:
            raise ConnectionError(f"the server broke off its answer: {str(error)[:200]}") from error
        if body.tail != _END:
            raise ConnectionError("the server broke off its answer: it has no end")

    def interrupt(self) -> None:
        """Stop reading: the connection is shut down, which ends a waiting call."""
        self._is_stopped = True
        with suppress(Exception):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)


class ClickHouseSource(connector.Source[Any, PartSplit]):
    """Reads the rows of a table once, each exactly once while rows do not change.

    Args:
        table: the table.
        *columns: the columns to read; all without any.
        where: a condition in ClickHouse's SQL that rows must meet.
        partitions: how the table is cut into parts that are read in parallel; None for one part.
        is_final: whether rows of a ReplacingMergeTree that others replace are left out (FINAL).
        deserialize: returns the record of a dict of a row's columns; by default the dict.

    Raises:
        ConfigurationError: for a table whose columns cannot be read.

    Examples:
        >>> from penstock.datastream.connectors.clickhouse import ClickHouseSource, ClickHouseTable
        >>> table = ClickHouseTable("http://localhost:8123", "default", "visits")
        >>> source = ClickHouseSource(table, "person", "seconds", where="seconds > 3")
        >>> source.scan.where
        'seconds > 3'
    """

    boundedness = connector.Boundedness.BOUNDED

    def __init__(
        self,
        table: ClickHouseTable,
        *columns: str,
        where: str = "",
        partitions: Partitions | None = None,
        is_final: bool = False,
        deserialize: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        chosen = tuple((name, name, None) for name in columns) if columns else None
        self.scan = TableScan(
            table, chosen, _Records(deserialize), where=where, partitions=partitions, is_final=is_final
        )

    @staticmethod
    def of_scan(scan: TableScan) -> ClickHouseSource:
        """Return the source of a scan."""
        source = ClickHouseSource(scan.table)
        source.scan = scan
        return source

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[PartSplit], restored: Any | None
    ) -> connector.SplitEnumerator[PartSplit]:
        """See `Source`."""
        return DiscoveredSplits(context, self.scan.find_splits, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, PartSplit]:
        """See `Source`."""
        return _RowReader(context, self.scan)


@dataclass(frozen=True, slots=True)
class _Records:
    """Makes dicts of rows, and records of these by a function, if there is one."""

    deserialize: Callable[[dict[str, Any]], Any] | None

    def __call__(self, columns: pa.RecordBatch) -> Batch:
        rows = columns.to_pylist()
        if self.deserialize is None:
            return Batch(rows)
        return Batch(connector.call_each(self.deserialize, rows, "deserialize of a ClickHouseSource"))


def to_columns(columns: pa.RecordBatch) -> Batch:
    """Return columns as a batch, for tables."""
    return ColumnBatch(columns, None, None)


class _RowReader(ReadAheadReader[PartSplit, pa.RecordBatch]):
    def __init__(self, context: connector.SourceReaderContext, scan: TableScan) -> None:
        super().__init__(context)
        self._scan, self._reader_context = scan, context
        self._readings: list[Reading] | None = None
        #: how often a query was repeated, and how many of these were counted
        self._repeated = self._counted = 0

    def begin(self, split: PartSplit) -> Background[pa.RecordBatch]:
        """See `ReadAheadReader`."""
        query = Query(self._scan.table, self._scan.fetch_size)
        return Background(lambda: self._fetch(query, split), query.interrupt)

    def _fetch(self, query: Query, split: PartSplit) -> Iterator[pa.RecordBatch]:
        scan = self._scan
        if self._readings is None:
            self._readings = scan.build_readings(scan.read_kinds()[0])
        rows, left, pause_ms = split.rows, scan.retries, RETRY_MS
        while True:
            limit = None if scan.limit is None else scan.limit - rows
            if limit is not None and limit <= 0:
                return
            text = split.query + (f" LIMIT {(1 << 63) if limit is None else limit} OFFSET {rows}" if rows else "")
            text += f" LIMIT {limit}" if limit is not None and not rows else ""
            try:
                for batch in query.batches(text):
                    if batch.num_rows:
                        yield self._convert(batch)
                        rows, left, pause_ms = rows + batch.num_rows, scan.retries, RETRY_MS
                return
            except (OSError, clickhouse.ServerError) as error:
                if not left or not clickhouse.is_passing(error):
                    if isinstance(error, clickhouse.ServerError):
                        raise
                    title = scan.table.title
                    raise OperationError(f"ClickHouse does not answer for {title}: {hide(str(error))}") from error
            left -= 1
            self._repeated += 1
            time.sleep(pause_ms / 1_000)
            pause_ms = min(2 * pause_ms, _RETRY_MAX_MS)

    def _convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        assert self._readings is not None
        if not self._readings:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
        arrays = [reading.read(column) for reading, column in zip(self._readings, batch.columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, [reading.name for reading in self._readings])

    def part(self, split: PartSplit, rows: pa.RecordBatch, max_records: int) -> tuple[Batch, PartSplit]:
        """See `ReadAheadReader`."""
        if self._repeated > self._counted:
            self._reader_context.count("numRequestsRepeated", self._repeated - self._counted)
            self._counted = self._repeated
        count = min(max_records, rows.num_rows)
        self._rows = rows.slice(count) if count < rows.num_rows else None
        return self._scan.to_batch(rows.slice(0, count)), replace(split, rows=split.rows + count)


class KeyLookup:
    """Finds the rows of many keys with one query, as columns.

    Args:
        scan: the table, the columns to return, and how often a query is repeated.
        key: the names of the key columns on the server.
        types: what values of the key columns are: `integer`, `text` or `boolean`.
    """

    def __init__(self, scan: TableScan, key: Sequence[str], types: Sequence[str]) -> None:
        self._scan, self._key, self._types = scan, tuple(key), tuple(types)
        self._server = ClickHouseServer(replace(scan.table, settings=(*scan.table.settings, *_FORMAT_SETTINGS.items())))
        self._about: tuple[dict[str, ServerType], list[Reading]] | None = None

    def find(self, keys: Sequence[tuple[Any, ...]]) -> pa.Table:
        """Return the rows of keys, in no order.

        Raises:
            ConfigurationError: for a key column of a type that the server compares otherwise.
            OperationError: if the server cannot be reached, or refuses.
        """
        kinds, readings = self._describe()
        tuples: list[str] = []
        for key in keys:
            columns = zip(key, self._types, self._key, strict=True)
            literals = [_literal(value, type, kinds[name]) for value, type, name in columns]
            if None not in literals:  # else it is out of the column's range, and no row has it
                tuples.append(f"({', '.join(map(str, literals))})")
        schema = pa.schema([(reading.name, reading.type) for reading in readings])
        tables = [schema.empty_table()]
        while tuples:
            some: list[str] = []
            while tuples and sum(map(len, some)) < _KEYS_CHARS and len(some) < 1_000:
                some.append(tuples.pop())
            tables.append(self._ask(readings, some))
        return pa.concat_tables(tables)

    def _ask(self, readings: Sequence[Reading], tuples: Sequence[str]) -> pa.Table:
        scan = self._scan
        selected = ", ".join(f"{each.expression} AS `:{at}`" for at, each in enumerate(readings))
        final = " FINAL" if scan.is_final else ""
        names = ", ".join(map(quote, self._key))
        where = f"({names}) IN ({', '.join(tuples)})"
        query = f"SELECT {selected} FROM {scan.table.quoted}{final} WHERE {where}"
        answer = repeat(scan.table, scan.retries, lambda: self._server.select_arrow(query)).combine_chunks()
        arrays = []
        for reading, column in zip(readings, answer.columns, strict=True):
            whole = column.chunk(0) if column.num_chunks else pa.array([], column.type)
            arrays.append(reading.read(whole))
        return pa.table(arrays, names=[reading.name for reading in readings])

    def _describe(self) -> tuple[dict[str, ServerType], list[Reading]]:
        if self._about is None:
            scan = self._scan
            kinds, _ = repeat(scan.table, scan.retries, lambda: describe_table(self._server))
            readings = scan.build_readings(kinds)
            for name, type in zip(self._key, self._types, strict=True):
                kind = kinds[name]
                is_integer = kind.wire_type is not None and pa.types.is_integer(kind.wire_type)
                fits = {"integer": is_integer, "text": kind.name == "String", "boolean": kind.name == "Bool"}
                if not fits[type]:
                    raise ConfigurationError(
                        f"column '{name}' of {kind.text} on the server is not compared with values of type {type}: "
                        "declare the type that it has, or set 'lookup.cache' = 'FULL'"
                    )
            self._about = kinds, readings
        return self._about

    def close(self) -> None:
        """Close the connections."""
        self._server.close()
