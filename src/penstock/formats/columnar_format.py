"""Base of columnar formats: which columns to read, and the type of their records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.base.errors import FormatError
from penstock.base.typeinfo import RowTypeInfo
from penstock.formats.bulk_format import BulkFormat
from penstock.formats.columns import chosen_columns


class ColumnarFormat(BulkFormat[Any]):
    """A format of whole columns. Each row is a `dict`, a `Row` with names if `columns` is a row type, or a tuple.

    Args:
        columns: names of the columns to read, in output order, or a row type; None for all.
        as_tuple: make each record a tuple.
        as_columns: return records in columns, in batches of up to `COLUMN_BATCH_ROWS`; operators that work record by
            record get rows with names.
        leaves: paths to read within the columns, such as `place.city`, if nested rows are not needed with all of
            their fields; None for all.
        allows_missing: whether a file may lack columns. Only existing columns are read then. From a file without any
            of them, the first column is read, so the number of rows is known.
    """

    def __init__(
        self,
        columns: Sequence[str] | RowTypeInfo | None = None,
        *,
        as_tuple: bool = False,
        as_columns: bool = False,
        leaves: Sequence[str] | None = None,
        allows_missing: bool = False,
    ) -> None:
        self.columns, self.output = chosen_columns(columns, as_tuple, as_columns)
        self.leaves = None if leaves is None else list(leaves)
        self.allows_missing = allows_missing

    def choose_columns(self, schema: pa.Schema) -> ChosenColumns:
        """Choose the columns to read from a file of this schema.

        Raises `FormatError` if a required column is missing.
        """
        names = list(schema.names)
        columns = names if self.columns is None else self.columns
        if missing := [name for name in columns if name not in names]:
            if not self.allows_missing:
                raise FormatError(f"the file has no column {', '.join(map(repr, missing))}")
            columns = [name for name in columns if name in names] or names[:1]
        if self.leaves is None:
            return ChosenColumns(columns, columns)
        available = {leaf for field in schema for leaf in _paths(field.name, field.type)}
        read = []
        for name in columns:
            leaves = [leaf for leaf in self.leaves if leaf == name or leaf.startswith(f"{name}.")]
            known = [leaf for leaf in leaves if leaf in available]
            # Without any of its fields, nothing would show which rows are NULL.
            read += known or [name]
        return ChosenColumns(columns, read)


class ChosenColumns(NamedTuple):
    """`columns`: the names of the columns to read; `leaves`: the paths within them, in the form of Arrow's readers."""

    columns: list[str]
    leaves: list[str]


def _paths(path: str, kind: pa.DataType) -> Iterator[str]:
    """Yield a path, and the paths of its nested fields."""
    yield path
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _paths(f"{path}.{field.name}", field.type)
