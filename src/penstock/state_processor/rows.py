"""Rows of any source that a user has, and the entries of keyed state that they become (H5).

**Sources and selectors.** A source is a pandas or Arrow table, an Arrow reader, a Spark data frame, or any iterable. A
selector picks part of a row: a column name, a list of names (which gives a tuple), or a function of the row. Functions
get rows of tables, and structs within them, as `Row`s with names. The rows of an iterable are its elements. A name
selects a field of an element (a dict, Row, named tuple or dataclass), and a number selects a position.

**Shapes.** There is a `Shape` for each kind of keyed state. It selects the key, namespace and item of a row, and
combines the items of one key into the entry's value. It is plain data with functions, so it can be sent to Spark.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.base.errors import UnknownFieldError, WrongTypeError
from penstock.base.types import Row
from penstock.state import states
from penstock.state.errors import StateError

Selector: TypeAlias = str | int | Sequence[str | int] | Callable[[Any], Any]

#: The number of rows to process together.
ROWS_MAX: Final = 4096


class RowBlock:
    """Some rows of a source; `select` applies a selector to each."""

    def select(self, selector: Selector) -> list[Any]:
        """Apply a selector to each row, in order; raise `StateError` for an unknown name."""
        if callable(selector):
            return self._call(selector)
        if isinstance(selector, str | int):
            return self._column(selector)
        return list(zip(*(self._column(name) for name in selector), strict=True))

    def _call(self, function: Callable[[Any], Any]) -> list[Any]:
        raise NotImplementedError

    def _column(self, name: str | int) -> list[Any]:
        raise NotImplementedError


class ArrowBlock(RowBlock):
    """Rows of an Arrow record batch."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._names: list[str] = list(batch.schema.names)
        self._rows: list[Row] | None = None

    def _call(self, function: Callable[[Any], Any]) -> list[Any]:
        if self._rows is None:
            # Columns selected by name convert structs again, so a function may keep the rows that it gets.
            columns = [_python_values(column) for column in self._batch.columns]
            self._rows = list(map(Row(*self._names), *columns)) if columns else []
        return list(map(function, self._rows))

    def _column(self, name: str | int) -> list[Any]:
        if isinstance(name, str) and name not in self._names:
            raise StateError(f"there is no column {name!r}; there are: {', '.join(self._names)}")
        return _python_values(self._batch.column(name))


class ElementBlock(RowBlock):
    """Elements of an iterable."""

    def __init__(self, elements: list[Any]) -> None:
        self._elements = elements

    def _call(self, function: Callable[[Any], Any]) -> list[Any]:
        return list(map(function, self._elements))

    def _column(self, name: str | int) -> list[Any]:
        element = None
        try:
            values = []
            for element in self._elements:
                if isinstance(name, int) or isinstance(element, Mapping | Row):
                    values.append(element[name])
                else:
                    values.append(getattr(element, name))
            return values
        except (KeyError, IndexError, TypeError, AttributeError, UnknownFieldError) as error:
            raise StateError(f"there is no {name!r} in {element!r}: {type(error).__name__}: {error}") from error


def is_spark_frame(source: Any) -> bool:
    """Return whether a source is a Spark data frame, classic or over Spark Connect."""
    return type(source).__module__.startswith("pyspark.sql") and hasattr(source, "mapInArrow")


def blocks(source: Any) -> Iterator[RowBlock]:
    """Yield the rows of a source in this process, in blocks."""
    if type(source).__module__.startswith("pandas."):
        source = pa.Table.from_pandas(source, preserve_index=False)
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        source = source.to_reader()
    if isinstance(source, pa.RecordBatchReader):
        yield from arrow_blocks(source)
        return
    if not isinstance(source, Iterable):
        raise StateError(
            f"rows come from a pandas, Arrow or Spark table or from an iterable, not from a {type(source).__qualname__}"
        )
    elements = iter(source)
    while some := list(islice(elements, ROWS_MAX)):
        yield ElementBlock(some)


def arrow_blocks(batches: Iterable[Any]) -> Iterator[RowBlock]:
    """Yield the rows of Arrow record batches in blocks."""
    for batch in batches:
        for begin in range(0, batch.num_rows, ROWS_MAX):
            yield ArrowBlock(batch.slice(begin, ROWS_MAX))


def _python_values(array: Any) -> list[Any]:
    """Convert a column to Python values: structs to rows with names, timestamps to microseconds if nothing is lost."""
    kind = array.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        try:
            array = array.cast(pa.timestamp("us", tz=kind.tz))
        except pa.ArrowInvalid as error:
            raise StateError(
                f"a timestamp has nanoseconds, which Python's datetime does not support: {error}"
            ) from error
    values = array.to_pylist()
    return [_unstructured(value, kind) for value in values] if _has_struct(kind) else values


def _has_struct(kind: Any) -> bool:
    if pa.types.is_map(kind):
        return True
    return pa.types.is_struct(kind) or (pa.types.is_list(kind) and _has_struct(kind.value_type))


def _unstructured(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return Row(*(f.name for f in kind))(*(_unstructured(value[f.name], f.type) for f in kind))
    if pa.types.is_map(kind):
        return {_unstructured(k, kind.key_type): _unstructured(v, kind.item_type) for k, v in value}
    if pa.types.is_list(kind):
        return [_unstructured(item, kind.value_type) for item in value]
    return value


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
    what: str, descriptor: states.StateDescriptor, key: Selector, value: Selector, map_key: Selector
) -> Shape:
    """Return the shape of the state that a descriptor declares."""
    if isinstance(descriptor, states.MapStateDescriptor):
        return MapShape(what, key, value, map_key)
    if isinstance(descriptor, states.ListStateDescriptor):
        return ListShape(what, key, value)
    if isinstance(descriptor, states.ReducingStateDescriptor):
        return ReducingShape(what, key, value, descriptor.reduce_function)
    if isinstance(descriptor, states.AggregatingStateDescriptor):
        return AggregatingShape(what, key, value, descriptor.agg_function)
    if isinstance(descriptor, states.ValueStateDescriptor):
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
