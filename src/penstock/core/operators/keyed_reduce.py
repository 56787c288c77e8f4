"""Running reduce on a keyed stream: every record gives the new reduced value of its key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core.operators.base import FunctionOperator
from penstock.core.operators.stateless import method
from penstock.core.records import Batch

_MISSING = object()


class KeyedReduceOperator(FunctionOperator):
    """Folds each record into its key's value and emits the result (A2)."""

    def __init__(self, function: Any, key_selector: Callable[[Any], Any]) -> None:
        super().__init__(function)
        self._key_selector = key_selector

    def open(self) -> None:
        """Open the function."""
        super().open()
        self._reduce = method(self.function, "reduce")
        table = self.context.keyed.table("_penstock_reduce")
        self._entries, self._changed = table.entries(None), table.changed(None)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Fold every record in."""
        entries, reduce = self._entries, self._reduce
        get = entries.get
        results: list[Any] = []
        append = results.append
        keys = self.keys_of(batch.values, self._key_selector)
        try:
            for key, value in zip(keys, batch.values, strict=True):
                reduced = get(key, _MISSING)
                if reduced is not _MISSING:
                    value = reduce(reduced, value)
                entries[key] = value
                append(value)
        except Exception as error:
            raise self.failed(batch.values[len(results)]) from error
        self._changed.update(keys)
        self.output.collect(Batch(results, batch.timestamps))
