"""What the log says of a data file's columns: the least and the greatest value, and how many are NULL."""

from __future__ import annotations

import datetime
import json
from typing import Any, Final

import pyarrow as pa

#: Of so many columns, the first ones, figures are kept (`delta.dataSkippingNumIndexedCols`).
COLUMNS: Final = 32
#: Texts are cut to so many characters.
_TEXT_LENGTH: Final = 32
#: What a cut text is followed by to be above all that begin with it.
_ABOVE: Final = "\U0010ffff"


def statistics_of(metadata: Any, schema: pa.Schema) -> str:
    """The figures of a whole file, as the log has them. `metadata`: of the Parquet file that was written."""
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
            except (OverflowError, ValueError):  # a moment that Python has no word for
                continue
            if low is not None and high is not None:
                least[name], greatest[name] = low, high
    return json.dumps(
        {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls},
        ensure_ascii=False,
    )


def _shown(value: Any, kind: pa.DataType, is_greatest: bool) -> Any:
    """A value as the log has it; None for those of which it says nothing, such as NaN."""
    if isinstance(value, str):
        if len(value) <= _TEXT_LENGTH:
            return value
        return value[:_TEXT_LENGTH] + (_ABOVE if is_greatest else "")
    if isinstance(value, float):
        # Parquet leaves NaN out, and Spark counts it as greater than all: a reader would pass over rows that it wants.
        return None
    if isinstance(value, datetime.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text if kind.tz is None else f"{text}Z"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value if isinstance(value, int) and not isinstance(value, bool) else None
