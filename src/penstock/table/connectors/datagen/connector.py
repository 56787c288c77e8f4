"""`datagen`: a table of generated rows, random or sequential, with the options of Flink's connector of this name.

A table has the same rows in every run, except for dates and times, which follow the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.base.config_options import ConfigOptions
from penstock.base.errors import UnsupportedError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.table.connectors.abilities import LimitPushDown, ProjectionPushDown, TableScan, WatermarkPushDown
from penstock.table.connectors.connector import TableConnector
from penstock.table.connectors.datagen.fields import FIELD_OPTIONS, KIND, FieldOptions
from penstock.table.connectors.datagen.generators import Columns, sequence_rows
from penstock.table.connectors.datagen.source import GeneratedColumnsSource
from penstock.table.connectors.table_options import TableOptions
from penstock.table.connectors.tables import NO_WATERMARKS, TableReader
from penstock.table.data.logical_types import DataType
from penstock.table.plan.logical import Scan

ROWS_PER_SECOND: Final = (
    ConfigOptions.key("rows-per-second")
    .int_type()
    .default_value(10_000)
    .with_description("The number of rows per second.")
)
NUMBER_OF_ROWS: Final = (
    ConfigOptions.key("number-of-rows")
    .int_type()
    .no_default_value()
    .with_description("The number of rows. If unset, and without a sequence, the table is unbounded.")
)
_FIELDS: Final = "fields."


@dataclass(frozen=True, slots=True)
class DatagenScan(TableScan, ProjectionPushDown, LimitPushDown, WatermarkPushDown):
    """Generates only the columns that are read. `count`: the number of rows."""

    fields: tuple[tuple[str, DataType], ...]
    options: tuple[tuple[str, str], ...]
    title: str
    count: int | None
    rows_per_second: int
    strategy: WatermarkStrategy = NO_WATERMARKS

    def reader(self) -> TableReader:
        """See `TableScan`."""
        columns = Columns(self._field_options(), [kind for _, kind in self.fields])
        source = GeneratedColumnsSource(columns, self.count, self.rows_per_second)
        return TableReader(source, strategy=self.strategy)

    def with_watermarks(self, strategy: WatermarkStrategy) -> DatagenScan:
        """See `WatermarkPushDown`."""
        return replace(self, strategy=strategy)

    def with_columns(self, columns: Sequence[int]) -> DatagenScan:
        """See `ProjectionPushDown`."""
        return replace(self, fields=tuple(self.fields[index] for index in columns))

    def with_limit(self, limit: int) -> DatagenScan:
        """See `LimitPushDown`."""
        return replace(self, count=limit if self.count is None else min(self.count, limit))

    def _field_options(self) -> list[FieldOptions]:
        options = TableOptions(self.title, dict(self.options)).below(_FIELDS)
        return [FieldOptions(name, options.below(f"{name}.")) for name, _ in self.fields]


class DatagenConnector(TableConnector):
    """See the module docstring."""

    name = "datagen"
    optional_options = (ROWS_PER_SECOND, NUMBER_OF_ROWS)

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options of fields. For a nested field, its name comes between the column name and the option."""
        known = {option.key() for option in FIELD_OPTIONS}
        of_fields = [key for key in options if key.startswith(_FIELDS)]
        starts = tuple(f"{_FIELDS}{name}." for name in columns)
        patterns = [f"{_FIELDS}#.{key}" for key in sorted(known)]
        return [*patterns, *(key for key in of_fields if key.startswith(starts) and key.rpartition(".")[2] in known)]

    def scan(self, scan: Scan, options: TableOptions) -> TableScan:
        """Return the scan. Raises `ValidationError` for options that a field does not have."""
        count, rate = options.read(NUMBER_OF_ROWS), options.read(ROWS_PER_SECOND)
        if rate < 1:
            raise options.wrong(ROWS_PER_SECOND.key(), f"it must be above 0, not {rate}")
        if count is not None and count < 0:
            raise options.wrong(NUMBER_OF_ROWS.key(), f"it must not be negative, not {count}")
        fields = tuple((column.name, column.type) for column in scan.schema)
        unlimited = DatagenScan(fields, tuple(options.items()), options.title, None, rate)
        counts = [count]
        for field in unlimited._field_options():
            if field.options.read(KIND) == "sequence":
                counts.append(sequence_rows(field))
        limits = [limit for limit in counts if limit is not None]
        table_scan = replace(unlimited, count=min(limits) if limits else None)
        if not fields:
            raise UnsupportedError(f"table {options.title} has no stored column: datagen needs one")
        table_scan.reader()
        return table_scan
