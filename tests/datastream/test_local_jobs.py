"""Whole programs on the local driver: same answers as plain Python, at every parallelism, through failures."""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
import pytest
from tests.failing import FailsOnce
from tests.jobs import JOBS, Job

from penstock.base.configuration import Configuration
from penstock.base.errors import JobExecutionError, UserFunctionError
from penstock.base.job import JobStatus
from penstock.base.output_tag import OutputTag
from penstock.base.restart_strategy import RestartStrategies
from penstock.base.time import Duration
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collection import CollectionSource
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import MapFunction, ProcessFunction
from penstock.datastream.window import TumblingEventTimeWindows

logging.getLogger("penstock").addHandler(logging.NullHandler())


def environment(parallelism: int = 1, **options: Any) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    for key, value in options.items():
        configuration.set_string(key, str(value))
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)


def checkpointed(parallelism: int = 1, **options: Any) -> StreamExecutionEnvironment:
    env = environment(parallelism, **{"penstock.source.batch-records": 16, **options})
    env.enable_checkpointing(2)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 1))
    return env


def collect(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return sorted(results)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Any:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert set(threading.enumerate()) <= before


# --- the three jobs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_jobs_equal_plain_python(job: Job, parallelism: int) -> None:
    """A1, A2, C1, B2: word count, session windows, keyed process with timers equal plain Python at any parallelism."""
    assert collect(job.build(environment(parallelism))) == job.expected()


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_jobs_with_checkpoints(job: Job, parallelism: int, tmp_path: Path) -> None:
    """G6, F6: with checkpoints all the time the answers are the same, and nothing is left but a mark of the end."""
    env = checkpointed(parallelism, **{"execution.checkpointing.dir": tmp_path})
    assert collect(job.build(env)) == job.expected()
    assert [p.parent for p in tmp_path.rglob("*") if p.is_file()] == [tmp_path / "jobs"]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_jobs_without_chaining(job: Job) -> None:
    """B4: without chaining, and in tiny network buffers, the answers are the same."""
    env = environment(2, **{"penstock.network.buffer-records": 7, "penstock.source.batch-records": 11})
    assert collect(job.build(env.disable_operator_chaining())) == job.expected()


@pytest.mark.parametrize("after", [1, 100])
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_jobs_through_a_failure(job: Job, parallelism: int, after: int, tmp_path: Path) -> None:
    """G8, G9: a job that fails and restarts gives each result exactly once."""
    marker = tmp_path / "marker"
    stream = job.build(checkpointed(parallelism)).map(FailsOnce(marker, after)).name("fails")
    assert collect(stream) == job.expected()
    assert marker.exists()


class FailsAfterCheckpoint(MapFunction):
    """Raises once, when the first checkpoint is there to recover from."""

    def __init__(self, directory: str, marker: Path) -> None:
        self.directory, self.marker = directory, marker

    def open(self, runtime_context: Any) -> None:
        self.seen = 0

    def map(self, value: Any) -> Any:
        self.seen += 1
        if self.seen % 64 == 0 and not self.marker.exists():
            fs, root = fsspec.core.url_to_fs(self.directory)
            if any(path.endswith("/_metadata") for path in fs.find(root)):
                self.marker.write_text("failed")
                raise RuntimeError("once")
        return value


@pytest.mark.parametrize("protocol", ["file://", "memory:/"])
@pytest.mark.parametrize("inline", ["20 kb", "0 b"])
def test_recovery_from_any_file_system(
    protocol: str, inline: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """G8, G11: a checkpoint on any fsspec file system is found whole, and the job goes on from it."""
    caplog.set_level(logging.INFO, "penstock")
    directory = f"{protocol}{tmp_path}/checkpoints"
    env = checkpointed(
        2,
        **{"execution.checkpointing.dir": directory, "execution.checkpointing.data-inline-threshold": inline},
    )
    source: DataGeneratorSource[Any] = DataGeneratorSource(lambda i: (i % 10, 1), 20_000)
    pairs = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    counts = pairs.key_by(lambda v: v[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    results = collect(counts.map(FailsAfterCheckpoint(directory, tmp_path / "marker")))
    assert results == [(key, n) for key in range(10) for n in range(1, 2_001)]
    assert (tmp_path / "marker").exists()
    assert "from checkpoint" in caplog.text


# --- shapes of programs ---------------------------------------------------------------------------------------------


def test_union() -> None:
    """A2: a union has the records of all its streams; of one taken twice, twice."""
    env = environment(2)
    one, two = env.from_collection([1, 2]), env.from_collection([3])
    assert collect(one.union(two, one).map(lambda v: v * 10)) == [10, 10, 20, 20, 30]


def test_union_of_watermarks() -> None:
    """C2: a window over a union fires when event time has passed in all its streams."""
    env = environment(2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v: v[1])
    one = env.from_source(CollectionSource([("a", t) for t in range(100)]), strategy, "one")
    two = env.from_source(CollectionSource([("a", t) for t in range(0, 100, 10)]), strategy, "two")
    windows = one.union(two).key_by(lambda v: v[0]).window(TumblingEventTimeWindows.of(50))
    assert collect(windows.reduce(lambda a, b: (a[0], max(a[1], b[1]), 1)).map(lambda v: v[1])) == [49, 99]


def test_side_outputs() -> None:
    """A1: side outputs are streams of their own, and one that nobody reads is dropped."""
    odd, unread = OutputTag("odd"), OutputTag("unread")

    class Route(ProcessFunction):
        def process_element(self, value: int, ctx: Any) -> Any:
            yield unread, value
            yield (odd, value) if value % 2 else value

    env = environment(2)
    main = env.from_collection(range(10)).process(Route())
    sides = main.get_side_output(odd).map(lambda v: -v)
    assert collect(main.union(sides)) == [-9, -7, -5, -3, -1, 0, 2, 4, 6, 8]


def test_side_output_over_the_network() -> None:
    """A1, B3: a side output can be partitioned by key."""
    tag = OutputTag("t")
    env = environment(2)
    stream = env.from_collection(range(10)).flat_map(lambda v: [(tag, (v % 3, 1))])
    counts = stream.get_side_output(tag).key_by(lambda v: v[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    assert Counter(k for k, _ in collect(counts)) == {0: 4, 1: 3, 2: 3}


def test_late_records_are_a_stream() -> None:
    """C1: records too late for their window come out of the late side output."""
    late = OutputTag("late")
    env = environment(1, **{"penstock.source.batch-records": 1})
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v: v)
    stream = env.from_source(CollectionSource([1, 25, 3, 26]), strategy, "times").key_by(lambda v: 0)
    counts = stream.window(TumblingEventTimeWindows.of(10)).side_output_late_data(late).reduce(lambda a, b: a + b)
    assert collect(counts.union(counts.get_side_output(late).map(lambda v: ("late", v)).map(lambda v: -v[1]))) == [
        -3, 1, 51,
    ]  # fmt: skip


@pytest.mark.parametrize("parallelism", [1, 3])
def test_broadcast_and_global(parallelism: int) -> None:
    """B3: broadcast gives each record to every subtask, global_ all to the first, rebalance each to one."""

    class Who(MapFunction):
        def open(self, runtime_context: Any) -> None:
            self.index = runtime_context.get_index_of_this_subtask()

        def map(self, value: Any) -> Any:
            return self.index, value

    values = list(range(20))
    everywhere = collect(environment(parallelism).from_collection(values).broadcast().map(Who()))
    assert everywhere == sorted((i, v) for i in range(parallelism) for v in values)
    first = collect(environment(parallelism).from_collection(values).global_().map(Who()))
    assert first == [(0, v) for v in values]
    dealt = collect(environment(parallelism).from_collection(values).rebalance().map(Who()))
    assert sorted(v for _, v in dealt) == values
    assert len({i for i, _ in dealt}) == parallelism
    kept = collect(environment(parallelism).from_collection(values).rebalance().map(Who()).forward().map(Who()))
    assert all(outer == inner for outer, (inner, _) in kept)


def test_keys_meet_in_one_subtask() -> None:
    """B3, D4: all records of a key are processed by one subtask."""

    class Who(MapFunction):
        def open(self, runtime_context: Any) -> None:
            self.index = runtime_context.get_index_of_this_subtask()

        def map(self, value: Any) -> Any:
            return value, self.index

    keys = [n % 17 for n in range(200)]
    stream = environment(4).from_collection(keys).rebalance().map(lambda v: v).key_by(lambda v: v)
    found = set(collect(stream.map(Who())))
    assert len(found) == 17
    assert len({subtask for _, subtask in found}) > 1


def test_order_is_kept_between_two_subtasks() -> None:
    """B3: a stream of one subtask arrives in its order."""
    env = environment(1, **{"penstock.source.batch-records": 3})
    results = list(env.from_collection(range(100)).key_by(lambda v: 0).map(lambda v: v).execute_and_collect())
    assert results == list(range(100))


# --- how programs are run -------------------------------------------------------------------------------------------


def test_limit() -> None:
    """E1: with a limit the job is cancelled when so many results have come, even if it would go on for ever."""
    source: DataGeneratorSource[int] = DataGeneratorSource(lambda i: i)
    stream = environment().from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    assert stream.execute_and_collect(limit=5) == [0, 1, 2, 3, 4]
    assert environment().from_collection([1, 2]).execute_and_collect(limit=5) == [1, 2]
    assert checkpointed().from_collection([1, 2]).execute_and_collect(limit=1) == [1]


def test_execute_gives_a_result() -> None:
    """E1: execute waits and gives the job's id and time."""
    env = environment()
    env.from_collection([1]).map(lambda v: v)
    result = env.execute("my job")
    assert re.fullmatch("[0-9a-f]{32}", str(result.get_job_id()))
    assert result.get_net_runtime() >= 0
    with pytest.raises(ValueError, match="nothing to execute"):
        env.execute()


def test_execute_async_and_cancel() -> None:
    """E1, E5: a running job can be looked at and cancelled."""
    source: DataGeneratorSource[int] = DataGeneratorSource(lambda i: i, rate_per_second=1000)
    env = environment(2)
    started = threading.Event()
    tell = started.set
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(lambda v: v).print("never")
    env._transformations[-1].client_handler = lambda subtask, payload: tell()
    client = env.execute_async("endless")
    assert started.wait(60)
    assert client.get_job_status().result() is JobStatus.RUNNING
    assert client.get_progress().result(20).source_records >= 0
    client.cancel().result()
    with pytest.raises(JobExecutionError, match="cancelled"):
        client.get_job_execution_result().result(20)
    assert client.get_job_status().result() is JobStatus.CANCELED


def test_leaving_results_early_cancels_the_job() -> None:
    """E1: closing the iterator ends the job."""
    source: DataGeneratorSource[int] = DataGeneratorSource(lambda i: i)
    stream = environment().from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    results: Any = stream.execute_and_collect()
    with results:
        assert next(results) == 0
        job = results._job
    assert job.get_job_status().result() is JobStatus.CANCELED


@pytest.mark.parametrize(
    ("parallelism", "identifier", "expected"),
    [(1, None, "a\nb\n"), (1, "words", "words> a\nwords> b\n"), (2, None, "[12]> "), (2, "words", "words:[12]> ")],
)
def test_print(parallelism: int, identifier: str | None, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A2: print writes a line a record, as Flink does: with the identifier, and the subtask when there are several."""
    env = environment(parallelism)
    env.from_collection(["a", "b"]).print(identifier)
    env.execute()
    out = capsys.readouterr().out
    if parallelism == 1:
        assert out == expected
    else:
        assert all(re.fullmatch(expected + "[ab]", line) for line in out.splitlines())
        assert len(out.splitlines()) == 2


def test_empty_collection() -> None:
    """A2: a stream without records ends like any other."""
    assert collect(environment(2).from_collection([]).key_by(lambda v: v).reduce(max)) == []


def test_records_may_be_none() -> None:
    """A2: None is a record."""
    assert list(environment(2).from_collection([None, None]).map(lambda v: v).execute_and_collect()) == [None, None]


def test_job_that_lives_longer_than_the_heartbeat_timeout() -> None:
    """E2: in one process there is no heartbeat to miss: a long job is not taken for a lost worker."""
    ticks: list[int] = []

    def work(value: int) -> int:
        """Longer than the time-out, without sleeping."""
        ticks.append(sum(range(20_000)))
        return value

    env = environment(1, **{"heartbeat.timeout": "1 ms", "penstock.source.batch-records": 1})
    assert collect(env.from_collection(range(50)).map(work)) == list(range(50))


# --- failures -------------------------------------------------------------------------------------------------------


def failing(value: int) -> int:
    return helper(value)


def helper(value: int) -> int:
    if value == 7:
        raise ValueError("seven is not a number that we like")
    return value


@pytest.mark.parametrize("parallelism", [1, 2])
def test_failing_function(parallelism: int) -> None:
    """A2: the error shows operator, subtask, record and the user's own traceback, without any frame of Penstock."""
    stream = (
        environment(parallelism).from_collection(range(10)).rebalance().map(lambda v: v).map(failing).name("My Map")
    )
    with pytest.raises(UserFunctionError) as caught:
        collect(stream)
    text = str(caught.value)
    assert text.startswith(f"operator 'My Map', subtask {caught.value.subtask_index + 1}/{parallelism}\nrecord: 7\n")
    assert "in failing" in text
    assert "in helper" in text
    assert text.endswith("ValueError: seven is not a number that we like")
    assert "penstock" not in text.replace(str(Path(__file__).parents[2]), "")
    assert caught.value.job_name == "Penstock Streaming Job"


def test_failing_function_after_key_by() -> None:
    """A2: the same for keyed functions, in the middle of a batch."""
    stream = environment(2).from_collection(range(10)).key_by(lambda v: v % 2).map(failing).name("keyed")
    with pytest.raises(UserFunctionError, match="operator 'keyed'") as caught:
        collect(stream)
    assert caught.value.record_text == "7"


@pytest.mark.parametrize("parallelism", [1, 2])
def test_failing_key_selector(parallelism: int) -> None:
    """A2: a key selector that raises is the user's function as well, at every parallelism."""
    stream = environment(parallelism).from_collection([{"k": 1}, {}]).key_by(lambda v: v["k"]).reduce(max).name("r")
    with pytest.raises(UserFunctionError) as caught:
        collect(stream)
    assert caught.value.record_text == "{}"


def test_failing_timestamp_assigner() -> None:
    """A2, C2: so is a timestamp assigner."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v: v["time"])
    stream = environment().from_source(CollectionSource([{"time": 1}, {}]), strategy, "My Source")
    with pytest.raises(UserFunctionError, match="My Source") as caught:
        collect(stream)
    assert caught.value.record_text == "{}"


def test_restarts_end(tmp_path: Path) -> None:
    """G8: a function that always fails is restarted as often as the strategy says, and then the job fails."""
    env = checkpointed()
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, Duration.of_millis(1)))
    marks = tmp_path / "opened"

    class Counts(MapFunction):
        def open(self, runtime_context: Any) -> None:
            with marks.open("a") as file:
                file.write(f"{runtime_context.get_attempt_number()} ")

        def map(self, value: int) -> int:
            return failing(value)

    with pytest.raises(UserFunctionError, match="seven"):
        collect(env.from_collection([7]).map(Counts()))
    assert marks.read_text() == "0 1 2 "


def test_unstorable_state_at_first_use() -> None:
    """D1: state that cannot be stored fails the job, naming operator and state."""
    stream = checkpointed().from_collection([1, 2]).key_by(lambda v: 0).reduce(lambda a, b: threading.Lock())
    stream.name("My Reduce")
    with pytest.raises(JobExecutionError, match="My Reduce"):
        collect(stream)


def test_local_needs_no_spark() -> None:
    """E8: the local driver runs without PySpark being imported."""
    import subprocess

    code = (
        "import sys\n"
        "sys.modules['pyspark'] = None\n"
        "from penstock.base.configuration import Configuration\n"
        "from penstock.datastream import StreamExecutionEnvironment as E\n"
        "c = Configuration(); c.set_string('execution.target', 'local')\n"
        "stream = E.get_execution_environment(c).from_collection([1, 2]).map(lambda v: v + 1)\n"
        "print(stream.execute_and_collect(limit=9))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[2, 3]\n", done.stderr


def test_a_script_of_its_own() -> None:
    """E1, D1: a program run as a script, with its classes in `__main__`, works with checkpoints."""
    import subprocess

    code = (
        "import dataclasses\n"
        "from penstock.base.configuration import Configuration\n"
        "from penstock.datastream import StreamExecutionEnvironment as E\n"
        "@dataclasses.dataclass\n"
        "class Visit:\n"
        "    user: str\n"
        "    count: int\n"
        "c = Configuration(); c.set_string('execution.target', 'local')\n"
        "e = E.get_execution_environment(c).set_parallelism(2)\n"
        "e.enable_checkpointing(1)\n"
        "s = e.from_collection([Visit('a', 1)] * 3).key_by(lambda v: v.user)\n"
        "r = s.reduce(lambda a, b: Visit(a.user, a.count + b.count))\n"
        "print(sorted(v.count for v in r.execute_and_collect()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[1, 2, 3]\n", done.stderr
