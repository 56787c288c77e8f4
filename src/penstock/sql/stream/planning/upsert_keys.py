"""Properties of updated rows: the columns that identify them, and how the other columns change.

`UpsertKeys` finds the columns that identify rows, so that a row replaces the previous one with the same values in them.
A `Course` is how a column changes when its row is updated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from enum import Enum
from typing import Final, TypeGuard

from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.select import find_origin_column, find_window_edges, group_keys, is_of_windows
from penstock.sql.data import types
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.nodes import INSERTS, Changes, JoinType, TimeAttribute
from penstock.sql.optimizer.pushdown import Calc, extract_join_keys
from penstock.sql.typed import Constant, Field, FunctionCall, Typed, conjuncts

Keys = frozenset[frozenset[int]]
#: the edges (0 for the start, 1 for the end, 2 for the time) that distinguish a window from others of its kind
_TELLING: Final = {"TUMBLE": (0, 1, 2), "HOP": (0, 1, 2), "CUMULATE": (1, 2), "SESSION": (1, 2)}
_NONE: Keys = frozenset()
#: integer types, the shortest first
_WHOLE: Final[tuple[type[types.DataType], ...]] = (
    types.TinyIntType,
    types.SmallIntType,
    types.IntType,
    types.BigIntType,
)


class UpsertKeys:
    """Finds the sets of columns that identify the rows of a node at any time.

    Args:
        find_row_key: returns the primary key of a table.
        extract_calc: combines the filters and projections from a node down.
        calls: builds the remainders of conditions.
        is_removed: returns whether a DISTINCT passes on the rows and changes of its input.
        is_by_key: returns whether a process table function updates rows without their previous ones.
    """

    def __init__(
        self,
        find_row_key: Callable[[logical.Scan], Sequence[int]],
        extract_calc: Callable[[logical.Node], Calc],
        calls: Calls,
        is_removed: Callable[[logical.Distinct], bool],
        is_by_key: Callable[[logical.ProcessTableFunction], bool],
    ) -> None:
        self._find_row_key = find_row_key
        self._extract_calc = extract_calc
        self._calls = calls
        self._is_removed = is_removed
        self._is_by_key = is_by_key

    def of(self, node: logical.Node) -> Keys:
        """Return the upsert keys of a node."""
        return with_one_edge(node, self._derive_keys(node))

    def _derive_keys(self, node: logical.Node) -> Keys:
        match node:
            case logical.Scan():
                key = self._find_row_key(node)
                return frozenset({frozenset(key)}) if key else _NONE
            case logical.StreamRows(key=key):
                return frozenset({frozenset(key)}) if key else _NONE
            case logical.RejectedRows(table=table, key=key):
                return frozenset({frozenset(key)}) if key and self._find_row_key(table) else _NONE
            case logical.Sort(offset=offset, fetch=fetch) if fetch is not None:
                return self._replaced((), offset + 1, offset + fetch, node.input)
            case logical.WatermarkAssigner() | logical.ChangelogNormalize() | logical.Sort():
                return self.of(node.input)
            case logical.Filter() | logical.Project():
                calc = self._extract_calc(node)
                input_keys = self.of(calc.input)
                return input_keys if calc.expressions is None else projected(input_keys, calc.expressions)
            case logical.Aggregate(keys=keys, sets=()):
                return frozenset({frozenset(range(len(keys)))})
            case logical.Distinct() if self._is_removed(node):
                return self.of(node.input)
            case logical.Distinct():
                return frozenset({frozenset(range(len(node.schema)))})
            case logical.TemporalJoin():
                return self.of(node.left)
            case logical.LookupJoin():
                is_one = bool(node.table.key) and set(node.table.key) <= set(node.key)
                return self.of(node.input) if is_one else _NONE
            case logical.Over():
                return _having(self.of(node.input), node.partition)
            case logical.Rank():
                return self._ranked(node)
            case logical.FromChangelog(partition=partition) if node.is_upsert:
                return frozenset({frozenset(range(len(partition)))})
            case logical.ProcessTableFunction(tables=(table, *_)) if table.partition and self._is_by_key(node):
                return frozenset({frozenset(range(len(table.partition)))})
            case logical.Join():
                return _joined(node, self.of(node.left), self.of(node.right), self._calls)
            case _:
                return _NONE

    def _ranked(self, node: logical.Rank) -> Keys:
        if node.shows_number and node.end != node.start:
            return frozenset({frozenset((*node.partition, len(node.input.schema)))})
        return self._replaced(node.partition, node.start, node.end, node.input)

    def _replaced(self, partition: Sequence[int], start: int, end: int | None, rows: logical.Node) -> Keys:
        """Return the upsert keys of a top-N, unless they contain the row number.

        If the range does not start at 1, an update replaces the row with the same number. The row that had the number
        need not have changed itself, so the input's keys are not keys of the output.
        """
        if end == start:
            return frozenset({frozenset(partition)})
        return _having(self.of(rows), partition) if start == 1 else _NONE

    def least(self, node: logical.Node, among: Collection[int]) -> Sequence[int] | None:
        """Return a key of a node that includes all these columns, or None."""
        return min((sorted(key) for key in self.of(node) if key >= set(among)), default=None)


def with_one_edge(node: logical.Node, keys: Keys) -> Keys:
    """Add keys with one or two window edges instead of all, if these determine the others.

    Windows of TUMBLE and HOP have a fixed length. Several CUMULATE windows start together, and a session may start
    where an earlier, already fired one started. Sessions of several keys may end together, so one edge identifies a
    session only together with its partition columns.
    """
    if not isinstance(node, logical.Aggregate | logical.Distinct | logical.Rank | logical.Join):
        return keys
    all_keys = set(keys)
    for key in keys:
        of_window = _edges(node, key)
        if of_window is not None:
            window, edges = of_window
            rest = key - frozenset(edges)
            if not _tells_sessions_apart(node, window, rest):
                continue
            telling = [column for column, edge in edges.items() if edge in _TELLING[window.kind]]
            all_keys |= {rest | {column, other} for column in telling for other in edges}
    return frozenset(all_keys)


def _tells_sessions_apart(node: logical.Node, window: logical.WindowTable, columns: Collection[int]) -> bool:
    """Return whether the columns include the windows' partition columns. A window aggregate always groups by them."""
    if not window.partition or isinstance(node, logical.Aggregate | logical.Distinct):
        return True
    if not isinstance(node, logical.Rank):
        return False
    inputs = [column for column in columns if column < len(node.input.schema)]
    return set(window.partition) <= {find_origin_column(node.input, column, window) for column in inputs}


def _edges(node: logical.Node, key: frozenset[int]) -> tuple[logical.WindowTable, dict[int, int]] | None:
    """Return the window whose start and end are among these columns, and its edges, see `find_window_edges`."""
    if not isinstance(node, logical.Aggregate | logical.Distinct):
        return find_window_edges(node, key)
    below = group_keys(node)
    if not is_of_windows(node) or not key <= set(range(len(below))):
        return None
    window_edges = find_window_edges(node.input, [below[column] for column in key])
    return window_edges and (
        window_edges[0],
        {column: window_edges[1][below[column]] for column in key if below[column] in window_edges[1]},
    )


def projected(keys: Keys, expressions: Sequence[Typed]) -> Keys:
    """Return the keys whose columns are all kept by a projection."""
    positions: dict[int, int] = {}
    for position, expression in enumerate(expressions):
        column = find_column(expression)
        if column is not None:
            positions.setdefault(column.index, position)
    return frozenset(frozenset(positions[column] for column in key) for key in keys if key <= positions.keys())


def find_column(expression: Typed) -> Field | None:
    """Return the column that an expression reads, ignoring casts that keep distinct values distinct; else None."""
    if isinstance(expression, FunctionCall) and expression.function == "CAST":
        (operand,) = expression.operands
        if _tells_apart(operand.type, expression.type):
            expression = operand
    return expression if isinstance(expression, Field) else None


def _tells_apart(source: types.DataType, to: types.DataType) -> bool:
    """Return whether a cast keeps distinct values distinct."""
    if source.nullable() == to.nullable():
        return True
    if type(source) in _WHOLE:
        return type(to) in _WHOLE[_WHOLE.index(type(source)) :] or _is_text(to, types.LENGTH_MAX)
    return isinstance(source, types.CharType | types.VarCharType) and _is_text(to, source.length)


def _is_text(kind: types.DataType, length: int) -> bool:
    return isinstance(kind, types.VarCharType) and kind.length >= length


def _joined(node: logical.Join, left: Keys, right: Keys, calls: Calls) -> Keys:
    width = len(node.left.schema)
    on = extract_join_keys(node.condition, width, calls)
    columns = [
        {expression.index for expression in side if isinstance(expression, Field)} for side in (on.left, on.right)
    ]
    if any(len(indices) != len(set(side)) for indices, side in zip(columns, (on.left, on.right), strict=True)):
        return _NONE  # joined by computed values, whose columns are unknown
    mine, others = _having(left, columns[0]), _having(right, columns[1])
    if node.join_type in (JoinType.SEMI, JoinType.ANTI):
        return mine
    moved = frozenset(frozenset(column + width for column in key) for key in others)
    joined_keys = {key | other for key in mine for other in moved}
    if node.join_type.keeps_left and node.join_type.keeps_right:
        # Unmatched rows of both sides are indistinguishable if all columns of both keys are NULL.
        columns_of_both = [*node.left.schema, *node.right.schema]
        joined_keys = {
            key for key in joined_keys if not all(columns_of_both[column].type.is_nullable for column in key)
        }
    if any(key <= columns[1] for key in right) and not node.join_type.keeps_right:
        joined_keys |= mine
    if any(key <= columns[0] for key in left) and not node.join_type.keeps_left:
        joined_keys |= moved
    return frozenset(joined_keys)


def _having(keys: Keys, columns: Collection[int]) -> Keys:
    """Return the keys that include all these columns. Rows with another key may go to different subtasks."""
    return frozenset(key for key in keys if key >= set(columns))


class Course(Enum):
    """How a column changes when its row is updated."""

    CONSTANT = "stays"
    INCREASING = "grows"
    DECREASING = "falls"
    UNKNOWN = "may do either"


def unique_key(node: logical.Node) -> frozenset[int] | None:
    """Return columns that updates leave unchanged and that are unique at any time, or None if unknown."""
    match node:
        case logical.Project():
            inner = unique_key(node.input)
            positions = {
                expression.index: position
                for position, expression in enumerate(node.expressions)
                if isinstance(expression, Field)
            }
            if inner is None or not inner <= positions.keys():
                return None
            return frozenset(positions[index] for index in inner)
        case logical.Aggregate(sets=()):
            return frozenset(range(len(node.keys)))
        case _:
            return None


def courses(node: logical.Node, changes: Callable[[logical.Node], Changes]) -> list[Course]:
    """Return how each column of a node changes."""
    match node:
        case logical.Project():
            inner = courses(node.input, changes)
            # A processing time is the arrival time of a row, even if rows do not carry it.
            is_time = [column.time is TimeAttribute.PROCTIME for column in node.schema]
            return [
                Course.UNKNOWN if is_late else _course(expression, inner)
                for expression, is_late in zip(node.expressions, is_time, strict=True)
            ]
        case logical.Aggregate(sets=()) if changes(node.input) == INSERTS:
            return [Course.CONSTANT] * len(node.keys) + [_course_of_call(call, node.input) for call in node.calls]
        case _:
            return [Course.UNKNOWN] * len(node.schema)


def _course(expression: Typed, inner: list[Course]) -> Course:
    if isinstance(expression, Field):
        return inner[expression.index]
    return Course.CONSTANT if isinstance(expression, Constant) else Course.UNKNOWN


def _course_of_call(call: logical.AggregateCall, rows: logical.Node) -> Course:
    if call.function in ("COUNT", "MAX"):
        return Course.INCREASING
    if call.function == "MIN":
        return Course.DECREASING
    if call.function in ("SUM", "SUM0", "$SUM0"):
        sign = _sign(call.operands[0], rows)
        return Course.INCREASING if sign > 0 else Course.DECREASING if sign < 0 else Course.UNKNOWN
    return Course.UNKNOWN


def _sign(value: Typed, rows: logical.Node) -> int:
    """Return 1 if a value is never negative, -1 if it is never positive, 0 if unknown."""
    while isinstance(value, Field):
        if isinstance(rows, logical.Project):
            value, rows = rows.expressions[value.index], rows.input
        elif isinstance(rows, logical.Filter):
            signs = [_infer_sign(part, value.index) for part in conjuncts(rows.condition)]
            if any(signs):
                return next(sign for sign in signs if sign)
            rows = rows.input
        else:
            return 0
    if not isinstance(value, Constant):
        return 0
    return 1 if _is_number(value.value) and value.value >= 0 else -1 if _is_number(value.value) else 0


def _infer_sign(condition: Typed, column: int) -> int:
    """Return the sign that a comparison with a constant implies for a column."""
    if not isinstance(condition, FunctionCall) or condition.function not in (">", ">=", "<", "<="):
        return 0
    left, right = condition.operands
    is_that = isinstance(left, Field) and left.index == column
    if not is_that or not isinstance(right, Constant) or not _is_number(right.value):
        return 0
    if condition.function.startswith(">"):
        return 1 if right.value >= 0 else 0
    return -1 if right.value <= 0 else 0


def _is_number(value: object) -> TypeGuard[int | float | Decimal]:
    """Return whether a value is a number other than NaN."""
    return isinstance(value, int | float | Decimal) and value == value
