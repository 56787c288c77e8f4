"""`Condition`: a condition of a query in a form that connectors translate for their systems.

A connector leaves out what its system would answer otherwise than the query, which evaluates all conditions again. So a
translation must never exclude a row that satisfies the condition.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Condition(NamedTuple):
    """What rows or documents of a system must match.

    Attributes:
        kind: `and`, `or`; `in`, `not in`, `range`, `exists` or `missing` for a field.
        parts: the conditions, for `and` and `or`.
        field: the name of the field or column.
        values: what the field may be, or its bound, for `range`.
        operator: `lt`, `lte`, `gt` or `gte`, for `range`.
        type: what values are: `integer`, `double`, `text`, `boolean`, or `time` in ns since 1970.
    """

    kind: str
    parts: tuple[Condition, ...] = ()
    field: str = ""
    values: tuple[Any, ...] = ()
    operator: str = ""
    type: str = ""
