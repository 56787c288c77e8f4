"""Keys of state: their canonical bytes, their key groups, and the check of an operator's keys (D1, D4).

**Canonical bytes** (`key_bytes`). Equal keys have equal bytes, and different keys have different ones. Keys are
distinguished as in a Python dictionary: two keys are the same if they are equal and have the same hash. The heap keeps
state in dictionaries; RocksDB and the routes use these bytes, so both must agree. `1`, `1.0`, `True` and `Decimal(1)`
are one key, and so are `0.0` and `-0.0`, and times of different zones at the same moment.

A subclass counts as its base if it does not override `==` and the hash, such as the members of `class Color(str,
Enum)`. A class with its own comparison is rejected, because its bytes cannot follow it.

An enum or dataclass is identified by its class name without the module, so that a class may move.

**Key groups** assign keys to subtasks. Keys are hashed by value (`key_bytes`), never by Python's own `hash` (which
differs between processes). The key group is `xxh3_64(bytes) modulo max_parallelism`; subtask i of p owns the contiguous
range [ceil(i*max/p), ceil((i+1)*max/p)), as in Flink.

`check_key_groups` is the check of `KeyedStateBackend.validate`: whether a few keys of each table belong to the subtask.

`KeyGuard` checks the keys of an operator, and makes all NaNs one key, as in Flink and Spark. In Python NaN equals
nothing, not even itself, so a dictionary would have an entry for each. `KeyGuard` replaces every NaN in a key with
`NAN`, however deeply nested. `NAN` is still a NaN float (`math.isnan` returns True), but it equals itself, and it is
unpickled as the same object. NumPy scalars, some of which cannot be compared with Python's, become Python scalars.

Keys without canonical bytes are rejected here, so that a program that runs on the heap also runs on RocksDB, and at any
parallelism. Canonical bytes name a class without its module. So an operator rejects keys of two classes with the same
name, which these bytes would not distinguish, and dataclasses that do not equal a copy.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import enum
import struct
import uuid
from collections.abc import Callable, Iterable, Reversible, Sequence
from itertools import filterfalse, islice
from typing import Any, Final

import xxhash

from penstock.base.errors import short_repr
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


def assign_key_group(key: Any, max_parallelism: int) -> int:
    """Return the key group of a key, from 0 to `max_parallelism` - 1."""
    return xxhash.xxh3_64_intdigest(key_bytes(key)) % max_parallelism


def assign_key_groups(keys: Sequence[Any], max_parallelism: int) -> list[int]:
    """Return the key groups of many keys; integers and text need no call for each key."""
    digest, kinds = xxhash.xxh3_64_intdigest, set(map(type, keys))
    if kinds == {int}:
        try:
            return [digest(b"i%d" % key) % max_parallelism for key in keys]
        except ValueError:  # one of them has more digits than Python converts to text
            pass
    if kinds == {str}:
        return [digest(b"s" + key.encode("utf-8", "surrogatepass")) % max_parallelism for key in keys]
    return [assign_key_group(key, max_parallelism) for key in keys]


def key_group_of_bytes(data: bytes, max_parallelism: int) -> int:
    """Return the key group of the key with these canonical bytes."""
    return xxhash.xxh3_64_intdigest(data) % max_parallelism


def subtask_of_key_group(key_group: int, max_parallelism: int, parallelism: int) -> int:
    """Return the subtask that owns a key group."""
    return key_group * parallelism // max_parallelism


def key_group_range(subtask_index: int, max_parallelism: int, parallelism: int) -> tuple[int, int]:
    """Return the first and the last key group of a subtask, both included."""
    first = (subtask_index * max_parallelism + parallelism - 1) // parallelism
    last = ((subtask_index + 1) * max_parallelism - 1) // parallelism
    return first, last


#: How many of a dictionary's oldest and newest keys are checked: recent errors are in the newest keys.
_SAMPLE_MAX: Final = 3


def sample_keys(keys: Reversible[Any]) -> list[Any]:
    """Return some of the first and some of the last keys of a dictionary."""
    return list(dict.fromkeys([*islice(keys, _SAMPLE_MAX), *islice(reversed(keys), _SAMPLE_MAX)]))


def check_key_groups(name: str, keys: Iterable[Any], max_parallelism: int, key_groups: tuple[int, int]) -> None:
    """Assert that keys belong to these key groups, both ends included."""
    first, last = key_groups
    sample = list(keys)
    for key, group in zip(sample, assign_key_groups(sample, max_parallelism), strict=True):
        assert first <= group <= last, f"state {name!r}: key {key!r} is of group {group}, not of {first} to {last}"


#: How many valid keys to remember; beyond this, they are forgotten and checked again.
_ADMITTED_MAX: Final = 1 << 18
#: Tuples rarely recur if one of this many is new in a batch.
_NEW_SHARE: Final = 3
#: The number of batches whose tuples the guard then examines without remembering them.
_UNREMEMBERED: Final = 16
_GOOD: Final = frozenset({str, int, bool, bytes, type(None)})


class RefusedKeyError(StateError):
    """A key that state cannot be kept for. `index` is its position among the checked keys."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index

    def __reduce__(self) -> tuple[type[RefusedKeyError], tuple[int, str]]:
        return type(self), (self.index, str(self))


class KeyGuard:
    """Checks the keys of one operator; keys that are known to be valid are checked many at a time."""

    def __init__(self) -> None:
        self._admitted: set[Any] = set()
        #: how many batches of tuples to examine before they are remembered again
        self._unremembered = 0
        #: by qualified name, the classes of keys that are identified by name
        self._classes: dict[str, type] = {}

    def admit(self, keys: list[Any]) -> list[Any]:
        """Return the keys, with `NAN` for NaN; the same list if nothing is replaced.

        Raises:
            RefusedKeyError: for the first key that is rejected.
        """
        if not keys or _are_plain(keys):
            return keys
        if self._unremembered:
            self._unremembered -= 1
            if _are_plain_tuples(keys):
                return keys
        if self._are_admitted(keys):
            return keys
        if type(keys[0]).__module__ == "numpy":
            keys = list(map(with_one_nan, keys))
            if _are_plain(keys):
                return keys
        if type(keys[0]) is tuple and self._admit_plain_tuples(keys):
            return keys
        return [self._admit(index, key) for index, key in enumerate(keys)]

    def _are_admitted(self, keys: list[Any]) -> bool:
        try:
            return self._admitted.issuperset(keys)
        except Exception:  # noqa: BLE001 - keys may raise anything when they are hashed or compared
            return False

    def _admit_plain_tuples(self, keys: list[Any]) -> bool:
        try:
            # Where keys recur, most are known, and a look-up costs less than examining a tuple.
            new = list(filterfalse(self._admitted.__contains__, keys))
        except Exception:  # noqa: BLE001 - as above
            return False
        if not _are_plain_tuples(new):
            return False
        if len(new) * _NEW_SHARE >= len(keys):
            # To hash and remember a key costs twice as much as to examine it.
            self._unremembered = _UNREMEMBERED
        self._make_room()
        self._admitted.update(new)
        return True

    def _make_room(self) -> None:
        if len(self._admitted) >= _ADMITTED_MAX:
            self._admitted.clear()

    def _admit(self, index: int, key: Any) -> Any:
        if type(key) in _GOOD or self._are_admitted([key]):
            return key
        try:
            admitted = with_one_nan(key)
            key_bytes(admitted)
            self._note_classes(admitted)
        except StateError as error:
            raise RefusedKeyError(index, str(error)) from error
        if admitted is key:
            self._make_room()
            self._admitted.add(key)
        return admitted

    def _note_classes(self, key: Any) -> None:
        """Note the classes of enums and dataclasses in a key; raises if two have one name, or a copy is not equal."""
        kind = type(key)
        if kind in _GOOD:
            return
        if isinstance(key, tuple | Row | frozenset):
            for item in key:
                self._note_classes(item)
            return
        is_dataclass = dataclasses.is_dataclass(kind)
        if not is_dataclass and not isinstance(key, enum.Enum):
            return
        known = self._classes.setdefault(kind.__qualname__, kind)
        if known is not kind:
            raise StateError(
                f"keys of two classes with the name {kind.__qualname__} ({known.__module__} and {kind.__module__}) "
                "cannot be distinguished in state: rename one of them"
            )
        if is_dataclass:
            if key != copy.copy(key):
                raise StateError(
                    f"{short_repr(key)} does not equal a copy of itself, so each record with it would have its own "
                    "state: since Python 3.13 a field such as pandas.NaT has this effect; use None in its place"
                )
            for field in dataclasses.fields(key):
                self._note_classes(getattr(key, field.name))


def _are_plain(keys: Sequence[Any]) -> bool:
    """Return whether all keys are of types without NaN, or all are floats other than NaN; False for a closer look."""
    kinds = list(map(type, keys))
    if kinds.count(kinds[0]) < len(keys):
        return _GOOD.issuperset(kinds)
    if kinds[0] is float:
        total = sum(keys)
        return bool(total == total)  # infinities may add up to NaN as well; a closer look finds no NaN
    return kinds[0] in _GOOD


def _are_plain_tuples(keys: list[Any]) -> bool:
    if set(map(type, keys)) != {tuple}:
        return False
    try:
        return all(map(_are_plain, zip(*keys, strict=True)))
    except (TypeError, ValueError):  # not all are tuples of the same length
        return False


def with_one_nan(key: Any) -> Any:
    """Return the key with `NAN` for each NaN, and Python scalars for NumPy's; the same key if nothing is replaced."""
    kind = type(key)
    if kind in _GOOD or kind is NotANumber:
        return key
    if is_numpy_scalar(key):
        return with_one_nan(key.item())
    if isinstance(key, float):
        return NAN if key != key else key
    if isinstance(key, decimal.Decimal):
        return NAN if key.is_qnan() else key
    if isinstance(key, enum.Enum):
        return key
    if isinstance(key, tuple | frozenset):
        items = [with_one_nan(item) for item in key]
        if all(new is old for new, old in zip(items, key, strict=True)):
            return key
        copied: Any = (tuple if isinstance(key, tuple) else frozenset).__new__(kind, items)
        return copied
    if isinstance(key, Row):
        row = copy.copy(key)
        row[:] = [with_one_nan(item) for item in key]
        return key if all(new is old for new, old in zip(row, key, strict=True)) else row
    if dataclasses.is_dataclass(kind):
        return _dataclasswith_one_nan(key)
    return key


def _dataclasswith_one_nan(key: Any) -> Any:
    changed = {}
    for field in dataclasses.fields(key):
        value = getattr(key, field.name)
        new = with_one_nan(value)
        if new is not value:
            changed[field.name] = new
    if not changed:
        return key
    copied = copy.copy(key)
    for name, value in changed.items():
        object.__setattr__(copied, name, value)  # works for frozen dataclasses as well
    return copied
