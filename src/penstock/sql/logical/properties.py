"""Properties of plans: depth limits, identity, traversal, and bounds on the number of rows.

**Depth.** `allow_plans` and `allow_expression` limit the depth of plans and expressions, and measure it without
recursion.

**Identity.** `rows_text` and `state_id` cover everything that determines rows and state, but not column names.

**Traversal.** `all_nodes` traverses a plan, and `with_inputs` replaces the inputs of a node.

**Bounds.** `least_rows` and `most_rows` hold whatever the tables of a plan contain. Flink's planner has the same
bounds: after a condition or a join, zero rows are possible. An aggregate of all rows has one row. In a stream this row
is emitted with the first row of the input, but EXISTS, which is evaluated at planning time, does not need input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache
from math import prod
from typing import Any, Final, TypeAlias, TypeVar

import xxhash

from penstock.base.copies import NESTING_MAX, SHALLOW_LEVELS, allow_deep_calls
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.logical import nodes
from penstock.sql.parser import syntax
from penstock.sql.typed import Constant, Constants, Field, Typed
from penstock.sql.user_functions.definition import UserFunction

#: the maximum depth of a plan
STEPS_MAX: Final = 1_000
_LEAVES: Final = (syntax.NumberLiteral, syntax.TextLiteral, syntax.Reference, syntax.Query, DataType)


def allow_plans(plans: Sequence[nodes.Node]) -> None:
    """Prepare the process to plan these. Raises `ValidationError` if they are too deep."""
    levels: dict[int, int] = {}
    waiting = list(plans)
    while waiting:
        node = waiting[-1]
        missing = [upstream for upstream in node.inputs() if id(upstream) not in levels]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        levels[id(node)] = 1 + max((levels[id(upstream)] for upstream in node.inputs()), default=0)
    deepest = max(levels.values(), default=0)
    if deepest > STEPS_MAX:
        raise ValidationError(
            f"{deepest:,} steps of a query follow one another, and at most {STEPS_MAX:,} may: write a part of it "
            "into a table"
        )
    if deepest > SHALLOW_LEVELS:
        allow_deep_calls()


def allow_expression(expression: syntax.Expression) -> None:
    """Prepare the process to plan an expression. Raises `ValidationError` if it is nested too deeply."""
    deepest = 0
    waiting: list[tuple[Any, int]] = [(expression, 1)]
    while waiting:
        value, level = waiting.pop()
        deepest = max(deepest, level)
        if isinstance(value, tuple):
            waiting += [(item, level) for item in value if is_dataclass(item) or isinstance(item, tuple)]
        elif is_dataclass(value) and not isinstance(value, _LEAVES):
            waiting += [(getattr(value, field.name), level + 1) for field in fields(value)]
    if deepest > NESTING_MAX:
        raise ValidationError(
            f"an expression nests more than {NESTING_MAX} levels deep: compute a part of it in a column before, with "
            "add_columns"
        )
    if deepest > SHALLOW_LEVELS:
        allow_deep_calls()


#: returns the text of a value; None to build it from the value's parts
_Special = Callable[[Any], str | None]
#: nodes by their `id()`, each with its text
Known: TypeAlias = dict[int, tuple[nodes.Node, str]]
#: above this number of constant rows, the text has only their values, which is ten times as fast
_MANY_ROWS: Final = 1_000
_LIFETIME: Final = "state_ttl_ms"
#: the role of a step that reads a table
SOURCE: Final = "Source"
#: the role of a step that writes a table
SINK: Final = "Sink"
#: the role of the step that commits for all subtasks of a sink
COMMITTER: Final = "Committer"


def rows_text(node: nodes.Node, known: Known | None = None) -> str:
    """Return a text that is equal for plans with the same rows, provided they call only deterministic functions.

    `known`: a cache of these texts, so that each input is visited once.
    """
    return _text(node, _of_rows, {} if known is None else known)


def state_id(node: nodes.Node, role: str, known: Known | None = None) -> str:
    """Return the id, 32 hexadecimal digits, of the state of a node's step in a `role`.

    The id is the same in other processes, and does not depend on names of results, options of tables or lifetimes of
    state. It changes with the node and all its inputs, because state is only valid for the query that created it. The
    position in a table, which is the state of a `SOURCE`, is valid for any query that reads the table, and the state of
    a `SINK` or `COMMITTER` for any query that writes it. The id of a process table function
    is its `uid`. `known`: a cache of the hashed texts.
    """
    known = {} if known is None else known
    if isinstance(node, nodes.Scan) and role.startswith(SOURCE):
        text = f"{node.path}"
    elif isinstance(node, nodes.ProcessTableFunction) and node.uid is not None:
        text = f"ProcessTableFunction({node.uid})"
    elif isinstance(node, nodes.Write) and role.rpartition(" ")[0] not in (SINK, COMMITTER):
        text = f"Write({node.path},{node.key},{node.conflict},{_text(node.input, _of_state, known)})"
    else:
        text = _text(node, _of_state, known)
    return xxhash.xxh3_128_hexdigest(f"{role}:{text}".encode())


def collect_expressions(node: nodes.Node) -> Iterator[Typed]:
    """Yield the expressions of a node, without those of its inputs."""
    for name in _names(type(node)):  # type: ignore[arg-type]
        if name not in ("input", "left", "right", "parts"):
            yield from _expressions(getattr(node, name))


def _expressions(value: Any) -> Iterator[Typed]:
    if isinstance(value, Typed):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _expressions(item)
    elif not isinstance(value, DataType):
        for name in _names(type(value)):  # type: ignore[arg-type]
            yield from _expressions(getattr(value, name))


@cache
def _names(kind: type) -> tuple[str, ...]:
    """Return the fields of a class; empty unless it is a dataclass."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


@cache
def _compared(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.compare)


def _text(value: Any, special: _Special, known: Known) -> str:
    if not isinstance(value, nodes.Node):
        return _made(value, special, known)
    entry = known.get(id(value))
    if entry is None:
        # Keep a reference to the node, so that its `id()` is not reused.
        entry = known[id(value)] = value, _made(value, special, known)
    return entry[1]


def _made(value: Any, special: _Special, known: Known) -> str:
    special_text = special(value)
    if special_text is not None:
        return special_text
    match value:
        case nodes.PlanColumn():
            return f"{value.type}:{value.time}"
        case Field():
            return f"${value.index}:{value.type}"
        case nodes.Values(rows=rows) if len(rows) > _MANY_ROWS and all(
            isinstance(cell, Constant) for row in rows for cell in row
        ):
            values = [[cell.value for cell in row if isinstance(cell, Constant)] for row in rows]
            return f"Values({_text(value.schema, special, known)},{values!r})"
        case Constants():
            return f"Constants({value.type},{value.values!r})"
        case DataType():
            return str(value)
        case Enum():
            return value.name
        case tuple() | list():
            return f"[{','.join([_text(item, special, known) for item in value])}]"
        case _ if is_dataclass(value):
            compared = _compared(type(value))  # type: ignore[arg-type]
            names = [name for name in compared if special is not _of_state or name != _LIFETIME]
            inner = [f"{name}={_text(getattr(value, name), special, known)}" for name in names]
            return f"{type(value).__name__}({','.join(inner)})"
        case _:
            return f"{type(value).__name__}:{value!r}"


def _of_rows(value: Any) -> str | None:
    match value:
        case nodes.ArrowRows():
            return f"ArrowRows({id(value.data)})"
        case nodes.StreamRows():
            return f"StreamRows({id(value.stream)})"
        case UserFunction():
            return f"UserFunction({id(value)})"
        case nodes.Model():
            return f"Model({value.path},{value.settings},{id(value.provider)})"
    return None


def _of_state(value: Any) -> str | None:
    match value:
        case nodes.ArrowRows():
            return f"ArrowRows({_text(value.schema, _of_state, {})})"
        case nodes.StreamRows():
            return f"StreamRows({value.title},{_text(value.schema, _of_state, {})},{value.key})"
        case nodes.Scan():
            columns = [f"{column.name}:{column.type}" for column in value.schema]
            suffix = f",{value.taken}" if value.taken else ""
            return f"Scan({value.path},{columns},{value.key}{suffix})"
        case nodes.Write():
            # The sink of a route has its own id, so an INSERT into the same table keeps its id.
            rejected = nodes.rejected_rows(value)
            return f"Write({value.path})" if rejected is None else f"Write({value.path},{rejected.table.path})"
        case UserFunction():
            return f"UserFunction({value.name},{value.result_type})"
        case nodes.Model():
            types = [str(kind) for kind in (*value.inputs.types, *value.outputs.types)]
            return f"Model({value.path},{types})"
    return None


NodeT = TypeVar("NodeT", bound=nodes.Node)


def all_nodes(node: nodes.Node) -> Iterator[nodes.Node]:
    """Yield a node and all nodes below it. A node read in several places is repeated."""
    yield node
    for below in node.inputs():
        yield from all_nodes(below)


def find_input(node: nodes.Node, column: int) -> tuple[nodes.Node, int] | None:
    """Return the input of a column and the column's index in it; None for a column that the node adds.

    Only for nodes whose columns are those of their inputs, in order, followed by their own.
    """
    for upstream in node.inputs():
        if column < len(upstream.schema):
            return upstream, column
        column -= len(upstream.schema)
    return None


def with_inputs(node: NodeT, inputs: Sequence[nodes.Node]) -> NodeT:
    """Replace the inputs of a node, one for one. Returns the node itself if they are the same objects."""
    if all(upstream is other for upstream, other in zip(node.inputs(), inputs, strict=True)):
        return node
    names = {field.name for field in fields(node)}
    if "input" in names:
        (inner,) = inputs
        return replace(node, input=inner)  # type: ignore[call-arg]
    if "left" in names:
        left, right = inputs
        return replace(node, left=left, right=right)  # type: ignore[call-arg]
    return replace(node, parts=tuple(inputs))  # type: ignore[call-arg]


def least_rows(plan: nodes.Node) -> int:
    """Return the minimum number of rows of a plan, whatever its tables contain."""
    match plan:
        case nodes.Values(rows=rows):
            return len(rows)
        case nodes.Project(input=below) | nodes.Over(input=below):
            return least_rows(below)
        case nodes.Filter(input=below, condition=Constant(value=True)):
            return least_rows(below)
        case nodes.Aggregate(keys=(), sets=()):
            return 1
        case nodes.Aggregate(input=below) | nodes.Distinct(input=below):
            return min(least_rows(below), 1)
        case nodes.Sort(input=below, offset=offset, fetch=fetch):
            left = max(least_rows(below) - offset, 0)
            return left if fetch is None else min(left, fetch)
        case nodes.SetOperation(operator="UNION", parts=parts):
            return sum(map(least_rows, parts))
        case _:
            return 0


def most_rows(plan: nodes.Node) -> int | None:
    """Return the maximum number of rows of a plan, whatever its tables contain; None if unbounded."""
    match plan:
        case nodes.Values(rows=rows):
            return len(rows)
        case nodes.Aggregate(keys=(), sets=()):
            return 1
        case (
            nodes.Project(input=below)
            | nodes.Over(input=below)
            | nodes.Filter(input=below)
            | nodes.Distinct(input=below)
        ):
            return most_rows(below)
        case nodes.Aggregate(input=below, sets=()):
            return most_rows(below)
        case nodes.Sort(input=below, offset=offset, fetch=fetch):
            most = most_rows(below)
            if most is None:
                return fetch
            left = max(most - offset, 0)
            return left if fetch is None else min(left, fetch)
        case nodes.SetOperation(operator="UNION", parts=parts):
            counts = [most_rows(part) for part in parts]
            known = [count for count in counts if count is not None]
            return sum(known) if len(known) == len(counts) else None
        case nodes.SetOperation(parts=parts):
            return most_rows(parts[0])
        case nodes.Join(join_type=nodes.JoinType.INNER, left=left_side, right=right_side):
            sides = most_rows(left_side), most_rows(right_side)
            known = [count for count in sides if count is not None]
            return prod(known) if len(known) == len(sides) or 0 in known else None
        case nodes.Join(join_type=nodes.JoinType.SEMI | nodes.JoinType.ANTI, left=left_side):
            return most_rows(left_side)
        case _:
            return None
