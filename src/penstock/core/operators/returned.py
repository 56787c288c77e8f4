"""Checks the values that user functions return.

Results come from generators, lists, iterators and views of state; None means no results. Any other iterable (a tuple,
text, a dict, a row) was most likely meant as one result, so it is refused instead of being expanded. `flat_map` is the
exception: its purpose is to expand values, so it may return any iterable, as in PyFlink. Where a function returns
exactly one value, a generator or a coroutine is refused.

The loops over records check by class for a generator or a list, the most frequent cases, and call `check_results` for
the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final

from penstock.base.errors import MisuseError, short_repr
from penstock.state.states import StateView

#: Types that are never the single value of a function.
NO_VALUES: Final = frozenset((GeneratorType, CoroutineType, AsyncGeneratorType))
_TEXT_CHARS_MAX: Final = 80


def check_results(returned: Any, function: Callable[..., Any]) -> Iterable[Any]:
    """Check the return value of a function with any number of results: a list, an iterator or a view of state.

    Raises:
        MisuseError: for everything else.
    """
    if isinstance(returned, list | StateView) or hasattr(type(returned), "__next__"):
        results: Iterable[Any] = returned
        return results
    text = (
        f"{_describe_function(function)} returned {short_repr(returned, _TEXT_CHARS_MAX)} ({type(returned).__name__})"
    )
    if type(returned) in NO_VALUES:
        _discard(returned)
        raise MisuseError(f"{text}: only AsyncDataStream waits for async functions")
    raise MisuseError(
        f"{text}: it must yield its results or return a list. `yield` each result, or `return [x]`; a tuple that is "
        "one result is one item of that list"
    )


def check_items(returned: Any, function: Callable[..., Any]) -> Iterator[Any]:
    """Return an iterator over the iterable that `flat_map` has returned.

    Raises:
        MisuseError: for an object that cannot be iterated over.
    """
    if type(returned) not in NO_VALUES or isinstance(returned, GeneratorType):
        try:
            return iter(returned)
        except TypeError:
            pass
    text = (
        f"{_describe_function(function)} returned {short_repr(returned, _TEXT_CHARS_MAX)} ({type(returned).__name__})"
    )
    if type(returned) in NO_VALUES:
        _discard(returned)
        raise MisuseError(f"{text}: only AsyncDataStream waits for async functions")
    raise MisuseError(f"{text}: it must yield its results or return an iterable of them; for one result call map()")


def wrong_value(returned: Any, function_name: str) -> MisuseError:
    """Return the error for a function that returned an object of a type in `NO_VALUES` instead of one value."""
    _discard(returned)
    return _refusal(f"{function_name} returned a {type(returned).__name__}", isinstance(returned, GeneratorType))


def refuse_generator_function(function: Any, name: str) -> None:
    """Raise if a function that must return one value yields or is async.

    Args:
        function: the user's function: an object with a method of that name, or a plain callable.
        name: the method's name.

    Raises:
        MisuseError: if it yields or is async.
    """
    called = getattr(function, name, function)
    is_generator = isgeneratorfunction(called)
    if is_generator or iscoroutinefunction(called) or isasyncgenfunction(called):
        qualname = getattr(called, "__qualname__", type(called).__qualname__)
        raise _refusal(f"{qualname}, given to {name}(), {'yields' if is_generator else 'is async'}", is_generator)


def _refusal(text: str, is_generator: bool) -> MisuseError:
    if is_generator:
        return MisuseError(f"{text}: it must return one value; for any number of records call flat_map()")
    return MisuseError(f"{text}: only AsyncDataStream waits for async functions")


def _describe_function(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return "the function" if name == "<lambda>" else f"{name}()"


def _discard(returned: Any) -> None:
    """Close a coroutine that will never be awaited, because Python would warn about it."""
    if isinstance(returned, CoroutineType):
        returned.close()
