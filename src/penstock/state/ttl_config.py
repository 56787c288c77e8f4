"""The expiry and cleanup of state entries: PyFlink's `StateTtlConfig`, and the heap's sweeper (D1).

>>> from penstock.common import Time
>>> config = StateTtlConfig.new_builder(Time.hours(1)).update_ttl_on_read_and_write().build()
>>> config.get_ttl(), config.get_update_type().name
(Time(3600000), 'OnReadAndWrite')

`Cleaning` is the interface for the removal of expired entries that are never read again.

`Sweeper` cycles through the keys of one state on the heap, a few with each access or record, so that the cost of a call
does not grow with the state. Only the list of keys, built when a round begins, is proportional to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, Protocol

from penstock.base.errors import WrongValueError
from penstock.base.time import Time, to_millis


class _UpdateType(Enum):
    """The accesses that extend an entry's time to live."""

    Disabled = 0
    OnCreateAndWrite = 1
    OnReadAndWrite = 2


class _StateVisibility(Enum):
    """Whether to return an expired value once more if it still exists."""

    ReturnExpiredIfNotCleanedUp = 0
    NeverReturnExpired = 1


class _TtlTimeCharacteristic(Enum):
    """The time that determines expiry."""

    ProcessingTime = 0


class _Strategies(Enum):
    """The cleanup strategies."""

    FULL_STATE_SCAN_SNAPSHOT = 0
    INCREMENTAL_CLEANUP = 1
    ROCKSDB_COMPACTION_FILTER = 2


class _CleanupStrategy:
    """Base class of the strategies' parameters."""


class _EmptyCleanupStrategy(_CleanupStrategy):
    """A strategy without parameters."""


class _IncrementalCleanupStrategy(_CleanupStrategy):
    """Check `cleanup_size` entries on each access to the state, or on each record as well.

    Raises:
        ValueError: if the size is negative.
    """

    def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
        if cleanup_size < 0:
            raise WrongValueError(f"the number of entries to check must not be negative: {cleanup_size}")
        self._cleanup_size = cleanup_size
        self._run_cleanup_for_every_record = run_cleanup_for_every_record

    def get_cleanup_size(self) -> int:
        """Return the number of entries to check each time."""
        return self._cleanup_size

    def run_cleanup_for_every_record(self) -> bool:
        """Return whether every record triggers a check, even if it does not access the state."""
        return self._run_cleanup_for_every_record


class _RocksdbCompactFilterCleanupStrategy(_CleanupStrategy):
    """Delete expired rows from RocksDB, reading the clock once every `query_time_after_num_entries` rows.

    A sweeper does this at the pace of the writes, ahead of compactions instead of within them: see
    `penstock.state.rocksdb.table`.
    """

    def __init__(self, query_time_after_num_entries: int, periodic_compaction_time: Any = None) -> None:
        self._query_time_after_num_entries = query_time_after_num_entries
        self._periodic_compaction_time = (
            Time.days(30) if periodic_compaction_time is None else Time(to_millis(periodic_compaction_time))
        )

    def get_query_time_after_num_entries(self) -> int:
        """Return the number of entries after which the clock is read again."""
        return self._query_time_after_num_entries

    def get_periodic_compaction_time(self) -> Time:
        """Return the time within which all rows are checked, even if little is written."""
        return self._periodic_compaction_time


_INCREMENTAL_DEFAULT: Final = _IncrementalCleanupStrategy(5, False)
_COMPACTION_DEFAULT: Final = _RocksdbCompactFilterCleanupStrategy(1000)


class _CleanupStrategies:
    """The chosen strategies, and the backend's default ones unless background cleanup is disabled."""

    Strategies = _Strategies
    CleanupStrategy = _CleanupStrategy
    EmptyCleanupStrategy = _EmptyCleanupStrategy
    IncrementalCleanupStrategy = _IncrementalCleanupStrategy
    RocksdbCompactFilterCleanupStrategy = _RocksdbCompactFilterCleanupStrategy

    EMPTY_STRATEGY = _EmptyCleanupStrategy()

    def __init__(self, strategies: Mapping[_Strategies, _CleanupStrategy], is_cleanup_in_background: bool) -> None:
        self._strategies = dict(strategies)
        self._is_cleanup_in_background = is_cleanup_in_background

    def is_cleanup_in_background(self) -> bool:
        """Return whether the backend cleans up in the background."""
        return self._is_cleanup_in_background

    def in_full_snapshot(self) -> bool:
        """Return whether snapshots omit expired entries."""
        return _Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

    def chose_incremental_cleanup(self) -> bool:
        """Return whether incremental cleanup was chosen, rather than being the default."""
        return _Strategies.INCREMENTAL_CLEANUP in self._strategies

    def get_incremental_cleanup_strategy(self) -> _IncrementalCleanupStrategy | None:
        """Return the incremental cleanup of the hash map backend; None if disabled."""
        chosen = self._strategies.get(_Strategies.INCREMENTAL_CLEANUP)
        if isinstance(chosen, _IncrementalCleanupStrategy):
            return chosen
        return _INCREMENTAL_DEFAULT if self._is_cleanup_in_background else None

    def get_rocksdb_compact_filter_cleanup_strategy(self) -> _RocksdbCompactFilterCleanupStrategy | None:
        """Return the cleanup of the RocksDB backend; None if disabled."""
        chosen = self._strategies.get(_Strategies.ROCKSDB_COMPACTION_FILTER)
        if isinstance(chosen, _RocksdbCompactFilterCleanupStrategy):
            return chosen
        return _COMPACTION_DEFAULT if self._is_cleanup_in_background else None


class StateTtlConfig:
    """The expiry of state entries. Create one with `StateTtlConfig.new_builder(Time.hours(1))...build()`.

    Raises:
        ValueError: if `ttl` is not positive.

    Examples:
        >>> from penstock.common import Time
        >>> from penstock.datastream.state import StateTtlConfig, ValueStateDescriptor
        >>> an_hour = StateTtlConfig.new_builder(Time.hours(1)).update_ttl_on_read_and_write().build()
        >>> ValueStateDescriptor("last").enable_time_to_live(an_hour)
        >>> an_hour.get_ttl().to_milliseconds()
        3600000
    """

    UpdateType = _UpdateType
    StateVisibility = _StateVisibility
    TtlTimeCharacteristic = _TtlTimeCharacteristic
    CleanupStrategies = _CleanupStrategies

    def __init__(
        self,
        update_type: _UpdateType,
        state_visibility: _StateVisibility,
        ttl_time_characteristic: _TtlTimeCharacteristic,
        ttl: Any,
        cleanup_strategies: _CleanupStrategies,
    ) -> None:
        self._update_type = update_type
        self._state_visibility = state_visibility
        self._ttl_time_characteristic = ttl_time_characteristic
        #: the time to live in ms
        self.ttl_ms = to_millis(ttl)
        if self.ttl_ms <= 0:
            raise WrongValueError(f"a time to live must be positive, not {ttl!r}")
        self._cleanup_strategies = cleanup_strategies

    @staticmethod
    def new_builder(ttl: Any) -> StateTtlConfig.Builder:
        """Return a builder for a time to live: a `Time`, `Duration`, `timedelta`, or int of milliseconds."""
        return StateTtlConfig.Builder(ttl)

    def get_update_type(self) -> _UpdateType:
        """Return the accesses that extend the time to live."""
        return self._update_type

    def get_state_visibility(self) -> _StateVisibility:
        """Return whether expired values may be returned."""
        return self._state_visibility

    def get_ttl(self) -> Time:
        """Return the time to live."""
        return Time(self.ttl_ms)

    def get_ttl_time_characteristic(self) -> _TtlTimeCharacteristic:
        """Return the time that determines expiry."""
        return self._ttl_time_characteristic

    def is_enabled(self) -> bool:
        """Return whether entries expire at all."""
        return self._update_type is not _UpdateType.Disabled

    def get_cleanup_strategies(self) -> _CleanupStrategies:
        """Return the cleanup strategies."""
        return self._cleanup_strategies

    def __repr__(self) -> str:
        return f"StateTtlConfig<{self._update_type.name}, {self._state_visibility.name}, ttl={self.ttl_ms} ms>"

    class Builder:
        """Builds a `StateTtlConfig`.

        By default, writes extend the time to live, and expired values are never returned.
        """

        def __init__(self, ttl: Any) -> None:
            self._ttl = ttl
            self._update_type = _UpdateType.OnCreateAndWrite
            self._state_visibility = _StateVisibility.NeverReturnExpired
            self._ttl_time_characteristic = _TtlTimeCharacteristic.ProcessingTime
            self._is_cleanup_in_background = True
            self._strategies: dict[_Strategies, _CleanupStrategy] = {}

        def set_update_type(self, update_type: _UpdateType) -> StateTtlConfig.Builder:
            """Set the accesses that extend the time to live."""
            self._update_type = update_type
            return self

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            """Extend the time to live only on writes."""
            return self.set_update_type(_UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            """Extend the time to live on reads as well."""
            return self.set_update_type(_UpdateType.OnReadAndWrite)

        def set_state_visibility(self, state_visibility: _StateVisibility) -> StateTtlConfig.Builder:
            """Set whether expired values may be returned."""
            self._state_visibility = state_visibility
            return self

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            """Return an expired value once more if it has not been cleaned up yet."""
            return self.set_state_visibility(_StateVisibility.ReturnExpiredIfNotCleanedUp)

        def never_return_expired(self) -> StateTtlConfig.Builder:
            """Never return expired values."""
            return self.set_state_visibility(_StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(
            self, ttl_time_characteristic: _TtlTimeCharacteristic
        ) -> StateTtlConfig.Builder:
            """Set the time that determines expiry; there is only one."""
            self._ttl_time_characteristic = ttl_time_characteristic
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """Let entries expire by the worker's clock."""
            return self.set_ttl_time_characteristic(_TtlTimeCharacteristic.ProcessingTime)

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Remove expired entries before each snapshot, checking all entries at once."""
            self._strategies[_Strategies.FULL_STATE_SCAN_SNAPSHOT] = _CleanupStrategies.EMPTY_STRATEGY
            return self

        def cleanup_incrementally(
            self, cleanup_size: int, run_cleanup_for_every_record: bool
        ) -> StateTtlConfig.Builder:
            """Check `cleanup_size` entries on each access to the state, or on each record as well."""
            self._strategies[_Strategies.INCREMENTAL_CLEANUP] = _IncrementalCleanupStrategy(
                cleanup_size, run_cleanup_for_every_record
            )
            return self

        def cleanup_in_rocksdb_compact_filter(
            self, query_time_after_num_entries: int, periodic_compaction_time: Any = None
        ) -> StateTtlConfig.Builder:
            """Delete expired rows from RocksDB at the pace of the writes; other backends ignore this.

            Args:
                query_time_after_num_entries: the number of rows to check per reading of the clock.
                periodic_compaction_time: the time within which all rows are checked even if little is written; 30 days
                    by default.
            """
            self._strategies[_Strategies.ROCKSDB_COMPACTION_FILTER] = _RocksdbCompactFilterCleanupStrategy(
                query_time_after_num_entries, periodic_compaction_time
            )
            return self

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Clean up only on reads and by the chosen strategies."""
            self._is_cleanup_in_background = False
            return self

        def set_ttl(self, ttl: Any) -> StateTtlConfig.Builder:
            """Set the time to live."""
            self._ttl = ttl
            return self

        def build(self) -> StateTtlConfig:
            """Build the configuration."""
            return StateTtlConfig(
                self._update_type,
                self._state_visibility,
                self._ttl_time_characteristic,
                self._ttl,
                _CleanupStrategies(self._strategies, self._is_cleanup_in_background),
            )


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
