"""Timestamps: ints in milliseconds since the epoch. Everything else is rejected with a remedy."""

from __future__ import annotations

import datetime
import operator
from typing import Any, Final

from penstock.base.errors import MisuseError, short_repr

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
