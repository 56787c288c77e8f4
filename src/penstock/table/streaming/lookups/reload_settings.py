"""When a fully cached table is reloaded (`lookup.full-cache.*`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo
from typing import Final

from penstock.base.config_options import ConfigOption
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.value_types import DURATION_MS, INTEGER, STRING, choice
from penstock.table.data.errors import ValidationError

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
