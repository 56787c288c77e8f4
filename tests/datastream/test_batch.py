"""Bounded programs in batch execution: the same final result as in streaming (I1), without checkpoints (I2)."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.jobs import BUCKETS, JOBS, SESSIONS, WORD_COUNT, Job, build_word_count

from penstock.base.errors import CheckpointError, ConfigurationError, JobExecutionError, UserFunctionError
from penstock.base.job import JobStatus
from penstock.base.output_tag import OutputTag
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Configuration, Encoder, Types
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from penstock.datastream.functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    ProcessFunction,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor


def batch(parallelism: int = 1, mode: RuntimeExecutionMode = RuntimeExecutionMode.BATCH, **options: Any) -> Any:
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    for key, value in options.items():
        configuration.set_string(key, str(value))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(parallelism).set_runtime_mode(mode)


def collect(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return sorted(results)


def last_of_each(counts: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """What is left of running counts."""
    return sorted(dict(sorted(counts)).items())


@pytest.mark.parametrize("chaining", [True, False])
@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_programs_give_the_answer_of_plain_python(job: Job, parallelism: int, chaining: bool) -> None:
    """I1: windows, timers and state. A running reduce gives the last value of each key only, as Flink has it."""
    expected = last_of_each(job.expected()) if job is WORD_COUNT else job.expected()
    env = batch(parallelism)
    if not chaining:
        env.disable_operator_chaining()
    assert collect(job.build(env)) == expected


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.AUTOMATIC, RuntimeExecutionMode.STREAMING])
def test_automatic_mode_is_batch_for_bounded_sources(mode: RuntimeExecutionMode) -> None:
    """I1: the running counts of streaming, or only the last ones."""
    counts = collect(build_word_count(batch(mode=mode)))
    streamed = WORD_COUNT.expected()
    assert counts == (streamed if mode is RuntimeExecutionMode.STREAMING else last_of_each(streamed))


def test_batch_needs_bounded_sources() -> None:
    """I1: the error names the source; in automatic mode such a program streams."""
    env = batch()
    source: Any = DataGeneratorSource(lambda n: n, None)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "endless").print()
    with pytest.raises(ConfigurationError, match="'endless' is unbounded"):
        env.execute()


class Prices(KeyedCoProcessFunction):
    """The price in force for each order."""

    def open(self, runtime_context: Any) -> None:
        self.price = runtime_context.get_state(ValueStateDescriptor("price"))

    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield value[0], value[1], self.price.value()

    def process_element2(self, value: Any, ctx: Any) -> Any:
        self.price.update(value[2])


def test_two_keyed_inputs_meet_in_order_of_time() -> None:
    """I1, A2: what streaming cannot promise, batch can: a price is there before the orders that come after it."""
    env = batch(2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value: value[1])
    orders = [("tea", 1), ("tea", 15), ("tea", 25), ("rye", 30)]
    prices = [("tea", 10, 5), ("tea", 20, 6), ("rye", 40, 1)]
    left = env.from_collection(orders).assign_timestamps_and_watermarks(strategy).key_by(lambda v: v[0])
    right = env.from_collection(prices).assign_timestamps_and_watermarks(strategy).key_by(lambda v: v[0])
    found = collect(left.connect(right).process(Prices()).map(repr))
    assert found == sorted(map(repr, [("tea", 1, None), ("tea", 15, 5), ("tea", 25, 6), ("rye", 30, None)]))


class Rules(KeyedBroadcastProcessFunction):
    RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value[0], value[1] * (ctx.get_broadcast_state(self.RULES).get(value[0]) or 0)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(self.RULES).put(value[0], value[1])


def test_a_broadcast_side_comes_first() -> None:
    """I1, A1: every record finds all rules."""
    env = batch(3)
    rules = env.from_collection([("a", 10), ("b", 100)]).broadcast(Rules.RULES)
    values = env.from_collection([("a", n) for n in range(20)] + [("b", 1)]).key_by(lambda value: value[0])
    assert collect(values.connect(rules).process(Rules())) == [*(("a", n * 10) for n in range(20)), ("b", 100)]


class UnkeyedRules(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value * (ctx.get_broadcast_state(Rules.RULES).get("factor") or 0)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(Rules.RULES).put(value[0], value[1])


def test_a_broadcast_side_comes_first_without_keys_too() -> None:
    """I1, A1: as in Flink."""
    env = batch(2)
    values = env.from_collection(list(range(5))).rebalance()
    rules = env.from_collection([("factor", 10)]).broadcast(Rules.RULES)
    assert collect(values.connect(rules).process(UnkeyedRules())) == [0, 10, 20, 30, 40]


def test_side_outputs_unions_and_several_sinks() -> None:
    """I1, A2: one stream is read by several, and each record comes to each of them once."""
    tag = OutputTag("odd", Types.INT())

    class Split(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield (tag, value) if value % 2 else value

    env = batch(2)
    numbers = env.from_collection(list(range(10))).rebalance()
    split = numbers.process(Split())
    both = split.map(lambda n: ("even", n)).union(split.get_side_output(tag).map(lambda n: ("odd", n)))
    both.print()
    assert collect(both.union(numbers.map(lambda n: ("all", n)))) == sorted(
        [*(("all", n) for n in range(10)), *(("odd" if n % 2 else "even", n) for n in range(10))]
    )


def lines_below(directory: Path) -> list[str]:
    return sorted(line for file in directory.rglob("part-*") for line in file.read_text().splitlines())


def test_files_in_and_out(tmp_path: Path) -> None:
    """I1, G9: what a two-phase sink has prepared is committed when all tasks have ended."""
    (tmp_path / "in").mkdir()
    for number in range(4):
        (tmp_path / "in" / f"{number}.txt").write_text("\n".join(f"{number}-{n}" for n in range(50)))
    env = batch(3)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path / "in")).build()
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    env.from_source(source, WatermarkStrategy.no_watermarks(), "files").map(str.upper).sink_to(sink)
    env.execute()
    assert lines_below(tmp_path / "out") == sorted(f"{number}-{n}" for number in range(4) for n in range(50))


def test_a_job_that_fails_commits_nothing(tmp_path: Path) -> None:
    """I2, G9: the error is the user's own, with operator, subtask and record."""
    env = batch(2)
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    numbers = env.from_collection(list(range(100))).rebalance()
    numbers.map(lambda n: str(1 // (50 - n))).name("divide").sink_to(sink)
    with pytest.raises(UserFunctionError, match="ZeroDivisionError") as caught:
        env.execute("dividing")
    assert "'divide'" in str(caught.value)
    assert "50" in str(caught.value)
    assert lines_below(tmp_path) == []


def test_batch_takes_no_savepoints() -> None:
    """I2: whoever asks is told why."""
    env = batch()
    env.from_collection([1, 2, 3]).print()
    job = env.execute_async("counting")
    with pytest.raises(CheckpointError, match="'counting' runs in batch execution"):
        job.trigger_savepoint("/tmp").result(10)
    job.wait()


RUNNING = threading.Event()


def slowly(value: int) -> int:
    RUNNING.set()
    time.sleep(0.0001)
    return value


def test_cancel() -> None:
    """E5: a cancelled job ends, and gives nothing."""
    RUNNING.clear()
    env = batch()
    env.from_collection(list(range(1_000_000))).map(slowly).print()
    job = env.execute_async()
    assert RUNNING.wait(30)
    job.cancel().result(10)
    with pytest.raises(JobExecutionError, match="cancelled"):
        job.wait()
    assert job.get_job_status().result() is JobStatus.CANCELED


def test_the_jobs_of_the_other_tests_are_these() -> None:
    """I1: what is compared here is what streaming is held to as well."""
    assert {SESSIONS, BUCKETS, WORD_COUNT} == set(JOBS)


def test_records_of_a_declared_type_are_written_as_pyflink_writes_them(tmp_path: Path) -> None:
    """A2: the default buckets go by the clock, so results of count windows, which have no time, find one too."""
    env = batch(1)
    pairs = env.from_collection([("a", 1), ("a", 2), ("b", 3), ("b", 4)])
    sums = pairs.key_by(lambda pair: pair[0]).count_window(2).reduce(lambda one, other: (one[0], one[1] + other[1]))
    typed = sums.map(lambda pair: pair, output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
    typed.sink_to(FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build())
    env.execute()
    assert lines_below(tmp_path) == ["(a,3)", "(b,7)"]
