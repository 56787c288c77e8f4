"""Scalar queries for each outer row, such as `(SELECT MAX(x) FROM … WHERE …)`.

The analyser turns such a query into a join with groups. Spark would do that itself, and does it better: it first moves
the condition on the value to the tables that the condition reads, and joins the groups there. An existing join it can
only place after all tables before it. So the join becomes a query again.

Both are equivalent if the value over no rows is NULL, which the join yields for a missing group. Therefore only
aggregates that are NULL over no rows are accepted, and expressions over them that preserve NULL.
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

#: aggregates that are NULL over no rows
_OF_NO_ROWS_NULL: Final = frozenset({"MIN", "MAX", "SUM", "AVG"})
#: functions that are NULL if an operand is
_KEEP_NULL: Final = frozenset({"+", "-", "*", "/", "CAST"})


class ScalarQuery(NamedTuple):
    """The text of the value, and its index among the columns of the right side; the others are keys of the groups."""

    text: str
    place: int


class _Key(NamedTuple):
    """A key of the groups among the columns of the right side: its index among the keys."""

    number: int


_Output = str | _Key


def scalar_query(
    planner: BatchPlanner, node: logical.Join, parts: Sequence[Typed], left: Sequence[str], name: str
) -> ScalarQuery | None:
    """Return the scalar query that the right side of a join represents; None if it is something else.

    `parts`: the conditions of the join. `left`: the text of each column of the left side. `name`: the alias of the
    table that the query reads.
    """
    result = _outputs(planner, node.right, name) if node.join_type is JoinType.LEFT else None
    if result is None:
        return None
    outputs, groups = result
    values = [index for index, output in enumerate(outputs) if isinstance(output, str)]
    conditions = _conditions(parts, left, outputs, groups, name)
    if len(values) != 1 or conditions is None:
        return None
    value, rows = outputs[values[0]], planner.query(groups.input)
    return ScalarQuery(f"(SELECT {value} FROM ({rows}) {name} WHERE {' AND '.join(conditions)})", values[0])


def _outputs(planner: BatchPlanner, node: logical.Node, name: str) -> tuple[list[_Output], logical.Aggregate] | None:
    """Return the text or key of each column, and the aggregate below."""
    if planner.is_shared(node):
        return None
    if isinstance(node, logical.Project):
        below = _outputs(planner, node.input, name)
        outputs = [] if below is None else [_of_columns(expression, below[0]) for expression in node.expressions]
        known = [output for output in outputs if output is not None]
        return None if below is None or len(known) < len(outputs) else (known, below[1])
    if not isinstance(node, logical.Aggregate) or not node.keys or node.sets:
        return None
    texts = [_of_rows(call, name) for call in node.calls]
    known = [*map(_Key, range(len(node.keys))), *(text for text in texts if text is not None)]
    return (known, node) if len(known) == len(node.schema) else None


def _of_columns(expression: Typed, columns: Sequence[_Output]) -> _Output | None:
    """Return an expression over columns if it preserves NULL."""
    if isinstance(expression, Field):
        return columns[expression.index]
    for node in expression.walk():
        if isinstance(node, Field):
            if not isinstance(columns[node.index], str):
                return None
        elif not isinstance(node, Constant) and not (isinstance(node, FunctionCall) and node.function in _KEEP_NULL):
            return None
    if not any(isinstance(part, Field) for part in expression.walk()):
        return None
    return native_text(expression, lambda index: str(columns[index]))


def _of_rows(call: AggregateCall, name: str) -> str | None:
    """Return the text of an aggregate over the rows of a table; None unless it is NULL over no rows."""
    if call.function not in _OF_NO_ROWS_NULL:
        return None
    operands = [native_text(operand, lambda index: f"{name}.{column(index)}") for operand in call.operands]
    known = [text for text in operands if text is not None]
    if call.condition is not None or len(known) < len(operands):
        return None
    return native_aggregate(call, known, None, Over())


def _conditions(
    parts: Sequence[Typed], left: Sequence[str], outputs: Sequence[_Output], groups: logical.Aggregate, name: str
) -> list[str] | None:
    """Return the join conditions in terms of the query; None unless they equate each key with something."""
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
        key = _find_key(part, width, outputs)
        condition_text = None if key is None else join_text(part, width, text)
        if key is None or condition_text is None:
            return None
        keys.append(key.number)
        texts.append(condition_text)
    return texts if sorted(keys) == list(range(len(groups.keys))) else None


def _find_key(part: Typed, width: int, outputs: Sequence[_Output]) -> _Key | None:
    """Return the key that a condition equates with an expression of the left side."""
    if not isinstance(part, FunctionCall) or part.function != "=":
        return None
    for field, value in (part.operands, part.operands[::-1]):
        read = [node.index for node in value.walk() if isinstance(node, Field)]
        if isinstance(field, Field) and field.index >= width and read and max(read) < width:
            key = outputs[field.index - width]
            return key if isinstance(key, _Key) else None
    return None
