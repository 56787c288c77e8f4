"""Writes CSV files."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from penstock.base.errors import ConfigurationError, FormatError, shorten
from penstock.base.types import Row
from penstock.formats.bulk_format import BatchWriter, BatchWriterFactory, get_field_values
from penstock.formats.columns import Columns, column_types
from penstock.formats.stream_format import check_charset


class CsvWriterFactory(BatchWriterFactory[Any]):
    """Writes records as lines of CSV, for `FileSink.for_bulk_format`.

    Args:
        columns: names, a dict from name to type, or a row type; records are dicts, rows or tuples of these fields.
        header: begin each file with the names.
        delimiter: one character between fields.
        quote: the character around fields that need it; None for none.
        escape: a character that makes the next one literal; None for none.
        null_value: the text for None.
        array_separator: the separator between the elements of a list.
        array_separators: the separators of individual columns, by name.
        line_end: the end of a line.
        charset: the encoding of the text.

    Raises:
        ConfigurationError: if the charset is unknown, or columns are missing or duplicated.
    """

    def __init__(
        self,
        columns: Columns,
        *,
        header: bool = False,
        delimiter: str = ",",
        quote: str | None = '"',
        escape: str | None = None,
        null_value: str = "",
        array_separator: str = ";",
        array_separators: Mapping[str, str] | None = None,
        line_end: str = "\n",
        charset: str = "utf-8",
    ) -> None:
        self.names = list(column_types(columns))
        if not self.names:
            raise ConfigurationError("a CSV file needs columns")
        self.header = header
        self.delimiter = delimiter
        self.quote = quote
        self.escape = escape
        self.null_value = null_value
        self.array_separator = array_separator
        self.array_separators = dict(array_separators or {})
        self.line_end = line_end
        self.charset = check_charset(charset)

    def create(self, stream: BinaryIO) -> BatchWriter[Any]:
        """Create a writer for a new, empty file."""
        return _CsvWriter(self, stream)


class _CsvWriter(BatchWriter[Any]):
    def __init__(self, factory: CsvWriterFactory, stream: BinaryIO) -> None:
        self._factory = factory
        self._stream = stream
        self._text = io.StringIO(newline="")
        self._writer = csv.writer(
            self._text,
            delimiter=factory.delimiter,
            quotechar=factory.quote,
            quoting=csv.QUOTE_MINIMAL if factory.quote else csv.QUOTE_NONE,
            escapechar=factory.escape,
            lineterminator=factory.line_end,
        )
        self._own_separators = [factory.array_separators.get(name) for name in factory.names]
        self._has_own_separators = any(self._own_separators)
        if factory.header:
            self._writer.writerow(factory.names)
            self.flush()

    def add_elements(self, elements: Sequence[Any]) -> None:
        width, render, write = len(self._factory.names), self._render, self._writer.writerow
        for element in elements:
            try:
                if type(element) is not tuple or len(element) != width:
                    element = get_field_values(element, self._factory.names)
                if self._has_own_separators:
                    element = map(self._join_own, element, self._own_separators)
                write([value if type(value) is str or type(value) is int else render(value) for value in element])
            except (TypeError, ValueError, csv.Error) as error:
                raise FormatError(f"cannot write {shorten(repr(element))} as CSV: {error}") from error
        self.flush()

    def flush(self) -> None:
        if text := self._text.getvalue():
            self._stream.write(text.encode(self._factory.charset))
            self._text.seek(0)
            self._text.truncate()

    def finish(self) -> None:
        self.flush()

    def _join_own(self, value: Any, separator: str | None) -> Any:
        """Return the text of an array whose column has its own separator, and any other value unchanged."""
        return self._join(separator, value) if separator and isinstance(value, list | tuple | Row) else value

    def _join(self, separator: str, array: Any) -> str:
        return separator.join(str(self._render(item)) for item in array)

    def _render(self, value: Any) -> Any:
        """Convert a value for `csv`: None and booleans as Flink spells them, arrays joined."""
        if value is None:
            return self._factory.null_value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list | tuple | Row):
            return self._join(self._factory.array_separator, value)
        return value
