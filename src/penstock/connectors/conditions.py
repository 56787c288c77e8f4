"""Which rows a connector reads: conditions of a query, and the parts of a partitioned scan.

A `Condition` is a condition of a query in a form that connectors translate for their systems.

A connector leaves out what its system would answer otherwise than the query, which evaluates all conditions again. So a
translation must never exclude a row that satisfies the condition.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.base.errors import ConfigurationError


class Condition(NamedTuple):
    """What rows or documents of a system must match.

    Attributes:
        kind: `and`, `or`; `in`, `not in`, `range`, `exists` or `missing` for a field.
        parts: the conditions, for `and` and `or`.
        field: the name of the field or column.
        values: what the field may be, or its bound, for `range`.
        operator: `lt`, `lte`, `gt` or `gte`, for `range`.
        type: what values are: `integer`, `double`, `text`, `boolean`, or `time` in ns since 1970.
    """

    kind: str
    parts: tuple[Condition, ...] = ()
    field: str = ""
    values: tuple[Any, ...] = ()
    operator: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True)
class Partitions:
    """Cuts a table by equal steps of a column. The first part has all lower values and NULL; the last, all higher ones.

    Attributes:
        column: an integer column.
        lower: the lowest value.
        upper: the highest value; rows outside the bounds are read regardless.
        count: the number of parts.
    """

    column: str
    lower: int
    upper: int
    count: int

    def __post_init__(self) -> None:
        if self.count < 1 or self.lower > self.upper:
            raise ConfigurationError(
                f"a table is cut into at least 1 part between bounds of which the lower is not above the upper one, "
                f"not into {self.count} between {self.lower} and {self.upper}"
            )

    def conditions(self, name: str) -> list[str]:
        """Return the SQL condition of each part, given the column's name as the system's SQL has it."""
        width = self.upper - self.lower + 1
        bounds = sorted({self.lower + width * part // self.count for part in range(1, self.count)} - {self.lower})
        if not bounds:
            return [""]
        middle = [f"{name} >= {low} AND {name} < {high}" for low, high in itertools.pairwise(bounds)]
        return [f"({name} < {bounds[0]} OR {name} IS NULL)", *middle, f"{name} >= {bounds[-1]}"]
