"""Pairs of integers and exact values by number, in NumPy and Arrow columns.

`Growing` is a NumPy array that grows at its end. `StateMemory` allocates large arrays. `Versions` records which
elements of such arrays a checkpoint has to write.

`PairTable` numbers pairs of a group and a code, both integers. It is an open-addressing hash table: a slot has the
number of a pair, and the columns have the pairs by number. The rows of a batch are looked up together, one probe of all
rows after another. A pair takes 12 bytes, and 8 to 16 for its slots. Pairs are never removed; whoever keeps the table
makes a new one of those that it still needs.

`ValueCodes` gives each value of a column an integer, equal values the same one (`penstock.state.equality`). Integers,
times and floats are their own codes. Text, bytes and decimals are numbered: a `PairTable` finds a value by its hash,
and the values themselves are compared, so two values with the same hash get two codes.

`Packed` values are what a snapshot has of the distinct values of one group: the values, and how often each is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import xxhash

from penstock.sql.data.arrow import arrow_type, flat_values, from_flat, is_flat, to_column, to_values
from penstock.sql.data.types import (
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DecimalType,
    IntegralType,
    VarBinaryType,
    VarCharType,
)
from penstock.sql.stream.rows.columns import ROWS_GONE_MAX, ColumnParts, Store, same_keys
from penstock.state.backend import KeyedStateBackend
from penstock.state.equality import canonical_column
from penstock.state.key_columns import ColumnStates

#: A new array has room for this many elements.
_ROOM_MIN: Final = 64
#: Smaller arrays (bytes) stay in memory.
_MAPPED_MIN: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class StateMemory:
    """Where arrays and columns of state lie: in memory, or where a state backend puts them.

    Args:
        allocate: see `KeyedStateBackend.allocate`; None for arrays in memory.
        store: see `KeyedStateBackend.store_columns`.
    """

    allocate: Callable[[int, Any], Any] | None = None
    store: Store | None = None

    @classmethod
    def of(cls, keyed: KeyedStateBackend) -> StateMemory:
        """Return the memory of a backend."""
        return cls(keyed.allocate, keyed.store_columns)

    def array(self, length: int, dtype: Any) -> Any:
        """Return a NumPy array whose elements are arbitrary."""
        if self.allocate is None or length * np.dtype(dtype).itemsize < _MAPPED_MIN:
            return np.empty(length, dtype)
        return self.allocate(length, dtype)

    def zeros(self, length: int, dtype: Any) -> Any:
        """Return a NumPy array of zeros."""
        array = self.array(length, dtype)
        array.fill(0)
        return array


IN_MEMORY: Final = StateMemory()


class Growing:
    """An array that grows at its end. New elements are `fill`."""

    def __init__(self, dtype: Any, fill: Any = 0, memory: StateMemory = IN_MEMORY) -> None:
        self._room = np.empty(0, dtype)
        self._fill = fill
        self._memory = memory
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def array(self) -> Any:
        """The elements: a view that stays valid, but no longer changes with this object once it has grown."""
        return self._room[: self._size]

    def grow(self, size: int) -> None:
        """Add elements up to a size."""
        if size > len(self._room):
            room = self._memory.array(max(size, len(self._room) * 5 // 4, _ROOM_MIN), self._room.dtype)
            room[: self._size] = self.array
            self._room = room
        if size > self._size:
            self._room[self._size : size] = self._fill
            self._size = size

    def append(self, elements: Any) -> None:
        """Add these elements."""
        first = self._size
        self.grow(first + len(elements))
        self._room[first : self._size] = elements

    def shrink(self, size: int) -> None:
        """Drop the elements from an index on."""
        self._size = size

    def keep(self, indices: Any) -> None:
        """Keep only these elements, in this order, in a new array."""
        room = self._memory.array(len(indices), self._room.dtype)
        np.take(self.array, indices, out=room)
        self._room, self._size = room, len(indices)

    def widen(self, dtype: Any) -> None:
        """Let the elements have another type."""
        room = self._memory.array(len(self._room), dtype)
        room[: self._size] = self.array
        self._room = room


#: The version of an element that has changed since the last checkpoint.
_PENDING: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Changed:
    """The elements that a checkpoint writes, as rows of a history (`state.key_columns`).

    Args:
        elements: the indexes of the elements, in the order of their rows.
        numbers: the numbers of the rows.
        first: the number of the first row that the last completed checkpoint does not have.
        end: the number after that of the last row.
        is_addition: whether the rows continue the history; if not, these are all elements.
    """

    elements: Any
    numbers: Any
    first: int
    end: int
    is_addition: bool

    def without(self, left_out: Any) -> Changed:
        """Return the changes without some elements, given as a mask."""
        if not left_out.any():
            return self
        return replace(self, elements=self.elements[~left_out], numbers=self.numbers[~left_out])


class Versions:
    """For each element of columns that change in place, the number of its last row in the history of checkpoints.

    A checkpoint gives a new row to each element that changed since the one before. Of the rows of an element, the last
    one counts. Once the superseded rows outnumber the others, all elements get new rows, and the history begins again.
    """

    def __init__(self, memory: StateMemory = IN_MEMORY) -> None:
        self._memory = memory
        self._begin(0, 0)

    def _begin(self, base: int, size: int) -> None:
        #: the number of the first row in use, and that of the next one
        self.base = self.end = base
        self._numbers = Growing(np.int64, _PENDING, self._memory)
        self._numbers.grow(size)

    def grow(self, size: int) -> None:
        """Add elements up to a number."""
        self._numbers.grow(size)

    def mark(self, elements: Any) -> None:
        """Note that elements have changed."""
        self._numbers.array[elements] = _PENDING

    def start_history(self, first: int) -> None:
        """Begin with a restored history, whose first row has this number."""
        self.base = self.end = first

    def continue_history(self, elements: Any, rows: int) -> None:
        """Note the next rows of the restored history. `elements`: those of the rows; ABSENT ones are left out."""
        known = elements >= 0
        self._numbers.array[elements[known]] = known.nonzero()[0] + self.end
        self.end += rows

    def start_again(self, size: int) -> None:
        """Let other elements take the place of all; the next checkpoint writes all of them."""
        self._begin(self.end, size)

    def capture(self, states: ColumnStates, name: str, checkpoint_id: int) -> Changed | None:
        """Return what a checkpoint has to write; None for nothing. `states`: the history of the state `name`."""
        numbers = self._numbers.array
        self._give_rows((numbers == _PENDING).nonzero()[0])
        if self.end - self.base > 2 * len(numbers) + ROWS_GONE_MAX:
            self.base = self.end
            self._give_rows(np.arange(len(numbers)))
        first = states.start_capture(name, self.end, checkpoint_id, self.base)
        is_addition = first > self.base
        if first == self.end and (is_addition or not first):
            return None
        elements = (numbers >= first).nonzero()[0]
        elements = elements[np.argsort(numbers[elements], kind="stable")]
        return Changed(elements, numbers[elements], first, self.end, is_addition)

    def _give_rows(self, elements: Any) -> None:
        self._numbers.array[elements] = np.arange(self.end, self.end + len(elements))
        self.end += len(elements)


_EMPTY: Final = -1
#: The number of slots of a new table.
_SLOTS_MIN: Final = 1 << 10
#: There are at least this many slots for each pair.
_SLOTS_PER_PAIR: Final = 2
#: Pairs are put into a larger table this many at a time, so that little memory is needed.
_PAIRS_AT_ONCE: Final = 1 << 18
_INTEGERS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93)
_FACTORS: Final = tuple(map(np.uint64, _INTEGERS))
_ALL_BITS: Final = (1 << 64) - 1
_HALF: Final = np.uint64(32)


class PairTable:
    """See the module docstring."""

    def __init__(self, memory: StateMemory = IN_MEMORY) -> None:
        self._memory = memory
        self._groups = Growing(np.int32, memory=memory)
        self._codes = Growing(np.int64, memory=memory)
        self._slots: Any = np.full(_SLOTS_MIN, _EMPTY, np.int32)

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def groups(self) -> Any:
        """The group of each pair; never changed in place."""
        return self._groups.array

    @property
    def codes(self) -> Any:
        """The code of each pair; never changed in place."""
        return self._codes.array

    def locate(self, groups: Any, codes: Any) -> tuple[Any, Any]:
        """Return the number of the pair of each row, and for each pair that is new, one of its rows.

        New pairs have the next numbers, in the order of these rows.
        """
        self._reserve(len(codes))
        slots, last = self._slots, len(self._slots) - 1
        slot_numbers = _compute_places(groups, codes, len(slots))
        numbers = np.empty(len(codes), np.int64)
        rows = np.arange(len(codes))
        sought_groups, sought_codes = groups, codes
        fresh = []
        while len(rows):
            candidates = slots[slot_numbers]
            at_empty = (candidates == _EMPTY).nonzero()[0]
            if len(at_empty):
                fresh.append(self._claim(rows, slot_numbers, candidates, at_empty, groups, codes))
            numbers[rows] = candidates
            differs = self._codes.array[candidates] != sought_codes
            differs |= self._groups.array[candidates] != sought_groups
            is_left = differs.nonzero()[0]
            rows, slot_numbers = rows[is_left], (slot_numbers[is_left] + 1) & last
            sought_groups, sought_codes = sought_groups[is_left], sought_codes[is_left]
        return numbers, np.concatenate(fresh) if fresh else rows

    def find(self, group: int, code: int) -> int:
        """Return the number of one pair, or -1."""
        mixed = ((code & _ALL_BITS) * _INTEGERS[0] ^ group * _INTEGERS[1]) & _ALL_BITS
        mixed = (mixed ^ mixed >> 32) * _INTEGERS[2] & _ALL_BITS
        slots, groups, codes = self._slots, self._groups.array, self._codes.array
        slot_number = mixed >> 65 - len(slots).bit_length()
        while True:
            number = int(slots[slot_number])
            if number == _EMPTY or (codes[number] == code and groups[number] == group):
                return number
            slot_number = (slot_number + 1) & (len(slots) - 1)

    def _claim(self, rows: Any, slot_numbers: Any, candidates: Any, at_empty: Any, groups: Any, codes: Any) -> Any:
        """Make a pair of one row for each empty slot. Sets the candidates, and returns the rows of the new pairs."""
        slots, first = self._slots, len(self)
        # The last row that wants a slot gets it. The others are compared with it like with any pair.
        claimed = slot_numbers[at_empty]
        slots[claimed] = np.arange(len(at_empty), dtype=slots.dtype)
        winners = slots[claimed]
        is_winner = winners == np.arange(len(at_empty))
        new_numbers = is_winner.cumsum() + (first - 1)
        slots[claimed[is_winner]] = new_numbers[is_winner]
        candidates[at_empty] = new_numbers[winners]
        chosen = rows[at_empty[is_winner]]
        self._groups.append(groups[chosen])
        self._codes.append(codes[chosen])
        return chosen

    def _reserve(self, rows: int) -> None:
        """Use more slots if these rows might not fit."""
        size = len(self._slots)
        while size < (len(self) + rows) * _SLOTS_PER_PAIR:
            size *= 2
        if size > len(self._slots):
            self._fill_slots(size)

    def _fill_slots(self, size: int) -> None:
        """Put all pairs into this number of new slots."""
        self._slots = slots = self._memory.array(size, np.int32 if size <= 1 << 31 else np.int64)
        slots.fill(_EMPTY)
        for begin in range(0, len(self), _PAIRS_AT_ONCE):
            numbers = np.arange(begin, min(begin + _PAIRS_AT_ONCE, len(self)), dtype=slots.dtype)
            slot_numbers = _compute_places(self.groups[numbers], self.codes[numbers], size)
            while len(numbers):
                is_empty = slots[slot_numbers] == _EMPTY
                slots[slot_numbers[is_empty]] = numbers[is_empty]
                is_left = slots[slot_numbers] != numbers
                numbers, slot_numbers = numbers[is_left], (slot_numbers[is_left] + 1) & (size - 1)

    @classmethod
    def of(cls, groups: Any, codes: Any, memory: StateMemory = IN_MEMORY) -> PairTable:
        """Return a table of these pairs, which are distinct."""
        table = cls(memory)
        table._groups.append(groups)
        table._codes.append(codes)
        size = _SLOTS_MIN
        while size < len(codes) * _SLOTS_PER_PAIR:
            size *= 2
        table._fill_slots(size)
        return table


def _compute_places(groups: Any, codes: Any, slots: int) -> Any:
    """Return the first slot of each pair, of a power of two."""
    mixed = _mix(groups, codes)
    return (mixed >> np.uint64(65 - slots.bit_length())).view(np.int64)


def _mix(groups: Any, codes: Any) -> Any:
    """Return a hash of each pair."""
    mixed = codes.view(np.uint64) * _FACTORS[0] ^ groups.astype(np.uint64) * _FACTORS[1]
    mixed ^= mixed >> _HALF
    return mixed * _FACTORS[2]


#: types whose values are numbered
_NUMBERED: Final = (CharType, VarCharType, BinaryType, VarBinaryType, DecimalType)


def is_whole(data_type: DataType) -> bool:
    """Return whether values of a type are integers or times."""
    kind = arrow_type(data_type)
    return is_flat(kind) and not pa.types.is_floating(kind)


def is_coded(data_type: DataType) -> bool:
    """Return whether `ValueCodes` takes values of a type: not rows, arrays, maps and objects."""
    return isinstance(data_type, (*_NUMBERED, BooleanType)) or is_flat(arrow_type(data_type))


class ValueCodes:
    """See the module docstring."""

    def __init__(self, data_type: DataType, memory: StateMemory = IN_MEMORY) -> None:
        self._type = data_type
        self._memory = memory
        self._arrow_type = arrow_type(data_type)
        self._is_numbered = isinstance(data_type, _NUMBERED)
        #: pairs of the hash of a value, and the number of other values that were given codes before with this hash
        self._hashes = PairTable(memory)
        #: the values by code
        self._values = ColumnParts(0, memory.store)

    def __len__(self) -> int:
        """Return the number of values that are numbered."""
        return len(self._values)

    def of(self, column: pa.Array) -> Any:
        """Return the code of each value of a column without NULL, as a NumPy array of int64."""
        column = canonical_column(column)
        if self._is_numbered:
            encoded = column.dictionary_encode()
            return self._number(encoded.dictionary)[encoded.indices.to_numpy()]
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.int8())
        if pa.types.is_floating(column.type):
            return column.cast(pa.float64()).to_numpy(zero_copy_only=False).view(np.int64)
        return flat_values(column).astype(np.int64)

    def code(self, value: Any) -> int:
        """Return the code of one value in its canonical form."""
        return value if isinstance(self._type, IntegralType) else int(self.of(to_column([value], self._type))[0])

    def _number(self, values: pa.Array) -> Any:
        """Return the codes of distinct values."""
        hashes = _hash(values)
        codes = np.empty(len(values), np.int64)
        rows = np.arange(len(values))
        rank = 0
        while len(rows):
            numbers, fresh = self._hashes.locate(np.full(len(rows), rank), hashes[rows])
            if len(fresh):
                self._values.append(pa.RecordBatch.from_arrays([values.take(pa.array(rows[fresh]))], ["0"]))
            codes[rows] = numbers
            # A value with the hash of another one is found, or gets its code, at a later rank.
            is_same = same_keys([values.take(pa.array(rows))], self._values.taken([0], numbers))
            rows = rows[~is_same]
            rank += 1
        return codes

    def column(self, codes: Any) -> pa.Array:
        """Return the values of these codes."""
        if self._is_numbered:
            if not len(codes):
                return pa.array([], self._arrow_type)
            return self._values.taken([0], codes)[0]
        if pa.types.is_boolean(self._arrow_type):
            return pa.array(codes.astype(np.bool_))
        if pa.types.is_floating(self._arrow_type):
            return pa.array(codes.view(np.float64)).cast(self._arrow_type)
        return from_flat(codes, self._arrow_type, None)

    def restored(self, keys: Sequence[Any]) -> Any:
        """Return the codes of values that are dictionary keys (see `to_key`)."""
        if pa.types.is_floating(self._arrow_type):
            keys = [float(key) for key in keys]  # a string stands for NaN
        return self.of(to_column(keys, self._type))

    def as_of_now(self) -> ValueCodes:
        """Return codes that later values do not change, to read the present ones."""
        copied = ValueCodes(self._type)
        copied._values.parts, copied._values.starts = list(self._values.parts), list(self._values.starts)
        return copied

    def kept(self, codes: Any) -> tuple[ValueCodes, Any]:
        """Return new codes that have only the values of these codes, and the new code of each."""
        if not self._is_numbered:
            return self, codes
        used, indices = np.unique(codes, return_inverse=True)
        kept = ValueCodes(self._type, self._memory)
        return kept, kept.of(self.column(used))[indices.reshape(-1)] if len(used) else codes


#: Longer values are hashed one by one.
_BYTES_MAX: Final = 256
_WORD: Final = 8
#: keeps the first bytes of a word, by their number
_FIRST_BYTES: Final = np.array([(1 << 8 * number) - 1 for number in range(_WORD + 1)], np.uint64)
_SHIFT: Final = np.uint64(29)


def _hash(values: pa.Array) -> Any:
    """Return a hash of each text, binary or decimal of a column without NULL, as a NumPy array of int64."""
    if pa.types.is_decimal(values.type):
        words = np.frombuffer(values.buffers()[1], np.uint64, 2 * len(values), values.offset * 2 * _WORD)
        return _absorb(_absorb(np.zeros(len(values), np.uint64), words[::2]), words[1::2]).view(np.int64)
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    begins, lengths = ends[:-1], np.diff(ends)
    hashes = lengths.astype(np.uint64) * _FACTORS[2]
    first, last = int(ends[0]), int(ends[-1])
    raw = b"" if data is None else memoryview(data)[first:last]
    # With a word behind the last value, a word can be read at any byte.
    padded = np.zeros(last - first + _WORD, np.uint8)
    padded[: last - first] = np.frombuffer(raw, np.uint8)
    words = np.ndarray(last - first + 1, np.uint64, padded.data, strides=(1,))
    rows = ((lengths > 0) & (lengths <= _BYTES_MAX)).nonzero()[0]
    at, left = begins[rows] - first, lengths[rows]
    while len(rows):
        hashes[rows] = _absorb(hashes[rows], words[at] & _FIRST_BYTES[np.minimum(left, _WORD)])
        goes_on = left > _WORD
        rows, at, left = rows[goes_on], at[goes_on] + _WORD, left[goes_on] - _WORD
    for row in (lengths > _BYTES_MAX).nonzero()[0].tolist():
        hashes[row] = xxhash.xxh3_64_intdigest(raw[begins[row] - first : ends[row + 1] - first])
    return hashes.view(np.int64)


def _absorb(hashes: Any, words: Any) -> Any:
    """Return hashes that depend on a further word each."""
    mixed = (hashes ^ (hashes >> _SHIFT) ^ words) * _FACTORS[0]
    return (mixed ^ (mixed >> _HALF)) * _FACTORS[1]


# --- snapshots --------------------------------------------------------------------------------------------------------

#: Values: a list, or the type of numbers and their bytes.
PackedValues: TypeAlias = "list[Any] | tuple[str, bytes]"
#: Values, with a list of how often each is there unless all are there once.
Packed: TypeAlias = "PackedValues | tuple[PackedValues, list[int]]"
#: Fewer numbers are a list.
_PACKED_MIN: Final = 16


def packed_values(column: pa.Array, data_type: DataType, ends: Sequence[int]) -> list[PackedValues]:
    """Return the values of each group. `ends`: where the values of each group end in the column."""
    if not isinstance(data_type, IntegralType):
        values = to_values(column, data_type)
        return [values[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    numbers = flat_values(column)
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    kind = next(kind for kind in (np.int8, np.int16, np.int32, np.int64) if _fits(kind, low, high))
    numbers = numbers.astype(kind)
    lengths = np.array(ends, np.int64)
    lengths[1:] -= lengths[:-1].copy()
    # A slice of a list costs a tenth of one of an array.
    few = numbers[(lengths < _PACKED_MIN).repeat(lengths)].tolist()
    code, begin, taken = numbers.dtype.str, 0, 0
    packed: list[PackedValues] = []
    for end, length in zip(ends, lengths.tolist(), strict=True):
        if length < _PACKED_MIN:
            packed.append(few[taken : taken + length])
            taken += length
        else:
            packed.append((code, numbers[begin:end].tobytes()))
        begin = end
    return packed


def _fits(kind: Any, low: int, high: int) -> bool:
    limits = np.iinfo(kind)
    return bool(limits.min <= low and high <= limits.max)


def split_packed(packed: Packed) -> tuple[PackedValues, list[int] | None]:
    """Return the values of one group, still packed, and how often each is there; None for once each."""
    if isinstance(packed, tuple) and isinstance(packed[1], list):
        return packed
    return packed, None


def unpacked_values(packed: Packed) -> tuple[list[Any], list[int]]:
    """Return the values of one group, and how often each is there."""
    values, counts = split_packed(packed)
    if isinstance(values, tuple):
        values = np.frombuffer(values[1], values[0]).tolist()
    return values, [1] * len(values) if counts is None else counts
