"""Formats that are read and written in large units, such as Parquet's row groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Generic, TypeVar

from penstock.base.types import Row, values_by_names
from penstock.codecs.column_data import ColumnData
from penstock.codecs.serialization import BulkWriter, BulkWriterFactory

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class BulkFile(ABC, Generic[T_co]):
    """An open file made of units; each unit holds records in order.

    A position in the file is a unit and a number of records within it (G8), so units and records must be the same on
    every read.
    """

    @abstractmethod
    def units(self, start: int, end: int | None) -> Sequence[int]:
        """Return the ordinals of the units that begin at byte `start` or later, but before `end` (None: no limit)."""

    @abstractmethod
    def read(self, unit: int, skip_records: int) -> Iterator[list[T_co] | ColumnData]:
        """Yield the records of a unit after its first `skip_records`, in lists or columns of a size quick to make."""


class BulkFormat(ABC, Generic[T_co]):
    """Describes files that are read in large units."""

    @abstractmethod
    def open(self, file: BinaryIO) -> BulkFile[T_co]:
        """Open a seekable file, which the caller closes. Raises FormatError if it does not have this format."""


class BatchWriter(BulkWriter[T]):
    """A `BulkWriter` that takes many records at once."""

    @abstractmethod
    def add_elements(self, elements: Sequence[T]) -> None:
        """Add records in order; they may stay in memory until `flush`. Raises FormatError if one does not fit."""

    def add_columns(self, data: ColumnData) -> None:
        """Add records in columns; by default as rows."""
        self.add_elements(data.rows())  # type: ignore[arg-type]

    def add_element(self, element: T) -> None:
        """Add one record."""
        self.add_elements([element])

    def discard(self) -> None:
        """Release resources; the file will be removed. Called instead of `finish`, with the stream still open."""


class BatchWriterFactory(BulkWriterFactory[T]):
    """Makes a `BatchWriter` for each file."""

    @abstractmethod
    def create(self, stream: BinaryIO) -> BatchWriter[T]:
        """Create a writer for a new, empty file."""


def get_field_values(record: Any, names: Sequence[str]) -> Sequence[Any]:
    """Return the values of a record in the order of `names`, found by name in dicts and named rows, else by position.

    Names that a dict lacks become None.

    Raises:
        ValueError: if the record has another number of fields.
    """
    if isinstance(record, Row):
        values = values_by_names(record, tuple(names))
    else:
        values = [record.get(name) for name in names] if isinstance(record, dict) else tuple(record)
    if len(values) != len(names):
        raise ValueError(f"{len(values)} fields, expected {len(names)}")
    return values
