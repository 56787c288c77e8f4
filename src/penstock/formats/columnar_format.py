"""What formats of whole columns have in common: which columns are wanted, and as what records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.base.errors import FormatError
from penstock.base.typeinfo import RowTypeInfo
from penstock.formats.bulk_format import BulkFormat
from penstock.formats.columns import chosen_columns


class ColumnarFormat(BulkFormat[Any]):
    """Each row is a `dict`, a `Row` with names when `columns` is a row type, or a tuple.

    Args:
        columns: names of the columns wanted, in the order wanted, or a row type; None for all.
        as_tuple: make each record a tuple.
        as_columns: hand records over as columns, in batches of up to `COLUMN_BATCH_ROWS`; where an operator works
            record by record they are rows with names.
        leaves: what to read of the columns, where rows in them are not wanted with all of their fields: paths such as
            `place.city`; None for all.
    """

    def __init__(
        self,
        columns: Sequence[str] | RowTypeInfo | None = None,
        *,
        as_tuple: bool = False,
        as_columns: bool = False,
        leaves: Sequence[str] | None = None,
    ) -> None:
        self.columns, self.output = chosen_columns(columns, as_tuple, as_columns)
        self.leaves = None if leaves is None else list(leaves)


def columns_to_read(names: list[str], wanted: list[str] | None) -> list[str]:
    """The columns of a file that are wanted; raises `FormatError` if it lacks one."""
    columns = names if wanted is None else wanted
    if missing := [name for name in columns if name not in names]:
        raise FormatError(f"the file has no column {', '.join(map(repr, missing))}")
    return columns
