"""Spark's streaming sources in micro-batch jobs (G8, H4, I1)."""

from __future__ import annotations

import functools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spec.batch_programs import Numbered, SumOfWindow

from penstock.base.errors import ConfigurationError, JobExecutionError, UserFunctionError
from penstock.base.time import Duration
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Configuration, Encoder, Types
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.drivers.spark.session import hand_back, obtain_spark
from penstock.storage.leadership import DeposedError

pytestmark = [pytest.mark.spark, pytest.mark.slow]
MICRO, STREAMING, BATCH = (
    RuntimeExecutionMode.MICRO_BATCH,
    RuntimeExecutionMode.STREAMING,
    RuntimeExecutionMode.BATCH,
)
NUMBERS = Types.LONG()
RESTART = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}


@pytest.fixture
def session() -> Iterator[Any]:
    spark = obtain_spark({}, 4)
    yield spark.session
    hand_back(spark, 4)


class Folder:
    """Where Spark finds files, one a batch, and where the job leaves what it has, and its checkpoints."""

    def __init__(self, session: Any, path: Path, store: Path) -> None:
        self.session = session
        self.path = path
        self.store = store
        self.put_in = 0
        (path / "in").mkdir()

    def put(self, *rows: str) -> Path:
        """One more file, whole at once, and younger than those before."""
        file = self.path / f"{self.put_in}.csv"
        file.write_text("".join(f"{row}\n" for row in rows))
        os.utime(file, (1_700_000_000 + self.put_in, 1_700_000_000 + self.put_in))
        self.put_in += 1
        return file.rename(self.path / "in" / file.name)

    def frame(self, columns: str = "n LONG") -> Any:
        reader = self.session.readStream.schema(columns).option("maxFilesPerTrigger", 1)
        return reader.csv(str(self.path / "in"))

    def sink(self, name: str = "out") -> Any:
        return FileSink.for_row_format(str(self.path / name), Encoder.simple_string_encoder()).build()

    def lines(self, name: str = "out") -> list[str]:
        files = (self.path / name).rglob("part-*")
        return sorted(line for file in files for line in file.read_text().splitlines())

    def has_more_than(self, count: int) -> bool:
        return len(self.lines()) > count

    def environment(
        self,
        options: dict[str, str] | None = None,
        mode: RuntimeExecutionMode = MICRO,
        parallelism: int = 2,
        begin_from: str | None = None,
    ) -> StreamExecutionEnvironment:
        settings = {"execution.checkpointing.dir": str(self.store / "checkpoints"), **(options or {})}
        if begin_from is not None:
            settings["execution.state-recovery.path"] = begin_from
        configuration = Configuration.from_dict(settings)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        return env.set_parallelism(parallelism).set_runtime_mode(mode)

    def checkpoints(self, job: Any) -> list[str]:
        """The paths of a job's checkpoints, oldest first."""
        found = (self.store / "checkpoints" / str(job.get_job_id())).glob("chk-*")
        return [str(path) for path in sorted(found, key=lambda path: int(path.name.removeprefix("chk-")))]

    def stop(self, job: Any, drain: bool = False) -> str:
        savepoint: str = job.stop_with_savepoint(drain, str(self.store / "savepoints")).result(120)
        job.wait()
        return savepoint


@pytest.fixture
def folder(session: Any, tmp_path: Path, store_directory: Path) -> Folder:
    return Folder(session, tmp_path, store_directory)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def number(env: StreamExecutionEnvironment, stream: Any, sink: Any) -> None:
    """Numbers the records of each remainder by 7, under uids, so that what is lost or read twice shows."""
    stream.key_by(lambda n: n % 7).process(Numbered()).uid("counter").sink_to(sink).uid("files")


def numbered(numbers: range) -> list[str]:
    """What `number` gives for numbers from 0."""
    return sorted(f"{n % 7} {n // 7 + 1}" for n in numbers)


def read_numbers(env: StreamExecutionEnvironment, frame: Any) -> Any:
    return env.from_dataframe(frame, NUMBERS).uid("numbers")


# --- as far as it goes ------------------------------------------------------------------------------------------------

SALES = [(name, 700 * i - 500 * (i % 4), i) for i, name in enumerate(["tea", "rye", "oat", "tea", "rye"] * 8)]


def expected_sums() -> list[str]:
    sums: Counter[tuple[str, int]] = Counter()
    for name, at, amount in SALES:
        sums[name, at // 5_000 * 5_000] += amount
    return sorted(f"{name} {start} {total}" for (name, start), total in sums.items())


def test_windows_over_several_runs_give_the_answer_of_plain_python(folder: Folder) -> None:
    """I1, G8, C2: files come between the runs, each a batch; event time goes on from run to run, at another
    parallelism; the last run waits for data, and is drained."""

    def start(parallelism: int, begin_from: str | None, options: dict[str, str] | None = None) -> Any:
        env = folder.environment(options, MICRO, parallelism, begin_from)
        strategy: Any = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(2_000))
        sales = env.from_dataframe(
            folder.frame("name STRING, at LONG, amount LONG"),
            watermark_strategy=strategy.with_timestamp_assigner(lambda row: row.at),
        )
        windows = sales.uid("sales").key_by(lambda row: row.name)
        sums = windows.window(TumblingEventTimeWindows.of(Duration.of_seconds(5))).process(SumOfWindow()).uid("sums")
        sums.sink_to(folder.sink()).uid("files")
        return env.execute_async()

    def has_come_to(rows: int) -> None:
        now = max(at for _, at, _ in SALES[:rows]) - 2_000
        assert folder.lines() == [line for line in expected_sums() if int(line.split()[1]) + 5_000 <= now]

    def put(first: int) -> None:
        folder.put(*(",".join(map(str, sale)) for sale in SALES[first : first + 10]))

    put(0)
    put(10)
    job = start(2, None)
    job.wait()
    has_come_to(20)
    put(20)
    job = start(3, folder.checkpoints(job)[-1])
    job.wait()
    has_come_to(30)
    put(30)
    job = start(1, folder.checkpoints(job)[-1], {"execution.micro-batch.interval": "100 ms"})
    before = folder.lines()
    wait_until(lambda: folder.lines() != before)
    has_come_to(40)
    folder.stop(job, drain=True)
    assert folder.lines() == expected_sums()


# --- with an interval -------------------------------------------------------------------------------------------------


def test_savepoints_are_taken_while_spark_waits_for_data(folder: Folder) -> None:
    """H1, H2: one that leaves the job running, one that stops it; either has Spark's position, and begins a job at
    another parallelism."""
    folder.put(*map(str, range(10)))

    def start(parallelism: int, begin_from: str | None, out: str, options: dict[str, str] | None = None) -> Any:
        env = folder.environment(options, MICRO, parallelism, begin_from)
        number(env, read_numbers(env, folder.frame()), folder.sink(out))
        return env.execute_async()

    job = start(2, None, "out", {"execution.micro-batch.interval": "1 h"})
    wait_until(lambda: bool(folder.lines()))
    running = job.trigger_savepoint(str(folder.store / "savepoints")).result(120)
    stopped = folder.stop(job)
    assert folder.lines() == numbered(range(10))
    folder.put(*map(str, range(10, 20)))
    for parallelism, savepoint, out in [(1, running, "one"), (3, stopped, "other")]:
        start(parallelism, savepoint, out).wait()
        assert folder.lines(out) == numbered(range(10, 20))


def test_a_stream_without_end_stops_and_goes_on(folder: Folder) -> None:
    """G8, H2: batches come one behind the other; no record is lost or read twice between the runs."""
    rate = folder.session.readStream.format("rate-micro-batch").option("rowsPerBatch", 30)
    savepoint: str | None = None
    for parallelism in (2, 3):
        env = folder.environment({"execution.micro-batch.interval": "10 ms"}, MICRO, parallelism, savepoint)
        number(env, read_numbers(env, rate.load().select("value")), folder.sink())
        before = len(folder.lines())
        job = env.execute_async()
        wait_until(functools.partial(folder.has_more_than, before))
        savepoint = folder.stop(job)
        assert folder.lines() == numbered(range(len(folder.lines())))


# --- several sources --------------------------------------------------------------------------------------------------


def test_two_frames_and_a_source_of_penstock_in_one_program(folder: Folder) -> None:
    """I1: one of the frames has more batches than the other; the program's own source goes on behind them."""
    for first in range(0, 20, 10):
        folder.put(*map(str, range(first, first + 10)))
    (folder.path / "names").mkdir()
    (folder.path / "names" / "one").write_text("zero")
    names = folder.session.readStream.text(str(folder.path / "names"), wholetext=True)
    env = folder.environment({"execution.micro-batch.max-records": "4"})
    numbers = read_numbers(env, folder.frame())
    source: Any = DataGeneratorSource(lambda n: 100 + n, 24)
    own = env.from_source(source, WatermarkStrategy.no_watermarks(), "own").uid("own")
    words = env.from_dataframe(names, Types.STRING()).uid("names").map(lambda name: len(name) * 1000)
    with numbers.union(own, words).execute_and_collect() as results:
        assert sorted(results) == [*range(20), *range(100, 124), 4000]


def test_other_frames_than_those_of_the_checkpoint_are_refused(folder: Folder) -> None:
    """H4: they have one position, so the error says what to do."""
    folder.put("1")
    env = folder.environment()
    read_numbers(env, folder.frame()).print()
    checkpoint = folder.checkpoints(env.execute())[-1]
    env = folder.environment(begin_from=checkpoint)
    read_numbers(env, folder.frame()).print()
    env.from_dataframe(folder.frame(), NUMBERS).uid("more").print()
    with pytest.raises(JobExecutionError, match="one position for the 1 streaming data frames"):
        env.execute()


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_failure_in_the_middle_of_a_batch_leaves_no_trace(folder: Folder) -> None:
    """G8, G9: the batch is read again from the checkpoint before it."""
    for first in range(0, 60, 30):
        folder.put(*map(str, range(first, first + 30)))
    mark = folder.path / "failed"

    def fail_once(n: int) -> int:
        if n == 45 and not mark.exists():
            mark.touch()
            raise RuntimeError("once")
        return n

    env = folder.environment(RESTART)
    number(env, read_numbers(env, folder.frame()).map(fail_once), folder.sink())
    env.execute()
    assert mark.exists()
    assert folder.lines() == numbered(range(60))


def test_a_users_error_has_its_place(folder: Folder, capfd: Any) -> None:
    """E1, J: it ends the query, of which Spark makes no noise, and the job; what came before it is in a checkpoint."""
    folder.put("1")
    folder.put("0")
    env = folder.environment()
    read_numbers(env, folder.frame()).map(lambda n: 1 // n).name("divide").sink_to(folder.sink())
    with pytest.raises(UserFunctionError, match="'divide'"):
        env.execute()
    assert folder.lines() == ["1"]
    assert not folder.session.streams.active
    assert "MicroBatchExecution" not in "".join(capfd.readouterr())


@pytest.fixture
def compacting(session: Any) -> Iterator[None]:
    """Spark makes one file of its file source's log every second batch, not every tenth."""
    session.conf.set("spark.sql.streaming.fileSource.log.compactInterval", "2")
    yield
    session.conf.unset("spark.sql.streaming.fileSource.log.compactInterval")


def test_any_checkpoint_is_gone_on_from(folder: Folder, compacting: None) -> None:
    """G8: nothing of Spark's own is needed, neither the location where it kept its position, nor a commit of the batch
    that the checkpoint covers, nor that batch's files; batches behind it are the same ones again."""
    files = [folder.put(*map(str, range(first, first + 10))) for first in range(0, 30, 10)]
    env = folder.environment({"execution.checkpointing.num-retained": "3"})
    number(env, read_numbers(env, folder.frame()), folder.sink())
    checkpoints = folder.checkpoints(env.execute())
    assert folder.lines() == numbered(range(30))
    for number_of_files, checkpoint in enumerate(checkpoints, 1):
        files[number_of_files - 1].unlink()
        out = f"from-{number_of_files}"
        env = folder.environment(begin_from=checkpoint)
        number(env, read_numbers(env, folder.frame()), folder.sink(out))
        env.execute()
        assert folder.lines(out) == numbered(range(10 * number_of_files, 30))


def test_a_job_is_cancelled_while_spark_waits_for_data(folder: Folder) -> None:
    """E1: the query ends with it."""
    env = folder.environment({"execution.micro-batch.interval": "1 h"})
    number(env, read_numbers(env, folder.frame()), folder.sink())
    job = env.execute_async()
    wait_until(lambda: bool(folder.session.streams.active))
    job.cancel().result(120)
    with pytest.raises(JobExecutionError, match="cancelled"):
        job.wait()
    assert not folder.session.streams.active


def test_a_driver_that_leads_no_longer_ends_its_query(folder: Folder) -> None:
    """E7, G8: its job is suspended, with all checkpoints for the driver that leads next."""
    folder.put(*map(str, range(10)))
    env = folder.environment({"execution.micro-batch.interval": "1 h"})
    number(env, read_numbers(env, folder.frame()), folder.sink())
    job: Any = env.execute_async()
    wait_until(lambda: folder.lines() == numbered(range(10)))
    job.lose_leadership("somebody said so")
    with pytest.raises(DeposedError, match="was suspended: somebody said so"):
        job.wait()
    assert not folder.session.streams.active
    assert folder.checkpoints(job)


def test_a_query_that_ends_begins_again_from_the_last_checkpoint(folder: Folder) -> None:
    """G8: as after a failure of Spark's source."""
    folder.put(*map(str, range(10)))
    env = folder.environment({**RESTART, "execution.micro-batch.interval": "100 ms"})
    number(env, read_numbers(env, folder.frame()), folder.sink())
    job = env.execute_async()
    wait_until(lambda: folder.lines() == numbered(range(10)))
    folder.put(*map(str, range(10, 20)))
    (query,) = folder.session.streams.active
    query.stop()
    wait_until(lambda: folder.lines() == numbered(range(20)))
    folder.stop(job)


# --- other execution modes --------------------------------------------------------------------------------------------


def test_keyed_state_goes_over_to_streaming_with_another_source(folder: Folder) -> None:
    """H4, I1: the live program reads the same elsewhere, under another uid."""
    folder.put(*map(str, range(12)))
    env = folder.environment()
    number(env, read_numbers(env, folder.frame()), folder.sink())
    checkpoint = folder.checkpoints(env.execute())[-1]
    ignores = {"execution.state-recovery.ignore-unclaimed-state": "true", "execution.target": "local"}
    env = folder.environment(ignores, STREAMING, 3, checkpoint)
    live = env.from_collection(list(range(12, 30))).uid("live")
    number(env, live, folder.sink())
    env.execute()
    assert folder.lines() == numbered(range(30))


def test_a_streaming_frame_needs_micro_batch_execution_on_spark(folder: Folder) -> None:
    """I1, J: the errors say what to do."""
    frame = folder.frame()
    for mode in (STREAMING, BATCH, RuntimeExecutionMode.AUTOMATIC):
        env = folder.environment(mode=mode)
        env.from_dataframe(frame).print()
        with pytest.raises(ConfigurationError, match=r"set_runtime_mode\(RuntimeExecutionMode.MICRO_BATCH\)"):
            env.execute()
    env = folder.environment({"execution.target": "local"})
    env.from_dataframe(frame).print()
    with pytest.raises(ConfigurationError, match="needs Spark"):
        env.execute()


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.groupBy("n").count(),
        lambda frame: frame.dropDuplicates(["n"]),
        lambda frame: frame.limit(3),
        lambda frame: frame.alias("a").join(frame.alias("b"), "n"),
    ],
    ids=["aggregation", "duplicates", "limit", "join"],
)
def test_a_frame_that_keeps_state_in_spark_is_refused(folder: Folder, change: Any) -> None:
    """G8: checkpoints would not hold it."""
    frame = change(folder.frame())
    with pytest.raises(ConfigurationError, match=r"move that part after from_dataframe\(\)"):
        folder.environment().from_dataframe(frame)


def test_a_frame_of_spark_connect_is_refused(tmp_path: Path) -> None:
    """J: Spark would call the job back on its server."""
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe", "isStreaming": True})()
    with pytest.raises(ConfigurationError, match="use a classic Spark session"):
        StreamExecutionEnvironment.get_execution_environment().from_dataframe(frame)
