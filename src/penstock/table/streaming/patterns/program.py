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
from penstock.table.data.values import to_values
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.functions.definition import Session
from penstock.table.plan.logical import SortKey
from penstock.table.plan.patterns import ALL_ROWS, MatchedExpression, Navigation, RowReference, Variable
from penstock.table.streaming.patterns.conditions import Conditions, MatchedValues, split
from penstock.table.streaming.patterns.kept_rows import KeptRows
from penstock.table.streaming.patterns.references import Matched, Row, build_reader
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


def build_pattern(variables: Sequence[Variable], within_ms: int | None) -> Pattern:
    """Convert variables to stages of the pattern engine. Rows of one variable are strictly contiguous."""
    return Pattern(tuple(_stage(number, variable) for number, variable in enumerate(variables)), within_ms)


def _stage(number: int, variable: Variable) -> Stage:
    is_fixed = variable.least == variable.most or (variable.least, variable.most) == (0, 1)
    times = Times(
        max(1, variable.least),
        variable.most,
        is_optional=variable.least == 0,
        is_greedy=not variable.is_reluctant and not is_fixed,
        inner=Contiguity.STRICT,
    )
    return Stage(variable.name, number, Contiguity.STRICT, times)


class MatchProgram:
    """See the module docstring."""

    def __init__(self, specification: MatchSpecification, session: Session) -> None:
        variables = specification.pattern
        self.matcher = Matcher(build_pattern(variables, specification.within_ms), specification.strategy)
        kept_rows = KeptRows(specification.types)
        parts = [split(variable, number == 0, session) for number, variable in enumerate(variables)]
        for part in parts:
            if part.of_match is not None:
                kept_rows.refer(part.of_match.references)
        expressions, references = _joined([*_partition(specification), *specification.measures])
        kept_rows.refer(references)
        self._order = tuple(replace(key, index=kept_rows.column(key.index)) for key in specification.order[1:])
        self.conditions = Conditions(variables, parts, kept_rows, session)
        readers = [
            build_reader(reference, [variable.name for variable in variables], None, kept_rows)
            for reference in references
        ]
        self._measures = MatchedValues(expressions, [reference.type for reference in references], readers, session)
        self._kept = kept_rows.types
        self._asked = [number for number, condition in enumerate(parts) if condition.of_row is not None]
        of_rows = [condition.of_row for condition in parts if condition.of_row is not None]
        self._count = len(variables)
        self._take = Evaluator([*kept_rows.expressions, *of_rows], session)

    @property
    def is_sorted_further(self) -> bool:
        """Whether ORDER BY sorts rows of the same time."""
        return bool(self._order)

    def offered(self, columns: pa.RecordBatch) -> list[Offered]:
        """Return the rows of a batch. Raises `TableRuntimeError` for values that a function rejects."""
        count = columns.num_rows
        arrays = self._take(Columns.of(columns))
        width = len(self._kept)
        values = [to_values(array, kind) for array, kind in zip(arrays[:width], self._kept, strict=True)]
        rows = list(zip(*values, strict=True)) if values else [()] * count
        flags = [[True] * count for _ in range(self._count)]
        for number, array in zip(self._asked, arrays[width:], strict=True):
            flags[number] = [answer is True for answer in to_values(array, BooleanType())]
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
    expressions = []
    for index in specification.partition:
        kind = specification.types[index]
        expressions.append(MatchedExpression(Field(kind, 0), (Navigation(ALL_ROWS, index, kind, True),)))
    return expressions


def _joined(expressions: Sequence[MatchedExpression]) -> tuple[list[Typed], list[RowReference]]:
    """Rewrite expressions over one combined list of references. Returns both."""
    references: list[RowReference] = []

    def moved(expression: MatchedExpression) -> Typed:
        for reference in expression.references:
            if reference not in references:
                references.append(reference)

        def change(node: Typed) -> Typed:
            if not isinstance(node, Field):
                return node
            return Field(node.type, references.index(expression.references[node.index]), node.name)

        return transformed(expression.expression, change)

    return [moved(expression) for expression in expressions], references
