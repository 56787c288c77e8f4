"""The scopes of DEFINE and MEASURES: names and calls refer to columns of rows of pattern variables."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.base.errors import UnsupportedError
from penstock.table.analyser.aggregation import aggregate_call, contains_aggregate, is_aggregate
from penstock.table.analyser.calls import Calls
from penstock.table.analyser.scalars import ScalarAnalyser
from penstock.table.analyser.scopes import RelationScope
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import TimestampType
from penstock.table.plan.patterns import (
    ALL_ROWS,
    Aggregated,
    MatchedExpression,
    MatchTime,
    Navigation,
    RowReference,
)
from penstock.table.plan.row_schema import TimeAttribute
from penstock.table.sql import syntax
from penstock.table.typed.nodes import Constant, Field, Typed

_LOGICAL = ("FIRST", "LAST")
_PHYSICAL = ("PREV", "NEXT")
_MISSING = ("CLASSIFIER", "MATCH_NUMBER")


class PatternScope:
    """The scope of an expression over a pattern; it collects the references of the expression.

    Args:
        source: the columns of the rows.
        variables: the pattern variables that the expression may name.
        defined: the variable whose condition is defined; None for MEASURES.
    """

    def __init__(self, source: RelationScope, variables: Sequence[str], defined: str | None, calls: Calls) -> None:
        self._source = source
        self._variables = frozenset(variables)
        self._defined = defined
        self._calls = calls
        self._references: list[RowReference] = []
        #: the enclosing FIRST or LAST (whether it is FIRST, and its offset), and the variables named in it
        self._row: tuple[bool, int] | None = None
        self._named: set[str] = set()

    def expression(self, node: syntax.Expression) -> MatchedExpression:
        """Type an expression and return it with its references. Each scope takes one expression."""
        typed = ScalarAnalyser(self, self._calls).typed(node)
        return MatchedExpression(typed, tuple(self._references))

    # --- Scope -------------------------------------------------------------------------------------------------------

    def resolve(self, path: tuple[str, ...], at: int) -> tuple[Typed, tuple[str, ...]]:
        """See `Scope`."""
        variable, column, rest = self.column(path, at)
        self._named.add(variable)
        is_first, offset = self._row or (False, 0)
        if variable == self._defined and not is_first and not offset:
            variable = ALL_ROWS  # the current row is the last one of its own variable, and of all rows
        navigation = Navigation(variable, column.index, column.type, is_first, offset)
        if not navigation.is_current:
            navigation = Navigation(variable, column.index, column.type.nullable(), is_first, offset)
        return self._refer(navigation, column.name), rest

    def column(self, path: tuple[str, ...], at: int) -> tuple[str, Field, tuple[str, ...]]:
        """Return the variable and the column of a path, and the rest of the path."""
        variable = ALL_ROWS
        if len(path) > 1 and path[0] in self._variables:
            variable, path = path[0], path[1:]
        column, rest = self._source.resolve(path, at)
        if not isinstance(column, Field):
            raise ValidationError(f"{'.'.join(path)!r} is no column of the rows that MATCH_RECOGNIZE reads")
        return variable, column, rest

    def subquery(self, node: syntax.Expression, analyser: ScalarAnalyser) -> Typed:
        """See `Scope`."""
        raise ValidationError("a query cannot stand in DEFINE or MEASURES of MATCH_RECOGNIZE")

    def special(self, node: syntax.Expression, analyser: ScalarAnalyser) -> Typed | None:
        """See `Scope`."""
        if not isinstance(node, syntax.Call):
            return None
        if node.name in _LOGICAL or node.name in _PHYSICAL:
            return self._navigated(node, analyser)
        if node.name == "FINAL":
            return analyser.typed(node.operands[0])
        if node.name == "RUNNING":
            raise UnsupportedError(
                "RUNNING is not supported in MATCH_RECOGNIZE: measures are over whole matches, FINAL"
            )
        if node.name in _MISSING:
            raise UnsupportedError(f"{node.name} is not supported in MATCH_RECOGNIZE")
        if node.name in ("MATCH_ROWTIME", "MATCH_PROCTIME"):
            return self._time(node)
        return self._aggregated(node) if is_aggregate(node, self._calls) else None

    # --- what is special ---------------------------------------------------------------------------------------------

    def _refer(self, reference: RowReference, name: str) -> Field:
        if reference not in self._references:
            self._references.append(reference)
        return Field(reference.type, self._references.index(reference), name)

    def _navigated(self, node: syntax.Call, analyser: ScalarAnalyser) -> Typed:
        """Resolve FIRST and LAST with an offset, and PREV and NEXT, which support only the row itself."""
        if self._row is not None:
            raise ValidationError(f"Cannot nest row pattern navigation functions: {node.name} stands in another one")
        if contains_aggregate(node.operands, self._calls):
            raise ValidationError(f"Aggregates cannot stand in {node.name}: call it for columns")
        if not 1 <= len(node.operands) <= 2:
            raise ValidationError(f"{node.name} takes an expression, and a constant offset of rows")
        offset = self._offset(node, analyser)
        if node.name in _PHYSICAL and offset:
            raise UnsupportedError("Flink does not support physical offsets within partition.")
        before, self._named, self._row = self._named, set(), (node.name == "FIRST", offset)
        typed = analyser.typed(node.operands[0])
        named, self._named, self._row = self._named, before | self._named, None
        if not named:
            raise ValidationError(f"{node.name} needs a column of a row")
        if len(named) > 1:
            raise ValidationError(f"{node.name} must be of a single variable, not of {_shown(named)}")
        return typed

    def _offset(self, node: syntax.Call, analyser: ScalarAnalyser) -> int:
        if len(node.operands) == 1:
            return 0 if node.name in _LOGICAL else 1
        offset = analyser.typed(node.operands[1])
        if not isinstance(offset, Constant) or not isinstance(offset.value, int) or offset.value < 0:
            raise ValidationError(f"the offset of {node.name} has to be written as a whole number that is not below 0")
        return offset.value

    def _time(self, node: syntax.Call) -> Typed:
        if self._defined is not None:
            raise ValidationError(f"{node.name} can only be used in MEASURES")
        if node.name == "MATCH_PROCTIME":
            return self._calls.call("PROCTIME", [])
        if not node.operands:
            return self._refer(MatchTime(TimestampType(3, False)), node.name)
        operand = node.operands[0]
        column = self.column(operand.path, operand.at)[1] if isinstance(operand, syntax.Reference) else None
        if len(node.operands) > 1 or column is None or self._source.schema[column.index].time != TimeAttribute.ROWTIME:
            raise ValidationError("MATCH_ROWTIME takes nothing, or a rowtime attribute of the rows")
        return self._refer(MatchTime(column.type.nullable()), node.name)

    def _aggregated(self, node: syntax.Call) -> Typed:
        if self._row is not None or contains_aggregate(node.operands, self._calls):
            raise ValidationError(f"Aggregate expressions cannot be nested: {node.name}")
        if node.is_distinct:
            raise UnsupportedError("DISTINCT aggregates are not supported in MATCH_RECOGNIZE")
        rows = _RowsOfOneVariable(self)
        call = aggregate_call(node, ScalarAnalyser(rows, self._calls), False, False)
        if len(rows.named) > 1:
            raise ValidationError(f"Aggregate must be applied to a single variable, not to {_shown(rows.named)}")
        variable = next(iter(rows.named), ALL_ROWS)
        return self._refer(Aggregated(variable, call), node.name)


class _RowsOfOneVariable:
    """The scope of an aggregate's operands: names refer to columns of each aggregated row."""

    def __init__(self, pattern: PatternScope) -> None:
        self._pattern = pattern
        self.named: set[str] = set()

    def resolve(self, path: tuple[str, ...], at: int) -> tuple[Typed, tuple[str, ...]]:
        """See `Scope`."""
        variable, column, rest = self._pattern.column(path, at)
        self.named.add(variable)
        return column, rest

    def subquery(self, node: syntax.Expression, analyser: ScalarAnalyser) -> Typed:
        """See `Scope`."""
        return self._pattern.subquery(node, analyser)

    def special(self, node: syntax.Expression, analyser: ScalarAnalyser) -> Typed | None:
        """See `Scope`."""
        if isinstance(node, syntax.Call) and node.name in (*_LOGICAL, *_PHYSICAL):
            raise ValidationError(f"{node.name} cannot stand in an aggregate of MATCH_RECOGNIZE")
        return None


def _shown(variables: set[str]) -> str:
    return " and ".join(sorted(variable or "all rows" for variable in variables))
