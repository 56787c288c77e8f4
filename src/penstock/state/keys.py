"""Assigns keys to subtasks: a stable hash of the key's canonical bytes, key groups, and their ranges (D4).

Keys are hashed by value (`key_bytes`), never by Python's own `hash` (which differs between processes). The key group is
`xxh3_64(bytes) modulo max_parallelism`; subtask i of p owns the contiguous range [ceil(i*max/p), ceil((i+1)*max/p)), as
in Flink.

The checks of `KeyedStateBackend.validate`: whether a few keys of each table belong to the subtask.

Checks the keys of an operator, and makes all NaNs one key (D1).

NaN is one key, as in Flink and Spark. In Python it equals nothing, not even itself, so a dictionary would have an entry
for each. `KeyGuard` replaces every NaN in a key with `NAN`, however deeply nested. `NAN` is still a NaN float
(`math.isnan` returns True), but it equals itself, and it is unpickled as the same object. NumPy scalars, some of which
cannot be compared with Python's, become Python scalars.

Keys without canonical bytes (`state.key_bytes`) are rejected here, so that a program that runs on the heap also runs on
RocksDB, and at any parallelism. Canonical bytes name a class without its module. So an operator rejects keys of two
classes with the same name, which these bytes would not distinguish, and dataclasses that do not equal a copy.
"""

from __future__ import annotations

import copy
import dataclasses
import decimal
import enum
from collections.abc import Iterable, Reversible, Sequence
from itertools import filterfalse, islice
from typing import Any, Final

import xxhash

from penstock.base.errors import short_repr
from penstock.base.types import Row
from penstock.state.errors import StateError
from penstock.state.key_bytes import NAN, NotANumber, is_numpy_scalar, key_bytes


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
        #: by qualified name, the classes of keys that are identified by name
        self._classes: dict[str, type] = {}

    def admit(self, keys: list[Any]) -> list[Any]:
        """Return the keys, with `NAN` for NaN; the same list if nothing is replaced.

        Raises:
            RefusedKeyError: for the first key that is rejected.
        """
        if not keys or _are_plain(keys) or self._are_admitted(keys):
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
