"""MATCH_RECOGNIZE in a logical plan. Its expressions are over references to matched rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.patterns.skipping import SkipStrategy
from penstock.table.data.logical_types import DataType
from penstock.table.plan.logical import AggregateCall, SortKey, Unary
from penstock.table.typed.nodes import Typed

#: the variable that contains all rows of a match
ALL_ROWS = ""


@dataclass(frozen=True, slots=True)
class Navigation:
    """A column of one row of a variable: the row `offset` rows after the first one, or before the last one."""

    variable: str
    column: int
    type: DataType
    is_first: bool = False
    offset: int = 0

    @property
    def is_current(self) -> bool:
        """Whether it is the last row of the match: in a condition, the row under test."""
        return self.variable == ALL_ROWS and not self.is_first and not self.offset


@dataclass(frozen=True, slots=True)
class Aggregated:
    """An aggregate over all rows of a variable. Its operands are over columns of the input."""

    variable: str
    call: AggregateCall

    @property
    def type(self) -> DataType:
        """The type of its result."""
        return self.call.type


@dataclass(frozen=True, slots=True)
class MatchTime:
    """The event time of the match."""

    type: DataType


RowReference: TypeAlias = Navigation | Aggregated | MatchTime


@dataclass(frozen=True, slots=True)
class MatchedExpression:
    """An expression whose field indexes refer to `references`."""

    expression: Typed
    references: tuple[RowReference, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A pattern variable: its condition, if any, and how often it may match."""

    name: str
    condition: MatchedExpression | None
    least: int = 1
    most: int | None = 1
    is_reluctant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchRecognize(Unary):
    """Produces a row per match: the partition columns and the measures."""

    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    pattern: tuple[Variable, ...]
    strategy: SkipStrategy
    within_ms: int | None
    measures: tuple[MatchedExpression, ...]
