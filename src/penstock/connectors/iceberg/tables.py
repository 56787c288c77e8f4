"""Creates tables and adds columns for a sink, and checks a table before anything is written.

Every writer does this when it starts, and the first one wins: the others find its result. A missing column is added
only on request; columns are never removed, renamed or narrowed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.connectors.iceberg.catalog import TableLoader
from penstock.connectors.iceberg.columns import fits, stored_type
from penstock.connectors.iceberg.equality_deletes import refuse_equality_deletes
from penstock.connectors.iceberg.reading import is_uuid

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.transforms import Transform

_TRANSFORM: Final = re.compile(r"\s*(\w+)\s*(?:\(\s*(?:(\d+)\s*,\s*)?([\w.]+)\s*(?:,\s*(\d+)\s*)?\)\s*)?")
_PLURALS: Final = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
#: The newest version of the format that pyiceberg writes.
_WRITTEN_VERSION: Final = 2
#: How often a writer retries a change that another writer makes at the same time.
_ATTEMPTS: Final = 10


@dataclass(frozen=True, slots=True)
class DeclaredTable:
    """A table as a program declares it.

    Attributes:
        schema: its columns; columns that are not nullable are required.
        key: the key columns.
        partitioning: `column`, `day(column)`, `bucket(16, column)` and so on.
        properties: the properties of a new table.
    """

    schema: pa.Schema
    key: tuple[str, ...] = ()
    partitioning: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    def stored_schema(self) -> pa.Schema:
        """Return the columns in Iceberg's types; raises `UnsupportedError` for types without a counterpart."""
        required = set(self.key)
        return pa.schema(
            [
                pa.field(field.name, stored_type(field.type), field.nullable and field.name not in required)
                for field in self.schema
            ]
        )


def partition_transform(text: str) -> tuple[str, Transform[object, object]]:
    """Parse a partition field such as `day(column)` into its column and transform.

    Raises:
        ConfigurationError: if the text is not a valid partition field.
    """
    from pyiceberg.transforms import IdentityTransform, UnknownTransform, VoidTransform, parse_transform

    match = _TRANSFORM.fullmatch(text)
    if match is None:
        raise ConfigurationError(f"{text!r} is no partitioning: write a column, day(column) or bucket(16, column)")
    name, first, column, last = match.groups()
    if column is None:
        return name, IdentityTransform()
    width = first or last
    kind = _PLURALS.get(name.lower(), name.lower())
    try:
        transform = parse_transform(kind if width is None else f"{kind}[{width}]")
    except ValueError as error:
        raise ConfigurationError(f"{text!r} is no partitioning: {error}") from error
    if isinstance(transform, UnknownTransform | VoidTransform):
        raise ConfigurationError(f"{text!r} is no partitioning: Iceberg has no transform {name!r}")
    return column, transform


def loaded(
    loader: TableLoader, catalog: Catalog, declared: DeclaredTable | None, creates: bool, evolves: bool
) -> Table:
    """Load the table, and create it or add columns if requested.

    Raises:
        ConfigurationError: if the table is missing, or does not fit its declaration.
    """
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError

    for attempt in range(_ATTEMPTS):
        try:
            try:
                table = catalog.load_table(loader.identifier)
            except NoSuchTableError:
                if declared is None or not creates:
                    return loader.load_table(catalog)  # raises MissingTableError
                table = _created(loader, catalog, declared)
            if declared is not None and evolves:
                table = _evolved(table, declared)
            break
        except (CommitFailedException, TableAlreadyExistsError):
            if attempt == _ATTEMPTS - 1:
                raise
    _refuse_format(loader.title, table)
    if declared is not None:
        check(loader.title, table, declared.stored_schema())
    return table


def _created(loader: TableLoader, catalog: Catalog, declared: DeclaredTable) -> Table:
    catalog.create_namespace_if_not_exists(loader.identifier[:-1])
    schema = declared.stored_schema()
    with catalog.create_table_transaction(
        loader.identifier, schema, properties=dict(declared.properties)
    ) as transaction:
        if declared.partitioning:
            with transaction.update_spec() as spec:
                for text in declared.partitioning:
                    spec.add_field(*partition_transform(text))
        if declared.key:
            with transaction.update_schema() as update:
                update.set_identifier_fields(*declared.key)
    return catalog.load_table(loader.identifier)


def _evolved(table: Table, declared: DeclaredTable) -> Table:
    existing = set(arrow_schema(table).names)
    more = [field.with_nullable(True) for field in declared.stored_schema() if field.name not in existing]
    if more:
        with table.update_schema() as update:
            update.union_by_name(pa.schema(more))
    return table


def arrow_schema(table: Table) -> pa.Schema:
    """Return the current columns of a table."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    schema: pa.Schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    return schema


def check(title: str, table: Table, declared: pa.Schema) -> None:
    """Raise unless rows with these columns can be written to the table.

    Raises:
        ConfigurationError: for missing or incompatible columns.
        UnsupportedError: for columns of a type that cannot be written.
    """
    schema = arrow_schema(table)
    new = [name for name in declared.names if name not in schema.names]
    if new:
        raise ConfigurationError(
            f"table {title} has no column {_listed(new)}: add {'it' if len(new) == 1 else 'them'} to the table, or let "
            "the sink do so by schema_evolution(True) (in SQL 'sink.schema-evolution' = 'true')"
        )
    required = [field.name for field in schema if not field.nullable and field.name not in declared.names]
    if required:
        raise ConfigurationError(f"table {title} requires a value of column {_listed(required)}, which no row has")
    for field in declared:
        if is_uuid(schema.field(field.name).type):
            raise UnsupportedError(
                f"column '{field.name}' of table {title} is uuid, which is read and not written: leave the column out"
            )
        if not fits(field.type, schema.field(field.name).type):
            raise ConfigurationError(
                f"column '{field.name}' of table {title} is {stored_type(schema.field(field.name).type)}, but declared "
                f"as {field.type}, whose values it cannot hold: declare it as it is"
            )


def check_before_writing(
    loader: TableLoader, declared: DeclaredTable, evolves: bool, replaced_branch: str | None
) -> None:
    """Check, while a statement is planned, that rows can be written to the table. A missing table is left to the job.

    Args:
        loader: loads the table.
        declared: the columns to write.
        evolves: whether columns are added to the table.
        replaced_branch: the branch whose rows are replaced; None if rows are only added.

    Raises:
        ConfigurationError: for missing or incompatible columns.
        UnsupportedError: for a format version that cannot be written, or equality deletes in `replaced_branch`.
    """

    def check_table(table: Table) -> None:
        _refuse_format(loader.title, table)
        if replaced_branch is not None:
            refuse_equality_deletes(loader.title, table, table.metadata.snapshot_by_name(replaced_branch))
        if not evolves:
            check(loader.title, table, declared.stored_schema())

    loader.check_while_planning(check_table)


def _refuse_format(title: str, table: Table) -> None:
    version = table.metadata.format_version
    if version > _WRITTEN_VERSION:
        raise UnsupportedError(
            f"table {title} has version {version} of the format, which pyiceberg reads and does not write: write into "
            f"a table of version {_WRITTEN_VERSION} ('format-version' = '{_WRITTEN_VERSION}')"
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
