"""`csv`: values as text, in the order of the table's columns, with the options of Flink's format of this name.

**Reading.** Arrow splits blocks without quotes into fields; Python's `csv` splits the others and reports errors in a
line. Quoted fields may contain line feeds, so a file is read from its beginning, by one reader.

**Writing.** `CsvMessageEncoder` writes columns. `shortest` is the default text form of decimals in text formats.
"""

from __future__ import annotations

import base64
import csv
import decimal
import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import UnsupportedError
from penstock.codecs.column_data import ColumnData
from penstock.codecs.serialization import BAD_RECORD, BadMessage, Deserialized, format_reason
from penstock.formats.file_format import DecodedBlock, LineDecoder, Malformed, StreamFormat
from penstock.sql.data import types
from penstock.sql.data.types import DataType
from penstock.sql.formats import format
from penstock.sql.formats.text_columns import ReadColumn, TextRules, column_reader
from penstock.sql.functions.definition import Session
from penstock.sql.functions.text_casts import text_kernel
from penstock.sql.logical.nodes import RowSchema
from penstock.sql.tables.connector import TableOptions


@dataclass(frozen=True, slots=True)
class CsvRules:
    """The options of the format `csv`. `quote`, `escape` and `null` (the text for NULL) are None if unused."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    has_comments: bool = False
    ignores_errors: bool = False
    separator: str = ";"
    null: str | None = None
    has_short_decimals: bool = True

    def text(self) -> TextRules:
        """Return the rules for single values."""
        return TextRules(self.null, self.separator)


_TEXT_CHARS_MAX: Final = 40


class Record(NamedTuple):
    """The fields of a record, or the reason that it is invalid; `line`: where it begins; `text`: its source text."""

    line: int
    fields: list[str] | None
    reason: str = ""
    text: str = ""


class CsvColumns:
    """Turns text fields into columns. `wanted`: the positions of the columns to read."""

    def __init__(self, schema: RowSchema, wanted: Sequence[int], rules: CsvRules) -> None:
        self.width = len(schema)
        self._wanted = tuple(wanted)
        self._names = [schema[index].name for index in wanted]
        self._types = [schema[index].type for index in wanted]
        self._rules = rules
        self._reads: list[ReadColumn] = [
            column_reader(schema[index].type, rules.text(), f"column '{schema[index].name}'") for index in wanted
        ]

    def of_texts(self, texts: Sequence[pa.Array]) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Return the columns parsed from text columns, and the errors of bad rows by row index."""
        arrays: list[pa.Array] = []
        bad: dict[int, str] = {}
        for index, name, kind, read in zip(self._wanted, self._names, self._types, self._reads, strict=True):
            array, wrong = read(texts[index])
            arrays.append(array)
            if wrong is not None and not self._rules.ignores_errors:
                for row in np.flatnonzero(wrong.to_numpy(zero_copy_only=False)).tolist():
                    text = str(texts[index][row])[:_TEXT_CHARS_MAX]
                    bad.setdefault(row, f"column '{name}': {text!r} is no {kind}")
        return pa.RecordBatch.from_arrays(arrays, self._names), bad

    def of_records(self, records: Sequence[Record]) -> tuple[pa.RecordBatch, list[Record]]:
        """Return the columns of the valid records, and the bad records."""
        good, bad = [], []
        for record in records:
            fields = record.fields
            if fields is not None and len(fields) == self.width + 1 and not fields[-1].strip():
                fields = fields[:-1]  # trailing delimiter
            if fields is not None and len(fields) < self.width and self._rules.ignores_errors:
                fields = fields + [None] * (self.width - len(fields))  # type: ignore[list-item]
            if fields is None:
                bad.append(record)
            elif len(fields) != self.width:
                reason = f"Row length mismatch. {self.width} fields expected but was {len(fields)}."
                bad.append(record._replace(fields=None, reason=reason))
            else:
                good.append(record._replace(fields=fields))
        texts = [pa.array([row.fields[index] for row in good], pa.string()) for index in range(self.width)]  # type: ignore[index]
        columns, reasons = self.of_texts(texts)
        if reasons:
            bad += [good[row]._replace(fields=None, reason=reason) for row, reason in reasons.items()]
            columns = columns.take(pa.array([row for row in range(len(good)) if row not in reasons], pa.int64()))
        return columns, sorted(bad, key=lambda bad_record: bad_record.line)


class CsvMessageDecoder(format.MessageDecoder):
    """Reads messages of one record each."""

    def __init__(self, schema: RowSchema, wanted: tuple[int, ...], rules: CsvRules) -> None:
        self._parts = schema, wanted, rules
        self._rules = rules
        self._columns = CsvColumns(schema, wanted, rules)

    def decode(self, messages: Sequence[bytes]) -> Deserialized:
        """See `MessageDecoder`."""
        records = []
        for message_index, message in enumerate(messages):
            message_records, _ = split_records(message, self._rules, True)
            if len(message_records) > 1:
                message_records = [Record(0, None, f"it has {len(message_records)} records")]
            records += [record._replace(line=message_index) for record in message_records]
        columns, bad = self._columns.of_records(records)
        wrong = {record.line for record in bad}
        positions = [record.line for record in records if record.line not in wrong]
        return Deserialized(
            ColumnData(columns),
            None if len(positions) == len(messages) else positions,
            [BadMessage(record.line, record.reason) for record in bad],
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


class CsvFilesFormat(StreamFormat[Any]):
    """Reads files as columns."""

    splittable = False

    def __init__(self, schema: RowSchema, wanted: tuple[int, ...], rules: CsvRules) -> None:
        super().__init__("skip" if rules.ignores_errors else "fail")
        self._schema = schema
        self._wanted = wanted
        self._rules = rules
        CsvColumns(schema, wanted, rules)  # raises for unsupported types

    def create_decoder(self, header: bytes) -> LineDecoder[Any]:
        """See `StreamFormat`."""
        return _CsvDecoder(CsvColumns(self._schema, self._wanted, self._rules), self._rules)


class _CsvDecoder(LineDecoder[Any]):
    def __init__(self, columns: CsvColumns, rules: CsvRules) -> None:
        self._columns = columns
        self._rules = rules
        self._special = [
            character.encode()
            for character in (rules.quote, rules.escape, "#" if rules.has_comments else None)
            if character
        ]
        # The extra column is for files whose lines end with a delimiter.
        names = [str(index) for index in range(columns.width + 1)]
        self._read = pyarrow.csv.ReadOptions(use_threads=False, column_names=names[:-1])
        self._read_longer = pyarrow.csv.ReadOptions(use_threads=False, column_names=names)
        self._delimiter = rules.delimiter.encode()
        self._parse = pyarrow.csv.ParseOptions(
            delimiter=rules.delimiter, quote_char=False, double_quote=False, escape_char=False
        )
        self._convert = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
        )

    def decode(self, block: bytes, last: bool) -> DecodedBlock:
        columns = None if any(character in block for character in self._special) else self._at_once(block)
        if columns is not None:
            return DecodedBlock(ColumnData(columns), (), len(block))
        records, consumed = split_records(block, self._rules, last)
        columns, bad = self._columns.of_records(records)
        return DecodedBlock(
            ColumnData(columns), [Malformed(record.line, record.reason, record.text) for record in bad], consumed
        )

    def _at_once(self, block: bytes) -> pa.RecordBatch | None:
        """Return the columns of a block as read by Arrow; None if the block has an error."""
        is_longer = block.partition(b"\n")[0].count(self._delimiter) == self._columns.width
        options = self._read_longer if is_longer else self._read
        try:
            options.block_size = len(block) + 1
            table = pyarrow.csv.read_csv(io.BytesIO(block), options, self._parse, self._convert)
        except pa.ArrowException:
            return None
        texts = [column.combine_chunks() for column in table.columns]
        if is_longer and pc.any(pc.not_equal(pc.utf8_trim_whitespace(texts.pop()), "")).as_py():
            return None
        columns, bad = self._columns.of_texts(texts)
        return None if bad else columns

    def decode_lines(self, block: bytes) -> list[Any]:
        return list(self.decode(block, True).values)

    def decode_line(self, line: bytes) -> Any:
        return self.decode_lines(line)[0]


def split_records(block: bytes, rules: CsvRules, last: bool) -> tuple[list[Record], int]:
    """Return the records of a block, and their length in bytes. A record may continue in the next block unless `last`.

    As in Arrow and Flink, a line ends with a line feed, a carriage return, or both.
    """
    csv.field_size_limit(sys.maxsize)  # the file's reader limits the record size
    lines = block.splitlines(keepends=True)
    records: list[Record] = []
    done = 0
    while done < len(lines):
        source = _Lines(lines, done, rules.has_comments)
        try:
            for row in _reader(source, rules):
                if row:
                    records.append(Record(done, row, "", source.get_text(done)))
                done = source.position
        except BAD_RECORD as error:
            if source.ran_out and not last:
                break
            stop = max(source.position, done + 1)
            records.append(Record(done, None, _why(error), source.get_text(done)))
            done = stop
        else:
            done = len(lines)
    return records, sum(map(len, lines[:done]))


def _reader(source: Iterator[str], rules: CsvRules) -> Any:
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if rules.quote else csv.QUOTE_NONE
    return csv.reader(
        source,
        delimiter=rules.delimiter,
        quotechar=rules.quote or '"',
        quoting=quoting,
        escapechar=rules.escape,
        strict=True,
    )


def _why(error: BaseException) -> str:
    reason = format_reason(error)
    return "a quote is not closed" if reason == "unexpected end of data" else reason


class _Lines:
    """Lines as text, with the current position and whether the reader asked for lines past the end."""

    def __init__(self, lines: Sequence[bytes], start: int, has_comments: bool) -> None:
        self._lines = lines
        self._has_comments = has_comments
        self.position = start
        self.ran_out = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.position >= len(self._lines):
            self.ran_out = True
            raise StopIteration
        self.position += 1
        line = self._lines[self.position - 1]
        return "\n" if self._has_comments and line.startswith(b"#") else line.decode()

    def get_text(self, line: int) -> str:
        """Return the text read since a line, without the final line break."""
        return b"".join(self._lines[line : max(self.position, line + 1)]).decode("utf-8", "replace").rstrip("\r\n")


_EXACT: Final = decimal.Context(prec=100)


def shortest(value: decimal.Decimal) -> decimal.Decimal:
    """Return the number without trailing zeros, as Flink writes it: 12.5 for 12.50, 1E+5 for 100000."""
    return value.normalize(_EXACT)


#: returns the texts of a column; NULL stays NULL
Show = Callable[[pa.Array], pa.Array]

_STRING: Final = types.VarCharType(types.LENGTH_MAX)


class CsvMessageEncoder(format.MessageEncoder):
    """Writes each row as a line. Fields are quoted if necessary."""

    def __init__(self, schema: RowSchema, rules: CsvRules) -> None:
        self._parts = schema, rules
        self._rules = rules
        self._columns = [shown(column.type, rules, f"column '{column.name}'") for column in schema]
        self._types = schema.types
        special = "".join(character for character in (rules.delimiter, rules.quote, rules.escape, "\r\n") if character)
        self._special_bytes = [character.encode() for character in special]
        self._special = f"[{re.escape(special)}]" + ("|^#" if rules.has_comments else "")

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """See `MessageEncoder`."""
        return [line.encode() for line in self._lines(columns).to_pylist()]

    def lines(self, columns: pa.RecordBatch) -> bytes:
        """See `MessageEncoder`. Copies the bytes of an Arrow column, where the lines are contiguous."""
        return _join_bytes(pc.binary_join_element_wise(self._lines(columns), "", "\n"))

    def _lines(self, columns: pa.RecordBatch) -> pa.Array:
        texts = [
            self._field(show(column), kind)
            for show, column, kind in zip(self._columns, columns.columns, self._types, strict=True)
        ]
        return pc.binary_join_element_wise(*texts, self._rules.delimiter) if len(texts) > 1 else texts[0]

    def _field(self, texts: pa.Array, kind: DataType) -> pa.Array:
        rules = self._rules
        texts = texts.fill_null(rules.null or "")
        if isinstance(kind, types.NumericType | types.BooleanType | types.DateType) and rules.delimiter not in "+-.E":
            return texts
        if not self._may_need_quotes(texts):
            return texts
        needs = pc.match_substring_regex(texts, self._special)
        if len(self._types) == 1 and rules.quote is not None:
            needs = pc.or_(needs, pc.equal(texts, ""))  # an empty line would not be read as a row
        if not pc.any(needs).as_py():
            return texts
        if rules.quote is None and rules.escape is None:
            bad = texts.filter(needs)[0].as_py()
            raise UnsupportedError(
                f"the text {bad!r} cannot be written as CSV without quotes: it has the delimiter or a line feed in it"
            )
        marked = pc.replace_substring(texts, rules.escape, rules.escape * 2) if rules.escape else texts
        if rules.quote is None:
            marked = pc.replace_substring(marked, rules.delimiter, f"{rules.escape}{rules.delimiter}")
        else:
            marked = pc.replace_substring(marked, rules.quote, rules.quote * 2)
            quote = pa.scalar(rules.quote)
            marked = pc.binary_join_element_wise(quote, marked, quote, "")
        return pc.if_else(needs, marked, texts)

    def _may_need_quotes(self, texts: pa.Array) -> bool:
        """Return whether a text may need quotes; fast if none contains a special character."""
        if len(self._types) == 1 or self._rules.has_comments:
            return True
        data = _join_bytes(texts)
        return any(character in data for character in self._special_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


def _join_bytes(texts: pa.Array) -> bytes:
    """Return the concatenated bytes of all texts. They must not be NULL."""
    if not len(texts):
        return b""
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int32, len(texts) + 1, texts.offset * 4)
    return b"" if data is None else data.slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()


def shown(kind: DataType, rules: CsvRules, what: str) -> Show:
    """Return the function that formats values of a type. Raises `UnsupportedError`, naming `what`, for others."""
    match kind:
        case types.CharType() | types.VarCharType():
            return lambda column: column
        case types.BinaryType() | types.VarBinaryType():
            return _base64
        case types.BooleanType():
            return lambda column: column.cast(pa.string())
        case types.MultisetType() | types.MapType():
            raise UnsupportedError(f"{what} of type {kind} cannot be written as CSV")
        case types.ArrayType(element_type=element):
            inner = shown(element, rules, what)
            return lambda column: _joined(_lists(column, inner), rules)
        case types.RowType():
            parts = [shown(field_type, rules, what) for field_type in kind.field_types()]
            return lambda column: _rows(column, parts, rules)
        case types.TimestampType() | types.LocalZonedTimestampType():
            return _moments(kind)
        case types.DecimalType() if rules.has_short_decimals:
            return _decimals
        case types.NumericType() | types.DateType() | types.TimeType():
            return _cast(kind)
        case _:
            raise UnsupportedError(f"{what} of type {kind} cannot be written as CSV")


def _cast(kind: DataType) -> Show:
    return text_kernel(kind, _STRING, Session())


def _decimals(column: pa.Array) -> pa.Array:
    return pa.array([None if value is None else str(shortest(value)) for value in column.to_pylist()], pa.string())


def _moments(kind: DataType) -> Show:
    """Format timestamps without trailing zeros; a TIMESTAMP_LTZ is in UTC and ends with Z."""
    show = _cast(kind)
    end = "Z" if isinstance(kind, types.LocalZonedTimestampType) else ""

    def texts(column: pa.Array) -> pa.Array:
        result = _repeated(show, column)
        if kind.precision:  # type: ignore[attr-defined]
            result = pc.ascii_rtrim(pc.ascii_rtrim(result, "0"), ".")
        return pc.binary_join_element_wise(result, end, "") if end else result

    return texts


def _repeated(show: Show, column: pa.Array) -> pa.Array:
    """Format a column whose values usually repeat: each distinct value is formatted once."""
    values = column.dictionary_encode()
    if len(values.dictionary) > len(column) // 2:
        return show(column)
    return show(values.dictionary).take(values.indices)


def _base64(column: pa.Array) -> pa.Array:
    texts = [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def _lists(column: pa.Array, show: Show) -> list[list[str | None] | None]:
    texts = pa.ListArray.from_arrays(column.offsets, show(column.values))
    return [
        elements if valid else None
        for elements, valid in zip(texts.to_pylist(), column.is_valid().to_pylist(), strict=True)
    ]


def _joined(lists: list[list[str | None] | None], rules: CsvRules) -> pa.Array:
    null = rules.null or ""
    texts = [
        None if elements is None else rules.separator.join([null if text is None else text for text in elements])
        for elements in lists
    ]
    return pa.array(texts, pa.string())


def _rows(column: pa.Array, parts: list[Show], rules: CsvRules) -> pa.Array:
    fields = [show(column.field(index)).to_pylist() for index, show in enumerate(parts)]
    rows = zip(*fields, strict=True)
    valid = column.is_valid().to_pylist()
    return _joined([list(row) if is_valid else None for row, is_valid in zip(rows, valid, strict=True)], rules)


DELIMITER: Final = (
    ConfigOptions.key("field-delimiter")
    .string_type()
    .default_value(",")
    .with_description("The delimiter between fields.")
)
DISABLE_QUOTE: Final = (
    ConfigOptions.key("disable-quote-character")
    .boolean_type()
    .default_value(False)
    .with_description("Whether to treat quotes like other characters.")
)
QUOTE: Final = (
    ConfigOptions.key("quote-character")
    .string_type()
    .no_default_value()
    .with_description('The quote around fields that contain a delimiter; by default `"`.')
)
COMMENTS: Final = (
    ConfigOptions.key("allow-comments")
    .boolean_type()
    .default_value(False)
    .with_description("Whether to skip lines that begin with #.")
)
IGNORE_ERRORS: Final = (
    ConfigOptions.key("ignore-parse-errors")
    .boolean_type()
    .default_value(False)
    .with_description("Whether to read invalid values as NULL, and to skip invalid lines.")
)
SEPARATOR: Final = (
    ConfigOptions.key("array-element-delimiter")
    .string_type()
    .default_value(";")
    .with_description("The delimiter between the elements of an array or row.")
)
ESCAPE: Final = (
    ConfigOptions.key("escape-character")
    .string_type()
    .no_default_value()
    .with_description("The character that escapes the next one.")
)
NULL: Final = (
    ConfigOptions.key("null-literal")
    .string_type()
    .no_default_value()
    .with_description("The string that represents NULL.")
)


SHORT_DECIMALS: Final = (
    ConfigOptions.key("write-bigdecimal-in-scientific-notation")
    .boolean_type()
    .default_value(True)
    .with_description("Whether to write decimals without trailing zeros and with an exponent, as 1E+5.")
)


class CsvTableFormat(format.TableFormat):
    """See the module docstring. Files have no header: columns are found by position."""

    name = "csv"
    options = (DELIMITER, DISABLE_QUOTE, QUOTE, COMMENTS, IGNORE_ERRORS, SEPARATOR, ESCAPE, NULL, SHORT_DECIMALS)

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> format.Decoding:
        """See `TableFormat`."""
        rules = _rules(options)
        decoder = CsvMessageDecoder(schema, tuple(wanted), rules)
        return format.Decoding(CsvFilesFormat(schema, tuple(wanted), rules), decoder, rules.ignores_errors)

    def encoding(self, schema: RowSchema, options: TableOptions) -> format.Encoding:
        """See `TableFormat`."""
        encoder = CsvMessageEncoder(schema, _rules(options))
        return format.Encoding(format.LinesWriterFactory(encoder, schema), encoder)


def _rules(options: TableOptions) -> CsvRules:
    is_quoted = not options.read(DISABLE_QUOTE)
    if not is_quoted and QUOTE.key() in options:
        raise options.wrong(QUOTE.key(), f"it cannot be set together with '{DISABLE_QUOTE.key()}'")
    delimiter = options.read(DELIMITER)
    if "\\" in delimiter:
        delimiter = delimiter.encode().decode("unicode_escape")
    if len(delimiter) != 1:
        raise UnsupportedError(
            f"table {options.title}: 'csv.{DELIMITER.key()}' must be a single character, not {delimiter!r}"
        )
    return CsvRules(
        delimiter,
        _character(options, QUOTE) or '"' if is_quoted else None,
        _character(options, ESCAPE),
        options.read(COMMENTS),
        options.read(IGNORE_ERRORS),
        options.read(SEPARATOR),
        options.read(NULL),
        options.read(SHORT_DECIMALS),
    )


def _character(options: TableOptions, option: ConfigOption[str | None]) -> str | None:
    character = options.read(option)
    if character is not None and len(character) != 1:
        raise options.wrong(option.key(), f"it must be a single character, not {character!r}")
    return character
