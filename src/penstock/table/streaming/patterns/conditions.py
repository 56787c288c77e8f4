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
from penstock.table.data.values import to_column, to_values
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator, compile_expression
from penstock.table.functions.definition import Session
from penstock.table.plan.patterns import MatchedExpression, Navigation, RowReference, Variable
from penstock.table.streaming.patterns.kept_rows import KeptRows
from penstock.table.streaming.patterns.references import Matched, Reader, build_reader
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
        rewritten = _over_columns(part, references)
        is_asked_of_all = is_first and not of_match
        if rewritten is None or (not is_asked_of_all and compile_expression(rewritten, session).can_fail):
            of_match.append(part)
        else:
            of_row.append(rewritten)
    rest = MatchedExpression(_conjoin(of_match), references) if of_match else None
    return SplitCondition(_conjoin(of_row) if of_row else None, rest)


def _conjoin(parts: Sequence[Typed]) -> Typed:
    return parts[0] if len(parts) == 1 else FunctionCall(BooleanType(), "AND", tuple(parts))


def _over_columns(part: Typed, references: Sequence[RowReference]) -> Typed | None:
    """Return a part as an expression over the input columns; None if it reads other rows than the current one."""
    read = [references[node.index] for node in part.walk() if isinstance(node, Field)]
    if not all(isinstance(reference, Navigation) and reference.is_current for reference in read):
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
        arrays = [to_column([reader(match) for match in matches], kind) for reader, kind in self._readers]
        return self._evaluate(Columns(arrays, len(matches)))


class Conditions:
    """The `of_match` conditions of all variables, by their positions in the pattern."""

    def __init__(
        self, variables: Sequence[Variable], parts: Sequence[SplitCondition], kept_rows: KeptRows, session: Session
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
