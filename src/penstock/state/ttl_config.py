"""When entries of a state expire, and how they are cleaned up: PyFlink's `StateTtlConfig`.

>>> from penstock.common import Time
>>> config = StateTtlConfig.new_builder(Time.hours(1)).update_ttl_on_read_and_write().build()
>>> config.get_ttl(), config.get_update_type().name
(Time(3600000), 'OnReadAndWrite')
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from penstock.base.errors import WrongValueError
from penstock.base.time import Time, to_millis


class _UpdateType(Enum):
    """Which access puts the expiry of an entry off."""

    Disabled = 0
    OnCreateAndWrite = 1
    OnReadAndWrite = 2


class _StateVisibility(Enum):
    """Whether a value that has expired, and is still there, is returned once more."""

    ReturnExpiredIfNotCleanedUp = 0
    NeverReturnExpired = 1


class _TtlTimeCharacteristic(Enum):
    """Which time expiry goes by."""

    ProcessingTime = 0


class _Strategies(Enum):
    """Ways to clean up."""

    FULL_STATE_SCAN_SNAPSHOT = 0
    INCREMENTAL_CLEANUP = 1
    ROCKSDB_COMPACTION_FILTER = 2


class _CleanupStrategy:
    """Base of the strategies' parameters."""


class _EmptyCleanupStrategy(_CleanupStrategy):
    """A strategy without parameters."""


class _IncrementalCleanupStrategy(_CleanupStrategy):
    """Look at `cleanup_size` entries with each access to the state, or with each record too.

    Raises:
        ValueError: if the size is negative.
    """

    def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
        if cleanup_size < 0:
            raise WrongValueError(f"the number of entries to check must not be negative: {cleanup_size}")
        self._cleanup_size = cleanup_size
        self._run_cleanup_for_every_record = run_cleanup_for_every_record

    def get_cleanup_size(self) -> int:
        """How many entries are looked at each time."""
        return self._cleanup_size

    def run_cleanup_for_every_record(self) -> bool:
        """Whether every record counts, one that does not touch the state included."""
        return self._run_cleanup_for_every_record


class _RocksdbCompactFilterCleanupStrategy(_CleanupStrategy):
    """Throw expired rows out of RocksDB, reading the clock once every `query_time_after_num_entries` rows.

    A sweeper does this at the pace of the writes, ahead of compactions rather than within them: see
    `penstock.state.rocksdb.sweeper`.
    """

    def __init__(self, query_time_after_num_entries: int, periodic_compaction_time: Any = None) -> None:
        self._query_time_after_num_entries = query_time_after_num_entries
        self._periodic_compaction_time = (
            Time.days(30) if periodic_compaction_time is None else Time(to_millis(periodic_compaction_time))
        )

    def get_query_time_after_num_entries(self) -> int:
        """After how many entries the clock is read again."""
        return self._query_time_after_num_entries

    def get_periodic_compaction_time(self) -> Time:
        """The time within which all rows are looked at in any case; a round takes at most that long."""
        return self._periodic_compaction_time


_INCREMENTAL_DEFAULT: Final = _IncrementalCleanupStrategy(5, False)
_COMPACTION_DEFAULT: Final = _RocksdbCompactFilterCleanupStrategy(1000)


class _CleanupStrategies:
    """The chosen strategies; in the background those that suit the backend, unless that was disabled."""

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
        """Whether the backend cleans up by itself."""
        return self._is_cleanup_in_background

    def in_full_snapshot(self) -> bool:
        """Whether snapshots leave expired entries out."""
        return _Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

    def chose_incremental_cleanup(self) -> bool:
        """Whether incremental clean-up was asked for, rather than being the default."""
        return _Strategies.INCREMENTAL_CLEANUP in self._strategies

    def get_incremental_cleanup_strategy(self) -> _IncrementalCleanupStrategy | None:
        """How the hash map backend cleans up between accesses; None when it does not."""
        chosen = self._strategies.get(_Strategies.INCREMENTAL_CLEANUP)
        if isinstance(chosen, _IncrementalCleanupStrategy):
            return chosen
        return _INCREMENTAL_DEFAULT if self._is_cleanup_in_background else None

    def get_rocksdb_compact_filter_cleanup_strategy(self) -> _RocksdbCompactFilterCleanupStrategy | None:
        """How RocksDB cleans up when it compacts; None when it does not."""
        chosen = self._strategies.get(_Strategies.ROCKSDB_COMPACTION_FILTER)
        if isinstance(chosen, _RocksdbCompactFilterCleanupStrategy):
            return chosen
        return _COMPACTION_DEFAULT if self._is_cleanup_in_background else None


class StateTtlConfig:
    """When entries of a state expire. Make one with `StateTtlConfig.new_builder(Time.hours(1))...build()`.

    Raises:
        ValueError: if `ttl` is not positive.
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
        """A builder for a time to live: a `Time`, `Duration`, `timedelta`, or int of milliseconds."""
        return StateTtlConfig.Builder(ttl)

    def get_update_type(self) -> _UpdateType:
        """Which access puts the expiry off."""
        return self._update_type

    def get_state_visibility(self) -> _StateVisibility:
        """Whether expired values may be returned."""
        return self._state_visibility

    def get_ttl(self) -> Time:
        """The time to live."""
        return Time(self.ttl_ms)

    def get_ttl_time_characteristic(self) -> _TtlTimeCharacteristic:
        """Which time expiry goes by."""
        return self._ttl_time_characteristic

    def is_enabled(self) -> bool:
        """Whether anything expires at all."""
        return self._update_type is not _UpdateType.Disabled

    def get_cleanup_strategies(self) -> _CleanupStrategies:
        """How expired entries are cleaned up."""
        return self._cleanup_strategies

    def __repr__(self) -> str:
        return f"StateTtlConfig<{self._update_type.name}, {self._state_visibility.name}, ttl={self.ttl_ms} ms>"

    class Builder:
        """Gathers a `StateTtlConfig`; by default expiry is put off by writes, and expired values are never returned."""

        def __init__(self, ttl: Any) -> None:
            self._ttl = ttl
            self._update_type = _UpdateType.OnCreateAndWrite
            self._state_visibility = _StateVisibility.NeverReturnExpired
            self._ttl_time_characteristic = _TtlTimeCharacteristic.ProcessingTime
            self._is_cleanup_in_background = True
            self._strategies: dict[_Strategies, _CleanupStrategy] = {}

        def set_update_type(self, update_type: _UpdateType) -> StateTtlConfig.Builder:
            """Which access puts the expiry off."""
            self._update_type = update_type
            return self

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            """Only writing puts the expiry off."""
            return self.set_update_type(_UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            """Reading puts the expiry off as well."""
            return self.set_update_type(_UpdateType.OnReadAndWrite)

        def set_state_visibility(self, state_visibility: _StateVisibility) -> StateTtlConfig.Builder:
            """Whether expired values may be returned."""
            self._state_visibility = state_visibility
            return self

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            """Expired values may be returned once more, as long as nothing has cleaned them up."""
            return self.set_state_visibility(_StateVisibility.ReturnExpiredIfNotCleanedUp)

        def never_return_expired(self) -> StateTtlConfig.Builder:
            """An expired value is as good as gone."""
            return self.set_state_visibility(_StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(
            self, ttl_time_characteristic: _TtlTimeCharacteristic
        ) -> StateTtlConfig.Builder:
            """Which time expiry goes by; there is one."""
            self._ttl_time_characteristic = ttl_time_characteristic
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """Expiry goes by the clock of the worker."""
            return self.set_ttl_time_characteristic(_TtlTimeCharacteristic.ProcessingTime)

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Throw expired entries out ahead of each snapshot, which looks at all entries, at once."""
            self._strategies[_Strategies.FULL_STATE_SCAN_SNAPSHOT] = _CleanupStrategies.EMPTY_STRATEGY
            return self

        def cleanup_incrementally(
            self, cleanup_size: int, run_cleanup_for_every_record: bool
        ) -> StateTtlConfig.Builder:
            """Look at `cleanup_size` entries with each access to the state, or with each record too."""
            self._strategies[_Strategies.INCREMENTAL_CLEANUP] = _IncrementalCleanupStrategy(
                cleanup_size, run_cleanup_for_every_record
            )
            return self

        def cleanup_in_rocksdb_compact_filter(
            self, query_time_after_num_entries: int, periodic_compaction_time: Any = None
        ) -> StateTtlConfig.Builder:
            """Throw expired rows out of RocksDB at the pace of the writes; other backends ignore it.

            Args:
                query_time_after_num_entries: how many rows are looked at for one reading of the clock.
                periodic_compaction_time: rows are looked at in this time even when little is written; 30 days when
                    not given.
            """
            self._strategies[_Strategies.ROCKSDB_COMPACTION_FILTER] = _RocksdbCompactFilterCleanupStrategy(
                query_time_after_num_entries, periodic_compaction_time
            )
            return self

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Clean up only what is read, and as the strategies say that were chosen."""
            self._is_cleanup_in_background = False
            return self

        def set_ttl(self, ttl: Any) -> StateTtlConfig.Builder:
            """The time to live."""
            self._ttl = ttl
            return self

        def build(self) -> StateTtlConfig:
            """The configuration."""
            return StateTtlConfig(
                self._update_type,
                self._state_visibility,
                self._ttl_time_characteristic,
                self._ttl,
                _CleanupStrategies(self._strategies, self._is_cleanup_in_background),
            )
