"""Interfaces of file formats, by lines or in large units; errors for malformed records; conversion of text columns.

**Lines.** A reader cuts a file into *blocks*, runs of whole lines, and passes each to a `LineDecoder`. A decoder keeps
nothing from one block to the next, and its result for a line depends on that line alone. A position is therefore simply
the offset of a block and a number of records after it (G8). Reading again from there, in blocks of any other size,
gives the same records in the same order.

Lines end with a line feed, or a carriage return and a line feed. A lone carriage return does not end a line. A charset
must therefore write the line feed as the byte 10 and use that byte for nothing else: UTF-8, ASCII, Latin-1, not UTF-16.

`TextLineFormat` reads text, where each line is a record.

**Units.** A `BulkFormat` is read and written in large units, such as Parquet's row groups.

**Errors.** `MalformedRecordError` has enough detail to find the line.

**Conversion.** `converter` converts a whole column of text to values at once, at a fraction of the cost of converting
row by row. `assembler` and `to_records` convert columns to records.
"""

from __future__ import annotations

import codecs
import datetime
import decimal
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Generic, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa

from penstock.base import typeinfo
from penstock.base.errors import ConfigurationError, FormatError, shorten
from penstock.base.output_tag import OutputTag
from penstock.base.time import Instant
from penstock.base.types import Row, values_by_names
from penstock.codecs.column_data import ColumnData
from penstock.codecs.pickling import make_rows
from penstock.codecs.serialization import BAD_RECORD, BulkWriter, BulkWriterFactory, OnError, format_reason

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

#: The result of `LineDecoder.decode_line` for a line without a record, such as an empty one.
NO_RECORD: Any = object()


class Malformed(NamedTuple):
    """A record that could not be read: its line within the block, counted from 0, the reason, and its text."""

    line: int
    reason: str
    text: str


class DecodedBlock(NamedTuple):
    """The result of decoding a block: its records, the malformed records, and the number of bytes consumed.

    `kinds` holds the effect of each record on a table, as in `Batch.kinds`.
    """

    values: list[Any] | ColumnData
    malformed: Sequence[Malformed]
    consumed_bytes: int
    kinds: bytes | None = None


class LineDecoder(ABC, Generic[T]):
    """Decodes blocks of whole lines to records: all lines at once, and line by line only after an error."""

    def decode(self, block: bytes, last: bool) -> DecodedBlock:
        """Decode a block. Its last line may lack a line feed only with `last`, which means that the file ends here.

        A format whose records may span lines can consume less than the whole block while `last` is False.
        """
        try:
            return DecodedBlock(self.decode_lines(block), (), len(block))
        except BAD_RECORD:
            return self._decode_each(block)

    @abstractmethod
    def decode_lines(self, block: bytes) -> list[T]:
        """Return the records of a block without malformed lines; raise one of `BAD_RECORD` if a line is malformed."""

    @abstractmethod
    def decode_line(self, line: bytes) -> T:
        """Return the record of one line, given without its end, or `NO_RECORD`. Raises one of `BAD_RECORD`."""

    def _decode_each(self, block: bytes) -> DecodedBlock:
        values: list[Any] = []
        malformed: list[Malformed] = []
        for number, line in enumerate(split_lines(block)):
            try:
                value = self.decode_line(line)
            except BAD_RECORD as error:
                malformed.append(Malformed(number, format_reason(error), line.decode("utf-8", "replace")))
            else:
                if value is not NO_RECORD:
                    values.append(value)
        return DecodedBlock(values, malformed, len(block))


class StreamFormat(ABC, Generic[T_co]):
    """Describes files made of lines.

    Args:
        on_error: `"fail"` makes a malformed record fail the job with a `MalformedRecordError`; `"skip"` drops it
            and counts it in the metric `malformed_records`.
        malformed_output: with `"skip"`, the side output that gets `(file, line, reason, text)` for each.

    Raises:
        ConfigurationError: if `on_error` is neither, or a side output is given with `"fail"`.

    Examples:
        >>> from pathlib import Path
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import FileSource, StreamFormat
        >>> _ = Path("words.txt").write_text("tea")
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "words.txt").build()
        >>> env.from_source(source, WatermarkStrategy.no_watermarks(), "words").collect()
        ['tea']
    """

    #: Number of lines at the start of each file that hold no records; every reader of a part of the file sees them.
    header_lines: int = 0

    #: Whether a file may be read from the middle, so that several readers share a large one.
    splittable: bool = True

    def __init__(self, on_error: OnError = "fail", malformed_output: OutputTag | None = None) -> None:
        if on_error not in ("fail", "skip"):
            raise ConfigurationError(f'on_error must be "fail" or "skip", not {on_error!r}')
        if malformed_output is not None and on_error != "skip":
            raise ConfigurationError('malformed_output receives skipped records, so it needs on_error="skip"')
        self.on_error = on_error
        self.malformed_output = malformed_output

    @abstractmethod
    def create_decoder(self, header: bytes) -> LineDecoder[T_co]:
        """Create a decoder for a file that begins with the lines `header`; raises ValueError if they do not fit."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat[str]:
        """Return a format with a record for each line: a `str` without the line's end. Empty lines are records as well.

        Raises:
            ConfigurationError: if the charset is unknown or writes line feeds differently from ASCII.
        """
        return TextLineFormat(charset_name)


class TextLineFormat(StreamFormat[str]):
    """Reads each line as a record: a `str` without the line's end. Empty lines are records as well.

    Args:
        charset: the encoding of the text; it must extend ASCII.
        on_error: see `StreamFormat`; a line is malformed if its bytes are invalid in that charset.
        malformed_output: see `StreamFormat`.

    Raises:
        ConfigurationError: if the charset is unknown or writes line feeds differently from ASCII.
    """

    def __init__(
        self, charset: str = "utf-8", on_error: OnError = "fail", malformed_output: OutputTag | None = None
    ) -> None:
        super().__init__(on_error, malformed_output)
        self.charset = check_charset(charset)

    def create_decoder(self, header: bytes) -> LineDecoder[str]:
        return _TextLineDecoder(self.charset)


class _TextLineDecoder(LineDecoder[str]):
    def __init__(self, charset: str) -> None:
        self._charset = charset

    def decode_lines(self, block: bytes) -> list[str]:
        lines = unify_line_ends(block).decode(self._charset).split("\n")
        if not lines[-1]:
            lines.pop()
        return lines

    def decode_line(self, line: bytes) -> str:
        return line.decode(self._charset)


def check_charset(charset: str) -> str:
    """Return Python's name of a charset whose lines can be found; raise ConfigurationError for others."""
    try:
        name = codecs.lookup(charset).name
    except LookupError:
        raise ConfigurationError(f"unknown charset {charset!r}") from None
    if "a\n".encode(name) != b"a\n":
        raise ConfigurationError(
            f"lines cannot be split in charset {charset!r}; use UTF-8 or another charset that extends ASCII"
        )
    return name


def unify_line_ends(block: bytes) -> bytes:
    """Return the block with a line feed alone at the end of every line."""
    return block.replace(b"\r\n", b"\n") if b"\r" in block else block


def split_lines(block: bytes) -> list[bytes]:
    """Return the lines of a block without their ends."""
    lines = unify_line_ends(block).split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


class BulkFile(ABC, Generic[T_co]):
    """An open file made of units; each unit holds records in order.

    A position in the file is a unit and a number of records within it (G8), so units and records must be the same on
    every read.
    """

    @abstractmethod
    def units(self, start: int, end: int | None) -> Sequence[int]:
        """Return the ordinals of the units that begin at byte `start` or later, but before `end` (None: no limit)."""

    @abstractmethod
    def read(self, unit: int, skip_records: int) -> Iterator[list[T_co] | ColumnData]:
        """Yield the records of a unit after its first `skip_records`, in lists or columns of a size quick to make."""


class BulkFormat(ABC, Generic[T_co]):
    """Describes files that are read in large units.

    Examples:
        >>> from penstock.datastream.connectors.file_system import BulkFormat, FileSource
        >>> from penstock.datastream.formats.parquet import ParquetFormat
        >>> isinstance(ParquetFormat(), BulkFormat)
        True
        >>> builder = FileSource.for_bulk_file_format(ParquetFormat(), "orders")
    """

    @abstractmethod
    def open(self, file: BinaryIO) -> BulkFile[T_co]:
        """Open a seekable file, which the caller closes. Raises FormatError if it does not have this format."""


class BatchWriter(BulkWriter[T]):
    """A `BulkWriter` that takes many records at once."""

    @abstractmethod
    def add_elements(self, elements: Sequence[T]) -> None:
        """Add records in order; they may stay in memory until `flush`. Raises FormatError if one does not fit."""

    def add_columns(self, data: ColumnData) -> None:
        """Add records in columns; by default as rows."""
        self.add_elements(data.rows())  # type: ignore[arg-type]

    def add_element(self, element: T) -> None:
        """Add one record."""
        self.add_elements([element])

    def discard(self) -> None:
        """Release resources; the file will be removed. Called instead of `finish`, with the stream still open."""


class BatchWriterFactory(BulkWriterFactory[T]):
    """Makes a `BatchWriter` for each file."""

    @abstractmethod
    def create(self, stream: BinaryIO) -> BatchWriter[T]:
        """Create a writer for a new, empty file."""


def get_field_values(record: Any, names: Sequence[str]) -> Sequence[Any]:
    """Return the values of a record in the order of `names`, found by name in dicts and named rows, else by position.

    Names that a dict lacks become None.

    Raises:
        ValueError: if the record has another number of fields.
    """
    if isinstance(record, Row):
        values = values_by_names(record, tuple(names))
    else:
        values = [record.get(name) for name in names] if isinstance(record, dict) else tuple(record)
    if len(values) != len(names):
        raise ValueError(f"{len(values)} fields, expected {len(names)}")
    return values


EXCERPT_CHARS_MAX = 200


class MalformedRecordError(FormatError):
    """A line of a file could not be read as a record of the declared format.

    Attributes:
        file: the file's path or URL.
        line: the line on which the record begins, counted from 1.
        reason: why it is malformed.
        excerpt: the record's text, truncated to 200 characters.
    """

    def __init__(self, file: str, line: int, reason: str, excerpt: str) -> None:
        super().__init__(file, line, reason, excerpt)
        self.file = file
        self.line = line
        self.reason = reason
        self.excerpt = shorten(excerpt, EXCERPT_CHARS_MAX)

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.reason}: {self.excerpt!r}"

    def __reduce__(self) -> tuple[type[MalformedRecordError], tuple[str, int, str, str]]:
        return type(self), (self.file, self.line, self.reason, self.excerpt)


class MalformedMessageError(FormatError):
    """A message could not be read as a record of the declared format.

    Attributes:
        split: the origin of the message; for Kafka topic and partition, as in `orders-3`.
        position: its position there; for Kafka the offset.
        reason: why it is malformed.
        excerpt: the beginning of its bytes.
    """

    def __init__(self, split: str, position: int, reason: str, message: bytes) -> None:
        self.excerpt = bytes(message[:EXCERPT_CHARS_MAX])
        super().__init__(split, position, reason, self.excerpt)
        self.split = split
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.split}, offset {self.position}: {self.reason}: {self.excerpt!r}"

    def __reduce__(self) -> tuple[type[MalformedMessageError], tuple[str, int, str, bytes]]:
        return type(self), (self.split, self.position, self.reason, self.excerpt)


ColumnType: TypeAlias = type | typeinfo.TypeInformation | Callable[[str], Any]
#: Names alone (all text), names with their `ColumnType`, or a row type.
Columns: TypeAlias = Sequence[str] | Mapping[str, Any] | typeinfo.RowTypeInfo
Convert: TypeAlias = Callable[[Sequence[str]], Sequence[Any]]
Assemble: TypeAlias = Callable[[Iterable[Sequence[Any]]], list[Any]]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


def column_types(columns: Columns) -> dict[str, ColumnType]:
    """Return the name and type of each column.

    Raises:
        ConfigurationError: if a name occurs twice or a type is invalid.
    """
    if isinstance(columns, typeinfo.RowTypeInfo):
        return dict(zip(columns.get_field_names(), columns.get_field_types(), strict=True))
    if isinstance(columns, Mapping):
        for name, column_type in columns.items():
            build_parser(column_type, name)
        return dict(columns)
    if isinstance(columns, str) or len(set(columns)) != len(columns):
        raise ConfigurationError(f"columns must be a sequence of distinct names, not {columns!r}")
    return dict.fromkeys(columns, str)


def converter(name: str, column_type: ColumnType, null_values: frozenset[str], array_separator: str = ";") -> Convert:
    """Return a function from a column of text to a column of values; it raises its parser's error for invalid text.

    Text in `null_values` becomes None, and so does empty text in any column except a text column.
    """
    parse = build_parser(column_type, name, array_separator)
    if parse is str:
        return lambda texts: (
            texts if null_values.isdisjoint(texts) else [None if t in null_values else t for t in texts]
        )
    nulls = null_values | {""}
    if isinstance(column_type, typeinfo.BasicTypeInfo) or parse in _PARSERS.values():
        return _by_distinct_text(parse, nulls)
    return lambda texts: [None if t in nulls else parse(t) for t in texts]


def _by_distinct_text(parse: Callable[[str], Any], nulls: frozenset[str]) -> Convert:
    """Return a converter that parses each distinct text once; for immutable values, which may be shared."""

    def convert(texts: Sequence[str]) -> list[Any]:
        values = {text: None if text in nulls else parse(text) for text in set(texts)}
        return list(map(values.__getitem__, texts))

    return convert


def build_parser(column_type: ColumnType, name: str, array_separator: str = ";") -> Callable[[str], Any]:
    """Return the function that parses a text as a value of the type.

    Raises:
        ConfigurationError: if text cannot be converted to that type.
    """
    if isinstance(column_type, typeinfo.BasicTypeInfo):
        return _basic_parser(column_type)
    if isinstance(column_type, typeinfo.BasicArrayTypeInfo | typeinfo.ObjectArrayTypeInfo):
        element = build_parser(column_type.element_type, name, array_separator)
        return lambda text: [element(item) for item in text.split(array_separator)]
    for kind, python_type in _PYTHON_TYPES.items():
        if isinstance(column_type, kind):
            return _PARSERS[python_type]
    if isinstance(column_type, type) and column_type in _PARSERS:
        return _PARSERS[column_type]
    if callable(column_type):
        return column_type
    raise ConfigurationError(f"column {name!r} has a type that text cannot be converted to: {column_type!r}")


def assembler(names: Sequence[str], output: str) -> Assemble:
    """Return the function from columns to records: a `tuple`, a `dict`, or a `Row` with names, by `output`."""
    if output == "tuple":
        return lambda columns: list(zip(*columns, strict=True))
    if output == "dict":
        return _dict_assembler(tuple(names))
    fields = tuple(names)
    return lambda columns: list(make_rows(fields, map(list, zip(*columns, strict=True))))


def chosen_columns(
    columns: Sequence[str] | typeinfo.RowTypeInfo | None, as_tuple: bool, as_columns: bool
) -> tuple[list[str] | None, str]:
    """Return the names of the columns to read (None for all), and the type of their records, as for `to_records`."""
    is_row = isinstance(columns, typeinfo.RowTypeInfo)
    names = columns.get_field_names() if isinstance(columns, typeinfo.RowTypeInfo) else columns
    output = "columns" if as_columns else "tuple" if as_tuple else "row" if is_row else "dict"
    return None if names is None else list(names), output


def to_records(batch: pa.RecordBatch, output: str) -> list[Any] | ColumnData:
    """Convert Arrow rows to records as `assembler` makes them, or leave them in columns if `output` is `columns`."""
    if output == "columns":
        return ColumnData(batch)
    return assembler(batch.schema.names, output)([column.to_pylist() for column in batch.columns])


@functools.cache
def _dict_assembler(names: tuple[str, ...]) -> Assemble:
    """Make dicts by a display with the names written out, in a third of the time that `dict(zip(…))` takes."""
    fields = range(len(names))
    variables = "".join(f"v{i}," for i in fields)
    display = ", ".join(f"{names[i]!r}: v{i}" for i in fields)
    assemble: Assemble = eval(f"lambda columns: [{{{display}}} for ({variables}) in zip(*columns, strict=True)]")
    return assemble


def _parse_boolean(text: str) -> bool:
    try:
        return _BOOLEANS[text.strip().lower()]
    except KeyError:
        raise ValueError(f"not a boolean: {text!r}") from None


def _parse_instant(text: str) -> Instant:
    moment = datetime.datetime.fromisoformat(text)
    elapsed = (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)) - _EPOCH
    return Instant(elapsed // datetime.timedelta(seconds=1), elapsed.microseconds * 1_000)


def _parse_decimal(text: str) -> decimal.Decimal:
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:
        raise ValueError(f"not a decimal number: {text!r}") from None


def _basic_parser(info: typeinfo.BasicTypeInfo) -> Callable[[str], Any]:
    kind = info.basic_type
    if kind not in (typeinfo.BasicType.BYTE, typeinfo.BasicType.SHORT, typeinfo.BasicType.INT, typeinfo.BasicType.LONG):
        return _PARSERS[_BASIC_TYPES[kind]]
    accepts = info.accepts

    def parse(text: str) -> int:
        number = int(text)
        if not accepts(number):
            raise ValueError(f"out of the range of {info}: {text!r}")
        return number

    return parse


_PARSERS: dict[type, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: float,
    bool: _parse_boolean,
    decimal.Decimal: _parse_decimal,
    datetime.date: datetime.date.fromisoformat,
    datetime.time: datetime.time.fromisoformat,
    datetime.datetime: datetime.datetime.fromisoformat,
    Instant: _parse_instant,
}

_BASIC_TYPES: dict[typeinfo.BasicType, type] = {
    typeinfo.BasicType.STRING: str,
    typeinfo.BasicType.CHAR: str,
    typeinfo.BasicType.BOOLEAN: bool,
    typeinfo.BasicType.FLOAT: float,
    typeinfo.BasicType.DOUBLE: float,
    typeinfo.BasicType.BIG_INT: int,
    typeinfo.BasicType.BIG_DEC: decimal.Decimal,
    typeinfo.BasicType.INSTANT: Instant,
}

_PYTHON_TYPES: dict[type[typeinfo.TypeInformation], type] = {
    typeinfo.DateTypeInfo: datetime.date,
    typeinfo.TimeTypeInfo: datetime.time,
    typeinfo.TimestampTypeInfo: datetime.datetime,
}
