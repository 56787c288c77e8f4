"""What the planner knows of look-ups."""

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
    """How tables are asked for the rows of keys, by the places of the columns; and the options of the session."""

    find: Callable[[Scan, Sequence[int]], TableLookup] = _none
    options: Mapping[str, str] = field(default_factory=dict)
