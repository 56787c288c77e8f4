"""MATCH_RECOGNIZE: from its clauses to a plan. Clauses that Flink rejects are rejected with Flink's messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from penstock.base.errors import UnsupportedError
from penstock.core.patterns.skipping import Skip, SkipStrategy
from penstock.table.analyser.calls import Calls
from penstock.table.analyser.literals import constant
from penstock.table.analyser.pattern_scopes import PatternScope
from penstock.table.analyser.scalars import ScalarAnalyser
from penstock.table.analyser.scopes import RelationScope
from penstock.table.analyser.select import find_time_attribute, nulls_first
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import BooleanType, DayTimeIntervalType
from penstock.table.plan.logical import SortKey
from penstock.table.plan.patterns import MatchedExpression, MatchRecognize, MatchTime, Navigation, Variable
from penstock.table.plan.row_schema import PlanColumn, RowSchema, TimeAttribute
from penstock.table.sql import relations, syntax, to_sql
from penstock.table.sql.relations import Pattern
from penstock.table.typed.nodes import Field

_NO_BRANCHES: Final = "Currently, CEP doesn't support branching patterns."


def match_recognize(node: relations.MatchRecognize, source: RelationScope, calls: Calls) -> MatchRecognize:
    """Return the plan of a clause over the rows of `source`.

    Raises:
        ValidationError: for invalid names and expressions.
        UnsupportedError: for features that neither Flink nor this planner supports, such as SUBSET and alternatives.
    """
    analyser = ScalarAnalyser(source, calls)
    if node.subsets:
        raise UnsupportedError("SUBSET is not supported in MATCH_RECOGNIZE: name the variables one by one")
    if node.rows_per_match != "ONE ROW PER MATCH":
        raise UnsupportedError("All rows per match mode is not supported yet.")
    definitions = _definitions(node)
    mentioned = [*_names(node.pattern), *definitions]  # as in Flink, a variable may be defined but not used
    pattern = tuple(_Variables(definitions, mentioned, source, calls).of(node.pattern))
    names = [variable.name for variable in pattern]
    partition = tuple(_column(expression, analyser, "PARTITION BY").index for expression in node.partition)
    measures = [
        PatternScope(source, names, None, calls).expression(measure_item.expression) for measure_item in node.measures
    ]
    columns = [source.schema[index] for index in partition]
    columns = [PlanColumn(column.name, column.type) for column in columns]
    for item, measure in zip(node.measures, measures, strict=True):
        assert item.alias is not None
        columns.append(
            PlanColumn(item.alias, measure.expression.type, _find_time_attribute(measure, source.plan.schema))
        )
    return MatchRecognize(
        schema=RowSchema(tuple(columns)),
        input=source.plan,
        partition=partition,
        order=tuple(_sort_key(sort_item, analyser) for sort_item in node.order),
        pattern=pattern,
        strategy=_strategy(node.skip, names),
        within_ms=_within_ms(node),
        measures=tuple(measures),
    )


def _definitions(node: relations.MatchRecognize) -> Mapping[str, syntax.Expression]:
    definitions: dict[str, syntax.Expression] = {}
    for name, expression in node.definitions:
        if name in definitions:
            raise ValidationError(f"Pattern variable '{name}' has already been defined")
        definitions[name] = expression
    return definitions


def _names(pattern: Pattern) -> list[str]:
    """Return all variables of a pattern, including those between {- and -}."""
    return [pattern.variable] if pattern.variable else [name for part in pattern.parts for name in _names(part)]


def _column(node: syntax.Expression, analyser: ScalarAnalyser, clause: str) -> Field:
    column = analyser.typed(node)
    if not isinstance(column, Field):
        raise ValidationError(f"{clause} of MATCH_RECOGNIZE takes columns, and {column} is none")
    return column


def _sort_key(item: syntax.OrderItem, analyser: ScalarAnalyser) -> SortKey:
    column = _column(item.expression, analyser, "ORDER BY")
    return SortKey(column.index, item.is_descending, nulls_first(item.is_descending, item.nulls))


def _find_time_attribute(measure: MatchedExpression, rows: RowSchema) -> TimeAttribute | None:
    """Return the time attribute of a measure: the time of the match, or of one of its rows."""
    expression = measure.expression
    if not isinstance(expression, Field):
        return find_time_attribute(expression)
    reference = measure.references[expression.index]
    if isinstance(reference, Navigation):
        return rows[reference.column].time
    return TimeAttribute.ROWTIME if isinstance(reference, MatchTime) else None


def _strategy(skip: str, names: list[str]) -> SkipStrategy:
    if skip == "PAST LAST ROW":
        return SkipStrategy(Skip.PAST_LAST)
    if skip == "TO NEXT ROW":
        return SkipStrategy(Skip.TO_NEXT)
    _, which, name = skip.split(" ", 2)
    if name not in names:
        raise ValidationError(f"Unknown pattern '{name}': AFTER MATCH SKIP names a variable that PATTERN has not")
    return SkipStrategy(Skip.TO_FIRST if which == "FIRST" else Skip.TO_LAST, name, True)


def _within_ms(node: relations.MatchRecognize) -> int | None:
    if node.within is None:
        return None
    text, qualifier = node.within
    interval = constant(syntax.IntervalLiteral(text.removeprefix("-"), qualifier, text.startswith("-")))
    if interval is None or not isinstance(interval.type, DayTimeIntervalType) or not isinstance(interval.value, int):
        raise UnsupportedError(
            "Only constant intervals with millisecond resolution are supported as time constraints of patterns."
        )
    # As in Flink, a window that is not above 0 sets no limit.
    return interval.value if interval.value > 0 else None


class _Variables:
    """Builds the variables of a pattern, in order."""

    def __init__(
        self,
        definitions: Mapping[str, syntax.Expression],
        mentioned: Sequence[str],
        source: RelationScope,
        calls: Calls,
    ) -> None:
        self._definitions = definitions
        self._mentioned = mentioned
        self._source = source
        self._calls = calls
        self._names: list[str] = []

    def of(self, pattern: Pattern) -> Iterator[Variable]:
        """Yield the variables of a pattern. Raises `UnsupportedError` for unsupported patterns."""
        match pattern.kind:
            case "VARIABLE":
                yield self._variable(pattern.variable, 1, 1, False)
            case "CONCAT":
                for part in pattern.parts:
                    yield from self.of(part)
            case "REPEAT":
                (part,) = pattern.parts
                if part.kind != "VARIABLE":
                    raise UnsupportedError(_refusal(pattern, "Group patterns are not supported yet."))
                yield self._repeated(part.variable, pattern)
            case "EXCLUDE":
                raise UnsupportedError(_refusal(pattern, "Currently, CEP doesn't support '{-' '-}' patterns."))
            case "ALTER":
                raise UnsupportedError(_refusal(pattern, _NO_BRANCHES))
            case "PERMUTE":
                raise UnsupportedError(_refusal(pattern, "Currently, CEP doesn't support PERMUTE patterns."))
            case anchor:
                raise UnsupportedError(f"{anchor} is not supported in PATTERN: a stream has neither beginning nor end")

    def _repeated(self, name: str, quantifier: Pattern) -> Variable:
        least, most = quantifier.least, quantifier.most
        if most is not None and (most < 1 or most < least):
            raise ValidationError(f"{{{least},{most}}} of pattern variable {name} takes no row")
        if quantifier.is_reluctant and (least, most) == (0, 1):
            raise UnsupportedError("Reluctant optional variables are not supported yet.")
        return self._variable(name, least, most, quantifier.is_reluctant)

    def _variable(self, name: str, least: int, most: int | None, is_reluctant: bool) -> Variable:
        if name in self._names:
            raise UnsupportedError("Pattern variables must be unique. That might change in the future.")
        self._names.append(name)
        condition = None
        if name in self._definitions:
            scope = PatternScope(self._source, self._mentioned, name, self._calls)
            matched = scope.expression(self._definitions[name])
            is_true = self._calls.implicit(matched.expression, BooleanType())
            condition = MatchedExpression(is_true, matched.references)
        return Variable(name, condition, least, most, is_reluctant)


def _refusal(pattern: Pattern, reason: str) -> str:
    return f"Expression not supported: {to_sql(pattern)} {reason}"
