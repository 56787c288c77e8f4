"""Turns joins FOR SYSTEM_TIME AS OF a processing time into lookups, which query the table by keys.

Conditions on the table alone filter the rows that it returns, and computed columns are computed from these rows. An
equality of a stored column with an expression of the left side or a constant is a key.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.base.errors import UnsupportedError
from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.subqueries import TRUE, conjoin, shifted
from penstock.sql.data.errors import ValidationError
from penstock.sql.expressions.evaluator import is_stable
from penstock.sql.logical import nodes
from penstock.sql.logical.explain import node_text
from penstock.sql.logical.properties import with_inputs
from penstock.sql.optimizer.pruning import collect_columns
from penstock.sql.optimizer.pushdown import are_keys, over, split_condition
from penstock.sql.typed import Constant, Field, FunctionCall, Typed


def with_lookup_joins(node: nodes.Node, calls: Calls) -> nodes.Node:
    """Rewrite a plan with lookups. Raises `UnsupportedError` and `ValidationError` if a table cannot be looked up."""
    if isinstance(node, nodes.TemporalJoin) and node.left.schema[node.time.index].time is nodes.TimeAttribute.PROCTIME:
        return _Lookup(node, with_lookup_joins(node.left, calls), calls).join()
    return with_inputs(node, [with_lookup_joins(child, calls) for child in node.inputs()])


class _Lookup:
    """Builds one lookup join."""

    def __init__(self, node: nodes.TemporalJoin, left: nodes.Node, calls: Calls) -> None:
        self._node = node
        self._left = left
        self._calls = calls
        self._width = len(left.schema)
        self._where: list[Typed] = []
        self._keys: dict[int, Typed] = {}
        self._asks: list[Typed] = []
        self._rest: list[Typed] = []

    def join(self) -> nodes.LookupJoin:
        """Build the node."""
        node = self._node
        table = self._right(node.right)
        for part in split_condition(node.condition):
            self._take(part)
        for part in list(self._where):
            self._take_constant(part)
        if not self._keys:
            raise ValidationError(
                "Temporal table join requires an equality condition on fields of table "
                f"[{'.'.join(table.path)}]: add column = expression of the left side to ON"
            )
        key = sorted(self._keys)
        return nodes.LookupJoin(
            schema=node.schema,
            input=self._left,
            table=table,
            join_type=node.join_type,
            key=tuple(key),
            key_values=tuple(self._keys[column] for column in key),
            where=self._all(self._where),
            expressions=self._expressions,
            asks=self._all(self._asks),
            condition=self._all(self._rest),
            options=node.lookup,
        )

    def _all(self, parts: Sequence[Typed]) -> Typed | None:
        condition = conjoin(parts, self._calls)
        return None if condition == TRUE else condition

    def _right(self, right: nodes.Node) -> nodes.Scan:
        """Return the table below projections, filters and watermarks. Watermarks have no effect on a lookup."""
        expressions: tuple[Typed, ...] = tuple(right.schema.fields())
        where: list[Typed] = []
        below = right
        while not isinstance(below, nodes.Scan):
            match below:
                case nodes.WatermarkAssigner():
                    pass
                case nodes.Filter():
                    where.append(below.condition)
                case nodes.Project():
                    inner = below.expressions
                    expressions = tuple(over(expression, inner) for expression in expressions)
                    where = [over(condition, inner) for condition in where]
                case _:
                    raise UnsupportedError(
                        "Processing-time temporal join is not supported yet. FOR SYSTEM_TIME AS OF a processing time "
                        "asks a table of a connector that has a look-up, with filters and projections at most; here "
                        f"there is {node_text(below)}. Use a regular join, or event time"
                    )
            below = below.inputs()[0]
        self._expressions = expressions
        self._where = [part for condition in where for part in split_condition(condition)]
        return below

    def _take(self, part: Typed) -> None:
        """Classify a part of the condition: a check before the lookup, a key, a table filter, a condition on pairs."""
        sides = {index >= self._width for index in collect_columns([part])}
        if sides == {False} and is_stable(part):
            self._asks.append(part)
        elif sides == {True} and is_stable(part):
            self._where.append(over(shifted(part, -self._width), self._expressions))
        elif not self._takes_key(part):
            self._rest.append(part)

    def _takes_key(self, part: Typed) -> bool:
        if not isinstance(part, FunctionCall) or part.function != "=":
            return False
        for value, other in (part.operands, part.operands[::-1]):
            if isinstance(other, Field) and other.index >= self._width:
                column = self._expressions[other.index - self._width]
                of_left = all(index < self._width for index in collect_columns([value]))
                if of_left and is_stable(value) and self._adds(column, value):
                    return True
        return False

    def _take_constant(self, part: Typed) -> None:
        """Turn a table filter `column = constant` into a key, so that the table returns fewer rows."""
        if isinstance(part, FunctionCall) and part.function == "=":
            for constant, other in (part.operands, part.operands[::-1]):
                if isinstance(constant, Constant) and constant.value is not None and self._adds(other, constant):
                    self._where.remove(part)
                    return

    def _adds(self, column: Typed, value: Typed) -> bool:
        """Add a key, if it is a stored column with a suitable type. Returns whether it was added."""
        if not isinstance(column, Field) or column.index in self._keys:
            return False
        if not are_keys(column.type, value.type):
            return False
        self._keys[column.index] = value
        return True
