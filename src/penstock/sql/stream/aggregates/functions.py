"""Base classes and helpers of all aggregates, and the operands of aggregate calls in the rows of a batch.

The state of a group is picklable; `add` and `retract` return the new state, which may be the same object. Values are
internal values (see `penstock.sql.data.arrow`). A retraction may arrive before its insert: the state then records it
as pending.

`Bundled` has the rows of a bundle, as seen by a call whose results are needed only at the end, not after each row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.sql.data.arrow import arrow_type, to_values
from penstock.sql.data.types import DataType, DoubleType, FloatType
from penstock.sql.logical.nodes import AggregateCall
from penstock.sql.stream.aggregates.pairs import unpacked_values
from penstock.sql.stream.rows.rows import RowEquality
from penstock.sql.typed import Constant, Field
from penstock.state.backend import KeyedStateBackend
from penstock.state.equality import build_canonicalizer


class BundledColumn:
    """A column of a bundle. Results that several calls need are computed once.

    Args:
        groups: the group number of each row, as a numpy array.
        column: the values.
        data_type: the type of the values.
    """

    def __init__(self, groups: Any, column: pa.Array, data_type: DataType) -> None:
        self.groups = groups
        self.column = column
        self.data_type = data_type
        self.is_there = None if not column.null_count else pc.is_valid(column).to_numpy(zero_copy_only=False)
        self._pairs: tuple[Any, list[int], list[Any]] | None = None

    def pairs(self) -> tuple[Any, list[int], list[Any]]:
        """Return the distinct (group, value) pairs: each row's pair number, and the pairs' groups and values."""
        if self._pairs is None:
            encoded = self.column.dictionary_encode("encode")
            values = to_values(encoded.dictionary, self.data_type)
            size = max(len(values), 1)
            both = self.groups.astype(np.int64) * size + encoded.indices.to_numpy(zero_copy_only=False)
            encoded_pairs = pa.array(both).dictionary_encode()
            pairs = encoded_pairs.dictionary.to_numpy()
            of_pairs = [values[value] for value in (pairs % size).tolist()]
            numbers = encoded_pairs.indices.to_numpy(zero_copy_only=False)
            self._pairs = numbers, (pairs // size).tolist(), of_pairs
        return self._pairs


class Bundled:
    """The rows of an append-only bundle, as seen by one call.

    Args:
        groups: the group number of each row, as a numpy array.
        size: the number of groups.
        operand: the operand; None for a call without one.
        keeps: which rows pass FILTER, as a numpy array; None for all.
    """

    def __init__(self, groups: Any, size: int, operand: BundledColumn | None, keeps: Any) -> None:
        self.size = size
        self.operand = operand
        self._groups = groups
        counted = keeps
        if operand is not None and operand.is_there is not None:
            counted = operand.is_there if keeps is None else keeps & operand.is_there
        #: which rows count: they pass FILTER, and their operand is not NULL
        self._counted = counted

    def groups(self) -> Any:
        """Return the group of each row that counts."""
        return self._groups if self._counted is None else self._groups[self._counted]

    def counts(self) -> list[int]:
        """Return the number of rows that count in each group."""
        counts: list[int] = np.bincount(self.groups(), minlength=self.size).tolist()
        return counts

    def values(self) -> pa.Array:
        """Return the operands of the rows that count."""
        assert self.operand is not None
        column = self.operand.column
        return column if self._counted is None else column.filter(pa.array(self._counted))

    def sums(self) -> list[int]:
        """Return the sum of each group's operands, which are whole numbers; it wraps at 64 bits."""
        totals = np.zeros(self.size, np.int64)
        values = self.values().cast(pa.int64()).to_numpy(zero_copy_only=False)
        np.add.at(totals, self.groups(), values)
        return totals.tolist()

    def extremes(self, function: str) -> tuple[list[int], list[Any]]:
        """Return the `min` or `max` of each group with operands: the groups, and the values."""
        assert self.operand is not None
        table = pa.table([pa.array(self.groups()), self.values()], ["group", "value"])
        aggregated = table.group_by("group", use_threads=False).aggregate([("value", function)])
        column = aggregated.column(f"value_{function}").combine_chunks()
        return aggregated.column("group").to_pylist(), to_values(column, self.operand.data_type)

    def pairs(self) -> tuple[list[int], list[Any], list[int]]:
        """Return the distinct values of each group: groups, values, and their counts."""
        assert self.operand is not None
        numbers, groups, values = self.operand.pairs()
        if self._counted is not None:
            numbers = numbers[self._counted]
        counts = np.bincount(numbers, minlength=len(groups))
        present = np.flatnonzero(counts)
        if len(present) == len(groups):
            return groups, values, counts.tolist()
        indices = present.tolist()
        return [groups[index] for index in indices], [values[index] for index in indices], counts[present].tolist()


#: The dictionary key of NaN, because NaN differs from itself in Python.
NAN: Final = "NaN"


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a batch, as seen by one call."""

    #: the group number of each row
    groups: Sequence[int]
    #: the operand of each row, or a tuple of several
    operands: Sequence[Any]
    #: which rows pass FILTER; None for all
    keeps: Sequence[bool] | None = None
    #: nonzero for retractions; None if there are none
    goes: bytes | None = None
    #: rows after which their group is empty
    ends: frozenset[int] = field(default_factory=frozenset)
    #: the key of each group
    keys: Sequence[Any] = ()

    @property
    def only_come(self) -> bool:
        """Whether the batch has neither filtered rows nor retractions."""
        return self.keeps is None and self.goes is None


class Accumulator:
    """One aggregate call."""

    #: whether only the first operand counts: `add_one` then takes it without a tuple
    takes_one = False
    #: whether rows with a NULL operand are ignored
    skips_null = False
    #: whether the state is a counter that each value increments by 1, whatever the value is
    counts_alike = False

    def __init__(self, call: AggregateCall) -> None:
        self.call = call

    def create(self) -> Any:
        """Return the state of an empty group."""
        return None

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """Add a row and return the new state. `values`: the operands."""
        raise NotImplementedError

    def retract(self, state: Any, values: tuple[Any, ...]) -> Any:
        """Retract a row and return the new state."""
        raise UnsupportedError(f"{self.call.function} of rows that may go needs all values")

    def value(self, state: Any) -> Any:
        """Return the result of the function."""
        return state

    def is_spent(self, state: Any) -> bool:
        """Return whether the state of a group without rows can be dropped: not while retractions are pending."""
        return bool(state == self.create())

    def keep_apart(self, keyed: KeyedStateBackend, name: str) -> None:
        """Store large parts in separate keyed states, which are named after the call (`name`)."""

    def forget(self, key: Any) -> None:
        """Clear the separate states of a dropped group."""

    def running(self, rows: Rows, states: list[Any]) -> list[Any]:
        """Return the result after each row. `states`: the state of each group, updated in place."""
        add, retract, value = self.add, self.retract, self.value
        keeps, goes, ends = rows.keeps, rows.goes, rows.ends
        results = []
        for row, (group, operands) in enumerate(zip(rows.groups, rows.operands, strict=True)):
            state = states[group]
            if keeps is None or keeps[row]:
                state = states[group] = (
                    retract(state, operands) if goes is not None and goes[row] else add(state, operands)
                )
            results.append(value(state))
            if row in ends and self.is_spent(state):
                states[group] = self.create()
        return results

    def gather(self, bundle: Bundled, states: list[Any]) -> bool:
        """Process a whole append-only bundle when only the final results are needed.

        `states`: the state of each group, updated in place. Returns False for functions that must process row by row.
        """
        return False


class SingleOperand(Accumulator):
    """The base class of aggregates with one operand, most of which ignore NULL."""

    takes_one = True
    skips_null = True

    def add_one(self, state: Any, value: Any) -> Any:
        """Add a value and return the new state; the value is NULL only if `skips_null` is not set."""
        raise NotImplementedError

    def retract_one(self, state: Any, value: Any) -> Any:
        """Retract a value and return the new state."""
        return super().retract(state, (value,))

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        value = values[0]
        return state if value is None and self.skips_null else self.add_one(state, value)

    def retract(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        value = values[0]
        return state if value is None and self.skips_null else self.retract_one(state, value)

    def running(self, rows: Rows, states: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        add, retract, value = self.add_one, self.retract_one, self.value
        takes_null = not self.skips_null
        results = []
        keeps, goes, ends = rows.keeps, rows.goes, rows.ends
        if keeps is None and not ends:
            retractions = bytes(len(rows.groups)) if goes is None else goes
            for group, operand, is_gone in zip(rows.groups, rows.operands, retractions, strict=True):
                state = states[group]
                if operand is not None or takes_null:
                    state = states[group] = retract(state, operand) if is_gone else add(state, operand)
                results.append(value(state))
            return results
        for row, (group, operand) in enumerate(zip(rows.groups, rows.operands, strict=True)):
            state = states[group]
            if (operand is not None or takes_null) and (keeps is None or keeps[row]):
                state = states[group] = (
                    retract(state, operand) if goes is not None and goes[row] else add(state, operand)
                )
            results.append(value(state))
            if row in ends and self.is_spent(state):
                states[group] = self.create()
        return results


class Distinct(SingleOperand):
    """Applies another aggregate to each distinct value once: [its state, {value: count}].

    In a snapshot of the same call on columns (`distinct`), the values are packed, see `pairs.Packed`.
    """

    def __init__(self, call: AggregateCall, inner: Accumulator) -> None:
        super().__init__(call)
        self._inner = inner
        self.takes_one, self.skips_null = inner.takes_one, inner.skips_null
        is_single = isinstance(inner, SingleOperand)
        self._add: Callable[[Any, Any], Any] = inner.add_one if isinstance(inner, SingleOperand) else inner.add
        self._retract: Callable[[Any, Any], Any] = (
            inner.retract_one if isinstance(inner, SingleOperand) else inner.retract
        )
        self._key = to_key(call.operands[0].type) if is_single else _key_of_operands(call)
        #: makes one form represent all equal values
        self._form = to_canonical(call.operands[0].type) if is_single else None

    def create(self) -> Any:
        """See `Accumulator`."""
        return [self._inner.create(), {}]

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return super().add(state, values) if self.takes_one else self.add_one(state, values)

    def retract(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return super().retract(state, values) if self.takes_one else self.retract_one(state, values)

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        count = changed_count(state[1], value if self._key is None else self._key(value), 1)
        if count == 1:
            state[0] = self._add(state[0], value if self._form is None else self._form(value))
        return state

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        key = value if self._key is None else stored_key(state[1], self._key(value), self._key)
        if changed_count(state[1], key, -1) == 0:
            state[0] = self._retract(state[0], value if self._form is None else self._form(value))
        return state

    def running(self, rows: Rows, states: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        self._unpack(states)
        return super().running(rows, states)

    def _unpack(self, states: list[Any]) -> None:
        """Unpack the values of restored states."""
        for state in states:
            if not isinstance(state[1], dict):
                values, counts = unpacked_values(state[1])
                keys = values if self._key is None else map(self._key, values)
                state[1] = dict(zip(keys, counts, strict=True))

    def gather(self, bundle: Bundled, states: list[Any]) -> bool:
        """See `Accumulator`. Only counters do not need the new values themselves."""
        self._unpack(states)
        if self._key is not None or bundle.operand is None or not self._inner.counts_alike:
            return False
        new = [0] * len(states)
        for group, value, times in zip(*bundle.pairs(), strict=True):
            counts = states[group][1]
            before = counts.get(value)
            if before is None:
                counts[value] = times
                new[group] += 1
            else:
                counts[value] = before + times
        for state, count in zip(states, new, strict=True):
            state[0] += count
        return True

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return self._inner.value(state[0])

    def is_spent(self, state: Any) -> bool:
        """See `Accumulator`."""
        return not state[1]


def changed_count(counts: dict[Any, int], key: Any, by: int) -> int:
    """Change a key's count, and remove the key at 0. A negative count means pending retractions."""
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        del counts[key]
    return count


def to_key(data_type: DataType) -> Callable[[Any], Any] | None:
    """Return a function from a value to a dictionary key that is equal for equal values.

    None if values are keys as-is.
    """
    if isinstance(data_type, FloatType | DoubleType):
        return lambda value: value if value == value else NAN
    return build_canonicalizer(arrow_type(data_type))


def to_canonical(data_type: DataType) -> Callable[[Any], Any] | None:
    """Return a function that makes the canonical form of a value; None if each value has only one form."""
    return build_canonicalizer(arrow_type(data_type), zeros="merged")


def _key_of_operands(call: AggregateCall) -> Callable[[tuple[Any, ...]], Any]:
    """Return a function that makes a dictionary key of several operands."""
    return RowEquality([operand.type for operand in call.operands]).key


def stored_key(stored: Collection[Any], key: Any, to_key: Callable[[Any], Any] | None) -> Any:
    """Return the key under which equal values are stored: `key`, or an earlier release's form of it."""
    if to_key is None or key in stored or not isinstance(key, tuple):
        return key
    return next((other for other in stored if isinstance(other, tuple) and to_key(other) == key), key)


def read_batch_operands(
    call: AggregateCall,
    accumulator: Accumulator,
    columns: pa.RecordBatch,
    types: Sequence[DataType],
    decoded: dict[int, list[Any]],
) -> tuple[Sequence[Any], list[bool] | None]:
    """Return a call's operand in each row, as in `Rows`, and which rows pass its FILTER.

    `decoded`: columns that the calls share.
    """
    rows = columns.num_rows
    keeps = None
    if isinstance(call.condition, Field):
        keeps = pc.fill_null(columns.column(call.condition.index), False).to_pylist()
    operands: list[Sequence[Any]] = []
    for operand in call.operands[: 1 if accumulator.takes_one else None]:
        if isinstance(operand, Constant):
            operands.append([operand.value] * rows)
        else:
            assert isinstance(operand, Field)
            index = operand.index
            if index not in decoded:
                decoded[index] = to_values(columns.column(index), types[index])
            operands.append(decoded[index])
    if not accumulator.takes_one:
        return list(zip(*operands, strict=True)) if operands else [()] * rows, keeps
    if keeps is not None and accumulator.skips_null:
        return [value if keep else None for value, keep in zip(operands[0], keeps, strict=True)], None
    return operands[0], keeps


def read_operands(
    call: AggregateCall, columns: pa.RecordBatch, types: Sequence[DataType]
) -> list[tuple[Any, ...] | None]:
    """Return a call's operands in each row; None for rows that its FILTER excludes."""
    rows = columns.num_rows
    lists: list[list[Any]] = []
    for operand in call.operands:
        if isinstance(operand, Constant):
            lists.append([operand.value] * rows)
        else:
            assert isinstance(operand, Field)
            lists.append(to_values(columns.column(operand.index), types[operand.index]))
    row_operands: list[Any] = list(zip(*lists, strict=True)) if lists else [()] * rows
    if isinstance(call.condition, Field):
        keeps = columns.column(call.condition.index).to_pylist()
        return [values if keep else None for values, keep in zip(row_operands, keeps, strict=True)]
    return row_operands
