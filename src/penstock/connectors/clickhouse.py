"""ClickHouse: inserts in batches over HTTP, with deduplication tokens, and checks of values that would change.

**Exactly once.** Rows are held until a checkpoint, which stores them in batches, each with a token of its own. When the
checkpoint is complete, the batches are inserted with `insert_deduplication_token`. After a failure the same bytes are
inserted again with the same tokens, and the server drops the batches that it has. Cutting new batches from replayed
records would not work: records of several inputs come in another order each time, so a batch with the token of an
earlier batch could have other rows, and these would be lost. A table must remember tokens (`check_remembers_tokens`):
at least the tokens of all inserts of other writers between the first attempt and the last.

**At least once.** Batches are inserted as they fill. Their tokens are new after a restart, so the server drops only the
repeats of a request whose answer was lost.

**Checks.** The server wraps integers, clips dates, and turns NULL into 0. So each column is cast to the type of the
server's column here, without loss, and a value that does not fit is an error (`fit_column`).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import ConfigurationError, OperationError, WrongTypeError, WrongValueError, short_repr
from penstock.base.secrets import hide, remember
from penstock.base.types import Row
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkBase, AsyncSinkWriter, RequestClient, RequestError
from penstock.connectors.base import DeliveryGuarantee
from penstock.connectors.http_client import HttpClient, Response
from penstock.runtime.connector import Committer, SinkWriter, SinkWriterContext

_OK: Final = 200
_TEXT_CHARS_MAX: Final = 500
#: codes of errors that pass: timeouts, limits of the moment, and replicas that are away
_PASSING: Final = frozenset({159, 164, 202, 203, 209, 210, 236, 241, 242, 252, 279, 285, 319, 341, 999})
_UNAVAILABLE: Final = frozenset({429, 502, 503, 504})
BATCH_ROWS: Final = 50_000
BATCH_BYTES_MAX: Final = 256 << 20
INTERVAL_MS: Final = 1_000
MAX_RETRIES: Final = 5
RETRY_MS: Final = 500
_RETRY_MAX_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class ClickHouseTable:
    """A table, and how its server is called. The printed form does not include the password.

    Attributes:
        url: `http://HOST:8123`, or `https://HOST:8443` with TLS.
        database: the name of the database.
        table: the name of the table.
        user: the user name; None without a login.
        password: the password.
        settings: settings of ClickHouse for each query, such as `max_memory_usage`.
        timeout_ms: how long an answer may take.

    Raises:
        ConfigurationError: for another kind of URL, for one with a login, and for an empty name.
    """

    url: str
    database: str
    table: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    settings: tuple[tuple[str, str], ...] = ()
    timeout_ms: int = 300_000

    def __post_init__(self) -> None:
        remember({"url": self.url, "password": self.password or ""})
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ConfigurationError(
                "the URL of ClickHouse is that of its HTTP interface, such as http://db:8123, without user and "
                "password, which are settings of their own"
            )
        if not self.database or not self.table:
            raise ConfigurationError("give the names of a database and of a table")

    @property
    def title(self) -> str:
        """The table with its database, for errors."""
        return f"{self.database}.{self.table}"

    @property
    def quoted(self) -> str:
        """The table with its database, for queries."""
        return f"{quote(self.database)}.{quote(self.table)}"

    def client(self) -> HttpClient:
        """Return a client."""
        headers = {"User-Agent": "penstock"}
        if self.user is not None:
            headers |= {"X-ClickHouse-User": self.user, "X-ClickHouse-Key": self.password or ""}
        return HttpClient(self.url, headers, self.timeout_ms, 10_000)


def quote(name: str) -> str:
    """Return a name as queries have it."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def literal(text: str) -> str:
    """Return a text as queries have it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class ServerError(OperationError):
    """The server answers with an error. `is_passing`: whether the same request may succeed later."""

    def __init__(self, text: str, is_passing: bool = False) -> None:
        super().__init__(text)
        self.is_passing = is_passing


def read_response(table: ClickHouseTable, response: Response) -> bytes:
    """Return the body of a response. Raises `ServerError`."""
    if response.status == _OK and "x-clickhouse-exception-code" not in response.headers:
        return response.body
    text = hide(response.body[:_TEXT_CHARS_MAX].decode("utf-8", "replace")).strip()
    match = re.search(r"Code: (\d+)", text)
    code = int(response.headers.get("x-clickhouse-exception-code", match[1] if match else 0))
    is_passing = code in _PASSING or response.status in _UNAVAILABLE
    raise ServerError(f"ClickHouse refuses a request for {table.title} (status {response.status}): {text}", is_passing)


def is_passing(error: BaseException) -> bool:
    """Return whether the same request may succeed later."""
    return error.is_passing if isinstance(error, ServerError) else isinstance(error, OSError)


class InsertBatch(NamedTuple):
    """Rows in Arrow's stream format.

    Attributes:
        token: identifies the batch at the server.
        columns: the names of the columns.
        body: the rows.
        rows: their number.
    """

    token: str
    columns: tuple[str, ...]
    body: bytes
    rows: int

    @staticmethod
    def build(token: str, rows: pa.Table) -> InsertBatch:
        """Return a batch of these rows."""
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, rows.schema) as stream:
            stream.write_table(rows)
        return InsertBatch(token, tuple(rows.schema.names), out.getvalue().to_pybytes(), rows.num_rows)

    def __repr__(self) -> str:
        return f"a batch of {self.rows} rows with token {self.token!r}"

    def target(self, table: ClickHouseTable) -> str:
        """Return the path of the request that inserts it."""
        names = ", ".join(map(quote, self.columns))
        query = f"INSERT INTO {table.quoted} ({names}) FORMAT ArrowStream"
        return "/?" + urlencode(
            {
                "query": query,
                **dict(table.settings),
                "insert_deduplicate": "1",
                "insert_deduplication_token": self.token,
            }
        )


class ClickHouseServer:
    """Calls the server, one request at a time, on an event loop of its own. Used by one thread."""

    def __init__(self, table: ClickHouseTable) -> None:
        self.table = table
        self._client = table.client()
        self._loop = asyncio.new_event_loop()

    def insert(self, batch: InsertBatch) -> None:
        """Insert a batch. Raises `ServerError`, and `OSError` if the server cannot be reached."""
        self._request(batch.target(self.table), batch.body)

    def select(self, query: str) -> bytes:
        """Return the result of a query, whole."""
        parameters = urlencode({**dict(self.table.settings), "wait_end_of_query": "1"})
        return self._request(f"/?{parameters}", query.encode())

    def _request(self, path: str, body: bytes) -> bytes:
        response = self._loop.run_until_complete(self._client.request("POST", path, body))
        return read_response(self.table, response)

    def select_arrow(self, query: str) -> pa.Table:
        """Return the rows of a query."""
        with pa.ipc.open_stream(self.select(f"{query} FORMAT ArrowStream")) as stream:
            return stream.read_all()

    def read_columns(self) -> dict[str, ServerType]:
        """Return the types of the columns that rows may have.

        Raises:
            ConfigurationError: if the table does not exist.
        """
        table = self.table
        lines = self.select(
            f"SELECT name, type FROM system.columns WHERE database = {literal(table.database)} AND table = "
            f"{literal(table.table)} AND default_kind NOT IN ('MATERIALIZED', 'ALIAS') ORDER BY position "
            "FORMAT JSONEachRow"
        )
        columns = [msgspec.json.decode(line) for line in lines.splitlines()]
        if not columns:
            raise ConfigurationError(f"ClickHouse has no table {table.title}, or the user may not see it")
        return {column["name"]: ServerType.parse(column["type"]) for column in columns}

    def check_remembers_tokens(self) -> None:
        """Raise `ConfigurationError` for a table that would insert a repeated batch again."""
        table = self.table
        lines = self.select(
            f"SELECT engine, create_table_query FROM system.tables WHERE database = {literal(table.database)} AND "
            f"name = {literal(table.table)} FORMAT JSONEachRow"
        )
        about = msgspec.json.decode(lines)
        engine, definition = about["engine"], about["create_table_query"]
        if engine.startswith(("Replicated", "Shared")):
            window = re.search(r"\breplicated_deduplication_window = (\d+)", definition)
            if window is None or int(window[1]):
                return
        window = re.search(r"\bnon_replicated_deduplication_window = (\d+)", definition)
        if engine.endswith("MergeTree") and window is not None and int(window[1]):
            return
        raise ConfigurationError(
            f"table {table.title} of engine {engine} does not remember the tokens of batches, so a batch that is "
            "inserted again after a failure would be there twice: ALTER TABLE … MODIFY SETTING "
            "non_replicated_deduplication_window = 1000 (a table of MergeTree), or write at least once"
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self._loop.run_until_complete(asyncio.sleep(0))  # the transports close in the next round
        self._loop.close()


_TYPE: Final = re.compile(r"(\w+)(?:\((.*)\))?\Z", re.DOTALL)
_INTEGERS: Final = {
    f"{sign}Int{bits}": getattr(pa, f"{sign.lower()}int{bits}")() for sign in ("", "U") for bits in (8, 16, 32, 64)
}
_DECIMALS: Final = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": 76}
#: the first and the last day of Date and Date32, and of DateTime64, in days since 1970
_DAYS: Final = {"Date": (0, 65_535), "Date32": (-25_567, 120_529)}
_DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class ServerType:
    """The type of a column on the server.

    Attributes:
        text: as the server names it.
        name: without LowCardinality, Nullable and arguments.
        arguments: the arguments, as text.
        is_nullable: whether NULL fits.
    """

    text: str
    name: str
    arguments: str
    is_nullable: bool

    @staticmethod
    def parse(text: str) -> ServerType:
        """Return the type that the server names."""
        inner, is_nullable = text, False
        while (match := _TYPE.match(inner)) and match[1] in ("Nullable", "LowCardinality"):
            is_nullable = is_nullable or match[1] == "Nullable"
            inner = match[2]
        match = _TYPE.match(inner)
        return ServerType(text, match[1] if match else inner, (match[2] or "") if match else "", is_nullable)

    @property
    def element(self) -> ServerType:
        """The type of elements of an Array."""
        return ServerType.parse(self.arguments)

    @property
    def wire_type(self) -> pa.DataType | None:
        """The Arrow type that holds exactly these values, or more; None without such a type."""
        name = self.name
        if name in _INTEGERS:
            return _INTEGERS[name]
        match name:
            case "Bool":
                return pa.bool_()
            case "Float32" | "Float64":
                return pa.float32() if name == "Float32" else pa.float64()
            case "String" | "FixedString" | "Enum8" | "Enum16":
                return pa.string()
            case "Date" | "Date32":
                return pa.date32()
            case "DateTime":
                return pa.timestamp("s", "UTC")
            case "DateTime64":
                digits = int(self.arguments.partition(",")[0])
                return pa.timestamp(
                    "s" if not digits else "ms" if digits <= 3 else "us" if digits <= 6 else "ns", "UTC"
                )
            case "Array":
                inner = self.element.wire_type
                return None if inner is None else pa.list_(inner)
        if name in _DECIMALS or name == "Decimal":
            first, _, second = self.arguments.partition(",")
            precision, scale = (int(first), int(second or 0)) if name == "Decimal" else (_DECIMALS[name], int(first))
            return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
        return None


class Misfit(WrongValueError):
    """A column has a value that the server would change, or refuse."""


def fit_column(column: pa.Array, kind: ServerType, name: str) -> pa.Array:
    """Return a column in the exact form of the server's type.

    Raises:
        Misfit: for a value that does not fit, or a type that is not converted.
    """
    if column.null_count and not kind.is_nullable:
        raise Misfit(f"column '{name}' has NULL, and {kind.text} on the server has not: it would become its default")
    wire = kind.wire_type
    if wire is None or not _is_convertible(column.type, wire):
        raise Misfit(f"column '{name}' of {column.type} does not fit {kind.text} on the server")
    if kind.name == "Array":
        values = fit_column(column.flatten(), kind.element, f"{name}[]")
        offsets = pa.array(
            [0, *pc.cumulative_sum(pc.fill_null(pc.list_value_length(column), 0)).to_pylist()], pa.int32()
        )
        return pa.ListArray.from_arrays(offsets, values)
    try:
        # A column without a zone is in UTC.
        if pa.types.is_timestamp(column.type) and column.type.tz is None:
            column = column.cast(pa.timestamp(column.type.unit, "UTC"))
        is_bytes = pa.types.is_binary(column.type) and pa.types.is_string(wire)
        fitted = column if is_bytes else column.cast(wire)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Misfit(f"column '{name}' does not fit {kind.text} on the server: {str(error)[:200]}") from error
    _check_range(fitted, kind, name)
    return fitted


def _is_convertible(given: pa.DataType, wire: pa.DataType) -> bool:
    is_type = pa.types
    if is_type.is_boolean(given):
        return bool(is_type.is_boolean(wire) or is_type.is_integer(wire))
    if is_type.is_integer(given):
        return bool(is_type.is_integer(wire) or is_type.is_decimal(wire))
    if is_type.is_floating(given):
        return bool(is_type.is_floating(wire) and wire.bit_width >= given.bit_width)
    if is_type.is_string(given) or is_type.is_binary(given):
        return bool(is_type.is_string(wire))
    if is_type.is_list(given):
        return bool(is_type.is_list(wire) and _is_convertible(given.value_type, wire.value_type))
    return any(check(given) and check(wire) for check in (is_type.is_decimal, is_type.is_date, is_type.is_timestamp))


def _check_range(column: pa.Array, kind: ServerType, name: str) -> None:
    least: Any = None
    most: Any = None
    measured = column
    if kind.name in _DAYS:
        measured, (least, most) = column.view(pa.int32()), _DAYS[kind.name]
    elif kind.name == "DateTime":
        measured, least, most = column.view(pa.int64()), 0, (1 << 32) - 1
    elif kind.name == "DateTime64":
        unit = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[column.type.unit]
        first, last = _DAYS["Date32"]
        measured, least, most = column.view(pa.int64()), first * _DAY_S * unit, (last + 1) * _DAY_S * unit - 1
        digits = int(kind.arguments.partition(",")[0])
        step = unit // 10**digits
        if step > 1 and any(value % step for value in measured.drop_null().to_pylist()):
            raise Misfit(f"column '{name}' has more digits of a second than {kind.text} on the server")
    elif kind.name == "FixedString":
        measured, least, most = pc.binary_length(column), 0, int(kind.arguments)
    elif kind.name.startswith("Enum"):
        known = {text.replace("\\'", "'") for text in re.findall(r"'((?:[^'\\]|\\.)*)' = -?\d+", kind.arguments)}
        wrong = next((value for value in column.to_pylist() if value is not None and value not in known), None)
        if wrong is not None:
            raise Misfit(f"column '{name}' has {short_repr(wrong)}, which {kind.text} on the server has not")
    if least is None:
        return
    extremes = pc.min_max(measured).as_py()
    if extremes["min"] is not None and (extremes["min"] < least or extremes["max"] > most):
        at = pc.index(measured, extremes["min"] if extremes["min"] < least else extremes["max"]).as_py()
        shown = short_repr(str(column[at]))
        raise Misfit(f"column '{name}' has {shown}, which does not fit {kind.text} on the server")


def fit_rows(rows: pa.Table, kinds: Mapping[str, ServerType], title: str) -> pa.Table:
    """Return rows in the exact form of the server's columns.

    Raises:
        Misfit: for a value that does not fit, and for a column that the server's table does not have.
    """
    columns = []
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name not in kinds:
            raise Misfit(
                f"table {title} of the server has no column '{name}' that can be written: it has {list(kinds)}"
            )
        combined = column.combine_chunks()
        whole = pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined
        columns.append(fit_column(whole, kinds[name], f"{title}.{name}"))
    return pa.table(columns, names=list(rows.schema.names))


class ToRows(NamedTuple):
    """Makes rows of records, which are dicts or `Row`s with names."""

    def __call__(self, records: Sequence[Any], kinds: Mapping[str, ServerType]) -> pa.Table:
        """Return the rows. Raises `Misfit` for values that do not fit."""
        rows = _convert_like_dicts(records, kinds)
        if rows is not None:
            return rows
        dicts = records
        if set(map(type, records)) != {dict}:
            dicts = [record.as_dict() if isinstance(record, Row) else record for record in records]
            for record in dicts:
                if not isinstance(record, Mapping):
                    raise WrongTypeError(f"a record is a dict or a Row with names, not a {type(record).__name__}")
        columns = {}
        for name, values in _find_values(dicts):
            kind = kinds.get(name)
            try:
                columns[name] = pa.array(values, None if kind is None else kind.wire_type)
            except _UNFIT as error:
                text = "" if kind is None else f" {kind.text}"
                raise Misfit(f"column '{name}' does not fit{text} on the server: {str(error)[:200]}") from error
        return pa.table(columns)


_UNFIT: Final = (pa.ArrowException, OverflowError, ValueError, TypeError)


def _convert_like_dicts(records: Sequence[Any], kinds: Mapping[str, ServerType]) -> pa.Table | None:
    """Return the rows of dicts with the same names; None for others, and if a value does not fit."""
    try:
        lengths = set(map(dict.__len__, records))
    except TypeError:  # no dict
        return None
    names = records[0].keys()
    types = [kinds[name].wire_type for name in names if name in kinds]
    if len(types) < len(names) or None in types or lengths != {len(names)}:
        return None
    try:
        rows = pa.Table.from_pylist(records, pa.schema(list(zip(names, types, strict=True))))
    except _UNFIT:
        return None
    # NULL may come from a name that a record does not have, in whose place it has another.
    has_null = any(column.null_count for column in rows.columns)
    return None if has_null and any(record.keys() != names for record in records) else rows


def _find_values(records: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Any]]]:
    """Return the names that records have, with the value of each record; None where it has none."""
    # Other mappings may have a value for any name.
    if set(map(type, records)) == {dict} and len(set(map(len, records))) == 1:
        with suppress(KeyError):
            return [(name, list(map(itemgetter(name), records))) for name in records[0]]
    names = dict.fromkeys(chain.from_iterable(records))
    return [(name, [record.get(name) for record in records]) for name in names]


@dataclass(frozen=True, slots=True)
class InsertSettings:
    """How rows are inserted.

    Attributes:
        batch_rows: the maximum number of rows in a batch.
        interval_ms: how long rows wait for others, if they are not held for a checkpoint.
        max_retries: how often a batch is sent again before the job fails.
        retry_ms: the time until it is sent again for the first time; it doubles each time.
        max_in_flight: how many batches of a subtask are sent at the same time.

    Raises:
        ValueError: for a number that is not positive.
    """

    batch_rows: int = BATCH_ROWS
    interval_ms: int = INTERVAL_MS
    max_retries: int = MAX_RETRIES
    retry_ms: int = RETRY_MS
    max_in_flight: int = 2

    def __post_init__(self) -> None:
        for name in ("batch_rows", "interval_ms", "retry_ms", "max_in_flight"):
            if getattr(self, name) < 1:
                raise WrongValueError(f"{name} is {getattr(self, name)}; it must be positive")
        if self.max_retries < 0:
            raise WrongValueError(f"max_retries is {self.max_retries}; it must be 0 or above")

    @property
    def requests(self) -> AsyncSinkSettings:
        """The limits of requests; each request has one batch."""
        return AsyncSinkSettings(
            max_batch_size=1,
            max_in_flight_requests=self.max_in_flight,
            max_buffered_requests=2,
            max_batch_size_in_bytes=BATCH_BYTES_MAX,
            max_record_size_in_bytes=BATCH_BYTES_MAX,
            max_time_in_buffer_ms=1,
            max_attempts=self.max_retries + 1,
            retry_delay_ms=self.retry_ms,
            retry_delay_max_ms=max(_RETRY_MAX_MS, self.retry_ms),
        )


def name_run(context: SinkWriterContext) -> str:
    """Return the beginning of tokens: no two jobs, operators, subtasks or attempts have the same."""
    return f"{context.job_id}/{context.operator_id}/{context.subtask_index}/{context.run}"


class ClickHouseSink(AsyncSinkBase[Any, InsertBatch]):
    """Inserts dicts, or rows with names, into a table. At least once, or exactly once (see the module).

    Args:
        table: the table.
        guarantee: how often rows are inserted if a failure occurs.
        settings: how they are inserted.
        to_rows: makes rows of records.

    Examples:
        >>> from penstock.datastream.connectors import DeliveryGuarantee
        >>> from penstock.datastream.connectors.clickhouse import ClickHouseSink, ClickHouseTable
        >>> table = ClickHouseTable("http://localhost:8123", "default", "visits")
        >>> sink = ClickHouseSink(table, DeliveryGuarantee.EXACTLY_ONCE)
        >>> sink.shows_on_commit
        True
    """

    def __init__(
        self,
        table: ClickHouseTable,
        guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE,
        settings: InsertSettings | None = None,
        to_rows: Callable[[Sequence[Any], Mapping[str, ServerType]], pa.Table] | None = None,
    ) -> None:
        self.inserts = settings or InsertSettings()
        super().__init__(self.inserts.requests)
        self.table = table
        self.guarantee = guarantee
        self.to_rows = to_rows or ToRows()

    @property
    def shows_on_commit(self) -> bool:
        """Whether rows become visible when a checkpoint is complete."""
        return self.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def connect(self) -> ClickHouseServer:
        """Return a connection to the server."""
        return ClickHouseServer(self.table)

    def create_client(self, context: SinkWriterContext) -> RequestClient[InsertBatch]:
        """See `AsyncSinkBase`."""
        return _InsertClient(self.table)

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """See `Sink`."""
        rows = _GatheredRows(self, context)
        return _HoldingWriter(self, rows) if self.shows_on_commit else _SendingWriter(self, context, rows)

    def create_committer(self, context: SinkWriterContext) -> Committer[Any] | None:
        """See `Sink`."""
        return ClickHouseCommitter(self) if self.shows_on_commit else None

    def get_size_in_bytes(self, entry: InsertBatch) -> int:
        """Return the size of the batch."""
        return len(entry.body)

    def get_ordering_key(self, entry: InsertBatch) -> Hashable | None:
        """Return None: rows are in no order."""
        return None


class _GatheredRows:
    """Rows that wait for a batch, and the numbers of batches."""

    def __init__(self, sink: ClickHouseSink, context: SinkWriterContext) -> None:
        self._sink, self._run = sink, name_run(context)
        self._number = 0
        self._parts: list[pa.Table] = []
        self.count = 0
        server = sink.connect()
        try:
            self._kinds = server.read_columns()
            if sink.shows_on_commit:
                server.check_remembers_tokens()
        except OSError as error:
            raise OperationError(f"{type(sink).__name__}: {sink.table.title} cannot be reached: {error}") from error
        finally:
            server.close()

    def add(self, records: Sequence[Any]) -> None:
        """Add records."""
        if records:
            self.add_rows(self._sink.to_rows(records, self._kinds))

    def add_rows(self, rows: pa.Table) -> None:
        """Add rows. Raises `Misfit` for values that do not fit."""
        self._parts.append(fit_rows(rows, self._kinds, self._sink.table.title))
        self.count += rows.num_rows

    def take(self, least: int) -> list[InsertBatch]:
        """Return batches of full size, and if fewer than `least` rows would remain, none; with 1, all rows."""
        if self.count < least or not self.count:
            return []
        size = self._sink.inserts.batch_rows
        rows = pa.concat_tables(self._parts, promote_options="default")
        end = rows.num_rows if least == 1 else rows.num_rows - rows.num_rows % size
        batches = []
        for start in range(0, end, size):
            self._number += 1
            token = f"{self._run}/{self._number}"
            batches.append(InsertBatch.build(token, rows.slice(start, min(size, end - start))))
        self._parts = [rows.slice(end)] if end < rows.num_rows else []
        self.count = rows.num_rows - end
        return batches


class _HoldingWriter(SinkWriter[Any, InsertBatch]):
    """Holds batches for a checkpoint."""

    def __init__(self, sink: ClickHouseSink, rows: _GatheredRows) -> None:
        self.rows, self._batch_rows = rows, sink.inserts.batch_rows
        self._batches: list[InsertBatch] = []

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        self.rows.add(values)
        self.send(self._batch_rows)

    def send(self, least: int) -> None:
        """Build the batches that are due."""
        self._batches += self.rows.take(least)

    def prepare_commit(self) -> list[InsertBatch]:
        """Return the batches."""
        self.send(1)
        batches, self._batches = self._batches, []
        return batches


class _SendingWriter(AsyncSinkWriter[Any]):
    """Sends batches as they fill."""

    def __init__(self, sink: ClickHouseSink, context: SinkWriterContext, rows: _GatheredRows) -> None:
        super().__init__(sink, context)
        self._click, self.rows = sink, rows
        self._due_ms: int | None = None

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        self.rows.add(values)
        self.send(self._click.inserts.batch_rows)

    def send(self, least: int) -> None:
        """Send the batches that are due."""
        batches = self.rows.take(least)
        if batches:
            self.add(batches, [len(batch.body) for batch in batches], None)
        if not self.rows.count:
            self._due_ms = None
        elif self._due_ms is None:
            self._due_ms = self._context.now_ms() + self._click.inserts.interval_ms

    def next_flush_ms(self) -> int | None:
        """See `SinkWriter`."""
        times = [time for time in (self._due_ms, super().next_flush_ms()) if time is not None]
        return min(times) if times else None

    def flush(self, end_of_input: bool) -> None:
        """Send rows that have waited for long."""
        if end_of_input or (self._due_ms is not None and self._context.now_ms() >= self._due_ms):
            self.send(1)
        super().flush(end_of_input)

    def prepare_commit(self) -> list[Any]:
        """Send all rows, and wait until they are accepted."""
        self.send(1)
        return super().prepare_commit()


class ClickHouseCommitter(Committer[InsertBatch]):
    """Inserts batches of a checkpoint. The server drops known batches, by their tokens."""

    def __init__(self, sink: ClickHouseSink, wait: Callable[[float], None] = time.sleep) -> None:
        self._sink, self._wait = sink, wait
        self._server: ClickHouseServer | None = None

    def commit(self, committables: Sequence[InsertBatch]) -> None:
        """Insert batches. Raises `OperationError` if the server refuses, or after the last attempt."""
        for batch in committables:
            self._insert(batch)

    def _insert(self, batch: InsertBatch) -> None:
        inserts, attempt = self._sink.inserts, 0
        while True:
            try:
                if self._server is None:
                    self._server = self._sink.connect()
                return self._server.insert(batch)
            except (OSError, ServerError) as error:
                self.close()
                attempt += 1
                if attempt > inserts.max_retries or not is_passing(error):
                    raise OperationError(f"{type(self._sink).__name__}: {batch!r} is not inserted: {error}") from error
            self._wait(min(_RETRY_MAX_MS, inserts.retry_ms * 2.0 ** (attempt - 1)) / 1_000)

    def close(self) -> None:
        """Close the connections."""
        server, self._server = self._server, None
        if server is not None:
            server.close()


class _InsertClient(RequestClient[InsertBatch]):
    """Sends one batch a request."""

    def __init__(self, table: ClickHouseTable) -> None:
        self._table = table
        self._client: HttpClient | None = None

    async def open(self) -> None:
        """Create the client."""
        self._client = self._table.client()

    async def submit_request_entries(self, entries: Sequence[InsertBatch]) -> None:
        """Insert batches."""
        assert self._client is not None
        for batch in entries:
            response = await self._client.request("POST", batch.target(self._table), batch.body)
            try:
                read_response(self._table, response)
            except ServerError as error:
                if not error.is_passing:
                    raise RequestError(str(error)) from error
                raise

    def is_retryable(self, error: Exception) -> bool:
        """Return whether the server may accept the batch later."""
        return is_passing(error)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
