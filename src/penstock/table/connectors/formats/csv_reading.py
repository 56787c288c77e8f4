"""Reads CSV as columns.

Arrow splits blocks without quotes into fields; Python's `csv` splits the others and reports errors in a line. Quoted
fields may contain line feeds, so a file is read from its beginning, by one reader.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock.codecs.column_data import ColumnData
from penstock.codecs.messages import BAD_RECORD, BadMessage, Deserialized, format_reason
from penstock.formats.stream_format import DecodedBlock, LineDecoder, Malformed, StreamFormat
from penstock.table.connectors.formats.csv_rules import CsvRules
from penstock.table.connectors.formats.format import MessageDecoder
from penstock.table.connectors.formats.text_columns import ReadColumn, column_reader
from penstock.table.plan.row_schema import RowSchema

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


class CsvMessageDecoder(MessageDecoder):
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
