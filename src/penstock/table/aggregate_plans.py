"""Table API plans of `aggregate` and `flat_aggregate`: one row per group, or any number of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from penstock.base.errors import UnsupportedError
from penstock.table.analyser.aggregation import contains_aggregate, is_aggregate
from penstock.table.analyser.rewriting import rewritten
from penstock.table.analyser.select import project
from penstock.table.analyser.user_aggregates import user_aggregate_call
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import RowType
from penstock.table.function_plans import to_call
from penstock.table.methods.aggregates import WINDOW_PARTS
from penstock.table.methods.operand import Operand
from penstock.table.plan.logical import Node, TableAggregate
from penstock.table.plan.row_schema import PlanColumn, RowSchema
from penstock.table.selection import to_operand
from penstock.table.sql import syntax
from penstock.table.table_plans import Plans
from penstock.table.typed.nodes import Typed
from penstock.table.user_functions.definition import FunctionKind
from penstock.table.window import GroupWindow

#: names of columns that only the next step sees
_VALUE: Final = "$aggregate"
#: default name of the only column of a function
_ONLY: Final = "f0"


def selected_after(plans: Plans, plan: Node, fields: Sequence[object], method: str) -> Node:
    """Select columns from the result of a method. Raises `ValidationError` for aggregates."""
    calls = plans.calls()
    for field in map(to_operand, fields):
        if contains_aggregate(field._node, calls):
            raise ValidationError(
                f"Aggregate functions are not supported in the select right after the {method}: {field}"
            )
    return plans.select(plan, fields)


class Aggregated:
    """An aggregate function applied to groups of a plan's rows, or to their groups in windows."""

    def __init__(
        self, plans: Plans, plan: Node, keys: Sequence[Operand], function: object, window: GroupWindow | None
    ) -> None:
        self._plans = plans
        self._plan = plan
        self._keys = keys
        self._window = window
        self._call = to_call(plan, function, "aggregate")
        calls, node = plans.calls(), self._call._node
        user = calls.user_function(node) if isinstance(node, syntax.Call) else None
        if not is_aggregate(node, calls) or (user is not None and user.kind is not FunctionKind.AGGREGATE):
            raise ValidationError(f"Only an aggregate function can be used in the aggregate operator, not {self._call}")

    def select(self, fields: Sequence[object]) -> Node:
        """Select these columns: keys, columns of the function, and properties of the window."""
        parts: dict[str, Operand] = {}
        moved = [self._of_window(to_operand(field), parts) for field in fields]
        names = [_find_key_name(key) for key in self._keys]
        keys = [Operand(key._node, (name,)) for key, name in zip(self._keys, names, strict=True) if name]
        columns = [*keys, *parts.values(), Operand(self._call._node, (_VALUE,))]
        if self._window is None:
            grouped = self._plans.grouped(self._plan, self._keys, columns)
        else:
            grouped = self._plans.window_grouped(self._plan, self._window, self._keys, columns)
        return selected_after(self._plans, self._taken_apart(grouped), moved, "aggregate")

    def _of_window(self, field: Operand, parts: dict[str, Operand]) -> Operand:
        """Replace the window properties in a field by columns, which are added to `parts`."""

        def change(node: syntax.Expression) -> Iterable[syntax.Expression] | None:
            if self._window is None or not isinstance(node, syntax.Call) or node.name not in WINDOW_PARTS:
                return None
            column = f"${WINDOW_PARTS[node.name]}"
            parts[column] = Operand(node, (column,))
            return (syntax.Reference((column,)),)

        (node,) = rewritten(field._node, change)
        names = field._names
        if isinstance(field._node, syntax.Call) and isinstance(node, syntax.Reference) and not names:
            names = (f"EXPR${list(parts).index(node.path[0])}",)
        return Operand(node, names)

    def _taken_apart(self, plan: Node) -> Node:
        """Replace the value of the function by its columns."""
        (*others, value) = plan.schema.names
        kind = plan.schema[len(others)].type
        if not isinstance(kind, RowType):
            if len(self._call._names) > 1:
                raise ValidationError(f"{self._call} gives one column, and gets {len(self._call._names)} names")
            return _named(plan, [*others, *(self._call._names or (_ONLY,))])
        names = self._call._names or kind.field_names()
        if len(names) != len(kind.fields):
            raise ValidationError(f"{self._call} gives {len(kind.fields)} columns, and gets {len(names)} names")
        fields = [Operand(syntax.FieldAccess(syntax.Reference((value,)), name)) for name in kind.field_names()]
        apart = self._plans.select(plan, [*others, *fields])
        return _named(apart, [*others, *names])


def flat_aggregated(plans: Plans, plan: Node, keys: Sequence[Operand], function: object) -> Node:
    """Return the rows of a table aggregate function for each group: the keys, then the function's columns."""
    call = to_call(plan, function, "flat_aggregate")
    analyser = plans.scalars(plan)
    node = call._node
    assert isinstance(node, syntax.Call)
    user = analyser.calls.user_function(node)
    if user is None or user.kind is not FunctionKind.TABLE_AGGREGATE:
        raise ValidationError(f"Only a table aggregate function can be used in the flatAggregate operator, not {call}")
    if node.is_distinct:
        raise UnsupportedError(f"DISTINCT is not supported for {user}: take the distinct rows of the table first")
    aggregate_call = user_aggregate_call(user, node, analyser, takes_rows=True)
    assert isinstance(user.result_type, RowType)
    names = call._names or user.result_type.field_names()
    if len(names) != len(user.result_type.fields):
        raise ValidationError(f"{call} gives {len(user.result_type.fields)} columns, and gets {len(names)} names")
    expressions: list[Typed] = [analyser.typed(key._node) for key in keys]
    expressions += aggregate_call.operands
    key_names = [_find_key_name(key) or f"$k{index}" for index, key in enumerate(keys)]
    before = project(plan, expressions, [*key_names, *(f"$f{index}" for index in range(len(aggregate_call.operands)))])
    width = len(keys)
    # A group has no single event time.
    columns = [replace(before.schema[index], time=None) for index in range(width)]
    columns += [PlanColumn(name, field.data_type) for name, field in zip(names, user.result_type.fields, strict=True)]
    moved = replace(aggregate_call, operands=tuple(before.schema.fields()[width:]))
    schema = RowSchema(tuple(columns))
    aggregate = TableAggregate(schema=schema, input=before, keys=tuple(range(width)), call=moved)
    return _named(aggregate, [*key_names, *names])


def _find_key_name(key: Operand) -> str | None:
    """Return the name of a key, if it has one."""
    if key._names:
        return key._names[0]
    return key._node.path[-1] if isinstance(key._node, syntax.Reference) else None


def _named(plan: Node, names: Sequence[str]) -> Node:
    """Rename the columns of a plan. Raises `ValidationError` for duplicate names."""
    again = sorted({name for name in names if list(names).count(name) > 1})
    if again:
        raise ValidationError(f"Ambiguous column name: {', '.join(again)}; name the columns of the function with alias")
    return project(plan, plan.schema.fields(), names)
