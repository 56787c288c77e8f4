"""Results in the form that they had when a function emitted them.

An operator passes on its results in batches, but they count as if they were passed on one by one: a function may change
an object after it has emitted it, and nothing downstream sees that. So an operator examines each result when the
function emits it. It copies a mutable result, unless nothing else refers to the result or to a mutable object in it,
for example a record that the function has just made. It never copies a number, text, or a tuple of these.

CPython's reference counts show whether something else refers to an object. The counts of an object that nothing else
refers to are measured when this module is imported, by calls of the same form.

Examining each tuple costs a tenth of the time of a small function. So a function is trusted (`ResultCheck`) once it has
emitted only immutable results for a while and holds nothing mutable: it cannot change the results in a list that it has
returned. A generator still can, so the operator checks the class of each of its results. It examines a sample of all
results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice, repeat
from sys import getrefcount
from types import GeneratorType
from typing import Any, Final

from penstock.base.copies import IMMUTABLE, attribute_values, detached, has_own_parts, is_immutable
from penstock.base.types import Row
from penstock.core.operators.base import FunctionOperator, Output
from penstock.core.operators.emitting import split_side_outputs
from penstock.core.operators.returned import check_results
from penstock.core.records import Batch
from penstock.state.states import NO_KEY

#: The number of immutable results after which a function is trusted.
LOOKED_INTO_MIN: Final = 1024
#: The operator examines one of this many results of a trusted function.
STRIDE: Final = 64
_PACKAGE: Final = "penstock."
#: Classes of results that the operator does not examine if it trusts the function.
TRUSTED: Final = IMMUTABLE | {tuple}
#: Mutable classes of results, which need no closer look.
_OFTEN_CHANGED: Final = frozenset({list, dict, set, Row})


class ResultCheck:
    """Decides whether an operator examines all results of a function, or trusts the function.

    A function is trusted when it has emitted `LOOKED_INTO_MIN` immutable results, such as numbers, text and tuples of
    these, and when its attributes and a sample of its states are immutable. All values of a state have one type, so one
    value is enough.

    Args:
        operator: the operator, whose functions have been opened.
    """

    __slots__ = ("_functions", "_is_mixed", "_is_silent", "_looked_into", "_states")

    def __init__(self, operator: FunctionOperator) -> None:
        self._functions = operator.user_functions()
        self._states = operator.context.user_states
        self._is_mixed = False
        #: whether the function emitted nothing for the last batch, or for a part of it
        self._is_silent = False
        self._looked_into = 0

    def is_close(self) -> bool:
        """Return whether the operator examines all results of the next batch."""
        if not self._is_mixed and self._looked_into >= LOOKED_INTO_MIN:
            values = [value for state in self._states.values() for value in state.sample()]
            values += [value for function in self._functions for value in attribute_values(function) or ()]
            self._is_mixed = not all(map(_is_no_holder, values))
            return self._is_mixed
        return True

    def is_undecided(self) -> bool:
        """Return whether the operator will trust the function after some more results of the same kind."""
        return not self._is_mixed and not self._is_silent and self._looked_into < LOOKED_INTO_MIN

    def note(self, results: Results, begin: int = 0) -> None:
        """Note the results of a batch, or of a part of one; they start at index `begin`."""
        if results.has_mixed:
            self._is_mixed = True
        elif self._looked_into < LOOKED_INTO_MIN:
            self._looked_into += len(results.values) - begin
            self._is_silent = len(results.values) == begin
        elif not all(map(is_immutable, results.values[begin::STRIDE])):
            self._is_mixed = True


def can_never_change(value: Any) -> bool:
    """Return whether a value of a class outside `IMMUTABLE` is immutable: a tuple in a tuple, a member of an enum."""
    return value.__class__ not in _OFTEN_CHANGED and is_immutable(value)


def _is_no_holder(value: Any) -> bool:
    """Return whether a value is immutable, or is an object of the runtime, such as a state."""
    return is_immutable(value) or (value.__class__.__module__.startswith(_PACKAGE) and value.__class__ is not Row)


class Results:
    """The results of a batch.

    Attributes:
        values: the results; the ones for side outputs have their tags.
        times: their timestamps (ms); empty if they have none.
        has_mixed: whether a result, or a part of a tuple, is mutable.
    """

    __slots__ = ("has_mixed", "times", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.times: list[int] = []
        self.has_mixed = False

    def take(self, yielded: Iterable[Any]) -> None:
        """Take the results of one call, without their timestamps; the caller must have `yielded` in a variable."""
        append = self.values.append
        for result in yielded:
            if result.__class__ is tuple:
                for part in result:
                    if part.__class__ not in IMMUTABLE and not can_never_change(part):
                        part, self.has_mixed = None, True
                        result = as_emitted(result, yielded, 1, 1)
                        break
            elif result.__class__ not in IMMUTABLE and not can_never_change(result):
                self.has_mixed = True
                result = as_emitted(result, yielded, 0, 1)
            append(result)

    def add_times(self, timestamp: int) -> None:
        """Give a timestamp to the results that have none yet."""
        missing = len(self.values) - len(self.times)
        if missing == 1:
            self.times.append(timestamp)
        else:
            self.times.extend(repeat(timestamp, missing))

    def emit(self, output: Output, is_timed: bool) -> None:
        """Emit the results, with their timestamps if they have any."""
        out = split_side_outputs(output, self.values, self.times if is_timed else None)
        if len(out):
            output.collect(out)


def process_each(
    operator: FunctionOperator,
    batch: Batch,
    handle: Callable[[Any, Any], Iterable[Any] | None],
    ctx: Any,
    check: ResultCheck,
    keys: Sequence[Any] | None = None,
) -> None:
    """Call `handle` for every record, with its timestamp in `ctx` and its key as the current one; emit the results.

    Args:
        operator: the operator, whose function is called.
        batch: the records.
        handle: called with a record and `ctx`, returns the results: see `check_results`.
        ctx: receives `element_timestamp`.
        check: decides whether the function's results are examined.
        keys: the key of each record; None if the operator has no keys.

    Raises:
        UserCodeError: if the function raises.
    """
    results, keyed, timestamps = Results(), operator.context.keyed, batch.timestamps
    of_keys = repeat(NO_KEY) if keys is None else keys
    rows: Iterable[Any]
    if timestamps is None:
        ctx.element_timestamp = None
        take, rows = _take_untimed, zip(batch.values, of_keys)  # noqa: B905 - repeat has no end
    else:
        take, rows = _take_timed, zip(batch.values, timestamps, of_keys)  # noqa: B905
    left = len(batch.values)
    try:
        # If a function may soon be trusted, its results need not be examined for the rest of a long batch.
        while check.is_undecided() and left > LOOKED_INTO_MIN:
            begin = len(results.values)
            take(operator, islice(rows, LOOKED_INTO_MIN), handle, ctx, results, is_close=True)
            check.note(results, begin)
            left -= LOOKED_INTO_MIN
        begin = len(results.values)
        take(operator, rows, handle, ctx, results, check.is_close())
    finally:
        keyed.current_key = NO_KEY
    check.note(results, begin)
    results.emit(operator.output, timestamps is not None)


def _take_untimed(
    operator: FunctionOperator, rows: Iterable[Any], handle: Any, ctx: Any, results: Results, is_close: bool
) -> None:
    """Take the results for records without timestamps."""
    keyed, append, extend, take = operator.context.keyed, results.values.append, results.values.extend, results.take
    record = None
    try:
        for record, keyed.current_key in rows:
            yielded = handle(record, ctx)
            if yielded is None:
                continue
            if yielded.__class__ is list and not is_close:
                extend(yielded)
                continue
            if yielded.__class__ is not list and yielded.__class__ is not GeneratorType:
                yielded = check_results(yielded, handle)
            if is_close:
                take(yielded)
                continue
            for result in yielded:
                if result.__class__ not in TRUSTED and not can_never_change(result):
                    results.has_mixed = True
                    result = as_emitted(result, yielded)
                append(result)
    except Exception as error:
        raise operator.failed(record) from error


def _take_timed(
    operator: FunctionOperator, rows: Iterable[Any], handle: Any, ctx: Any, results: Results, is_close: bool
) -> None:
    """Take the results for records with timestamps."""
    keyed, values, times, take = operator.context.keyed, results.values, results.times, results.take
    append, extend, add_time, record = values.append, values.extend, times.append, None
    try:
        for record, timestamp, keyed.current_key in rows:
            ctx.element_timestamp = timestamp
            yielded = handle(record, ctx)
            if yielded is None:
                continue
            if yielded.__class__ is list and not is_close:
                extend(yielded)
                for _ in yielded:
                    add_time(timestamp)
                continue
            if yielded.__class__ is not list and yielded.__class__ is not GeneratorType:
                yielded = check_results(yielded, handle)
            if is_close:
                take(yielded)
                results.add_times(timestamp)
                continue
            for result in yielded:
                if result.__class__ not in TRUSTED and not can_never_change(result):
                    results.has_mixed = True
                    result = as_emitted(result, yielded)
                append(result)
                add_time(timestamp)
    except Exception as error:
        raise operator.failed(record) from error


# --- objects that nothing else refers to ------------------------------------------------------------------------------


def as_emitted(result: Any, yielded: Iterable[Any], references: int = 0, of_yielded: int = 0) -> Any:
    """Return a mutable result in its current form: a copy, unless nothing else refers to it or to its mutable parts.

    Call this inside `for result in yielded`, where both are variables of the caller.

    Args:
        result: the result.
        yielded: the list, generator or iterator that it comes from.
        references: how many more references to the result the caller has.
        of_yielded: the same for `yielded`.
    """
    # A list that nothing else refers to is dropped along with its references.
    is_own_list = yielded.__class__ is list and getrefcount(yielded) <= _LIST_REFERENCES + of_yielded
    count = getrefcount(result) - references
    if count <= (_ITEM_REFERENCES if is_own_list else _RESULT_REFERENCES) and has_own_parts(result):
        return result
    return detached(result)


def _count_references(result: Any, yielded: Iterable[Any], references: int = 0, of_yielded: int = 0) -> tuple[int, int]:
    """Measure reference counts in a call of the same form as `as_emitted`."""
    return getrefcount(result), getrefcount(yielded)


def _measured() -> tuple[int, int, int]:
    yielded: Iterable[Any] = (object() for _ in range(1))
    for result in yielded:
        of_result, _ = _count_references(result, yielded)
    yielded = [object()]
    for result in yielded:
        of_item, of_list = _count_references(result, yielded)
    return of_result, of_item, of_list


#: The reference counts of a generator's result, of a list's item, and of the list, if nothing else refers to them.
_RESULT_REFERENCES, _ITEM_REFERENCES, _LIST_REFERENCES = _measured()


# --- results of a map -------------------------------------------------------------------------------------------------


def with_copies(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap the function of a map or a source, so that it copies its mutable results."""

    def call(record: Any) -> Any:
        result = function(record)
        if result.__class__ is tuple:
            for part in result:
                if part.__class__ not in IMMUTABLE:
                    return detached(result)
            return result
        return result if result.__class__ in IMMUTABLE else detached(result)

    return call
