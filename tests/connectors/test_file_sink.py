"""The file sink: what is visible is exact, wherever the job is killed."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.connectors.mortal_job import MortalJob

from penstock.base.errors import ConfigurationError, FormatError
from penstock.base.typeinfo import Types
from penstock.codecs.serialization import Encoder, SimpleStringSchema
from penstock.connectors.file.buckets import BucketAssigner, OutputFileConfig, RollingPolicy
from penstock.connectors.file.committer import CommitError, FileCommittable, FileCommitter
from penstock.connectors.file.sink import FileSink
from penstock.connectors.file.source import FileSource
from penstock.formats.csv import CsvFormat, CsvWriterFactory
from penstock.formats.file_format import StreamFormat
from penstock.formats.json import JsonLinesEncoder, JsonLinesFormat
from penstock.formats.parquet import ParquetWriterFactory
from penstock.testing.connectors import SinkHost, read_source

pytestmark = pytest.mark.slow

BASE = BucketAssigner.base_path_bucket_assigner()


def lines_sink(path: Path, policy: RollingPolicy | None = None) -> FileSink[Any]:
    builder = FileSink.for_row_format(path, Encoder.simple_string_encoder()).with_bucket_assigner(BASE)
    sink = builder.with_rolling_policy(policy or RollingPolicy.on_checkpoint_rolling_policy()).build()
    copy: FileSink[Any] = pickle.loads(pickle.dumps(sink))
    return copy


def visible(path: Path) -> list[str]:
    return sorted(
        line
        for file in path.rglob("*")
        if file.is_file() and not file.name.startswith(".")
        for line in file.read_text().splitlines()
    )


def hidden(path: Path) -> list[Path]:
    return [file for file in path.rglob(".*") if file.is_file()]


class Job(MortalJob):
    """Restored committables are committed subtask by subtask, while other subtasks make their writers."""

    def __init__(self, sink: FileSink[Any], records: int, deaths: set[int], parallelisms: list[int]) -> None:
        super().__init__(records, deaths, parallelisms)
        self.sink = sink

    def attempt(self, attempt: int, parallelism: int) -> None:
        restored_id, position, states, committables = pickle.loads(pickle.dumps(self.checkpoint))
        hosts = [SinkHost(i, parallelism, attempt, restored=restored_id or None) for i in range(parallelism)]
        committer = self.sink.create_committer(hosts[0])
        writers = []
        for host in hosts:
            for subtask in range(host.subtask_index, len(committables), parallelism):
                self.step()
                committer.recommit(committables[subtask])
            self.step()
            # State falls to other subtasks than it came from.
            writers.append(
                self.sink.restore_writer(host, states[(host.subtask_index + 1) % parallelism :: parallelism])
            )
        pending: list[list[Any]] = [[] for _ in writers]
        while True:
            for _ in range(3):
                for host, writer in zip(hosts, writers, strict=True):
                    self.step()
                    values = list(range(position, min(position + 2, self.records)))
                    position += len(values)
                    host.now += 10
                    writer.write_batch(values, None)
                if _ == 1:
                    self.savepoints.append(self.snapshot(writers, pending, is_savepoint=True)[1])
            states, _ = self.snapshot(writers, pending, position == self.records)
            self.step()
            self.checkpoint = (self.number, position, states, pending)
            for prepared in pending:
                self.step()
                committer.commit(prepared)
            pending = [[] for _ in writers]
            if position == self.records:
                break
        for writer in writers:
            self.step()
            writer.close()
        committer.close()

    def snapshot(
        self, writers: list[Any], pending: list[list[Any]], ends: bool = False, is_savepoint: bool = False
    ) -> tuple[list[Any], list[Any]]:
        """The states of all writers, and all that is prepared and not committed."""
        self.number += 1
        states = []
        for writer, prepared in zip(writers, pending, strict=True):
            self.step()
            writer.flush(ends)
            prepared += writer.prepare_commit()
            self.step()
            states += writer.snapshot_state(self.number)
            if is_savepoint and prepared:
                self.step()
                writer.pin(self.number, prepared)
        self.step()
        return states, [committable for prepared in pending for committable in prepared]


def check_savepoints(job: Job) -> None:
    """Each can be begun from: what it names is hidden, or visible."""
    strict = FileCommitter(missing="fail")
    before = {path: path.stat().st_mtime_ns for path in Path(job.sink._base_path).glob("part-*")}
    for committables in job.savepoints:
        strict.recommit(committables)
    assert all(path.stat().st_mtime_ns == changed for path, changed in before.items())
    left = hidden(Path(job.sink._base_path))
    pinned = {name for path in left if "pins-" in path.name for name in path.read_text().split("\n")}
    assert {path.name for path in left if "pins-" not in path.name} <= pinned, "of savepoints that were given up"


POLICIES = [
    RollingPolicy.on_checkpoint_rolling_policy(),
    RollingPolicy(part_bytes=5),
    RollingPolicy(rollover_interval_ms=15),
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("parallelisms", [[1], [2], [3, 1, 2]])
def test_a_kill_before_any_call_changes_nothing_visible(
    tmp_path: Path, policy: RollingPolicy, parallelisms: list[int]
) -> None:
    """G9: nothing visible twice, half or not at all, for a kill at each point and at each pair close together."""
    records = 20
    whole = Job(lines_sink(tmp_path / "whole", policy), records, set(), parallelisms)
    whole.run()
    expected = sorted(map(str, range(records)))
    for death in range(1, whole.calls + 1):
        for more in (set(), {death + 5, death + 17}):
            path = tmp_path / f"{death}-{len(more)}-{sum(more)}"
            job = Job(lines_sink(path, policy), records, {death, *more}, parallelisms)
            job.run()
            assert visible(path) == expected
            check_savepoints(job)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    deaths=st.sets(st.integers(1, 150), max_size=25),
    parallelisms=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    records=st.integers(0, 60),
    data=st.data(),
)
def test_any_kills(
    tmp_path_factory: pytest.TempPathFactory,
    deaths: set[int],
    parallelisms: list[int],
    records: int,
    data: st.DataObject,
) -> None:
    """G9: any number of kills, rescaling in between."""
    path = tmp_path_factory.mktemp("any")
    job = Job(lines_sink(path, data.draw(st.sampled_from(POLICIES))), records, deaths, parallelisms)
    job.run()
    assert visible(path) == sorted(map(str, range(records)))
    check_savepoints(job)


def test_nothing_is_visible_before_commit_and_close_removes_the_rest(tmp_path: Path) -> None:
    sink = lines_sink(tmp_path)
    writer = sink.create_writer(SinkHost())
    writer.write_batch(["a"], None)
    prepared = writer.prepare_commit()
    writer.write_batch(["b"], None)
    assert visible(tmp_path) == []
    assert len(hidden(tmp_path)) == 2
    writer.close()
    writer.close()
    assert [str(file) for file in hidden(tmp_path)] == [prepared[0].hidden_path]
    sink.create_committer(SinkHost()).commit(prepared)
    assert visible(tmp_path) == ["a"]


@pytest.mark.parametrize("has_ended", [True, False])
def test_a_writer_that_gets_no_more_records_leaves_no_directory(tmp_path: Path, has_ended: bool) -> None:
    """One that may get more of them in the next epoch leaves it, because readers may look through it."""
    sink = lines_sink(tmp_path)
    writer = sink.create_writer(SinkHost())
    writer.write_batch(["a"], None)
    writer.flush(has_ended)
    sink.create_committer(SinkHost()).commit(writer.prepare_commit())
    writer.flush(False)
    writer.close()
    assert visible(tmp_path) == ["a"]
    assert (tmp_path / ".penstock").exists() is not has_ended


def test_other_jobs_and_operators_are_left_alone(tmp_path: Path) -> None:
    sink = lines_sink(tmp_path)
    hosts = (SinkHost(attempt=3), SinkHost(job_id="other"), SinkHost(operator="other"), SinkHost(1, 2))
    writers = [sink.create_writer(host) for host in hosts]
    for writer in writers:
        writer.write_batch(["x"], None)
    sink.create_writer(SinkHost(0, 2, attempt=2))
    assert len(hidden(tmp_path)) == 4
    sink.create_writer(SinkHost(1, 2, attempt=2))
    assert len(hidden(tmp_path)) == 3
    sink.create_writer(SinkHost(0, 1, attempt=4))
    assert len(hidden(tmp_path)) == 2


def test_runs_of_one_task_write_files_of_their_own(tmp_path: Path) -> None:
    """G9: two at a time, of which one is committed; the other's files go when the job is over."""
    sink = lines_sink(tmp_path)
    writers = [sink.create_writer(SinkHost(run=run)) for run in ("one", "other")]
    for number in range(10):
        for writer in writers:
            writer.write_batch([number], None)
    prepared = [writer.prepare_commit() for writer in writers]
    committer = sink.create_committer(SinkHost())
    committer.commit(prepared[1])
    assert visible(tmp_path) == list(map(str, range(10)))
    assert len(hidden(tmp_path)) == 1
    committer.end_job()
    for writer in writers:
        writer.close()
    assert [path.name for path in tmp_path.iterdir()] == [Path(prepared[1][0].final_path).name]


def prepared_by(sink: FileSink[Any], host: SinkHost, checkpoint_id: int, value: str) -> list[FileCommittable]:
    """One record, up to a snapshot; then the process dies."""
    writer = sink.create_writer(host)
    writer.write_batch([value], None)
    prepared: list[FileCommittable] = list(writer.prepare_commit())
    writer.snapshot_state(checkpoint_id)
    writer.write_batch(["never snapshot"], None)
    return prepared


def test_a_later_attempt_removes_what_no_snapshot_names_and_nothing_else(tmp_path: Path) -> None:
    """G9, H1: not what its checkpoint, which another subtask has yet to commit, or a savepoint names."""
    sink = lines_sink(tmp_path)
    in_checkpoint = prepared_by(sink, SinkHost(0), 1, "checkpoint 1")
    never_completed = prepared_by(sink, SinkHost(0, attempt=1, restored=1), 2, "checkpoint 2")
    writer = sink.create_writer(SinkHost(0, attempt=1, restored=1, run="1b"))
    writer.write_batch(["savepoint"], None)
    in_savepoint = writer.prepare_commit()
    writer.snapshot_state(3)
    writer.pin(3, in_savepoint)
    for attempt in (2, 3):
        sink.create_writer(SinkHost(0, attempt=attempt, restored=1))
        parts = [str(path) for path in hidden(tmp_path) if "part-" in path.name]
        assert sorted(parts) == sorted(made.hidden_path for made in (in_checkpoint + in_savepoint))
    assert never_completed[0].hidden_path not in parts
    committer = sink.create_committer(SinkHost())
    committer.end_job()
    committer.recommit(in_savepoint)
    assert visible(tmp_path) == ["savepoint"]
    sink.create_writer(SinkHost(0, attempt=4, restored=5)).close()
    assert hidden(tmp_path) == [], "the note of what the savepoint names goes when that is committed"


def test_a_job_removes_what_the_jobs_that_it_continues_have_left(tmp_path: Path) -> None:
    """E7, G9: what they had prepared since the checkpoint that it begins from, but not what a savepoint names."""
    sink = lines_sink(tmp_path)
    in_checkpoint = prepared_by(sink, SinkHost(job_id="first"), 1, "checkpoint 1")
    former = sink.create_writer(SinkHost(job_id="second", restored=1))
    former.write_batch(["savepoint"], None)
    in_savepoint = former.prepare_commit()
    former.snapshot_state(2)
    former.pin(2, in_savepoint)
    former.write_batch(["checkpoint 3, which never completed"], None)
    former.prepare_commit()
    other = prepared_by(sink, SinkHost(job_id="of another name"), 1, "another's")
    continued = SinkHost(0, job_id="third", restored=1, forerunners=("first", "second"))
    sink.create_writer(continued)
    closed = [str(path) for path in hidden(tmp_path) if ".closed." in path.name]
    assert sorted(closed) == sorted(made.hidden_path for made in (*in_checkpoint, *in_savepoint, *other))
    committer = sink.create_committer(continued)
    committer.recommit(in_checkpoint)
    assert visible(tmp_path) == ["checkpoint 1"]


def test_an_epoch_removes_the_files_of_tasks_that_did_not_count(tmp_path: Path) -> None:
    """G9: Spark has run a task of an epoch twice, and one of the two counts. All that counts is committed before the
    next epoch begins, so what is still hidden goes then, but not what a savepoint names."""
    sink = lines_sink(tmp_path)

    def epoch(number: int, run: str = "") -> Any:
        return sink.create_writer(SinkHost(attempt=number, run=run, restored=number - 1, owes_nothing=True))

    def prepared(writer: Any, line: str) -> Any:
        writer.write_batch([line], None)
        return writer.prepare_commit()

    committer = sink.create_committer(SinkHost())
    committer.commit(prepared(epoch(1), "counts"))
    savepoint = epoch(2)
    in_savepoint = prepared(savepoint, "in a savepoint")
    savepoint.pin(2, in_savepoint)
    counts, second = epoch(3), epoch(3, "run again")
    committer.commit(prepared(counts, "counts too"))
    prepared(second, "does not count")
    assert len([path for path in hidden(tmp_path) if ".closed." in path.name]) == 2
    epoch(4)
    closed = [str(path) for path in hidden(tmp_path) if ".closed." in path.name]
    assert closed == [made.hidden_path for made in in_savepoint]
    assert visible(tmp_path) == ["counts", "counts too"]


def test_nobody_looks_through_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G9: what a subtask may have left lies in one small directory, however much was written before."""
    looked: list[str] = []
    find = LocalFileSystem.find

    def noted(fs: Any, path: str, **options: Any) -> Any:
        looked.append(path)
        return find(fs, path, **options)

    monkeypatch.setattr(LocalFileSystem, "find", noted)
    sink = lines_sink(tmp_path)
    for attempt in range(3):
        writer = sink.create_writer(SinkHost(attempt=attempt))
        writer.write_batch(["x"], None)
        sink.create_committer(SinkHost()).commit(writer.prepare_commit())
    assert looked
    assert all(path.startswith(f"{tmp_path}/.penstock") for path in looked)


def test_what_a_killed_process_has_not_closed_goes_with_the_next_job(tmp_path: Path) -> None:
    """G9: of any job; what is still being written, and what was closed and may be in a checkpoint, stays."""
    program = f"""
import os, signal
from pathlib import Path
from penstock.testing.connectors import SinkHost
from tests.connectors.test_file_sink import lines_sink
writer = lines_sink(Path({str(tmp_path)!r})).create_writer(SinkHost(job_id="killed"))
writer.write_batch(["closed"], None)
writer.prepare_commit()
writer.write_batch(["open"], None)
os.kill(os.getpid(), signal.SIGKILL)
"""
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", program], cwd=root, check=False).returncode == -signal.SIGKILL
    alive = lines_sink(tmp_path).create_writer(SinkHost(1, 2, job_id="alive"))
    alive.write_batch(["alive"], None)
    assert len(hidden(tmp_path)) == 3
    lines_sink(tmp_path).create_writer(SinkHost(job_id="next"))
    found = hidden(tmp_path)
    assert [("closed" in path.name, "open" in path.name) for path in sorted(found)].count((True, False)) == 1
    assert len(found) == 2
    alive.close()
    lines_sink(tmp_path).create_writer(SinkHost(job_id="one after that"))
    assert [path.read_text() for path in hidden(tmp_path)] == ["closed\n"]


def test_names_never_meet(tmp_path: Path) -> None:
    """G9: subtask, counter, attempt, job and operator are all in the name."""
    sink = lines_sink(tmp_path)
    names = set()
    hosts = [SinkHost(i, 2, attempt, job, op) for i in (0, 1) for attempt in (0, 1) for job in "ab" for op in "cd"]
    for host in hosts:
        writer = sink.restore_writer(host, [4, 7])
        for _ in range(2):
            writer.write_batch(["x"], None)
            names |= {committable.final_path for committable in writer.prepare_commit()}
        assert writer.snapshot_state(1) == [9]
    assert len(names) == 2 * len(hosts)
    assert all("-7-" in name or "-8-" in name for name in names)


@pytest.mark.parametrize("root", ["local", "memory"])
def test_commit_table(tmp_path: Path, root: str) -> None:
    """G9: what a commit does in every state a crash may leave."""
    base = str(tmp_path) if root == "local" else "memory://commit-table"
    fs = fsspec.filesystem("file" if root == "local" else "memory")
    source, target = f"{base}/.a.inprogress", f"{base}/a"
    committable = FileCommittable(source, target, 3)

    def put(path: str, data: bytes | None) -> None:
        if data is not None:
            with fs.open(path, "wb") as file:
                file.write(data)
        elif fs.exists(path):
            fs.rm_file(path)

    for before, after, ends in [
        (b"abc", None, True),
        (None, b"abc", True),
        (b"abc", b"abc", True),
        (b"abc", b"a", True),
        (None, None, False),
        (None, b"a", False),
        (b"ab", None, False),
        (b"abcd", b"a", False),
    ]:
        put(source, before)
        put(target, after)
        if ends:
            for _ in range(2):
                FileCommitter().commit([committable])
                assert fs.cat_file(target) == b"abc"
                assert not fs.exists(source)
        else:
            with pytest.raises(CommitError, match=r"cannot commit .*/a: "):
                FileCommitter().commit([committable])
            if before is None:
                FileCommitter().recommit([committable])
                with pytest.raises(CommitError, match=r"cannot commit .*/a again: .*with_missing_part_files"):
                    FileCommitter(missing="fail").recommit([committable])
            else:
                with pytest.raises(CommitError, match=r"cannot commit .*/a: "):
                    FileCommitter().recommit([committable])
    put(source, None)
    put(target, None)


def test_policies_close_files_between_checkpoints(tmp_path: Path) -> None:
    def files(policy: RollingPolicy, pauses: list[int]) -> int:
        host = SinkHost()
        writer = lines_sink(tmp_path, policy).create_writer(host)
        for pause in pauses:
            host.now += pause
            writer.write_batch(["12345"], None)
        return len(writer.prepare_commit())

    assert files(RollingPolicy.on_checkpoint_rolling_policy(), [1] * 10) == 1
    assert files(RollingPolicy.default_rolling_policy(12, 1000, 1000), [1] * 10) == 5
    assert files(RollingPolicy.default_rolling_policy(rollover_interval=10), [3] * 12) == 3
    assert files(RollingPolicy.default_rolling_policy(inactivity_interval=5), [1, 1, 5, 1, 6]) == 3
    with pytest.raises(ConfigurationError, match="positive"):
        RollingPolicy.default_rolling_policy(0)


def test_buckets(tmp_path: Path) -> None:
    def run(assigner: BucketAssigner, timestamps: list[int] | None) -> dict[str, list[str]]:
        sink = FileSink.for_row_format(tmp_path, SimpleStringSchema()).with_bucket_assigner(assigner).build()
        host = SinkHost()
        host.now = 3_600_000
        writer = sink.create_writer(host)
        writer.write_batch(["a", "b", "c"], timestamps)
        found = {}
        for committable in writer.prepare_commit():
            directory = Path(committable.final_path).parent.relative_to(tmp_path)
            found[str(directory)] = Path(committable.hidden_path).read_text().split()
        return found

    hours = BucketAssigner.date_time_bucket_assigner()
    for timestamps in (None, [0, 1, 2], [2**63 - 1] * 3):  # as Flink: the present counts, not event time
        assert run(hours, timestamps) == {"1970-01-01--01": ["a", "b", "c"]}
    berlin = BucketAssigner.date_time_bucket_assigner("yyyy/'d'dd%HH:mm:ss", "Europe/Berlin")
    assert run(berlin, None) == {"1970/d01%02:00:00": ["a", "b", "c"]}
    assert run(BucketAssigner.by(lambda value: f"k={value}"), None)["k=b"] == ["b"]
    assert run(BASE, None) == {".": ["a", "b", "c"]}
    for bad in ("../x", "/x", "_x", "a/.b", "a//b"):
        with pytest.raises(ConfigurationError, match="relative path"):
            run(BucketAssigner.by(dict.fromkeys("abc", bad).__getitem__), None)
    with pytest.raises(ConfigurationError, match="'QQ'"):
        BucketAssigner.date_time_bucket_assigner("yyyy-QQ")
    with pytest.raises(ConfigurationError, match="time zone"):
        BucketAssigner.date_time_bucket_assigner(timezone_id="Mars/Base")


def test_file_config(tmp_path: Path) -> None:
    config = OutputFileConfig.builder().with_part_prefix("out").with_part_suffix(".txt").build()
    assert (config.get_part_prefix(), config.get_part_suffix()) == ("out", ".txt")
    sink = FileSink.for_row_format(tmp_path, Encoder.simple_string_encoder()).with_bucket_assigner(BASE)
    writer = sink.with_output_file_config(config).build().create_writer(SinkHost(2, 3))
    writer.write_batch(["x"], None)
    name = Path(writer.prepare_commit()[0].final_path).name
    assert name.startswith("out-2-0-")
    assert name.endswith(".txt")
    for prefix in ("", ".x", "_x", "a/b"):
        with pytest.raises(ConfigurationError):
            OutputFileConfig.builder().with_part_prefix(prefix)


ROWS = [(i, f"t,{i}", None if i % 3 else i / 2) for i in range(10)]
COLUMNS = Types.ROW_NAMED(["i", "t", "x"], [Types.LONG(), Types.STRING(), Types.DOUBLE()])


def write_all(sink: FileSink[Any], rows: list[Any]) -> None:
    writer = sink.create_writer(SinkHost())
    for row in rows:
        writer.write_batch([row], None)
    sink.create_committer(SinkHost()).commit(writer.prepare_commit())
    writer.close()


def test_csv_parquet_and_json_files(tmp_path: Path) -> None:
    csv_sink = FileSink.for_bulk_format(tmp_path / "csv", CsvWriterFactory(COLUMNS, header=True))
    write_all(csv_sink.with_bucket_assigner(BASE).build(), ROWS)
    types = {"i": int, "t": str, "x": float}
    source = FileSource.for_record_stream_format(CsvFormat(types, as_tuple=True), tmp_path / "csv").build()
    assert read_source(source).all_values == ROWS

    parquet_sink = FileSink.for_bulk_format(tmp_path / "parquet", ParquetWriterFactory(COLUMNS, row_group_rows=4))
    write_all(parquet_sink.with_bucket_assigner(BASE).build(), ROWS)
    table = pq.read_table(next((tmp_path / "parquet").iterdir()))
    assert [tuple(row.values()) for row in table.to_pylist()] == ROWS

    json_sink = FileSink.for_row_format(tmp_path / "json", JsonLinesEncoder()).with_bucket_assigner(BASE).build()
    write_all(json_sink, [{"a": row} for row in ROWS])
    source = FileSource.for_record_stream_format(JsonLinesFormat(), tmp_path / "json").build()
    assert read_source(source).all_values == [{"a": list(row)} for row in ROWS]


@pytest.mark.parametrize("factory", [CsvWriterFactory(COLUMNS), ParquetWriterFactory(COLUMNS, row_group_rows=1)])
def test_a_record_that_does_not_fit_leaves_nothing_behind(tmp_path: Path, factory: Any) -> None:
    writer = FileSink.for_bulk_format(tmp_path, factory).with_bucket_assigner(BASE).build().create_writer(SinkHost())
    writer.write_batch(ROWS[:2], None)
    with pytest.raises(FormatError, match="cannot write"):
        writer.write_batch([(1, 2)], None)
    writer.close()
    assert hidden(tmp_path) == []


def test_any_file_system(tmp_path: Path) -> None:
    sink = FileSink.for_row_format("memory://sink/out", Encoder.simple_string_encoder()).with_bucket_assigner(BASE)
    job = Job(sink.build(), 20, {9, 14, 40}, [2])
    job.run()
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "memory://sink/out").build()
    assert sorted(map(int, read_source(source).all_values)) == list(range(20))


def test_builders_refuse_what_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Encoder"):
        FileSink.for_row_format(tmp_path, "utf-8")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="BulkWriterFactory"):
        FileSink.for_bulk_format(tmp_path, "csv")  # type: ignore[arg-type]
