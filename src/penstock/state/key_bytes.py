"""The canonical bytes of a key: equal keys have equal bytes, and different keys have different ones (D1, D4).

Keys are distinguished as in a Python dictionary: two keys are the same if they are equal and have the same hash. The
heap keeps state in dictionaries; RocksDB and the routes use these bytes, so both must agree. `1`, `1.0`, `True` and
`Decimal(1)` are one key, and so are `0.0` and `-0.0`, and times of different zones at the same moment. NaN is one key,
see `state.keys`.

A subclass counts as its base if it does not override `==` and the hash, such as the members of `class Color(str,
Enum)`. A class with its own comparison is rejected, because its bytes cannot follow it.

An enum or dataclass is identified by its class name without the module, so that a class may move. `state.keys` checks
which classes an operator uses as keys.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import struct
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.base.types import Row, RowKind
from penstock.state.errors import StateError

_DOUBLE: Final = struct.Struct(">d")
_NAN_BYTES: Final = b"f" + _DOUBLE.pack(float("nan"))
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
#: Decimals with more digits are rejected: the integers that they may equal might not fit into memory.
_DIGITS_MAX: Final = 300_000
_ALLOWED: Final = (
    "a str, int, float, bool, bytes, None, date, time, Decimal, UUID, Enum, Row, frozen dataclass, or a tuple or "
    "frozenset of these"
)

_REMEDIES: Final[dict[type, str]] = {
    list: "; convert a list with tuple(x)",
    set: "; convert a set with frozenset(x)",
    dict: "; convert a dict with tuple(sorted(x.items()))",
}


class _FloatOfItsOwn(float):
    """A float that, as a dictionary key, differs from every number; instances of one subclass are one key."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self).__name__)


class NotANumber(_FloatOfItsOwn):
    """A NaN that equals itself: `NAN`, with which `state.keys` replaces all others."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _nan, ()


NAN: Final = NotANumber("nan")


def _nan() -> float:
    return NAN


class NegativeZero(_FloatOfItsOwn):
    """A -0.0 that differs from 0.0 as a dictionary key: `NEGATIVE_ZERO`, in rows that are compared bit for bit."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _negative_zero, ()


NEGATIVE_ZERO: Final = NegativeZero(-0.0)


def _negative_zero() -> float:
    return NEGATIVE_ZERO


def key_bytes(key: Any) -> bytes:
    """Return the canonical bytes of a key; raises `StateError` for a key without a stable value."""
    kind = type(key)
    if kind is str:
        text: bytes = key.encode("utf-8", "surrogatepass")
        return b"s" + text
    if kind is int or kind is bool:
        return _int(key)
    if kind is tuple:
        return _sequence(key)
    if kind is float:
        return _float(key)
    if key is None:
        return b"n"
    if kind is bytes:
        return b"b" + bytes(key)
    return _other_key_bytes(key)


def is_plain(key: Any) -> bool:
    """Return whether a key can be read back from its canonical bytes, type included."""
    kind = type(key)
    if kind is str or kind is int or key is None or kind is bytes:
        return True
    return kind is tuple and all(map(is_plain, key))


def decode_plain_key(data: bytes) -> Any:
    """Return the plain key with these canonical bytes."""
    kind = data[:1]
    if kind == b"s":
        return data[1:].decode("utf-8", "surrogatepass")
    if kind == b"i":
        return int(data[1:])
    if kind == b"n":
        return None
    if kind == b"b":
        return data[1:]
    if kind == b"I":
        return int.from_bytes(data[1:], "big", signed=True)
    if kind != b"t":
        raise StateError(f"canonical bytes {data[:40]!r} are not those of a plain key: the row is damaged")
    items = []
    count, _, rest = data[1:].partition(b":")
    for _ in range(int(count)):
        length, _, rest = rest.partition(b":")
        items.append(decode_plain_key(rest[: int(length)]))
        rest = rest[int(length) :]
    return tuple(items)


def _other_key_bytes(key: Any) -> bytes:
    kind = type(key)
    if kind is NotANumber:
        return _NAN_BYTES
    if kind.__module__ == "numpy":
        return _numpy(key)
    if isinstance(key, enum.Enum) and _compares_as(kind, object):
        # Only an unnamed combination of flags has no name.
        return b"e" + _sequence((kind.__qualname__, key.name) if key.name else (kind.__qualname__, None, key.value))
    if dataclasses.is_dataclass(kind):
        return _dataclass(key)
    if kind.__module__.partition(".")[0] == "pandas" and isinstance(key, datetime.datetime | datetime.timedelta):
        return _datetime(key) if isinstance(key, datetime.datetime) else _timedelta(key)
    for base, encode in _BASES:
        if isinstance(key, base):
            if not _compares_as(kind, base) or kind.__hash__ is not base.__hash__:
                raise _refused(key, f"compares differently from {base.__name__}, so it has no stable value")
            return encode(key)
    raise _refused(key, "has no stable value to hash")


def _compares_as(kind: type, base: type) -> bool:
    compares: Any = kind.__eq__
    return compares is base.__eq__


def _refused(key: Any, why: str) -> StateError:
    remedy = _REMEDIES.get(type(key), "")
    return StateError(f"a key of type {type(key).__qualname__} {why}; the key selector must return {_ALLOWED}{remedy}")


# --- numbers ----------------------------------------------------------------------------------------------------------


def _int(key: int) -> bytes:
    try:
        return b"i%d" % key
    except ValueError:  # more digits than Python converts to text
        return b"I" + key.to_bytes(key.bit_length() // 8 + 1, "big", signed=True)


def _float(key: float) -> bytes:
    if key.is_integer():
        return b"i%d" % int(key)
    return b"f" + _DOUBLE.pack(key) if key == key else _NAN_BYTES


def _decimal(key: decimal.Decimal) -> bytes:
    if key.is_snan():
        raise _refused(key, "is a signaling NaN, which cannot be hashed")
    if not key.is_finite():
        return _float(float(key))
    sign, digits, exponent = key.as_tuple()
    assert isinstance(exponent, int)
    if len(digits) + abs(exponent) > _DIGITS_MAX:
        raise _refused(key, f"has more than {_DIGITS_MAX} digits")
    significant = len(digits)
    while significant > 1 and not digits[significant - 1]:
        significant -= 1
    shortest = decimal.Decimal((sign, digits[:significant], exponent + len(digits) - significant))
    if shortest.as_tuple().exponent >= 0 or not shortest:  # type: ignore[operator]
        return _int(int(shortest))
    as_float = float(shortest)
    # A decimal equals a float of exactly its value, so both must be in one key group.
    return _float(as_float) if shortest == as_float else b"d" + str(shortest).encode()


def is_numpy_scalar(key: Any) -> bool:
    """Return whether the key is a NumPy scalar with a Python counterpart; NumPy's datetimes do not count."""
    if type(key).__module__ != "numpy" or type(key).__hash__ is None:
        return False
    return getattr(getattr(key, "dtype", None), "kind", "") in tuple("biufUS") and type(key.item()) is not type(key)


def _numpy(key: Any) -> bytes:
    if not is_numpy_scalar(key):
        raise _refused(key, "has no stable value to hash: call its method item()")
    return key_bytes(key.item())


# --- what holds others ------------------------------------------------------------------------------------------------


def _sequence(items: Any) -> bytes:
    return b"t" + _joined(list(map(key_bytes, items)))


def _joined(parts: list[bytes]) -> bytes:
    return b"%d:" % len(parts) + b"".join([b"%d:" % len(part) + part for part in parts])


def _frozenset(key: Iterable[Any]) -> bytes:
    return b"S" + _joined(sorted({key_bytes(item) for item in key}))


def _row(key: Row) -> bytes:
    names, kind = key._fields, key.get_row_kind()
    if names is None and kind is RowKind.INSERT:
        return b"r" + _sequence(tuple(key))
    return b"R" + _sequence((names, kind.value, *key))


def _dataclass(key: Any) -> bytes:
    kind: Any = type(key)
    if _compares_as(kind, object):
        raise _refused(key, "is a dataclass with eq=False, which equals nothing but itself")
    # The methods that `dataclass` generates have no source file.
    if getattr(getattr(kind.__eq__, "__code__", None), "co_filename", "") != "<string>":
        raise _refused(key, "is a dataclass with its own __eq__, so it has no stable value")
    if kind.__hash__ is None:
        raise _refused(key, "is a dataclass that cannot be hashed: make it @dataclass(frozen=True)")
    fields = (field.name for field in dataclasses.fields(kind) if field.compare or field.hash)
    return b"c" + _sequence((kind.__qualname__, *(getattr(key, name) for name in fields)))


# --- times ------------------------------------------------------------------------------------------------------------


def _datetime(key: datetime.datetime) -> bytes:
    if key != key:  # the single NaT of pandas
        return b"TmNaT"
    offset = key.utcoffset()
    if offset is None:
        return b"Tm" + _isoformat(key.replace(tzinfo=None))
    if key.replace(fold=0).utcoffset() != key.replace(fold=1).utcoffset():
        # In Python, a time that occurs twice in its zone, or never, equals no time of another zone.
        return b"Tf" + _plain(key).isoformat().encode() + b"@" + str(key.tzinfo).encode()
    try:
        return b"Tm" + _isoformat(key.astimezone(datetime.UTC))
    except OverflowError:  # on the first or last day of the calendar
        return b"Ty%d" % ((_plain(key) - datetime.datetime.min - offset) // _MICROSECOND)


def _isoformat(moment: datetime.datetime) -> bytes:
    # A subclass with nanoseconds (pandas) has its own isoformat, which shows them unless they are zero.
    if getattr(moment, "nanosecond", 0):
        return moment.isoformat().encode()
    return _plain(moment).replace(tzinfo=None if moment.tzinfo is None else datetime.UTC).isoformat().encode()


def _plain(key: Any) -> datetime.datetime:
    """Return the same wall-clock time without a zone."""
    return datetime.datetime(
        key.year, key.month, key.day, key.hour, key.minute, key.second, key.microsecond
    )  # fmt: skip


def _date(key: datetime.date) -> bytes:
    return b"Td" + datetime.date.isoformat(key).encode()


def _time(key: datetime.time) -> bytes:
    offset = key.replace(fold=0).utcoffset()
    if offset is None:
        return b"Tt" + datetime.time(key.hour, key.minute, key.second, key.microsecond).isoformat().encode()
    since = datetime.timedelta(0, key.second, key.microsecond, 0, key.minute, key.hour)
    return b"Tu%d" % ((since - offset) // _MICROSECOND)


def _timedelta(key: Any) -> bytes:
    parts = (key.days, key.seconds, key.microseconds)
    nanoseconds = getattr(key, "nanoseconds", 0)
    return b"Ti" + _sequence((*parts, nanoseconds) if nanoseconds else parts)


#: The types that have a canonical form, and the form; a subclass's own methods are not used to read its value.
_BASES: Final[tuple[tuple[type, Callable[[Any], bytes]], ...]] = (
    (str, lambda key: b"s" + str.encode(key, "utf-8", "surrogatepass")),
    (int, lambda key: _int(int.__pos__(key))),
    (float, lambda key: _float(float.__pos__(key))),
    (bytes, lambda key: b"b" + bytes.__getitem__(key, slice(None))),
    (tuple, lambda key: _sequence(tuple.__iter__(key))),
    (Row, _row),
    (frozenset, lambda key: _frozenset(frozenset.__iter__(key))),
    (decimal.Decimal, _decimal),
    (datetime.datetime, _datetime),
    (datetime.date, _date),
    (datetime.time, _time),
    (datetime.timedelta, _timedelta),
    (uuid.UUID, lambda key: b"u" + key.bytes),
)
