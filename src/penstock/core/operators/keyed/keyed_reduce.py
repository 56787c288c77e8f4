"""Running reduce on a keyed stream: every record yields its key's new value; in batch execution only the last one."""

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

#: The number of results that are examined one by one; after that, a batch's first record decides for the batch.
LOOKED_AT_MIN: Final = 1024
#: Stands for "no value yet" where None may be a value.
MISSING = object()


def rounded_reduce(reduce: Any, type_info: TypeInformation | None) -> Any:
    """Return the function with its results rounded to single precision if the type holds a FLOAT."""
    convert = rounding(type_info)
    return reduce if convert is None else lambda value, other: convert(reduce(value, other))


def typed_reduce(reduce: Any, type_info: TypeInformation | None) -> Any:
    """Return the function with results in the type of the records: rows in its order, FLOATs in single precision."""
    convert = fitting(type_info)
    return reduce if convert is None else lambda value, other: convert(reduce(value, other))


class KeyedReduceOperator(FunctionOperator):
    """Folds each record into its key's value and emits the result (A2)."""

    is_keyed = True

    def __init__(
        self, function: Any, key_selector: Callable[[Any], Any], type_info: TypeInformation | None = None
    ) -> None:
        super().__init__(function)
        self._key_selector = key_selector
        #: the type of the records, as far as the program declares it
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
        """Fold every record into its key's value."""
        entries, reduce, copies = self._entries, self._reduce, self.copies(batch.values)
        get = entries.get
        results: list[Any] = []
        append = results.append
        keys = self.extract_keys(batch.values, self._key_selector)
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
            self.track_results(results)
            self.output.collect(Batch(results, batch.timestamps))

    def copies(self, values: list[Any]) -> bool:
        """Return whether the results of a batch are copied, because they are mutable: they are also the state.

        All records and results have one type, so after enough results were examined, the first record decides.
        """
        if self.context.is_batch:
            return False
        return self._has_mutable or self._looked_at < LOOKED_AT_MIN or not all(map(is_immutable, values[:1]))

    def track_results(self, results: list[Any]) -> None:
        """Note whether the results of a batch are mutable."""
        self._looked_at += len(results)
        self._has_mutable = self._has_mutable or not all(map(is_immutable, results[-1:]))

    def end_keys(self) -> None:
        """Emit each key's final value, at the end of time as in Flink."""
        values = list(self._entries.values())
        if values:
            self.output.collect(Batch(values, [MAX_TIMESTAMP] * len(values) if self._has_timestamps else None))
