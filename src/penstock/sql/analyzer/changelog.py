"""FROM_CHANGELOG and TO_CHANGELOG: a column with change operations instead of row kinds.

See Flink's document "Changelog Conversion".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.base.errors import UnsupportedError
from penstock.sql.analyzer.expressions import ScalarAnalyser
from penstock.sql.analyzer.scopes import Queries, build_scope
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import CharType, VarCharType
from penstock.sql.logical.nodes import NAMES, FromChangelog, Node, PlanColumn, RowSchema, ToChangelog
from penstock.sql.parser import syntax
from penstock.sql.typed import Field

#: the arguments of each function, in order
CHANGELOG_FUNCTIONS: Final[dict[str, tuple[str, ...]]] = {
    "FROM_CHANGELOG": ("INPUT", "OP", "OP_MAPPING", "ON_TIME", "UID"),
    "TO_CHANGELOG": ("INPUT", "OP", "OP_MAPPING", "ON_TIME", "UID"),
}
_DEFAULT_COLUMN: Final = "op"
_CODES_MAX: Final = 2_147_483_647


def changelog_table(call: syntax.Call, queries: Queries) -> Node:
    """Return the plan of a call. Raises `ValidationError` for invalid arguments."""
    arguments = _arguments(call)
    plan, partition = _table(call.name, arguments.get("INPUT"), queries)
    column = _column(arguments.get("OP"))
    mapping = _mapping(arguments.get("OP_MAPPING"))
    if call.name == "TO_CHANGELOG":
        return _to_changelog(plan, partition, column, mapping)
    return _from_changelog(plan, partition, column, mapping)


# --- the plans --------------------------------------------------------------------------------------------------------


def _to_changelog(
    plan: Node, partition: tuple[int, ...], column: str, mapping: Sequence[tuple[str, str]] | None
) -> Node:
    codes: dict[str, str] = {}
    for names, code in mapping if mapping is not None else [(name, name) for name in NAMES]:
        for name in _listed(names):
            _check_change(name)
            if name in codes:
                raise ValidationError(
                    f"Invalid target mapping for argument 'op_mapping'. Duplicate change operation: '{name}'."
                )
            codes[name] = code
    moved = [plan.schema[index] for index in (*partition, *_others(plan, partition))]
    operation = PlanColumn(column, VarCharType(_CODES_MAX))
    schema = RowSchema((*moved[: len(partition)], operation, *moved[len(partition) :]))
    return ToChangelog(schema=schema, input=plan, codes=tuple(codes.items()), partition=partition)


def _from_changelog(
    plan: Node, partition: tuple[int, ...], column: str, mapping: Sequence[tuple[str, str]] | None
) -> Node:
    names = plan.schema.names
    if column not in names:
        raise ValidationError(f"The op column '{column}' does not exist in the input schema.")
    op_index = names.index(column)
    if not isinstance(plan.schema[op_index].type, VarCharType | CharType):
        raise ValidationError(
            f"The op column '{column}' must be of STRING type, but was '{plan.schema[op_index].type}'."
        )
    if op_index in partition:
        raise ValidationError(f"The op column '{column}' cannot be one of the columns of PARTITION BY.")
    codes: dict[str, str] = {}
    for listed, name in mapping if mapping is not None else [(name, name) for name in NAMES]:
        _check_change(name)
        if name in codes.values():
            raise ValidationError(
                f"Invalid target mapping for argument 'op_mapping'. Duplicate change operation: '{name}'. Give the "
                f"codes of one change as a list: 'c, r', '{name}'."
            )
        for code in _listed(listed):
            if code in codes:
                raise ValidationError(f"Invalid mapping for argument 'op_mapping'. Duplicate code: '{code}'.")
            codes[code] = name
    changes = set(codes.values())
    if "UPDATE_AFTER" in changes and "UPDATE_BEFORE" not in changes and not partition:
        raise ValidationError(
            "The 'op_mapping' must include UPDATE_BEFORE, or the input PARTITION BY the columns of the key: an update "
            "without the row as it was is found by its key."
        )
    columns = [index for index in (*partition, *_others(plan, partition)) if index != op_index]
    schema = RowSchema(tuple(plan.schema[index] for index in columns))
    return FromChangelog(
        schema=schema,
        input=plan,
        operation=op_index,
        codes=tuple(codes.items()),
        columns=tuple(columns),
        partition=partition,
    )


def _others(plan: Node, partition: Sequence[int]) -> list[int]:
    return [index for index in range(len(plan.schema)) if index not in partition]


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",")]


def _check_change(name: str) -> None:
    if name not in NAMES:
        raise ValidationError(
            f"Invalid target mapping for argument 'op_mapping'. Unknown change operation: '{name}'. "
            f"Valid values are: [{', '.join(NAMES)}]."
        )


# --- the arguments ----------------------------------------------------------------------------------------------------


def _arguments(call: syntax.Call) -> Mapping[str, syntax.Expression]:
    names = CHANGELOG_FUNCTIONS[call.name]
    names_text = ", ".join(name.lower() for name in names)
    arguments: dict[str, syntax.Expression] = {}
    for index, operand in enumerate(call.operands):
        named = isinstance(operand, syntax.NamedArgument)
        if not named and any(isinstance(other, syntax.NamedArgument) for other in call.operands[:index]):
            raise ValidationError(f"{call.name}: an argument without a name follows one with a name")
        if isinstance(operand, syntax.NamedArgument):
            name, value = operand.name.upper(), operand.value
        elif index < len(names):
            name, value = names[index], operand
        else:
            raise ValidationError(f"{call.name} takes the arguments {names_text}, not {len(call.operands)}")
        if name not in names:
            raise ValidationError(f"{call.name} has no argument '{name.lower()}': it takes {names_text}")
        if name in arguments:
            raise ValidationError(f"{call.name}: argument '{name.lower()}' is there twice")
        if not isinstance(value, syntax.DefaultArgument):
            arguments[name] = value
    if "ON_TIME" in arguments:
        raise UnsupportedError(f"argument 'on_time' of {call.name} is not supported: time attributes stay as they are")
    if "UID" in arguments and not isinstance(arguments["UID"], syntax.TextLiteral):
        raise ValidationError(f"argument 'uid' of {call.name} must be a text")
    return arguments


def _table(name: str, argument: syntax.Expression | None, queries: Queries) -> tuple[Node, tuple[int, ...]]:
    if isinstance(argument, syntax.Subquery):
        return queries.query(argument.query), ()
    if not isinstance(argument, syntax.TableArgument):
        raise ValidationError(f"{name} takes a table for argument 'input': TABLE name, or TABLE (query)")
    if argument.order:
        raise ValidationError(f"{name} takes no ORDER BY")
    plan = queries.query(argument.query)
    analyser = ScalarAnalyser(build_scope(plan, queries.calls), queries.calls)
    partition = []
    for expression in argument.partition:
        column = analyser.typed(expression)
        if not isinstance(column, Field):
            raise UnsupportedError("PARTITION BY of a table argument takes columns alone")
        partition.append(column.index)
    return plan, tuple(dict.fromkeys(partition))


def _column(argument: syntax.Expression | None) -> str:
    if argument is None:
        return _DEFAULT_COLUMN
    if not isinstance(argument, syntax.DescriptorArgument):
        raise ValidationError("The argument 'op' takes a column: DESCRIPTOR(name)")
    if len(argument.columns) != 1 or len(argument.columns[0]) != 1:
        raise ValidationError("The descriptor for argument 'op' must contain exactly one column name.")
    return argument.columns[0][0]


def _mapping(argument: syntax.Expression | None) -> list[tuple[str, str]] | None:
    if argument is None:
        return None
    is_map = isinstance(argument, syntax.Collection) and argument.root == "MAP"
    items = argument.items if isinstance(argument, syntax.Collection) and is_map else ()
    texts = [item.value for item in items if isinstance(item, syntax.TextLiteral)] if isinstance(items, tuple) else []
    if not texts or not isinstance(items, tuple) or len(texts) != len(items) or len(texts) % 2:
        raise ValidationError("The 'op_mapping' argument must be a constant MAP literal of texts: MAP['INSERT', 'I']")
    return list(zip(texts[::2], texts[1::2], strict=True))
