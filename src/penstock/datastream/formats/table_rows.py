"""Conversion of the Table API's row types (`DataTypes.ROW`), which PyFlink uses to describe the columns of formats.

The Table API is imported only when such a type is given, so programs without tables do not load it.
"""

from __future__ import annotations

from typing import Any, Literal


def file_columns(columns: Any, format_name: Literal["Parquet", "ORC"]) -> Any:
    """Return the Arrow schema of a `DataTypes.ROW`; return any other description of columns unchanged.

    Raises:
        UnsupportedError: if the format cannot hold the type of a column.
    """
    if not _may_be_of_tables(columns):
        return columns
    from penstock.sql.data.types import RowType
    from penstock.sql.formats.columnar_files import orc_columns, parquet_columns
    from penstock.sql.logical.nodes import PlanColumn, RowSchema

    if not isinstance(columns, RowType):
        return columns
    schema = RowSchema(tuple(PlanColumn(field.name, field.data_type) for field in columns.fields))
    return parquet_columns(schema) if format_name == "Parquet" else orc_columns(schema)


def to_row_type_info(row_type: Any) -> Any:
    """Return the `Types.ROW_NAMED` for a `DataTypes.ROW`; return anything else unchanged."""
    if not _may_be_of_tables(row_type):
        return row_type
    from penstock.sql.data.types import RowType
    from penstock.sql.logical.records import row_type_info

    if not isinstance(row_type, RowType):
        return row_type
    return row_type_info(row_type.field_names(), row_type.field_types())


def _may_be_of_tables(value: Any) -> bool:
    return type(value).__module__.startswith("penstock.sql.")
