"""Conditions of pattern variables, in two parts.

The part that reads only the row itself is evaluated for whole batches as rows arrive. The part that reads matched rows
is evaluated at once for all partial matches of all keys that the next rows are offered to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import BooleanType
from penstock.table.data.values import column_of, values_of
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator, part_of
from penstock.table.functions.definition import Session
from penstock.table.plan.patterns import MatchedExpression, Navigation, RowReference, Variable
from penstock.table.streaming.patterns.kept_rows import KeptRows
from penstock.table.streaming.patterns.references import Matched, Reader, reader_of
from penstock.table.typed.nodes import Field, FunctionCall, Typed, conjuncts, transformed


@dataclass(frozen=True, slots=True)
class SplitCondition:
    """`of_row`: the part over the input columns; `of_match`: the part over row references. None if all rows pass."""

    of_row: Typed | None
    of_match: MatchedExpression | None


def split(variable: Variable, is_first: bool, session: Session) -> SplitCondition:
    """Split a condition. Every row is offered to the first variable; for others, a part that can fail goes to
    `of_match`.
    """
    if variable.condition is None:
        return SplitCondition(None, None)
    of_row: list[Typed] = []
    of_match: list[Typed] = []
    references = variable.condition.references
    for part in conjuncts(variable.condition.expression):
        found = _over_columns(part, references)
        is_asked_of_all = is_first and not of_match
        if found is None or (not is_asked_of_all and part_of(found, session).can_fail):
            of_match.append(part)
        else:
            of_row.append(found)
    rest = MatchedExpression(_all_of(of_match), references) if of_match else None
    return SplitCondition(_all_of(of_row) if of_row else None, rest)


def _all_of(parts: Sequence[Typed]) -> Typed:
    return parts[0] if len(parts) == 1 else FunctionCall(BooleanType(), "AND", tuple(parts))


def _over_columns(part: Typed, references: Sequence[RowReference]) -> Typed | None:
    """Return a part as an expression over the input columns; None if it reads other rows than the current one."""
    read = [references[one.index] for one in part.walk() if isinstance(one, Field)]
    if not all(isinstance(one, Navigation) and one.is_current for one in read):
        return None

    def column(node: Typed) -> Typed:
        if not isinstance(node, Field):
            return node
        reference = references[node.index]
        assert isinstance(reference, Navigation)
        return replace(node, index=reference.column)

    return transformed(part, column)


class MatchedValues:
    """Evaluates expressions over row references, for many matches at once."""

    def __init__(self, expressions: Sequence[Typed], types: Sequence[Any], readers: Sequence[Reader], session: Session):
        self._evaluate = Evaluator(expressions, session)
        self._readers = list(zip(readers, types, strict=True))

    def __call__(self, matches: Sequence[Matched]) -> list[Any]:
        """Return a column for each expression."""
        arrays = [column_of([reader(one) for one in matches], kind) for reader, kind in self._readers]
        return self._evaluate(Columns(arrays, len(matches)))


class Conditions:
    """The `of_match` conditions of all variables, by their positions in the pattern."""

    def __init__(
        self, variables: Sequence[Variable], parts: Sequence[SplitCondition], kept: KeptRows, session: Session
    ) -> None:
        names = [one.name for one in variables]
        self._of_match: dict[int, MatchedValues] = {}
        for number, (variable, part) in enumerate(zip(variables, parts, strict=True)):
            if part.of_match is not None:
                references = part.of_match.references
                readers = [reader_of(one, names, variable.name, kept) for one in references]
                types = [one.type for one in references]
                self._of_match[number] = MatchedValues([part.of_match.expression], types, readers, session)
        #: the variables whose conditions read matched rows
        self.of_match = frozenset(self._of_match)

    def holds(self, number: int, matched: Matched) -> bool:
        """Return whether the condition of a variable is true for one partial match."""
        return self._answers(number, [matched])[0]

    def _answers(self, number: int, matches: Sequence[Matched]) -> list[bool]:
        (column,) = self._of_match[number](matches)
        return [answer is True for answer in values_of(column, BooleanType())]

    def answers(self, asked: Mapping[int, Sequence[Matched]]) -> dict[int, list[bool]]:
        """Return `holds` for many matches.

        Leaves out variables whose condition fails on a row: use `holds` for these.
        """
        found = {}
        for number, matches in asked.items():
            try:
                found[number] = self._answers(number, matches)
            except TableRuntimeError:
                continue
        return found
