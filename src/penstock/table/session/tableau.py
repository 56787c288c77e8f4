"""Human-readable results: a bordered table, as in Flink's tableau style, or the bare content."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.table.data import logical_types as types
from penstock.table.data.logical_types import DataType
from penstock.table.plan.executor import ChangelogRow
from penstock.table.plan.row_schema import RowSchema
from penstock.table.session.value_text import format_value

NULL_TEXT: Final = "<NULL>"
ROW_KIND: Final = "op"
_CUT: Final = "..."
#: receives a line including its line end
Write = Callable[[str], object]


class PrintStyle(Protocol):
    """A style for printing rows."""

    def print(self, rows: Iterable[ChangelogRow], write: Write) -> None:
        """Print all rows."""


@dataclass(frozen=True, slots=True)
class RawContent:
    """Prints comma-separated values without borders."""

    schema: RowSchema

    def print(self, rows: Iterable[ChangelogRow], write: Write) -> None:
        """See `PrintStyle`."""
        for _, values in rows:
            texts = (
                format_value(value, kind, NULL_TEXT) for value, kind in zip(values, self.schema.types, strict=True)
            )
            write(", ".join(texts) + "\n")


@dataclass(frozen=True, slots=True)
class Tableau:
    """Prints a bordered table, followed by the number of rows.

    `fits_rows`: size columns to their contents, which reads all rows first; otherwise size them to their types.
    `width_max`: truncate longer values. `counts_received`: print the number of received rows, as a streaming client
    does.
    """

    schema: RowSchema
    fits_rows: bool = False
    shows_kinds: bool = False
    width_max: int = 30
    null: str = NULL_TEXT
    counts_received: bool = False

    def print(self, rows: Iterable[ChangelogRow], write: Write) -> None:
        """See `PrintStyle`."""
        lines: Iterator[list[str]] = map(self._texts, rows)
        names = [ROW_KIND] * self.shows_kinds + self.schema.names
        if self.fits_rows:
            buffered = list(lines)
            widths, lines = self._compute_widths(names, buffered), iter(buffered)
        else:
            widths = [len(ROW_KIND)] * self.shows_kinds + [self._width(*pair) for pair in self._columns()]
        first = next(lines, None)
        if first is None:
            write(self._nothing())
            return
        border = "+" + "".join("-" * (width + 2) + "+" for width in widths) + "\n"
        write(f"{border}{_line(names, widths)}{border}")
        write(_line(first, widths))
        count = 1
        for line in lines:
            write(_line(line, widths))
            count += 1
        write(border + self._sum(count))

    def _nothing(self) -> str:
        return "Received a total of 0 row\n" if self.counts_received else "Empty set\n"

    def _sum(self, count: int) -> str:
        counted = f"{count} {'row' if count == 1 else 'rows'}"
        return f"Received a total of {counted}\n" if self.counts_received else f"{counted} in set\n"

    def _texts(self, row: ChangelogRow) -> list[str]:
        kind, values = row
        texts = [format_value(value, kind, self.null) for value, kind in zip(values, self.schema.types, strict=True)]
        return [kind, *texts] if self.shows_kinds else texts

    def _columns(self) -> Iterable[tuple[str, DataType]]:
        return zip(self.schema.names, self.schema.types, strict=True)

    def _compute_widths(self, names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
        widths = [
            max([display_width(name), *(display_width(row[index]) for row in rows)]) for index, name in enumerate(names)
        ]
        return [max(min(width, self.width_max), len(name)) for width, name in zip(widths, names, strict=True)]

    def _width(self, name: str, data_type: DataType) -> int:
        width = type_width(data_type)
        return max(len(name), len(self.null), self.width_max if width is None else width)


def type_width(data_type: DataType) -> int | None:
    """Return the maximum width of a type's values, or None if it is unbounded."""
    match data_type:
        case types.TinyIntType():
            return 4
        case types.SmallIntType():
            return 6
        case types.IntType():
            return 11
        case types.BigIntType():
            return 20
        case types.DecimalType(precision=precision):
            return precision + 2
        case types.BooleanType():
            return 5
        case types.DateType():
            return 10
        case types.TimeType(precision=precision):
            return precision + 9 if precision else 8
        case types.TimestampType(precision=precision) | types.LocalZonedTimestampType(precision=precision):
            return precision + 20 if precision else 19
        case _:
            return None


def display_width(text: str) -> int:
    """Return how many terminal columns a text takes: wide characters take two."""
    return len(text) + sum(unicodedata.east_asian_width(char) in "FW" for char in text)


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    return "|" + "".join(f" {_fitted(text, width)} |" for text, width in zip(texts, widths, strict=True)) + "\n"


def _fitted(text: str, width: int) -> str:
    """Right-align a text to `width` columns, and truncate it if it is longer."""
    text_width = display_width(text)
    if text_width <= width:
        return " " * (width - text_width) + text
    prefix, used_width = "", len(_CUT)
    for char in text:
        used_width += display_width(char)
        if used_width > width:
            break
        prefix += char
    return " " * (width - display_width(prefix) - len(_CUT)) + prefix + _CUT
