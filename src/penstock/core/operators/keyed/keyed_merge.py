"""Merges a keyed set with replacements for parts of it: how a delta iteration updates its solution set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core.operators.base import FunctionOperator
from penstock.core.records import Batch

_SET, _DELTA = 0, 1


class KeyedMergeOperator(FunctionOperator):
    """Emits each key's last record of the delta (input 1) or, without one, its last record of the set (input 0).

    For batch execution: all records of a key arrive before any is emitted, when the keys end.
    """

    is_keyed = True

    def __init__(self, key_selector: Callable[[Any], Any]) -> None:
        super().__init__(None)
        self._key_selector = key_selector

    def open(self) -> None:
        """Look up the state: key -> (which input, record, timestamp in ms or None)."""
        super().open()
        self._entries = self.context.keyed.table("_penstock_merge").entries(None)

    def process_batch(self, batch: Batch, input_index: int = _SET) -> None:
        """Keep each key's relevant record.

        Each input comes in order of time; the order between them does not matter.
        """
        entries, keys = self._entries, self.extract_keys(batch.values, self._key_selector)
        timestamps = [None] * len(keys) if batch.timestamps is None else batch.timestamps
        rows = zip(keys, batch.values, timestamps, strict=True)
        if input_index == _DELTA:
            entries.update((key, (_DELTA, value, timestamp)) for key, value, timestamp in rows)
            return
        for key, value, timestamp in rows:
            entry = entries.get(key)
            if entry is None or entry[0] == _SET:
                entries[key] = (_SET, value, timestamp)

    def end_keys(self) -> None:
        """Emit each key's record."""
        entries = list(self._entries.values())
        for has_time in (False, True):
            group = [entry for entry in entries if (entry[2] is not None) is has_time]
            if group:
                times = [entry[2] for entry in group] if has_time else None
                self.output.collect(Batch([entry[1] for entry in group], times))
