"""Conditions that decide whether a stage of a pattern takes an event.

A simple condition only looks at the event. An iterative condition also sees the events that the partial match has taken
so far, so it is evaluated separately for each partial match, and costs more. `where`, `or_` and `until` take a
condition, or a plain callable, which is a simple condition.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any

from penstock.base.errors import WrongTimeError, WrongTypeError
from penstock.runtime.operators.function_context import RuntimeContext
from penstock.runtime.operators.patterns.conditions import ConditionContext

Test = Callable[..., Any]


class IterativeCondition(ABC):
    """A condition on the event and the events that the partial match has taken so far.

    Examples:
        >>> from penstock.cep import IterativeCondition, Pattern
        >>> from penstock.testing import trace_pattern
        >>> class Larger(IterativeCondition):
        ...     def filter(self, value, ctx):
        ...         return value > max(ctx.get_events_for_pattern("first"))
        >>> pattern = Pattern.begin("first").next("larger").where(Larger())
        >>> trace_pattern(pattern, [5, 3, 20]).matches
        [{'first': [3], 'larger': [20]}]
    """

    Context = ConditionContext

    @staticmethod
    def of(function: Callable[[Any, ConditionContext], Any]) -> IterativeCondition:
        """Return the condition that calls `function(value, ctx)`."""
        return _OfFunction(_checked(function))

    @abstractmethod
    def filter(self, value: Any, ctx: ConditionContext) -> bool:
        """Return whether the condition holds for an event."""

    @property
    def is_simple(self) -> bool:
        """Whether the condition only looks at the event."""
        return False

    def compiled(self) -> Test:
        """Return the function to call with the event and, unless the condition is simple, its context."""
        return self.filter

    def start(self, runtime_context: RuntimeContext) -> None:  # noqa: B027 - most conditions need nothing
        """Open the condition; called before the first event."""

    def stop(self) -> None:  # noqa: B027 - as above
        """Close the condition; called at the end."""


class RichIterativeCondition(IterativeCondition):
    """An iterative condition with `open` and `close`.

    Examples:
        >>> from penstock.cep import CEP, Pattern, RichIterativeCondition
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> class Known(RichIterativeCondition):
        ...     def open(self, runtime_context):
        ...         self.known = {5, 20}
        ...     def filter(self, value, ctx):
        ...         return value in self.known
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> known = CEP.pattern(env.from_elements(5, 6), Pattern.begin("known").where(Known()))
        >>> known.in_processing_time().select(lambda match: match["known"][0]).collect()
        [5]
    """

    _runtime_context: RuntimeContext | None = None

    def open(self, runtime_context: RuntimeContext) -> None:
        """Prepare the condition; runs on the worker, once per subtask and attempt."""

    def close(self) -> None:
        """Release the resources that `open` acquired."""

    def get_runtime_context(self) -> RuntimeContext:
        """Return the context of the subtask that evaluates the condition.

        Raises:
            RuntimeError: before `open`.
        """
        if self._runtime_context is None:
            raise WrongTimeError(f"{type(self).__name__}.get_runtime_context() works from open() on")
        return self._runtime_context

    def start(self, runtime_context: RuntimeContext) -> None:
        """Open the condition; called before the first event."""
        self._runtime_context = runtime_context
        self.open(runtime_context)

    def stop(self) -> None:
        """Close the condition; called at the end."""
        self.close()
        self._runtime_context = None


class SimpleCondition(IterativeCondition):
    """A condition that only looks at the event.

    Examples:
        >>> from penstock.cep import Pattern, SimpleCondition
        >>> from penstock.testing import trace_pattern
        >>> class Large(SimpleCondition):
        ...     def filter(self, value):
        ...         return value > 500
        >>> trace_pattern(Pattern.begin("large").where(Large()), [5, 900]).matches
        [{'large': [900]}]
    """

    @staticmethod
    def of(function: Callable[[Any], Any]) -> SimpleCondition:  # type: ignore[override]
        """Return the condition that calls `function(value)`."""
        return _OfSimpleFunction(_checked(function))

    @abstractmethod
    def filter(self, value: Any) -> bool:  # type: ignore[override]
        """Return whether the condition holds for an event."""

    @property
    def is_simple(self) -> bool:
        """True."""
        return True


class _OfFunction(IterativeCondition):
    def __init__(self, function: Test) -> None:
        self._function = function

    def filter(self, value: Any, ctx: ConditionContext) -> bool:
        return bool(self._function(value, ctx))

    def compiled(self) -> Test:
        return self._function


class _OfSimpleFunction(SimpleCondition):
    def __init__(self, function: Test) -> None:
        self._function = function

    def filter(self, value: Any) -> bool:  # type: ignore[override]
        return bool(self._function(value))

    def compiled(self) -> Test:
        return self._function


class SubtypeCondition(SimpleCondition):
    """Holds for instances of a class and its subclasses.

    Examples:
        >>> from penstock.cep import Pattern, SubtypeCondition
        >>> from penstock.testing import trace_pattern
        >>> trace_pattern(Pattern.begin("text").where(SubtypeCondition(str)), [5, "tea"]).matches
        [{'text': ['tea']}]
    """

    def __init__(self, subtype: type | tuple[type, ...]) -> None:
        self._subtype = subtype
        isinstance(None, subtype)  # raises TypeError unless it is a class

    def filter(self, value: Any) -> bool:  # type: ignore[override]
        """Return whether the event is an instance of the class."""
        return isinstance(value, self._subtype)


class _Joined(IterativeCondition):
    """A condition composed of other conditions."""

    def __init__(self, *parts: Any) -> None:
        self._parts = tuple(map(as_condition, parts))

    @property
    def is_simple(self) -> bool:
        """Whether all parts are simple."""
        return all(part.is_simple for part in self._parts)

    def filter(self, value: Any, ctx: ConditionContext) -> bool:
        """Return whether the condition holds for an event."""
        test = self.compiled()
        return bool(test(value) if self.is_simple else test(value, ctx))

    def compiled(self) -> Test:
        """See `IterativeCondition`."""
        tests = [part.compiled() for part in self._parts]
        if self.is_simple:
            return self._over_event(*tests)
        return self._over_context(*map(_with_context, self._parts, tests))

    def _over_event(self, *tests: Test) -> Test:
        raise NotImplementedError

    def _over_context(self, *tests: Test) -> Test:
        raise NotImplementedError

    def start(self, runtime_context: RuntimeContext) -> None:
        """Open the parts."""
        for part in self._parts:
            part.start(runtime_context)

    def stop(self) -> None:
        """Close the parts."""
        for part in self._parts:
            part.stop()


class _OfTwo(_Joined):
    """A condition composed of two conditions."""

    def __init__(self, left: Any, right: Any) -> None:
        super().__init__(left, right)

    def get_left(self) -> IterativeCondition:
        """Return the left condition."""
        return self._parts[0]

    def get_right(self) -> IterativeCondition:
        """Return the right condition."""
        return self._parts[1]


class RichAndCondition(_OfTwo):
    """Holds if both conditions hold; the right one is evaluated only if the left one holds.

    Examples:
        >>> from penstock.cep import Pattern, RichAndCondition, SimpleCondition
        >>> from penstock.testing import trace_pattern
        >>> small, even = SimpleCondition.of(lambda n: n < 10), SimpleCondition.of(lambda n: n % 2 == 0)
        >>> trace_pattern(Pattern.begin("both").where(RichAndCondition(small, even)), [5, 6, 20]).matches
        [{'both': [6]}]
    """

    def _over_event(self, *tests: Test) -> Test:
        left, right = tests
        return lambda value: left(value) and right(value)

    def _over_context(self, *tests: Test) -> Test:
        left, right = tests
        return lambda value, ctx: left(value, ctx) and right(value, ctx)


class RichOrCondition(_OfTwo):
    """Holds if either condition holds; the right one is evaluated only if the left one does not hold.

    Examples:
        >>> from penstock.cep import Pattern, RichOrCondition, SimpleCondition
        >>> from penstock.testing import trace_pattern
        >>> small, even = SimpleCondition.of(lambda n: n < 10), SimpleCondition.of(lambda n: n % 2 == 0)
        >>> trace_pattern(Pattern.begin("one").where(RichOrCondition(small, even)), [5, 15, 20]).matches
        [{'one': [5]}, {'one': [20]}]
    """

    def _over_event(self, *tests: Test) -> Test:
        left, right = tests
        return lambda value: left(value) or right(value)

    def _over_context(self, *tests: Test) -> Test:
        left, right = tests
        return lambda value, ctx: left(value, ctx) or right(value, ctx)


class RichNotCondition(_Joined):
    """Holds if another condition does not.

    Examples:
        >>> from penstock.cep import Pattern, RichNotCondition, SimpleCondition
        >>> from penstock.testing import trace_pattern
        >>> not_small = RichNotCondition(SimpleCondition.of(lambda n: n < 10))
        >>> trace_pattern(Pattern.begin("large").where(not_small), [5, 20]).matches
        [{'large': [20]}]
    """

    def __init__(self, original: Any) -> None:
        super().__init__(original)

    def _over_event(self, *tests: Test) -> Test:
        (test,) = tests
        return lambda value: not test(value)

    def _over_context(self, *tests: Test) -> Test:
        (test,) = tests
        return lambda value, ctx: not test(value, ctx)


class BooleanConditions:
    """Conditions that always or never hold.

    Examples:
        >>> from penstock.cep import BooleanConditions, Pattern
        >>> from penstock.testing import trace_pattern
        >>> trace_pattern(Pattern.begin("any").where(BooleanConditions.true_function()), [1, 2]).matches
        [{'any': [1]}, {'any': [2]}]
    """

    @staticmethod
    def true_function() -> IterativeCondition:
        """Return a condition that always holds."""
        return SimpleCondition.of(_true)

    @staticmethod
    def false_function() -> IterativeCondition:
        """Return a condition that never holds."""
        return SimpleCondition.of(_false)


def as_condition(given: Any) -> IterativeCondition:
    """Return a condition unchanged, and a callable as a simple condition.

    Raises:
        TypeError: if it is neither.
    """
    return given if isinstance(given, IterativeCondition) else SimpleCondition.of(given)


def _checked(function: Any) -> Test:
    if not callable(function):
        raise WrongTypeError(f"a condition is a callable or an IterativeCondition, not {function!r}")
    if isgeneratorfunction(function) or iscoroutinefunction(function) or isasyncgenfunction(function):
        raise WrongTypeError(f"a condition returns whether it holds, but {function!r} yields or is async")
    return function  # type: ignore[no-any-return]


def _with_context(condition: IterativeCondition, test: Test) -> Test:
    if condition.is_simple:
        return lambda value, ctx: test(value)
    return test


def _true(value: Any) -> bool:
    return True


def _false(value: Any) -> bool:
    return False
