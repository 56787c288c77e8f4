"""Nodes that pass on, compute, filter, combine or sort rows.

Joins. Conditions that Spark evaluates alike stay in the join; parts of others become columns of their side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.base.errors import UnsupportedError
from penstock.sql.data.types import BooleanType, DataType
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.explain import node_text
from penstock.sql.logical.nodes import JoinType, TimeAttribute
from penstock.sql.optimizer.join_conditions import is_key
from penstock.sql.spark.chains import build_join_chain, projected
from penstock.sql.spark.kernels import Correlated
from penstock.sql.spark.native import NATIVE, equality_of_keys, join_text, native_text
from penstock.sql.spark.planning import BatchPlanner, column, order_text, select, with_maps
from penstock.sql.spark.stored import group_text, has_maps, spark_type
from penstock.sql.typed import Field, FunctionCall, Typed, conjuncts, transformed


def project(planner: BatchPlanner, node: logical.Project) -> str:
    """Return expressions over the columns of the input."""
    query = projected(planner, node)
    if query is not None:
        return query
    source = planner.over(planner.query(node.input), node.input.schema, node.expressions)
    return select(source.texts, source.query)


def filtered(planner: BatchPlanner, node: logical.Filter) -> str:
    """Filter first by the conditions that Spark can evaluate, so that fewer rows go through a step."""
    chain = build_join_chain(planner, node)
    if chain is not None:
        return chain.query()
    query = planner.query(node.input)
    native: list[str] = []
    rest: list[Typed] = []
    for part in conjuncts(node.condition):
        text = native_text(part, column)
        if text is None:
            rest.append(part)
        else:
            native.append(text)
    columns = [column(index) for index in range(len(node.schema))]
    if native:
        query = select(columns, query, f" WHERE {' AND '.join(native)}")
    if not rest:
        return query
    condition = rest[0] if len(rest) == 1 else FunctionCall(BooleanType(), "AND", tuple(rest))
    source = planner.over(query, node.input.schema, [condition], range(len(node.schema)))
    return select(columns, source.query, f" WHERE {source.texts[0]}")


def correlate(planner: BatchPlanner, node: logical.Correlate) -> str:
    """Join each row with the rows that a table function makes of it."""
    before = node.input.schema
    # The plan below the node need not travel to Spark's tasks.
    alone = replace(node, input=logical.Values(schema=before, rows=()))
    work = Correlated(alone, planner.session)
    return f"SELECT * FROM {planner.step(planner.query(node.input), work, before.types, node.schema.types)}"


def set_operation(planner: BatchPlanner, node: logical.SetOperation) -> str:
    """Return UNION, INTERSECT or EXCEPT."""
    word = f" {node.operator} {'ALL' if node.is_all else 'DISTINCT'} "
    if node.operator == "UNION" and node.is_all:
        return word.join(f"({_as_types(planner, part, node.schema.types)})" for part in node.parts)
    types = node.schema.types
    keys = [group_text(column(index), kind) for index, kind in enumerate(types)]
    parts = [_as_types(planner, part, types) for part in node.parts]
    if any(map(has_maps, types)):
        parts = [select(keys, part) for part in parts]
    if node.operator == "EXCEPT" and not node.is_all:
        return with_maps(_except(parts, len(types)), types)
    return with_maps(word.join(f"({part})" for part in parts), types)


def _except(parts: Sequence[str], width: int) -> str:
    """Return EXCEPT as the join that Spark makes of it.

    Spark first tries to make a filter of an EXCEPT of one table, and fails if the condition reads a column that a step
    has computed and that the EXCEPT does not have.
    """
    columns = ", ".join(f"t0.{column(index)}" for index in range(width))
    joins = "".join(
        f" LEFT ANTI JOIN ({part}) t{number} ON "
        + " AND ".join(f"t0.{column(index)} <=> t{number}.{column(index)}" for index in range(width))
        for number, part in enumerate(parts[1:], 1)
    )
    return f"SELECT DISTINCT {columns} FROM ({parts[0]}) t0{joins}"


def _as_types(planner: BatchPlanner, node: logical.Node, types: Sequence[DataType]) -> str:
    """Cast the rows of a part of a set operation to the types of the whole."""
    pairs = [
        (spark_type(actual), spark_type(expected)) for actual, expected in zip(node.schema.types, types, strict=True)
    ]
    texts = [
        column(index) if actual == expected else f"CAST({column(index)} AS {expected})"
        for index, (actual, expected) in enumerate(pairs)
    ]
    return select(texts, planner.query(node))


def sort(planner: BatchPlanner, node: logical.Sort) -> str:
    """Sort or limit the rows."""
    rest = f" ORDER BY {order_text(node.keys)}" if node.keys else ""
    rest += "" if node.fetch is None else f" LIMIT {node.fetch}"
    rest += f" OFFSET {node.offset}" if node.offset else ""
    return f"SELECT * FROM ({planner.query(node.input)}){rest}"


def passed_on(planner: BatchPlanner, node: logical.WatermarkAssigner) -> str:
    """Return the input unchanged: a batch has all rows, and needs no watermark."""
    return planner.query(node.input)


_WORDS: Final = {
    JoinType.INNER: "JOIN",
    JoinType.LEFT: "LEFT JOIN",
    JoinType.RIGHT: "RIGHT JOIN",
    JoinType.FULL: "FULL JOIN",
    JoinType.SEMI: "LEFT SEMI JOIN",
    JoinType.ANTI: "LEFT ANTI JOIN",
}
_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})


@dataclass
class _Sides:
    """The expressions that become additional columns of each side."""

    width: int
    left: list[Typed] = field(default_factory=list)
    right: list[Typed] = field(default_factory=list)

    def name(self, index: int) -> str:
        """Return the qualified name of a column of either side."""
        return f"l.{column(index)}" if index < self.width else f"r.{column(index - self.width)}"

    def text(self, expression: Typed) -> str | None:
        """Return a part of the condition; None if it reads both sides and Spark evaluates it differently."""
        native = join_text(expression, self.width, self.name)
        if native is not None:
            return native
        read = {node.index for node in expression.walk() if isinstance(node, Field)}
        if all(index < self.width for index in read):
            return f"l.k{_added(self.left, expression)}"
        if all(index >= self.width for index in read):
            return f"r.k{_added(self.right, _shifted(expression, self.width))}"
        if isinstance(expression, FunctionCall) and expression.function in _COMPARISONS:
            operands = [self.text(operand) for operand in expression.operands]
            texts = [text for text in operands if text is not None]
            if len(texts) == len(operands):
                if expression.function == "=" and is_key(expression, self.width):
                    return equality_of_keys(texts)
                return NATIVE[expression.function](expression, texts)
        return None


def _added(expressions: list[Typed], expression: Typed) -> int:
    expressions.append(expression)
    return len(expressions) - 1


def _shifted(expression: Typed, by: int) -> Typed:
    return transformed(
        expression, lambda node: replace(node, index=node.index - by) if isinstance(node, Field) else node
    )


def join(planner: BatchPlanner, node: logical.Join) -> str:
    """Plan a join of any type."""
    chain = build_join_chain(planner, node)
    if chain is not None:
        return chain.query()
    width = len(node.left.schema)
    sides = _Sides(width)
    native, rest = [], []
    for part in conjuncts(node.condition):
        text = sides.text(part)
        if text is None:
            rest.append(part)
        else:
            native.append(text)
    if rest and node.join_type is not JoinType.INNER:
        raise UnsupportedError(
            f"a {node.join_type.value} join whose condition compares both sides by functions that Spark does not have "
            f"is not supported in batch: {node_text(node)}. Compute what is compared in a column of each side before"
        )
    left, right = _side(planner, node.left, sides.left), _side(planner, node.right, sides.right)
    has_right = node.join_type not in (JoinType.SEMI, JoinType.ANTI)
    count = width + (len(node.right.schema) if has_right else 0)
    select_list = ", ".join(f"{sides.name(index)} AS {column(index)}" for index in range(count)) or "true AS c0"
    condition = " AND ".join(native) or "true"
    query = f"SELECT {select_list} FROM ({left}) l {_WORDS[node.join_type]} ({right}) r ON {condition}"
    return _filtered(planner, node, query, rest) if rest else query


def looked_up(planner: BatchPlanner, node: logical.TemporalJoin) -> str:
    """Plan a lookup join as a regular join: in batch, a table has the same rows for both."""
    if node.left.schema[node.time.index].time is not TimeAttribute.PROCTIME:
        raise UnsupportedError(
            "FOR SYSTEM_TIME AS OF an event time is not supported in batch, where a table has its last rows alone: "
            f"{node_text(node)}. Run the query in STREAMING or MICRO_BATCH, or keep the versions as rows with the time "
            "from which each holds, and join by conditions on it"
        )
    return join(
        planner,
        logical.Join(
            schema=node.schema, left=node.left, right=node.right, join_type=node.join_type, condition=node.condition
        ),
    )


def _side(planner: BatchPlanner, node: logical.Node, more: Sequence[Typed]) -> str:
    """Return the rows of one side, with additional columns k0, k1 and so on."""
    query = planner.query(node)
    if not more:
        return query
    columns = [column(index) for index in range(len(node.schema))]
    source = planner.over(query, node.schema, more, range(len(node.schema)))
    added = [f"{text} AS k{index}" for index, text in enumerate(source.texts)]
    return f"SELECT {', '.join([*columns, *added])} FROM ({source.query})"


def _filtered(planner: BatchPlanner, node: logical.Join, query: str, rest: Sequence[Typed]) -> str:
    """Keep the pairs for which the rest of the condition is true."""
    condition = rest[0] if len(rest) == 1 else FunctionCall(BooleanType(), "AND", tuple(rest))
    schema = node.left.schema.joined(node.right.schema)
    source = planner.over(query, schema, [condition], range(len(schema)))
    return select([column(index) for index in range(len(schema))], source.query, f" WHERE {source.texts[0]}")
