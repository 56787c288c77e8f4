"""An executable MATCH_RECOGNIZE: converts batches to kept rows, and matches to batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from penstock.core.patterns.matcher import Matcher
from penstock.core.patterns.pattern import Contiguity, Pattern, Stage, Times
from penstock.core.patterns.skipping import SkipStrategy
from penstock.table.data.logical_types import BooleanType, DataType
from penstock.table.data.values import values_of
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.functions.definition import Session
from penstock.table.plan.logical import SortKey
from penstock.table.plan.patterns import ALL_ROWS, MatchedExpression, Navigation, RowReference, Variable
from penstock.table.streaming.patterns.conditions import Conditions, MatchedValues, split
from penstock.table.streaming.patterns.kept_rows import KeptRows
from penstock.table.streaming.patterns.references import Matched, Row, reader_of
from penstock.table.streaming.rows.ordering import sort_keys
from penstock.table.typed.nodes import Field, Typed, transformed

#: a kept row, and for each variable whether the part of its condition that reads only the row is true
Offered: TypeAlias = tuple[Row, tuple[bool, ...]]


@dataclass(frozen=True, slots=True)
class MatchSpecification:
    """A planned pattern, with the names and types of the input columns; see `MatchRecognize`."""

    names: tuple[str, ...]
    types: tuple[DataType, ...]
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    pattern: tuple[Variable, ...]
    strategy: SkipStrategy
    within_ms: int | None
    measures: tuple[MatchedExpression, ...]


def pattern_of(variables: Sequence[Variable], within_ms: int | None) -> Pattern:
    """Convert variables to stages of the pattern engine. Rows of one variable are strictly contiguous."""
    return Pattern(tuple(_stage(number, one) for number, one in enumerate(variables)), within_ms)


def _stage(number: int, one: Variable) -> Stage:
    is_fixed = one.least == one.most or (one.least, one.most) == (0, 1)
    times = Times(
        max(1, one.least),
        one.most,
        is_optional=one.least == 0,
        is_greedy=not one.is_reluctant and not is_fixed,
        inner=Contiguity.STRICT,
    )
    return Stage(one.name, number, Contiguity.STRICT, times)


class MatchProgram:
    """See the module docstring."""

    def __init__(self, specification: MatchSpecification, session: Session) -> None:
        variables = specification.pattern
        self.matcher = Matcher(pattern_of(variables, specification.within_ms), specification.strategy)
        kept = KeptRows(specification.types)
        parts = [split(one, number == 0, session) for number, one in enumerate(variables)]
        for one in parts:
            if one.of_match is not None:
                kept.refer(one.of_match.references)
        expressions, references = _joined([*_partition(specification), *specification.measures])
        kept.refer(references)
        self._order = tuple(replace(one, index=kept.column(one.index)) for one in specification.order[1:])
        self.conditions = Conditions(variables, parts, kept, session)
        readers = [reader_of(one, [one.name for one in variables], None, kept) for one in references]
        self._measures = MatchedValues(expressions, [one.type for one in references], readers, session)
        self._kept = kept.types
        self._asked = [number for number, one in enumerate(parts) if one.of_row is not None]
        of_rows = [one.of_row for one in parts if one.of_row is not None]
        self._count = len(variables)
        self._take = Evaluator([*kept.expressions, *of_rows], session)

    @property
    def is_sorted_further(self) -> bool:
        """Whether ORDER BY sorts rows of the same time."""
        return bool(self._order)

    def offered(self, columns: pa.RecordBatch) -> list[Offered]:
        """Return the rows of a batch. Raises `TableRuntimeError` for values that a function rejects."""
        count = columns.num_rows
        arrays = self._take(Columns.of(columns))
        width = len(self._kept)
        values = [values_of(array, kind) for array, kind in zip(arrays[:width], self._kept, strict=True)]
        rows = list(zip(*values, strict=True)) if values else [()] * count
        flags = [[True] * count for _ in range(self._count)]
        for number, array in zip(self._asked, arrays[width:], strict=True):
            flags[number] = [answer is True for answer in values_of(array, BooleanType())]
        return list(zip(rows, zip(*flags, strict=True), strict=True))

    def in_order(self, rows: list[Offered]) -> list[Offered]:
        """Sort rows of the same time by ORDER BY."""
        if not self._order or len(rows) < 2:
            return rows
        keys = sort_keys(self._order, self._kept, [row for row, _ in rows])
        return [rows[index] for index in sorted(range(len(rows)), key=keys.__getitem__)]

    def measured(self, matches: Sequence[Matched]) -> list[pa.Array]:
        """Return the output columns for matches."""
        return self._measures(matches)


def _partition(specification: MatchSpecification) -> list[MatchedExpression]:
    """Return the partition columns, which are the same in all rows of a match."""
    found = []
    for index in specification.partition:
        kind = specification.types[index]
        found.append(MatchedExpression(Field(kind, 0), (Navigation(ALL_ROWS, index, kind, True),)))
    return found


def _joined(expressions: Sequence[MatchedExpression]) -> tuple[list[Typed], list[RowReference]]:
    """Rewrite expressions over one combined list of references. Returns both."""
    references: list[RowReference] = []

    def moved(one: MatchedExpression) -> Typed:
        for reference in one.references:
            if reference not in references:
                references.append(reference)

        def change(node: Typed) -> Typed:
            if not isinstance(node, Field):
                return node
            return Field(node.type, references.index(one.references[node.index]), node.name)

        return transformed(one.expression, change)

    return [moved(one) for one in expressions], references
