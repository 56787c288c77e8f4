"""Readers of columns say from which message, or from which line of a file, each record is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.table.connectors.tables import build_reader

from penstock.connectors.file.reader import FileSourceReader, FileSplit
from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.connectors.kafka.records import KafkaRecords
from penstock.runtime.columns import ColumnBatch, SplitColumnBatch, describe_origin
from penstock.runtime.connector import InputStatus, SplitBatch
from penstock.runtime.records import Batch
from penstock.sql.connectors.built_in import built_in
from penstock.testing.connectors import ReaderHost

CSV = "'connector' = 'filesystem', 'format' = 'csv', 'csv.ignore-parse-errors' = 'true'"
JSON = "'connector' = 'filesystem', 'format' = 'json', 'json.ignore-parse-errors' = 'true'"
#: blank lines, a byte order mark, records that are skipped, and one that goes over three lines
CSV_LINES = b'\xef\xbb\xbf1,a\n\n2,b\n3,"c\nc\nc"\n4,d,x\n5,e\n\n6,"f""f"\r\n7,g'
CSV_ORIGINS = {1: 1, 2: 3, 3: 4, 5: 8, 6: 10, 7: 11}
JSON_LINES = b'{"id": 1}\n\n{"id": 2}\nno json\n[]\n{"id": 3}\r\n{"id": 4}\n  \n{"id": 5}'
JSON_ORIGINS = {1: 1, 2: 3, 3: 6, 4: 7, 5: 9}


def format_of(path: Path, options: str) -> Any:
    """What reads the files of a table `t (id INT, t STRING)`."""
    ddl = f"CREATE TABLE t (id INT, t STRING) WITH ('path' = '{path}', {options})"
    return build_reader(ddl, built_in()).source._format


def batches(reader: FileSourceReader) -> list[ColumnBatch]:
    """All batches, each with its origin."""
    found = []
    while (batch := reader.poll_next(1 << 16)) is not InputStatus.NOTHING_AVAILABLE:
        assert isinstance(batch, ColumnBatch)
        found.append(batch)
    return found


def origins(found: list[ColumnBatch]) -> dict[int, str]:
    """Where each record is from, by its id; asked when everything has been read."""
    return {
        key: describe_origin(batch, row)
        for batch in found
        for row, key in enumerate(batch.columns.column("id").to_pylist())
    }


def reader_over(path: Path, file_format: Any, splits: list[FileSplit], block_bytes: int) -> FileSourceReader:
    reader = FileSourceReader(ReaderHost(), file_format, block_bytes)
    reader.add_splits(splits)
    return reader


@pytest.mark.parametrize("block_bytes", [1, 7, 20, 1 << 16])
@pytest.mark.parametrize(
    ("options", "content", "lines"), [(CSV, CSV_LINES, CSV_ORIGINS), (JSON, JSON_LINES, JSON_ORIGINS)]
)
def test_record_of_a_file_of_lines_has_its_line(
    tmp_path: Path, block_bytes: int, options: str, content: bytes, lines: dict[int, int]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    splits = [FileSplit(str(path), 0, None)]
    found = batches(reader_over(path, format_of(path, options), splits, block_bytes))
    assert origins(found) == {key: f"at {path}, line {line}" for key, line in lines.items()}


def test_records_after_a_restore_and_of_later_parts_of_a_file_have_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(JSON_LINES)
    file_format = format_of(path, JSON)
    middle = JSON_LINES.index(b"[]")
    splits = [FileSplit(str(path), 0, middle), FileSplit(str(path), middle, len(JSON_LINES))]
    expected = {key: f"at {path}, line {line}" for key, line in JSON_ORIGINS.items()}
    assert origins(batches(reader_over(path, file_format, splits, 1 << 16))) == expected
    restored = replace(splits[1], offset=JSON_LINES.index(b'{"id": 3}'), skip_records=1)
    assert origins(batches(reader_over(path, file_format, [restored], 1 << 16))) == {4: expected[4], 5: expected[5]}


def test_record_of_parquet_has_its_number_and_row_group(tmp_path: Path) -> None:
    path = tmp_path / "file"
    rows = {"id": pa.array([1, 2, 3], pa.int32()), "t": pa.array(["a", "b", "c"])}
    pq.write_table(pa.table(rows), path, row_group_size=2)
    file_format = format_of(path, "'connector' = 'filesystem', 'format' = 'parquet'")
    found = batches(reader_over(path, file_format, [FileSplit(str(path), 0, None)], 1))
    assert origins(found) == {
        1: f"at {path}, record 1",
        2: f"at {path}, record 2",
        3: f"at {path}, record 1 of block 2",
    }


def test_batch_without_origin_knows_its_split() -> None:
    columns = pa.record_batch({"id": [1]})
    assert describe_origin(SplitColumnBatch(ColumnBatch(columns), "orders-0"), 0) == "of split orders-0"
    assert describe_origin(SplitBatch([1], None, "orders-0"), 0) == "of split orders-0"
    assert describe_origin(ColumnBatch(columns), 0) == describe_origin(Batch([1]), 0) == ""


class _Message:
    """A message of Kafka's client, as far as its offset goes."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset


def test_offsets_without_gaps_are_a_range() -> None:
    def positions(*offsets: int) -> Any:
        records = KafkaRecords(KafkaTopicPartition("t", 0), [_Message(one) for one in offsets])  # type: ignore[misc]
        records._of = _Message  # type: ignore[assignment]
        return records.positions()

    assert positions(5, 6, 7) == range(5, 8)
    assert positions(5, 7, 8) == [5, 7, 8]
