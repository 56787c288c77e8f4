"""Functions that process matches and timed-out partial matches.

A match is a dict from stage names to lists of events, in order of arrival. Wherever a function object is expected, a
plain callable works as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from penstock.base.output_tag import OutputTag
from penstock.datastream.function import Function
from penstock.runtime.operators.patterns.pattern_operator import MatchContext

Match: TypeAlias = Mapping[str, list[Any]]


class PatternProcessFunction(Function, ABC):
    """Processes each match with its context; yields results, and `(OutputTag, value)` for side outputs.

    Examples:
        >>> from penstock.cep import CEP, Pattern, PatternProcessFunction
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> class Sums(PatternProcessFunction):
        ...     def process_match(self, match, ctx):
        ...         yield sum(match["pair"])
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> pairs = CEP.pattern(env.from_elements(1, 2, 3), Pattern.begin("pair").times(2).consecutive())
        >>> pairs.in_processing_time().process(Sums()).collect()
        [3, 5]
    """

    Context: TypeAlias = MatchContext

    @abstractmethod
    def process_match(self, match: dict[str, list[Any]], ctx: MatchContext) -> Iterable[Any] | None:
        """Return the records to emit for a match: a generator, a list, an iterator, or None."""


class TimedOutPartialMatchHandler(ABC):
    """A mixin that makes a `PatternProcessFunction` process timed-out partial matches as well.

    Examples:
        >>> from penstock.cep import CEP, Pattern, PatternProcessFunction, TimedOutPartialMatchHandler
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import OutputTag, StreamExecutionEnvironment
        >>> alone = OutputTag("alone")
        >>> class Pairs(PatternProcessFunction, TimedOutPartialMatchHandler):
        ...     def process_match(self, match, ctx):
        ...         yield match["first"][0], match["second"][0]
        ...     def process_timed_out_match(self, match, ctx):
        ...         yield alone, match["first"][0]
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> in_ms = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda ms: ms)
        >>> times = env.from_elements(0, 50, 55).assign_timestamps_and_watermarks(in_ms)
        >>> pairs = CEP.pattern(times, Pattern.begin("first").next("second").within(10)).process(Pairs())
        >>> pairs.get_side_output(alone).collect()
        [0, 55]
    """

    @abstractmethod
    def process_timed_out_match(
        self, match: dict[str, list[Any]], ctx: MatchContext
    ) -> Iterable[tuple[OutputTag, Any]] | None:
        """Return the side outputs for a timed-out partial match: pairs of a tag and a value, or None."""


class PatternSelectFunction(Function, ABC):
    """Returns one record for each match.

    Examples:
        >>> from penstock.cep import CEP, Pattern, PatternSelectFunction
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> class First(PatternSelectFunction):
        ...     def select(self, pattern):
        ...         return pattern["pair"][0]
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> pairs = CEP.pattern(env.from_elements(1, 2, 3), Pattern.begin("pair").times(2).consecutive())
        >>> pairs.in_processing_time().select(First()).collect()
        [1, 2]
    """

    @abstractmethod
    def select(self, pattern: dict[str, list[Any]]) -> Any:
        """Return the record to emit."""


class RichPatternSelectFunction(PatternSelectFunction):
    """A `PatternSelectFunction`, which already has `open` and `close`, as every function does.

    Examples:
        >>> from penstock.cep import CEP, Pattern, RichPatternSelectFunction
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> class Named(RichPatternSelectFunction):
        ...     def open(self, runtime_context):
        ...         self.names = {1: "one", 2: "two"}
        ...     def select(self, pattern):
        ...         return self.names[pattern["one"][0]]
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> ones = CEP.pattern(env.from_elements(1, 2), Pattern.begin("one"))
        >>> ones.in_processing_time().select(Named()).collect()
        ['one', 'two']
    """


class PatternFlatSelectFunction(Function, ABC):
    """Returns any number of records for each match.

    Examples:
        >>> from penstock.cep import CEP, Pattern, PatternFlatSelectFunction
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> class Each(PatternFlatSelectFunction):
        ...     def flat_select(self, pattern):
        ...         yield from pattern["pair"]
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> pairs = CEP.pattern(env.from_elements(1, 2, 3), Pattern.begin("pair").times(2).consecutive())
        >>> pairs.in_processing_time().flat_select(Each()).collect()
        [1, 2, 2, 3]
    """

    @abstractmethod
    def flat_select(self, pattern: dict[str, list[Any]]) -> Iterable[Any] | None:
        """Return the records to emit: a generator, a list, an iterator, or None."""


class RichPatternFlatSelectFunction(PatternFlatSelectFunction):
    """A `PatternFlatSelectFunction`, which already has `open` and `close`, as every function does.

    Examples:
        >>> from penstock.cep import CEP, Pattern, RichPatternFlatSelectFunction
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> class Repeated(RichPatternFlatSelectFunction):
        ...     def open(self, runtime_context):
        ...         self.times = 2
        ...     def flat_select(self, pattern):
        ...         return pattern["one"] * self.times
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> ones = CEP.pattern(env.from_elements(1, 2), Pattern.begin("one"))
        >>> ones.in_processing_time().flat_select(Repeated()).collect()
        [1, 1, 2, 2]
    """


class PatternTimeoutFunction(Function, ABC):
    """Returns one record for each timed-out partial match.

    Examples:
        >>> from penstock.cep import CEP, Pattern, PatternTimeoutFunction
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import OutputTag, StreamExecutionEnvironment
        >>> class Alone(PatternTimeoutFunction):
        ...     def timeout(self, pattern, timeout_timestamp):
        ...         return pattern["first"][0], timeout_timestamp
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> in_ms = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda ms: ms)
        >>> times = env.from_elements(0, 50, 55).assign_timestamps_and_watermarks(in_ms)
        >>> alone = OutputTag("alone")
        >>> pairs = CEP.pattern(times, Pattern.begin("first").next("second").within(10)).select(
        ...     sorted, timed_out_partial_matches_tag=alone, pattern_timeout_function=Alone()
        ... )
        >>> pairs.get_side_output(alone).collect()
        [(0, 10), (55, 65)]
    """

    @abstractmethod
    def timeout(self, pattern: dict[str, list[Any]], timeout_timestamp: int) -> Any:
        """Return the record for the side output; `timeout_timestamp` is the time of the timeout, in ms."""


class PatternFlatTimeoutFunction(Function, ABC):
    """Returns any number of records for each timed-out partial match.

    Examples:
        >>> from penstock.cep import CEP, Pattern, PatternFlatTimeoutFunction
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import OutputTag, StreamExecutionEnvironment
        >>> class Alone(PatternFlatTimeoutFunction):
        ...     def timeout(self, pattern, timeout_timestamp):
        ...         yield from pattern["first"]
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> in_ms = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda ms: ms)
        >>> times = env.from_elements(0, 50, 55).assign_timestamps_and_watermarks(in_ms)
        >>> alone = OutputTag("alone")
        >>> pairs = CEP.pattern(times, Pattern.begin("first").next("second").within(10)).flat_select(
        ...     sorted, timed_out_partial_matches_tag=alone, pattern_flat_timeout_function=Alone()
        ... )
        >>> pairs.get_side_output(alone).collect()
        [0, 55]
    """

    @abstractmethod
    def timeout(self, pattern: dict[str, list[Any]], timeout_timestamp: int) -> Iterable[Any] | None:
        """Return the records for the side output; `timeout_timestamp` is the time of the timeout, in ms."""


class _Adapter:
    """Passes matches to a function of another kind."""

    def __init__(self, function: Any, method: str) -> None:
        self._function = function
        self._call = _method(function, method)

    @property
    def functions(self) -> tuple[Any, ...]:
        """The wrapped functions."""
        return (self._function,)

    def open(self, runtime_context: Any) -> None:
        """Open the functions that can be opened."""
        for function in self.functions:
            if hasattr(function, "open"):
                function.open(runtime_context)

    def close(self) -> None:
        """Close the functions that can be closed."""
        for function in self.functions:
            if hasattr(function, "close"):
                function.close()


class ProcessAdapter(_Adapter):
    """Wraps a plain callable as a `PatternProcessFunction`."""

    def __init__(self, function: Any) -> None:
        super().__init__(function, "process_match")

    def process_match(self, match: dict[str, list[Any]], ctx: MatchContext) -> Any:
        """Call the function."""
        return self._call(match, ctx)


class SelectAdapter(_Adapter):
    """Passes matches to a `PatternSelectFunction`."""

    def __init__(self, function: Any) -> None:
        super().__init__(function, "select")

    def process_match(self, match: dict[str, list[Any]], ctx: MatchContext) -> list[Any]:
        """Return the function's record."""
        return [self._call(match)]


class FlatSelectAdapter(_Adapter):
    """Passes matches to a `PatternFlatSelectFunction`."""

    def __init__(self, function: Any) -> None:
        super().__init__(function, "flat_select")

    def process_match(self, match: dict[str, list[Any]], ctx: MatchContext) -> Any:
        """Return the function's records."""
        return self._call(match)


class _TimingOut(_Adapter):
    """An adapter that passes timed-out partial matches to another function."""

    def timing_out(self, function: Any, tag: OutputTag) -> None:
        """Pass timed-out partial matches to this function, and its results to the side output of this tag."""
        self._timeout_function = function
        self._timeout = _method(function, "timeout")
        self._tag = tag

    @property
    def functions(self) -> tuple[Any, ...]:
        """Both functions."""
        return (self._function, self._timeout_function)


class TimeoutSelectAdapter(SelectAdapter, _TimingOut):
    """Passes matches to one function, and timed-out partial matches to a `PatternTimeoutFunction`."""

    def __init__(self, function: Any, timeout_function: Any, tag: OutputTag) -> None:
        super().__init__(function)
        self.timing_out(timeout_function, tag)

    def process_timed_out_match(self, match: dict[str, list[Any]], ctx: MatchContext) -> Iterator[Any]:
        """Yield the function's record for the side output."""
        yield self._tag, self._timeout(match, ctx.time_ms)


class TimeoutFlatSelectAdapter(FlatSelectAdapter, _TimingOut):
    """Passes matches to one function, and timed-out partial matches to a `PatternFlatTimeoutFunction`."""

    def __init__(self, function: Any, timeout_function: Any, tag: OutputTag) -> None:
        super().__init__(function)
        self.timing_out(timeout_function, tag)

    def process_timed_out_match(self, match: dict[str, list[Any]], ctx: MatchContext) -> Iterator[Any]:
        """Yield the function's records for the side output."""
        for result in self._timeout(match, ctx.time_ms) or ():
            yield self._tag, result


def _method(function: Any, name: str) -> Any:
    return getattr(function, name, function)
