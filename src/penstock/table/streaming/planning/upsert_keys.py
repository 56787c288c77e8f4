"""By which columns rows are told apart, so that a row may be replaced by another one with the same values in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from penstock.table.analyser.calls import Calls
from penstock.table.analyser.window_properties import edges_of, group_keys, is_of_windows, origin_of
from penstock.table.data.logical_types import (
    LENGTH_MAX,
    BigIntType,
    CharType,
    DataType,
    IntType,
    SmallIntType,
    TinyIntType,
    VarCharType,
)
from penstock.table.plan import logical
from penstock.table.plan.logical import JoinType
from penstock.table.streaming.joins.join_conditions import keys_of
from penstock.table.streaming.rewrites.calc import Calc
from penstock.table.typed.nodes import Field, FunctionCall, Typed

Keys = frozenset[frozenset[int]]
#: which edge of a window (0 for the start, 1 for the end, 2 for the time) tells it from others of its kind
_TELLING: Final = {"TUMBLE": (0, 1, 2), "HOP": (0, 1, 2), "CUMULATE": (1, 2), "SESSION": (1, 2)}
_NONE: Keys = frozenset()
#: whole numbers, the shortest ones first
_WHOLE: Final[tuple[type[DataType], ...]] = (TinyIntType, SmallIntType, IntType, BigIntType)


class UpsertKeys:
    """Finds the sets of columns that tell the rows of a node apart at any time.

    Args:
        key_of: the primary key of a table.
        calc_of: what filters and projections from a node down come to.
        calls: makes what is left of conditions.
        is_removed: whether the rows of a DISTINCT are those of its input, with their changes.
    """

    def __init__(
        self,
        key_of: Callable[[logical.Scan], Sequence[int]],
        calc_of: Callable[[logical.Node], Calc],
        calls: Calls,
        is_removed: Callable[[logical.Distinct], bool],
    ) -> None:
        self._key_of = key_of
        self._calc_of = calc_of
        self._calls = calls
        self._is_removed = is_removed

    def of(self, node: logical.Node) -> Keys:
        """Those of a node."""
        return with_one_edge(node, self._of(node))

    def _of(self, node: logical.Node) -> Keys:
        match node:
            case logical.Scan():
                key = self._key_of(node)
                return frozenset({frozenset(key)}) if key else _NONE
            case logical.StreamRows(key=key):
                return frozenset({frozenset(key)}) if key else _NONE
            case logical.RejectedRows(table=table, key=key):
                return frozenset({frozenset(key)}) if key and self._key_of(table) else _NONE
            case logical.Sort(offset=offset, fetch=fetch) if fetch is not None:
                return self._replaced((), offset + 1, offset + fetch, node.input)
            case logical.WatermarkAssigner() | logical.ChangelogNormalize() | logical.Sort():
                return self.of(node.input)
            case logical.Filter() | logical.Project():
                calc = self._calc_of(node)
                found = self.of(calc.input)
                return found if calc.expressions is None else projected(found, calc.expressions)
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
            case logical.Join():
                return _joined(node, self.of(node.left), self.of(node.right), self._calls)
            case _:
                return _NONE

    def _ranked(self, node: logical.Rank) -> Keys:
        if node.shows_number and node.end != node.start:
            return frozenset({frozenset((*node.partition, len(node.input.schema)))})
        return self._replaced(node.partition, node.start, node.end, node.input)

    def _replaced(self, partition: Sequence[int], start: int, end: int | None, rows: logical.Node) -> Keys:
        """The row that a change of a top-N replaces: the one with its number, where updates show numbers.

        Another row may take a number without a change of the row that had it, so the keys of rows are no keys then.
        """
        if end == start:
            return frozenset({frozenset(partition)})
        return _having(self.of(rows), partition) if start == 1 else _NONE

    def least(self, node: logical.Node, among: Collection[int]) -> Sequence[int] | None:
        """One of those that have all these columns."""
        return min((sorted(key) for key in self.of(node) if key >= set(among)), default=None)


def with_one_edge(node: logical.Node, keys: Keys) -> Keys:
    """The keys, and those that have one or two edges of a window instead of all, where the others follow from them.

    A window of TUMBLE and HOP has one length. Of the windows of CUMULATE several begin together, and a session may
    begin where a former one began, whose rows were late for it. Sessions of several keys may end together, so one edge
    identifies a session only together with its partition columns.
    """
    if not isinstance(node, logical.Aggregate | logical.Distinct | logical.Rank | logical.Join):
        return keys
    found = set(keys)
    for key in keys:
        of_window = _edges(node, key)
        if of_window is not None:
            window, edges = of_window
            rest = key - frozenset(edges)
            if not _tells_sessions_apart(node, window, rest):
                continue
            telling = [column for column, edge in edges.items() if edge in _TELLING[window.kind]]
            found |= {rest | {column, other} for column in telling for other in edges}
    return frozenset(found)


def _tells_sessions_apart(node: logical.Node, window: logical.WindowTable, columns: Collection[int]) -> bool:
    """Whether the columns include the partition of the windows. An aggregate of windows groups by it."""
    if not window.partition or isinstance(node, logical.Aggregate | logical.Distinct):
        return True
    if not isinstance(node, logical.Rank):
        return False
    inputs = [column for column in columns if column < len(node.input.schema)]
    return set(window.partition) <= {origin_of(node.input, column, window) for column in inputs}


def _edges(node: logical.Node, key: frozenset[int]) -> tuple[logical.WindowTable, dict[int, int]] | None:
    """The window whose start and end are among these columns, and which of them are its edges, see `edges_of`."""
    if not isinstance(node, logical.Aggregate | logical.Distinct):
        return edges_of(node, key)
    below = group_keys(node)
    if not is_of_windows(node) or not key <= set(range(len(below))):
        return None
    found = edges_of(node.input, [below[place] for place in key])
    return found and (found[0], {place: found[1][below[place]] for place in key if below[place] in found[1]})


def projected(keys: Keys, expressions: Sequence[Typed]) -> Keys:
    """The keys whose columns are all there still."""
    places: dict[int, int] = {}
    for place, one in enumerate(expressions):
        column = column_of(one)
        if column is not None:
            places.setdefault(column.index, place)
    return frozenset(frozenset(places[column] for column in key) for key in keys if key <= places.keys())


def column_of(expression: Typed) -> Field | None:
    """The column that an expression is, but for a cast that gives different values for different ones."""
    if isinstance(expression, FunctionCall) and expression.function == "CAST":
        (operand,) = expression.operands
        if _tells_apart(operand.type, expression.type):
            expression = operand
    return expression if isinstance(expression, Field) else None


def _tells_apart(found: DataType, to: DataType) -> bool:
    """Whether a cast gives different values for different values."""
    if found.nullable() == to.nullable():
        return True
    if type(found) in _WHOLE:
        return type(to) in _WHOLE[_WHOLE.index(type(found)) :] or _is_text(to, LENGTH_MAX)
    return isinstance(found, CharType | VarCharType) and _is_text(to, found.length)


def _is_text(kind: DataType, length: int) -> bool:
    return isinstance(kind, VarCharType) and kind.length >= length


def _joined(node: logical.Join, left: Keys, right: Keys, calls: Calls) -> Keys:
    width = len(node.left.schema)
    on = keys_of(node.condition, width, calls)
    columns = [{one.index for one in side if isinstance(one, Field)} for side in (on.left, on.right)]
    if any(len(found) != len(set(side)) for found, side in zip(columns, (on.left, on.right), strict=True)):
        return _NONE  # joined by what is computed, of which it is not known where it is
    mine, others = _having(left, columns[0]), _having(right, columns[1])
    if node.join_type in (JoinType.SEMI, JoinType.ANTI):
        return mine
    moved = frozenset(frozenset(column + width for column in key) for key in others)
    found = {one | other for one in mine for other in moved}
    if node.join_type.keeps_left and node.join_type.keeps_right:
        # Rows of either side that have no match are alike where all columns of both keys are NULL.
        columns_of_both = [*node.left.schema, *node.right.schema]
        found = {key for key in found if not all(columns_of_both[column].type.is_nullable for column in key)}
    if any(key <= columns[1] for key in right) and not node.join_type.keeps_right:
        found |= mine
    if any(key <= columns[0] for key in left) and not node.join_type.keeps_left:
        found |= moved
    return frozenset(found)


def _having(keys: Keys, columns: Collection[int]) -> Keys:
    """The keys that have all these columns: other rows of a key may come to another subtask."""
    return frozenset(key for key in keys if key >= set(columns))
