"""MATCH_RECOGNIZE: from its clauses to a plan. Clauses that Flink rejects are rejected with Flink's messages.

In the `PatternScope` of DEFINE and MEASURES, names and calls refer to columns of rows of pattern variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from penstock.base.errors import UnsupportedError
from penstock.runtime.patterns.matcher import Skip, SkipStrategy
from penstock.sql.analyzer.aggregates import aggregate_call, contains_aggregate, is_aggregate
from penstock.sql.analyzer.calls import Calls, constant
from penstock.sql.analyzer.expressions import ScalarAnalyser
from penstock.sql.analyzer.scopes import RelationScope
from penstock.sql.analyzer.select import find_time_attribute, nulls_first
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import BooleanType, DayTimeIntervalType, TimestampType
from penstock.sql.logical import nodes
from penstock.sql.parser import syntax, to_sql
from penstock.sql.parser import syntax as relations
from penstock.sql.parser.syntax import Pattern
from penstock.sql.typed import Constant, Field, Typed

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
        self._references: list[nodes.RowReference] = []
        #: the enclosing FIRST or LAST (whether it is FIRST, and its offset), and the variables named in it
        self._row: tuple[bool, int] | None = None
        self._named: set[str] = set()

    def expression(self, node: syntax.Expression) -> nodes.MatchedExpression:
        """Type an expression and return it with its references. Each scope takes one expression."""
        typed = ScalarAnalyser(self, self._calls).typed(node)
        return nodes.MatchedExpression(typed, tuple(self._references))

    # --- Scope -------------------------------------------------------------------------------------------------------

    def resolve(self, path: tuple[str, ...], at: int) -> tuple[Typed, tuple[str, ...]]:
        """See `Scope`."""
        variable, column, rest = self.column(path, at)
        self._named.add(variable)
        is_first, offset = self._row or (False, 0)
        if variable == self._defined and not is_first and not offset:
            variable = nodes.ALL_ROWS  # the current row is the last one of its own variable, and of all rows
        navigation = nodes.Navigation(variable, column.index, column.type, is_first, offset)
        if not navigation.is_current:
            navigation = nodes.Navigation(variable, column.index, column.type.nullable(), is_first, offset)
        return self._refer(navigation, column.name), rest

    def column(self, path: tuple[str, ...], at: int) -> tuple[str, Field, tuple[str, ...]]:
        """Return the variable and the column of a path, and the rest of the path."""
        variable = nodes.ALL_ROWS
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

    def _refer(self, reference: nodes.RowReference, name: str) -> Field:
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
            return self._refer(nodes.MatchTime(TimestampType(3, False)), node.name)
        operand = node.operands[0]
        column = self.column(operand.path, operand.at)[1] if isinstance(operand, syntax.Reference) else None
        if (
            len(node.operands) > 1
            or column is None
            or self._source.schema[column.index].time != nodes.TimeAttribute.ROWTIME
        ):
            raise ValidationError("MATCH_ROWTIME takes nothing, or a rowtime attribute of the rows")
        return self._refer(nodes.MatchTime(column.type.nullable()), node.name)

    def _aggregated(self, node: syntax.Call) -> Typed:
        if self._row is not None or contains_aggregate(node.operands, self._calls):
            raise ValidationError(f"Aggregate expressions cannot be nested: {node.name}")
        if node.is_distinct:
            raise UnsupportedError("DISTINCT aggregates are not supported in MATCH_RECOGNIZE")
        rows = _RowsOfOneVariable(self)
        call = aggregate_call(node, ScalarAnalyser(rows, self._calls), False, False)
        if len(rows.named) > 1:
            raise ValidationError(f"Aggregate must be applied to a single variable, not to {_shown(rows.named)}")
        variable = next(iter(rows.named), nodes.ALL_ROWS)
        return self._refer(nodes.Aggregated(variable, call), node.name)


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


_NO_BRANCHES: Final = "Currently, CEP doesn't support branching patterns."


def match_recognize(node: relations.MatchRecognize, source: RelationScope, calls: Calls) -> nodes.MatchRecognize:
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
    columns = [nodes.PlanColumn(column.name, column.type) for column in columns]
    for item, measure in zip(node.measures, measures, strict=True):
        assert item.alias is not None
        columns.append(
            nodes.PlanColumn(item.alias, measure.expression.type, _find_time_attribute(measure, source.plan.schema))
        )
    return nodes.MatchRecognize(
        schema=nodes.RowSchema(tuple(columns)),
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


def _sort_key(item: syntax.OrderItem, analyser: ScalarAnalyser) -> nodes.SortKey:
    column = _column(item.expression, analyser, "ORDER BY")
    return nodes.SortKey(column.index, item.is_descending, nulls_first(item.is_descending, item.nulls))


def _find_time_attribute(measure: nodes.MatchedExpression, rows: nodes.RowSchema) -> nodes.TimeAttribute | None:
    """Return the time attribute of a measure: the time of the match, or of one of its rows."""
    expression = measure.expression
    if not isinstance(expression, Field):
        return find_time_attribute(expression)
    reference = measure.references[expression.index]
    if isinstance(reference, nodes.Navigation):
        return rows[reference.column].time
    return nodes.TimeAttribute.ROWTIME if isinstance(reference, nodes.MatchTime) else None


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

    def of(self, pattern: Pattern) -> Iterator[nodes.Variable]:
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

    def _repeated(self, name: str, quantifier: Pattern) -> nodes.Variable:
        least, most = quantifier.least, quantifier.most
        if most is not None and (most < 1 or most < least):
            raise ValidationError(f"{{{least},{most}}} of pattern variable {name} takes no row")
        if quantifier.is_reluctant and (least, most) == (0, 1):
            raise UnsupportedError("Reluctant optional variables are not supported yet.")
        return self._variable(name, least, most, quantifier.is_reluctant)

    def _variable(self, name: str, least: int, most: int | None, is_reluctant: bool) -> nodes.Variable:
        if name in self._names:
            raise UnsupportedError("Pattern variables must be unique. That might change in the future.")
        self._names.append(name)
        condition = None
        if name in self._definitions:
            scope = PatternScope(self._source, self._mentioned, name, self._calls)
            matched = scope.expression(self._definitions[name])
            is_true = self._calls.implicit(matched.expression, BooleanType())
            condition = nodes.MatchedExpression(is_true, matched.references)
        return nodes.Variable(name, condition, least, most, is_reluctant)


def _refusal(pattern: Pattern, reason: str) -> str:
    return f"Expression not supported: {to_sql(pattern)} {reason}"
