"""`dynamodb`: writes, looks up and reads rows as items of a table of DynamoDB.

A column is the attribute of its name. Types are as in Flink's connector of this name: text is S, BOOLEAN is BOOL,
numbers are N, BYTES is B, ARRAY is L, MAP, MULTISET and ROW are M, and dates and times are S in the form of ISO 8601.
NULL is the value NULL, or with `sink.ignore-nulls` an attribute that is not there; both are read as NULL, and sets as
arrays.

Rows pass through the format `json`, whose rules so hold for values that do not fit their columns.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
import pyarrow as pa

from penstock.base.config_options import ConfigOptions
from penstock.base.errors import ConfigurationError, OperationError, UnsupportedError, WrongValueError, short_repr
from penstock.connectors.aws import dynamodb
from penstock.connectors.aws.client import AwsSettings
from penstock.connectors.aws.dynamodb import DynamoDbScanSource, DynamoDbSink, DynamoDbWriteRequest, Item
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.connector import SinkWriter, SinkWriterContext
from penstock.runtime.records import Batch
from penstock.sql.connectors import aws
from penstock.sql.connectors.jdbc import LOOKUP_OPTIONS
from penstock.sql.data import types
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.formats.format import MessageDecoder, MessageEncoder
from penstock.sql.formats.json import JsonTableFormat
from penstock.sql.logical.nodes import ALL, DELETE, INSERTS, UPDATE_BEFORE, RowSchema, Scan, Write
from penstock.sql.tables.connector import LookedUp, LookupReader, TableConnector, TableLookup, TableOptions
from penstock.sql.tables.tables import TableReader, TableWriter, column_names

_BINARY: Final = (types.BinaryType, types.VarBinaryType)

TABLE: Final = aws.text_option("table-name", "The table of DynamoDB.")
IGNORE_NULLS: Final = (
    ConfigOptions.key("sink.ignore-nulls")
    .boolean_type()
    .default_value(False)
    .with_description("Whether NULL is an attribute that is not there, rather than the value NULL.")
)
CONSISTENT: Final = (
    ConfigOptions.key("scan.consistent-read")
    .boolean_type()
    .default_value(False)
    .with_description("Whether scans and look-ups are strongly consistent, which costs twice as much.")
)
SEGMENTS: Final = (
    ConfigOptions.key("scan.segments")
    .int_type()
    .no_default_value()
    .with_description("In how many segments the table is scanned; by default four for each subtask.")
)


def find_json(options: TableOptions) -> tuple[JsonTableFormat, TableOptions]:
    """Return the format of rows, and its options."""
    return JsonTableFormat(), TableOptions(options.title, {"timestamp-format.standard": "ISO-8601"}, zone=options.zone)


def build_typed(value: Any, kind: DataType) -> dict[str, Any]:
    """Return the typed value of DynamoDB for a value of JSON, which is of a type of SQL."""
    if value is None:
        return {"NULL": True}
    if isinstance(kind, types.NumericType):
        if isinstance(value, str):  # NaN and the infinities
            raise WrongValueError(f"DynamoDB stores no {value}")
        return {"N": dynamodb.format_number(value)}
    if isinstance(kind, _BINARY):
        return {"B": b64decode(value)}
    if isinstance(kind, types.ArrayType):
        (element,) = kind.children()
        return {"L": [build_typed(each, element) for each in value]}
    if isinstance(kind, types.RowType):
        fields = zip(value.items(), kind.children(), strict=True)
        return {"M": {name: build_typed(each, field) for (name, each), field in fields}}
    if isinstance(kind, types.MapType | types.MultisetType):
        inner = tuple(kind.children())[-1] if isinstance(kind, types.MapType) else types.IntType()
        return {"M": {key: build_typed(each, inner) for key, each in value.items()}}
    return {"BOOL": value} if isinstance(value, bool) else {"S": value}


def read_typed(attribute: Mapping[str, Any]) -> Any:
    """Return a typed value for a document of JSON; numbers keep their digits."""
    ((kind, value),) = attribute.items()
    if kind == "N":
        return msgspec.Raw(value.encode())
    if kind == "B":
        return b64encode(value).decode()
    if kind == "NULL":
        return None
    if kind == "L":
        return list(map(read_typed, value))
    if kind == "M":
        return {key: read_typed(each) for key, each in value.items()}
    return [read_typed({kind[0]: each}) for each in value] if kind in ("SS", "NS", "BS") else value


@dataclass(frozen=True)
class Items:
    """Makes items of rows.

    Attributes:
        encoder: makes documents of JSON of them.
        names: the columns.
        kinds: their types.
        key: the positions of the key columns.
        ignores_nulls: whether NULL is left out.
    """

    encoder: MessageEncoder
    names: tuple[str, ...]
    kinds: tuple[DataType, ...]
    key: tuple[int, ...]
    ignores_nulls: bool = False

    def __call__(self, columns: pa.RecordBatch, kinds: bytes | None) -> list[DynamoDbWriteRequest]:
        """Return the requests for changes. Raises `TableRuntimeError` for a value that DynamoDB does not store."""
        named = pa.RecordBatch.from_arrays(columns.columns, list(self.names))
        requests = []
        for number, document in enumerate(self.encoder.encode(named)):
            row = json.loads(document, parse_float=Decimal)
            is_delete = kinds is not None and kinds[number] in (DELETE, UPDATE_BEFORE)
            chosen = self.key if is_delete else range(len(self.names))
            requests.append(DynamoDbWriteRequest(self._build_item(row, chosen), is_delete))
        return requests

    def _build_item(self, row: Mapping[str, Any], chosen: Sequence[int]) -> dict[str, Any]:
        item = {}
        for index in chosen:
            name = self.names[index]
            value = row.get(name)
            if value is None and index in self.key:
                raise TableRuntimeError(f"column '{name}' of the key is NULL, which no item of DynamoDB may be")
            if value is None and self.ignores_nulls:
                continue
            try:
                item[name] = build_typed(value, self.kinds[index])
            except WrongValueError as error:
                raise TableRuntimeError(f"column '{name}': {error}") from error
        return item


class DynamoDbTableSink(aws.MessagesSink):
    """Writes rows as items.

    Args:
        inner: the sink of items.
        schema: the columns.
        items: makes items of rows.
    """

    def __init__(self, inner: DynamoDbSink[DynamoDbWriteRequest], schema: RowSchema, items: Items) -> None:
        super().__init__(inner, schema, items)
        self._sink = inner

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """See `Sink`."""
        self._sink.find_key()
        return super().create_writer(context)


def _keep(request: DynamoDbWriteRequest) -> DynamoDbWriteRequest:
    return request


@dataclass(frozen=True)
class Documents:
    """Makes rows of items.

    Attributes:
        title: the table's name, for errors.
        decoder: makes rows of documents of JSON.
        names: the columns.
    """

    title: str
    decoder: MessageDecoder
    names: tuple[str, ...]

    def build_rows(self, items: Sequence[Item]) -> pa.RecordBatch:
        """Return the rows of items as columns. Raises `OperationError` for an item that does not fit them."""
        documents = [msgspec.json.encode({name: read_typed(value) for name, value in item.items()}) for item in items]
        decoded = self.decoder.decode(documents)
        if decoded.bad:
            first = decoded.bad[0]
            raise OperationError(f"table {self.title}: item {short_repr(items[first.place])}: {first.reason}")
        return pa.RecordBatch.from_arrays(decoded.columns.columns, column_names(len(self.names)))


class DynamoDbTableSource(DynamoDbScanSource):
    """Reads the rows of a table once, as columns."""

    def __init__(
        self, settings: AwsSettings, table: str, documents: Documents, consistent: bool, segments: int | None
    ) -> None:
        super().__init__(table, settings.properties, None, documents.names, consistent, segments)
        self._documents = documents

    def build_batch(self, items: Sequence[Item]) -> Batch:
        """See `DynamoDbScanSource`."""
        return ColumnBatch(self._documents.build_rows(items), None, None)


class DynamoDbLookupReader(LookupReader):
    """Finds rows by primary key, a hundred with a request.

    Args:
        settings: where the service is.
        table: the table.
        documents: makes rows of items.
        items: makes keys of columns.
        consistent: whether reads are strongly consistent.
    """

    def __init__(self, settings: AwsSettings, table: str, documents: Documents, items: Items, consistent: bool) -> None:
        self._table, self._documents, self._items = table, documents, items
        self._client = settings.connect("dynamodb", "connector 'dynamodb'")
        self._projection = {"ConsistentRead": consistent, **dynamodb.build_projection(documents.names)}

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        valid = [number for number, key in enumerate(zip(*keys.to_pydict().values(), strict=True)) if None not in key]
        requests = self._items(keys.take(pa.array(valid, pa.int64())), None) if valid else []
        by_key: dict[Any, list[int]] = {}
        items = {}
        for number, request in zip(valid, requests, strict=True):
            key = dynamodb.find_key_values(request.item, self._items.names)
            by_key.setdefault(key, []).append(number)
            items[key] = request.item
        present: list[tuple[int, Item]] = []
        for item in dynamodb.get_items(self._client, self._table, list(items.values()), self._projection):
            key = dynamodb.find_key_values(item, self._items.names)
            present += [(number, item) for number in by_key[key]]
        present.sort(key=lambda pair: pair[0])
        rows = self._documents.build_rows([item for _, item in present])
        return LookedUp(rows, pa.array([number for number, _ in present], pa.int64()))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class DynamoDbConnector(TableConnector):
    """See the module docstring."""

    name = "dynamodb"
    required_options = (TABLE, aws.REGION)
    optional_options = (
        *aws.AWS_OPTIONS,
        CONSISTENT,
        SEGMENTS,
        *LOOKUP_OPTIONS,
        IGNORE_NULLS,
        aws.batch_option(dynamodb.SETTINGS.max_batch_size),
        *aws.SINK_OPTIONS,
    )
    takes_partitions: ClassVar = True

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return the reader."""
        documents = build_documents(scan.schema, options)
        try:
            source = DynamoDbTableSource(
                aws.read_aws(options),
                options.required(TABLE),
                documents,
                options.read(CONSISTENT),
                options.read(SEGMENTS),
            )
        except ConfigurationError as error:
            raise options.wrong(SEGMENTS.key(), str(error)) from error
        return TableReader(source, key=scan.key)

    def lookup(self, scan: Scan, key: Sequence[int], options: TableOptions) -> TableLookup:
        """Return the lookup; raise `ValidationError` unless the keys are the primary key."""
        if not scan.key or sorted(key) != sorted(scan.key):
            named = ", ".join(scan.schema[position].name for position in scan.key) or "which it does not declare"
            raise ValidationError(
                f"rows of table {options.title} are found by their whole primary key, ({named}): join on these "
                "columns, or set 'lookup.cache' = 'FULL'"
            )
        keys = RowSchema(tuple(scan.schema[index] for index in key))
        items = build_items(keys, tuple(range(len(keys))), options)
        documents = build_documents(scan.schema, options)
        arguments = (aws.read_aws(options), options.required(TABLE), documents, items, options.read(CONSISTENT))
        return TableLookup(tuple(key), partial(DynamoDbLookupReader, *arguments))

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return the writer, which upserts and deletes by primary key, or only puts items if none is declared."""
        if write.overwrites:
            raise UnsupportedError(
                f"INSERT OVERWRITE into table {options.title} is not supported: remove its items first"
            )
        names = tuple(write.partition_keys) or tuple(write.schema[index].name for index in write.key)
        key = tuple(write.schema.names.index(name) for name in names)
        items = replace(build_items(write.schema, key, options), ignores_nulls=options.read(IGNORE_NULLS))
        limits = aws.read_limits(options, dynamodb.SETTINGS, dynamodb.WRITES_MAX)
        settings, table = aws.read_aws(options), options.required(TABLE)
        inner = DynamoDbSink(settings, table, _keep, names, options.read(aws.FAIL_ON_ERROR), limits)
        sink = DynamoDbTableSink(inner, write.schema, items)
        if not write.key:
            return TableWriter(sink, INSERTS, takes_columns=True)
        return TableWriter(sink, ALL, wants_before=False, takes_columns=True, deletes_by_key=True)


def build_items(schema: RowSchema, key: tuple[int, ...], options: TableOptions) -> Items:
    """Return what makes items of rows."""
    table_format, below = find_json(options)
    # the key of a deleted row is all that it needs, so no column is NOT NULL here
    columns = RowSchema(tuple(replace(column, type=column.type.nullable()) for column in schema))
    encoder = table_format.encoding(columns, below).messages
    assert encoder is not None
    return Items(encoder, tuple(schema.names), tuple(schema.types), key)


def build_documents(schema: RowSchema, options: TableOptions) -> Documents:
    """Return what makes rows of items."""
    table_format, below = find_json(options)
    decoder = table_format.decoding(schema, range(len(schema)), below).messages
    assert decoder is not None
    return Documents(options.title, decoder, tuple(schema.names))
