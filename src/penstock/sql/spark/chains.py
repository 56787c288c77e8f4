"""Chains of joins as one FROM, and scalar queries for each outer row, such as `(SELECT MAX(x) FROM … WHERE …)`.

**Scalar queries.** The analyser turns such a query into a join with groups. Spark would do that itself, and does it
better: it first moves the condition on the value to the tables that the condition reads, and joins the groups there. An
existing join it can only place after all tables before it. So the join becomes a query again. Both are equivalent if
the value over no rows is NULL, which the join yields for a missing group. Therefore only aggregates that are NULL over
no rows are accepted, and expressions over them that preserve NULL.

**Chains.** Spark reorders adjacent inner joins, using the conditions in WHERE. A projection between two joins would
prevent this, so a chain of joins, each the left side of the next, becomes one query. Conditions between the joins move
after all of them. This keeps the rows the same for joins that only keep or drop rows of their left side.

In a chain, a join with a query that yields one value per row becomes a scalar query. It has no columns for the groups
of its rows, it may appear in a condition or a column but not deeper, and it would run again for each place where it
appears. If this does not fit, the chain is built without scalar queries.

**Hints** of joins name one of the two sides. A side of several tables that is named stays a query of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.sql.data.types import DoubleType, FloatType
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.nodes import AggregateCall, JoinHint, JoinType
from penstock.sql.optimizer.pushdown import is_key
from penstock.sql.spark.aggregates import Over, native_aggregate
from penstock.sql.spark.native import join_text, native_text
from penstock.sql.spark.planning import BatchPlanner, column, declared_table
from penstock.sql.spark.stored import has_maps
from penstock.sql.typed import Constant, Field, FunctionCall, Typed, conjuncts

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
    for side, value in (part.operands, part.operands[::-1]):
        read = [node.index for node in value.walk() if isinstance(node, Field)]
        if isinstance(side, Field) and side.index >= width and read and max(read) < width:
            key = outputs[side.index - width]
            return key if isinstance(key, _Key) else None
    return None


_FLOATING: Final = (FloatType, DoubleType)
_WORDS: Final = {
    JoinType.INNER: "JOIN",
    JoinType.LEFT: "LEFT JOIN",
}
#: the text of a column that a chain lacks
_NOT_THERE: Final = "\0"
_EXISTENCE: Final = {JoinType.SEMI: "EXISTS", JoinType.ANTI: "NOT EXISTS"}


@dataclass(slots=True)
class Chain:
    """The FROM clause, the text of each column, the conditions of WHERE, and the number of joined queries."""

    tables: str
    columns: list[str]
    conditions: list[str]
    size: int = 1
    #: the texts of the scalar queries
    scalars: list[str] = field(default_factory=list)
    #: Spark's hints for the joins
    hints: list[str] = field(default_factory=list)

    def fits(self, query: str) -> bool:
        """Return whether a query uses only columns of the chain, and each scalar query at most once."""
        return _NOT_THERE not in query and all(query.count(scalar) <= 1 for scalar in self.scalars)

    def asks_inside(self, parts: Sequence[Typed]) -> bool:
        """Return whether conditions of a join read a scalar query, or a column that the chain lacks."""
        read = {index for part in parts for index in _read(part) if index < len(self.columns)}
        return any(self.columns[index] in (_NOT_THERE, *self.scalars) for index in read)

    def query(self, texts: Sequence[str] | None = None) -> str:
        """Return the whole query. `texts`: expressions to select instead of the columns."""
        texts = self.columns if texts is None else texts
        select_list = ", ".join(f"{text} AS {column(index)}" for index, text in enumerate(texts))
        rest = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        return f"SELECT {hint_comment(self.hints)}{select_list or 'true AS c0'} FROM {self.tables}{rest}"


def projected(planner: BatchPlanner, node: logical.Project) -> str | None:
    """Return the query of expressions over a chain; None if Spark cannot express all of it."""
    if planner.is_shared(node.input) or any(native_text(expression, column) is None for expression in node.expressions):
        return None
    for has_scalars in (True, False):
        chain = build_join_chain(planner, node.input, has_scalars)
        texts = [] if chain is None else _texts(node.expressions, chain.columns)
        if chain is not None and len(texts) == len(node.expressions):
            query = chain.query(texts)
            if chain.fits(query):
                return query
    return None


def build_join_chain(planner: BatchPlanner, node: logical.Node, has_scalars: bool = False) -> Chain | None:
    """Return the chain of joins in a node, with conditions above it; None if Spark cannot express all of them.

    `has_scalars`: whether joins may become scalar queries; the caller then checks whether the chain fits.
    """
    if isinstance(node, logical.Filter):
        return _filtered(planner, node, has_scalars)
    if isinstance(node, logical.Scan):
        return _first(planner, node)
    return _joined(planner, node, has_scalars) if isinstance(node, logical.Join) else None


def _filtered(planner: BatchPlanner, node: logical.Filter, has_scalars: bool) -> Chain | None:
    if planner.is_shared(node.input) or any(native_text(part, column) is None for part in conjuncts(node.condition)):
        return None
    chain = build_join_chain(planner, node.input, has_scalars)
    if chain is None:
        return None
    texts = [native_text(part, chain.columns.__getitem__) for part in conjuncts(node.condition)]
    if None in texts:
        return None
    chain.conditions += [text for text in texts if text is not None]
    return chain


def _joined(planner: BatchPlanner, node: logical.Join, has_scalars: bool) -> Chain | None:
    parts = conjuncts(node.condition)
    if node.join_type not in (*_WORDS, *_EXISTENCE) or any(native_text(part, column) is None for part in parts):
        return None
    hint = find_hint(node)
    stays_whole = planner.is_shared(node.left) or (hint is not None and hint.is_left)
    chain = None if stays_whole else build_join_chain(planner, node.left, has_scalars)
    chain = chain or _first(planner, node.left)
    if chain.asks_inside(parts):
        return None
    has_scalars = has_scalars and hint is None
    scalar = scalar_query(planner, node, parts, chain.columns, f"t{chain.size}") if has_scalars else None
    if scalar is not None:
        chain.scalars.append(scalar.text)
        indexes = range(len(node.right.schema))
        chain.columns = [*chain.columns, *(scalar.text if index == scalar.place else _NOT_THERE for index in indexes)]
        chain.size += 1
        return chain
    table, columns = _table(planner, node.right, f"t{chain.size}")
    both = [*chain.columns, *columns]
    if node.join_type in _EXISTENCE:
        texts = _join_texts(node, both)
        exists = f"{_EXISTENCE[node.join_type]} (SELECT 1 FROM {table} WHERE {' AND '.join(texts) or 'true'})"
        chain.conditions.append(_member(node, both, table) or exists)
    elif hint is None and _is_query_of_one_row(node):
        chain.columns = [*chain.columns, f"(SELECT {columns[0]} FROM {table})"]
        chain.conditions += _join_texts(node, chain.columns) if node.join_type is JoinType.INNER else []
    else:
        chain.tables += f" {_WORDS[node.join_type]} {table}{_on(node, _join_texts(node, both))}"
        chain.columns = both
        chain.hints += [] if hint is None else [hint_text(hint, "t0", f"t{chain.size}")]
    chain.size += 1
    return chain


#: the hints of Spark, by the strategies of Flink
_HINTS: Final = {
    "BROADCAST": "BROADCAST",
    "SHUFFLE_HASH": "SHUFFLE_HASH",
    "SHUFFLE_MERGE": "MERGE",
    "NEST_LOOP": "SHUFFLE_REPLICATE_NL",
}


def find_hint(node: logical.Join) -> JoinHint | None:
    """Return the first hint of a join that fits it; if none fits, the first one, which Spark may still use."""
    return next((hint for hint in node.hints if _fits(hint, node)), node.hints[0] if node.hints else None)


def _fits(hint: JoinHint, node: logical.Join) -> bool:
    """Return whether Spark can join by a strategy. As in Flink, it does not broadcast a side whose rows are kept."""
    if hint.strategy == "NEST_LOOP":
        return node.join_type is JoinType.INNER
    width = len(node.left.schema)
    if not any(is_key(part, width) for part in conjuncts(node.condition)):
        return False
    if hint.strategy == "SHUFFLE_MERGE":
        return True
    if node.join_type in _EXISTENCE:
        return not hint.is_left
    is_kept = node.join_type.keeps_left if hint.is_left else node.join_type.keeps_right
    return hint.strategy == "SHUFFLE_HASH" or not is_kept


def hint_text(hint: JoinHint, left: str, right: str) -> str:
    """Return a hint of Spark. `left`, `right`: the names of the sides."""
    return f"{_HINTS[hint.strategy]}({left if hint.is_left else right})"


def hint_comment(hints: Sequence[str]) -> str:
    """Return the text of hints after SELECT, followed by a space; empty without hints."""
    return f"/*+ {', '.join(hints)} */ " if hints else ""


def _on(node: logical.Join, conditions: Sequence[str]) -> str:
    """Return the ON clause. An inner join without conditions gets none, because Spark moves less past `ON true`."""
    remaining = [condition for condition in conditions if condition != "true"]
    if not remaining and node.join_type is JoinType.INNER:
        return ""
    return f" ON {' AND '.join(remaining) or 'true'}"


def _first(planner: BatchPlanner, node: logical.Node) -> Chain:
    return Chain(*_table(planner, node, "t0"), [])


def _table(planner: BatchPlanner, node: logical.Node, name: str) -> tuple[str, list[str]]:
    """Return the FROM text and the columns of a node."""
    if isinstance(node, logical.Scan) and not planner.is_shared(node):
        table = declared_table(planner, node)
        return f"{table.source} {name}", table.texts(f"{name}.")
    return f"({planner.query(node)}) {name}", [f"{name}.{column(index)}" for index in range(len(node.schema))]


def _texts(parts: Sequence[Typed], columns: Sequence[str]) -> list[str]:
    """Return the conditions that Spark can evaluate on columns with these texts."""
    return [text for text in (native_text(part, columns.__getitem__) for part in parts) if text is not None]


def _join_texts(node: logical.Join, columns: Sequence[str]) -> list[str]:
    """Return the parts of a join condition that Spark can evaluate on columns with these texts."""
    width = len(node.left.schema)
    texts = [join_text(part, width, columns.__getitem__) for part in conjuncts(node.condition)]
    return [text for text in texts if text is not None]


def _member(node: logical.Join, columns: Sequence[str], table: str) -> str | None:
    """Return a SEMI join as IN, which Spark also applies to equals of the left side. None for other conditions."""
    width = len(node.left.schema)
    left_texts: list[str] = []
    right_texts: list[str] = []
    for part in conjuncts(node.condition):
        if node.join_type is not JoinType.SEMI or not isinstance(part, FunctionCall) or part.function != "=":
            return None
        sides = sorted(part.operands, key=lambda operand: max(_read(operand), default=0))
        if has_maps(sides[0].type) or isinstance(sides[0].type, _FLOATING):
            return None
        if not _read(sides[0]) or not _read(sides[1]):
            return None
        if max(_read(sides[0])) >= width or min(_read(sides[1])) < width:
            return None
        left_texts += _texts(sides[:1], columns)
        right_texts += _texts(sides[1:], columns)
    return f"({', '.join(left_texts)}) IN (SELECT {', '.join(right_texts)} FROM {table})" if left_texts else None


def _read(expression: Typed) -> set[int]:
    return {node.index for node in expression.walk() if isinstance(node, Field)}


def _is_query_of_one_row(node: logical.Join) -> bool:
    """Return whether a join only adds one value: its right side has one row and one column."""
    condition = node.condition
    if node.join_type is JoinType.LEFT and not (isinstance(condition, Constant) and condition.value is True):
        return False
    return len(node.right.schema) == 1 and _has_one_row(node.right)


def _has_one_row(node: logical.Node) -> bool:
    if isinstance(node, logical.Project):
        return _has_one_row(node.input)
    return isinstance(node, logical.Aggregate) and not node.keys and not node.sets
