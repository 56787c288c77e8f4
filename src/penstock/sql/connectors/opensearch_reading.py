"""Reads and looks up documents of OpenSearch and Elasticsearch as rows, for the connectors in `opensearch`.

A document is decoded by the table's format, `json`, so numbers have all their digits.

**Conditions.** `to_condition` translates what the service can evaluate; which fields it may be asked for depends on the
mapping of the index (`penstock.connectors.opensearch_source`). The query evaluates all conditions again.

**Look-ups** by the primary key ask for documents by their ids (`_mget`), as they are now. Look-ups by other columns
search, so they see what the index has refreshed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from penstock.base.config_options import POSITIVE, POSITIVE_TIME_MS, ConfigOption
from penstock.base.errors import ConfigurationError, OperationError, UnsupportedError
from penstock.connectors import opensearch_source as engine
from penstock.connectors.opensearch import Service
from penstock.runtime.columns import ColumnBatch
from penstock.sql.connectors.conditions import name_type, translate
from penstock.sql.data import types
from penstock.sql.data.arrow import to_values
from penstock.sql.data.types import DataType
from penstock.sql.formats.format import MessageDecoder, TableFormat, decode_columns
from penstock.sql.logical.nodes import PlanColumn, RowSchema, Scan
from penstock.sql.tables import tables
from penstock.sql.tables.connector import ColumnsLookup, LookedUp, LookupReader, TableLookup, TableOptions
from penstock.sql.typed import Typed

FETCH: Final = ConfigOption("scan.fetch-size", POSITIVE, engine.FETCH_SIZE).with_description(
    "How many documents an answer of the service has, at most 10000."
)
SPLIT: Final = ConfigOption("scan.partition.documents", POSITIVE, engine.SPLIT_DOCUMENTS).with_description(
    "About how many documents a part of a shard has; parts are read in parallel."
)
KEEP_ALIVE: Final = ConfigOption("scan.keep-alive", POSITIVE_TIME_MS, engine.KEEP_ALIVE_MS).with_description(
    "How long the service keeps a point in time that is not used."
)
READ_RETRIES: Final = ConfigOption("scan.max-retries", POSITIVE, engine.RETRIES).with_description(
    "How often a request is repeated that the service refuses for now, or does not answer."
)
OPTIONS: Final = (FETCH, SPLIT, KEEP_ALIVE, READ_RETRIES)
#: what describes a document besides its content
METADATA: Final[dict[str, DataType]] = {
    "_id": types.VarCharType(types.LENGTH_MAX),
    "_index": types.VarCharType(types.LENGTH_MAX),
}


@dataclass(frozen=True, slots=True)
class DocumentsToColumns:
    """Makes columns of documents. Pickled with the job.

    Attributes:
        title: the table, for errors.
        decoder: decodes contents; None without columns of the content.
        places: the positions of the decoded columns.
        metadata: the positions of METADATA columns, and their keys.
        skips_bad: whether malformed documents are left out.
    """

    title: str
    decoder: MessageDecoder | None
    places: tuple[int, ...]
    metadata: tuple[tuple[int, str], ...]
    skips_bad: bool

    def __call__(self, documents: Sequence[engine.Document]) -> ColumnBatch:
        """Return the rows of documents."""
        return ColumnBatch(self.build(documents), None, None)

    def build(self, documents: Sequence[engine.Document]) -> pa.RecordBatch:
        """Return the rows of documents. Raises `OperationError` for one that is malformed, unless these are skipped."""
        columns: dict[int, Any] = {}
        kept: Sequence[engine.Document] = documents
        if self.decoder is not None:
            decoded = self.decoder.decode([document.source for document in documents])
            if decoded.bad and not self.skips_bad:
                bad = decoded.bad[0]
                document = documents[bad.place]
                raise OperationError(
                    f"document {document.id!r} of index {document.index!r} does not fit table {self.title}: "
                    f"{bad.reason}"
                ) from bad.cause
            kept = decoded.of_records(documents)
            columns = dict(zip(self.places, decoded.columns.columns, strict=True))
        for position, key in self.metadata:
            values = [document.id if key == "_id" else document.index for document in kept]
            columns[position] = pa.array(values, pa.string())
        arrays = [columns[position] for position in range(len(columns))]
        if not arrays:  # COUNT(*) reads no column
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(kept), pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, tables.column_names(len(arrays)))


def build_decoding(
    scan_schema: RowSchema,
    metadata: Sequence[tuple[int, str]],
    table_format: TableFormat,
    of_format: TableOptions,
    title: str,
) -> DocumentsToColumns:
    """Return how the columns of a schema are made of documents."""
    about = dict(metadata)
    positions = tuple(position for position in range(len(scan_schema)) if position not in about)
    if not positions:
        return DocumentsToColumns(title, None, (), tuple(about.items()), False)
    decoding = decode_columns(table_format, scan_schema, positions, of_format)
    assert decoding.messages is not None
    return DocumentsToColumns(title, decoding.messages, positions, tuple(about.items()), decoding.skips_bad)


def select_fields(schema: RowSchema, metadata: Sequence[tuple[int, str]]) -> tuple[str, ...] | None:
    """Return the fields to ask for; None for whole documents, which the service does not change."""
    about = dict(metadata)
    columns = [column for position, column in enumerate(schema) if position not in about]
    if any("*" in column.name or "." in column.name or _has_digits(column.type) for column in columns):
        return None
    return tuple(column.name for column in columns)


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, types.VarCharType | types.CharType)


def _has_digits(kind: DataType) -> bool:
    """Return whether a value may have digits that a double does not have: a decimal, or any text in a nested value."""
    match kind:
        case types.ArrayType():
            return _is_text(kind.element_type) or _has_digits(kind.element_type)
        case types.MapType():
            return _is_text(kind.value_type) or _has_digits(kind.value_type)
        case types.RowType():
            return any(_is_text(part.data_type) or _has_digits(part.data_type) for part in kind.fields)
    return isinstance(kind, types.DecimalType | types.VariantType)


@dataclass(frozen=True, slots=True)
class DocumentScan(tables.TableScan, tables.ProjectionPushDown, tables.FilterPushDown, tables.LimitPushDown):
    """Reads some fields, and filters documents in the service.

    Attributes:
        scan: what is read.
        title: the table, for errors.
        columns: the columns to read.
        metadata: the keys of METADATA columns by the name of the column.
        table_format: the format of documents.
        of_format: its options.
    """

    scan: engine.SearchScan
    title: str
    columns: tuple[PlanColumn, ...]
    metadata: tuple[tuple[str, str], ...]
    table_format: TableFormat
    of_format: TableOptions

    def reader(self) -> tables.TableReader:
        """See `TableScan`."""
        schema, about = RowSchema(self.columns), dict(self.metadata)
        metadata = [(at, about[column.name]) for at, column in enumerate(self.columns) if column.name in about]
        to_columns = build_decoding(schema, metadata, self.table_format, self.of_format, self.title)
        texts = tuple(column.name for column in self.columns if _is_text(column.type) and column.name not in about)
        fields = select_fields(schema, metadata)
        scan = replace(self.scan, to_batch=to_columns, fields=fields, text_fields=texts)
        return tables.TableReader(engine.OpensearchSource.of_scan(scan))

    def with_columns(self, columns: Sequence[int]) -> DocumentScan:
        """See `ProjectionPushDown`."""
        return replace(self, columns=tuple(self.columns[index] for index in columns))

    def with_conditions(self, conditions: Sequence[Typed]) -> tables.Filtered:
        """See `FilterPushDown`. The query evaluates all conditions again."""
        about = dict(self.metadata)
        # A column of metadata has a name that no mapping has.
        names = ["" if column.name in about else column.name for column in self.columns]
        used, taken = translate(conditions, names)
        pushed = replace(self, scan=replace(self.scan, conditions=(*self.scan.conditions, *taken)))
        return tables.Filtered(pushed, tuple(conditions), used)

    def with_limit(self, limit: int) -> DocumentScan:
        """See `LimitPushDown`."""
        least = limit if self.scan.limit is None else min(limit, self.scan.limit)
        return replace(self, scan=replace(self.scan, limit=least))


def build_scan(
    scan: Scan, service: Service, index: str, table_format: TableFormat, of_format: TableOptions, options: TableOptions
) -> DocumentScan:
    """Return the scan of a table. Raises `ValidationError` for invalid limits."""
    schema = scan.schema
    try:
        read = engine.SearchScan(
            service,
            index,
            DocumentsToColumns(options.title, None, (), (), False),
            fetch_size=options.read(FETCH),
            split_documents=options.read(SPLIT),
            keep_alive_ms=options.read(KEEP_ALIVE),
            retries=options.read(READ_RETRIES),
        )
    except ConfigurationError as error:
        raise options.wrong(FETCH.key(), str(error)) from error
    metadata = tuple((schema[position].name, key) for position, key in scan.metadata)
    return DocumentScan(read, options.title, tuple(schema), metadata, table_format, of_format)


#: returns the ids of rows, given the columns of the primary key
ToIds = Callable[[Sequence[Any]], list[str]]


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """How rows are found.

    Attributes:
        scan: the index, and how often requests are repeated.
        to_columns: makes columns of documents.
        schema: the columns of the table.
        key: the positions of the key columns.
        to_ids: returns ids of the key columns; None if they are not the primary key.
    """

    scan: engine.SearchScan
    to_columns: DocumentsToColumns
    schema: RowSchema
    key: tuple[int, ...]
    to_ids: ToIds | None


class DocumentLookupReader(LookupReader):
    """Finds documents by their ids, or by fields, with one request for the keys of a batch."""

    def __init__(self, plan: LookupPlan) -> None:
        self._plan = plan
        self._client = plan.scan.connect()
        #: the fields that find values exactly, once the mapping was read
        self._paths: list[str] | None = None

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        plan = self._plan
        rows = [to_values(column, plan.schema[at].type) for column, at in zip(keys.columns, plan.key, strict=True)]
        wanted = sorted({row for row in zip(*rows, strict=True) if None not in row}, key=repr)
        if not wanted:
            documents: list[engine.Document] = []
        elif plan.to_ids is not None:
            ids = plan.to_ids([column.filter(_are_complete(keys)) for column in keys.columns])
            documents = self._client.get_many(plan.scan.index, list(dict.fromkeys(ids)))
        else:
            documents = self._search(wanted)
        table = pa.Table.from_batches([plan.to_columns.build(documents)])
        return ColumnsLookup(table, plan.key).lookup(keys)

    def _search(self, wanted: Sequence[tuple[Any, ...]]) -> list[engine.Document]:
        """Return all documents with these values, in searches of as many keys as the service's limit allows."""
        plan = self._plan
        paths = self._find_paths()
        if len(paths) == 1:
            query: dict[str, Any] = {"terms": {paths[0]: [value for (value,) in wanted]}}
        else:
            each = [[{"term": {path: value}} for path, value in zip(paths, row, strict=True)] for row in wanted]
            query = {"bool": {"should": [{"bool": {"filter": terms}} for terms in each]}}
        body = {
            "size": engine.SEARCH_MAX,
            "query": {"bool": {"filter": [query]}},
            "track_total_hits": False,
        }
        hits = self._client.search(f"/{plan.scan.index}/_search", body).hits.hits
        if len(hits) < engine.SEARCH_MAX:
            return [engine.build_document(hit) for hit in hits]
        if len(wanted) == 1:
            raise OperationError(
                f"table {plan.to_columns.title} has {engine.SEARCH_MAX} rows or more for the key {wanted[0]}, which "
                "is more than a search returns: set 'lookup.cache' = 'FULL'"
            )
        middle = len(wanted) // 2
        return self._search(wanted[:middle]) + self._search(wanted[middle:])

    def _find_paths(self) -> list[str]:
        if self._paths is None:
            plan, paths = self._plan, []
            mappings = self._client.read_mappings(plan.scan.index)
            for position in plan.key:
                column = plan.schema[position]
                kinds = {find_exact(properties, column) for properties in mappings.values()}
                if len(kinds) != 1 or None in kinds:
                    raise UnsupportedError(
                        f"field '{column.name}' of index {plan.scan.index!r} finds no {column.type} exactly: give it a "
                        "subfield of type keyword, or an integer type, or set 'lookup.cache' = 'FULL'"
                    )
                paths.append(str(kinds.pop()))
            self._paths = paths
        return self._paths

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def find_exact(properties: Mapping[str, Any], column: PlanColumn) -> str | None:
    """Return the field that finds all values of a column; None if there is none."""
    field = engine.find_field(properties, column.name, name_type(column.type) or "")
    return None if field is None else field[0]


def _are_complete(keys: pa.RecordBatch) -> pa.Array:
    columns = [column.is_valid().to_pylist() for column in keys.columns]
    return pa.array([all(row) for row in zip(*columns, strict=True)])


def build_lookup(scan: DocumentScan, key: Sequence[int], to_ids: ToIds | None) -> TableLookup:
    """Return the look-up of a table. Raises `UnsupportedError` for key columns that the service cannot compare."""
    schema, about = RowSchema(scan.columns), dict(scan.metadata)
    metadata = [(at, about[column.name]) for at, column in enumerate(schema) if column.name in about]
    for position in key:
        column = schema[position]
        if to_ids is None and (column.name in about or name_type(column.type) not in ("integer", "text", "boolean")):
            raise UnsupportedError(
                f"column '{column.name}' of table {scan.title} is {column.type}, by which the service finds no "
                "documents exactly: join on the primary key or on columns of integers, STRING and BOOLEAN, or set "
                "'lookup.cache' = 'FULL'"
            )
    to_columns = build_decoding(schema, metadata, scan.table_format, scan.of_format, scan.title)
    plan = LookupPlan(scan.scan, to_columns, schema, tuple(key), to_ids)
    return TableLookup(tuple(key), partial(DocumentLookupReader, plan))
