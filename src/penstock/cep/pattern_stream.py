"""`CEP` and `PatternStream`: search a stream for a pattern, and turn its matches into records.

`build_search` validates the API's pattern and converts it to the engine's. An `EventComparator` orders events with
equal timestamps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.base.errors import WrongTypeError
from penstock.base.options import CEP_ALLOW_CHANGED_PATTERN, CEP_PARTIAL_MATCHES_MAX, CEP_PARTIAL_MATCHES_OVERFLOW
from penstock.base.output_tag import OutputTag
from penstock.base.time import Duration
from penstock.base.typeinfo import TypeInformation
from penstock.cep import functions
from penstock.cep.conditions import IterativeCondition
from penstock.cep.pattern import ConsumingStrategy, GroupPattern, Pattern, QuantifierProperty, WithinType, check
from penstock.datastream.data_stream import DataStream, KeyedStream
from penstock.datastream.windowed import the_one_key
from penstock.plan.transformation import Transformation, Upstream, declared
from penstock.runtime.operators.emitting import refuse_generator_function
from penstock.runtime.operators.patterns.conditions import Asked, PatternSearch, PatternSettings
from penstock.runtime.operators.patterns.pattern_operator import EventTimePatternOperator, ProcessingTimePatternOperator
from penstock.runtime.patterns import pattern as engine
from penstock.runtime.patterns.pattern import Contiguity


class EventComparator(ABC):
    """Orders events with equal timestamps.

    Examples:
        >>> from penstock.cep import CEP, EventComparator, Pattern
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> class Ascending(EventComparator):
        ...     def compare(self, first, second):
        ...         return first - second
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> at_once = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda euros: 0)
        >>> payments = env.from_elements(20, 5).assign_timestamps_and_watermarks(at_once)
        >>> pair = Pattern.begin("first").next("second")
        >>> matches = CEP.pattern(payments, pair, Ascending())
        >>> matches.select(lambda match: (match["first"][0], match["second"][0])).collect()
        [(5, 20)]
    """

    @abstractmethod
    def compare(self, first: Any, second: Any) -> int:
        """Return a negative number if `first` comes first, positive if `second` does, 0 for the order of arrival."""


_CONTIGUITIES = {
    ConsumingStrategy.STRICT: Contiguity.STRICT,
    ConsumingStrategy.SKIP_TILL_NEXT: Contiguity.RELAXED,
    ConsumingStrategy.SKIP_TILL_ANY: Contiguity.NON_DETERMINISTIC,
    ConsumingStrategy.NOT_NEXT: Contiguity.NOT_NEXT,
    ConsumingStrategy.NOT_FOLLOW: Contiguity.NOT_FOLLOWED,
}
#: Flink's name for the end of a pattern
_END = "$endState$"


def build_search(pattern: Pattern, compare: Callable[[Any, Any], int] | None = None) -> PatternSearch:
    """Build the search that a pattern's operator runs.

    Raises:
        MalformedPatternException: if the parts of the pattern do not fit together.
    """
    building = _Building()
    compiled = engine.Pattern(building.parts(pattern), building.within_ms)
    building.check(pattern, compiled)
    strategy = pattern.get_after_match_skip_strategy().engine_strategy
    return PatternSearch(compiled, strategy, tuple(building.conditions), compare)


def list_stages(pattern: Pattern) -> list[Pattern]:
    """Return the stages and groups of a pattern in order, without the stages inside groups."""
    stages: list[Pattern] = []
    stage: Pattern | None = pattern
    while stage is not None:
        stages.append(stage)
        stage = stage.get_previous()
    return stages[::-1]


class _Building:
    def __init__(self) -> None:
        self.conditions: list[Asked] = []
        self.within_ms: int | None = None
        self._names: list[str] = []

    def parts(self, pattern: Pattern) -> tuple[engine.Part, ...]:
        return tuple(map(self._part, list_stages(pattern)))

    def _part(self, stage: Pattern) -> engine.Part:
        within = _ms(stage.get_window_size(WithinType.FIRST_AND_LAST))
        if within is not None and (self.within_ms is None or within < self.within_ms):
            self.within_ms = within
        contiguity = _CONTIGUITIES[stage.get_quantifier().get_consuming_strategy()]
        since_last = _ms(stage.get_window_size(WithinType.PREVIOUS_AND_CURRENT))
        if isinstance(stage, GroupPattern):
            parts = self.parts(stage.get_raw_pattern())
            times = self._times(stage)
            check(
                times.most is not None or not engine.may_be_empty(parts),
                "a group that loops needs a stage that is not optional, or it would repeat nothing for ever",
            )
            head = parts[0]
            if since_last is not None and isinstance(head, engine.Stage) and head.since_last_ms is None:
                parts = (replace(head, since_last_ms=since_last), *parts[1:])
            return engine.Group(parts, contiguity, times)
        name = stage.get_name()
        check(name not in self._names and name != _END, f"two stages have the name {name!r}")
        self._names.append(name)
        number = self._asked(stage.get_condition(), f"the condition of stage {name!r}")
        return engine.Stage(name, number, contiguity, self._times(stage), since_last)

    def _times(self, stage: Pattern) -> engine.Times:
        quantifier, times, until = stage.get_quantifier(), stage.get_times(), stage.get_until_condition()
        is_looping = quantifier.has_property(QuantifierProperty.LOOPING)
        return engine.Times(
            1 if times is None else times.get_from(),
            None if is_looping else 1 if times is None else times.get_to(),
            quantifier.has_property(QuantifierProperty.OPTIONAL),
            quantifier.has_property(QuantifierProperty.GREEDY),
            _CONTIGUITIES[quantifier.get_inner_consuming_strategy()],
            None if until is None else self._asked(until, f"the until condition of stage {stage.get_name()!r}"),
            None if times is None else _ms(times.get_window_size()),
        )

    def _asked(self, condition: IterativeCondition, description: str) -> int:
        self.conditions.append(Asked(condition, description))
        return len(self.conditions) - 1

    def check(self, pattern: Pattern, compiled: engine.Pattern) -> None:
        """Check the rules that involve the whole pattern."""
        name = pattern.get_after_match_skip_strategy().get_pattern_name()
        check(name is None or name in self._names, f"the skip strategy names the stage {name!r}, which is not there")
        for stage in compiled.stages():
            for window in (stage.since_last_ms, stage.times.window_ms):
                check(
                    window is None or compiled.within_ms is None or window <= compiled.within_ms,
                    f"stage {stage.name!r}: the time between the previous event and the current one ({window} ms) must "
                    f"not be longer than that between the first event and the last one ({compiled.within_ms} ms)",
                )
        last = compiled.parts[-1]
        check(
            not isinstance(last, engine.Stage)
            or last.contiguity is not Contiguity.NOT_FOLLOWED
            or compiled.within_ms is not None
            or last.since_last_ms is not None,
            f"a pattern that ends with not_followed_by({pattern.get_name()!r}) needs a window: call within()",
        )


def _ms(duration: Duration | None) -> int | None:
    """Return a duration in ms; None (no window) for None or 0."""
    return None if duration is None else duration.to_millis() or None


class PatternStream:
    """Created by `CEP.pattern`; `process`, `select` and `flat_select` turn matches into records.

    Examples:
        >>> from penstock.cep import CEP, Pattern
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> pair = Pattern.begin("first").next("second")
        >>> matches = CEP.pattern(env.from_elements(1, 2, 3), pair).in_processing_time()
        >>> matches.select(lambda match: (match["first"][0], match["second"][0])).collect()
        [(1, 2), (2, 3)]
    """

    def __init__(self, stream: DataStream, search: PatternSearch, is_event_time: bool = True) -> None:
        self._stream = stream
        self._search = search
        self._is_event_time = is_event_time

    def in_event_time(self) -> PatternStream:
        """Return the same in event time, the default: the watermark releases events in timestamp order."""
        return PatternStream(self._stream, self._search, True)

    def in_processing_time(self) -> PatternStream:
        """Return the same in processing time: events are processed as they arrive."""
        return PatternStream(self._stream, self._search, False)

    def side_output_late_data(self, output_tag: OutputTag) -> PatternStream:
        """Return the same with late events, which the watermark has reached, sent to a side output, not dropped."""
        if not isinstance(output_tag, OutputTag):
            raise WrongTypeError(f"expected an OutputTag, not {output_tag!r}")
        return PatternStream(self._stream, replace(self._search, late_tag=output_tag.tag_id), self._is_event_time)

    def process(self, pattern_process_function: Any, output_type: TypeInformation | None = None) -> DataStream:
        """Pass matches to a function.

        Args:
            pattern_process_function: a `PatternProcessFunction`, which may be a `TimedOutPartialMatchHandler`, or a
                callable that takes the match and its context.
            output_type: the type of the emitted records.

        Examples:
            >>> matches.process(lambda match, ctx: [sorted(match)]).collect()
            [['first', 'second'], ['first', 'second']]
        """
        function = pattern_process_function
        if not hasattr(function, "process_match"):
            function = functions.ProcessAdapter(function)
        return self._add(function, output_type)

    def select(
        self,
        pattern_select_function: Any,
        output_type: TypeInformation | None = None,
        *,
        timed_out_partial_matches_tag: OutputTag | None = None,
        pattern_timeout_function: Any = None,
    ) -> DataStream:
        """Emit one record for each match.

        Args:
            pattern_select_function: a `PatternSelectFunction`, or a callable that takes the match.
            output_type: the type of the records.
            timed_out_partial_matches_tag: the side output for timed-out partial matches.
            pattern_timeout_function: a `PatternTimeoutFunction` that creates the side output's records, or a callable
                that takes the partial match and its time.

        Examples:
            >>> matches.select(lambda match: match["first"][0] + match["second"][0]).collect()
            [3, 5]
        """
        refuse_generator_function(pattern_select_function, "select")
        tag = _check_tag(timed_out_partial_matches_tag, pattern_timeout_function)
        if tag is None:
            return self._add(functions.SelectAdapter(pattern_select_function), output_type)
        refuse_generator_function(pattern_timeout_function, "timeout")
        return self._add(
            functions.TimeoutSelectAdapter(pattern_select_function, pattern_timeout_function, tag), output_type
        )

    def flat_select(
        self,
        pattern_flat_select_function: Any,
        output_type: TypeInformation | None = None,
        *,
        timed_out_partial_matches_tag: OutputTag | None = None,
        pattern_flat_timeout_function: Any = None,
    ) -> DataStream:
        """Emit any number of records for each match; the arguments are those of `select`."""
        tag = _check_tag(timed_out_partial_matches_tag, pattern_flat_timeout_function)
        if tag is None:
            return self._add(functions.FlatSelectAdapter(pattern_flat_select_function), output_type)
        adapter = functions.TimeoutFlatSelectAdapter(pattern_flat_select_function, pattern_flat_timeout_function, tag)
        return self._add(adapter, output_type)

    def _add(self, function: Any, output_type: TypeInformation | None) -> DataStream:
        stream, is_keyed = self._stream, isinstance(self._stream, KeyedStream)
        keyed = stream if isinstance(stream, KeyedStream) else stream.key_by(the_one_key)
        operator = EventTimePatternOperator if self._is_event_time else ProcessingTimePatternOperator
        factory = partial(operator, self._search, function, keyed.key_selector, self._settings())
        transformation = Transformation(
            "Cep" if is_keyed else "Global Cep",
            declared(factory, output_type),
            keyed.upstreams,
            is_stateful=True,
            output_type=output_type,
        )
        if not is_keyed:
            transformation.parallelism = transformation.parallelism_limit = 1
        environment = stream.get_execution_environment()
        environment.add(transformation)
        return environment.build_stream((Upstream(transformation),))

    def _settings(self) -> PatternSettings:
        read = self._stream.get_execution_environment().get_configuration().read
        return PatternSettings(
            read(CEP_ALLOW_CHANGED_PATTERN),
            read(CEP_PARTIAL_MATCHES_MAX),
            read(CEP_PARTIAL_MATCHES_OVERFLOW) == "drop-oldest",
        )


def pattern_stream(stream: Any, pattern: Any, comparator: Any) -> PatternStream:
    """See `CEP.pattern`."""
    if not isinstance(stream, DataStream):
        raise WrongTypeError(f"CEP.pattern looks for patterns in a DataStream or a KeyedStream, not in {stream!r}")
    if not isinstance(pattern, Pattern):
        raise WrongTypeError(f"expected a Pattern, which begins with Pattern.begin, not {pattern!r}")
    if isinstance(comparator, EventComparator):
        comparator = comparator.compare
    if comparator is not None and not callable(comparator):
        raise WrongTypeError(f"expected an EventComparator, or a callable of two events, not {comparator!r}")
    return PatternStream(stream, build_search(pattern, comparator))


def _check_tag(tag: Any, function: Any) -> OutputTag | None:
    if (tag is None) is not (function is None):
        raise WrongTypeError(
            "partial matches that took too long need both timed_out_partial_matches_tag and the function for them"
        )
    if tag is not None and not isinstance(tag, OutputTag):
        raise WrongTypeError(f"expected an OutputTag, not {tag!r}")
    return tag


class CEP:
    """Searches streams for patterns.

    Examples:
        >>> from penstock.cep import CEP, Pattern
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda euros: 0)
        >>> payments = env.from_elements(5, 900, 20).assign_timestamps_and_watermarks(in_order)
        >>> large = Pattern.begin("large").where(lambda euros: euros > 500)
        >>> CEP.pattern(payments, large).select(lambda match: match["large"][0]).collect()
        [900]
    """

    @staticmethod
    def pattern(input: DataStream, pattern: Pattern, comparator: Any = None) -> PatternStream:
        """Search a stream for a pattern.

        Args:
            input: a keyed stream, where the pattern is matched against the events of each key; or a stream without
                keys, where one subtask matches it against all events.
            pattern: the pattern to search for.
            comparator: an `EventComparator`, or a callable of two events, that orders events with equal timestamps; by
                default they stay in order of arrival.

        Raises:
            MalformedPatternException: if the parts of the pattern do not fit together.

        Examples:
            >>> pair = Pattern.begin("first").next("second")
            >>> matches = CEP.pattern(payments.key_by(lambda euros: euros > 10), pair)
            >>> matches.select(lambda match: (match["first"][0], match["second"][0])).collect()
            [(900, 20)]
        """
        return pattern_stream(input, pattern, comparator)
