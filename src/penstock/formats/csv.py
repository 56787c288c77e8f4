"""CSV: readers of records and of columns, writers, and `CsvSchema`, PyFlink's description of CSV files.

**Blocks.** `CsvFormat` turns a block into columns in one of three ways. Each is used only if it gives the same result
as the next. The first splits the text at every delimiter (no quotes, each line has the right width). The second runs
Python's `csv` over the whole block (each line is one record). The third runs `csv` line by line; it is the reference,
and reports malformed lines with the reason.

**Line feeds in quotes.** By default a record is a line: a file can be read from the middle, and a quote that is not
closed on its line is malformed. With `multiline=True`, quoted fields may contain line feeds. The middle of a file does
not show whether a line feed is within quotes, so one reader reads such a file from its start.

**Columns.** `CsvColumnsFormat` reads CSV as columns, parsed by Arrow.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any, BinaryIO, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock.base.errors import ConfigurationError, FormatError, shorten
from penstock.base.output_tag import OutputTag
from penstock.base.typeinfo import ObjectArrayTypeInfo, RowTypeInfo, TypeInformation, Types
from penstock.base.types import Row
from penstock.codecs.arrow_columns import arrow_type, exact_cast_columns
from penstock.codecs.column_data import COLUMN_BATCH_ROWS, ColumnData
from penstock.codecs.serialization import BAD_RECORD, OnError, format_reason
from penstock.formats import file_format

_UNCLOSED = "a quoted field does not end on its line (multiline=True allows for that)"


class CsvFormat(file_format.StreamFormat[Any]):
    """Reads CSV: each record a `dict`, a `Row` with names if `columns` is a row type, or a tuple.

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
        multiline: let quoted fields contain line feeds, each of which otherwise ends a record; one reader then reads
            the whole file.
        array_separator: the separator between the elements of an array column.
        array_separators: the separators of individual columns, by name.
        extra_fields: drop fields after the last column instead of treating the record as malformed.
        charset: the encoding of the text; it must extend ASCII.
        on_error: see `StreamFormat`. A record is malformed if it has too few or too many fields, stray quotes, a text
            that is not of its column's type, or bytes that are invalid in the charset. Empty lines are not records.
        malformed_output: see `StreamFormat`.

    Raises:
        ConfigurationError: if the arguments do not fit together.

    Examples:
        >>> from pathlib import Path
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import FileSource
        >>> from penstock.datastream.formats.csv import CsvFormat
        >>> _ = Path("orders").write_text("tea,2")
        >>> orders = CsvFormat({"drink": str, "cups": int}, header=False)
        >>> source = FileSource.for_record_stream_format(orders, "orders").build()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").collect()
        [{'drink': 'tea', 'cups': 2}]
    """

    def __init__(
        self,
        columns: file_format.Columns | None = None,
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
        self.columns = None if columns is None else file_format.column_types(columns)
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
        self.charset = file_format.check_charset(charset)

    def create_decoder(self, header: bytes) -> file_format.LineDecoder[Any]:
        decoder = _MultilineCsvDecoder if self.multiline else _CsvDecoder
        if not self.has_header:
            assert self.columns is not None
            return decoder(self, list(self.columns), self.columns)
        names = next(self.reader([file_format.unify_line_ends(header).decode(self.charset).split("\n")[0]]), [])
        columns: dict[str, file_format.ColumnType] = dict.fromkeys(names, str) if self.columns is None else self.columns
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


class _CsvDecoder(file_format.LineDecoder[Any]):
    def __init__(self, csv_format: CsvFormat, names: Sequence[str], columns: dict[str, file_format.ColumnType]) -> None:
        self._format = csv_format
        self._width = len(names)
        self._commas = {self._width - 1}
        self._picked = [names.index(name) for name in columns]
        self._names = list(columns)
        default, own = csv_format.array_separator, csv_format.array_separators
        self._converters: list[file_format.Convert] = [
            file_format.converter(name, kind, csv_format.null_values, own.get(name, default))
            for name, kind in columns.items()
        ]
        self._assemble: file_format.Assemble = file_format.assembler(self._names, csv_format.output)
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
        return self._from_rows(rows)[0] if rows else file_format.NO_RECORD

    def _decode_each(self, block: bytes) -> file_format.DecodedBlock:
        decoded = super()._decode_each(block)
        return decoded._replace(malformed=[_explain(record) for record in decoded.malformed])

    def _texts(self, block: bytes) -> list[str]:
        lines = file_format.unify_line_ends(block).decode(self._format.charset).split("\n")
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

    def decode(self, block: bytes, last: bool) -> file_format.DecodedBlock:
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
                    malformed.append(
                        file_format.Malformed(start, format_reason(error), self._format.delimiter.join(row))
                    )
            malformed.sort()
        return file_format.DecodedBlock(values, malformed, sum(map(len, lines[:done])))

    def _split_records(
        self, lines: list[bytes], last: bool
    ) -> tuple[list[list[str]], list[int], list[file_format.Malformed], int]:
        """Return the rows, the first line of each, the malformed records, and the number of lines consumed."""
        rows: list[list[str]] = []
        starts: list[int] = []
        malformed: list[file_format.Malformed] = []
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
                malformed.append(file_format.Malformed(done, format_reason(error), text.rstrip("\r\n")))
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


def _explain(record: file_format.Malformed) -> file_format.Malformed:
    """Replace Python's `unexpected end of data` by the precise reason."""
    return record._replace(reason=_UNCLOSED) if record.reason == "unexpected end of data" else record


#: texts that Arrow reads as NULL in columns other than text
_NULLS: Final = pa.array(pyarrow.csv.ConvertOptions().null_values)


class CsvColumnsFormat(file_format.BulkFormat[Any]):
    """Reads CSV as columns with Arrow's parser; operators that work record by record get rows with names.

    A file is read by one subtask, from its beginning: a position is a number of records, which are parsed again and
    skipped. A value that does not fit its column fails the job; `CsvFormat` can continue and send such lines to a side
    output.

    Args:
        columns: the columns with their types (Python's, `Types` or Arrow's), in the order of the file.
        delimiter: the character between fields.
        has_header: whether the first line contains the column names, which then identify the columns.
    """

    def __init__(self, columns: Mapping[str, Any], *, delimiter: str = ",", has_header: bool = False) -> None:
        self.schema = pa.schema([(name, arrow_type(column_type)) for name, column_type in columns.items()])
        self.delimiter = delimiter
        self.has_header = has_header

    def open(self, file: BinaryIO) -> file_format.BulkFile[Any]:
        return _CsvFile(file, self)


class _CsvFile(file_format.BulkFile[Any]):
    """An open file; the whole file is one unit."""

    def __init__(self, file: BinaryIO, csv_format: CsvColumnsFormat) -> None:
        self._file = file
        self._format = csv_format

    def units(self, start: int, end: int | None) -> Sequence[int]:
        return (0,) if start == 0 else ()

    def read(self, unit: int, skip_records: int) -> Iterator[list[Any] | ColumnData]:
        schema = self._format.schema
        try:
            reader = pyarrow.csv.open_csv(
                self._file,
                pyarrow.csv.ReadOptions(
                    use_threads=False, column_names=None if self._format.has_header else schema.names
                ),
                pyarrow.csv.ParseOptions(delimiter=self._format.delimiter),
                pyarrow.csv.ConvertOptions(
                    column_types={field.name: _read_type(field.type) for field in schema}, include_columns=schema.names
                ),
            )
            for batch in reader:
                if skip_records >= batch.num_rows:
                    skip_records -= batch.num_rows
                    continue
                for begin in range(skip_records, batch.num_rows, COLUMN_BATCH_ROWS):
                    yield ColumnData(_typed(batch.slice(begin, COLUMN_BATCH_ROWS), schema))
                skip_records = 0
        except (pa.ArrowException, KeyError) as error:
            raise FormatError(f"cannot be read as CSV with the columns {', '.join(schema.names)}: {error}") from error


def _typed(columns: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert columns that `_read_type` made text back to decimals."""
    for index, field in enumerate(schema):
        if pa.types.is_decimal(field.type):
            texts = columns.column(field.name)
            texts = pc.if_else(pc.is_in(texts, value_set=_NULLS), pa.scalar(None, pa.string()), texts)
            columns = columns.set_column(index, field.name, texts)
    return exact_cast_columns(columns, schema)


def _read_type(kind: pa.DataType) -> pa.DataType:
    """Return the type to read a column as: text for decimals, because Arrow parses decimals without checks."""
    return pa.string() if pa.types.is_decimal(kind) else kind


class CsvWriterFactory(file_format.BatchWriterFactory[Any]):
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

    Examples:
        >>> from pathlib import Path
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import BucketAssigner, FileSink
        >>> from penstock.datastream.formats.csv import CsvWriterFactory
        >>> files = FileSink.for_bulk_format("orders", CsvWriterFactory(["drink", "cups"]))
        >>> files = files.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> _ = env.from_elements(("tea", 2)).sink_to(files.build())
        >>> result = env.execute()
        >>> (path,) = Path("orders").glob("part-*")
        >>> path.read_text().splitlines()
        ['tea,2']
    """

    def __init__(
        self,
        columns: file_format.Columns,
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
        self.names = list(file_format.column_types(columns))
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
        self.charset = file_format.check_charset(charset)

    def create(self, stream: BinaryIO) -> file_format.BatchWriter[Any]:
        """Create a writer for a new, empty file."""
        return _CsvWriter(self, stream)


class _CsvWriter(file_format.BatchWriter[Any]):
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
                    element = file_format.get_field_values(element, self._factory.names)
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


class CsvSchema:
    """Columns and special characters of CSV; immutable. Create one with `CsvSchema.builder()`.

    Examples:
        >>> from penstock.datastream.formats.csv import CsvSchema
        >>> schema = CsvSchema.builder().add_string_column("drink").add_number_column("cups").build()
        >>> list(schema.columns)
        ['drink', 'cups']
    """

    def __init__(self, columns: dict[str, TypeInformation], settings: dict[str, Any]) -> None:
        self.columns = dict(columns)
        self.settings = dict(settings)

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """Return a new builder."""
        return CsvSchemaBuilder()

    @property
    def row_type(self) -> RowTypeInfo:
        """The type of the rows."""
        return Types.ROW_NAMED(list(self.columns), list(self.columns.values()))

    def size(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


class CsvSchemaBuilder:
    """Collects columns and special characters; every method except `build` and `size` returns the builder.

    Examples:
        >>> from penstock.datastream.formats.csv import CsvSchema
        >>> builder = CsvSchema.builder().add_string_column("drink").set_column_separator(";")
        >>> schema = builder.build()
    """

    def __init__(self) -> None:
        self._columns: dict[str, TypeInformation] = {}
        self._array_separators: dict[str, str] = {}
        self._any_property: str | None = None
        self._settings: dict[str, Any] = {"header": False}

    def build(self) -> CsvSchema:
        """Build the schema.

        Raises:
            ConfigurationError: if there are no columns, or an array column has no element separator.
        """
        if not self._columns:
            raise ConfigurationError("a CSV schema needs columns")
        if self._any_property in self._columns:
            raise ConfigurationError(
                f"the name of further fields, {self._any_property!r}, is that of a column; choose another one"
            )
        settings = {**self._settings, "array_separators": dict(self._array_separators)}
        if settings.get("array_separator", ";") is None:
            del settings["array_separator"]
            arrays = [name for name, kind in self._columns.items() if isinstance(kind, ObjectArrayTypeInfo)]
            if without := [name for name in arrays if name not in self._array_separators]:
                raise ConfigurationError(
                    f"the separator of array elements is disabled, but {', '.join(map(repr, without))} are arrays "
                    "without their own separator"
                )
        return CsvSchema(self._columns, settings)

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of text."""
        return self._add(name, Types.STRING())

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of `true` and `false` (or 1 and 0)."""
        return self._add(name, Types.BOOLEAN())

    def add_number_column(self, name: str, number_type: TypeInformation | None = None) -> CsvSchemaBuilder:
        """Add a column of numbers, by default 64-bit integers."""
        return self._add(name, number_type or Types.LONG())

    def add_array_column(
        self, name: str, separator: str = ";", element_type: TypeInformation | None = None
    ) -> CsvSchemaBuilder:
        """Add a column of arrays, by default of text, with its own element separator."""
        self._add(name, Types.OBJECT_ARRAY(element_type or Types.STRING()))
        self._array_separators[name] = separator
        return self

    def remove_array_element_separator(self, index: int) -> CsvSchemaBuilder:
        """Give the array column at this position the schema's element separator in place of its own.

        Raises:
            ConfigurationError: if the schema has no such column.
        """
        if not 0 <= index < len(self._columns):
            raise ConfigurationError(
                f"the CSV schema has {len(self._columns)} columns, so it has none at position {index}"
            )
        self._array_separators.pop(list(self._columns)[index], None)
        return self

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """Add all columns of another schema."""
        for name, column_type in schema.columns.items():
            self._add(name, column_type)
        self._array_separators.update(schema.settings.get("array_separators", {}))
        return self

    def clear_columns(self) -> CsvSchemaBuilder:
        """Remove all columns."""
        self._columns, self._array_separators = {}, {}
        return self

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """Let files begin with the names of their columns, which are then looked up by name; off by default."""
        return self._set("header", use)

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """Do nothing; accepted for PyFlink programs. A header that lacks one of the columns is always an error."""
        return self

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        """Set the character between fields; `,` by default."""
        return self._set("delimiter", char)

    def set_array_element_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the separator of array elements in columns without their own; `;` by default."""
        return self._set("array_separator", separator)

    def disable_array_element_separator(self) -> CsvSchemaBuilder:
        """Disable the separator for array columns without their own, so that no such column is allowed."""
        return self._set("array_separator", None)

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        """Skip the first line of each file, or the one after its header, when reading; off by default."""
        return self._set("skip_first_row", skip)

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        """Set the character around fields; `"` by default."""
        return self._set("quote", char)

    def disable_quote_char(self) -> CsvSchemaBuilder:
        """Use no character around fields."""
        return self._set("quote", None)

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        """Set the character that makes the next one literal; none by default."""
        return self._set("escape", char)

    def disable_escape_char(self) -> CsvSchemaBuilder:
        """Use no escape character."""
        return self._set("escape", None)

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """Set the text that represents None."""
        return self._set("null_value", null_value)

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the end of written lines: a line feed (the default), or a carriage return and a line feed.

        Both are always accepted when reading.

        Raises:
            ConfigurationError: if it is neither.
        """
        if separator not in ("\n", "\r\n"):
            raise ConfigurationError(
                f"a CSV line must end in a line feed, alone or after a carriage return, not in {separator!r}"
            )
        return self._set("line_end", separator)

    def set_any_property_name(self, name: str) -> CsvSchemaBuilder:
        """Allow fields after the last column, under this name; rows omit them, since they have columns only.

        Without it, such a line is malformed. Written lines have no such fields.

        Raises:
            ConfigurationError: when the schema is built, if it has a column of that name.
        """
        self._any_property = name
        return self._set("extra_fields", True)

    def set_allow_comments(self, allow: bool = True) -> CsvSchemaBuilder:
        """Skip lines that begin with `#`; off by default."""
        return self._set("comments", allow)

    def size(self) -> int:
        """Return the number of columns so far."""
        return len(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def _add(self, name: str, column_type: TypeInformation) -> CsvSchemaBuilder:
        if name in self._columns:
            raise ConfigurationError(f"the CSV schema already has column {name!r}")
        self._columns[name] = column_type
        return self

    def _set(self, name: str, value: Any) -> CsvSchemaBuilder:
        self._settings[name] = value
        return self


def csv_format(schema: CsvSchema, on_error: OnError = "fail", **more: Any) -> CsvFormat:
    """Create the format that reads files of a schema, as rows with names; `more` goes to `CsvFormat`."""
    settings = {name: value for name, value in schema.settings.items() if name != "line_end"}
    null_value = settings.pop("null_value", None)
    nulls = () if null_value is None else (null_value,)
    return CsvFormat(schema.row_type, null_values=nulls, on_error=on_error, **settings, **more)


def csv_writer(schema: CsvSchema) -> CsvWriterFactory:
    """Create the factory of writers for files of a schema."""
    settings = {
        name: value
        for name, value in schema.settings.items()
        if name not in ("comments", "skip_first_row", "extra_fields")
    }
    return CsvWriterFactory(schema.row_type, **settings)
