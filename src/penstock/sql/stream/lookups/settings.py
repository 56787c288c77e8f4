"""Lookup settings, from the options of the session and the table and from the LOOKUP hint.

`reload_settings` determines when a fully cached table is reloaded (`lookup.full-cache.*`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo
from typing import Final

from penstock.base.config_options import DURATION_MS, INTEGER, STRING, ConfigOption, choice
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.time import parse_duration
from penstock.sql.data.errors import ValidationError
from penstock.sql.tables.connector import CACHE, holds_all

_STRATEGY: Final = ConfigOption("lookup.full-cache.reload-strategy", choice("PERIODIC", "TIMED"), "PERIODIC")
_MODE: Final = ConfigOption(
    "lookup.full-cache.periodic-reload.schedule-mode", choice("FIXED_DELAY", "FIXED_RATE"), "FIXED_DELAY"
)
_INTERVAL: Final = ConfigOption("lookup.full-cache.periodic-reload.interval", DURATION_MS, 0)
_TIME: Final = ConfigOption("lookup.full-cache.timed-reload.iso-time", STRING, "")
_DAYS: Final = ConfigOption("lookup.full-cache.timed-reload.interval-in-days", INTEGER, 1)
_MS_A_SECOND: Final = 1_000


@dataclass(frozen=True, slots=True)
class Periodic:
    """Reloads at an interval in ms, counted from the end of the previous load, or with `is_fixed_rate` from its due
    time.
    """

    interval_ms: int
    is_fixed_rate: bool = False

    def first(self, now_ms: int, zone: tzinfo) -> int:
        """Return when (ms since 1970) a table that was just loaded is reloaded for the first time."""
        return now_ms + self.interval_ms

    def next(self, due_ms: int, ended_ms: int, zone: tzinfo) -> int:
        """Return when the table is reloaded after a load that was due at `due_ms` and ended at `ended_ms`."""
        return due_ms + self.interval_ms if self.is_fixed_rate else ended_ms + self.interval_ms


@dataclass(frozen=True, slots=True)
class Timed:
    """Reloads at a time of day, every `days` days. A time without a zone is in the session's zone."""

    at: time
    days: int = 1

    def first(self, now_ms: int, zone: tzinfo) -> int:
        """See `Periodic`."""
        now = datetime.fromtimestamp(now_ms / _MS_A_SECOND, self.at.tzinfo or zone)
        due = datetime.combine(now.date(), self.at, now.tzinfo)
        return _ms(due if due >= now else due + timedelta(days=1))

    def next(self, due_ms: int, ended_ms: int, zone: tzinfo) -> int:
        """See `Periodic`."""
        due = datetime.fromtimestamp(due_ms / _MS_A_SECOND, self.at.tzinfo or zone)
        return _ms(due + timedelta(days=self.days))


Reload = Periodic | Timed


def reload_settings(options: Mapping[str, str], title: str) -> Reload:
    """Return the reload settings of a table. Raises `ValidationError` for invalid and missing values."""
    read = Configuration.from_dict({key: value for key, value in options.items() if key.startswith("lookup.")}).read
    try:
        if read(_STRATEGY) == "PERIODIC":
            _need(options, _INTERVAL.key(), title, "a duration such as '1 h'")
            interval_ms = read(_INTERVAL)
            if interval_ms <= 0:
                raise _wrong(_INTERVAL.key(), title, "it must be above 0")
            return Periodic(interval_ms, read(_MODE) == "FIXED_RATE")
        _need(options, _TIME.key(), title, "a time of day such as '10:15' or '10:15Z'")
        days = read(_DAYS)
        if days <= 0:
            raise _wrong(_DAYS.key(), title, "it must be above 0")
        return Timed(_parse_time(read(_TIME), title), days)
    except ConfigurationError as error:
        raise ValidationError(f"Invalid option of table {title}: {error}") from error


def _need(options: Mapping[str, str], key: str, title: str, expected: str) -> None:
    if key not in options:
        raise ValidationError(
            f"Missing '{key}' of table {title}, which says when the table is read again: set {expected}"
        )


def _parse_time(text: str, title: str) -> time:
    try:
        return time.fromisoformat(text)
    except ValueError as error:
        raise _wrong(
            _TIME.key(), title, f"{text!r} is no time of day such as '10:15', '10:15Z' or '10:15+07:00'"
        ) from error


def _wrong(key: str, title: str, reason: str) -> ValidationError:
    return ValidationError(f"Invalid value for option '{key}' of table {title}: {reason}")


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * _MS_A_SECOND)


_OUTPUT_MODE: Final = "table.exec.async-lookup.output-mode"
_CAPACITY: Final = "table.exec.async-lookup.buffer-capacity"
_TIMEOUT: Final = "table.exec.async-lookup.timeout"
_KEY_ORDERED: Final = "table.exec.async-lookup.key-ordered-enabled"
_UPDATES: Final = "table.optimizer.non-deterministic-update.strategy"

_MAX_ROWS: Final = "lookup.partial-cache.max-rows"
_AFTER_WRITE: Final = "lookup.partial-cache.expire-after-write"
_AFTER_ACCESS: Final = "lookup.partial-cache.expire-after-access"
_MISSING: Final = "lookup.partial-cache.cache-missing-key"
_MAX_RETRIES: Final = "lookup.max-retries"

_ORDERED, _UNORDERED = "ORDERED", "ALLOW_UNORDERED"


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """The limits of a cache: the number of keys, and how long each is cached (ms); None for no limit."""

    max_keys: int | None = None
    after_write_ms: int | None = None
    after_access_ms: int | None = None
    holds_missing: bool = True


@dataclass(frozen=True, slots=True)
class LookupSettings:
    """How a table is looked up.

    Attributes:
        is_async: the value of the hint; None without a hint.
        is_ordered: whether asynchronous answers are emitted in input order.
        capacity: the maximum number of batches that wait for an answer.
        timeout_ms: how long a batch waits at most.
        cache: the settings of a partial cache; None without one.
        reload: when a fully cached table is reloaded; None for never, and for other tables.
        error_retries: how often a failed call is retried.
        miss_retries: how often keys without rows are looked up again.
        miss_delay_ms: the delay before each of these lookups.
        shuffles: whether rows are partitioned by their keys.
        resolves_updates: whether the matches of a row are stored, so that its retraction retracts the same matches.
    """

    is_async: bool | None = None
    is_ordered: bool = True
    capacity: int = 100
    timeout_ms: int = 180_000
    cache: CacheSettings | None = None
    reload: Reload | None = None
    error_retries: int = 0
    miss_retries: int = 0
    miss_delay_ms: int = 0
    shuffles: bool = False
    resolves_updates: bool = False


def lookup_settings(
    session: Mapping[str, str], table: Mapping[str, str], hint: Mapping[str, str], title: str
) -> LookupSettings:
    """Return the settings that the options define; the hint takes precedence. `title`: the name of the table, for
    errors.

    Raises `ValidationError` for invalid values.
    """
    mode = hint.get("output-mode", session.get(_OUTPUT_MODE, _ORDERED)).upper()
    if mode not in (_ORDERED, _UNORDERED):
        raise ValidationError(f"output mode {mode!r} of look-ups of table {title}: use {_ORDERED} or {_UNORDERED}")
    timeout = hint.get("timeout", session.get(_TIMEOUT))
    is_key_ordered = session.get(_KEY_ORDERED, "false").lower() == "true"
    retries = _whole(hint["max-attempts"], "max-attempts", title) if "retry-predicate" in hint else 0
    return LookupSettings(
        is_async=None if "async" not in hint else hint["async"].lower() == "true",
        # Input order includes the order of each key.
        is_ordered=mode == _ORDERED or is_key_ordered,
        capacity=_whole(hint.get("capacity", session.get(_CAPACITY, "100")), _CAPACITY, title),
        timeout_ms=180_000 if timeout is None else _duration(timeout, _TIMEOUT, title),
        cache=_cache(table, title),
        reload=reload_settings(table, title) if holds_all(table) else None,
        error_retries=_whole(table.get(_MAX_RETRIES, "0"), _MAX_RETRIES, title),
        miss_retries=retries,
        miss_delay_ms=_duration(hint["fixed-delay"], "fixed-delay", title) if retries else 0,
        shuffles=hint.get("shuffle", "false").lower() == "true",
        resolves_updates=session.get(_UPDATES, "").upper() == "TRY_RESOLVE",
    )


def _cache(options: Mapping[str, str], title: str) -> CacheSettings | None:
    kind = options.get(CACHE, "NONE").upper()
    if kind == "NONE" or holds_all(options):
        return None
    if kind != "PARTIAL":
        raise ValidationError(f"Invalid value for option '{CACHE}' of table {title}: {kind}. Use NONE, PARTIAL or FULL")
    rows, write, access = (options.get(key) for key in (_MAX_ROWS, _AFTER_WRITE, _AFTER_ACCESS))
    if rows is None and write is None and access is None:
        raise ValidationError(
            f"'{CACHE}' = 'PARTIAL' of table {title} would hold all keys for ever: set '{_MAX_ROWS}', "
            f"'{_AFTER_WRITE}' or '{_AFTER_ACCESS}'"
        )
    return CacheSettings(
        None if rows is None else _whole(rows, _MAX_ROWS, title),
        None if write is None else _duration(write, _AFTER_WRITE, title),
        None if access is None else _duration(access, _AFTER_ACCESS, title),
        options.get(_MISSING, "true").lower() == "true",
    )


def _whole(text: str, key: str, title: str) -> int:
    if not text.strip().isdecimal():
        raise ValidationError(f"Invalid value for option '{key}' of table {title}: {text!r} is no whole number")
    return int(text)


def _duration(text: str, key: str, title: str) -> int:
    try:
        return parse_duration(text).to_millis()
    except ValueError as error:
        raise ValidationError(f"Invalid value for option '{key}' of table {title}: {error}") from error
