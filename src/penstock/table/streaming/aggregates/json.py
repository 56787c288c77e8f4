"""JSON_OBJECTAGG and JSON_ARRAYAGG."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.table.data.errors import TableRuntimeError
from penstock.table.functions.json_documents import key_order, storable, text_in_quotes
from penstock.table.functions.json_text import json_writer
from penstock.table.plan.logical import AggregateCall
from penstock.table.streaming.aggregates.base import Accumulator, changed_count
from penstock.table.streaming.aggregates.gathered import Gathered, is_owed


def _writer(call: AggregateCall, index: int) -> Callable[[Any], str | None]:
    """Return a function that converts an operand to JSON; NULL stays NULL, and JSON operands are not converted."""
    if any(option.startswith("EMBEDDED") and str(index) in option.split() for option in call.options):
        return lambda value: value
    write = json_writer(call.operands[index].type)
    return lambda value: None if value is None else storable(write(value))


def _keeps_null(call: AggregateCall, unless_said: bool) -> bool:
    """Return whether NULL becomes `null` instead of being omitted. The function's name or an option decides."""
    for words in (call.function.replace("_", " "), *call.options):
        if words.endswith("ABSENT ON NULL"):
            return False
        if words.endswith("NULL ON NULL"):
            return True
    return unless_said


class JsonArrayAgg(Gathered):
    """JSON_ARRAYAGG: values as JSON."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._key = None
        self.skips_null = not _keeps_null(call, False)
        self._write = _writer(call, 0)

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return super().add_one(state, self._write(value))

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return super().retract_one(state, self._write(value))

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return f"[{','.join(['null' if text is None else text for text in state[0]])}]"


class JsonObjectAgg(Accumulator):
    """JSON_OBJECTAGG: [{key: value as JSON}, {(key, value): number of pending retractions}]."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._keeps_null = _keeps_null(call, True)
        self._write = _writer(call, 1)

    def create(self) -> Any:
        """See `Accumulator`."""
        return [{}, {}]

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        known, owed = state
        key, value = self._pair(values)
        if owed and is_owed(owed, (key, value)):
            return state
        if key in known:
            raise TableRuntimeError(f"JSON_OBJECTAGG has met the key '{key}' twice; an object has each key once")
        if value is not None or self._keeps_null:
            known[key] = value
        return state

    def retract(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        known, owed = state
        key, value = self._pair(values)
        if value is None and not self._keeps_null:
            return state
        if key in known and known[key] == value:
            del known[key]
        else:
            changed_count(owed, (key, value), 1)
        return state

    def _pair(self, values: tuple[Any, ...]) -> tuple[str, str | None]:
        key, value = values
        if key is None:
            raise TableRuntimeError("a key of JSON_OBJECTAGG is NULL")
        return key, self._write(value)

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        known = state[0]
        parts = [f"{text_in_quotes(key)}:{known[key] or 'null'}" for key in sorted(known, key=key_order)]
        return storable(f"{{{','.join(parts)}}}")
