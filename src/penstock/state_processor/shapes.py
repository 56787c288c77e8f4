"""Builds entries of keyed state from rows, with a shape for each kind of state (H5).

A shape selects the key, namespace and item of a row, and combines the items of one key into the entry's value. It is
plain data with functions, so it can be sent to Spark.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from penstock.base.errors import WrongTypeError
from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.errors import StateError
from penstock.state_processor.rows import RowBlock, Selector

#: Returned by `combine` if there is nothing to store.
NOTHING: Final = object()


@dataclass(frozen=True)
class Shape:
    """A state with one value per key; None stores nothing, as in `ValueState.update`."""

    what: str
    key: Selector
    value: Selector

    def rows(self, block: RowBlock) -> Iterator[tuple[Any, Any, Any]]:
        """Yield (key, namespace, item) for each row."""
        return ((key, None, item) for key, item in zip(block.select(self.key), self._items(block), strict=True))

    def _items(self, block: RowBlock) -> list[Any]:
        return block.select(self.value)

    def combine(self, key: Any, namespace: Any, items: list[Any]) -> Any:
        """Return the entry's value from the items of all its rows, in order; `NOTHING` to store no entry."""
        if len(items) > 1:
            raise StateError(f"{self.what}: {len(items)} rows have the key {key!r}, but a key has only one value")
        return NOTHING if items[0] is None else items[0]


@dataclass(frozen=True)
class ListShape(Shape):
    """A list state: one row per item, in the order of the rows."""

    def combine(self, key: Any, namespace: Any, items: list[Any]) -> Any:
        return items


@dataclass(frozen=True)
class MapShape(Shape):
    """A map state: one row per map entry."""

    map_key: Selector

    def _items(self, block: RowBlock) -> list[Any]:
        return list(zip(block.select(self.map_key), block.select(self.value), strict=True))

    def combine(self, key: Any, namespace: Any, items: list[Any]) -> Any:
        entries = dict(items)
        if len(entries) < len(items):
            raise StateError(f"{self.what}: several rows of the key {key!r} have the same map key")
        return entries


@dataclass(frozen=True)
class ReducingShape(Shape):
    """A reducing state: folds the rows of a key."""

    reduce: Any

    def combine(self, key: Any, namespace: Any, items: list[Any]) -> Any:
        folded = items[0]
        for item in items[1:]:
            folded = self.reduce(folded, item)
        return folded


@dataclass(frozen=True)
class AggregatingShape(Shape):
    """An aggregating state: adds the rows of a key to an accumulator."""

    function: Any

    def combine(self, key: Any, namespace: Any, items: list[Any]) -> Any:
        accumulator = self.function.create_accumulator()
        for item in items:
            accumulator = self.function.add(item, accumulator)
        return accumulator


@dataclass(frozen=True)
class WindowShape(Shape):
    """The contents of tumbling or sliding windows: one row per key and window."""

    start: Selector
    end: Selector

    def rows(self, block: RowBlock) -> Iterator[tuple[Any, Any, Any]]:
        windows = zip(map(to_ms, block.select(self.start)), map(to_ms, block.select(self.end)), strict=True)
        return zip(block.select(self.key), windows, block.select(self.value), strict=True)

    def combine(self, key: Any, namespace: Any, items: list[Any]) -> Any:
        if len(items) > 1:
            raise StateError(f"{self.what}: {len(items)} rows have the key {key!r} and the window {namespace!r}")
        return items[0]


@dataclass(frozen=True)
class TimerShape(Shape):
    """Timers: `value` selects the time at which a key's timer is due; duplicates count once."""

    def rows(self, block: RowBlock) -> Iterator[tuple[Any, Any, Any]]:
        times = map(to_ms, block.select(self.value))
        return ((key, timestamp, None) for key, timestamp in zip(block.select(self.key), times, strict=True))

    def combine(self, key: Any, namespace: Any, items: list[Any]) -> Any:
        return None


def build_state_shape(
    what: str, descriptor: StateDescriptor, key: Selector, value: Selector, map_key: Selector
) -> Shape:
    """Return the shape of the state that a descriptor declares."""
    if isinstance(descriptor, MapStateDescriptor):
        return MapShape(what, key, value, map_key)
    if isinstance(descriptor, ListStateDescriptor):
        return ListShape(what, key, value)
    if isinstance(descriptor, ReducingStateDescriptor):
        return ReducingShape(what, key, value, descriptor.reduce_function)
    if isinstance(descriptor, AggregatingStateDescriptor):
        return AggregatingShape(what, key, value, descriptor.agg_function)
    if isinstance(descriptor, ValueStateDescriptor):
        return Shape(what, key, value)
    raise WrongTypeError(f"a state is declared by a StateDescriptor, not by {descriptor!r}")


def to_ms(moment: Any) -> int:
    """Convert a point in time to ms since the epoch: an int stays unchanged, a datetime without a time zone is UTC."""
    if isinstance(moment, datetime.datetime):
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
        return (aware - _EPOCH) // _MILLISECOND
    if isinstance(moment, bool) or not isinstance(moment, int):
        raise StateError(f"a point in time must be an int (ms since the epoch) or a datetime, not {moment!r}")
    return moment


_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
