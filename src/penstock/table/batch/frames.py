"""Results as Spark DataFrames, in the form that Spark programs expect."""

from __future__ import annotations

from typing import Any

from penstock.base.errors import UnsupportedError
from penstock.table.batch.stored import is_of_spark, spark_type
from penstock.table.data.logical_types import ArrayType, DataType, MapType, MultisetType, RowType, quoted
from penstock.table.plan.row_schema import RowSchema


def shown_frame(frame: Any, schema: RowSchema) -> Any:
    """Return the columns under their names. Raises `UnsupportedError` for types that Spark does not have."""
    texts = []
    for index, field in enumerate(schema):
        if not is_of_spark(field.type):
            raise UnsupportedError(
                f"column '{field.name}' is {field.type}, which Spark does not have: cast it to what Spark has, such as "
                "TIMESTAMP(6), STRING or BIGINT, before to_dataframe()"
            )
        kind = _shown(field.type)
        text = f"c{index}" if kind == spark_type(field.type) else f"CAST(c{index} AS {kind})"
        texts.append(f"{text} AS {quoted(field.name)}")
    return frame.selectExpr(*texts)


def _shown(kind: DataType) -> str:
    """Return the type in Spark SQL, with the names of fields."""
    if isinstance(kind, RowType):
        return f"STRUCT<{','.join(f'{quoted(field.name)}:{_shown(field.data_type)}' for field in kind.fields)}>"
    if isinstance(kind, MultisetType):
        return f"MAP<{_shown(kind.element_type)},INT>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{_shown(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"MAP<{_shown(kind.key_type)},{_shown(kind.value_type)}>"
    return spark_type(kind)
