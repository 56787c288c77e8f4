"""Plans MATCH_RECOGNIZE: checks whether streams support the pattern, and selects the operator."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from penstock.base.errors import UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import INSERTS, Aggregated, Changes, MatchedExpression, MatchRecognize, TimeAttribute
from penstock.sql.stream.aggregates.accumulators import build_accumulator
from penstock.sql.stream.match.operator import EventTimeMatchOperator, ProcessingTimeMatchOperator
from penstock.sql.stream.match.program import MatchSpecification, build_pattern
from penstock.sql.stream.planning.rule import Factory, Planning, Rule, Stream, by_columns, name_columns
from penstock.sql.stream.rows.evaluation import StreamSession
from penstock.sql.stream.rows.rows import to_comparable


def match_operator(node: MatchRecognize, session: StreamSession) -> Factory:
    """Return the operator of a node.

    Raises:
        ValidationError: if the order is not by time, ascending.
        UnsupportedError: for patterns that Flink cannot run either.
    """
    time = _time(node)
    kind = EventTimeMatchOperator if time is TimeAttribute.ROWTIME else ProcessingTimeMatchOperator
    return partial(kind, build_match_specification(node), name_columns(node.schema), session)


def build_match_specification(node: MatchRecognize) -> MatchSpecification:
    """Return the pattern of a node, for streams and batches.

    Raises:
        UnsupportedError: for patterns that Flink cannot run either.
    """
    pattern = build_pattern(node.pattern, node.within_ms)
    if pattern.may_be_empty:
        raise UnsupportedError(
            "Patterns that can produce empty matches are not supported. There must be at least one non-optional state."
        )
    if pattern.ends_greedily:
        raise UnsupportedError(
            "Greedy quantifiers are not allowed as the last element of a Pattern yet. "
            "Finish your pattern with either a simple variable or reluctant quantifier."
        )
    if any(part.times.is_greedy and other.times.is_optional for part, other in pairwise(pattern.parts)):
        raise UnsupportedError("Optional pattern cannot be preceded by greedy pattern")
    conditions = [variable.condition for variable in node.pattern if variable.condition is not None]
    for expression in (*conditions, *node.measures):
        _check_aggregates(expression)
    for key in node.order[1:]:
        to_comparable(node.input.schema[key.index].type)
    return MatchSpecification(
        names=tuple(node.input.schema.names),
        types=tuple(node.input.schema.types),
        partition=node.partition,
        order=node.order,
        pattern=node.pattern,
        strategy=node.strategy,
        within_ms=node.within_ms,
        measures=node.measures,
    )


def _time(node: MatchRecognize) -> TimeAttribute:
    if not node.order:
        raise ValidationError("You must specify either rowtime or proctime for order by.")
    first = node.order[0]
    time = node.input.schema[first.index].time
    if time is None:
        raise ValidationError("You must specify either rowtime or proctime for order by as the first one.")
    if first.is_descending:
        raise ValidationError("Primary sort order of a streaming table must be ascending on time.")
    return time


def _check_aggregates(expression: MatchedExpression) -> None:
    """Raise `UnsupportedError` for an aggregate without an accumulator."""
    for reference in expression.references:
        if isinstance(reference, Aggregated):
            build_accumulator(reference.call, False)


class MatchRule(Rule[MatchRecognize]):
    """MATCH_RECOGNIZE."""

    nodes = (MatchRecognize,)

    def changes(self, node: MatchRecognize, planning: Planning) -> Changes:
        """See `Rule`."""
        return INSERTS

    def asks_before(self, node: MatchRecognize, planning: Planning, wants_before: bool) -> bool:
        """Return False, because the input is append-only."""
        return False

    def stream(self, node: MatchRecognize, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        operator = match_operator(node, planning.session)
        planning.accept("Match Recognize", node.input, INSERTS)
        inner = planning.stream(node.input, False)
        inputs = by_columns(inner, node.partition)
        limit = None if node.partition else 1
        upstreams = planning.step("Match", operator, inputs, is_stateful=True, parallelism_limit=limit)
        return Stream(upstreams, node.schema, INSERTS, False)
