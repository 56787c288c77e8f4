"""Which files of a Delta table a query need not read, by what the log says of their columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from penstock.codecs.arrow_types import NANOSECONDS
from penstock.codecs.exact_cast import exact_cast
from penstock.connectors.delta import log
from penstock.table.connectors.formats.parquet_statistics import Figures, StatisticsFilter, groups_of

#: The log may keep milliseconds alone of points in time. How much a bound may be off, in the column's unit.
_CUT: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}
#: Writers such as delta-rs put decimals into the log as doubles. Up to this many digits, a double is exact.
_EXACT_DIGITS: Final = 15


@dataclass(frozen=True, slots=True)
class FilterPruning:
    """Passes over files that have no row for which all filters are true (`FilePruning`)."""

    filters: tuple[StatisticsFilter, ...]

    def may_have(self, figures: Mapping[str, log.Figures], partition: Mapping[str, pa.Scalar]) -> bool:
        """See `FilePruning`."""
        return all(self._may_be_true(one, figures, partition) for one in self.filters)

    def _may_be_true(
        self, asked: StatisticsFilter, figures: Mapping[str, log.Figures], partition: Mapping[str, pa.Scalar]
    ) -> bool:
        found = {}
        for _, name, kind in asked.columns:
            if name in partition:
                found[name] = _of_partition(partition[name], kind)
            elif name in figures:
                found[name] = _of_file(figures[name], kind)
        return asked.may_be_true(found)

    def groups_of(self, file: Any) -> frozenset[int]:
        """See `FilePruning`."""
        return groups_of(file, self.filters)


def _of_partition(value: pa.Scalar, kind: pa.DataType) -> Figures:
    if not value.is_valid:
        return Figures(1, nulls=1)
    held = _held(value, kind)
    return Figures(1, held, held, 0)


def _of_file(told: log.Figures, kind: pa.DataType) -> Figures:
    if told.least is None or told.greatest is None:
        return Figures(told.rows, nulls=told.nulls)
    least, greatest = _held(told.least, kind), _held(told.greatest, kind)
    if least is None or greatest is None:
        return Figures(told.rows, nulls=told.nulls)
    if pa.types.is_timestamp(kind):
        cut = _CUT.get(kind.unit, 1)
        least, greatest = least - cut, greatest + cut
    elif pa.types.is_decimal(kind) and kind.precision > _EXACT_DIGITS:
        least, greatest = least - _rounding(least), greatest + _rounding(greatest)
    return Figures(told.rows, least, greatest, told.nulls)


def _rounding(bound: Decimal) -> Decimal:
    """How far the value may be from a bound that was a double once."""
    return abs(bound).scaleb(-_EXACT_DIGITS)


def _held(value: pa.Scalar, kind: pa.DataType) -> Any:
    """A value as `StatisticsFilter` compares it; None for one of another type, of which nothing is known."""
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(value.type):
        # Whole numbers of Python: Arrow's nanoseconds cannot hold every point in time and would wrap around.
        return value.value * NANOSECONDS[value.type.unit] // NANOSECONDS[kind.unit]
    try:
        found = exact_cast(pa.repeat(value, 1), kind)[0]
    except pa.ArrowException:
        return None
    return found.value if pa.types.is_temporal(kind) else found.as_py()
