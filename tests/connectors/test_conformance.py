"""Sources and sinks that need no server keep the rules of connectors, by the kit of `penstock.testing.connectors`."""

from __future__ import annotations

import select
import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from penstock.base.typeinfo import Types
from penstock.codecs.serialization import Encoder
from penstock.connectors.collect import CollectedRecords, CollectSink, DiscardingSink, PrintSink
from penstock.connectors.collection import CollectionSource
from penstock.connectors.file.buckets import BucketAssigner
from penstock.connectors.file.compaction import FileCompactor, FileCompactStrategy
from penstock.connectors.file.sink import FileSink
from penstock.connectors.file.source import FileSource
from penstock.connectors.nexmark import NexmarkSource
from penstock.connectors.socket_text import SocketTextSource
from penstock.connectors.split_reader import DataGeneratorSource, NumberSequenceSource, RateLimiterStrategy
from penstock.datastream.connectors.hybrid_source import HybridSource
from penstock.formats.csv import CsvFormat, CsvWriterFactory
from penstock.formats.file_format import StreamFormat
from penstock.formats.parquet import ParquetFormat, ParquetWriterFactory
from penstock.testing import Record
from penstock.testing.connectors import (
    SINK_CASES,
    SOURCE_CASES,
    SinkHost,
    SinkUnderTest,
    SourceUnderTest,
    check_sink,
    check_source,
)

BASE = BucketAssigner.base_path_bucket_assigner()


def double(index: int) -> int:
    return 2 * index


def times(index: int) -> int:
    return 1000 * index


def hybrid() -> SourceUnderTest:
    parts = HybridSource.builder(NumberSequenceSource(0, 9)).add_source(DataGeneratorSource(double, 8))
    source = parts.add_source(NumberSequenceSource(200, 206)).build()
    return SourceUnderTest(source, [*range(10), *range(0, 16, 2), *range(200, 207)])


EVENTS = NexmarkSource(50, seed=3).chunk(0).values
DOUBLES = [Record(2 * i, 1000 * i) for i in range(17)]
SOURCES: dict[str, Callable[[], SourceUnderTest]] = {
    "collection": lambda: SourceUnderTest(CollectionSource("abcdefghij"), "abcdefghij", order_of=lambda _: 0),
    "numbers": lambda: SourceUnderTest(NumberSequenceSource(-5, 20), range(-5, 21)),
    "nothing": lambda: SourceUnderTest(CollectionSource([]), []),
    "one number": lambda: SourceUnderTest(NumberSequenceSource(7, 7), [7]),
    "nothing generated": lambda: SourceUnderTest(DataGeneratorSource(double, 0), []),
    "generator": lambda: SourceUnderTest(DataGeneratorSource(double, 17, timestamps=times), DOUBLES),
    "rate limited": lambda: SourceUnderTest(DataGeneratorSource(double, 17, 100), range(0, 34, 2)),
    "limited by checkpoints": lambda: SourceUnderTest(
        DataGeneratorSource(double, 17, rate_limiter_strategy=RateLimiterStrategy.per_checkpoint(60)), range(0, 34, 2)
    ),
    "nexmark": lambda: SourceUnderTest(NexmarkSource(50, seed=3), EVENTS),
    "hybrid": hybrid,
}


@pytest.mark.parametrize("case", SOURCE_CASES)
@pytest.mark.parametrize("name", SOURCES)
def test_sources_that_make_their_records(name: str, case: str) -> None:
    check_source(SOURCES[name], case)


# --- files ----------------------------------------------------------------------------------------------------------

LINES = [f"{name} {number:03}" for name in "abc" for number in range(9)]
COLUMNS = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in "abc":
        lines = [line for line in LINES if line.startswith(name)]
        (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


@pytest.mark.parametrize("case", SOURCE_CASES)
@pytest.mark.parametrize("split_bytes", [None, 20])
def test_lines_of_files(folder: Path, case: str, split_bytes: int | None) -> None:
    def prepare() -> SourceUnderTest:
        builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), folder)
        if split_bytes is not None:
            builder = builder.set_split_size(split_bytes)
        return SourceUnderTest(builder.build(), LINES)

    check_source(prepare, case, places=8)


@pytest.mark.parametrize("case", SOURCE_CASES)
def test_files_that_come_while_a_folder_is_watched(tmp_path: Path, case: str) -> None:
    runs = iter(range(1_000))

    def prepare() -> SourceUnderTest:
        path = tmp_path / str(next(runs))
        path.mkdir()

        def add(name: str) -> None:
            (path / name).write_text("".join(f"{name} {number}\n" for number in range(3)))

        add("a")
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), path)
        return SourceUnderTest(
            source.monitor_continuously(1_000).build(),
            [f"{name} {number}" for name in "abc" for number in range(3)],
            extend=[lambda: add("b"), lambda: add("c")],
            close=lambda: shutil.rmtree(path),
        )

    check_source(prepare, case, places=6)


@pytest.mark.parametrize("case", SOURCE_CASES)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_of_columns(tmp_path: Path, kind: str, case: str) -> None:
    rows = [(number, f"n{number}") for number in range(20)]
    factory: Any = CsvWriterFactory(COLUMNS) if kind == "csv" else ParquetWriterFactory(COLUMNS, row_group_rows=6)
    sink = FileSink.for_bulk_format(tmp_path, factory).with_bucket_assigner(BASE).build()
    write(sink, rows)

    def prepare() -> SourceUnderTest:
        if kind == "csv":
            lines = CsvFormat({"id": int, "name": str}, header=False, as_tuple=True)
            source = FileSource.for_record_stream_format(lines, tmp_path).build()
        else:
            source = FileSource.for_bulk_file_format(ParquetFormat(), tmp_path).build()
        return SourceUnderTest(source, rows, result=lambda values: [as_tuple(value) for value in values])

    check_source(prepare, case, places=8)


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value.values()) if isinstance(value, dict) else tuple(value)


def write(sink: FileSink[Any], rows: list[Any]) -> None:
    writer = sink.create_writer(SinkHost())
    writer.write_batch(rows, None)
    sink.create_committer(SinkHost()).commit(writer.prepare_commit())
    writer.close()


def read_rows(root: Path) -> list[int]:
    files = [path for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return [int(line) for path in files for line in path.read_text().split()]


MERGED = FileCompactStrategy.builder().enable_compaction_on_checkpoint(1).set_num_compact_threads(2).build()


@pytest.mark.parametrize("case", SINK_CASES)
@pytest.mark.parametrize("is_merged", [False, True])
def test_part_files(tmp_path: Path, is_merged: bool, case: str) -> None:
    runs = iter(range(1_000))

    def prepare() -> SinkUnderTest:
        path = tmp_path / str(next(runs))
        builder = FileSink.for_row_format(path, Encoder.simple_string_encoder()).with_bucket_assigner(BASE)
        if is_merged:
            builder.enable_compact(MERGED, FileCompactor.concat_file_compactor())
        return SinkUnderTest(
            builder.build(),
            range(12),
            lambda: read_rows(path),
            leftovers=lambda: [str(one) for one in path.rglob(".*") if one.is_file()],
        )

    check_sink(prepare, case, parallelisms=[1, 2], places=4)


@pytest.mark.parametrize("case", SINK_CASES)
@pytest.mark.parametrize("is_merged", [False, True])
def test_bulk_files_in_a_file_system_that_is_not_local(is_merged: bool, case: str) -> None:
    runs = iter(range(1_000))
    system = fsspec.filesystem("memory")

    def prepare() -> SinkUnderTest:
        path = f"memory://conformance-{case}-{is_merged}-{next(runs)}"

        def read() -> list[Any]:
            files = [name for name in system.find(path) if not name.rpartition("/")[2].startswith(".")]
            return [int(line) for name in files for line in system.cat_file(name).decode().split()]

        factory = CsvWriterFactory(Types.ROW_NAMED(["id"], [Types.LONG()]))
        builder = FileSink.for_bulk_format(path, factory).with_bucket_assigner(BASE)
        if is_merged:
            builder.enable_compact(MERGED, FileCompactor.format_file_compactor())
        return SinkUnderTest(
            builder.build(),
            [(number,) for number in range(12)],
            lambda: [(number,) for number in read()],
            close=lambda: system.rm(path, recursive=True) if system.exists(path) else None,
        )

    check_sink(prepare, case, parallelisms=[1, 2], places=6)


# --- sinks at the client --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", SINK_CASES)
@pytest.mark.parametrize("immediate", [False, True])
def test_collecting(case: str, immediate: bool) -> None:
    def prepare() -> SinkUnderTest:
        client, seen = CollectedRecords(), list[int]()
        return SinkUnderTest(
            CollectSink(immediate), range(24), lambda: seen, client=lambda _, frame: seen.extend(client.take(frame))
        )

    check_sink(prepare, case)


@pytest.mark.parametrize("case", SINK_CASES)
def test_printing_and_discarding(case: str) -> None:
    def printing() -> SinkUnderTest:
        seen: list[int] = []

        def take(_: int, lines: bytes) -> None:
            seen.extend(int(line.rpartition(b" ")[2]) for line in lines.splitlines())

        return SinkUnderTest(PrintSink(), range(24), lambda: seen, client=take)

    check_sink(printing, case)
    check_sink(lambda: SinkUnderTest(DiscardingSink(), range(24), list, shown=lambda _: []), case)


# --- a source that cannot be replayed -------------------------------------------------------------------------------


class LineServer:
    """Sends the same lines to whoever connects, and hangs up."""

    def __init__(self, lines: list[str]) -> None:
        self._data = "".join(f"{line}\n" for line in lines).encode()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while self._stopped not in select.select([self._listener, self._stopped], [], [])[0]:
            connection, _ = self._listener.accept()
            with connection:
                connection.sendall(self._data)

    def close(self) -> None:
        self._stop.send(b"x")
        self._thread.join()
        for one in (self._listener, self._stop, self._stopped):
            one.close()


@pytest.mark.parametrize("case", SOURCE_CASES)
def test_text_from_a_socket(case: str) -> None:
    lines = ["one", "two", "three"]

    def prepare() -> SourceUnderTest:
        server = LineServer(lines)
        return SourceUnderTest(
            SocketTextSource("127.0.0.1", server.port),
            lines,
            result=lambda values: list(dict.fromkeys(values)),  # a server that sends again after a restart
            real_time=True,
            restarts_lose=True,
            close=server.close,
        )

    check_source(prepare, case, places=6, batch_sizes=[2])
