"""The planner's access to lookup tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.table.connectors.lookup import TableLookup
from penstock.table.data.errors import ValidationError
from penstock.table.plan.logical import Scan


def _none(node: Scan, key: Sequence[int]) -> TableLookup:
    raise ValidationError(f"table {'.'.join(node.path)} cannot be asked for the rows of keys")


@dataclass(frozen=True, slots=True)
class Lookups:
    """`find` returns the lookup of a table by the indices of its key columns; `options` are the session's."""

    find: Callable[[Scan, Sequence[int]], TableLookup] = _none
    options: Mapping[str, str] = field(default_factory=dict)
