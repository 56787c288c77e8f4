"""A hash table from keys to numbers, all of it NumPy arrays: no key becomes a Python object.

`group_rows` numbers the distinct keys of a batch. `KeyIndex` maps each key to a number: of a row, or of a group. The
table has open addressing with linear probing, and all keys of a batch take a step at a time. A key is its 64-bit hash
(`key_hashes`); where two keys may share a hash, the caller compares their columns. The arrays come from the state
backend, so they may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.sql.stream.rows.columns import is_own_number, key_hashes, same_keys
from penstock.state.key_columns import distinct_keys

#: Returned for a key that is not in the index.
ABSENT: Final = -1
#: Mixes the bits of a hash: the hash of a number is the number itself.
_MIX_INTEGER: Final = 0x9E3779B97F4A7C15
_MIX: Final = np.uint64(_MIX_INTEGER)
_ALL_BITS: Final = (1 << 64) - 1
_SLOTS_MIN: Final = 1 << 10
#: Given indexes of keys and the numbers of their candidates, returns a mask of the pairs that are the same key.
Same = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Groups:
    """The rows of a batch, grouped by key.

    Args:
        codes: the group of each row.
        first: the first row of each group.
        hashes: the hash of each group's key.
        is_exact: whether equal hashes mean equal keys.
    """

    codes: Any
    first: Any
    hashes: Any
    is_exact: bool

    def __len__(self) -> int:
        return len(self.first)


def group_rows(keys: Sequence[pa.Array]) -> Groups:
    """Group rows by their key columns, at least one, in canonical form."""
    hashes = key_hashes(keys)
    is_exact = is_own_number([key.type for key in keys]) and not keys[0].null_count
    encoded = pc.dictionary_encode(pa.array(hashes))
    codes = encoded.indices.to_numpy()
    of_group = encoded.dictionary.to_numpy()
    first = _first_rows(codes, len(of_group))
    if not is_exact and len(first) < len(hashes):
        same = same_keys(keys, [key.take(pa.array(first[codes])) for key in keys])
        if not same.all():
            codes, distinct = distinct_keys(keys)
            first = _first_rows(codes, len(distinct))
            of_group = hashes[first]
    return Groups(codes, first, of_group, is_exact)


def group_distinct_rows(keys: Sequence[pa.Array]) -> Groups:
    """Group rows with different keys, given their key columns in canonical form: each row is a group."""
    numbers = np.arange(len(keys[0]))
    return Groups(numbers, numbers, key_hashes(keys), False)


def find_first_rows(keys: Sequence[Any], known: Container[Any]) -> dict[Any, int]:
    """Map the keys that are not known to the first row of each."""
    return {key: row for row, key in reversed(list(enumerate(keys))) if key not in known}


def _first_rows(codes: Any, groups: int) -> Any:
    """Return the first row of each group. Of several assignments, the last one stays."""
    first = np.empty(groups, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first


class KeyIndex:
    """See the module docstring. `allocate`: returns an array of zeros, given its length and type."""

    def __init__(self, allocate: Callable[[int, Any], Any]) -> None:
        self._allocate = allocate
        self._keys = 0
        #: the hash in each slot, and the number of its key plus one; 0 if the slot is free
        self._hashes = allocate(_SLOTS_MIN, np.int64)
        self._numbers = allocate(_SLOTS_MIN, np.int64)
        self._bits = _SLOTS_MIN.bit_length() - 1

    def __len__(self) -> int:
        return self._keys

    def _grow(self, keys: int) -> None:
        """Make room for that many keys."""
        used = np.flatnonzero(self._numbers)
        hashes, stored = self._hashes[used], self._numbers[used]
        self._bits = (4 * keys - 1).bit_length()
        self._hashes = self._allocate(1 << self._bits, np.int64)
        self._numbers = self._allocate(1 << self._bits, np.int64)
        self._fill(hashes, stored)

    def _first_slots(self, hashes: Any) -> Any:
        mixed = (hashes.view(np.uint64) ^ (hashes.view(np.uint64) >> np.uint64(32))) * _MIX
        return (mixed >> np.uint64(64 - self._bits)).astype(np.int64)

    def find(self, hashes: Any, same: Same | None) -> tuple[Any, Any]:
        """Return the number of each key, `ABSENT` if it is not in the index, and its slot.

        `same`: see `Same`; None if equal hashes mean equal keys.
        """
        slots = self._first_slots(hashes)
        numbers = self._search(hashes, slots, np.arange(len(hashes)))
        if same is None:
            return numbers, slots
        # Hardly any two keys share a hash, so all are compared at once, after the search.
        likely = np.flatnonzero(numbers != ABSENT)
        while len(likely):
            others = likely[~same(likely, numbers[likely])]
            if not len(others):
                break
            slots[others] = (slots[others] + 1) & (len(self._numbers) - 1)
            numbers[others] = self._search(hashes, slots, others)
            likely = others[numbers[others] != ABSENT]
        return numbers, slots

    def find_hash(self, hashed: int) -> int:
        """Return the number of the first key with a hash, or `ABSENT`. The key itself may be another one."""
        bits = hashed & _ALL_BITS
        slot = ((bits ^ bits >> 32) * _MIX_INTEGER & _ALL_BITS) >> 64 - self._bits
        while True:
            stored = int(self._numbers[slot])
            if not stored or self._hashes[slot] == hashed:
                return stored - 1
            slot = (slot + 1) & (len(self._numbers) - 1)

    def _search(self, hashes: Any, slots: Any, searching: Any) -> Any:
        """Return the number of the first key with the same hash, for some of the keys; moves their slots there."""
        numbers = np.full(len(searching), ABSENT, np.int64)
        last = len(self._numbers) - 1
        positions = np.arange(len(searching))
        while len(searching):
            at = slots[searching]
            stored = self._numbers[at]
            ends = (stored == 0) | (self._hashes[at] == hashes[searching])
            numbers[positions[ends]] = stored[ends] - 1
            if ends.all():
                break
            searching, positions = searching[~ends], positions[~ends]
            slots[searching] = (slots[searching] + 1) & last
        return numbers

    def replace(self, slots: Any, numbers: Any) -> None:
        """Set the numbers of keys in the index, given their slots."""
        self._numbers[slots] = numbers + 1

    def insert(self, hashes: Any, numbers: Any) -> None:
        """Add keys that are not in the index, and that differ from one another."""
        self._keys += len(hashes)
        if 2 * self._keys > len(self._numbers):
            self._grow(self._keys)
        self._fill(hashes, numbers + 1)

    def _fill(self, hashes: Any, stored: Any) -> None:
        slots = self._first_slots(hashes)
        last = len(self._numbers) - 1
        waiting = np.arange(len(hashes))
        while len(waiting):
            free = waiting[self._numbers[slots[waiting]] == 0]
            # If several keys want one slot, the last one to be written has it.
            self._numbers[slots[free]] = stored[free]
            placed = free[self._numbers[slots[free]] == stored[free]]
            self._hashes[slots[placed]] = hashes[placed]
            is_placed = np.zeros(len(hashes), np.bool_)
            is_placed[placed] = True
            waiting = waiting[~is_placed[waiting]]
            slots[waiting] = (slots[waiting] + 1) & last
