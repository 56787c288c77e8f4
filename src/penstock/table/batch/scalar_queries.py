"""Queries of one value for each row around them, as `(SELECT MAX(x) FROM … WHERE …)`.

The analyser makes a join with groups of such a query. Spark would do that itself, and does it better: it first moves
the condition with the value to the tables that the condition reads, and joins the groups there. Of a join that is there
already it only finds a place behind all tables before it. So the join becomes the query again.

Both are the same if the value of no rows is NULL, which the join gives where there is no group. Therefore only
aggregates are taken that are NULL then, and expressions over them that keep NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.table.batch.aggregates import Over, native_aggregate
from penstock.table.batch.native import join_text, native_text
from penstock.table.batch.planning import BatchPlanner, column
from penstock.table.plan import logical
from penstock.table.plan.logical import AggregateCall, JoinType
from penstock.table.typed.nodes import Constant, Field, FunctionCall, Typed

#: aggregates that are NULL of no rows
_OF_NO_ROWS_NULL: Final = frozenset({"MIN", "MAX", "SUM", "AVG"})
#: functions that are NULL where an operand is
_KEEP_NULL: Final = frozenset({"+", "-", "*", "/", "CAST"})


class ScalarQuery(NamedTuple):
    """The text of the value, and its place among the columns of the right side; the others are those of the groups."""

    text: str
    place: int


class _Key(NamedTuple):
    """A column of the right side that groups have: its place among the keys."""

    number: int


_Output = str | _Key


def scalar_query(
    planner: BatchPlanner, node: logical.Join, parts: Sequence[Typed], left: Sequence[str], name: str
) -> ScalarQuery | None:
    """The query of one value that the right side of a join is; None where it is something else.

    `parts`: what has to be true of the join. `left`: the text of each column of the left side. `name`: for the table
    that the query reads.
    """
    found = _outputs(planner, node.right, name) if node.join_type is JoinType.LEFT else None
    if found is None:
        return None
    outputs, groups = found
    values = [place for place, one in enumerate(outputs) if isinstance(one, str)]
    conditions = _conditions(parts, left, outputs, groups, name)
    if len(values) != 1 or conditions is None:
        return None
    value, rows = outputs[values[0]], planner.query(groups.input)
    return ScalarQuery(f"(SELECT {value} FROM ({rows}) {name} WHERE {' AND '.join(conditions)})", values[0])


def _outputs(planner: BatchPlanner, node: logical.Node, name: str) -> tuple[list[_Output], logical.Aggregate] | None:
    """What each column is, and the groups below."""
    if planner.is_shared(node):
        return None
    if isinstance(node, logical.Project):
        below = _outputs(planner, node.input, name)
        outputs = [] if below is None else [_of_columns(one, below[0]) for one in node.expressions]
        known = [one for one in outputs if one is not None]
        return None if below is None or len(known) < len(outputs) else (known, below[1])
    if not isinstance(node, logical.Aggregate) or not node.keys or node.sets:
        return None
    texts = [_of_rows(call, name) for call in node.calls]
    known = [*map(_Key, range(len(node.keys))), *(one for one in texts if one is not None)]
    return (known, node) if len(known) == len(node.schema) else None


def _of_columns(expression: Typed, columns: Sequence[_Output]) -> _Output | None:
    """An expression over columns, which keeps NULL."""
    if isinstance(expression, Field):
        return columns[expression.index]
    for one in expression.walk():
        if isinstance(one, Field):
            if not isinstance(columns[one.index], str):
                return None
        elif not isinstance(one, Constant) and not (isinstance(one, FunctionCall) and one.function in _KEEP_NULL):
            return None
    if not any(isinstance(one, Field) for one in expression.walk()):
        return None
    return native_text(expression, lambda index: str(columns[index]))


def _of_rows(call: AggregateCall, name: str) -> str | None:
    """The text of an aggregate of the rows of a table; None where it is not NULL of no rows."""
    if call.function not in _OF_NO_ROWS_NULL:
        return None
    operands = [native_text(one, lambda index: f"{name}.{column(index)}") for one in call.operands]
    known = [one for one in operands if one is not None]
    if call.condition is not None or len(known) < len(operands):
        return None
    return native_aggregate(call, known, None, Over())


def _conditions(
    parts: Sequence[Typed], left: Sequence[str], outputs: Sequence[_Output], groups: logical.Aggregate, name: str
) -> list[str] | None:
    """The conditions of a join as those of the query; None if they say anything but that each key equals something."""
    width = len(left)
    keys: list[int] = []
    texts: list[str] = []

    def text(index: int) -> str:
        if index < width:
            return left[index]
        key = outputs[index - width]
        assert isinstance(key, _Key)
        return f"{name}.{column(groups.keys[key.number])}"

    for part in parts:
        key = _key_of(part, width, outputs)
        found = None if key is None else join_text(part, width, text)
        if key is None or found is None:
            return None
        keys.append(key.number)
        texts.append(found)
    return texts if sorted(keys) == list(range(len(groups.keys))) else None


def _key_of(part: Typed, width: int, outputs: Sequence[_Output]) -> _Key | None:
    """The key that a condition says to equal what the left side has."""
    if not isinstance(part, FunctionCall) or part.function != "=":
        return None
    for one, other in (part.operands, part.operands[::-1]):
        read = [node.index for node in other.walk() if isinstance(node, Field)]
        if isinstance(one, Field) and one.index >= width and read and max(read) < width:
            key = outputs[one.index - width]
            return key if isinstance(key, _Key) else None
    return None
