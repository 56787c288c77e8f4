"""MATCH_RECOGNIZE in a logical plan. Its expressions are over what they refer to in the rows that were matched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.patterns.skipping import SkipStrategy
from penstock.table.data.logical_types import DataType
from penstock.table.plan.logical import AggregateCall, SortKey, Unary
from penstock.table.typed.nodes import Typed

#: the variable that all rows of a match belong to
ALL_ROWS = ""


@dataclass(frozen=True, slots=True)
class Navigation:
    """A column of one row of a variable: the `offset`-th from the first one, or back from the last one."""

    variable: str
    column: int
    type: DataType
    is_first: bool = False
    offset: int = 0

    @property
    def is_current(self) -> bool:
        """Whether it is the last row of all: in a condition, the one that it is asked for."""
        return self.variable == ALL_ROWS and not self.is_first and not self.offset


@dataclass(frozen=True, slots=True)
class Aggregated:
    """An aggregate over all rows of a variable; its operands are over columns of the input."""

    variable: str
    call: AggregateCall

    @property
    def type(self) -> DataType:
        """What it gives."""
        return self.call.type


@dataclass(frozen=True, slots=True)
class MatchTime:
    """The event time of the match."""

    type: DataType


RowReference: TypeAlias = Navigation | Aggregated | MatchTime


@dataclass(frozen=True, slots=True)
class MatchedExpression:
    """An expression whose fields count through `references`."""

    expression: Typed
    references: tuple[RowReference, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a pattern: its condition (None for none), and how often it may come."""

    name: str
    condition: MatchedExpression | None
    least: int = 1
    most: int | None = 1
    is_reluctant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchRecognize(Unary):
    """A row for each match: the columns of the partition, and the measures."""

    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    pattern: tuple[Variable, ...]
    strategy: SkipStrategy
    within_ms: int | None
    measures: tuple[MatchedExpression, ...]
