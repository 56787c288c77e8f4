"""Reads CSV files.

A block becomes columns in one of three ways. Each is used only if it gives the same result as the next. The first
splits the text at every delimiter (no quotes, each line has the right width). The second runs Python's `csv` over the
whole block (each line is one record). The third runs `csv` line by line; it is the reference, and reports malformed
lines with the reason.

**Line feeds in quotes.** By default a record is a line: a file can be read from the middle, and a quote that is not
closed on its line is malformed. With `multiline=True`, quoted fields may contain line feeds. The middle of a file does
not show whether a line feed is within quotes, so one reader reads such a file from its start.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any, Literal

from penstock.base.errors import ConfigurationError, FormatError
from penstock.base.output_tag import OutputTag
from penstock.base.typeinfo import RowTypeInfo
from penstock.codecs.messages import BAD_RECORD, OnError, format_reason
from penstock.formats.columns import Assemble, Columns, ColumnType, Convert, assembler, column_types, converter
from penstock.formats.stream_format import (
    NO_RECORD,
    DecodedBlock,
    LineDecoder,
    Malformed,
    StreamFormat,
    check_charset,
    unify_line_ends,
)

_UNCLOSED = "a quoted field does not end on its line (multiline=True allows for that)"


class CsvFormat(StreamFormat[Any]):
    """Reads CSV: each record a `dict`, a `Row` with names if `columns` is a row type, or a tuple.

    >>> CsvFormat({"origin": str, "dep_delay": float}, null_values=["NA"])  # doctest: +ELLIPSIS
    <penstock.formats.csv.CsvFormat object at ...>

    Args:
        columns: the columns to read, in output order: names (all text), a dict from name to type, or
            `Types.ROW_NAMED`. A type is `str`, `int`, `float`, `bool`, `Decimal`, `date`, `time`, `datetime`, a
            `TypeInformation`, or any function from the text. None for all columns of the header, as text.
        header: the first line of each file names its columns, so that `columns` may omit some. Without it,
            `columns` must list all of them in the file's order.
        skip_first_row: skip the first line of each file, or the one after its header.
        as_tuple: make each record a tuple.
        delimiter: one character between fields.
        quote: the character around fields that contain a delimiter, doubled to represent itself; None for none.
        escape: a character that makes the next one literal; None for none.
        comments: skip lines that begin with `#`.
        null_values: texts that mean None in any column. So does the empty text in any column except one of `str`.
        multiline: see the module docstring; makes the file one split.
        array_separator: the separator between the elements of an array column.
        array_separators: the separators of individual columns, by name.
        extra_fields: drop fields after the last column instead of treating the record as malformed.
        charset: the encoding of the text; it must extend ASCII.
        on_error: see `StreamFormat`. A record is malformed if it has too few or too many fields, stray quotes, a text
            that is not of its column's type, or bytes that are invalid in the charset. Empty lines are not records.
        malformed_output: see `StreamFormat`.

    Raises:
        ConfigurationError: if the arguments do not fit together.
    """

    def __init__(
        self,
        columns: Columns | None = None,
        *,
        header: bool = True,
        skip_first_row: bool = False,
        as_tuple: bool = False,
        delimiter: str = ",",
        quote: str | None = '"',
        escape: str | None = None,
        comments: bool = False,
        null_values: Iterable[str] = (),
        multiline: bool = False,
        array_separator: str = ";",
        array_separators: Mapping[str, str] | None = None,
        extra_fields: bool = False,
        charset: str = "utf-8",
        on_error: OnError = "fail",
        malformed_output: OutputTag | None = None,
    ) -> None:
        super().__init__(on_error, malformed_output)
        if columns is None and not header:
            raise ConfigurationError("a CSV file without a header needs columns")
        if comments and multiline:
            raise ConfigurationError("comments and multiline cannot be combined: a # may be inside quotes")
        if any(len(c) != 1 for c in (delimiter, quote, escape) if c is not None):
            raise ConfigurationError("the delimiter, the quote and the escape of CSV are one character each")
        self.columns = None if columns is None else column_types(columns)
        self.output = "tuple" if as_tuple else "row" if isinstance(columns, RowTypeInfo) else "dict"
        self.has_header = header
        self.header_lines = header + skip_first_row
        self.splittable = not multiline
        self.multiline = multiline
        self.delimiter = delimiter
        self.quote = quote
        self.escape = escape
        self.comments = comments
        self.null_values = frozenset([null_values] if isinstance(null_values, str) else null_values)
        self.array_separator = array_separator
        self.array_separators = dict(array_separators or {})
        self.extra_fields = extra_fields
        self.charset = check_charset(charset)

    def create_decoder(self, header: bytes) -> LineDecoder[Any]:
        decoder = _MultilineCsvDecoder if self.multiline else _CsvDecoder
        if not self.has_header:
            assert self.columns is not None
            return decoder(self, list(self.columns), self.columns)
        names = next(self.reader([unify_line_ends(header).decode(self.charset).split("\n")[0]]), [])
        columns: dict[str, ColumnType] = dict.fromkeys(names, str) if self.columns is None else self.columns
        if missing := [name for name in columns if name not in names]:
            raise FormatError(f"the header has no column {', '.join(map(repr, missing))}")
        if twice := [name for name in columns if names.count(name) > 1]:
            raise FormatError(f"the header has column {', '.join(map(repr, twice))} more than once")
        return decoder(self, names, columns)

    def reader(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Return Python's CSV reader with the settings of this format."""
        csv.field_size_limit(sys.maxsize)  # the reader of the file limits the record size
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE
        quote = self.quote or '"'
        return csv.reader(
            lines, delimiter=self.delimiter, quotechar=quote, quoting=quoting, escapechar=self.escape, strict=True
        )


class _CsvDecoder(LineDecoder[Any]):
    def __init__(self, csv_format: CsvFormat, names: Sequence[str], columns: dict[str, ColumnType]) -> None:
        self._format = csv_format
        self._width = len(names)
        self._commas = {self._width - 1}
        self._picked = [names.index(name) for name in columns]
        self._names = list(columns)
        default, own = csv_format.array_separator, csv_format.array_separators
        self._converters: list[Convert] = [
            converter(name, kind, csv_format.null_values, own.get(name, default)) for name, kind in columns.items()
        ]
        self._assemble: Assemble = assembler(self._names, csv_format.output)
        self._special = ["\r", *filter(None, (csv_format.quote, csv_format.escape))]
        self._count = methodcaller("count", csv_format.delimiter)

    def decode_lines(self, block: bytes) -> list[Any]:
        lines = self._texts(block)
        delimiter = self._format.delimiter
        text = delimiter.join(lines)
        plain = not any(character in text for character in self._special)
        if plain and set(map(self._count, lines)) == self._commas and "" not in lines:
            flat = text.split(delimiter)
            return self._records([flat[i :: self._width] for i in self._picked])
        rows = list(self._format.reader(lines))
        if len(rows) != len(lines):
            raise FormatError(_UNCLOSED)
        return self._from_rows([row for row in rows if row])

    def decode_line(self, line: bytes) -> Any:
        texts = self._texts(line)
        rows = [row for row in self._format.reader(texts) if row] if texts else []
        return self._from_rows(rows)[0] if rows else NO_RECORD

    def _decode_each(self, block: bytes) -> DecodedBlock:
        decoded = super()._decode_each(block)
        return decoded._replace(malformed=[_explain(record) for record in decoded.malformed])

    def _texts(self, block: bytes) -> list[str]:
        lines = unify_line_ends(block).decode(self._format.charset).split("\n")
        if not lines[-1]:
            lines.pop()
        return [line for line in lines if not line.startswith("#")] if self._format.comments else lines

    def _from_rows(self, rows: list[list[str]]) -> list[Any]:
        if self._format.extra_fields:
            rows = [row[: self._width] for row in rows]
        if any(len(row) == self._width + 1 for row in rows):
            # A line may end with a delimiter, as in Flink.
            rows = [row[:-1] if len(row) == self._width + 1 and not row[-1].strip() else row for row in rows]
        widths = set(map(len, rows))
        if widths - {self._width}:
            raise FormatError(f"{max(widths - {self._width})} fields, expected {self._width}")
        if not rows:
            return []
        columns = list(zip(*rows, strict=True))
        return self._records([columns[i] for i in self._picked])

    def _records(self, texts: list[Sequence[str]]) -> list[Any]:
        columns = []
        for name, convert, column in zip(self._names, self._converters, texts, strict=True):
            try:
                columns.append(convert(column))
            except BAD_RECORD as error:
                raise FormatError(f"column {name!r}: {format_reason(error)}") from error
        return self._assemble(columns)


class _MultilineCsvDecoder(_CsvDecoder):
    """Consumes a block up to the end of its last whole record, because records may span lines."""

    def decode(self, block: bytes, last: bool) -> DecodedBlock:
        quote = self._format.quote
        if quote is None or quote.encode(self._format.charset) not in block:
            return super().decode(block, last)
        lines = [line + b"\n" for line in block.split(b"\n")]
        lines[-1] = lines[-1][:-1]
        if not lines[-1]:
            lines.pop()
        rows, starts, malformed, done = self._split_records(lines, last)
        try:
            values = self._from_rows(rows)
        except BAD_RECORD:
            values = []
            for row, start in zip(rows, starts, strict=True):
                try:
                    values += self._from_rows([row])
                except BAD_RECORD as error:
                    malformed.append(Malformed(start, format_reason(error), self._format.delimiter.join(row)))
            malformed.sort()
        return DecodedBlock(values, malformed, sum(map(len, lines[:done])))

    def _split_records(self, lines: list[bytes], last: bool) -> tuple[list[list[str]], list[int], list[Malformed], int]:
        """Return the rows, the first line of each, the malformed records, and the number of lines consumed."""
        rows: list[list[str]] = []
        starts: list[int] = []
        malformed: list[Malformed] = []
        done = 0
        while done < len(lines):
            source = _Lines(lines, done, self._format.charset)
            try:
                for row in self._format.reader(source):
                    if row:
                        rows.append(row)
                        starts.append(done)
                    done = source.position
            except BAD_RECORD as error:
                if source.ran_out and not last:
                    break
                text = b"".join(lines[done : source.position]).decode("utf-8", "replace")
                malformed.append(Malformed(done, format_reason(error), text.rstrip("\r\n")))
                done = source.position
        return rows, starts, malformed, done


class _Lines:
    """An iterator over decoded lines that tracks its position, and whether it was asked for more lines than exist."""

    def __init__(self, lines: Sequence[bytes], start: int, charset: str) -> None:
        self._lines = lines
        self._charset = charset
        self.position = start
        self.ran_out = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.position >= len(self._lines):
            self.ran_out = True
            raise StopIteration
        self.position += 1
        return self._lines[self.position - 1].decode(self._charset)


def _explain(record: Malformed) -> Malformed:
    """Replace Python's `unexpected end of data` by the precise reason."""
    return record._replace(reason=_UNCLOSED) if record.reason == "unexpected end of data" else record
