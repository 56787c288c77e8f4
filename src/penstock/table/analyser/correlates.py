"""UNNEST and table functions in FROM: their columns, and the join with the calling rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from penstock.base.errors import UnsupportedError
from penstock.table.analyser.calls import Calls
from penstock.table.analyser.scalars import ScalarAnalyser
from penstock.table.analyser.scopes import Part, RelationScope, visible_columns
from penstock.table.analyser.subqueries import TRUE
from penstock.table.data.errors import UnknownNameError, ValidationError
from penstock.table.data.logical_types import (
    ArrayType,
    BooleanType,
    DataType,
    IntType,
    MapType,
    MultisetType,
    RowType,
)
from penstock.table.plan.logical import Correlate
from penstock.table.plan.row_schema import PlanColumn, RowSchema
from penstock.table.sql import relations, syntax
from penstock.table.typed.nodes import Typed
from penstock.table.user_functions.definition import FunctionKind, UserFunction

ORDINALITY = "WITH ORDINALITY"

#: Flink's table functions that need tables or models of a kind not available here, with an alternative
_WITHOUT_SOURCES: Final = {
    "VECTOR_SEARCH": "no connector has an index of vectors. Compute the distances in SQL and take the nearest rows",
    "ML_PREDICT": "there are no models. Call the model in a function of the program, see create_temporary_function",
    "ML_EVALUATE": "there are no models. Call the model in a function of the program, see create_temporary_function",
}


def correlated(
    left: RelationScope, relation: relations.Relation, node: relations.Join | None, calls: Calls
) -> RelationScope:
    """Join each row of the left side with the rows that a function makes of it. `node`: the join, if any."""
    keeps = node is not None and node.join_type == "LEFT"
    analyser = ScalarAnalyser(left, calls)
    user: UserFunction | None = None
    if isinstance(relation, relations.UnnestedTable):
        name, operands = "UNNEST", [analyser.typed(expression) for expression in relation.expressions]
        columns = _unnest_columns(operands, relation)
    else:
        assert isinstance(relation, relations.FunctionTable)
        user, operands = _called(relation.call, analyser)
        name = user.name
        assert isinstance(user.result_type, RowType)
        columns = [PlanColumn(field.name, field.data_type) for field in user.result_type.fields]
    schema = RowSchema(tuple(columns)).renamed(_names(columns, relation, name))
    _check_join(node, left, schema, name)
    plan = Correlate(
        schema=left.schema.joined(schema, right_nullable=keeps),
        input=left.plan,
        function=name,
        operands=tuple(operands),
        keeps=keeps,
        options=(ORDINALITY,) if getattr(relation, "with_ordinality", False) else (),
        user=user,
    )
    part = Part(relation.alias, (), len(left.schema), RowSchema(plan.schema.columns[len(left.schema) :]))
    visible = [*left.visible, *visible_columns(plan.schema, len(left.schema))]
    scope = RelationScope([*left.parts, part], plan, visible, calls, left.outer)
    if node is not None and node.condition is not None:
        condition = calls.implicit(ScalarAnalyser(scope, calls).typed(node.condition), BooleanType())
        if condition != TRUE:
            scope.plan = replace(plan, condition=condition)
    return scope


def _called(call: syntax.Expression, analyser: ScalarAnalyser) -> tuple[UserFunction, list[Typed]]:
    """Return a table function and its cast operands."""
    user = analyser.calls.user_function(call, gives_rows=True) if isinstance(call, syntax.Call) else None
    if user is None:
        name = call.name if isinstance(call, syntax.Call) else str(call)
        if name.upper() in _WITHOUT_SOURCES:
            raise UnsupportedError(f"{name.upper()} is not supported: {_WITHOUT_SOURCES[name.upper()]}")
        reason = f"No match found for function signature {name}: there is no table function of this name"
        raise UnknownNameError(reason, name=f"{name}(")
    if user.kind is not FunctionKind.TABLE:
        raise ValidationError(f"{user} gives no rows: only a table function can be used here")
    assert isinstance(call, syntax.Call)
    operands = analyser.calls.user_operands(user, [analyser.typed(operand) for operand in call.operands])
    return user, operands


def _names(columns: Sequence[PlanColumn], relation: relations.Relation, name: str) -> Sequence[str]:
    """Return the names of the columns; a single column of UNNEST takes the alias of the table."""
    if not relation.columns:
        if relation.alias is not None and len(columns) == 1 and isinstance(relation, relations.UnnestedTable):
            return (relation.alias,)
        return [column.name for column in columns]
    if len(relation.columns) != len(columns):
        raise ValidationError(
            f"List of column aliases must have same degree as table; table {name} gives {len(columns)} columns "
            f"({', '.join(column.name for column in columns)}), whereas alias list has {len(relation.columns)} columns"
        )
    return relation.columns


def _check_join(node: relations.Join | None, left: RelationScope, schema: RowSchema, name: str) -> None:
    if node is None:
        return
    if node.join_type not in ("INNER", "CROSS", "LEFT"):
        raise ValidationError(
            f"{node.join_type} JOIN of {name} is not possible: it is called for rows of the left side, so the join is "
            "CROSS, INNER or LEFT"
        )
    shared = set(left.schema.names) & set(schema.names)
    if node.using or (node.is_natural and shared):
        raise UnsupportedError(f"NATURAL and USING with {name} are not supported: write the condition after ON")


def _unnest_columns(operands: Sequence[Typed], relation: relations.UnnestedTable) -> list[PlanColumn]:
    if len(operands) != 1:
        raise ValidationError("UNNEST takes one array, map or multiset")
    columns = _unnested(operands[0].type)
    if relation.with_ordinality:
        columns.append(PlanColumn("ORDINALITY", IntType(False)))
    return columns


def _unnested(collection: DataType) -> list[PlanColumn]:
    """Return the columns for the elements of an array or multiset, or for the entries of a map."""
    if isinstance(collection, MapType):
        return [PlanColumn("KEY", collection.key_type), PlanColumn("VALUE", collection.value_type)]
    if not isinstance(collection, ArrayType | MultisetType):
        raise ValidationError(f"UNNEST takes an array, a map or a multiset, not {collection}")
    element = collection.element_type
    if isinstance(element, RowType):
        # A NULL row has NULL in all columns.
        kinds = [kind.nullable() if element.is_nullable else kind for kind in element.field_types()]
        return [PlanColumn(name, kind) for name, kind in zip(element.field_names(), kinds, strict=True)]
    return [PlanColumn("EXPR$0", element)]
