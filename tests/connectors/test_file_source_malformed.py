"""Malformed records: the error names file, line and reason; skipped ones are counted and sent aside once."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ConfigurationError, FormatError
from penstock.base.output_tag import OutputTag
from penstock.base.typeinfo import Types
from penstock.connectors.file.source import FileSource
from penstock.formats.csv import CsvFormat
from penstock.formats.file_format import MalformedRecordError, TextLineFormat
from penstock.formats.json import JsonLinesFormat
from penstock.formats.parquet import ParquetFormat
from penstock.testing.connectors import read_source

TYPES = {"a": int, "b": float, "c": str}
CSV = b'a,b,c\n1,1.5,x\nx,1,y\n2,,z\n3,1\n4,1,"open\n5,1,"stray"s,\n6,1,ok\n\xff,1,1\n7,1,end\n'
BAD_LINES = [3, 5, 6, 7, 9]


def source(path: Path, file_format: Any, split_bytes: int = 1 << 20) -> FileSource[Any]:
    return FileSource.for_record_stream_format(file_format, path).set_split_size(split_bytes).build()


@pytest.mark.parametrize("split_bytes", [1, 8, 30, 1 << 20])
def test_first_bad_line_fails_with_file_line_and_reason(tmp_path: Path, split_bytes: int) -> None:
    path = tmp_path / "file.csv"
    path.write_bytes(CSV)
    with pytest.raises(MalformedRecordError) as caught:
        read_source(source(path, CsvFormat(TYPES), split_bytes))
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.file, error.line, error.excerpt) == (str(path), 3, "x,1,y")
    assert error.reason == "column 'a': invalid literal for int() with base 10: 'x'"
    assert str(error) == f"{path}, line 3: {error.reason}: 'x,1,y'"


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("split_bytes", [1, 8, 30, 1 << 20])
@pytest.mark.parametrize("batch_size", [1, 2, 1000])
def test_skipped_lines_are_counted_and_sent_aside_once(
    tmp_path: Path, split_bytes: int, batch_size: int, hostile: bool
) -> None:
    """G8: a restored reader does not report again what was reported before the snapshot."""
    path = tmp_path / "file.csv"
    path.write_bytes(CSV)
    csv_format = CsvFormat(TYPES, as_tuple=True, on_error="skip", malformed_output=OutputTag("bad"))
    cluster = read_source(source(path, csv_format, split_bytes), batch_size, hostile=hostile)
    assert cluster.all_values == [(1, 1.5, "x"), (2, None, "z"), (6, 1.0, "ok"), (7, 1.0, "end")]
    assert cluster.hosts[0].counts == {"malformed_records": len(BAD_LINES)}
    assert [(tag, row[:2]) for tag, row in cluster.side] == [("bad", (str(path), line)) for line in BAD_LINES]
    reasons = [row[2] for _, row in cluster.side]
    assert reasons[1] == "2 fields, expected 3"
    assert reasons[2].startswith("a quoted field does not end on its line")
    assert reasons[4] == "byte 0 is not utf-8"
    assert cluster.side[1][1][3] == "3,1"


@pytest.mark.parametrize("batch_size", [1, 1000])
def test_multiline_skips_what_it_cannot_read(tmp_path: Path, batch_size: int) -> None:
    path = tmp_path / "file.csv"
    path.write_bytes(b'a,b\n1,"x\ny"\n2,"x"y\n3\n4,"a\n"\n5,"never\nclosed\n')
    csv_format = CsvFormat(as_tuple=True, multiline=True, on_error="skip", malformed_output=OutputTag("bad"))
    cluster = read_source(source(path, csv_format), batch_size, hostile=True)
    assert cluster.all_values == [("1", "x\ny"), ("4", "a\n")]
    assert [row[1] for _, row in cluster.side] == [4, 5, 8]
    assert cluster.side[2][1][3] == '5,"never\nclosed'


def test_json_must_be_one_value_a_line(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text('{"a": 1}\n1 2\n{"a":\n1}\nNaN\n3\n')
    file_format = JsonLinesFormat(on_error="skip", malformed_output=OutputTag("bad"))
    cluster = read_source(source(path, file_format), hostile=True)
    assert cluster.all_values == [{"a": 1}, 3]
    assert [row[1] for _, row in cluster.side] == [2, 3, 4, 5]
    with pytest.raises(MalformedRecordError, match=r"file\.jsonl, line 2: JSON is malformed"):
        read_source(source(path, JsonLinesFormat()))


def test_text_of_another_charset(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_bytes("ok\nä\n".encode("latin-1"))
    with pytest.raises(MalformedRecordError, match="line 2: byte 0 is not utf-8"):
        read_source(source(path, TextLineFormat()))
    assert read_source(source(path, TextLineFormat("latin-1"))).all_values == ["ok", "ä"]


def test_header_must_have_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_text("a,b,b\n1,2,3\n")
    with pytest.raises(MalformedRecordError, match="line 1: the header has no column 'c', 'd'"):
        read_source(source(path, CsvFormat(["a", "c", "d"])))
    with pytest.raises(MalformedRecordError, match="line 1: the header has column 'b' more than once"):
        read_source(source(path, CsvFormat()))
    assert read_source(source(path, CsvFormat(["a"]))).all_values == [{"a": "1"}]


def test_long_records_are_shortened_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.csv"
    path.write_text("a,b\n1,2\n" + "x" * 5000)
    with pytest.raises(MalformedRecordError) as caught:
        read_source(source(path, CsvFormat()))
    assert len(caught.value.excerpt) == 200
    monkeypatch.setattr("penstock.connectors.file.reader.RECORD_BYTES_MAX", 1000)
    monkeypatch.setattr("penstock.connectors.file.reader.BLOCK_BYTES", 100)
    path.write_text("1\n" + "x" * 600_000)
    with pytest.raises(MalformedRecordError, match="line 2: the record exceeds 1000 bytes"):
        read_source(source(path, TextLineFormat()))


def test_broken_parquet_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "file.parquet").write_bytes(b"PAR1 no PAR1")
    with pytest.raises(FormatError, match=r"file\.parquet: not a Parquet file"):
        read_source(FileSource.for_bulk_file_format(ParquetFormat(), tmp_path).build())


def test_settings_that_do_not_fit() -> None:
    with pytest.raises(ConfigurationError, match="needs columns"):
        CsvFormat(header=False)
    with pytest.raises(ConfigurationError, match="one character"):
        CsvFormat(delimiter="||")
    with pytest.raises(ConfigurationError, match="on_error"):
        CsvFormat(on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="skip"):
        CsvFormat(malformed_output=OutputTag("bad"))
    with pytest.raises(ConfigurationError, match="UTF-8"):
        CsvFormat(charset="utf-16")
    with pytest.raises(ConfigurationError, match="column 'a'"):
        CsvFormat({"a": Types.MAP(Types.STRING(), Types.STRING())})
