"""Which key belongs where: a stable hash of the key's canonical bytes, key groups, and their ranges (D4).

Keys are hashed by value, never by Python's own `hash` (which differs between processes). Two keys that are equal in
Python have the same canonical bytes: `1`, `1.0` and `True` are one key. The key group is `xxh3_64(bytes) modulo
max_parallelism`; subtask i of p owns the contiguous range [ceil(i*max/p), ceil((i+1)*max/p)), as in Flink.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import struct
import uuid
from collections.abc import Sequence
from typing import Any

import xxhash

from penstock.common.types import Row
from penstock.state.errors import StateError

_DOUBLE = struct.Struct(">d")


def key_bytes(key: Any) -> bytes:
    """The canonical bytes of a key; raises `StateError` for a type that has no stable value."""
    kind = type(key)
    if kind is str:
        text: bytes = key.encode("utf-8", "surrogatepass")
        return b"s" + text
    if kind is int or kind is bool:
        return b"i%d" % key
    if kind is tuple:
        return _sequence(key)
    if kind is float:
        return b"i%d" % int(key) if key.is_integer() else b"f" + _DOUBLE.pack(key)
    if key is None:
        return b"n"
    if kind is bytes:
        return b"b" + bytes(key)
    return _other_key_bytes(key)


def _sequence(items: Any) -> bytes:
    parts = [key_bytes(item) for item in items]
    return b"t%d:" % len(parts) + b"".join(b"%d:" % len(part) + part for part in parts)


def _other_key_bytes(key: Any) -> bytes:
    if isinstance(key, bool | int):
        return key_bytes(int(key))
    if isinstance(key, float):
        return key_bytes(float(key))
    if isinstance(key, str):
        return key_bytes(str(key))
    if isinstance(key, enum.Enum):
        return b"e" + key_bytes((type(key).__qualname__, key.name))
    if isinstance(key, bytes | bytearray):
        return key_bytes(bytes(key))
    if isinstance(key, tuple):
        return _sequence(key)
    if isinstance(key, Row):
        return b"r" + _sequence(tuple(key))
    if isinstance(key, decimal.Decimal):
        return _decimal(key)
    if isinstance(key, datetime.datetime | datetime.date | datetime.time | datetime.timedelta):
        return _time(key)
    if isinstance(key, uuid.UUID):
        return b"u" + key.bytes
    if isinstance(key, frozenset):
        return b"S" + b"".join(sorted(key_bytes(item) for item in key))
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        fields = dataclasses.fields(key)
        return b"c" + key_bytes((type(key).__qualname__, *(getattr(key, f.name) for f in fields)))
    if hasattr(key, "item") and type(key).__module__ == "numpy":
        return key_bytes(key.item())
    raise StateError(
        f"a key of type {type(key).__qualname__} has no stable value to be hashed by; let the key selector return "
        "a str, int, float, bool, bytes, None, datetime, Decimal, UUID, Enum, Row, dataclass, or a tuple of these"
    )


def _decimal(key: decimal.Decimal) -> bytes:
    if not key.is_finite():
        return b"d" + str(key).encode()
    if key == key.to_integral_value():
        return key_bytes(int(key))
    as_float = float(key)
    # A decimal equals the float that has just its value, so they must lie in one key group.
    return key_bytes(as_float) if key == as_float else b"d" + str(key.normalize()).encode()


def _time(key: Any) -> bytes:
    if isinstance(key, datetime.datetime):
        moment = key if key.tzinfo is None else key.astimezone(datetime.UTC)
        # A subclass with nanoseconds (pandas) has its own isoformat, which shows them where there are any.
        text = moment.isoformat() if getattr(moment, "nanosecond", 0) else _plain(moment).isoformat()
        return b"Tm" + text.encode()
    if isinstance(key, datetime.date):
        return b"Td" + key.isoformat().encode()
    if isinstance(key, datetime.time):
        return b"Tt" + key.isoformat().encode()
    return b"Ti" + key_bytes((key.days, key.seconds, key.microseconds))


def _plain(moment: datetime.datetime) -> datetime.datetime:
    return datetime.datetime(
        moment.year,
        moment.month,
        moment.day,
        moment.hour,
        moment.minute,
        moment.second,
        moment.microsecond,
        tzinfo=None if moment.tzinfo is None else datetime.UTC,
    )


def key_group_of(key: Any, max_parallelism: int) -> int:
    """The key group of a key, from 0 to `max_parallelism` - 1."""
    return xxhash.xxh3_64_intdigest(key_bytes(key)) % max_parallelism


def key_groups_of(keys: Sequence[Any], max_parallelism: int) -> list[int]:
    """The key groups of many keys; those of integers and of text come without a call each."""
    digest, kinds = xxhash.xxh3_64_intdigest, set(map(type, keys))
    if kinds == {int}:
        return [digest(b"i%d" % key) % max_parallelism for key in keys]
    if kinds == {str}:
        return [digest(b"s" + key.encode("utf-8", "surrogatepass")) % max_parallelism for key in keys]
    return [key_group_of(key, max_parallelism) for key in keys]


def key_group_of_bytes(data: bytes, max_parallelism: int) -> int:
    """The key group of a key of which these are the canonical bytes."""
    return xxhash.xxh3_64_intdigest(data) % max_parallelism


def subtask_of_key_group(key_group: int, max_parallelism: int, parallelism: int) -> int:
    """Which subtask owns a key group."""
    return key_group * parallelism // max_parallelism


def key_group_range(subtask_index: int, max_parallelism: int, parallelism: int) -> tuple[int, int]:
    """The first and the last key group of a subtask, both included."""
    first = (subtask_index * max_parallelism + parallelism - 1) // parallelism
    last = ((subtask_index + 1) * max_parallelism - 1) // parallelism
    return first, last
