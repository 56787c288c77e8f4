"""Programs in micro-batch execution: epoch by epoch, each with a checkpoint that streaming can go on from (I1, G8)."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
from tests.failing import FailsOnce
from tests.jobs import JOBS, Job
from tests.stores import at

from penstock.base.errors import CheckpointError, JobExecutionError
from penstock.base.restart_strategy import RestartStrategies
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.cli.demo.program import PacedSource
from penstock.common import Configuration, Encoder
from penstock.connectors.hybrid import HybridSource
from penstock.connectors.split_reader import DataGeneratorSource, GeneratorSplit, NumberSequenceSource
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.drivers.stepwise.flow import SinkCommits
from penstock.formats.json import JsonLinesFormat
from penstock.runtime.connector import InputStatus
from penstock.storage.file_store import FileCheckpointStore
from penstock.table import EnvironmentSettings, TableEnvironment

MICRO, STREAMING = RuntimeExecutionMode.MICRO_BATCH, RuntimeExecutionMode.STREAMING
RECORDS = 2_000


def environment(parallelism: int = 1, mode: Any = MICRO, **options: Any) -> Any:
    configuration = Configuration()
    for key, value in {"execution.target": "local", **options}.items():
        configuration.set_string(key, str(value))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(parallelism).set_runtime_mode(mode)


@pytest.mark.parametrize("records_max", [None, 97])
@pytest.mark.parametrize("parallelism", [1, 4])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_programs_give_the_answer_of_plain_python(job: Job, parallelism: int, records_max: int | None) -> None:
    """I1: in one epoch and in many, with running results and with late records where streaming has them."""
    options: Any = {} if records_max is None else {"execution.micro-batch.max-records": records_max}
    assert sorted(job.build(environment(parallelism, **options)).execute_and_collect()) == job.expected()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_state_lives_from_epoch_to_epoch_on_both_backends(backend: str) -> None:
    """I1, D3."""
    env = environment(2, **{"execution.micro-batch.max-records": 300, "state.backend.type": backend})
    assert sorted(JOBS[2].build(env).execute_and_collect()) == JOBS[2].expected()


class Count(KeyedProcessFunction):
    """Numbers the records of each key."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.state.value() or 0) + 1
        self.state.update(count)
        yield f"{value % 7} {count}"


def counting(env: Any, out: Path, count: int | None = RECORDS) -> None:
    """Into files; what must be in them at the end is `expected`."""
    source: Any = DataGeneratorSource(lambda n: n, count)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    counted = numbers.key_by(lambda n: n % 7).process(Count()).uid("counter")
    sink = FileSink.for_row_format(str(out), Encoder.simple_string_encoder()).build()
    counted.sink_to(sink).uid("files")


def expected(count: int = RECORDS) -> list[str]:
    return sorted(f"{n % 7} {n // 7 + 1}" for n in range(count))


def lines_below(directory: Path) -> list[str]:
    return sorted(line for file in directory.rglob("part-*") for line in file.read_text().splitlines())


def test_files_are_written_exactly_once(store_directory: Path) -> None:
    """G9, I1: every epoch commits what it has written."""
    env = environment(2, **{"execution.micro-batch.max-records": 250})
    counting(env, store_directory)
    env.execute()
    assert lines_below(store_directory) == expected()


def test_an_epoch_that_fails_begins_anew(store_directory: Path) -> None:
    """G8: from the checkpoint before it, and nothing of the failed attempt is seen."""
    env = environment(1, **{"execution.micro-batch.max-records": 250})
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    source: Any = DataGeneratorSource(lambda n: n, RECORDS)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    counted = numbers.key_by(lambda n: n % 7).process(Count()).map(FailsOnce(store_directory / "marker", 170))
    counted.sink_to(FileSink.for_row_format(str(store_directory / "out"), Encoder.simple_string_encoder()).build())
    env.execute()
    assert (store_directory / "marker").exists()
    assert lines_below(store_directory / "out") == expected()


def test_without_a_restart_strategy_a_failure_ends_the_job(store_directory: Path) -> None:
    """G8: with the user's error."""
    env = environment()
    env.from_collection([1, 0]).map(lambda n: 1 // n).print()
    with pytest.raises(JobExecutionError, match="ZeroDivisionError"):
        env.execute()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("drain_at_the_end", [True])
def test_one_state_for_all_execution_modes(store_directory: Path, backend: str, drain_at_the_end: bool) -> None:
    """H4, I1: a job goes from epochs to streaming, back, and to its end, at another parallelism each time; the files
    hold what one run would have written."""
    savepoint: str | None = None
    for parallelism, mode in [(2, MICRO), (1, STREAMING), (3, MICRO), (2, STREAMING)]:
        options = {"state.backend.type": backend, "penstock.source.batch-records": "1"}
        options |= {"execution.micro-batch.max-records": "50", "execution.checkpointing.interval": "5 ms"}
        if savepoint is not None:
            options["execution.state-recovery.path"] = savepoint
        env = environment(parallelism, mode, **options)
        counting(env, store_directory / "out", 20_000)
        job = env.execute_async()
        savepoint = job.stop_with_savepoint(False, str(store_directory)).result(60)
        job.wait()
    before = len(lines_below(store_directory / "out"))
    assert 0 < before < 20_000
    assert savepoint is not None
    env = environment(2, **{"state.backend.type": backend, "execution.state-recovery.path": savepoint})
    counting(env, store_directory / "out", 20_000)
    env.execute()
    assert lines_below(store_directory / "out") == expected(20_000)


@pytest.mark.parametrize("before", [STREAMING, MICRO])
@pytest.mark.parametrize("mode", [MICRO, RuntimeExecutionMode.BATCH])
def test_after_a_drain_nothing_is_read(mode: Any, before: Any, store_directory: Path) -> None:
    """H2: what was drained has fired for good; a job that begins there reads no more, in any execution mode."""
    options = {"penstock.source.batch-records": "1", "execution.micro-batch.max-records": "50"}
    env = environment(2, before, **options, **{"execution.checkpointing.interval": "5 ms"})
    counting(env, store_directory / "out", 20_000)
    job = env.execute_async()
    savepoint = job.stop_with_savepoint(True, str(store_directory)).result(60)
    job.wait()
    drained = lines_below(store_directory / "out")
    assert len(drained) < 20_000
    for next_mode in (mode, STREAMING):
        options = {"execution.state-recovery.path": savepoint}
        if next_mode is RuntimeExecutionMode.BATCH:
            savepoint = options["execution.batch.savepoint-path"] = str(store_directory / "filled")
        env = environment(1, next_mode, **options)
        counting(env, store_directory / "out", 20_000)
        env.execute()
        assert lines_below(store_directory / "out") == drained


def test_a_run_goes_on_where_the_last_one_found_nothing_more(store_directory: Path) -> None:
    """I1: an unbounded source is read as far as it goes; the next run takes what has come since."""
    options = {
        "execution.checkpointing.dir": str(store_directory / "checkpoints"),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    (store_directory / "in").mkdir()
    latest: str | None = None
    for run in range(3):
        (store_directory / "in" / f"{run}.txt").write_text("\n".join(f"{run}-{n}" for n in range(10)))
        env = environment(2, **options, **({} if latest is None else {"execution.state-recovery.path": latest}))
        read_lines(env, store_directory)
        result = env.execute()
        (latest,) = map(str, (store_directory / "checkpoints" / str(result.get_job_id())).glob("chk-*/_metadata"))
        assert lines_below(store_directory / "out") == sorted(f"{r}-{n}" for r in range(run + 1) for n in range(10))


@pytest.mark.parametrize("parallelism", [(1, 1, 1), (1, 3, 2)])
def test_a_record_that_is_late_in_one_run_is_late_in_the_next(
    parallelism: tuple[int, int, int], store_directory: Path
) -> None:
    """C2: a late record at the head of a run opens no window that an earlier run has fired."""
    options = {
        "execution.checkpointing.dir": str(store_directory / "checkpoints"),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "penstock.source.batch-records": "1",
    }
    (store_directory / "in").mkdir()
    latest: dict[str, str] = {}
    for run, seconds in enumerate(([1, 2, 12], [3, 13, 25], [14, 4, 37])):
        (store_directory / "in" / f"{run}.txt").write_text("\n".join(map(str, seconds)))
        env = environment(parallelism[run], **options, **latest)
        count_by_ten_seconds(env, store_directory)
        job_id = env.execute().get_job_id()
        (path,) = (store_directory / "checkpoints" / str(job_id)).glob("chk-*/_metadata")
        latest = {"execution.state-recovery.path": str(path)}
    assert lines_below(store_directory / "out") == ["(0, 2)", "(10, 2)", "(20, 1)"]


@pytest.mark.parametrize("modes", [(STREAMING, MICRO, STREAMING), (MICRO, STREAMING, MICRO)])
def test_a_record_that_is_late_in_one_mode_is_late_in_the_other(modes: tuple[Any, ...], store_directory: Path) -> None:
    """C2: savepoints of streaming and of epochs hold event time for each other."""
    (store_directory / "in").mkdir()
    latest: dict[str, str] = {}
    for run, seconds in enumerate(([1, 2, 12], [3, 13, 25], [14, 4, 37])):
        (store_directory / "in" / f"{run}.txt").write_text("\n".join(map(str, seconds)))
        options = {"penstock.source.batch-records": "1", "execution.micro-batch.interval": "1 ms", **latest}
        env = environment(1, modes[run], **options)
        count_by_ten_seconds(env, store_directory)
        job = env.execute_async()
        deadline = time.monotonic() + 60
        while job.get_progress().result(60).vertices[0].records_out < len(seconds):
            assert time.monotonic() < deadline, job.get_progress().result(60)
        savepoint = job.stop_with_savepoint(False, str(store_directory / "savepoints")).result(60)
        job.wait()
        latest = {"execution.state-recovery.path": savepoint}
    assert lines_below(store_directory / "out") == ["(0, 2)", "(10, 2)", "(20, 1)"]


def count_by_ten_seconds(env: Any, directory: Path) -> None:
    """Windows over the seconds in files, whose one reader sees them in the order of the lines."""
    from penstock.common import Duration, Time
    from penstock.datastream.connectors.file_system import FileSource, StreamFormat
    from penstock.datastream.window import TumblingEventTimeWindows

    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(directory / "in"))
    source.monitor_continuously(Duration.of_millis(1))
    by_second = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda line, _: int(line) * 1000)
    lines = env.from_source(source.build(), by_second, "lines").uid("lines").set_parallelism(1)
    windows = lines.key_by(lambda line: 0).window(TumblingEventTimeWindows.of(Time.seconds(10)))
    counts = windows.apply(lambda key, window, values: [(window.start // 1000, len(values))]).uid("windows")
    sink = FileSink.for_row_format(str(directory / "out"), Encoder.simple_string_encoder()).build()
    counts.map(str).uid("text").sink_to(sink).uid("files")


@pytest.mark.parametrize("mode", [MICRO, RuntimeExecutionMode.BATCH])
def test_many_files_without_a_record_are_no_end(mode: RuntimeExecutionMode, store_directory: Path) -> None:
    """I1: a reader that has passed them and has nothing for the moment is asked again, in the same pass."""
    (store_directory / "in").mkdir()
    for number in range(50):
        (store_directory / "in" / f"{number:02d}.txt").write_text("{")
    (store_directory / "in" / "99.txt").write_text('{"one": 1}')
    env = environment(1, mode)
    if mode is not MICRO:
        env.configure(Configuration.from_dict({"execution.batch.savepoint-path": str(store_directory / "filled")}))
    read_lines(env, store_directory, JsonLinesFormat(on_error="skip"))
    env.execute()
    assert lines_below(store_directory / "out") == ["{'one': 1}"]


def read_lines(env: Any, directory: Path, file_format: Any = None) -> None:
    from penstock.common import Duration
    from penstock.datastream.connectors.file_system import FileSource, StreamFormat

    source = FileSource.for_record_stream_format(file_format or StreamFormat.text_line_format(), str(directory / "in"))
    source.monitor_continuously(Duration.of_millis(1))
    lines = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "lines").uid("lines")
    sink = FileSink.for_row_format(str(directory / "out"), Encoder.simple_string_encoder()).build()
    lines.sink_to(sink).uid("files")


def test_a_savepoint_can_be_taken_while_epochs_go_on(tmp_path: Path, store_directory: Path) -> None:
    """H1: and the job goes on; asked for too late, it is refused."""
    env = environment(1, **{"execution.micro-batch.max-records": 20})
    counting(env, tmp_path / "out", 5_000)
    job = env.execute_async()
    path = job.trigger_savepoint(str(store_directory / "savepoints")).result(60)
    assert (at(path) / "_metadata").exists()
    job.wait()
    assert lines_below(tmp_path / "out") == expected(5_000)
    with pytest.raises(CheckpointError, match="the job is over"):
        job.trigger_savepoint(str(store_directory)).result(10)


def test_a_checkpoint_can_be_asked_for(store_directory: Path) -> None:
    """G1: the next epoch begins at once, whatever the interval, and its checkpoint is there when the answer is."""
    options: Any = {"execution.micro-batch.interval": "1 h", "execution.micro-batch.max-records": 20}
    env = environment(1, **options, **{"execution.checkpointing.dir": store_directory / "checkpoints"})
    counting(env, store_directory / "out", None)
    job = env.execute_async("asked")
    first = job.trigger_checkpoint().result(60)
    second = job.trigger_checkpoint().result(60)
    assert second == first + 1
    assert list((store_directory / "checkpoints").rglob(f"chk-{second}/_metadata"))
    job.cancel()
    with pytest.raises(JobExecutionError):
        job.get_job_execution_result().result(60)
    with pytest.raises(CheckpointError, match="the job is over"):
        job.trigger_checkpoint().result(60)


def test_a_deletion_that_fails_is_said_and_the_job_goes_on(
    store_directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """G6: the next deletion finds the same files."""
    refused: list[int] = []
    delete = FileCheckpointStore.delete

    def refuse_once(store: FileCheckpointStore, paths: list[str]) -> None:
        if paths and not refused:
            refused.append(len(paths))
            raise PermissionError("planned")
        delete(store, paths)

    monkeypatch.setattr(FileCheckpointStore, "delete", refuse_once)
    env = environment(
        2, **{"execution.micro-batch.max-records": 250, "execution.checkpointing.dir": store_directory / "checkpoints"}
    )
    counting(env, store_directory / "out")
    with caplog.at_level(logging.INFO, "penstock"):
        env.execute()
    assert refused
    assert "old checkpoints could not be deleted: PermissionError: planned" in caplog.text
    assert lines_below(store_directory / "out") == expected()
    assert not list((store_directory / "checkpoints").rglob("chk-*"))


@pytest.mark.parametrize("drains", [True, False])
def test_a_stop_whose_commit_fails_is_a_stop(
    store_directory: Path, monkeypatch: pytest.MonkeyPatch, drains: bool
) -> None:
    """H2, G9: the savepoint is whole, so the job does not read on; the restart strategy has the commit done again."""
    failures: list[Any] = []
    commit = SinkCommits.commit

    def fail_while_stopping(commits: SinkCommits, prepared: Any) -> None:
        if list((store_directory / "savepoints").rglob("_metadata")) and len(failures) < 2:
            failures.append(prepared)
            raise OSError("planned")
        commit(commits, prepared)

    monkeypatch.setattr(SinkCommits, "commit", fail_while_stopping)
    env = environment(1, **{"execution.micro-batch.interval": "1 ms", "execution.micro-batch.max-records": 50})
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1))
    counting(env, store_directory / "out", None)
    job = env.execute_async("stopped")
    savepoint = job.stop_with_savepoint(drains, str(store_directory / "savepoints")).result(60)
    job.get_job_execution_result().result(60)
    assert len(failures) == 2
    assert (at(savepoint) / "_metadata").exists()
    seen = lines_below(store_directory / "out")
    assert seen == expected(len(seen))


@pytest.mark.parametrize("rate", [100, 1_000])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_source_with_a_rate_is_read_to_its_end(rate: int, parallelism: int) -> None:
    """I1: an epoch waits for the first record; a new reader for each epoch does not begin to count at its own start."""
    env = environment(parallelism)
    source: Any = DataGeneratorSource(lambda n: n, 20, rate)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    assert sorted(numbers.execute_and_collect()) == list(range(20))


@pytest.mark.parametrize("rate", [100, 1_000])
@pytest.mark.parametrize(
    "wrap", [lambda source: HybridSource.builder(source).build(), lambda source: PacedSource(source, 1_000)]
)
def test_a_source_around_one_with_a_rate_is_read_to_its_end(wrap: Any, rate: int) -> None:
    """I1: a source that reads another one says when that one is held back."""
    env = environment(1)
    source: Any = wrap(DataGeneratorSource(lambda n: n, 20, rate))
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    assert sorted(numbers.execute_and_collect()) == list(range(20))


@pytest.mark.parametrize("rate", [5, 50])
def test_a_paced_source_is_read_to_its_end(rate: int) -> None:
    """I1: it holds records back itself."""
    env = environment(1)
    source: Any = PacedSource(NumberSequenceSource(0, 9), rate)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    assert sorted(numbers.execute_and_collect()) == list(range(10))


def test_a_reader_of_an_epoch_counts_from_the_epoch_before() -> None:
    """I1: as many records as the rate allows since then, at most those of a second."""
    reader: Any = DataGeneratorSource(lambda n: n, None, 50).create_reader(ReaderAt(10_000))
    reader.add_splits([GeneratorSplit(0, 1, None)])
    reader.begin_at(9_500)
    assert len(reader.poll_next(1_000).values) == 25
    assert reader.poll_next(1_000) is InputStatus.NOTHING_AVAILABLE
    assert 0 < reader.held_back_ms() <= 21


class ReaderAt:
    """A reader's context at a fixed time (ms)."""

    subtask_index, parallelism = 0, 1

    def __init__(self, now_ms: int) -> None:
        self.now_ms = lambda: now_ms

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


def test_the_rows_of_datagen_come_whatever_its_rate() -> None:
    """I1: tables are sources, too."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local")
    tables.get_config().set("execution.runtime-mode", "MICRO_BATCH")
    options = "'connector' = 'datagen', 'number-of-rows' = '20', 'rows-per-second' = '200'"
    tables.execute_sql(f"CREATE TABLE made (k INT) WITH ({options})")
    with tables.execute_sql("SELECT k FROM made").collect() as rows:
        assert len(list(rows)) == 20


@pytest.mark.parametrize("place", ["source", "stream"])
def test_an_idle_input_does_not_hold_event_time_back(place: str, tmp_path: Path) -> None:
    """C2, I1: a stream with idleness is idle in an epoch without records, in its source and further on."""
    timed = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[1])
    env = environment(**{"execution.micro-batch.max-records": 20})
    source: Any = DataGeneratorSource(lambda n: ("live", n * 10), 200)
    live = env.from_source(source, WatermarkStrategy.no_watermarks(), "live").assign_timestamps_and_watermarks(timed)
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
    idle, in_source = timed.with_idleness(200), place == "source"
    strategy = idle if in_source else WatermarkStrategy.no_watermarks()
    files = env.from_source(lines.monitor_continuously(20).build(), strategy, "files").map(lambda line: (line, 0))
    silent = files if in_source else files.assign_timestamps_and_watermarks(idle)
    windows = live.union(silent).key_by(lambda value: value[0]).window(TumblingEventTimeWindows(500, 0))
    counts = windows.apply(lambda key, window, values: [(window.start, len(values))])
    assert list(counts.execute_and_collect()) == [(500 * number, 50) for number in range(3)]
