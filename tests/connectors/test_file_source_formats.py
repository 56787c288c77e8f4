"""Every file format through the file source: fresh, cut small, and restored after every poll."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.base.typeinfo import Types
from penstock.codecs.json_row import JsonRowDeserializationSchema
from penstock.connectors.file.reader import FileSourceReader, FileSplit
from penstock.connectors.file.source import FileSource
from penstock.formats.csv import CsvFormat
from penstock.formats.file_format import StreamFormat
from penstock.formats.json import JsonLinesFormat
from penstock.formats.parquet import ParquetFormat
from penstock.runtime.records import Batch
from penstock.testing.connectors import ReaderHost, read_source

pytestmark = pytest.mark.slow

HUGE = "x" * 400_000

TEXTS: dict[str, bytes] = {
    "plain": b"one\ntwo\nthree\n",
    "no end": b"one\ntwo\nthree",
    "carriage returns": b"one\r\ntwo\r\n\r\nthree\r\n",
    "empty": b"",
    "empty lines": b"\n\n\na\n\n",
    "lone carriage return": b"a\rb\nc\n",
    "unicode": "zwölf\n\u2028x\u0085y\n日本語\n🚰\n".encode(),
    "huge line": f"a\n{HUGE}\nb\n".encode(),
    "huge line last": f"a\n{HUGE}".encode(),
    "many": b"".join(b"line %d\n" % i for i in range(100)),
}


def expected_lines(data: bytes) -> list[str]:
    lines = data.decode().replace("\r\n", "\n").split("\n")
    return lines[:-1] if not lines[-1] else lines


def build_source(path: Path, file_format: Any, split_bytes: int | None) -> FileSource[Any]:
    builder = FileSource.for_record_stream_format(file_format, path)
    return (builder if split_bytes is None else builder.set_split_size(split_bytes)).build()


@pytest.mark.parametrize("batch_size", [1, 2, 7, 1000])
@pytest.mark.parametrize("split_bytes", [None, 3, 11, 100])
@pytest.mark.parametrize("name", sorted(TEXTS))
def test_lines_survive_restore_after_every_poll(
    tmp_path: Path, name: str, split_bytes: int | None, batch_size: int
) -> None:
    """G8: a restored reader goes on behind the last record handed out."""
    data = TEXTS[name]
    if len(data) > 100_000 and split_bytes is not None:
        split_bytes *= 10_000
    path = tmp_path / "file.txt"
    path.write_bytes(data)
    source = build_source(path, StreamFormat.text_line_format(), split_bytes)
    assert read_source(source, batch_size).all_values == expected_lines(data)
    assert read_source(source, batch_size, hostile=True).all_values == expected_lines(data)


CSVS: dict[str, bytes] = {
    "plain": b"a,b,c\n1,2,3\n4,5,6\n",
    "no end": b"a,b,c\r\n1,2,3\r\n4,5,6",
    "header only": b"a,b,c\n",
    "header without end": b"a,b,c",
    "quotes": b'a,b,c\n1,"x,y",3\n"4","say ""hi""",\n',
    "mark": b"\xef\xbb\xbfa,b,c\n1,2,3\n",
    "empty lines": b"a,b,c\n\n1,2,3\n\r\n4,5,6\n\n",
    "unicode": "a,b,c\nä,\u2028,日本\n🚰,,\x0b\n".encode(),
    "huge": f'a,b,c\n1,"{HUGE}",3\n4,5,6\n'.encode(),
    "many": b"a,b,c\n" + b"".join(b'%d,"%d,",%d\n' % (i, i, i) for i in range(50)),
    "empty": b"",
}


def expected_rows(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline="")))


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
@pytest.mark.parametrize("split_bytes", [None, 2, 9, 64])
@pytest.mark.parametrize("name", sorted(CSVS))
def test_csv_agrees_with_python_after_every_restore(
    tmp_path: Path, name: str, split_bytes: int | None, batch_size: int
) -> None:
    """G8: CSV is what Python's csv module reads, wherever the file is cut and whenever the reader is restored."""
    data = CSVS[name]
    if len(data) > 100_000 and split_bytes is not None:
        split_bytes *= 10_000
    path = tmp_path / "file.csv"
    path.write_bytes(data)
    csv.field_size_limit(10**9)
    expected = expected_rows(data)
    for multiline in (False, True):
        source = build_source(path, CsvFormat(multiline=multiline), split_bytes)
        assert read_source(source, batch_size).all_values == expected
        assert read_source(source, batch_size, hostile=True).all_values == expected


MULTILINE = (
    b'a,b\n1,"x\ny"\n"""\n,",2\r\n3,"\r\n"\n' + b"".join(b'%d,"%d\n\n"\n' % (i, i) for i in range(100)) + b'4,"\n"'
)


class SmallBlocks(FileSource[Any]):
    """A source whose readers decode very little at a time."""

    def __init__(self, path: Path, file_format: Any, block_bytes: int) -> None:
        super().__init__(file_format, (str(path),), None, None)
        self.block_bytes = block_bytes

    def create_reader(self, context: Any) -> Any:
        return FileSourceReader(context, self._format, self.block_bytes)


@pytest.mark.parametrize("block_bytes", [1, 5, 64, 1 << 18])
@pytest.mark.parametrize("batch_size", [1, 2, 7, 1000])
def test_line_feeds_in_quotes(tmp_path: Path, batch_size: int, block_bytes: int) -> None:
    """G8: records that span lines, in blocks of any size."""
    path = tmp_path / "file.csv"
    path.write_bytes(MULTILINE)
    source = SmallBlocks(path, CsvFormat(multiline=True), block_bytes)
    assert read_source(source, batch_size, hostile=True).all_values == expected_rows(MULTILINE)


@pytest.mark.parametrize("block_bytes", [1, 5, 64])
def test_a_position_holds_for_blocks_of_another_size(tmp_path: Path, block_bytes: int) -> None:
    """G8: a snapshot taken in large blocks is restored in small ones."""
    path = tmp_path / "file.txt"
    path.write_bytes(TEXTS["many"])
    large = FileSourceReader(ReaderHost(), StreamFormat.text_line_format())
    large.add_splits([FileSplit(str(path), 0, None)])
    first = large.poll_next(123)
    small = FileSourceReader(ReaderHost(), StreamFormat.text_line_format(), block_bytes)
    small.add_splits(large.snapshot_state(1))
    small.no_more_splits()
    large.close()
    assert isinstance(first, Batch)
    values = first.values
    while isinstance(found := small.poll_next(1000), Batch):
        values = values + found.values
    small.close()
    assert values == expected_lines(TEXTS["many"])


def test_json_lines(tmp_path: Path) -> None:
    records: list[Any] = [{"a": i, "ü": [1.5, None, True, "\n"]} for i in range(50)] + [7, "x", None, [1]]
    path = tmp_path / "file.jsonl"
    path.write_text("\n\n".join(json.dumps(record) for record in records) + "\n  \n")
    for split_bytes in (None, 5, 40):
        for batch_size in (1, 7, 1000):
            assert (
                read_source(build_source(path, JsonLinesFormat(), split_bytes), batch_size, hostile=True).all_values
                == records
            )


def test_typed_json_rows(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
    schema = JsonRowDeserializationSchema.builder().type_info(row_type).build()
    path = tmp_path / "file.jsonl"
    path.write_text('{"name": "Ann", "age": 3}\n{"name": "Bob"}\n')
    rows = read_source(build_source(path, JsonLinesFormat(schema), None)).all_values
    assert [(row.name, row.age) for row in rows] == [("Ann", 3), ("Bob", None)]


@pytest.mark.parametrize("split_bytes", [None, 10, 700])
@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_parquet(tmp_path: Path, split_bytes: int | None, batch_size: int) -> None:
    """G8: row groups are shared by splits, and a position within one is found again."""
    table = pa.table(
        {
            "i": pa.array([None if i % 7 == 0 else i for i in range(100)], pa.int64()),
            "t": pa.array([None if i % 5 == 0 else f"t{i}" for i in range(100)]),
            "b": pa.array([None if i % 3 == 0 else i % 2 == 0 for i in range(100)]),
            "l": [[i] for i in range(100)],
        }
    )
    pq.write_table(table, tmp_path / "file.parquet", row_group_size=30)
    pq.write_table(table.slice(0, 0), tmp_path / "none.parquet")
    for file_format, expected in (
        (ParquetFormat(), table.to_pylist()),
        (ParquetFormat(["t", "i"], as_tuple=True), [(row["t"], row["i"]) for row in table.to_pylist()]),
    ):
        builder = FileSource.for_bulk_file_format(file_format, tmp_path)
        source = (builder if split_bytes is None else builder.set_split_size(split_bytes)).build()
        assert read_source(source, batch_size, hostile=True).all_values == expected


def test_compressed_files_are_read_whole(tmp_path: Path) -> None:
    data = CSVS["many"]
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(data))
    with zipfile.ZipFile(tmp_path / "b.csv.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("b.csv", data)
    cluster = read_source(build_source(tmp_path, CsvFormat(), 10), 50, hostile=True)
    assert cluster.all_values == expected_rows(data) * 2


def test_zip_must_hold_one_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "b.csv.zip", "w") as archive:
        archive.writestr("a.csv", "a\n")
        archive.writestr("b.csv", "a\n")
    with pytest.raises(ValueError, match=r"b\.csv\.zip must contain one file, not 2"):
        read_source(build_source(tmp_path, CsvFormat(), None))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=5), min_size=2, max_size=2)
    ),
    split_bytes=st.integers(1, 40),
    batch_size=st.integers(1, 5),
    parallelism=st.integers(1, 3),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_any_csv_by_any_cut(
    tmp_path: Path, rows: list[list[str]], split_bytes: int, batch_size: int, parallelism: int, end: str
) -> None:
    """G8: no cut, batch size or number of readers loses, doubles or changes a row."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=end).writerows([["a", "b"], *rows])
    path = tmp_path / "file.csv"
    path.write_bytes(text.getvalue().encode())
    cluster = read_source(
        build_source(path, CsvFormat(as_tuple=True), split_bytes), batch_size, parallelism, hostile=True
    )
    assert sorted(cluster.all_values) == sorted(map(tuple, rows))
    if parallelism == 1:
        assert cluster.all_values == list(map(tuple, rows))
