"""`jdbc`: reads, looks up and writes PostgreSQL tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.connectors.postgres.client import driver
from penstock.connectors.postgres.options import JdbcExecutionOptions
from penstock.table.connectors.abilities import TableScan
from penstock.table.connectors.connector import TableConnector
from penstock.table.connectors.jdbc.lookup import JdbcLookupReader, LookupSpec
from penstock.table.connectors.jdbc.options import (
    FETCH,
    GUARANTEE,
    INTERVAL,
    LEDGER_TABLE,
    MAX_ROWS,
    OPTIONAL,
    RETRIES,
    TABLE,
    URL,
    read_address,
    read_partitions,
    read_unrepresentable,
    refuse_unsupported,
)
from penstock.table.connectors.jdbc.scan import JdbcScan
from penstock.table.connectors.jdbc.sink import JdbcTableSink, Target
from penstock.table.connectors.lookup import TableLookup
from penstock.table.connectors.table_options import TableOptions
from penstock.table.connectors.tables import TableWriter
from penstock.table.data import logical_types as types
from penstock.table.data.arrow_types import arrow_type
from penstock.table.plan.changes import ALL, INSERTS
from penstock.table.plan.logical import Scan, Write
from penstock.table.plan.row_schema import RowSchema

_PLAIN: Final = (
    types.BooleanType,
    types.IntegralType,
    types.FractionalType,
    types.CharType,
    types.VarCharType,
    types.BinaryType,
    types.VarBinaryType,
    types.DateType,
    types.TimeType,
    types.TimestampType,
    types.LocalZonedTimestampType,
)
_GUARANTEES: Final = ("at-least-once", "exactly-once")


class JdbcConnector(TableConnector):
    """See the module docstring."""

    name = "jdbc"
    required_options = (URL, TABLE)
    optional_options = OPTIONAL

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return no more options, and reject unsupported ones with the reason."""
        refuse_unsupported(options)
        return ()

    def scan(self, scan: Scan, options: TableOptions) -> TableScan:
        """Return the scan. Raises `ValidationError` for conflicting options."""
        driver()
        check_types(options.title, scan.schema)
        return JdbcScan(
            read_address(options),
            options.required(TABLE),
            tuple(scan.schema),
            _at_least(1, options, FETCH.key(), options.read(FETCH)),
            read_partitions(options),
            unrepresentable=read_unrepresentable(options),
        )

    def lookup(self, scan: Scan, key: Sequence[int], options: TableOptions) -> TableLookup:
        """Return a lookup by all key columns."""
        driver()
        check_types(options.title, scan.schema)
        spec = LookupSpec(
            read_address(options),
            options.required(TABLE),
            tuple(scan.schema.names),
            tuple(arrow_type(column.type) for column in scan.schema),
            tuple(scan.schema[index].name for index in key),
            # With this option the join itself retries.
            0 if "lookup.max-retries" in options else 3,
            read_unrepresentable(options),
        )
        return TableLookup(tuple(key), partial(JdbcLookupReader, spec))

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return a writer, which writes by primary key if the table declares one."""
        driver()
        if write.overwrites:
            raise UnsupportedError(
                f"INSERT OVERWRITE into table {options.title} is not supported: delete its rows first"
            )
        check_types(options.title, write.schema)
        schema = write.schema
        target = Target(
            read_address(options), options.required(TABLE), tuple(schema.names), tuple(schema.types), tuple(write.key)
        )
        guarantee = options.read(GUARANTEE).lower()
        if guarantee not in _GUARANTEES:
            raise options.wrong(GUARANTEE.key(), f"it is {' or '.join(_GUARANTEES)}, not {guarantee}")
        try:
            execution = JdbcExecutionOptions(options.read(INTERVAL), options.read(MAX_ROWS), options.read(RETRIES))
        except ConfigurationError as error:
            raise options.wrong(MAX_ROWS.key(), str(error)) from error
        ledger = options.read(LEDGER_TABLE) if guarantee == "exactly-once" else None
        sink = JdbcTableSink(target, execution, ledger)
        if not write.key:
            return TableWriter(sink, INSERTS, takes_columns=True)
        return TableWriter(sink, ALL, wants_before=False, takes_columns=True, deletes_by_key=True)


def check_types(title: str, schema: RowSchema) -> None:
    """Raise `UnsupportedError` for column types that PostgreSQL lacks."""
    for column in schema:
        kind = column.type.element_type if type(column.type) is types.ArrayType else column.type
        if not isinstance(kind, _PLAIN):
            raise UnsupportedError(
                f"column '{column.name}' of table {title} is {column.type}, which is not read from or written into "
                "PostgreSQL: declare it as STRING, and take it apart by functions of JSON"
            )


def _at_least(least: int, options: TableOptions, key: str, value: int) -> int:
    if value < least:
        raise options.wrong(key, f"it must be {least} or above, not {value}")
    return value
