"""`MatchProgram`, an executable MATCH_RECOGNIZE: converts batches to kept rows, and matches to batches.

`KeptRows` has the values kept of a row until its match completes: only the values that conditions and measures may
still read.

`SplitCondition` splits the condition of a pattern variable into two parts. The part that reads only the row itself is
evaluated for whole batches as rows arrive. The part that reads matched rows is evaluated at once for all partial
matches of all keys that the next rows are offered to.

`MatchedValues` evaluates references for a partial or complete match: values of its rows, and aggregates over them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.runtime.patterns.matcher import Matcher, SkipStrategy
from penstock.runtime.patterns.pattern import Contiguity, Pattern, Stage, Times
from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import BooleanType, DataType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator, compile_expression
from penstock.sql.functions.definition import Session
from penstock.sql.logical import nodes
from penstock.sql.stream.aggregates.accumulators import build_accumulator
from penstock.sql.stream.rows.rows import sort_keys
from penstock.sql.typed import Constant, Field, FunctionCall, Typed, conjuncts, transformed


class KeptRows:
    """The distinct expressions over the input columns whose values a kept row has."""

    def __init__(self, types: Sequence[DataType]) -> None:
        self._inputs = tuple(types)
        self.expressions: list[Typed] = []

    @property
    def types(self) -> list[DataType]:
        """The types of the values of a kept row."""
        return [expression.type for expression in self.expressions]

    def column(self, index: int) -> int:
        """Return the position of a column's value, and keep the value."""
        return self.place(Field(self._inputs[index], index))

    def place(self, expression: Typed) -> int:
        """Return the position of an expression's value, and keep the value."""
        if expression not in self.expressions:
            self.expressions.append(expression)
        return self.expressions.index(expression)

    def refer(self, references: Sequence[nodes.RowReference]) -> None:
        """Keep the values that these references read."""
        for reference in references:
            match reference:
                case nodes.Navigation():
                    self.column(reference.column)
                case nodes.Aggregated(call=call):
                    for operand in call.operands:
                        if not isinstance(operand, Constant):
                            self.place(operand)
                    if call.condition is not None:
                        self.place(call.condition)
                case nodes.MatchTime():
                    pass


#: the kept values of a row
Row: TypeAlias = tuple[Any, ...]
_MILLISECOND_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Matched:
    """The rows of a match by variable. `current`: the row that is tested as the next row.

    `time_ms`: when the match was completed; only complete matches have it.
    """

    rows: Mapping[str, Sequence[Row]]
    current: Row | None = None
    time_ms: int | None = None


#: returns the value of a reference
Reader: TypeAlias = Callable[[Matched], Any]


def build_reader(reference: nodes.RowReference, names: Sequence[str], defined: str | None, kept: KeptRows) -> Reader:
    """Return a function that evaluates a reference.

    Args:
        reference: a reference over columns of the input.
        names: the variables of the pattern in order.
        defined: the variable that the current row would belong to.
        kept: the positions of values in kept rows.
    """
    if isinstance(reference, nodes.Navigation):
        return _navigated(
            reference, _build_row_selector(reference.variable, names, defined), kept.column(reference.column)
        )
    if isinstance(reference, nodes.Aggregated):
        return _aggregated(reference.call, _build_row_selector(reference.variable, names, defined), kept)
    return lambda matched: None if matched.time_ms is None else matched.time_ms * _MILLISECOND_NS


def _build_row_selector(variable: str, names: Sequence[str], defined: str | None) -> Callable[[Matched], Sequence[Row]]:
    if variable == nodes.ALL_ROWS:

        def all_rows(matched: Matched) -> Sequence[Row]:
            rows = [row for name in names for row in matched.rows.get(name, ())]
            return rows if matched.current is None else [*rows, matched.current]

        return all_rows
    if variable == defined:

        def with_current(matched: Matched) -> Sequence[Row]:
            assert matched.current is not None
            return [*matched.rows.get(variable, ()), matched.current]

        return with_current
    return lambda matched: matched.rows.get(variable, ())


def _navigated(reference: nodes.Navigation, rows_of: Callable[[Matched], Sequence[Row]], position: int) -> Reader:
    offset = reference.offset
    index = offset if reference.is_first else -1 - offset

    def read(matched: Matched) -> Any:
        rows = rows_of(matched)
        return rows[index][position] if len(rows) > offset else None

    def read_current(matched: Matched) -> Any:
        return read(matched) if matched.current is None else matched.current[position]

    return read_current if reference.is_current else read


def _aggregated(call: nodes.AggregateCall, rows_of: Callable[[Matched], Sequence[Row]], kept: KeptRows) -> Reader:
    accumulator = build_accumulator(call, False)
    positions = [None if isinstance(operand, Constant) else kept.place(operand) for operand in call.operands]
    constants = [operand.value if isinstance(operand, Constant) else None for operand in call.operands]
    condition = None if call.condition is None else kept.place(call.condition)

    def read(matched: Matched) -> Any:
        state = accumulator.create()
        for row in rows_of(matched):
            if condition is None or row[condition]:
                pairs = zip(positions, constants, strict=True)
                state = accumulator.add(
                    state, tuple([value if position is None else row[position] for position, value in pairs])
                )
        return accumulator.value(state)

    return read


@dataclass(frozen=True, slots=True)
class SplitCondition:
    """`of_row`: the part over the input columns; `of_match`: the part over row references. None if all rows pass."""

    of_row: Typed | None
    of_match: nodes.MatchedExpression | None


def split(variable: nodes.Variable, is_first: bool, session: Session) -> SplitCondition:
    """Split a condition. Every row is offered to the first variable; for others, a part that can fail goes to
    `of_match`.
    """
    if variable.condition is None:
        return SplitCondition(None, None)
    of_row: list[Typed] = []
    of_match: list[Typed] = []
    references = variable.condition.references
    for part in conjuncts(variable.condition.expression):
        rewritten = _over_columns(part, references)
        is_asked_of_all = is_first and not of_match
        if rewritten is None or (not is_asked_of_all and compile_expression(rewritten, session).can_fail):
            of_match.append(part)
        else:
            of_row.append(rewritten)
    rest = nodes.MatchedExpression(_conjoin(of_match), references) if of_match else None
    return SplitCondition(_conjoin(of_row) if of_row else None, rest)


def _conjoin(parts: Sequence[Typed]) -> Typed:
    return parts[0] if len(parts) == 1 else FunctionCall(BooleanType(), "AND", tuple(parts))


def _over_columns(part: Typed, references: Sequence[nodes.RowReference]) -> Typed | None:
    """Return a part as an expression over the input columns; None if it reads other rows than the current one."""
    read = [references[node.index] for node in part.walk() if isinstance(node, Field)]
    if not all(isinstance(reference, nodes.Navigation) and reference.is_current for reference in read):
        return None

    def column(node: Typed) -> Typed:
        if not isinstance(node, Field):
            return node
        reference = references[node.index]
        assert isinstance(reference, nodes.Navigation)
        return replace(node, index=reference.column)

    return transformed(part, column)


class MatchedValues:
    """Evaluates expressions over row references, for many matches at once."""

    def __init__(self, expressions: Sequence[Typed], types: Sequence[Any], readers: Sequence[Reader], session: Session):
        self._evaluate = Evaluator(expressions, session)
        self._readers = list(zip(readers, types, strict=True))

    def __call__(self, matches: Sequence[Matched]) -> list[Any]:
        """Return a column for each expression."""
        arrays = [to_column([reader(match) for match in matches], kind) for reader, kind in self._readers]
        return self._evaluate(Columns(arrays, len(matches)))


class Conditions:
    """The `of_match` conditions of all variables, by their positions in the pattern."""

    def __init__(
        self,
        variables: Sequence[nodes.Variable],
        parts: Sequence[SplitCondition],
        kept_rows: KeptRows,
        session: Session,
    ) -> None:
        names = [variable.name for variable in variables]
        self._of_match: dict[int, MatchedValues] = {}
        for number, (variable, part) in enumerate(zip(variables, parts, strict=True)):
            if part.of_match is not None:
                references = part.of_match.references
                readers = [build_reader(reference, names, variable.name, kept_rows) for reference in references]
                types = [reference.type for reference in references]
                self._of_match[number] = MatchedValues([part.of_match.expression], types, readers, session)
        #: the variables whose conditions read matched rows
        self.of_match = frozenset(self._of_match)

    def holds(self, number: int, matched: Matched) -> bool:
        """Return whether the condition of a variable is true for one partial match."""
        return self._answers(number, [matched])[0]

    def _answers(self, number: int, matches: Sequence[Matched]) -> list[bool]:
        (column,) = self._of_match[number](matches)
        return [answer is True for answer in to_values(column, BooleanType())]

    def answers(self, requests: Mapping[int, Sequence[Matched]]) -> dict[int, list[bool]]:
        """Return `holds` for many matches.

        Leaves out variables whose condition fails on a row: use `holds` for these.
        """
        answers = {}
        for number, matches in requests.items():
            try:
                answers[number] = self._answers(number, matches)
            except TableRuntimeError:
                continue
        return answers


#: a kept row, and for each variable whether the part of its condition that reads only the row is true
Offered: TypeAlias = tuple[Row, tuple[bool, ...]]
#: the same with its time (ms) in front
TimedRow: TypeAlias = tuple[int, Row, tuple[bool, ...]]


@dataclass(frozen=True, slots=True)
class MatchSpecification:
    """A planned pattern, with the names and types of the input columns; see `MatchRecognize`."""

    names: tuple[str, ...]
    types: tuple[DataType, ...]
    partition: tuple[int, ...]
    order: tuple[nodes.SortKey, ...]
    pattern: tuple[nodes.Variable, ...]
    strategy: SkipStrategy
    within_ms: int | None
    measures: tuple[nodes.MatchedExpression, ...]


def build_pattern(variables: Sequence[nodes.Variable], within_ms: int | None) -> Pattern:
    """Convert variables to stages of the pattern engine. Rows of one variable are strictly contiguous."""
    return Pattern(tuple(_stage(number, variable) for number, variable in enumerate(variables)), within_ms)


def _stage(number: int, variable: nodes.Variable) -> Stage:
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
        kept_rows = KeptRows(specification.types)
        parts = [split(variable, number == 0, session) for number, variable in enumerate(variables)]
        for part in parts:
            if part.of_match is not None:
                kept_rows.refer(part.of_match.references)
        expressions, references = _joined([*_partition(specification), *specification.measures])
        kept_rows.refer(references)
        self._order = tuple(replace(key, index=kept_rows.column(key.index)) for key in specification.order[1:])
        self.conditions = Conditions(variables, parts, kept_rows, session)
        self.matcher = Matcher(
            build_pattern(variables, specification.within_ms),
            specification.strategy,
            simple=range(len(variables)),
            partly=self.conditions.of_match,
            tells_timed_out=False,
        )
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

    def arrange(self, rows: Sequence[TimedRow]) -> list[TimedRow]:
        """Sort rows that are in the order of their times by the rest of ORDER BY."""
        ordered: list[TimedRow] = []
        for _, group in groupby(rows, itemgetter(0)):
            of_time = list(group)
            if self._order and len(of_time) > 1:
                keys = sort_keys(self._order, self._kept, [row for _, row, _ in of_time])
                of_time = [of_time[index] for index in sorted(range(len(of_time)), key=keys.__getitem__)]
            ordered += of_time
        return ordered

    def measured(self, matches: Sequence[Matched]) -> list[pa.Array]:
        """Return the output columns for matches."""
        return self._measures(matches)


def _partition(specification: MatchSpecification) -> list[nodes.MatchedExpression]:
    """Return the partition columns, which are the same in all rows of a match."""
    expressions = []
    for index in specification.partition:
        kind = specification.types[index]
        expressions.append(
            nodes.MatchedExpression(Field(kind, 0), (nodes.Navigation(nodes.ALL_ROWS, index, kind, True),))
        )
    return expressions


def _joined(expressions: Sequence[nodes.MatchedExpression]) -> tuple[list[Typed], list[nodes.RowReference]]:
    """Rewrite expressions over one combined list of references. Returns both."""
    references: list[nodes.RowReference] = []

    def moved(expression: nodes.MatchedExpression) -> Typed:
        for reference in expression.references:
            if reference not in references:
                references.append(reference)

        def change(node: Typed) -> Typed:
            if not isinstance(node, Field):
                return node
            return Field(node.type, references.index(expression.references[node.index]), node.name)

        return transformed(expression.expression, change)

    return [moved(expression) for expression in expressions], references
