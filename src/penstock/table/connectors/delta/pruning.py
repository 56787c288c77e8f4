"""Selects the files of a Delta table that a query may skip, by the column statistics in the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from penstock.codecs.arrow_types import NANOSECONDS
from penstock.codecs.exact_cast import exact_cast
from penstock.connectors.delta import log
from penstock.table.connectors.formats.parquet_statistics import Figures, StatisticsFilter, select_row_groups

#: The log may truncate timestamps to milliseconds. The largest possible error of a bound, in the column's unit.
_CUT: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}
#: Writers such as delta-rs log decimals as doubles, which are exact up to this many digits.
_EXACT_DIGITS: Final = 15


@dataclass(frozen=True, slots=True)
class FilterPruning:
    """Skips files without a row that satisfies all filters (`FilePruning`)."""

    filters: tuple[StatisticsFilter, ...]

    def may_have(self, figures: Mapping[str, log.Figures], partition: Mapping[str, pa.Scalar]) -> bool:
        """See `FilePruning`."""
        return all(self._may_be_true(predicate, figures, partition) for predicate in self.filters)

    def _may_be_true(
        self, predicate: StatisticsFilter, figures: Mapping[str, log.Figures], partition: Mapping[str, pa.Scalar]
    ) -> bool:
        statistics = {}
        for _, name, kind in predicate.columns:
            if name in partition:
                statistics[name] = _of_partition(partition[name], kind)
            elif name in figures:
                statistics[name] = _of_file(figures[name], kind)
        return predicate.may_be_true(statistics)

    def select_row_groups(self, file: Any) -> frozenset[int]:
        """See `FilePruning`."""
        return select_row_groups(file, self.filters)


def _of_partition(value: pa.Scalar, kind: pa.DataType) -> Figures:
    if not value.is_valid:
        return Figures(1, nulls=1)
    bound = _held(value, kind)
    return Figures(1, bound, bound, 0)


def _of_file(figures: log.Figures, kind: pa.DataType) -> Figures:
    if figures.least is None or figures.greatest is None:
        return Figures(figures.rows, nulls=figures.nulls)
    least, greatest = _held(figures.least, kind), _held(figures.greatest, kind)
    if least is None or greatest is None:
        return Figures(figures.rows, nulls=figures.nulls)
    if pa.types.is_timestamp(kind):
        cut = _CUT.get(kind.unit, 1)
        least, greatest = least - cut, greatest + cut
    elif pa.types.is_decimal(kind) and kind.precision > _EXACT_DIGITS:
        least, greatest = least - _rounding(least), greatest + _rounding(greatest)
    return Figures(figures.rows, least, greatest, figures.nulls)


def _rounding(bound: Decimal) -> Decimal:
    """Return the largest possible error of a bound that was once a double."""
    return abs(bound).scaleb(-_EXACT_DIGITS)


def _held(value: pa.Scalar, kind: pa.DataType) -> Any:
    """Return a value as `StatisticsFilter` compares it; None if it cannot be converted to the type."""
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(value.type):
        # Use Python integers: Arrow's nanoseconds cannot hold every timestamp and would wrap around.
        return value.value * NANOSECONDS[value.type.unit] // NANOSECONDS[kind.unit]
    try:
        scalar = exact_cast(pa.repeat(value, 1), kind)[0]
    except pa.ArrowException:
        return None
    return scalar.value if pa.types.is_temporal(kind) else scalar.as_py()
