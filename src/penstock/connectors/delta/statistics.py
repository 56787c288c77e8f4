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


def statistics_of(metadata: Any, schema: pa.Schema) -> str:
    """Return the statistics of a complete file, in the log's format. `metadata` is that of the Parquet file."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    plain = {one.name for one in list(schema)[:COLUMNS] if not pa.types.is_nested(one.type)}
    for place in range(metadata.num_columns):
        name = metadata.schema.column(place).path
        if name not in plain:
            continue
        found = [metadata.row_group(group).column(place).statistics for group in range(metadata.num_row_groups)]
        if any(one is None or not one.has_null_count for one in found):
            continue
        nulls[name] = sum(one.null_count for one in found)
        valued = [one for one in found if one.num_values]
        if valued and all(one.has_min_max for one in valued):
            kind = schema.field(name).type
            try:
                low = _shown(min(one.min for one in valued), kind, False)
                high = _shown(max(one.max for one in valued), kind, True)
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
