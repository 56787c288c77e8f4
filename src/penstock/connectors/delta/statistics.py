"""Column statistics of data files in the log: minimum, maximum and NULL count."""

from __future__ import annotations

import datetime
import json
from typing import Any, Final

import pyarrow as pa

#: The number of leading columns with statistics (`delta.dataSkippingNumIndexedCols`).
COLUMNS: Final = 32
#: Longer text is truncated to this many characters.
_TEXT_LENGTH: Final = 32
#: Appended to truncated text to form an upper bound for all text with that prefix.
_ABOVE: Final = "\U0010ffff"


def encode_statistics(metadata: Any, schema: pa.Schema) -> str:
    """Return the statistics of a complete file, in the log's format. `metadata` is that of the Parquet file."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    plain = {field.name for field in list(schema)[:COLUMNS] if not pa.types.is_nested(field.type)}
    for index in range(metadata.num_columns):
        name = metadata.schema.column(index).path
        if name not in plain:
            continue
        chunks = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
        if any(chunk is None or not chunk.has_null_count for chunk in chunks):
            continue
        nulls[name] = sum(chunk.null_count for chunk in chunks)
        valued = [chunk for chunk in chunks if chunk.num_values]
        if valued and all(chunk.has_min_max for chunk in valued):
            kind = schema.field(name).type
            try:
                low = _shown(min(chunk.min for chunk in valued), kind, False)
                high = _shown(max(chunk.max for chunk in valued), kind, True)
            except (OverflowError, ValueError):  # Python cannot represent this timestamp
                continue
            if low is not None and high is not None:
                least[name], greatest[name] = low, high
    return json.dumps(
        {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls},
        ensure_ascii=False,
    )


def _shown(value: Any, kind: pa.DataType, is_greatest: bool) -> Any:
    """Return a value in the log's format; None for types without statistics, such as floats."""
    if isinstance(value, str):
        if len(value) <= _TEXT_LENGTH:
            return value
        return value[:_TEXT_LENGTH] + (_ABOVE if is_greatest else "")
    if isinstance(value, float):
        # Parquet ignores NaN, but Spark orders it above all values, so readers would skip rows that they need.
        return None
    if isinstance(value, datetime.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text if kind.tz is None else f"{text}Z"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value if isinstance(value, int) and not isinstance(value, bool) else None
