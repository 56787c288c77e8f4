"""Running reduce on a keyed stream: every record gives its key's new value; in batch execution a key's last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.base.copies import IMMUTABLE, detached, is_immutable
from penstock.base.declared_values import fitting
from penstock.base.single_precision import rounding
from penstock.base.typeinfo import TypeInformation
from penstock.core.operators.base import FunctionOperator
from penstock.core.operators.record.stateless import method
from penstock.core.operators.returned import NO_VALUES, wrong_value
from penstock.core.records import MAX_TIMESTAMP, Batch

#: Results that are looked at one by one before those of a batch are judged by its first record.
LOOKED_AT_MIN: Final = 1024
#: Stands for "no value yet" where None may be a value.
MISSING = object()


def rounded_reduce(reduce: Any, type_info: TypeInformation | None) -> Any:
    """The function, with what it gives in single precision where the type holds a FLOAT."""
    made = rounding(type_info)
    return reduce if made is None else lambda one, other: made(reduce(one, other))


def typed_reduce(reduce: Any, type_info: TypeInformation | None) -> Any:
    """The function, whose results follow the type of the records: rows have its order, FLOATs single precision."""
    made = fitting(type_info)
    return reduce if made is None else lambda one, other: made(reduce(one, other))


class KeyedReduceOperator(FunctionOperator):
    """Folds each record into its key's value and emits the result (A2)."""

    is_keyed = True

    def __init__(
        self, function: Any, key_selector: Callable[[Any], Any], type_info: TypeInformation | None = None
    ) -> None:
        super().__init__(function)
        self._key_selector = key_selector
        #: of the records, as far as the program says
        self._type_info = type_info

    def open(self) -> None:
        """Open the function."""
        super().open()
        self._reduce = typed_reduce(method(self.function, "reduce"), self._type_info)
        table = self.context.keyed.table("_penstock_reduce")
        self._entries, self._mark = table.entries(None), table.mark
        self._has_mutable = False
        self._looked_at = 0

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Fold every record in."""
        entries, reduce, copies = self._entries, self._reduce, self.copies(batch.values)
        get = entries.get
        results: list[Any] = []
        append = results.append
        keys = self.keys_of(batch.values, self._key_selector)
        self._has_timestamps = batch.timestamps is not None
        try:
            for key, value in zip(keys, batch.values, strict=True):
                reduced = get(key, MISSING)
                if reduced is not MISSING:
                    value = reduce(reduced, value)
                entries[key] = value
                if copies and value.__class__ not in IMMUTABLE:
                    value = detached(value)
                append(value)
        except Exception as error:
            raise self.failed(batch.values[len(results)]) from error
        if results and type(results[-1]) in NO_VALUES:
            raise self.failed(batch.values[-1]) from wrong_value(results[-1], "reduce()")
        if not self.context.is_batch:
            self._mark(None, keys)
            self.look_at(results)
            self.output.collect(Batch(results, batch.timestamps))

    def copies(self, values: list[Any]) -> bool:
        """Whether the results of a batch are copied, because they may change: they are also the state.

        All records and results have one type, so once some results were looked at, the first record tells.
        """
        if self.context.is_batch:
            return False
        return self._has_mutable or self._looked_at < LOOKED_AT_MIN or not all(map(is_immutable, values[:1]))

    def look_at(self, results: list[Any]) -> None:
        """Note what the results of a batch are."""
        self._looked_at += len(results)
        self._has_mutable = self._has_mutable or not all(map(is_immutable, results[-1:]))

    def end_keys(self) -> None:
        """Emit what each key has come to, at the end of time as in Flink."""
        values = list(self._entries.values())
        if values:
            self.output.collect(Batch(values, [MAX_TIMESTAMP] * len(values) if self._has_timestamps else None))
