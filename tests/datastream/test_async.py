"""Whole programs with asynchronous functions: the answers of plain Python, through failures, stops and rescaling."""

from __future__ import annotations

import asyncio
import logging
import threading
import types
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.failing import FailsOnce
from tests.spec.virtual_job import LEDGER, LedgerSink, VirtualJob, clear_ledger
from tests.spec.virtual_job import environment as virtual_environment

from penstock import datastream
from penstock.base.errors import JobExecutionError, UserFunctionError
from penstock.base.job import JobStatus
from penstock.base.restart_strategy import RestartStrategies
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Configuration, Duration, Time
from penstock.connectors.collection import CollectionSource
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.async_retry_predicates import exception_type_predicate, has_exception_predicate
from penstock.datastream.async_retry_strategies import (
    ExponentialBackoffDelayRetryStrategy,
    FixedDelayRetryStrategy,
    NoRetryStrategy,
    RetryPredicate,
)

logging.getLogger("penstock").addHandler(logging.NullHandler())

pytestmark = pytest.mark.usefixtures("checkpoints_in_store")

NUMBERS = range(300)
EXECUTION_MODES = [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH, RuntimeExecutionMode.MICRO_BATCH]


class LookUp(AsyncFunction):
    """Answers after 0 to 3 ms; some take longer than others."""

    async def async_invoke(self, value: int) -> list[Any]:
        await asyncio.sleep(value % 4 / 1000)
        return [(value, value * value)] if value % 3 else []


EXPECTED = [(n, n * n) for n in NUMBERS if n % 3]


def environment(parallelism: int = 1, **options: Any) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    for key, value in options.items():
        configuration.set_string(key, str(value))
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)


def collect(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return list(results)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Any:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert set(threading.enumerate()) <= before


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", EXECUTION_MODES)
@pytest.mark.parametrize("capacity", [1, 7, 1_000])
def test_ordered_wait_keeps_the_order(capacity: int, mode: RuntimeExecutionMode) -> None:
    """A1, I1: results in the order of the records, however many calls are out, in streaming and in batch."""
    env = environment().set_runtime_mode(mode)
    stream = AsyncDataStream.ordered_wait(env.from_collection(NUMBERS), LookUp(), Time.seconds(20), capacity)
    assert collect(stream) == EXPECTED


@pytest.mark.parametrize("mode", EXECUTION_MODES)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_unordered_wait_gives_every_result(parallelism: int, mode: RuntimeExecutionMode) -> None:
    """A1, I1: the same results in any order, of a stream that is spread over subtasks, keyed or not."""
    env = environment(parallelism).set_runtime_mode(mode)
    numbers = env.from_collection(NUMBERS).key_by(lambda n: n)
    assert sorted(collect(AsyncDataStream.unordered_wait(numbers, LookUp(), Duration.of_seconds(20)))) == EXPECTED


@pytest.mark.parametrize("timeout", [None, 0, 20_000])
def test_a_plain_coroutine_function_will_do(timeout: int | None) -> None:
    """A1: an `async def` where a class is not needed; `partial` and bound methods as well."""

    async def add(more: int, value: int) -> list[int]:
        return [value + more]

    stream = environment().from_collection([1, 2])
    stream = AsyncDataStream.unordered_wait(stream, partial(add, 10), timeout)
    assert collect(AsyncDataStream.ordered_wait(stream, LookUp().async_invoke, timeout)) == [(11, 121)]


@pytest.mark.parametrize("ordered", [True, False])
def test_retries_give_the_answer_in_the_end(ordered: bool) -> None:
    """A1: a service that refuses each first call; the strategy asks again."""

    class Refusing(AsyncFunction):
        def open(self, runtime_context: Any) -> None:
            self.seen: set[int] = set()

        async def async_invoke(self, value: int) -> list[int]:
            if value not in self.seen:
                self.seen.add(value)
                raise ConnectionError("try again")
            return [value]

    wait = AsyncDataStream.ordered_wait_with_retry if ordered else AsyncDataStream.unordered_wait_with_retry
    on_refusal = partial(exception_type_predicate, expected_error_type=ConnectionError)
    strategy = AsyncRetryStrategy.fixed_delay(
        max_attempts=2, backoff_time_millis=1, result_predicate=None, exception_predicate=on_refusal
    )
    stream = wait(environment().from_collection(range(50)), Refusing(), Time.seconds(20), strategy, 10)
    assert sorted(collect(stream)) == list(range(50))


class Patient(AsyncRetryStrategy):
    """A strategy of one's own: asks up to 4 times for results that are not negative."""

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts < 4

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return current_attempts

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        return RetryPredicate(result_predicate=lambda results: results[0] < 0, exception_predicate=None)


def test_a_strategy_of_ones_own_goes_by_results() -> None:
    """A1: what remains as it is after the last attempt counts all the same."""
    assert isinstance(Patient().get_retry_predicate(), AsyncRetryPredicate)

    class Improving(AsyncFunction):
        def open(self, runtime_context: Any) -> None:
            self.attempts: dict[int, int] = {}

        async def async_invoke(self, value: int) -> list[int]:
            self.attempts[value] = self.attempts.get(value, 0) + 1
            return [self.attempts[value] - value]

    stream = AsyncDataStream.ordered_wait_with_retry(
        data_stream=environment().from_collection([1, 4, 9]),
        async_function=Improving(),
        timeout=Time.seconds(20),
        async_retry_strategy=Patient(),
        capacity=10,
    )
    assert collect(stream) == [0, 0, -5]


def test_watermarks_stay_behind_results() -> None:
    """C2: no record is late behind a call, whatever it takes."""

    async def slow(value: tuple[int, int]) -> list[tuple[int, int]]:
        await asyncio.sleep(value[0] % 5 / 1000)
        return [value]

    from penstock.datastream.functions import ProcessFunction

    class Late(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            if ctx.timestamp() <= ctx.timer_service().current_watermark():
                yield value

    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value: value[1])
    records: CollectionSource[Any] = CollectionSource([(n, n * 10) for n in range(200)])
    env = environment(1, **{"penstock.source.batch-records": 4})
    stream = AsyncDataStream.unordered_wait(env.from_source(records, strategy, "records"), slow, None, 20)
    assert collect(stream.process(Late())) == []


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", EXECUTION_MODES)
def test_an_error_names_operator_and_record(mode: RuntimeExecutionMode) -> None:
    """A1: and ends with the user's own exception; calls that are still out hold nothing up."""

    async def divide(value: int) -> list[float]:
        if value != 7:
            await asyncio.sleep(3_600 if value > 7 else 0)
        return [1 / (value - 7)]

    env = environment().set_runtime_mode(mode)
    stream = AsyncDataStream.ordered_wait(env.from_collection(range(20)), divide, None).name("divide")
    with pytest.raises(UserFunctionError) as failure:
        collect(stream)
    text = str(failure.value)
    assert "operator 'divide'" in text
    assert "record: 7" in text
    assert "ZeroDivisionError" in text
    assert "in divide" in text, "the place in the user's code"


def test_a_timeout_fails_the_job_unless_it_is_dealt_with() -> None:
    """A1: `timeout` may emit something else."""

    class Hanging(AsyncFunction):
        async def async_invoke(self, value: int) -> list[Any]:
            await asyncio.sleep(3_600)
            return []

    class Careful(Hanging):
        def timeout(self, value: int) -> list[Any]:
            return [f"no answer to {value}"]

    for mode in EXECUTION_MODES:
        numbers = environment().set_runtime_mode(mode).from_collection([1, 2])
        assert collect(AsyncDataStream.ordered_wait(numbers, Careful(), Time.milliseconds(20))) == [
            "no answer to 1",
            "no answer to 2",
        ]
    with pytest.raises(JobExecutionError, match="TimeoutError"):
        collect(AsyncDataStream.ordered_wait(environment().from_collection([1]), Hanging(), 20))


def test_cancelling_a_job_does_not_wait_for_its_calls() -> None:
    """F4: calls that would take for ever are cancelled."""

    async def hang(value: int) -> list[int]:
        await asyncio.sleep(0 if value == 0 else 3_600)
        return [value]

    stream: Any = AsyncDataStream.ordered_wait(environment().from_collection([0, 1, 2]), hang, None)
    with stream.execute_and_collect() as results:
        assert next(results) == 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"async_function": lambda value: [value]}, TypeError, "as `async def`"),
        ({"capacity": 0}, ValueError, "capacity of an asynchronous function must be at least 1, not 0"),
        ({"timeout": -1}, ValueError, "timeout of an asynchronous function must be 0 .* not -1 ms"),
        ({"timeout": 1.5}, TypeError, "a length of time must be"),
    ],
)
def test_wrong_arguments_are_refused_where_they_are_written(arguments: Any, error: Any, message: str) -> None:
    """A2: while the program is built, with the reason."""
    given = {"async_function": LookUp(), "timeout": 100, **arguments}
    with pytest.raises(error, match=message):
        AsyncDataStream.ordered_wait(environment().from_collection([1]), **given)


def test_retries_need_a_timeout() -> None:
    """A1: or a record might be tried for ever; no retries need none."""
    numbers = environment().from_collection([1])
    strategy = AsyncRetryStrategy.fixed_delay(3, 1, None, has_exception_predicate)
    with pytest.raises(ValueError, match="retries of an asynchronous function need a timeout"):
        AsyncDataStream.ordered_wait_with_retry(numbers, LookUp(), 0, strategy)
    AsyncDataStream.unordered_wait_with_retry(numbers, LookUp(), 0, AsyncRetryStrategy.no_restart())


def test_retry_strategies() -> None:
    """A1: how often, and after how long; what is not above 0 is refused with its name."""
    fixed = FixedDelayRetryStrategy(
        max_attempts=2, backoff_time_millis=100, result_predicate=None, exception_predicate=has_exception_predicate
    )
    assert [fixed.can_retry(n) for n in (1, 2, 3)] == [True, True, False]
    assert fixed.get_backoff_time_millis(2) == 100
    growing = ExponentialBackoffDelayRetryStrategy(10_000, 100, 2_000, 2, None, None)
    delays = [growing.get_backoff_time_millis(n) for n in (1, 2, 3, 6, 9_999)]
    assert delays == [100, 200, 400, 2_000, 2_000]
    assert growing.get_retry_predicate().exception_predicate() is None
    by_names = AsyncRetryStrategy.exponential_backoff(
        max_attempts=2,
        initial_delay=100,
        max_retry_delay=250,
        multiplier=2,
        result_predicate=None,
        exception_predicate=None,
    )
    assert [by_names.get_backoff_time_millis(n) for n in (1, 2, 3)] == [100, 200, 250]
    assert fixed.get_retry_predicate().exception_predicate() is has_exception_predicate
    never = NoRetryStrategy()
    assert not never.can_retry(current_attempts=1)
    assert never.get_backoff_time_millis(current_attempts=1) == -1
    assert never.get_retry_predicate().result_predicate() is None
    assert never.get_retry_predicate().exception_predicate() is None
    for wrong in ((0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1), (1, 1, 1, 0)):
        with pytest.raises(ValueError, match="must be above 0, not 0"):
            AsyncRetryStrategy.exponential_backoff(*wrong, None, None)
    with pytest.raises(ValueError, match="backoff_time_millis must be above 0, not -5"):
        AsyncRetryStrategy.fixed_delay(1, -5, None, None)


# --- failures and savepoints ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unaligned", [True, False])
@pytest.mark.parametrize("ordered", [True, False])
def test_results_are_exactly_once_through_a_failure(ordered: bool, unaligned: bool, store_directory: Path) -> None:
    """G8: calls that were out at the checkpoint are made again, and each result is emitted once."""
    env = environment(2, **{"penstock.source.batch-records": 8, "execution.checkpointing.unaligned.enabled": unaligned})
    env.enable_checkpointing(2)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 1))
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
    numbers = env.from_source(
        DataGeneratorSource(lambda n: n, 300, 2_000), WatermarkStrategy.no_watermarks(), "numbers"
    )
    stream = wait(numbers.rebalance(), LookUp(), None, 10).map(FailsOnce(store_directory / "failed", 40))
    assert sorted(collect(stream)) == EXPECTED
    assert (store_directory / "failed").exists()


async def in_virtual_time(value: int) -> list[int]:
    await asyncio.sleep(value % 7 / 10)
    return [value]


def in_legs(directory: Path, drain: bool, parallelisms: tuple[int, ...], pause_ms: int) -> tuple[int, list[int]]:
    """A job that is stopped every so many ms and goes on at the next parallelism, unless it is drained: how often that
    was, and all that was committed."""
    clear_ledger()
    begin: dict[str, Any] = {}
    for stops in range(100):
        options = {"penstock.source.batch-records": "4", **begin}
        env = virtual_environment(parallelisms[stops % len(parallelisms)], **options)
        source = DataGeneratorSource(lambda n: n, 120, 40)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        stream = AsyncDataStream.unordered_wait(numbers.rebalance(), in_virtual_time, 5_000, 5).uid("wait")
        stream.sink_to(LedgerSink("out")).uid("sink")
        job = VirtualJob(env)
        stopped: list[Any] = []
        job.at(pause_ms, partial(stop, job, drain, directory, stopped))
        assert job.run() is JobStatus.FINISHED, job.failure()
        if not stopped or stopped[0].exception(0) is not None:
            return stops, sorted(LEDGER["out"])
        if drain:
            return stops + 1, sorted(LEDGER["out"])
        begin = {"execution.state-recovery.path": stopped[0].result(0)}
    raise AssertionError


def stop(job: VirtualJob, drain: bool, directory: Path, stopped: list[Any]) -> None:
    stopped.append(job.stop_with_savepoint(drain, str(directory)))


@pytest.mark.parametrize("parallelisms", [(1,), (2, 1, 3)])
def test_stopped_without_drain_calls_are_made_again_by_the_next_job(
    parallelisms: tuple[int, ...], store_directory: Path
) -> None:
    """D4, H2, H4: what is out at the stop is called by the job that goes on, at any parallelism, and committed once."""
    stops, committed = in_legs(store_directory, False, parallelisms, 530)
    assert stops >= 2
    assert committed == list(range(120))


def test_stopped_with_drain_all_that_was_read_is_committed(store_directory: Path) -> None:
    """H2, G9: a drained job has waited for every call of a record that it read."""
    stops, committed = in_legs(store_directory, True, (2,), 1_030)
    assert stops == 1
    assert 20 < len(committed) < 120
    assert len(set(committed)) == len(committed)


def test_records_of_a_stopped_job_are_called_in_epochs(store_directory: Path) -> None:
    """H2, I1: a savepoint of a streaming job that held records on their way goes on in micro-batches."""
    clear_ledger()
    begin: dict[str, Any] = {}
    for mode in (RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.MICRO_BATCH):
        env = virtual_environment(1, **{"penstock.source.batch-records": "4", **begin}).set_runtime_mode(mode)
        source = DataGeneratorSource(lambda n: n, 40, 40 if not begin else None)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        stream = AsyncDataStream.ordered_wait(numbers, in_virtual_time, 5_000, 5).uid("wait")
        stream.sink_to(LedgerSink("out")).uid("sink")
        if mode is RuntimeExecutionMode.MICRO_BATCH:
            env.execute()
            break
        job = VirtualJob(env)
        stopped: list[Any] = []
        job.at(530, partial(stop, job, False, store_directory, stopped))
        assert job.run() is JobStatus.FINISHED, job.failure()
        assert 0 < len(LEDGER["out"]) < 40
        begin = {"execution.state-recovery.path": stopped[0].result(0)}
    assert LEDGER["out"] == list(range(40))


@pytest.mark.parametrize(
    "name", ["AsyncFunction", "AsyncRetryStrategy", "BroadcastProcessFunction", "KeyedBroadcastProcessFunction"]
)
def test_classes_are_named_with_types_as_those_of_pyflink(name: str) -> None:
    named = getattr(datastream, name)
    made = types.new_class("Made", (named[int, str],))
    assert issubclass(made, named)
