"""TO_CHANGELOG and FROM_CHANGELOG: changes as rows that say which changes they are, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.base.errors import UnsupportedError
from penstock.table.analyser.scalars import ScalarAnalyser
from penstock.table.analyser.scopes import scope_of
from penstock.table.analyser.seams import Queries
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import LENGTH_MAX, CharType, VarCharType
from penstock.table.plan.changes import UPDATE_AFTER, UPDATE_BEFORE
from penstock.table.plan.logical import FromChangelog, Node, ToChangelog
from penstock.table.plan.row_schema import PlanColumn, RowSchema
from penstock.table.sql import syntax
from penstock.table.typed.nodes import Constant

CHANGELOG_FUNCTIONS: Final = frozenset({"TO_CHANGELOG", "FROM_CHANGELOG"})
#: by the byte of a kind
KINDS: Final = ("INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE")
#: in the order in which they are given without names
_ARGUMENTS: Final = ("INPUT", "OP", "OP_MAPPING", "ON_TIME", "UID")


def changelog_table(call: syntax.Call, queries: Queries) -> Node:
    """The plan of a call. Raises `ValidationError` for arguments that do not fit."""
    arguments = _arguments(call)
    plan = _input(call.name, arguments.get("INPUT"), queries)
    op = _op(arguments.get("OP"))
    pairs = list(_mapping(call.name, arguments.get("OP_MAPPING"), plan, queries))
    return _to(plan, op, pairs) if call.name == "TO_CHANGELOG" else _from(plan, op, pairs)


def _to(plan: Node, op: str, pairs: list[tuple[str, str]]) -> ToChangelog:
    codes: list[str | None] = [None] * len(KINDS) if pairs else list(KINDS)
    for kinds, code in pairs:
        for kind in _split(kinds):
            place = _kind("TO_CHANGELOG", kind)
            if codes[place] is not None:
                raise ValidationError(f"Duplicate change operation in 'op_mapping' of TO_CHANGELOG: {kind}")
            codes[place] = code
    if op in plan.schema.names:
        raise ValidationError(
            f"TO_CHANGELOG cannot add the column '{op}', which is there already: name another with op"
        )
    columns = (PlanColumn(op, VarCharType(LENGTH_MAX)), *plan.schema.columns)
    return ToChangelog(schema=RowSchema(columns), input=plan, codes=tuple(codes))


def _from(plan: Node, op: str, pairs: list[tuple[str, str]]) -> FromChangelog:
    if op not in plan.schema.names:
        raise ValidationError(
            f"The op column '{op}' of FROM_CHANGELOG does not exist in the input table, which has "
            f"{', '.join(plan.schema.names)}: name it with op => DESCRIPTOR(column)"
        )
    place = plan.schema.names.index(op)
    if not isinstance(plan.schema[place].type, VarCharType | CharType):
        raise ValidationError(f"The op column '{op}' of FROM_CHANGELOG must be STRING, not {plan.schema[place].type}")
    kinds: dict[str, int] = {}
    for codes, kind in pairs or zip(KINDS, KINDS, strict=True):
        for code in _split(codes):
            if code in kinds:
                raise ValidationError(f"Duplicate code in 'op_mapping' of FROM_CHANGELOG: {code}")
            kinds[code] = _kind("FROM_CHANGELOG", kind.strip())
    if UPDATE_AFTER in kinds.values() and UPDATE_BEFORE not in kinds.values():
        raise UnsupportedError(
            "FROM_CHANGELOG needs a code for UPDATE_BEFORE where it has one for UPDATE_AFTER: for changes without the "
            "rows before updates, use from_changelog_stream with ChangelogMode.upsert()"
        )
    columns = tuple(column for index, column in enumerate(plan.schema) if index != place)
    return FromChangelog(schema=RowSchema(columns).without_time(), input=plan, column=place, kinds=tuple(kinds.items()))


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",")]


def _kind(function: str, name: str) -> int:
    if name not in KINDS:
        raise ValidationError(f"Unknown change operation '{name}' in 'op_mapping' of {function}: {', '.join(KINDS)}")
    return KINDS.index(name)


# --- arguments -------------------------------------------------------------------------------------------------------


def _arguments(call: syntax.Call) -> dict[str, syntax.Expression]:
    found: dict[str, syntax.Expression] = {}
    for place, one in enumerate(call.operands):
        if isinstance(one, syntax.NamedArgument):
            name, value = one.name.upper(), one.value
        elif place < len(_ARGUMENTS):
            name, value = _ARGUMENTS[place], one
        else:
            raise ValidationError(f"{call.name} takes the arguments input, op and op_mapping")
        if name not in _ARGUMENTS or name in found:
            raise ValidationError(f"{call.name} takes the arguments input, op and op_mapping, each once, not {name}")
        if not isinstance(value, syntax.DefaultArgument):
            found[name] = value
    if "ON_TIME" in found:
        raise ValidationError(f"{call.name} takes no argument on_time")
    return found


def _input(function: str, argument: syntax.Expression | None, queries: Queries) -> Node:
    if isinstance(argument, syntax.Subquery):
        return queries.query(argument.query)
    if not isinstance(argument, syntax.TableArgument):
        raise ValidationError(f"{function} takes a table: input => TABLE name")
    if argument.partition:
        raise UnsupportedError(f"{function} takes no PARTITION BY: each row is a change by itself")
    return queries.query(argument.query)


def _op(argument: syntax.Expression | None) -> str:
    if argument is None:
        return "op"
    if not isinstance(argument, syntax.DescriptorArgument) or len(argument.columns) != 1:
        raise ValidationError("The descriptor for argument 'op' must contain exactly one column name.")
    return argument.columns[0][-1]


def _mapping(
    function: str, argument: syntax.Expression | None, plan: Node, queries: Queries
) -> Iterator[tuple[str, str]]:
    """The keys and values of a map of constants."""
    if argument is None:
        return
    if (
        not isinstance(argument, syntax.Collection)
        or argument.root != "MAP"
        or isinstance(argument.items, syntax.Query)
    ):
        raise ValidationError(f"The argument 'op_mapping' of {function} must be a constant MAP of texts")
    analyser = ScalarAnalyser(scope_of(plan), queries.calls)
    texts = []
    for one in argument.items:
        value = analyser.typed(one)
        if not isinstance(value, Constant) or not isinstance(value.value, str):
            raise ValidationError(f"The argument 'op_mapping' of {function} must be a constant MAP of texts")
        texts.append(value.value)
    yield from zip(texts[::2], texts[1::2], strict=True)
