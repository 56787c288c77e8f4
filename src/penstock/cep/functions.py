"""The functions that take matches, and partial matches that took too long.

A match is a dict from the names of stages to lists of events, in the order in which the events came. Wherever a
function object is expected, a plain callable does as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from penstock.base.output_tag import OutputTag
from penstock.core.operators.patterns.pattern_operator import MatchContext
from penstock.datastream.function import Function

Match: TypeAlias = Mapping[str, list[Any]]


class PatternProcessFunction(Function, ABC):
    """Sees each match with its context; yields results, and `(OutputTag, value)` for side outputs."""

    Context: TypeAlias = MatchContext

    @abstractmethod
    def process_match(self, match: dict[str, list[Any]], ctx: MatchContext) -> Iterable[Any] | None:
        """The records to emit for a match: a generator, a list, an iterator, or None."""


class TimedOutPartialMatchHandler(ABC):
    """Makes a `PatternProcessFunction` see partial matches that took too long, too: a class to mix in."""

    @abstractmethod
    def process_timed_out_match(
        self, match: dict[str, list[Any]], ctx: MatchContext
    ) -> Iterable[tuple[OutputTag, Any]] | None:
        """What goes to side outputs for a partial match that took too long: pairs of a tag and a value, or None."""


class PatternSelectFunction(Function, ABC):
    """One record for each match."""

    @abstractmethod
    def select(self, pattern: dict[str, list[Any]]) -> Any:
        """The record to emit."""


class RichPatternSelectFunction(PatternSelectFunction):
    """The same; every function is opened and closed."""


class PatternFlatSelectFunction(Function, ABC):
    """Any number of records for each match."""

    @abstractmethod
    def flat_select(self, pattern: dict[str, list[Any]]) -> Iterable[Any] | None:
        """The records to emit: a generator, a list, an iterator, or None."""


class RichPatternFlatSelectFunction(PatternFlatSelectFunction):
    """The same; every function is opened and closed."""


class PatternTimeoutFunction(Function, ABC):
    """One record for each partial match that took too long."""

    @abstractmethod
    def timeout(self, pattern: dict[str, list[Any]], timeout_timestamp: int) -> Any:
        """The record for the side output; `timeout_timestamp`: since when it has taken too long, ms."""


class PatternFlatTimeoutFunction(Function, ABC):
    """Any number of records for each partial match that took too long."""

    @abstractmethod
    def timeout(self, pattern: dict[str, list[Any]], timeout_timestamp: int) -> Iterable[Any] | None:
        """The records for the side output; `timeout_timestamp`: since when it has taken too long, ms."""


class _Adapter:
    """Hands matches to a function of another kind."""

    def __init__(self, function: Any, method: str) -> None:
        self._function = function
        self._call = _method(function, method)

    @property
    def functions(self) -> tuple[Any, ...]:
        """The functions that it calls."""
        return (self._function,)

    def open(self, runtime_context: Any) -> None:
        """Open those that can be opened."""
        for function in self.functions:
            if hasattr(function, "open"):
                function.open(runtime_context)

    def close(self) -> None:
        """Close those that can be closed."""
        for function in self.functions:
            if hasattr(function, "close"):
                function.close()


class ProcessAdapter(_Adapter):
    """For a plain callable in place of a `PatternProcessFunction`."""

    def __init__(self, function: Any) -> None:
        super().__init__(function, "process_match")

    def process_match(self, match: dict[str, list[Any]], ctx: MatchContext) -> Any:
        """Call it."""
        return self._call(match, ctx)


class SelectAdapter(_Adapter):
    """Hands matches to a `PatternSelectFunction`."""

    def __init__(self, function: Any) -> None:
        super().__init__(function, "select")

    def process_match(self, match: dict[str, list[Any]], ctx: MatchContext) -> list[Any]:
        """The record that it gives."""
        return [self._call(match)]


class FlatSelectAdapter(_Adapter):
    """Hands matches to a `PatternFlatSelectFunction`."""

    def __init__(self, function: Any) -> None:
        super().__init__(function, "flat_select")

    def process_match(self, match: dict[str, list[Any]], ctx: MatchContext) -> Any:
        """The records that it gives."""
        return self._call(match)


class _TimingOut(_Adapter):
    """An adapter that hands partial matches that took too long to another function."""

    def timing_out(self, function: Any, tag: OutputTag) -> None:
        """Hand them to this function, and its results to the side output of this tag."""
        self._timeout_function = function
        self._timeout = _method(function, "timeout")
        self._tag = tag

    @property
    def functions(self) -> tuple[Any, ...]:
        """Both functions."""
        return (self._function, self._timeout_function)


class TimeoutSelectAdapter(SelectAdapter, _TimingOut):
    """Hands matches to one function, and what took too long to a `PatternTimeoutFunction`."""

    def __init__(self, function: Any, timeout_function: Any, tag: OutputTag) -> None:
        super().__init__(function)
        self.timing_out(timeout_function, tag)

    def process_timed_out_match(self, match: dict[str, list[Any]], ctx: MatchContext) -> Iterator[Any]:
        """The record that it gives."""
        yield self._tag, self._timeout(match, ctx.time_ms)


class TimeoutFlatSelectAdapter(FlatSelectAdapter, _TimingOut):
    """Hands matches to one function, and what took too long to a `PatternFlatTimeoutFunction`."""

    def __init__(self, function: Any, timeout_function: Any, tag: OutputTag) -> None:
        super().__init__(function)
        self.timing_out(timeout_function, tag)

    def process_timed_out_match(self, match: dict[str, list[Any]], ctx: MatchContext) -> Iterator[Any]:
        """The records that it gives."""
        for result in self._timeout(match, ctx.time_ms) or ():
            yield self._tag, result


def _method(function: Any, name: str) -> Any:
    return getattr(function, name, function)
