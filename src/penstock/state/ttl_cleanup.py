"""Removal of expired entries that are never read again (D1): the interface, and the heap's sweeper.

A sweeper cycles through the keys of one state, a few with each access or record, so that the cost of a call does not
grow with the state. Only the list of keys, built when a round begins, is proportional to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from penstock.state.ttl_config import StateTtlConfig

_END: Final[Any] = object()


class Cleaning(Protocol):
    """Cleans up one state; it is notified of accesses and records."""

    def on_access(self) -> None:
        """Handle an access to the state."""

    def on_records(self, count: int) -> None:
        """Handle `count` processed records."""


class Sweeper:
    """See the module docstring. `entries` belong to a state of the given kind; `changed` holds its table's marks."""

    def __init__(
        self, entries: dict[Any, Any], changed: set[Any], kind: str, config: StateTtlConfig, now_ms: Callable[[], int]
    ) -> None:
        self._entries = entries
        self._mark = changed.add
        self._ttl_ms = config.ttl_ms
        self._now_ms = now_ms
        self._left = {"list": self._left_of_list, "map": self._left_of_map}.get(kind, self._left_of_value)
        strategies = config.get_cleanup_strategies()
        incremental = strategies.get_incremental_cleanup_strategy()
        self._size = 0 if incremental is None else incremental.get_cleanup_size()
        self._sees_records = incremental is not None and incremental.run_cleanup_for_every_record()
        self._in_snapshot = strategies.in_full_snapshot()
        self._keys: Iterator[Any] = iter(())

    def on_access(self) -> None:
        """Check a few entries on an access to the state."""
        self._sweep_keys(self._size)

    def on_records(self, count: int) -> None:
        """Handle `count` processed records."""
        if self._sees_records:
            self._sweep_keys(self._size * count)

    def on_capture(self) -> None:
        """Check all entries before a snapshot, if configured."""
        if self._in_snapshot:
            self._tidy(list(self._entries))

    def _sweep_keys(self, count: int) -> None:
        keys: list[Any] = []
        while len(keys) < min(count, len(self._entries)):
            key = next(self._keys, _END)
            if key is _END:
                self._keys = iter(list(self._entries))
            else:
                keys.append(key)
        self._tidy(keys)

    def _tidy(self, keys: list[Any]) -> None:
        entries, latest_expired_ms = self._entries, self._now_ms() - self._ttl_ms
        for key in keys:
            before = entries.get(key)
            if before is None:
                continue  # removed since the round began
            left = self._left(before, latest_expired_ms)
            if not left:
                del entries[key]
                self._mark(key)
            elif left is not before:
                entries[key] = left
                self._mark(key)

    @staticmethod
    def _left_of_value(pair: Any, latest_expired_ms: int) -> Any:
        return pair if pair[1] > latest_expired_ms else None

    @staticmethod
    def _left_of_list(pairs: Any, latest_expired_ms: int) -> Any:
        left = [pair for pair in pairs if pair[1] > latest_expired_ms]
        return pairs if len(left) == len(pairs) else left

    @staticmethod
    def _left_of_map(entries: Any, latest_expired_ms: int) -> Any:
        left = {key: pair for key, pair in entries.items() if pair[1] > latest_expired_ms}
        return entries if len(left) == len(entries) else left
