"""What a timestamp is: an int, milliseconds since the epoch. Anything else is refused, with the remedy."""

from __future__ import annotations

import datetime
import operator
from typing import Any, Final

from penstock.base.errors import MisuseError, short_repr

_TEXT_CHARS_MAX: Final = 80


def whole_ms(timestamp: Any, what: str) -> int:
    """The timestamp as a plain int; `what` says what returned it, for the error.

    Raises:
        MisuseError: if it is not a whole number, of Python's or numpy's.
    """
    if type(timestamp) is int:
        return timestamp
    if not _is_moment(timestamp):
        try:
            return int(operator.index(timestamp))
        except TypeError:
            pass
    shown = f"{short_repr(timestamp, _TEXT_CHARS_MAX)} ({type(timestamp).__name__})"
    raise MisuseError(
        f"{what} returned {shown}; it must return an int: milliseconds since the epoch. {_remedy(timestamp)}"
    )


def _is_moment(timestamp: Any) -> bool:
    """Whether it is a numpy date or time: these can serve as an index too, but in units of their own."""
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
