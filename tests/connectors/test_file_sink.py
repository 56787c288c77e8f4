"""The file sink: what is visible is exact, wherever the job is killed."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.connectors.harness import SinkHost, read

from penstock.common.errors import ConfigurationError, FormatError
from penstock.common.serialization import Encoder, SimpleStringSchema
from penstock.common.typeinfo import Types
from penstock.connectors.file.buckets import BucketAssigner
from penstock.connectors.file.committer import CommitError, FileCommittable, FileCommitter
from penstock.connectors.file.rolling import OutputFileConfig, RollingPolicy
from penstock.connectors.file.sink import FileSink
from penstock.connectors.file.source import FileSource
from penstock.formats.csv import CsvFormat
from penstock.formats.csv_writer import CsvWriterFactory
from penstock.formats.json import JsonLinesEncoder, JsonLinesFormat
from penstock.formats.parquet import ParquetWriterFactory
from penstock.formats.stream_format import StreamFormat

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


class Killed(Exception):
    pass


class Job:
    """A job of one source and `parallelism` writers with checkpoints, killed before the call that `deaths` names.

    It keeps the order that a sink operator must: restored committables are committed before writers are made.
    """

    def __init__(self, sink: FileSink[Any], records: int, deaths: set[int], parallelisms: list[int]) -> None:
        self.sink = sink
        self.records = records
        self.deaths = deaths
        self.parallelisms = parallelisms
        self.calls = 0
        # Completed checkpoint: position of the source, writer states, committables.
        self.checkpoint: tuple[int, list[Any], list[Any]] = (0, [], [])

    def step(self) -> None:
        self.calls += 1
        if self.calls in self.deaths:
            raise Killed

    def run(self) -> None:
        attempt = 0
        while True:
            try:
                self.attempt(attempt, self.parallelisms[attempt % len(self.parallelisms)])
                return
            except Killed:
                attempt += 1

    def attempt(self, attempt: int, parallelism: int) -> None:
        hosts = [SinkHost(i, parallelism, attempt) for i in range(parallelism)]
        position, states, committables = pickle.loads(pickle.dumps(self.checkpoint))
        committer = self.sink.create_committer(hosts[0])
        for committable in committables:
            self.step()
            committer.commit([committable])
        writers = []
        for host in hosts:
            self.step()
            # State falls to other subtasks than it came from.
            writers.append(
                self.sink.restore_writer(host, states[(host.subtask_index + 1) % parallelism :: parallelism])
            )
        while True:
            for _ in range(3):
                for host, writer in zip(hosts, writers, strict=True):
                    self.step()
                    values = list(range(position, min(position + 2, self.records)))
                    position += len(values)
                    host.now += 10
                    writer.write_batch(values, None)
            prepared: list[Any] = []
            states = []
            for writer in writers:
                self.step()
                writer.flush(position == self.records)
                prepared += writer.prepare_commit()
                self.step()
                states += writer.snapshot_state(1)
            self.step()
            self.checkpoint = (position, states, prepared)
            for committable in prepared:
                self.step()
                committer.commit([committable])
            if position == self.records:
                break
        for writer in writers:
            self.step()
            writer.close()
        committer.close()


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
            Job(lines_sink(path, policy), records, {death, *more}, parallelisms).run()
            assert visible(path) == expected
            assert hidden(path) == []


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
    Job(lines_sink(path, data.draw(st.sampled_from(POLICIES))), records, deaths, parallelisms).run()
    assert visible(path) == sorted(map(str, range(records)))
    assert hidden(path) == []


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


def test_other_jobs_and_operators_are_left_alone(tmp_path: Path) -> None:
    sink = lines_sink(tmp_path)
    for host in (SinkHost(attempt=3), SinkHost(job_id="other"), SinkHost(operator="other"), SinkHost(1, 2)):
        sink.create_writer(host).write_batch(["x"], None)
    sink.create_writer(SinkHost(0, 2, attempt=2))
    assert len(hidden(tmp_path)) == 4
    sink.create_writer(SinkHost(1, 2, attempt=2))
    assert len(hidden(tmp_path)) == 3
    sink.create_writer(SinkHost(0, 1, attempt=4))
    assert len(hidden(tmp_path)) == 2


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
    assert run(hours, [0, 3_600_000, 1]) == {"1970-01-01--00": ["a", "c"], "1970-01-01--01": ["b"]}
    assert run(hours, None) == {"1970-01-01--01": ["a", "b", "c"]}
    berlin = BucketAssigner.date_time_bucket_assigner("yyyy/'d'dd%HH:mm:ss", "Europe/Berlin")
    assert run(berlin, [0, 1_000, 2_000])["1970/d01%01:00:01"] == ["b"]
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
    assert read(source).all_values == ROWS

    parquet_sink = FileSink.for_bulk_format(tmp_path / "parquet", ParquetWriterFactory(COLUMNS, row_group_rows=4))
    write_all(parquet_sink.with_bucket_assigner(BASE).build(), ROWS)
    table = pq.read_table(next((tmp_path / "parquet").iterdir()))
    assert [tuple(row.values()) for row in table.to_pylist()] == ROWS

    json_sink = FileSink.for_row_format(tmp_path / "json", JsonLinesEncoder()).with_bucket_assigner(BASE).build()
    write_all(json_sink, [{"a": row} for row in ROWS])
    source = FileSource.for_record_stream_format(JsonLinesFormat(), tmp_path / "json").build()
    assert read(source).all_values == [{"a": list(row)} for row in ROWS]


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
    assert sorted(map(int, read(source).all_values)) == list(range(20))


def test_builders_refuse_what_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Encoder"):
        FileSink.for_row_format(tmp_path, "utf-8")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="BulkWriterFactory"):
        FileSink.for_bulk_format(tmp_path, "csv")  # type: ignore[arg-type]
