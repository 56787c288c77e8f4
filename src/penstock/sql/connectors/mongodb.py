"""`mongodb`: reads, looks up and writes rows as documents of MongoDB, with the options of Flink's connector.

**Writing.** A table without a primary key inserts documents. With one, the key is the `_id`: the value of a single
column, and a document of several ones. A row sets its columns and keeps other fields of the document (`$set`), as in
Flink. A STRING that is the `_id` and looks like an ObjectId is written as one.

**Reading.** Values are converted to the declared types; one that does not fit fails the job, and the error names its
path. A missing field is NULL.

**Conditions.** The server evaluates conditions that it interprets as the query does (`to_filter`): on
integers, booleans, texts and times. It leaves out documents whose values it compares with nothing, such as a text in an
INT column, which would be an error otherwise. Decimals and floats are compared by the query, since the server compares
a stored double with a decimal bit by bit.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from penstock.base.config_options import POSITIVE, ConfigOption, ConfigOptions, choice
from penstock.base.errors import ConfigurationError, UnsupportedError, WrongValueError
from penstock.codecs.column_data import ColumnData
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkWriter
from penstock.connectors.mongodb import source as mongodb
from penstock.connectors.mongodb.sink import MongoSink, MongoWrite, mongo_settings
from penstock.runtime.connector import SinkWriter, SinkWriterContext
from penstock.sql.connectors.jdbc import LOOKUP_OPTIONS
from penstock.sql.connectors.mongodb_values import (
    MS_PER_S,
    NS_PER_MS,
    SCALARS,
    TEXTS,
    DocumentsToColumns,
    Misfit,
    keep,
    to_bson,
    to_id,
)
from penstock.sql.data import types
from penstock.sql.data.arrow import columns_of_changes
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import ALL, DELETE, INSERTS, UPDATE_BEFORE, PlanColumn, RowSchema, Scan, Write
from penstock.sql.tables import tables
from penstock.sql.tables.connector import (
    ColumnsLookup,
    LookedUp,
    LookupReader,
    TableConnector,
    TableLookup,
    TableOptions,
)
from penstock.sql.typed import Constant, Field, FunctionCall, Typed, separated


@dataclass(frozen=True, slots=True)
class Documents:
    """How rows become writes.

    Attributes:
        title: the table, for errors.
        schema: the columns.
        key: the positions of the primary key columns; empty if documents are inserted.
        shard_keys: the positions of the columns that the collection is sharded by.
    """

    title: str
    schema: RowSchema
    key: tuple[int, ...]
    shard_keys: tuple[int, ...] = ()

    def writes(self, columns: pa.RecordBatch, kinds: bytes) -> list[MongoWrite]:
        """Return the writes for changes."""
        names = self.schema.names
        try:
            values = [
                to_bson(column, part.type, part.name) for column, part in zip(columns.columns, self.schema, strict=True)
            ]
        except Misfit as misfit:
            raise TableRuntimeError(f"table {self.title}: {misfit.path} cannot be written: {misfit}") from misfit
        rows = list(zip(*values, strict=True))
        if not self.key:
            return [MongoWrite.insert(dict(zip(names, row, strict=True))) for row in rows]
        ids = self._ids(values)
        return [
            MongoWrite.delete(id)
            if kind in (DELETE, UPDATE_BEFORE)
            else MongoWrite.set(id, dict(zip(names, row, strict=True)), self._shard(row))
            for id, kind, row in zip(ids, kinds, rows, strict=True)
        ]

    def _ids(self, values: Sequence[list[Any]]) -> list[Any]:
        names = [self.schema.names[position] for position in self.key]
        for name, position in zip(names, self.key, strict=True):
            if None in values[position]:
                raise TableRuntimeError(f"table {self.title}: column '{name}' of the primary key is NULL")
        if len(names) == 1:
            return list(map(to_id, values[self.key[0]]))
        parts = zip(*[values[position] for position in self.key], strict=True)
        return [dict(zip(names, part, strict=True)) for part in parts]

    def _shard(self, row: Sequence[Any]) -> dict[str, Any] | None:
        names = self.schema.names
        return {names[position]: row[position] for position in self.shard_keys} if self.shard_keys else None


class MongoTableSink(MongoSink[Any]):
    """Accepts rows as (kind, internal values), or columns.

    Args:
        address: the collection.
        documents: makes writes of rows.
        settings: the limits.
        bypasses_validation: see `MongoSink`.
    """

    def __init__(
        self,
        address: mongodb.MongoAddress,
        documents: Documents,
        settings: AsyncSinkSettings,
        bypasses_validation: bool = False,
    ) -> None:
        super().__init__(address, keep, settings, bypasses_validation)
        self.documents = documents

    def supersedes(self, later: MongoWrite, earlier: MongoWrite) -> bool:
        """Return whether the later row leaves nothing of the earlier one: all rows set the same fields."""
        return later.name == "delete" or earlier.name == "set"

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """See `Sink`."""
        return _TableWriter(self, context)


class _TableWriter(AsyncSinkWriter[Any]):
    """Makes writes of columns."""

    def __init__(self, sink: MongoTableSink, context: SinkWriterContext) -> None:
        super().__init__(sink, context)
        self._documents = sink.documents

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if values:
            schema = self._documents.schema
            self._write(*columns_of_changes(values, schema.names, schema.types))

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._write(data.columns, bytes(len(data)))

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._write(data.columns, kinds)

    def _write(self, columns: pa.RecordBatch, kinds: bytes) -> None:
        if columns.num_rows:
            self.add_entries(self._documents.writes(columns, kinds))


_OPERATORS: Final = {"=": "$eq", "<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte"}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: longer lists of constants are evaluated by the query
_IN_MAX: Final = 1_000


def to_filter(condition: Typed, columns: Sequence[str]) -> dict[str, Any] | None:
    """Return a query that finds all documents that can satisfy a condition; None if the server cannot evaluate it."""
    if isinstance(condition, Field):
        return {columns[condition.index]: True} if isinstance(condition.type, types.BooleanType) else None
    if not isinstance(condition, FunctionCall) or condition.options:
        return None
    name, operands = condition.function, condition.operands
    if name in ("AND", "OR"):
        parts = [part for operand in operands if (part := to_filter(operand, columns)) is not None]
        if len(parts) < (len(operands) if name == "OR" else 1):
            return None
        return {f"${name.lower()}": parts}
    first = operands[0] if operands else None
    if not isinstance(first, Field):
        if len(operands) == 2 and isinstance(operands[1], Field) and (name in _MIRRORED or name in ("=", "<>")):
            return to_filter(replace(condition, function=_MIRRORED.get(name, name), operands=operands[::-1]), columns)
        return None
    field = columns[first.index]
    if name == "IS NULL":
        return {field: None}
    if name == "IS NOT NULL":
        # An array with a NULL in it is one that the server compares as NULL.
        return None if isinstance(first.type, types.ArrayType) else {field: {"$ne": None}}
    if name == "IN":
        among = separated(operands[1:])
        lists = [_constants(operand, first.type) for operand in among] if len(among) <= _IN_MAX else [None]
        known = [values for values in lists if values is not None]
        return {field: {"$in": [value for values in known for value in values]}} if len(known) == len(lists) else None
    values = _constants(operands[1], first.type) if len(operands) == 2 else None
    if values is None:
        return None
    if name == "=":
        return {field: {"$in": values}}
    if name == "<>":
        return {field: {"$nin": [*values, None]}}
    if name in _OPERATORS and not isinstance(first.type, TEXTS):
        return {field: {_OPERATORS[name]: values[0]}}
    return None


def _constants(constant: Typed, column: DataType) -> list[Any] | None:
    """Return the values of a document that may equal a constant; None if the server cannot compare it."""
    if not isinstance(constant, Constant) or constant.value is None:
        return None
    value: Any = constant.value
    if isinstance(column, types.VarCharType) and isinstance(constant.type, TEXTS):
        # A text with this beginning may be a document in JSON; trailing blanks of CHAR do not count.
        if value.startswith("{") or value != value.rstrip(" "):
            return None
        id = to_id(value)
        return [value] if id is value else [value, id]
    if isinstance(column, types.IntegralType) and isinstance(constant.type, types.IntegralType):
        return [mongodb.bson("int64.Int64")(value)]
    if isinstance(column, types.BooleanType) and isinstance(constant.type, types.BooleanType):
        return [value]
    is_time = isinstance(column, types.LocalZonedTimestampType)
    if is_time and isinstance(constant.type, types.LocalZonedTimestampType) and value % NS_PER_MS == 0:
        return [mongodb.bson("datetime_ms.DatetimeMS")(value // NS_PER_MS)]
    return None


@dataclass(frozen=True, slots=True)
class MongoTableScan(tables.TableScan, tables.ProjectionPushDown, tables.FilterPushDown, tables.LimitPushDown):
    """Reads some fields, and filters documents on the server.

    Attributes:
        scan: the collection and the fields to read, which match the columns.
        title: the table, for errors.
        columns: the columns to read.
        filters: queries that documents must match.
        takes_filters: whether conditions are given to the server.
    """

    scan: mongodb.MongoScan
    title: str
    columns: tuple[PlanColumn, ...]
    filters: tuple[Any, ...] = ()
    takes_filters: bool = True

    def reader(self) -> tables.TableReader:
        """See `TableScan`."""
        names = tuple(column.name for column in self.columns)
        to_batch = DocumentsToColumns(self.title, names, tuple(column.type for column in self.columns))
        query = {"$and": list(self.filters)} if self.filters else {}
        return tables.TableReader(
            mongodb.MongoSource(replace(self.scan, to_batch=to_batch, fields=names, filter=query))
        )

    def with_columns(self, columns: Sequence[int]) -> MongoTableScan:
        """See `ProjectionPushDown`."""
        return replace(self, columns=tuple(self.columns[index] for index in columns))

    def with_conditions(self, conditions: Sequence[Typed]) -> tables.Filtered:
        """See `FilterPushDown`. The query evaluates all conditions again."""
        if not self.takes_filters:
            return tables.Filtered(self, tuple(conditions), ())
        names = [column.name for column in self.columns]
        translated = [(condition, to_filter(condition, names)) for condition in conditions]
        filters = tuple(query for _, query in translated if query is not None)
        used = tuple(condition for condition, query in translated if query is not None)
        return tables.Filtered(replace(self, filters=(*self.filters, *filters)), tuple(conditions), used)

    def with_limit(self, limit: int) -> MongoTableScan:
        """See `LimitPushDown`."""
        least = limit if self.scan.limit is None else min(limit, self.scan.limit)
        return replace(self, scan=replace(self.scan, limit=least))


class MongoLookupReader(LookupReader):
    """Finds rows by key columns, with one query for the keys of a batch.

    Args:
        address: the collection.
        to_columns: makes columns of documents.
        key: the positions of the key columns.
        retries: how often a query that failed is repeated.
        pause_s: the time before it is.
    """

    def __init__(
        self,
        address: mongodb.MongoAddress,
        to_columns: DocumentsToColumns,
        key: tuple[int, ...],
        retries: int,
        pause_s: float,
    ) -> None:
        self._address, self._to_columns, self._key = address, to_columns, key
        self._retries, self._pause_s = retries, pause_s
        self._client = address.connect()
        dates = mongodb.bson("codec_options.CodecOptions")(
            datetime_conversion=mongodb.bson("codec_options.DatetimeConversion").DATETIME_MS
        )
        self._collection = address.open_collection(self._client).with_options(dates)

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        kinds = [self._to_columns.types[position] for position in self._key]
        names = [self._to_columns.names[position] for position in self._key]
        columns = [to_bson(column, kind, name) for column, kind, name in zip(keys.columns, kinds, names, strict=True)]
        wanted = [row for row in zip(*columns, strict=True) if None not in row]
        documents = self._find(names, wanted) if wanted else []
        table = pa.Table.from_batches([self._to_columns.build(documents)])
        return ColumnsLookup(table, self._key).lookup(keys)

    def _find(self, names: Sequence[str], wanted: Sequence[tuple[Any, ...]]) -> list[Any]:
        from pymongo.errors import PyMongoError

        if len(names) == 1:
            query: dict[str, Any] = {names[0]: {"$in": _alternatives(row[0] for row in wanted)}}
        else:
            query = {"$or": [_match(names, row) for row in wanted]}
        projection = {**dict.fromkeys(self._to_columns.names, 1), mongodb.ID: 1}
        for left in range(self._retries, -1, -1):
            try:
                return list(self._collection.find(query, projection))
            except PyMongoError as error:
                if not left or not mongodb.is_passing(error):
                    raise mongodb.fail(self._address, error) from error
            time.sleep(self._pause_s)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _alternatives(values: Iterable[Any]) -> list[Any]:
    """Return values, and the ObjectIds that texts may stand for."""
    return [form for value in values for form in ([value] if to_id(value) is value else [value, to_id(value)])]


def _match(names: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    return {name: {"$in": _alternatives([value])} for name, value in zip(names, row, strict=True)}


def _text(key: str, description: str) -> ConfigOption[str | None]:
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


def _number(key: str, default: int, description: str) -> ConfigOption[int]:
    return ConfigOptions.key(key).int_type().default_value(default).with_description(description)


def _time(key: str, default: int, description: str) -> ConfigOption[int]:
    return ConfigOptions.key(key).duration_type().default_value(default).with_description(description)


def _word(key: str, default: str, words: Sequence[str], description: str) -> ConfigOption[str]:
    return ConfigOption(key, choice(*words), default).with_description(description)


def _truth(key: str, default: bool, description: str) -> ConfigOption[bool]:
    return ConfigOptions.key(key).boolean_type().default_value(default).with_description(description)


URI: Final = _text(
    "uri",
    "`mongodb://USER:PASSWORD@HOST:PORT/?OPTIONS`, or `mongodb+srv://…`, with the options of pymongo, such as `tls`, "
    "`replicaSet`, `w` and `socketTimeoutMS`.",
)
DATABASE: Final = _text("database", "The name of the database.")
COLLECTION: Final = _text("collection", "The name of the collection.")
FETCH: Final = ConfigOption("scan.fetch-size", POSITIVE, mongodb.FETCH_SIZE).with_description(
    "How many documents an answer of the server has."
)
NO_TIMEOUT: Final = _truth(
    "scan.cursor.no-timeout",
    True,
    "Whether a cursor that the server has closed, because it was idle, is opened again after the last document. "
    "Otherwise the job fails.",
)
STRATEGY: Final = _word(
    "scan.partition.strategy",
    "default",
    [strategy.value for strategy in mongodb.PartitionStrategy],
    "How the collection is cut into parts, see [mongodb.md](mongodb.md#partitions).",
)
SIZE: Final = (
    ConfigOptions.key("scan.partition.size")
    .memory_type()
    .default_value(mongodb.PARTITION_BYTES)
    .with_description("The size of a part.")
)
SAMPLES: Final = ConfigOption("scan.partition.samples", POSITIVE, mongodb.SAMPLES).with_description(
    "The number of samples per part, for the strategy `sample`."
)
RETRY_PAUSE: Final = _time("lookup.retry.interval", 1_000, "The time until a failed lookup is repeated.")
POLICY: Final = _word(
    "filter.handling.policy",
    "always",
    ("always", "never"),
    "Whether the server evaluates conditions where it can. The query evaluates all of them in any case.",
)
MAX_ROWS: Final = _number(
    "sink.buffer-flush.max-rows", 1_000, "The maximum number of rows in a request; `-1` for no limit."
)
INTERVAL: Final = _time("sink.buffer-flush.interval", 1_000, "The maximum time that rows wait for others.")
GUARANTEE: Final = _word(
    "sink.delivery-guarantee",
    "at-least-once",
    ("none", "at-least-once"),
    "Has no effect: a checkpoint always waits until earlier rows are accepted.",
)
RETRIES: Final = _number("sink.max-retries", 3, "How often a row is sent again before the job fails.")
RETRY: Final = _time(
    "sink.retry.interval", 1_000, "The time until a row is sent again for the first time; it doubles each time."
)
IN_FLIGHT: Final = ConfigOption("sink.requests.max-inflight", POSITIVE, 2).with_description(
    "How many requests of a subtask are sent at the same time."
)
BYPASS: Final = _truth(
    "sink.bypass-document-validation", False, "Whether documents may break the validation rules of the collection."
)


class MongodbConnector(TableConnector):
    """See the module docstring."""

    name = "mongodb"
    takes_partitions = True
    required_options = (URI, DATABASE, COLLECTION)
    optional_options = (
        FETCH,
        NO_TIMEOUT,
        STRATEGY,
        SIZE,
        SAMPLES,
        POLICY,
        *LOOKUP_OPTIONS,
        RETRY_PAUSE,
        MAX_ROWS,
        INTERVAL,
        GUARANTEE,
        RETRIES,
        RETRY,
        IN_FLIGHT,
        BYPASS,
    )

    def scan(self, scan: Scan, options: TableOptions) -> tables.TableScan:
        """Return the scan. Raises `ValidationError` and `UnsupportedError` for tables that cannot be read."""
        check_columns(options.title, scan.schema)
        try:
            read = mongodb.MongoScan(
                read_address(options),
                DocumentsToColumns(options.title, (), ()),
                fetch_size=options.read(FETCH),
                strategy=mongodb.PartitionStrategy(options.read(STRATEGY)),
                partition_bytes=options.read(SIZE),
                samples=options.read(SAMPLES),
                reopens=options.read(NO_TIMEOUT),
                exact_dates=True,
            )
        except ConfigurationError as error:
            raise options.wrong(SIZE.key(), str(error)) from error
        takes_filters = options.read(POLICY) == "always"
        return MongoTableScan(read, options.title, tuple(scan.schema), takes_filters=takes_filters)

    def lookup(self, scan: Scan, key: Sequence[int], options: TableOptions) -> TableLookup:
        """Return the lookup. Raises `UnsupportedError` for key columns of types that the server compares otherwise."""
        check_columns(options.title, scan.schema)
        for position in key:
            kind = scan.schema[position].type
            if not isinstance(kind, SCALARS) or isinstance(kind, types.FloatType | types.DoubleType):
                raise UnsupportedError(
                    f"column '{scan.schema[position].name}' of table {options.title} is {kind}, by which MongoDB finds "
                    "no documents reliably: join on columns of another type, or set 'lookup.cache' = 'FULL'"
                )
        to_columns = DocumentsToColumns(options.title, tuple(scan.schema.names), tuple(scan.schema.types))
        # With this option the join itself retries.
        retries = 0 if "lookup.max-retries" in options else 3
        pause_s = options.read(RETRY_PAUSE) / MS_PER_S
        return TableLookup(
            tuple(key), partial(MongoLookupReader, read_address(options), to_columns, tuple(key), retries, pause_s)
        )

    def writer(self, write: Write, options: TableOptions) -> tables.TableWriter:
        """Return the writer, which upserts by primary key if the table declares one."""
        if write.overwrites:
            raise UnsupportedError(
                f"INSERT OVERWRITE into table {options.title} is not supported: delete its documents first"
            )
        schema, key = write.schema, tuple(write.key)
        check_columns(options.title, schema, is_written=True)
        check_key(options.title, schema, key)
        try:
            settings = mongo_settings(
                options.read(MAX_ROWS),
                options.read(INTERVAL),
                options.read(RETRIES),
                options.read(RETRY),
                options.read(IN_FLIGHT),
            )
        except WrongValueError as error:
            raise ValidationError(f"Invalid options of table {options.title}: {error}") from error
        shard_keys = tuple(schema.names.index(name) for name in write.partition_keys)
        documents = Documents(options.title, schema, key, shard_keys)
        sink = MongoTableSink(read_address(options), documents, settings, options.read(BYPASS))
        if not key:
            return tables.TableWriter(sink, INSERTS, takes_columns=True)
        return tables.TableWriter(sink, ALL, wants_before=False, takes_columns=True, deletes_by_key=True)


class MongodbCdcConnector(TableConnector):
    """Refuses tables of Flink CDC's connector: Penstock does not read change streams."""

    name = "mongodb-cdc"

    def check(self, options: TableOptions, columns: Sequence[str]) -> None:
        """Raise `UnsupportedError`."""
        raise UnsupportedError(
            f"connector 'mongodb-cdc' of table {options.title} is not supported: Penstock does not read the change "
            "streams of MongoDB. Let Debezium's connector for MongoDB write them into Kafka, and read that topic with "
            "'format' = 'debezium-json'; or read the collection once with connector 'mongodb'"
        )


def check_key(title: str, schema: RowSchema, key: tuple[int, ...]) -> None:
    """Raise `ValidationError` if the `_id` of rows would be ambiguous, or of a type that it cannot have."""
    names = [schema.names[position] for position in key]
    if mongodb.ID in schema.names and names != [mongodb.ID]:
        raise ValidationError(
            f"Ambiguous keys being used due to the presence of an _id field in table {title}. Either use the _id "
            "column as the key, or rename the _id column."
        )
    for position in key:
        kind = schema[position].type
        if isinstance(kind, types.ArrayType | types.MapType):
            raise ValidationError(
                f"column '{schema[position].name}' of the primary key of table {title} is {kind}, which no _id can be"
            )


def check_columns(title: str, schema: RowSchema, is_written: bool = False) -> None:
    """Raise `UnsupportedError` for names and types of columns that documents do not have."""
    mongodb.load_library("connector 'mongodb'")
    for column in schema:
        _check_name(title, column.name)
        _check_type(title, column.name, column.type, is_written)


def _check_name(title: str, name: str) -> None:
    if not name or name.startswith("$") or "." in name or "\0" in name:
        raise UnsupportedError(
            f"{name!r} of table {title} cannot be the name of a field in queries of MongoDB: names begin with no '$' "
            "and have no '.'"
        )


def _check_type(title: str, name: str, kind: DataType, is_written: bool) -> None:
    problem = ""
    match kind:
        case types.RowType():
            for field in kind.fields:
                _check_name(title, field.name)
                _check_type(title, f"{name}.{field.name}", field.data_type, is_written)
            return
        case types.MultisetType():
            problem = "declare it as ARRAY"
        case types.MapType():
            if isinstance(kind.key_type, TEXTS):
                return _check_type(title, f"{name}.*", kind.value_type, is_written)
            problem = "the keys of a MAP are STRING"
        case types.ArrayType():
            return _check_type(title, f"{name}[]", kind.element_type, is_written)
        case types.TimestampType():
            problem = "declare it as TIMESTAMP_LTZ(3), which dates of MongoDB are"
        case types.LocalZonedTimestampType() if is_written and kind.precision > 3:
            problem = "dates of MongoDB have milliseconds: declare it as TIMESTAMP_LTZ(3)"
        case types.DateType() | types.TimeType():
            problem = "declare it as STRING, or as TIMESTAMP_LTZ(3)"
        case _ if not isinstance(kind, SCALARS):
            problem = "declare it as STRING"
    if problem:
        raise UnsupportedError(
            f"'{name}' of table {title} is {kind}, for which documents of MongoDB have no form: {problem}"
        )
    return None


def read_address(options: TableOptions) -> mongodb.MongoAddress:
    """Return the address of the collection. Raises `ValidationError` for a wrong URI."""
    try:
        return mongodb.MongoAddress(options.required(URI), options.required(DATABASE), options.required(COLLECTION))
    except ConfigurationError as error:
        raise options.wrong(URI.key(), str(error)) from error
