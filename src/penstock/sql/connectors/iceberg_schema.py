"""Columns, partitions and properties of Iceberg's tables in SQL's terms, and their changes by ALTER TABLE.

`to_iceberg_schema` and `from_iceberg_type` translate the types of columns, as Flink's catalog does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.connectors.iceberg import tables
from penstock.sql.catalogs.catalog import CatalogBaseTable, ObjectPath
from penstock.sql.catalogs.columns import Schema, UnresolvedColumn
from penstock.sql.connectors import iceberg as connector
from penstock.sql.data import types
from penstock.sql.data.errors import ValidationError
from penstock.sql.parser.statements import AlterAction

if TYPE_CHECKING:
    from pyiceberg.table import Table, Transaction

#: properties that only Penstock and catalogs read
HIDDEN: Final = re.compile(r"comment|penstock\.ledger\..*|owner")


# --- types of columns -------------------------------------------------------------------------------------------------


def from_iceberg_type(kind: Any) -> types.DataType:
    """Return the type of a column of Iceberg. Raises `UnsupportedError` for a type without a counterpart."""
    from pyiceberg import types as stored

    match kind:
        case stored.StructType(fields=fields):
            return types.RowType([types.RowField(field.name, from_field(field), field.doc) for field in fields])
        case stored.ListType():
            return types.ArrayType(from_field(kind.element_field))
        case stored.MapType():
            return types.MapType(from_field(kind.key_field), from_field(kind.value_field))
        case stored.DecimalType():
            return types.DecimalType(kind.precision, kind.scale)
        case stored.FixedType():
            return types.BinaryType(len(kind))
    plain = _plain_types().get(type(kind))
    if plain is None:
        raise UnsupportedError(f"a column of Iceberg's type {kind} is not read here: read it with Spark, or drop it")
    return plain


def from_field(field: Any) -> types.DataType:
    """Return the type of a field of Iceberg, which is NOT NULL if the field is required."""
    data_type = from_iceberg_type(field.field_type)
    return data_type.not_null() if field.required else data_type


def _plain_types() -> dict[type, types.DataType]:
    from pyiceberg import types as stored

    return {
        stored.BooleanType: types.BooleanType(),
        stored.IntegerType: types.IntType(),
        stored.LongType: types.BigIntType(),
        stored.FloatType: types.FloatType(),
        stored.DoubleType: types.DoubleType(),
        stored.DateType: types.DateType(),
        stored.TimeType: types.TimeType(6),
        stored.TimestampType: types.TimestampType(6),
        stored.TimestamptzType: types.LocalZonedTimestampType(6),
        stored.TimestampNanoType: types.TimestampType(9),
        stored.TimestamptzNanoType: types.LocalZonedTimestampType(9),
        stored.StringType: types.VarCharType(types.LENGTH_MAX),
        stored.UUIDType: types.BinaryType(16),
        stored.BinaryType: types.VarBinaryType(types.LENGTH_MAX),
    }


def to_iceberg_type(data_type: types.DataType, numbers: Iterator[int]) -> Any:
    """Return the type of Iceberg for a column. `numbers`: ids for nested fields, which creation replaces.

    Raises:
        UnsupportedError: for a type that Iceberg lacks.
    """
    from pyiceberg import types as stored

    match data_type:
        case types.RowType(fields=fields) if not isinstance(data_type, types.StructuredType):
            return stored.StructType(
                *(_field(field.name, field.data_type, field.description, numbers) for field in fields)
            )
        case types.MultisetType(element_type=element):
            return stored.MapType(next(numbers), to_iceberg_type(element, numbers), next(numbers), stored.IntegerType())
        case types.ArrayType(element_type=element):
            required = not element.is_nullable
            return stored.ListType(next(numbers), to_iceberg_type(element, numbers), element_required=required)
        case types.MapType(key_type=key, value_type=value):
            key_id, value_id = next(numbers), next(numbers)
            kinds = to_iceberg_type(key, numbers), to_iceberg_type(value, numbers)
            return stored.MapType(key_id, kinds[0], value_id, kinds[1], value_required=not value.is_nullable)
        case types.DecimalType(precision=precision, scale=scale):
            return stored.DecimalType(precision, scale)
        case types.BinaryType(length=length) if length < types.LENGTH_MAX:
            return stored.FixedType(length)
        case types.TimestampType(precision=9) | types.LocalZonedTimestampType(precision=9):
            raise UnsupportedError(f"Iceberg keeps points in time with 6 digits, so a column cannot be {data_type}")
    return _to_plain_type(data_type)


def _to_plain_type(data_type: types.DataType) -> Any:
    from pyiceberg import types as stored

    match data_type:
        case types.CharType() | types.VarCharType():
            return stored.StringType()
        case types.VarBinaryType() | types.BinaryType():
            return stored.BinaryType()
        case types.TinyIntType() | types.SmallIntType():
            return stored.IntegerType()
        case types.TimestampType():
            return stored.TimestampType()
        case types.LocalZonedTimestampType():
            return stored.TimestamptzType()
        case types.TimeType():
            return stored.TimeType()
    for kind, plain in _plain_types().items():
        if type(plain) is type(data_type):
            return kind()
    raise UnsupportedError(f"Iceberg has no type for {data_type}: declare the column as another type")


def _field(name: str, data_type: types.DataType, comment: str | None, numbers: Iterator[int]) -> Any:
    from pyiceberg.types import NestedField

    try:
        return NestedField(
            next(numbers), name, to_iceberg_type(data_type, numbers), required=not data_type.is_nullable, doc=comment
        )
    except UnsupportedError as error:
        raise UnsupportedError(f"column '{name}': {error}") from error


def to_iceberg_schema(schema: Schema) -> Any:
    """Return the columns as a schema of Iceberg; the primary key becomes the identifier fields."""
    from pyiceberg.schema import Schema as StoredSchema

    key, numbers = schema.primary_key, iter(range(1, 1_000_000))
    fields = [
        _field(column.name, _kept_type(column, column.name in key), column.comment, numbers)
        for column in schema.columns
    ]
    return StoredSchema(*fields, identifier_field_ids=[field.field_id for field in fields if field.name in key])


def _kept_type(column: UnresolvedColumn, is_key: bool) -> types.DataType:
    assert column.data_type is not None
    return column.data_type.not_null() if is_key else column.data_type


# --- parts of a change ------------------------------------------------------------------------------------------------


def partition_texts(spec: Any, schema: Any) -> list[str]:
    """Return the partition fields as `sink.partitioning` writes them: `column`, `day(column)`, `bucket(16, column)`."""
    texts = []
    for field in spec.fields:
        name, transform = schema.find_column_name(field.source_id), str(field.transform)
        kind, bracket, width = transform.removesuffix("]").partition("[")
        if transform == "void":
            continue
        texts.append(name if transform == "identity" else f"{kind}({width}, {name})" if bracket else f"{kind}({name})")
    return texts


def read_partitioning(path: ObjectPath, table: CatalogBaseTable, options: dict[str, str]) -> list[str]:
    """Return the partition fields of a table, and remove their option."""
    text = options.pop(connector.PARTITIONING.key(), None)
    if text is None:
        return list(table.partition_keys)
    if table.partition_keys:
        raise ValidationError(
            f"table {path} is PARTITIONED BY columns and has '{connector.PARTITIONING.key()}': leave out one of the two"
        )
    names = [column.name for column in table.schema.columns]
    partitioning = connector.split_partitioning(text)
    for transform in partitioning:
        try:
            column, _ = tables.partition_transform(transform)
        except ConfigurationError as error:
            raise ValidationError(f"table {path}: {error}") from error
        if column not in names:
            raise ValidationError(f"table {path}: '{connector.PARTITIONING.key()}' names no column with {column!r}")
    return partitioning


def find_kept_columns(path: ObjectPath, existing: Table, schema: Any) -> set[str]:
    """Return the columns that a replaced table keeps: those by whose values some of its files are partitioned.

    A partition of this kind has the name of its column, so Iceberg lets no other column take the name. Raises
    `UnsupportedError` for a column of another type, or if there would be no new column to identify a commit.
    """
    fields = [field for spec in existing.specs().values() for field in spec.fields]
    names = {field.name for field in fields if str(field.transform) in ("identity", "void")}
    old, new = ({field.name: field.field_type for field in each.fields} for each in (existing.schema(), schema))
    kept = names & new.keys()
    changed = sorted(name for name in kept if old.get(name) != new[name])
    if changed or kept == new.keys():
        what = f"column '{changed[0]}' with another type" if changed else "no column that does not partition it"
        raise UnsupportedError(
            f"table {path} has been partitioned by its columns, and would have {what}: drop it first"
        )
    return kept


def repartition(transaction: Transaction, partitioning: Sequence[str]) -> None:
    """Change the partitioning of a table; files that it has keep theirs."""
    metadata = transaction.table_metadata
    schema, fields = metadata.schema(), metadata.spec().fields
    before = partition_texts(metadata.spec(), schema)
    wanted = {tables.partition_transform(text)[0]: str(tables.partition_transform(text)[1]) for text in partitioning}
    if [tables.partition_transform(text) for text in before] == list(map(tables.partition_transform, partitioning)):
        return
    kept = set()
    with transaction.update_spec() as spec:
        for field in fields:
            name = schema.find_column_name(field.source_id)
            if wanted.get(name or "") == str(field.transform):
                kept.add(name)
            elif str(field.transform) != "void":
                spec.remove_field(field.name)
        for text in partitioning:
            name, transform = tables.partition_transform(text)
            if name not in kept:
                spec.add_field(name, transform)


def change_properties(transaction: Transaction, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Set and remove properties of a table, except hidden ones."""
    updates = {key: value for key, value in after.items() if before.get(key) != value}
    hidden = {connector.PARTITIONING.key()}
    removals = [key for key in before if key not in after and not HIDDEN.fullmatch(key) and key not in hidden]
    if updates:
        transaction.set_properties(updates)
    if removals:
        transaction.remove_properties(*removals)


def apply_action(transaction: Transaction, action: AlterAction) -> None:
    """Make one change of columns or the key."""
    match action.verb:
        case "ADD COLUMN" | "MODIFY COLUMN":
            _change_column(transaction, action)
        case "DROP COLUMN":
            with transaction.update_schema() as update:
                names = transaction.table_metadata.schema().column_names
                for path in action.names:
                    if path[0] in names:
                        update.delete_column(path)
        case "RENAME COLUMN":
            with transaction.update_schema() as update:
                update.rename_column(action.names[0], action.names[1][0])
        case "ADD CONSTRAINT" | "MODIFY CONSTRAINT":
            assert action.constraint is not None
            _set_key(transaction, action.constraint.columns)
        case "DROP CONSTRAINT" | "DROP PRIMARY KEY":
            _set_key(transaction, ())


def _set_key(transaction: Transaction, columns: Sequence[str]) -> None:
    schema = transaction.table_metadata.schema()
    optional = [name for name in columns if not schema.find_field(name).required]
    if optional:
        raise ValidationError(
            f"column '{optional[0]}' may be NULL, and Iceberg takes only NOT NULL columns into a key: make the table "
            "again with CREATE OR REPLACE TABLE … AS"
        )
    with transaction.update_schema() as update:
        update.set_identifier_fields(*columns)


def _change_column(transaction: Transaction, action: AlterAction) -> None:
    column = action.column
    assert column is not None
    name = column.path[-1]
    with transaction.update_schema() as update:
        if action.verb == "ADD COLUMN":
            assert column.type is not None
            if not column.type.is_nullable:
                raise ValidationError(
                    f"column '{name}' cannot be added as NOT NULL, because rows that are there have no value of it: "
                    "add it without NOT NULL"
                )
            numbers = iter(range(1, 1_000_000))
            update.add_column((name,), to_iceberg_type(column.type, numbers), column.comment)
        else:
            _modify(update, transaction.table_metadata.schema(), name, column)
        if action.position == "FIRST":
            update.move_first((name,))
        elif action.position is not None:
            update.move_after((name,), (action.position.removeprefix("AFTER "),))
    if column.is_primary:
        _set_key(transaction, (name,))


def _modify(update: Any, schema: Any, name: str, column: Any) -> None:
    field = schema.find_field(name)
    if column.comment is not None:
        update.update_column((name,), doc=column.comment)
    if column.type is None or column.type == from_field(field):
        return
    kind = to_iceberg_type(column.type, iter(range(1, 1_000_000)))
    if from_iceberg_type(kind).nullable() != from_iceberg_type(field.field_type).nullable():
        if not field.field_type.is_primitive:
            raise UnsupportedError(
                f"column '{name}' is {from_iceberg_type(field.field_type)}, and its inner fields are not changed here: "
                "change them with Spark, or replace the table with CREATE OR REPLACE TABLE … AS"
            )
        update.update_column((name,), kind)
    if column.type.is_nullable and field.required and field.field_id not in schema.identifier_field_ids:
        update.make_column_optional((name,))
    elif not column.type.is_nullable and not field.required:
        raise ValidationError(
            f"column '{name}' may have NULLs already, so Iceberg does not make it NOT NULL: replace the table with "
            "CREATE OR REPLACE TABLE … AS"
        )
