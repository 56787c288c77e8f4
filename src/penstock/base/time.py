"""Durations and points in time, their only conversion to milliseconds, and checks of timestamps.

Penstock counts time in whole milliseconds since the epoch, UTC, everywhere. `Duration` keeps nanoseconds, because its
text form may contain them. It is rounded down when converted to milliseconds.

Timestamps and timers are ints in milliseconds. `whole_ms` and `timer_ms` reject everything else with a remedy.
"""

from __future__ import annotations

import datetime
import functools
import operator
import re
from dataclasses import dataclass
from typing import Any, Final

from penstock.base.errors import MisuseError, WrongTypeError, WrongValueError, short_repr

__all__ = ["Duration", "Instant", "Time", "format_duration", "parse_duration", "to_millis"]

_NANOS_PER_MICRO = 1_000
_NANOS_PER_MILLI = 1_000_000
_NANOS_PER_SECOND = 1_000_000_000
_NANOS_PER_MINUTE = 60 * _NANOS_PER_SECOND
_NANOS_PER_HOUR = 60 * _NANOS_PER_MINUTE
_NANOS_PER_DAY = 24 * _NANOS_PER_HOUR

_UNIT_NANOS = {
    **dict.fromkeys(("d", "day", "days"), _NANOS_PER_DAY),
    **dict.fromkeys(("h", "hour", "hours"), _NANOS_PER_HOUR),
    **dict.fromkeys(("m", "min", "minute", "minutes"), _NANOS_PER_MINUTE),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), _NANOS_PER_SECOND),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), _NANOS_PER_MILLI),
    # The two signs for "micro", U+00B5 and U+03BC, look alike; both are accepted.
    **dict.fromkeys(("\u00b5s", "\u03bcs", "micro", "micros", "microsecond", "microseconds"), _NANOS_PER_MICRO),
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1),
}
_LABELLED = re.compile(r"([0-9]+)\s*([^\W\d_]*)\Z")
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,9}))?S)?)?\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time with nanosecond precision; may be negative.

    Create one with `Duration.of_seconds(5)` and the like. Durations compare, hash and pickle by value.

    Examples:
        >>> from penstock.common import Duration
        >>> Duration.of_seconds(90) > Duration.of_minutes(1), Duration.of_seconds(90).to_millis()
        (True, 90000)
    """

    nanos: int

    def __post_init__(self) -> None:
        _require_int(self.nanos, "Duration")

    @staticmethod
    def of_days(days: int) -> Duration:
        """Return a duration of `days` days of 24 hours each."""
        return _duration(days, _NANOS_PER_DAY)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """Return a duration of `hours` hours."""
        return _duration(hours, _NANOS_PER_HOUR)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """Return a duration of `minutes` minutes."""
        return _duration(minutes, _NANOS_PER_MINUTE)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """Return a duration of `seconds` seconds."""
        return _duration(seconds, _NANOS_PER_SECOND)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """Return a duration of `millis` milliseconds."""
        return _duration(millis, _NANOS_PER_MILLI)

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """Return a duration of `nanos` nanoseconds."""
        return _duration(nanos, 1)

    def to_millis(self) -> int:
        """Return the length in milliseconds, rounded down."""
        return self.nanos // _NANOS_PER_MILLI

    def to_nanos(self) -> int:
        """Return the length in nanoseconds."""
        return self.nanos

    def to_timedelta(self) -> datetime.timedelta:
        """Return the length as a `datetime.timedelta`, rounded down to microseconds."""
        return datetime.timedelta(microseconds=self.nanos // _NANOS_PER_MICRO)

    def __str__(self) -> str:
        return _format_nanos(self.nanos)


@functools.total_ordering
class Time:
    """A length of time in whole milliseconds; the predecessor of `Duration`.

    Examples:
        >>> from penstock.common import Time
        >>> Time.minutes(2).to_milliseconds()
        120000
    """

    __slots__ = ("_millis",)

    def __init__(self, milliseconds: int) -> None:
        self._millis = _require_int(milliseconds, "Time")

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """Return a length of `milliseconds` milliseconds."""
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        """Return a length of `seconds` seconds."""
        return Time(_require_int(seconds, "Time") * 1_000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        """Return a length of `minutes` minutes."""
        return Time(_require_int(minutes, "Time") * 60_000)

    @staticmethod
    def hours(hours: int) -> Time:
        """Return a length of `hours` hours."""
        return Time(_require_int(hours, "Time") * 3_600_000)

    @staticmethod
    def days(days: int) -> Time:
        """Return a length of `days` days of 24 hours each."""
        return Time(_require_int(days, "Time") * 86_400_000)

    def to_milliseconds(self) -> int:
        """Return the length in milliseconds."""
        return self._millis

    def __eq__(self, other: object) -> bool:
        return self._millis == other._millis if isinstance(other, Time) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._millis < other._millis if isinstance(other, Time) else NotImplemented

    def __hash__(self) -> int:
        return hash((Time, self._millis))

    def __repr__(self) -> str:
        return f"Time({self._millis})"

    def __str__(self) -> str:
        return f"{self._millis} ms"


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """A point on the time line: seconds since the epoch, UTC, and nanoseconds within that second.

    Raises:
        ValueError: if `nanos` is not within 0 .. 999,999,999.

    Examples:
        >>> from penstock.common import Instant
        >>> Instant.of_epoch_milli(1_500)
        Instant(seconds=1, nanos=500000000)
        >>> Instant(1, 500_000_000).to_epoch_milli()
        1500
    """

    seconds: int
    nanos: int

    def __post_init__(self) -> None:
        if not 0 <= self.nanos < _NANOS_PER_SECOND:
            raise WrongValueError(f"nanoseconds of an Instant must be within 0 and 999999999, not {self.nanos}")

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """Return the instant `epoch_milli` milliseconds after (or, if negative, before) the epoch."""
        seconds, millis = divmod(_require_int(epoch_milli, "Instant"), 1_000)
        return Instant(seconds, millis * _NANOS_PER_MILLI)

    def to_epoch_milli(self) -> int:
        """Return the milliseconds since the epoch, rounded down."""
        return self.seconds * 1_000 + self.nanos // _NANOS_PER_MILLI


def to_millis(value: object) -> int:
    """Return a length of time in whole milliseconds, rounded down.

    Accepts a `Duration`, a `Time`, a `datetime.timedelta`, or an int, which is already in milliseconds.

    Raises:
        TypeError: for anything else, including bool and float.
    """
    if isinstance(value, Duration):
        return value.to_millis()
    if isinstance(value, Time):
        return value.to_milliseconds()
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise WrongTypeError(
        f"a length of time must be a Duration, a Time, a datetime.timedelta or an int of milliseconds, "
        f"not {type(value).__name__}: {value!r}"
    )


def parse_duration(text: str) -> Duration:
    """Parse a duration in Flink's format: `10 s`, `500ms`, `1 min`, `2 h`, `1 d`, or ISO-8601 such as `PT1M30S`.

    A bare number is in milliseconds. Case does not matter.

    Raises:
        ValueError: if the text is not a duration.
    """
    trimmed = text.strip()
    labelled = _LABELLED.match(trimmed)
    if labelled is not None and labelled[2].lower() in _UNIT_NANOS:
        return Duration(int(labelled[1]) * _UNIT_NANOS[labelled[2].lower()])
    iso = _ISO.match(trimmed)
    if iso is not None and any(iso.groups()):
        days, hours, minutes, seconds = (int(group or 0) for group in iso.groups()[:4])
        nanos = int((iso[5] or "").ljust(9, "0"))
        whole_seconds = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        return Duration(whole_seconds * _NANOS_PER_SECOND + nanos)
    raise WrongValueError(f"not a duration: {text!r}; write a whole number and a unit: d, h, min, s, ms, \u00b5s or ns")


def format_duration(value: Duration | Time | datetime.timedelta | int) -> str:
    """Format a length of time in the largest unit that is exact: 90,000 ms as `90 s`.

    `parse_duration` reads the text back unless the length is negative. An int is in milliseconds.

    Raises:
        TypeError: if `value` is not a length of time.
    """
    if isinstance(value, Duration):
        return _format_nanos(value.nanos)
    if isinstance(value, datetime.timedelta):
        return _format_nanos(value // datetime.timedelta(microseconds=1) * _NANOS_PER_MICRO)
    return _format_nanos(to_millis(value) * _NANOS_PER_MILLI)


def _format_nanos(nanos: int) -> str:
    for label in ("d", "h", "min", "s", "ms", "\u00b5s"):
        if nanos and nanos % _UNIT_NANOS[label] == 0:
            return f"{nanos // _UNIT_NANOS[label]} {label}"
    return f"{nanos} ns" if nanos else "0 ms"


def _duration(count: int, unit_nanos: int) -> Duration:
    return Duration(_require_int(count, "Duration") * unit_nanos)


def _require_int(value: object, class_name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongTypeError(f"{class_name} takes a whole number, not {type(value).__name__}: {value!r}")
    return value


_TEXT_CHARS_MAX: Final = 80
_FIRST_MS: Final = -(2**63)
_LAST_MS: Final = 2**63 - 1


def whole_ms(timestamp: Any, source: str) -> int:
    """Return the timestamp as a plain int; `source` names the function that returned it, for the error message.

    Raises:
        MisuseError: if it is not an integer of Python or numpy.
    """
    milliseconds = _whole(timestamp)
    if milliseconds is not None:
        return milliseconds
    rendered = f"{short_repr(timestamp, _TEXT_CHARS_MAX)} ({type(timestamp).__name__})"
    raise MisuseError(
        f"{source} returned {rendered}; it must return an int: milliseconds since the epoch. {_remedy(timestamp)}"
    )


def timer_ms(timestamp: Any, call: str) -> int:
    """Return the time of a timer as a plain int; `call` names the method that received it, for the error message.

    Raises:
        MisuseError: if it is not an integer of Python or numpy, or does not fit into 64 bits.
    """
    milliseconds = _whole(timestamp)
    problem = f"{call} was given {short_repr(timestamp, _TEXT_CHARS_MAX)} ({type(timestamp).__name__})"
    if milliseconds is None:
        raise MisuseError(
            f"{problem}; the time of a timer is an int: milliseconds since the epoch. {_timer_remedy(timestamp)}"
        )
    if not _FIRST_MS <= milliseconds <= _LAST_MS:
        raise MisuseError(
            f"{problem}; the time of a timer fits into 64 bits: at most 2**63 - 1 (sys.maxsize), the end of event "
            "time, "
            "and at least -2**63. A time in microseconds or nanoseconds must be divided first"
        )
    return milliseconds


def _whole(timestamp: Any) -> int | None:
    if type(timestamp) is int:
        return timestamp
    if not _is_moment(timestamp):
        try:
            return int(operator.index(timestamp))
        except TypeError:
            pass
    return None


def _timer_remedy(timestamp: Any) -> str:
    if isinstance(timestamp, int | float):
        return "Pass int(x), or int(x * 1000) if it is in seconds"
    if timestamp is None:
        return "ctx.timestamp() is None for records without a timestamp: assign timestamps first"
    return _remedy(timestamp).replace("Return ", "Pass ").replace("return ", "pass ")


def _is_moment(timestamp: Any) -> bool:
    """Return whether it is a numpy date or time. These support `__index__` too, but in their own units."""
    return type(timestamp).__name__ in ("datetime64", "timedelta64")


def _remedy(timestamp: Any) -> str:
    if timestamp is None:
        return "Every record needs a timestamp: filter out records without one"
    if isinstance(timestamp, datetime.datetime):
        return "Return int(x.timestamp() * 1000), which treats a datetime without a time zone as local time"
    if isinstance(timestamp, datetime.date):
        return "Convert it to a datetime with its time zone, and return int(x.timestamp() * 1000)"
    if _is_moment(timestamp):
        return 'Return int(x.astype("datetime64[ms]").astype("int64"))'
    return "Return int(x), or int(x * 1000) if it is in seconds"
