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
    """An open file made of units, each of which holds records in order.

    A position in the file is a unit and a number of records within it (G8), so units and records must be the same at
    every reading.
    """

    @abstractmethod
    def units(self, start: int, end: int | None) -> Sequence[int]:
        """The ordinals of the units that begin at a byte from `start` up to and without `end` (None: to the end)."""

    @abstractmethod
    def read(self, unit: int, skip_records: int) -> Iterator[list[T_co] | ColumnData]:
        """The records of a unit after its first `skip_records`, in lists or columns of a size that is quick to make."""


class BulkFormat(ABC, Generic[T_co]):
    """Describes files that are read in large units."""

    @abstractmethod
    def open(self, file: BinaryIO) -> BulkFile[T_co]:
        """Opens a seekable file, which the caller closes. Raises FormatError when it is not of this format."""


class BatchWriter(BulkWriter[T]):
    """A `BulkWriter` that takes many records at once."""

    @abstractmethod
    def add_elements(self, elements: Sequence[T]) -> None:
        """Takes records in order, which may stay in memory until `flush`; raises FormatError if one does not fit."""

    def add_columns(self, data: ColumnData) -> None:
        """Takes records that are columns; by default as rows."""
        self.add_elements(data.rows())  # type: ignore[arg-type]

    def add_element(self, element: T) -> None:
        """Takes one record."""
        self.add_elements([element])

    def discard(self) -> None:
        """Releases what is held; the file will be removed. Called instead of `finish`, with the stream still open."""


class BatchWriterFactory(BulkWriterFactory[T]):
    """Makes a `BatchWriter` for each file."""

    @abstractmethod
    def create(self, stream: BinaryIO) -> BatchWriter[T]:
        """Returns a writer to a new, empty file."""


def fields_of(record: Any, names: Sequence[str]) -> Sequence[Any]:
    """The values of a record in the order of `names`: dicts and rows with these names by name, others by position.

    What a dict lacks is None.

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
