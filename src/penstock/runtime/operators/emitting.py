"""Results of user functions: conversion to a declared type, and checks of what the functions return.

**Declared types** (`emitting_rows`, `emitting_singles`, `emitting_declared`, `emitting_sides`) change the records that
an operator emits. Rows: tuples, lists and dicts become `Row`s, and rows get the names of the type, in its order. FLOATs
are rounded to single precision. Both also apply inside other types, and to side outputs that are read with a type.

`check_results` and the functions after it check the values that user functions return. Results come from generators,
lists, iterators and views of state; None means no results. Any other iterable (a tuple, text, a dict, a row) was most
likely meant as one result, so it is refused instead of being expanded. `flat_map` is the exception: its purpose is to
expand values, so it may return any iterable, as in PyFlink. Where a function returns exactly one value, a generator or
a coroutine is refused.

The loops over records check by class for a generator or a list, the most frequent cases, and call `check_results` for
the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final

from penstock.base.declared_values import Change, RowMaker, fitting, rounding
from penstock.base.errors import MisuseError, WrongValueError, short_repr
from penstock.base.typeinfo import RowTypeInfo, TypeInformation
from penstock.base.types import Row, RowKind
from penstock.runtime.operators.base import Output, StreamOperator, UserCodeError, call_all
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.records import Batch
from penstock.state.states import StateView

#: The place that errors name for a record without the declared type.
_OUTPUT: Final = "the output of the operator"


def emitting_rows(factory: Callable[[], StreamOperator], type_info: RowTypeInfo) -> StreamOperator:
    """Create the operator of `factory`, and convert the records of its main output to rows of the type."""
    return _with_output(factory, lambda context, output: _RowOutput(context, output, RowMaker(type_info)))


def emitting_singles(factory: Callable[[], StreamOperator], type_info: TypeInformation) -> StreamOperator:
    """Create the operator of `factory`, and round the FLOATs of its main output to single precision."""
    convert = rounding(type_info)
    if convert is None:
        raise WrongValueError(f"{type_info!r} holds no FLOAT")
    return _with_output(factory, lambda context, output: _ChangedOutput(context, output, convert))


def emitting_declared(factory: Callable[[], StreamOperator], type_info: TypeInformation) -> StreamOperator:
    """Create the operator of `factory`, and convert its main output to a type that holds a ROW or a FLOAT."""
    convert = fitting(type_info)
    if convert is None:
        raise WrongValueError(f"{type_info!r} holds neither a ROW nor a FLOAT")
    return _with_output(factory, lambda context, output: _ChangedOutput(context, output, convert))


def emitting_sides(
    factory: Callable[[], StreamOperator], types: tuple[tuple[str, TypeInformation], ...]
) -> StreamOperator:
    """Create the operator of `factory`, and convert its side outputs to their types, by tag."""
    changes = {tag_id: convert for tag_id, type_info in types if (convert := fitting(type_info)) is not None}
    return _with_output(factory, lambda context, output: _SideOutput(context, output, changes))


def _with_output(
    factory: Callable[[], StreamOperator], around: Callable[[OperatorContext, Output], Output]
) -> StreamOperator:
    operator = factory()
    set_up = operator.setup

    def setup(context: OperatorContext, output: Output) -> None:
        set_up(context, around(context, output))

    operator.setup = setup  # type: ignore[method-assign]
    return operator


class _ChangedOutput:
    """An output that applies a function to its records, except for side outputs."""

    def __init__(self, context: OperatorContext, output: Output, change: Change) -> None:
        self._context = context
        self._output = output
        self._change = change

    def collect(self, batch: Batch) -> None:
        changed = _changed(self._context, self._change, batch.values)
        self._output.collect(Batch(changed, batch.timestamps, self._kinds(changed, batch.kinds)))

    def _kinds(self, changed: list[Any], kinds: bytes | None) -> bytes | None:
        """Return the row kinds to pass on beside the records."""
        return kinds

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        self._output.collect_side(tag_id, batch)

    def emit_watermark(self, timestamp: int) -> None:
        self._output.emit_watermark(timestamp)

    def emit_status(self, idle: bool) -> None:
        self._output.emit_status(idle)


class _RowOutput(_ChangedOutput):
    """Converts records that are not yet rows of the type."""

    def __init__(self, context: OperatorContext, output: Output, make_row: RowMaker) -> None:
        super().__init__(context, output, make_row)
        self._leaves = make_row.leaves

    def collect(self, batch: Batch) -> None:
        values = batch.values
        if set(map(type, values)) != {Row} or not self._leave(values):
            super().collect(batch)
        else:
            self._output.collect(batch)

    def _leave(self, values: list[Any]) -> bool:
        try:
            return all(map(self._leaves, values))
        except WrongValueError:  # `_changed` raises it again and names the record
            return False

    def _kinds(self, changed: list[Any], kinds: bytes | None) -> bytes | None:
        """Set the row kinds in the rows, and return None."""
        for row, kind in zip(changed, kinds or (), strict=False):
            row.set_row_kind(RowKind(kind))
        return None


class _SideOutput:
    """An output that applies functions to the records of some side outputs; the main output stays the same."""

    def __init__(self, context: OperatorContext, output: Output, changes: Mapping[str, Change]) -> None:
        self._context = context
        self._output = output
        self._changes = changes
        self.collect = output.collect

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        change = self._changes.get(tag_id)
        if change is not None:
            changed = _changed(self._context, change, batch.values)
            batch = Batch(changed, batch.timestamps, batch.kinds)
        self._output.collect_side(tag_id, batch)

    def emit_watermark(self, timestamp: int) -> None:
        self._output.emit_watermark(timestamp)

    def emit_status(self, idle: bool) -> None:
        self._output.emit_status(idle)


def _changed(context: OperatorContext, change: Change, values: list[Any]) -> list[Any]:
    """Apply a function to the records that an operator emits; returns its results."""
    changed: list[Any] = []
    try:
        call_all(change, values, changed)
    except WrongValueError as error:
        raise UserCodeError(context.operator_name, values[len(changed)], _OUTPUT) from error
    return changed


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
