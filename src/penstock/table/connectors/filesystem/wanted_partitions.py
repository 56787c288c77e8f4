"""Selects the partitions that a query needs, by its conditions on partition columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.table.connectors.filesystem.partitions import PartitionValues, parse_partition
from penstock.table.data.logical_types import DataType
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.functions.definition import Session
from penstock.table.typed.nodes import Constant, Field, FunctionCall, Typed

#: functions that never fail and do not depend on the session
_PLAIN: Final = frozenset(
    {"=", "<>", "<", "<=", ">", ">=", "AND", "OR", "NOT", "IN", "IS NULL", "IS NOT NULL", "IS TRUE", "IS FALSE", "LIKE"}
)


def is_plain(condition: Typed) -> bool:
    """Return whether a condition can be evaluated on directory names alone."""
    return all(
        isinstance(node, Field | Constant) or (isinstance(node, FunctionCall) and node.function in _PLAIN)
        for node in condition.walk()
    )


@dataclass(frozen=True, slots=True)
class WantedPartitions:
    """The partitions that satisfy conditions, optionally restricted to some of them.

    Attributes:
        conditions: over the partition columns, in the order of `keys`.
        keys: the names of these columns.
        kinds: their types.
        default_name: the name of the partition of NULL.
        all_keys: the names of all partition columns.
        only: the values of `all_keys` in the partitions to read; None for all.
    """

    conditions: tuple[Typed, ...]
    keys: tuple[str, ...]
    kinds: tuple[DataType, ...]
    default_name: str
    all_keys: tuple[str, ...] = ()
    only: frozenset[tuple[str | None, ...]] | None = None

    def asker(self) -> Callable[[str], bool]:
        """Return a function that checks whether a file is in a wanted partition, once per directory."""
        values = PartitionValues(dict(zip(self.keys, self.kinds, strict=True)), self.default_name)
        ask = Evaluator(self.conditions, Session())
        known: dict[str, bool] = {}

        def is_wanted(path: str) -> bool:
            directory = path.rpartition("/")[0]
            if directory not in known:
                known[directory] = self._is_one_of_them(path) and are_true(path)
            return known[directory]

        def are_true(path: str) -> bool:
            scalars = values.of_file(path)
            columns = [pa.array([scalars[key].as_py()], scalars[key].type) for key in self.keys]
            return all(answer[0].as_py() is True for answer in ask(Columns(columns, 1)))

        return is_wanted

    def _is_one_of_them(self, path: str) -> bool:
        if self.only is None:
            return True
        values = parse_partition(path, self.all_keys, self.default_name)
        return tuple(values[key] for key in self.all_keys) in self.only
