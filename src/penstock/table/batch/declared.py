"""Tables of Spark with the columns that a program declares: what stands for each of them in Spark's SQL."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from penstock.table.batch.literals import text_literal
from penstock.table.batch.stored import MICROSECOND_DIGITS, is_of_spark, spark_type
from penstock.table.data.logical_types import DataType, DecimalType, LocalZonedTimestampType, TimestampType

#: a name whose parts Spark takes as they are
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(\.[A-Za-z_][A-Za-z_0-9]*)*")


def table_text(name: str) -> str:
    """What stands in FROM for a table of Spark; Spark has more to do for a name that it has to read itself."""
    return f"`{name.replace('.', '`.`')}`" if _PLAIN.fullmatch(name) else f"IDENTIFIER({text_literal(name)})"


class DeclaredColumn(NamedTuple):
    """A column: its name in Spark, quoted, the type that is declared, and its type in Spark.

    A column that Penstock has made is as the plan wants it, and has None for its type in Spark. One that nobody reads
    may have None for its name.
    """

    name: str | None
    declared: DataType
    found: str | None = None

    def text(self, table: str = "") -> str | None:
        """The column in the declared type; None where values would be others. `table`: how it begins."""
        if self.name is None:
            return f"CAST(NULL AS {spark_type(self.declared)})"
        name = table + self.name
        return name if self.found is None else _cast(name, self.found, self.declared)


class DeclaredTable(NamedTuple):
    """A table: what stands in FROM, and its columns, all of which have a text."""

    source: str
    columns: tuple[DeclaredColumn, ...]

    def texts(self, table: str = "") -> list[str]:
        """The text of each column."""
        return [text for text in (one.text(table) for one in self.columns) if text is not None]


def _cast(text: str, found: str, declared: DataType) -> str | None:
    """A column of Spark as one of the type that is declared; None where values would be others."""
    wanted = spark_type(declared)
    if isinstance(declared, TimestampType | LocalZonedTimestampType):
        is_same = found == wanted and declared.precision == MICROSECOND_DIGITS
        return text if is_same else _cut(text, found, declared)
    if not is_of_spark(declared):
        return None
    if found == wanted or (found.startswith(("CHAR(", "VARCHAR(")) and wanted == "STRING"):
        return text
    if found in _WHOLE and wanted in _WHOLE and _WHOLE.index(found) <= _WHOLE.index(wanted):
        return f"CAST({text} AS {wanted})"
    if (found, wanted) == ("FLOAT", "DOUBLE"):
        return f"CAST({text} AS DOUBLE)"
    if found.startswith("DECIMAL(") and isinstance(declared, DecimalType):
        precision, scale = map(int, found[8:-1].split(","))
        if precision - scale <= declared.precision - declared.scale and scale <= declared.scale:
            return f"CAST({text} AS {wanted})"
    return None


_WHOLE: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def _cut(text: str, found: str, declared: TimestampType | LocalZonedTimestampType) -> str | None:
    """A point in time with fewer digits than Spark's: the others are cut off."""
    kind = "TIMESTAMP_NTZ" if isinstance(declared, TimestampType) else "TIMESTAMP"
    if found != kind or declared.precision > MICROSECOND_DIGITS:
        return None
    step = 10 ** (MICROSECOND_DIGITS - declared.precision)
    rest = f"CAST(extract(SECOND FROM {text}) * 1000000 AS BIGINT) % {step}"
    return f"({text} - make_dt_interval(0, 0, 0, CAST(({rest}) / 1000000 AS DECIMAL(18,6))))"
