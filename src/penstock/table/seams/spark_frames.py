"""Converts the columns of Spark data frames to a record type."""

from __future__ import annotations

from typing import Any

from penstock.base.typeinfo import RowTypeInfo
from penstock.drivers.spark.frame_source import arrow_schema
from penstock.table.data.arrow_types import logical_type
from penstock.table.records.type_information import row_type_info


def frame_type(frame: Any) -> RowTypeInfo:
    """Return the type of a data frame's rows. Raises `UnsupportedError` for a column that tables do not support."""
    schema = arrow_schema(frame.schema)
    return row_type_info(schema.names, [logical_type(column_type) for column_type in schema.types])
