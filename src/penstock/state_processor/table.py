"""A savepoint's state as a table that is read on demand (H5).

Nothing is read until rows or the schema are requested. `to_spark` reads in Spark tasks, one part each: only the schema
is inferred here, from the first rows of the state, unless its types are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.state_processor.columns import PICKLED, arrow_type, infer_type, quoted, spark_type, to_array
from penstock.state_processor.layouts import Layout, Part
from penstock.storage.file_store import FileCheckpointStore

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame, SparkSession

#: The number of rows from which the types of a state's columns are inferred.
SAMPLE_ROWS: Final = 1000


@dataclass(frozen=True)
class Column:
    """A column of a table; a `kind` of None is inferred, `PICKLED` is pickled bytes, anything else goes to
    `arrow_type`.
    """

    name: str
    kind: Any = None


class SavepointTable:
    """The rows of a state; each method reads them again. `title` names the state in errors.

    Iteration yields each row as a tuple of its Python values.
    """

    def __init__(
        self,
        title: str,
        columns: Sequence[Column],
        reads: Sequence[tuple[Layout, Part]],
        storage: FileCheckpointStore,
    ) -> None:
        self._title = title
        self._columns = tuple(columns)
        self._reads = tuple(reads)
        self._storage = storage
        self._kinds: list[Any] | None = None

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self._columns]

    @property
    def partitions(self) -> int:
        """The number of Spark tasks that read the table."""
        return len(self._reads)

    @property
    def schema(self) -> Any:
        """The Arrow schema; reads the first rows for types that were not given."""
        return _schema(self.column_names, self._types())

    @property
    def pickled(self) -> list[str]:
        """The columns that hold pickled bytes; `decode` returns their values."""
        return [name for name, kind in zip(self.column_names, self._types(), strict=True) if kind is None]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for layout, part in self._reads:
            for piece in layout(self._storage, part, False):
                yield from zip(*piece, strict=True)

    def count(self) -> int:
        """Return the number of rows."""
        return sum(len(list(piece[0])) for layout, part in self._reads for piece in layout(self._storage, part, True))

    def to_arrow(self) -> Any:
        """Return all rows as an Arrow table.

        Raises:
            StateError: if a value does not fit the type of its column.
        """
        names, kinds = self.column_names, self._types()
        batches = record_batches(self._storage, self._reads, names, kinds, self._title)
        return pa.Table.from_batches(batches, schema=_schema(names, kinds))

    def to_pandas(self) -> pandas.DataFrame:
        """Return all rows as a pandas data frame; raises as `to_arrow` does."""
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """Return the rows as a Spark data frame. Spark tasks read them, so the state never passes through this process.

        Spark's machines must be able to reach the savepoint's files.
        """
        from penstock.state_processor.spark_jobs import ship_package

        ship_package(spark)
        names, kinds = self.column_names, self._types()
        storage, reads, title = self._storage, self._reads, self._title

        def read(batches: Iterable[Any]) -> Iterator[Any]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from record_batches(storage, reads[number : number + 1], names, kinds, title)

        types = [pa.binary() if kind is None else kind for kind in kinds]
        ddl = ", ".join(f"{quoted(name)} {spark_type(kind)}" for name, kind in zip(names, types, strict=True))
        parts = len(reads)
        return spark.range(0, parts, 1, max(1, parts)).mapInArrow(read, ddl)

    def _types(self) -> list[Any]:
        """Return the Arrow type of each column; None if it is pickled."""
        if self._kinds is None:
            sample = list(islice(self, SAMPLE_ROWS)) if any(c.kind is None for c in self._columns) else []
            columns = list(zip(*sample, strict=True)) or [()] * len(self._columns)
            self._kinds = [
                infer_type(values) if column.kind is None else arrow_type(column.kind)
                for column, values in zip(self._columns, columns, strict=True)
            ]
        return self._kinds

    def __repr__(self) -> str:
        return f"SavepointTable({self._title}: {', '.join(self.column_names)})"


def _schema(names: Sequence[str], kinds: Sequence[Any]) -> Any:
    return pa.schema([(n, pa.binary() if kind is None else kind) for n, kind in zip(names, kinds, strict=True)])


def record_batches(
    storage: FileCheckpointStore,
    reads: Sequence[tuple[Layout, Part]],
    names: Sequence[str],
    kinds: Sequence[Any],
    title: str,
) -> Iterator[Any]:
    """Yield the rows of some parts as Arrow batches; `kinds` gives the type of each column, None for pickled bytes."""
    schema = _schema(names, kinds)
    raw = kinds[-1] is None
    types = [*kinds[:-1], pa.binary()] if raw else kinds  # raw pickled bytes stay unchanged
    for layout, part in reads:
        for piece in layout(storage, part, raw):
            arrays = [
                to_array(list(values), kind, f"column {name!r} of {title}")
                for name, kind, values in zip(names, types, piece, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def decode(data: bytes | None) -> Any:
    """Return the value of a cell of pickled bytes. This runs code that the bytes name: decode only bytes that you
    trust.
    """
    import pickle

    return None if data is None else pickle.loads(data)


__all__ = ["PICKLED", "Column", "SavepointTable", "decode"]
