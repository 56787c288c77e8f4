"""The columns of Spark's data frames as the type of records."""

from __future__ import annotations

from typing import Any

from penstock.base.typeinfo import RowTypeInfo
from penstock.drivers.spark.frame_source import arrow_schema
from penstock.table.data.arrow_types import logical_type
from penstock.table.records.type_information import row_type_info


def frame_type(frame: Any) -> RowTypeInfo:
    """The type of the rows of a data frame. Raises `UnsupportedError` for a column that no table can have."""
    schema = arrow_schema(frame.schema)
    return row_type_info(schema.names, [logical_type(one) for one in schema.types])
