"""Files are merged before they are visible, and partitions committed, exactly once wherever the job is killed (G9)."""

from __future__ import annotations

import io
import pickle
import random
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from penstock.base.errors import ConfigurationError, FormatError, OperationError
from penstock.base.typeinfo import Types
from penstock.codecs.serialization import Encoder
from penstock.connectors.file import commit_coordinator, compaction, filesystem, part_files
from penstock.connectors.file.buckets import BucketAssigner
from penstock.connectors.file.commit_coordinator import (
    CompletePartition,
    CoordinatedCommitter,
    FileCommitCoordinator,
    PartitionCommit,
    PartitionTime,
    SuccessFilePolicy,
    WriterProgress,
)
from penstock.connectors.file.committer import CommitError, FileCommittable
from penstock.connectors.file.compaction import FileCompactor, FileCompactStrategy, MergedFile
from penstock.connectors.file.sink import FileSink
from penstock.formats.avro import AvroFileFormat, AvroSchema, AvroWriterFactory
from penstock.formats.parquet import ParquetWriterFactory
from penstock.runtime.records import MAX_WATERMARK
from penstock.testing.connectors import SinkHost


class Killed(BaseException):
    """The process dies."""


class Hours(PartitionTime):
    """`h=3` is the partition of the hour 3."""

    def get_time_ms(self, bucket_id: str) -> int:
        return 3_600_000 * int(bucket_id.partition("=")[2])


def bucket_of(value: int) -> str:
    return f"h={value % 3}"


def make_sink(path: Path | str, strategy: FileCompactStrategy | None, commit: PartitionCommit | None) -> FileSink[Any]:
    builder = FileSink.for_row_format(path, Encoder.simple_string_encoder())
    builder = builder.with_bucket_assigner(BucketAssigner.by(bucket_of))
    if strategy is not None:
        builder.enable_compact(strategy, FileCompactor.concat_file_compactor())
    sink = builder.build()
    return FileSink(
        sink._base_path,
        sink._encoding,
        sink._bucket_assigner,
        sink._rolling_policy,
        sink._file_config,
        compaction=sink._compaction,
        partition_commit=commit,
    )


class Job:
    """Attempts of a job whose every step may be its last; `checkpoint` is what the next attempt starts from."""

    def __init__(self, sink: FileSink[Any], records: int, chance: random.Random, deaths: set[int]) -> None:
        self.sink, self.records, self.chance, self.deaths = sink, records, chance, deaths
        self.steps = 0
        self.attempt = 0
        self.job_ids = ["job 0"]
        self.checkpoint: tuple[int, int, list[Any], list[Any], list[Any]] = (0, 0, [], [], [])

    def step(self) -> None:
        self.steps += 1
        if self.steps in self.deaths:
            raise Killed

    def run(self) -> None:
        while True:
            try:
                self._run(self.chance.randint(1, 3))
                return
            except Killed:
                self.attempt += 1
                if self.chance.random() < 0.3:  # another job continues from the checkpoint
                    self.job_ids.append(f"job {len(self.job_ids)}")
                    self.attempt = 0

    def make_host(self, index: int, parallelism: int, restored_id: int) -> SinkHost:
        host = SinkHost(index, parallelism, self.attempt, self.job_ids[-1], restored=restored_id or None)
        host.forerunners = tuple(self.job_ids[:-1])
        return host

    def _run(self, parallelism: int) -> None:
        restored_id, position, states, prepared, waiting = pickle.loads(pickle.dumps(self.checkpoint))
        hosts = [self.make_host(index, parallelism, restored_id) for index in range(parallelism)]
        committer = self.sink.create_committer(hosts[0])
        if prepared:
            self.step()
            committer.recommit(prepared)
        coordinator = self.sink.create_commit_coordinator(hosts[0], waiting)
        assert coordinator is not None
        writers = [self.sink.restore_writer(host, states[host.subtask_index :: parallelism]) for host in hosts]
        checkpoint_id, pending = restored_id, []
        while True:
            for writer in writers:
                self.step()
                values = list(range(position, min(position + self.chance.randint(0, 4), self.records)))
                if values:
                    writer.write_batch(values, None)
                    writer.write_watermark(values[-1] * 60_000)
                position += len(values)
            is_last = position == self.records
            checkpoint_id += 1
            self.step()
            new = []
            for writer in writers:
                writer.flush(is_last)
                new += writer.prepare_commit()
            coordinator.write_batch(new, None)
            coordinator.flush(is_last)
            pending += coordinator.prepare_commit()
            states = [item for writer in writers for item in writer.snapshot_state(checkpoint_id)]
            snapshot = (checkpoint_id, position, states, list(pending), coordinator.snapshot_state(checkpoint_id))
            if not is_last and self.chance.random() < 0.25:
                continue  # the checkpoint fails; the next has its committables
            self.step()
            self.checkpoint = snapshot
            self.step()
            committer.commit(pending)
            pending = []
            for job_id in self.job_ids[:-1]:
                self.step()
                self.sink.create_committer(SinkHost(job_id=job_id)).end_job()
            if is_last:
                for writer in (*writers, coordinator):
                    writer.close()
                committer.close()
                return


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Lets a job die between any two changes of files that a commit makes."""
    jobs: list[Job] = []

    def dying(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            for job in jobs:
                job.step()
            return function(*args, **kwargs)

        return call

    for name in ("rename", "close_durably", "create_held", "write_whole", "sync_names"):
        monkeypatch.setattr(commit_coordinator, name, dying(getattr(commit_coordinator, name)))
    remove_one = dying(filesystem.remove)
    monkeypatch.setattr(part_files, "remove", lambda paths: [remove_one([path]) for path in paths])
    return jobs


def read_visible(path: Path) -> list[int]:
    files = [file for file in path.rglob("*") if file.is_file() and not file.name.startswith((".", "_"))]
    return sorted(int(line) for file in files for line in file.read_text().split())


def find_hidden(path: Path) -> list[str]:
    return [file.name for file in path.rglob(".*") if file.is_file()]


def run_randomly(path: Path, seed: int, jobs: list[Job]) -> Job:
    chance = random.Random(seed)
    strategy = FileCompactStrategy(
        chance.choice([1, 2, 4, None]), chance.choice([None, 20, 100]) or 60, target_bytes=chance.choice([None, 12])
    )
    commit = PartitionCommit((SuccessFilePolicy(),), chance.choice([0, 10]), chance.choice([None, Hours()]))
    sink = make_sink(path, chance.choice([strategy, strategy, None]), chance.choice([commit, commit, None]))
    if not sink.commits_globally:
        sink = make_sink(path, strategy, commit)
    deaths = set(chance.sample(range(1, 400), chance.randint(0, 30)))
    job = Job(sink, chance.randint(1, 80), chance, deaths)
    jobs[:] = [job]
    job.run()
    jobs.clear()
    return job


def check(path: Path, job: Job, seed: int) -> None:
    assert read_visible(path) == list(range(job.records)), f"seed {seed}"
    assert not find_hidden(path), f"seed {seed}"
    if job.sink._partition_commit is not None:
        buckets = {bucket_of(value) for value in range(job.records)}
        assert {file.parent.name for file in path.rglob("_SUCCESS")} == buckets, f"seed {seed}"


def test_each_row_is_visible_once_wherever_the_job_is_killed(tmp_path: Path, killing: list[Job]) -> None:
    run_many(tmp_path, killing, 40)


def test_a_job_that_dies_at_its_end_leaves_no_pins_of_savepoints(tmp_path: Path, killing: list[Job]) -> None:
    seed = 2248431108  # dies between the commits of its last files, with savepoints of earlier attempts
    check(tmp_path, run_randomly(tmp_path, seed, killing), seed)


def run_many(path: Path, killing: list[Job], count: int) -> None:
    for number in range(count):
        seed = random.SystemRandom().randrange(1 << 32)
        print("seed", seed)
        check(path / str(number), run_randomly(path / str(number), seed, killing), seed)


def _without_inputs(self: Any, item: MergedFile) -> None:
    part_files.discard(file.hidden_path for file in item.inputs)


MUTANTS = {
    "inputs are removed before the merged file is there": ("_write_merged", _without_inputs),
    "what waits in the directory of a former job is not protected": ("_is_own", lambda self, directory: True),
    "what waits is not in the state": (
        "snapshot_state",
        lambda self, checkpoint_id: [{"partitions": dict(self._partitions)}],
    ),
    "a merged file is committed again although its inputs are gone": (
        "_merge",
        lambda self, item, is_first: self._write_merged(item),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_the_random_job_finds_planted_bugs(
    tmp_path: Path, killing: list[Job], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    attribute, replacement = MUTANTS[name]
    owner = FileCommitCoordinator if hasattr(FileCommitCoordinator, attribute) else CoordinatedCommitter
    monkeypatch.setattr(owner, attribute, replacement)
    with pytest.raises((AssertionError, CommitError, OSError)):
        run_many(tmp_path, killing, 200)


# --- the coordinator ------------------------------------------------------------------------------------------------


def file(name: str, size_bytes: int = 10) -> FileCommittable:
    return FileCommittable(f"/base/.penstock/s/.{name.rpartition('/')[2]}.closed.0-0-0", f"/base/{name}", size_bytes)


def coordinate(strategy: FileCompactStrategy | None, commit: PartitionCommit | None = None) -> FileCommitCoordinator:
    merged = None if strategy is None else compaction.Compaction(strategy, FileCompactor.concat_file_compactor())
    return FileCommitCoordinator(SinkHost(), "/base", merged, commit)


def test_files_wait_for_their_number_of_checkpoints_bucket_by_bucket() -> None:
    coordinator = coordinate(FileCompactStrategy(checkpoints=2))
    coordinator.write_batch([file("a/1")], None)
    assert coordinator.prepare_commit() == []
    coordinator.write_batch([file("a/2"), file("b/3")], None)
    assert coordinator.prepare_commit() == [MergedFile((file("a/1"), file("a/2")))]
    coordinator.write_batch([file("a/4")], None)
    assert coordinator.prepare_commit() == [file("b/3")]  # a single file needs no merging


def test_files_are_merged_once_they_are_large_enough() -> None:
    coordinator = coordinate(FileCompactStrategy(size_threshold=25))
    coordinator.write_batch([file("1"), file("2")], None)
    assert coordinator.prepare_commit() == []
    coordinator.write_batch([file("3")], None)
    assert coordinator.prepare_commit() == [MergedFile((file("1"), file("2"), file("3")))]


def test_merged_files_do_not_exceed_the_target_unless_one_file_does() -> None:
    coordinator = coordinate(FileCompactStrategy(checkpoints=1, target_bytes=25))
    coordinator.write_batch([file("1"), file("2"), file("3"), file("4", 90)], None)
    assert coordinator.prepare_commit() == [MergedFile((file("1"), file("2"))), file("3"), file("4", 90)]


def test_the_end_of_the_input_merges_all() -> None:
    coordinator = coordinate(FileCompactStrategy(checkpoints=9))
    coordinator.write_batch([file("1"), file("2")], None)
    coordinator.flush(True)
    assert coordinator.prepare_commit() == [MergedFile((file("1"), file("2")))]


def test_a_partition_is_complete_when_the_watermarks_of_all_writers_have_passed_its_time() -> None:
    coordinator = coordinate(None, PartitionCommit((), 1000, Hours()))
    coordinator.write_batch([file("h=1/1"), WriterProgress(0, 2, 4_000_000)], None)
    assert coordinator.prepare_commit() == [file("h=1/1")]  # subtask 1 has not reported
    coordinator.write_batch([WriterProgress(1, 2, 3_601_000)], None)
    assert coordinator.prepare_commit() == []
    coordinator.write_batch([WriterProgress(1, 2, 3_601_001)], None)
    assert coordinator.prepare_commit() == [CompletePartition("h=1")]
    coordinator.write_batch([file("h=1/2")], None)
    assert coordinator.prepare_commit() == [file("h=1/2"), CompletePartition("h=1")]  # late rows: again


def test_reports_of_another_parallelism_do_not_count() -> None:
    coordinator = coordinate(None, PartitionCommit((), 0, Hours()))
    coordinator.write_batch([file("h=1/1"), WriterProgress(0, 1, 0), WriterProgress(0, 2, MAX_WATERMARK)], None)
    assert CompletePartition("h=1") not in coordinator.prepare_commit()
    restored = FileCommitCoordinator(
        SinkHost(), "/base", None, PartitionCommit((), 0, Hours()), coordinator.snapshot_state(1)
    )
    restored.write_batch([WriterProgress(1, 2, MAX_WATERMARK)], None)
    assert restored.prepare_commit() == [CompletePartition("h=1")]


def test_a_partition_is_complete_a_while_after_its_first_file() -> None:
    host = SinkHost()
    coordinator = FileCommitCoordinator(host, "/base", None, PartitionCommit((), 1000))
    coordinator.write_batch([file("h=1/1")], None)
    assert coordinator.prepare_commit() == [file("h=1/1")]
    host.now += 1001
    coordinator.write_batch([file("h=2/1")], None)
    assert coordinator.prepare_commit() == [file("h=2/1"), CompletePartition("h=1")]


def test_files_that_wait_are_merged_before_their_partition_is_complete() -> None:
    coordinator = coordinate(FileCompactStrategy(checkpoints=9), PartitionCommit((), 0))
    coordinator.write_batch([file("h=1/1"), file("h=1/2")], None)
    assert coordinator.prepare_commit() == [MergedFile((file("h=1/1"), file("h=1/2"))), CompletePartition("h=1")]


# --- formats --------------------------------------------------------------------------------------------------------


def merge(files: list[bytes]) -> bytes:
    output = io.BytesIO()
    FileCompactor.format_file_compactor().compact([io.BytesIO(data) for data in files], output)
    return output.getvalue()


def test_parquet_files_keep_rows_columns_and_compression(tmp_path: Path) -> None:
    factory = ParquetWriterFactory(
        Types.ROW_NAMED(["n", "t"], [Types.LONG(), Types.LIST(Types.STRING())]), compression="zstd"
    )
    files = []
    for start in (0, 10):
        stream = io.BytesIO()
        writer = factory.create(stream)
        writer.add_elements([(n, [str(n), None] if n % 2 else None) for n in range(start, start + 10)])
        writer.finish()
        files.append(stream.getvalue())
    merged = pq.ParquetFile(io.BytesIO(merge(files)))
    assert merged.schema_arrow == pq.ParquetFile(io.BytesIO(files[0])).schema_arrow
    assert merged.metadata.row_group(0).column(0).compression == "ZSTD"
    expected = pa.concat_tables([pq.read_table(io.BytesIO(data)) for data in files])
    assert merged.read().equals(expected)


def test_orc_files_keep_rows() -> None:
    tables = [pa.table({"n": pa.array([1, None, 3]), "s": ["a", "b", None]}), pa.table({"n": [4], "s": ["d"]})]
    files = []
    for table in tables:
        stream = io.BytesIO()
        orc.write_table(table, stream, compression="zstd")
        files.append(stream.getvalue())
    merged = orc.ORCFile(io.BytesIO(merge(files)))
    assert merged.read().equals(pa.concat_tables(tables))
    assert merged.compression == "ZSTD"


def write_avro(schema: str, records: list[Any], codec: Any) -> bytes:
    stream = io.BytesIO()
    writer = AvroWriterFactory(AvroSchema.parse_string(schema), codec).create(stream)
    writer.add_elements(records)
    writer.finish()
    return stream.getvalue()


def test_avro_files_keep_records_and_different_schemas_are_refused() -> None:
    schema = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}'
    files = [write_avro(schema, [{"n": n} for n in range(start, start + 5)], "deflate") for start in (0, 5)]
    opened = AvroFileFormat().open(io.BytesIO(merge(files)))
    assert [row[0] for unit in opened.units(0, None) for rows in opened.read(unit, 0) for row in rows] == [*range(10)]
    with pytest.raises(FormatError, match="different headers"):
        merge([files[0], write_avro(schema.replace("long", "int"), [{"n": 1}], "deflate")])


def test_other_files_are_concatenated() -> None:
    assert merge([b"1,a\n", b"2,b\n"]) == b"1,a\n2,b\n"


# --- errors ---------------------------------------------------------------------------------------------------------


def test_strategies_without_a_condition_and_sizes_of_nothing_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="never merges"):
        FileCompactStrategy.builder().build()
    with pytest.raises(ConfigurationError, match="at least 1"):
        FileCompactStrategy.builder().set_size_threshold(0)


def committed(path: Path, compactor: FileCompactor) -> None:
    builder = FileSink.for_row_format(path, Encoder.simple_string_encoder())
    builder = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    sink = builder.enable_compact(FileCompactStrategy(checkpoints=1), compactor).build()
    coordinator = sink.create_commit_coordinator(SinkHost(), [])
    assert coordinator is not None
    for index in range(2):
        writer = sink.create_writer(SinkHost(index, 2))
        writer.write_batch([f"row {index}"], None)
        coordinator.write_batch(writer.prepare_commit(), None)
    sink.create_committer(SinkHost()).commit(coordinator.prepare_commit())


class Failing(FileCompactor):
    def compact(self, inputs: Any, output: Any) -> None:
        output.write(b"part of it")
        raise ValueError("no space")


def test_a_compactor_that_fails_leaves_its_inputs_and_nothing_visible(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match=r"2 files cannot be merged into .*compacted-part.*no space"):
        committed(tmp_path, Failing())
    assert len([name for name in find_hidden(tmp_path) if ".closed." in name]) == 2
    assert not [path for path in tmp_path.iterdir() if path.name != ".penstock"]
    with pytest.raises(ConfigurationError, match="a single file, and there are 2"):
        committed(tmp_path / "other", FileCompactor.identical_file_compactor())


def test_files_are_merged_in_a_file_system_that_is_not_local() -> None:
    system = fsspec.filesystem("memory")
    committed("memory://merging", FileCompactor.concat_file_compactor())  # type: ignore[arg-type]
    (name,) = system.find("/merging")
    assert "/compacted-part-" in name
    assert system.cat_file(name) == b"row 0\nrow 1\n"
    system.rm("/merging", recursive=True)
