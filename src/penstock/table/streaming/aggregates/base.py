"""What all aggregates have in common.

What is held for a group can be pickled; `add` and `retract` give what is held next, which may be the same object.
Values are as `penstock.table.data.values` holds them. A row may be taken back before it comes: what is held then owes
it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.state.backend import KeyedStateBackend
from penstock.state.equality import canonicalizer_of
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DataType, DoubleType, FloatType
from penstock.table.plan.logical import AggregateCall
from penstock.table.streaming.aggregates.bundled import Bundled
from penstock.table.streaming.rows.held_rows import RowEquality

#: The dictionary key of NaN, which Python takes to differ from itself.
NAN: Final = "NaN"


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a batch as one call sees them."""

    #: the number of each row's group
    groups: Sequence[int]
    #: the operand of each row, or a tuple of several
    operands: Sequence[Any]
    #: which rows FILTER keeps; None for all
    keeps: Sequence[bool] | None = None
    #: not 0 for rows that go; None when none does
    goes: bytes | None = None
    #: rows after which their group is empty
    ends: frozenset[int] = field(default_factory=frozenset)
    #: the key of each group
    keys: Sequence[Any] = ()

    @property
    def only_come(self) -> bool:
        """Whether each row counts, and none goes."""
        return self.keeps is None and self.goes is None


class Accumulator:
    """One aggregate call."""

    #: whether only the first operand counts, so that `add_one` takes it without a tuple around it
    takes_one = False
    #: whether rows whose operand is NULL change nothing
    skips_null = False
    #: whether it is a number that goes up by 1 with each value, whatever that is
    counts_alike = False

    def __init__(self, call: AggregateCall) -> None:
        self.call = call

    def create(self) -> Any:
        """For no row."""
        return None

    def add(self, held: Any, values: tuple[Any, ...]) -> Any:
        """With another row. `values`: its operands."""
        raise NotImplementedError

    def retract(self, held: Any, values: tuple[Any, ...]) -> Any:
        """With a row less."""
        raise UnsupportedError(f"{self.call.function} of rows that may go needs all values")

    def value(self, held: Any) -> Any:
        """What the function gives."""
        return held

    def is_spent(self, held: Any) -> bool:
        """Whether what is held for a group without rows may be forgotten: not if it has rows for those that it owes."""
        return bool(held == self.create())

    def keep_apart(self, keyed: KeyedStateBackend, name: str) -> None:
        """Keep what may grow large in states of its own, for groups by key. `name`: of the call, for these states."""

    def forget(self, key: Any) -> None:
        """Let nothing be left apart of a group that is forgotten."""

    def running(self, rows: Rows, held: list[Any]) -> list[Any]:
        """What the function gives after each row. `held`: what is held for each group, which is brought up to date."""
        add, retract, value = self.add, self.retract, self.value
        keeps, goes, ends = rows.keeps, rows.goes, rows.ends
        found = []
        for row, (group, operands) in enumerate(zip(rows.groups, rows.operands, strict=True)):
            one = held[group]
            if keeps is None or keeps[row]:
                one = held[group] = retract(one, operands) if goes is not None and goes[row] else add(one, operands)
            found.append(value(one))
            if row in ends and self.is_spent(one):
                held[group] = self.create()
        return found

    def gather(self, bundle: Bundled, held: list[Any]) -> bool:
        """Take a bundle in at once, of which nobody asks what the function gives in between; rows only come.

        `held`: what is held for each group, which is brought up to date. Returns whether that is done: some functions
        need one row after the other.
        """
        return False


class SingleOperand(Accumulator):
    """The base of aggregates of one operand, most of which leave NULL out."""

    takes_one = True
    skips_null = True

    def add_one(self, held: Any, value: Any) -> Any:
        """With another value; NULL only comes where `skips_null` is not set."""
        raise NotImplementedError

    def retract_one(self, held: Any, value: Any) -> Any:
        """With a value less."""
        return super().retract(held, (value,))

    def add(self, held: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        value = values[0]
        return held if value is None and self.skips_null else self.add_one(held, value)

    def retract(self, held: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        value = values[0]
        return held if value is None and self.skips_null else self.retract_one(held, value)

    def running(self, rows: Rows, held: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        add, retract, value = self.add_one, self.retract_one, self.value
        takes_null = not self.skips_null
        found = []
        keeps, goes, ends = rows.keeps, rows.goes, rows.ends
        if keeps is None and not ends:
            gone = bytes(len(rows.groups)) if goes is None else goes
            for group, operand, is_gone in zip(rows.groups, rows.operands, gone, strict=True):
                one = held[group]
                if operand is not None or takes_null:
                    one = held[group] = retract(one, operand) if is_gone else add(one, operand)
                found.append(value(one))
            return found
        for row, (group, operand) in enumerate(zip(rows.groups, rows.operands, strict=True)):
            one = held[group]
            if (operand is not None or takes_null) and (keeps is None or keeps[row]):
                one = held[group] = retract(one, operand) if goes is not None and goes[row] else add(one, operand)
            found.append(value(one))
            if row in ends and self.is_spent(one):
                held[group] = self.create()
        return found


class Distinct(SingleOperand):
    """Another aggregate over each value once: [what that holds, {value: how often}]."""

    def __init__(self, call: AggregateCall, inner: Accumulator) -> None:
        super().__init__(call)
        self._inner = inner
        self.takes_one, self.skips_null = inner.takes_one, inner.skips_null
        is_single = isinstance(inner, SingleOperand)
        self._add: Callable[[Any, Any], Any] = inner.add_one if isinstance(inner, SingleOperand) else inner.add
        self._retract: Callable[[Any, Any], Any] = (
            inner.retract_one if isinstance(inner, SingleOperand) else inner.retract
        )
        self._key = key_of(call.operands[0].type) if is_single else _key_of_operands(call)
        #: one value stands for all equal ones
        self._form = form_of(call.operands[0].type) if is_single else None

    def create(self) -> Any:
        """See `Accumulator`."""
        return [self._inner.create(), {}]

    def add(self, held: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return super().add(held, values) if self.takes_one else self.add_one(held, values)

    def retract(self, held: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return super().retract(held, values) if self.takes_one else self.retract_one(held, values)

    def add_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        count = changed_count(held[1], value if self._key is None else self._key(value), 1)
        if count == 1:
            held[0] = self._add(held[0], value if self._form is None else self._form(value))
        return held

    def retract_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        key = value if self._key is None else stored_key(held[1], self._key(value), self._key)
        if changed_count(held[1], key, -1) == 0:
            held[0] = self._retract(held[0], value if self._form is None else self._form(value))
        return held

    def gather(self, bundle: Bundled, held: list[Any]) -> bool:
        """See `Accumulator`. Only counts need not know which values are new."""
        if self._key is not None or bundle.operand is None or not self._inner.counts_alike:
            return False
        new = [0] * len(held)
        for group, value, times in zip(*bundle.pairs(), strict=True):
            counts = held[group][1]
            before = counts.get(value)
            if before is None:
                counts[value] = times
                new[group] += 1
            else:
                counts[value] = before + times
        for one, count in zip(held, new, strict=True):
            one[0] += count
        return True

    def value(self, held: Any) -> Any:
        """See `Accumulator`."""
        return self._inner.value(held[0])

    def is_spent(self, held: Any) -> bool:
        """See `Accumulator`."""
        return not held[1]


def changed_count(counts: dict[Any, int], key: Any, by: int) -> int:
    """Count a key up or down; one that comes to 0 is no longer there. Below 0 rows have gone before they came."""
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        del counts[key]
    return count


def key_of(data_type: DataType) -> Callable[[Any], Any] | None:
    """A function that makes a dictionary key of a value, one for equal values; None if the value itself is a key."""
    if isinstance(data_type, FloatType | DoubleType):
        return lambda value: value if value == value else NAN
    return canonicalizer_of(arrow_type(data_type))


def form_of(data_type: DataType) -> Callable[[Any], Any] | None:
    """A function that makes the canonical form of a value; None if each value has one form."""
    return canonicalizer_of(arrow_type(data_type), zeros="merged")


def _key_of_operands(call: AggregateCall) -> Callable[[tuple[Any, ...]], Any]:
    """A function that makes a dictionary key of several operands."""
    return RowEquality([operand.type for operand in call.operands]).key


def stored_key(stored: Collection[Any], key: Any, key_of: Callable[[Any], Any] | None) -> Any:
    """The key under which equal values are stored: `key`, or one that an earlier release wrote in another form."""
    if key_of is None or key in stored or not isinstance(key, tuple):
        return key
    return next((other for other in stored if isinstance(other, tuple) and key_of(other) == key), key)
