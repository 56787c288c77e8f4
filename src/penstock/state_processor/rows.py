"""Rows of any source that a user has, and the selection of state from each row (H5).

A source is a pandas or Arrow table, an Arrow reader, a Spark data frame, or any iterable. A selector picks part of a
row: a column name, a list of names (which gives a tuple), or a function of the row. Functions get rows of tables, and
structs within them, as `Row`s with names. The rows of an iterable are its elements. A name selects a field of an
element (a dict, Row, named tuple or dataclass), and a number selects a position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.base.errors import UnknownFieldError
from penstock.base.types import Row
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
