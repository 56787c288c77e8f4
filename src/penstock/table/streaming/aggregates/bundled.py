"""The rows of a bundle, as seen by a call whose results are needed only at the end, not after each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.logical_types import DataType
from penstock.table.data.values import to_values


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
