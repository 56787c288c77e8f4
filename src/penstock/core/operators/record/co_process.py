"""Two inputs: connected streams, where the function has a method for the records of each input (A1, A2).

The operator's event time is the lower of the two inputs' event times, as the task's watermark is the lowest of all its
channels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from penstock.core.operators.base import FunctionOperator
from penstock.core.operators.emitted_values import ResultCheck, process_each
from penstock.core.operators.record.process import KeyedProcessOperator, ProcessContext, UnkeyedTimerService
from penstock.core.operators.returned import NO_VALUES, check_items, wrong_value
from penstock.core.records import Batch


class _TwoInputs:
    """Finds the function's methods for both inputs, such as `map1` and `map2`, and wraps them to return iterables."""

    def __init__(self, function: Any, kind: str) -> None:
        self._function = function
        self._kind = kind

    def handlers(self) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
        """Return (first, second): called with record and context, they return an iterable or None."""
        function = self._function
        if self._kind == "process":
            return function.process_element1, function.process_element2
        if self._kind == "map":
            return _one_result(function.map1), _one_result(function.map2)
        return _items(function.flat_map1), _items(function.flat_map2)


def _one_result(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def call(value: Any, ctx: Any) -> Any:
        result = function(value)
        if type(result) in NO_VALUES:
            raise wrong_value(result, f"{function.__name__}()")
        return None if result is None else [result]

    return call


def _items(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    @wraps(function)
    def call(value: Any, ctx: Any) -> Any:
        returned = function(value)
        return None if returned is None else check_items(returned, function)

    return call


class CoProcessOperator(FunctionOperator):
    """A two-input function on streams without keys; `kind` is map, flat_map or process."""

    def __init__(self, function: Any, kind: str) -> None:
        super().__init__(function)
        self._inputs = _TwoInputs(function, kind)

    def open(self) -> None:
        """Open the function."""
        self._timers = UnkeyedTimerService(self.context)
        self._ctx = ProcessContext(self._timers)
        super().open()
        self._check = ResultCheck(self)
        self._handlers = self._inputs.handlers()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Call the input's method for every record."""
        process_each(self, batch, self._handlers[input_index], self._ctx, self._check)

    def process_watermark(self, timestamp: int) -> None:
        """Set event time, and pass the watermark on."""
        self._timers.watermark = timestamp
        self.output.emit_watermark(timestamp)


class KeyedCoProcessOperator(KeyedProcessOperator):
    """A two-input function on two keyed streams, which share their keys' state and timers."""

    def __init__(
        self, function: Any, kind: str, key_selector1: Callable[[Any], Any], key_selector2: Callable[[Any], Any]
    ) -> None:
        super().__init__(function, key_selector1)
        self._inputs = _TwoInputs(function, kind)
        self._key_selectors = (key_selector1, key_selector2)

    def open(self) -> None:
        """Open the function."""
        super().open()
        self._handlers = self._inputs.handlers()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Call the input's method for every record, with the record's key as the current key."""
        self.process_records(batch, self._handlers[input_index], self._key_selectors[input_index])
