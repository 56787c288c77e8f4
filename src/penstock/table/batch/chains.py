"""Joins that follow one another, as one FROM.

Spark finds an order for inner joins that are next to each other, with what WHERE says of them. A projection between two
of them would hide that, so a chain of joins, each the left side of the next, becomes one query. Conditions between them
move behind them all, which keeps the rows the same for joins that keep or drop rows of their left side alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.table.batch.native import native_text
from penstock.table.batch.planning import BatchPlanner, column
from penstock.table.plan import logical
from penstock.table.plan.logical import JoinType
from penstock.table.typed.nodes import FunctionCall, Typed

_WORDS: Final = {
    JoinType.INNER: "JOIN",
    JoinType.LEFT: "LEFT JOIN",
    JoinType.SEMI: "LEFT SEMI JOIN",
    JoinType.ANTI: "LEFT ANTI JOIN",
}


def conjuncts(condition: Typed) -> list[Typed]:
    """The parts of a condition that all have to be true."""
    if isinstance(condition, FunctionCall) and condition.function == "AND":
        return [part for operand in condition.operands for part in conjuncts(operand)]
    return [condition]


@dataclass(slots=True)
class Chain:
    """What stands in FROM, the text of each column, the conditions of WHERE, and how many queries there are."""

    tables: str
    columns: list[str]
    conditions: list[str]
    size: int = 1

    def query(self) -> str:
        """The whole."""
        shown = ", ".join(f"{text} AS {column(index)}" for index, text in enumerate(self.columns))
        rest = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        return f"SELECT {shown or 'true AS c0'} FROM {self.tables}{rest}"


def chain_of(planner: BatchPlanner, node: logical.Node) -> Chain | None:
    """The chain of joins that a node is, with conditions above it; None where Spark cannot say all of them."""
    if isinstance(node, logical.Filter):
        return _filtered(planner, node)
    return _joined(planner, node) if isinstance(node, logical.Join) else None


def _filtered(planner: BatchPlanner, node: logical.Filter) -> Chain | None:
    if planner.is_shared(node.input) or not isinstance(node.input, logical.Filter | logical.Join):
        return None
    chain = chain_of(planner, node.input)
    if chain is None:
        return None
    texts = [native_text(part, chain.columns.__getitem__) for part in conjuncts(node.condition)]
    if None in texts:
        return None
    chain.conditions += [text for text in texts if text is not None]
    return chain


def _joined(planner: BatchPlanner, node: logical.Join) -> Chain | None:
    word = _WORDS.get(node.join_type)
    if word is None or any(native_text(part, column) is None for part in conjuncts(node.condition)):
        return None
    chain = None if planner.is_shared(node.left) else chain_of(planner, node.left)
    if chain is None:
        left = [f"t0.{column(index)}" for index in range(len(node.left.schema))]
        chain = Chain(f"({planner.query(node.left)}) t0", left, [])
    name = f"t{chain.size}"
    both = [*chain.columns, *(f"{name}.{column(index)}" for index in range(len(node.right.schema)))]
    texts = [native_text(part, both.__getitem__) for part in conjuncts(node.condition)]
    condition = " AND ".join(text for text in texts if text is not None)
    tables = f"{chain.tables} {word} ({planner.query(node.right)}) {name} ON {condition or 'true'}"
    has_right = node.join_type in (JoinType.INNER, JoinType.LEFT)
    return Chain(tables, both if has_right else chain.columns, chain.conditions, chain.size + 1)
