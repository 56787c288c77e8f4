"""PostgreSQL values that a declared type cannot hold, and how they are read.

| value | declared as | becomes |
| --- | --- | --- |
| NaN or infinity of `numeric` | DECIMAL | unrepresentable; DOUBLE and FLOAT hold both |
| more digits after the point than the type has | DECIMAL | rounded half up, as in Flink |
| more digits before the point than the type has | DECIMAL | unrepresentable |
| `infinity` and `-infinity`, years BC, years above 9999 | DATE, TIMESTAMP | unrepresentable |
| timestamps outside 1677-09-21 to 2262-04-11 | TIMESTAMP(7) to (9) | unrepresentable |
| more digits of a second than the type has | TIME, TIMESTAMP | cut off towards the past |
| `24:00:00` | TIME | unrepresentable |

An unrepresentable value fails the job, or becomes NULL if the option says so. A column declared as STRING holds each
value in the server's text form.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from penstock.base.errors import ConfigurationError, FormatError

#: The two ways to handle unrepresentable values.
FAIL, NULL = "fail", "null"
MODES: Final = (FAIL, NULL)
OPTION: Final = "unrepresentable-values"
#: More digits than any numeric of the server has.
_CONTEXT: Final = decimal.Context(prec=200_000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def check_mode(mode: str) -> str:
    """Return the mode. Raises `ConfigurationError` if it is unknown."""
    if mode not in MODES:
        raise ConfigurationError(f"values that a type cannot hold {' or become '.join(MODES)}, not {mode!r}")
    return mode


def read_one_by_one(
    texts: pa.Array, kind: pa.DataType, name: str, mode: str, read: Callable[[pa.Array, pa.DataType], pa.Array]
) -> pa.Array:
    """Read a column of texts, although the type may not hold some of them.

    Args:
        texts: values in the server's text form.
        kind: the type of the column; not a list.
        name: the column's name, for errors.
        mode: `FAIL` or `NULL`.
        read: reads texts as values of the type; raises if it cannot.

    Raises:
        FormatError: for a value that the type cannot hold, in mode `FAIL`.
    """
    readable: list[str | None] = []
    for text in texts.to_pylist():
        rounded = _round(text, kind) if pa.types.is_decimal(kind) and text is not None else text
        if rounded is not None and _can_read(rounded, kind, read):
            readable.append(rounded)
        elif text is None or mode == NULL:
            readable.append(None)
        else:
            raise FormatError(
                f"column {name!r} of PostgreSQL has the value {text!r}, which {kind} cannot hold: declare the column "
                f"as text (STRING), or read such values as NULL ('{OPTION}' = '{NULL}')"
            )
    return read(pa.array(readable, pa.string()), kind)


def _can_read(text: str, kind: pa.DataType, read: Callable[[pa.Array, pa.DataType], pa.Array]) -> bool:
    if pa.types.is_decimal(kind):
        return True
    try:
        read(pa.array([text], pa.string()), kind)
    except (pa.ArrowException, ValueError, OverflowError):
        return False
    return True


def _round(text: str, kind: pa.DataType) -> str | None:
    """Round a number to a type's digits, as text; None for NaN, infinity, or too many digits before the point."""
    try:
        number = decimal.Decimal(text)
    except decimal.InvalidOperation:
        return None
    if not number.is_finite():
        return None
    rounded = number.quantize(decimal.Decimal(1).scaleb(-kind.scale), decimal.ROUND_HALF_UP, _CONTEXT)
    is_held = not rounded or rounded.adjusted() + 1 + kind.scale <= kind.precision
    return format(rounded, "f") if is_held else None
