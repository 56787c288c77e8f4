"""Part files in S3 are uploads to their final keys, which a commit completes: nothing is copied (G9)."""

from __future__ import annotations

import gc
import io
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
from tests.connectors.test_file_sink import COLUMNS, ROWS
from tests.servers.s3 import S3Server

from penstock.common import Encoder
from penstock.connectors.file.buckets import BucketAssigner
from penstock.connectors.file.committer import CommitError, FileCommitter
from penstock.connectors.file.compaction import FileCompactor, FileCompactStrategy
from penstock.connectors.file.sink import FileSink
from penstock.formats.parquet import ParquetWriterFactory
from penstock.testing.connectors import SINK_CASES, SinkHost, SinkUnderTest, check_sink

pytestmark = pytest.mark.slow

LARGE = "x" * (1 << 20)


@pytest.fixture
def base(s3: S3Server) -> str:
    return f"{s3.new_bucket()}/out"


def lines_sink(base: str) -> FileSink[Any]:
    builder = FileSink.for_row_format(base, Encoder.simple_string_encoder())
    return builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()


def objects(base: str) -> list[str]:
    fs, root = fsspec.core.url_to_fs(base)
    fs.invalidate_cache()
    return sorted(path.removeprefix(f"{root}/") for path in fs.find(root))


def visible(base: str) -> list[str]:
    return [name for name in objects(base) if not name.startswith(".")]


def uploads(base: str) -> list[str]:
    fs, root = fsspec.core.url_to_fs(base)
    listed = fs.call_s3("list_multipart_uploads", Bucket=root.partition("/")[0])
    return [upload["Key"] for upload in listed.get("Uploads", [])]


@pytest.mark.parametrize("text", ["a", LARGE], ids=["small", "in several parts"])
def test_a_part_is_seen_when_it_is_committed(base: str, text: str) -> None:
    writer = lines_sink(base).create_writer(SinkHost())
    for _ in range(12):
        writer.write_batch([text], None)
    (committable,) = writer.prepare_commit()
    assert visible(base) == []
    assert len(uploads(base)) == 1
    for _ in range(2):  # a commit that is done again changes nothing
        FileCommitter().commit([committable])
        assert fsspec.filesystem("s3").cat_file(committable.final_path) == f"{text}\n".encode() * 12
    assert objects(base) == visible(base)
    assert uploads(base) == []


def test_nothing_is_copied(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = lines_sink(base).create_writer(SinkHost())
    writer.write_batch(["a"], None)
    committables = writer.prepare_commit()
    for name in ("mv", "copy", "cp_file"):
        monkeypatch.setattr(fsspec.filesystem("s3"), name, None)
    FileCommitter().commit(committables)
    assert len(visible(base)) == 1


def test_an_answer_that_was_lost(base: str) -> None:
    """S3 has completed the upload, and the task died before it heard of that."""
    writer = lines_sink(base).create_writer(SinkHost())
    writer.write_batch(["a"], None)
    (committable,) = writer.prepare_commit()
    fs = fsspec.filesystem("s3")
    hidden = fs.cat_file(committable.hidden_path)
    FileCommitter().commit([committable])
    fs.pipe_file(committable.hidden_path, hidden)
    FileCommitter().recommit([committable])
    assert objects(base) == visible(base)


def test_what_an_attempt_left_is_aborted(base: str) -> None:
    """An upload that no snapshot names goes with the hidden object that names it."""
    sink = lines_sink(base)
    failed = sink.create_writer(SinkHost())
    failed.write_batch(["a"], None)
    failed.prepare_commit()
    sink.create_writer(SinkHost(attempt=1))
    assert objects(base) == []
    assert uploads(base) == []


def test_files_that_are_merged_are_objects_until_then(base: str) -> None:
    """Nobody could read an upload."""
    builder = FileSink.for_row_format(base, Encoder.simple_string_encoder())
    builder = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(1).build()
    sink = builder.enable_compact(strategy, FileCompactor.concat_file_compactor()).build()
    coordinator = sink.create_commit_coordinator(SinkHost(), [])
    assert coordinator is not None
    for index in range(2):
        writer = sink.create_writer(SinkHost(index, 2))
        writer.write_batch([LARGE] * 6, None)
        coordinator.write_batch(writer.prepare_commit(), None)
    assert visible(base) == uploads(base) == []
    committables = coordinator.prepare_commit()
    for _ in range(2):  # a commit that is done again changes nothing
        sink.create_committer(SinkHost()).recommit(committables)
        (name,) = visible(base)
        assert fsspec.filesystem("s3").cat_file(f"{base}/{name}") == f"{LARGE}\n".encode() * 12
    assert objects(base) == visible(base)
    assert uploads(base) == []


def test_a_writer_that_is_closed_leaves_no_upload(base: str) -> None:
    writer = lines_sink(base).create_writer(SinkHost())
    for _ in range(12):
        writer.write_batch([LARGE], None)
    assert len(uploads(base)) == 1
    writer.close()
    assert uploads(base) == objects(base) == []


def test_an_upload_that_is_gone_is_an_error(base: str) -> None:
    """A rule of the bucket removes incomplete uploads: where the job stood still for longer, rows are lost."""
    writer = lines_sink(base).create_writer(SinkHost())
    writer.write_batch(["a"], None)
    committables = writer.prepare_commit()
    fsspec.filesystem("s3").clear_multipart_uploads(base.removeprefix("s3://").partition("/")[0])
    for commit in (FileCommitter().commit, FileCommitter().recommit):
        with pytest.raises(CommitError, match=r"S3 has no upload .* its rows are lost: start from"):
            commit(committables)


# The open files of writers that were killed, which a process would take along with itself.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("case", SINK_CASES)
def test_the_sink_keeps_the_rules(s3: S3Server, case: str) -> None:
    def prepare() -> SinkUnderTest:
        base = f"{s3.new_bucket()}/out"
        root = base.removeprefix("s3://")

        def read() -> list[int]:
            fs = fsspec.filesystem("s3")
            return [int(line) for name in visible(base) for line in fs.cat_file(f"{root}/{name}").split()]

        def hidden() -> list[str]:
            return [*uploads(base), *(name for name in objects(base) if name.startswith("."))]

        return SinkUnderTest(lines_sink(base), range(6), read, leftovers=hidden)

    check_sink(prepare, case, parallelisms=[2], places=2)
    gc.collect()


def test_bulk_formats(base: str) -> None:
    builder = FileSink.for_bulk_format(base, ParquetWriterFactory(COLUMNS))
    sink = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    writer = sink.create_writer(SinkHost())
    writer.write_batch(ROWS, None)
    (committable,) = writer.prepare_commit()
    FileCommitter().commit([committable])
    table = pq.read_table(io.BytesIO(fsspec.filesystem("s3").cat_file(committable.final_path)))
    assert [tuple(row.values()) for row in table.to_pylist()] == ROWS
