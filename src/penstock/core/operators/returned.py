"""What user functions may return.

Results come from generators, lists, iterators and views of state; None means no results. Any other iterable (a tuple,
text, a dict, a row) was most likely meant as one result, so it is refused instead of being taken apart. `flat_map` is
the exception: its purpose is to take things apart, so it may return any iterable, as in PyFlink. Where a function gives
exactly one value, a generator or a coroutine is refused.

The loops over records ask by class for a generator or a list, the most frequent, and call `results_of` for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final

from penstock.base.errors import MisuseError, short_repr
from penstock.state.states import StateView

#: What is never the one value that a function gives.
NO_VALUES: Final = frozenset((GeneratorType, CoroutineType, AsyncGeneratorType))
_TEXT_CHARS_MAX: Final = 80


def results_of(returned: Any, function: Callable[..., Any]) -> Iterable[Any]:
    """Check what a function with any number of results has returned: a list, an iterator or a view of state.

    Raises:
        MisuseError: for everything else.
    """
    if isinstance(returned, list | StateView) or hasattr(type(returned), "__next__"):
        results: Iterable[Any] = returned
        return results
    text = f"{_name_of(function)} returned {short_repr(returned, _TEXT_CHARS_MAX)} ({type(returned).__name__})"
    if type(returned) in NO_VALUES:
        _discard(returned)
        raise MisuseError(f"{text}: only AsyncDataStream waits for async functions")
    raise MisuseError(
        f"{text}: it must yield its results or return a list. `yield` each result, or `return [x]`; a tuple that is "
        "one result is one item of that list"
    )


def items_of(returned: Any, function: Callable[..., Any]) -> Iterator[Any]:
    """The items of an iterable that `flat_map` has returned.

    Raises:
        MisuseError: for an object that cannot be iterated over.
    """
    if type(returned) not in NO_VALUES or isinstance(returned, GeneratorType):
        try:
            return iter(returned)
        except TypeError:
            pass
    text = f"{_name_of(function)} returned {short_repr(returned, _TEXT_CHARS_MAX)} ({type(returned).__name__})"
    if type(returned) in NO_VALUES:
        _discard(returned)
        raise MisuseError(f"{text}: only AsyncDataStream waits for async functions")
    raise MisuseError(f"{text}: it must yield its results or return an iterable of them; for one result call map()")


def wrong_value(returned: Any, what: str) -> MisuseError:
    """The error for what a function returned in place of one value, of a class that is in `NO_VALUES`."""
    _discard(returned)
    return _refusal(f"{what} returned a {type(returned).__name__}", isinstance(returned, GeneratorType))


def refuse_generator_function(function: Any, name: str) -> None:
    """Raise where a function that gives one value is one that yields, or an async one.

    Args:
        function: what the user gave: an object with a method of that name, or a plain callable.
        name: the method's name.

    Raises:
        MisuseError: if it yields or is async.
    """
    called = getattr(function, name, function)
    is_generator = isgeneratorfunction(called)
    if is_generator or iscoroutinefunction(called) or isasyncgenfunction(called):
        shown = getattr(called, "__qualname__", type(called).__qualname__)
        raise _refusal(f"{shown}, given to {name}(), {'yields' if is_generator else 'is async'}", is_generator)


def _refusal(text: str, is_generator: bool) -> MisuseError:
    if is_generator:
        return MisuseError(f"{text}: it must return one value; for any number of records call flat_map()")
    return MisuseError(f"{text}: only AsyncDataStream waits for async functions")


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return "the function" if name == "<lambda>" else f"{name}()"


def _discard(returned: Any) -> None:
    """Close a coroutine that will never be awaited, because Python would warn of it."""
    if isinstance(returned, CoroutineType):
        returned.close()
