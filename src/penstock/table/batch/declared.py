"""Spark tables with declared columns, and their texts in Spark SQL."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from penstock.table.batch.literals import text_literal
from penstock.table.batch.stored import MICROSECOND_DIGITS, is_of_spark, spark_type
from penstock.table.data.logical_types import DataType, DecimalType, LocalZonedTimestampType, TimestampType

#: a name that consists of plain identifiers
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(\.[A-Za-z_][A-Za-z_0-9]*)*")


def table_text(name: str) -> str:
    """Return the FROM text of a Spark table; quoted names are cheaper for Spark than names that it must parse."""
    return f"`{name.replace('.', '`.`')}`" if _PLAIN.fullmatch(name) else f"IDENTIFIER({text_literal(name)})"


class DeclaredColumn(NamedTuple):
    """A column: its quoted name in Spark, its declared type, and its type in Spark.

    A column made by Penstock already has the planned type, and None as its type in Spark. A column that is not read may
    have None as its name.
    """

    name: str | None
    declared: DataType
    found: str | None = None

    def text(self, table: str = "") -> str | None:
        """Return the column in the declared type; None if values would change. `table`: the prefix of the name."""
        if self.name is None:
            return f"CAST(NULL AS {spark_type(self.declared)})"
        name = table + self.name
        return name if self.found is None else _cast(name, self.found, self.declared)


class DeclaredTable(NamedTuple):
    """A table: its FROM text, and its columns, all of which have a text."""

    source: str
    columns: tuple[DeclaredColumn, ...]

    def texts(self, table: str = "") -> list[str]:
        """Return the text of each column."""
        return [text for text in (column.text(table) for column in self.columns) if text is not None]


def _cast(text: str, actual: str, declared: DataType) -> str | None:
    """Cast a Spark column to the declared type; return None if values would change."""
    expected = spark_type(declared)
    if isinstance(declared, TimestampType | LocalZonedTimestampType):
        is_same = actual == expected and declared.precision == MICROSECOND_DIGITS
        return text if is_same else _cut(text, actual, declared)
    if not is_of_spark(declared):
        return None
    if actual == expected or (actual.startswith(("CHAR(", "VARCHAR(")) and expected == "STRING"):
        return text
    if actual in _WHOLE and expected in _WHOLE and _WHOLE.index(actual) <= _WHOLE.index(expected):
        return f"CAST({text} AS {expected})"
    if (actual, expected) == ("FLOAT", "DOUBLE"):
        return f"CAST({text} AS DOUBLE)"
    if actual.startswith("DECIMAL(") and isinstance(declared, DecimalType):
        precision, scale = map(int, actual[8:-1].split(","))
        if precision - scale <= declared.precision - declared.scale and scale <= declared.scale:
            return f"CAST({text} AS {expected})"
    return None


_WHOLE: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def _cut(text: str, actual: str, declared: TimestampType | LocalZonedTimestampType) -> str | None:
    """Truncate a point in time to fewer digits than Spark's."""
    kind = "TIMESTAMP_NTZ" if isinstance(declared, TimestampType) else "TIMESTAMP"
    if actual != kind or declared.precision > MICROSECOND_DIGITS:
        return None
    step = 10 ** (MICROSECOND_DIGITS - declared.precision)
    rest = f"CAST(extract(SECOND FROM {text}) * 1000000 AS BIGINT) % {step}"
    return f"({text} - make_dt_interval(0, 0, 0, CAST(({rest}) / 1000000 AS DECIMAL(18,6))))"
