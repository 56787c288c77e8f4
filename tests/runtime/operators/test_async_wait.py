"""Asynchronous functions: order, capacity, time-outs, retries, snapshots, the end (A1); all in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from penstock.datastream import AsyncFunction, AsyncRetryStrategy
from penstock.datastream.async_retry_predicates import empty_result_predicate, has_exception_predicate
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.calls import AsyncWaitOperator
from penstock.runtime.records import MAX_WATERMARK, Watermark
from penstock.testing import OneInputOperatorHarness, ProcessingTime, Record, harness_for, run_hostile

Invoke = Callable[[Any], Awaitable[Any]]


async def wait(value: tuple[str, int]) -> list[str]:
    """Of (name, ms): the name, after so many ms."""
    name, ms = value
    await asyncio.sleep(ms / 1000)
    return [name]


def ordered(
    function: Any = wait, timeout_ms: int = 0, capacity: int = 100, strategy: Any = None, **options: Any
) -> OneInputOperatorHarness:
    harness = OneInputOperatorHarness(
        partial(AsyncWaitOperator, function, True, timeout_ms, capacity, strategy), **options
    )
    return harness


def unordered(
    function: Any = wait, timeout_ms: int = 0, capacity: int = 100, strategy: Any = None, **options: Any
) -> OneInputOperatorHarness:
    return OneInputOperatorHarness(
        partial(AsyncWaitOperator, function, False, timeout_ms, capacity, strategy), **options
    )


# --- order ------------------------------------------------------------------------------------------------------------


def test_ordered_results_come_in_the_order_of_the_records() -> None:
    """A1: a slow call holds up the results behind it, and only those."""
    with ordered() as harness:
        harness.process_batch([("fast", 1), ("slow", 50), ("fast too", 1)], [10, 20, 30])
        harness.advance_processing_time(40)
        assert harness.output == [Record("fast", 10)]
        harness.advance_processing_time(10)
        assert harness.output == [Record("fast", 10), Record("slow", 20), Record("fast too", 30)]


def test_unordered_results_come_as_calls_return() -> None:
    """A1: each result goes out when it is there, with its record's timestamp."""
    with unordered() as harness:
        harness.process_batch([("slow", 50), ("fast", 1), ("middle", 20)], [10, 20, 30])
        harness.advance_processing_time(50)
        assert harness.output == [Record("fast", 20), Record("middle", 30), Record("slow", 10)]


@pytest.mark.parametrize("make", [ordered, unordered])
def test_no_result_crosses_a_watermark(make: Callable[[], OneInputOperatorHarness]) -> None:
    """C2: a watermark waits for all records ahead of it, and those behind it, be they done, for the watermark."""
    with make() as harness:
        harness.process(("a", 30), 1)
        harness.watermark(5)
        harness.process(("b", 1), 6)
        harness.watermark(7)
        harness.process(("c", 10), 8)
        harness.advance_processing_time(20)
        assert harness.captured.order == []
        harness.advance_processing_time(10)
        assert harness.captured.order == [Record("a", 1), 5, Record("b", 6), 7, Record("c", 8)]


@pytest.mark.parametrize("make", [ordered, unordered])
def test_marks_that_wait_for_the_same_calls_are_one(make: Callable[[], OneInputOperatorHarness]) -> None:
    """C2: while a call is out, any number of watermarks and changes of idleness take the room of one; the last counts,
    the watermark ahead of becoming idle, and behind becoming active."""
    with make() as harness:
        harness.process(("a", 10), 1)
        for watermark in range(2, 100):
            harness.status(False)
            harness.watermark(watermark)
            harness.status(True)
        assert len(list(harness.operator._queue.take_ready())) == 0  # type: ignore[attr-defined]
        harness.advance_processing_time(10)
        harness.status(True)
        harness.process(("b", 10), 100)
        harness.status(True)
        harness.status(False)
        harness.watermark(101)
        harness.advance_processing_time(10)
        assert harness.captured.order == [Record("a", 1), 99, True, Record("b", 100), False, 101]


def test_marks_pass_at_once_when_no_call_is_out() -> None:
    """C2: nothing holds back event time when nothing is out."""
    with ordered() as harness:
        harness.watermark(5)
        harness.status(True)
        harness.process(("a", 0))
        harness.watermark(6)
        assert harness.captured.order == [5, True, Record("a"), 6]


def test_a_call_gives_any_number_of_results() -> None:
    """A1: none, one or many, each with its record's timestamp; records without timestamps stay without."""

    async def repeat(value: int) -> list[int]:
        return [value] * value

    with ordered(repeat) as harness:
        harness.process_batch([2, 0, 1], [10, 20, 30])
        harness.process(1)
        assert harness.output == [Record(2, 10), Record(2, 10), Record(1, 30), Record(1)]


@pytest.mark.parametrize("is_ordered", [True, False])
def test_none_is_no_results(is_ordered: bool) -> None:
    """A1: a call, or a time-out, that returns nothing emits nothing; the records after it go on."""

    class Some(AsyncFunction):
        async def async_invoke(self, value: int) -> list[int] | None:
            await asyncio.sleep(value / 1000)
            return None if value == 1 else [value]

        def timeout(self, value: int) -> None:
            """Nothing is emitted."""

    harness = OneInputOperatorHarness(lambda: AsyncWaitOperator(Some(), is_ordered, 100, 10))
    with harness:
        harness.process_batch([1, 500, 2], [10, 20, 30])
        harness.watermark(40)
        harness.end()
        assert harness.output == [Record(2, 30)]
        assert harness.operator.drain()


def test_none_is_an_empty_result_for_retries() -> None:
    """A1: the predicate for empty results sees a list."""
    calls: list[int] = []

    async def invoke(value: int) -> list[int] | None:
        calls.append(value)
        return [value] if len(calls) == 3 else None

    strategy = AsyncRetryStrategy.fixed_delay(5, 10, result_predicate=empty_result_predicate, exception_predicate=None)
    with OneInputOperatorHarness(lambda: AsyncWaitOperator(invoke, True, 1_000, 10, strategy)) as harness:
        harness.process(7)
        harness.end()
        assert (harness.values, len(calls)) == ([7], 3)


@pytest.mark.parametrize("results", [(1,), 7])
def test_what_is_no_list_fails_the_job(results: Any) -> None:
    """A1: a function that forgets to return a list is told so, with the record."""

    async def invoke(value: str) -> Any:
        return results

    with ordered(invoke) as harness, pytest.raises(UserCodeError) as failure:
        harness.process("record")
    assert failure.value.record == "record"
    assert str(failure.value.__cause__) == (
        f"async_invoke() must return a list of results, or None for no results, not {results!r}"
    )


def test_an_error_names_the_record() -> None:
    """A1: what a call raises fails the task, with the record that it was made for, not an earlier or later one."""

    async def invoke(value: int) -> list[int]:
        await asyncio.sleep(value / 1000)
        if value == 2:
            raise ConnectionError("no service")
        return [value]

    with ordered(invoke) as harness:
        harness.process_batch([3, 2, 1])
        with pytest.raises(UserCodeError) as failure:
            harness.advance_processing_time(10)
    assert failure.value.record == 2
    assert isinstance(failure.value.__cause__, ConnectionError)


# --- capacity ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [ordered, unordered])
def test_no_more_calls_are_out_than_the_capacity(make: Callable[..., OneInputOperatorHarness]) -> None:
    """A1: of a batch beyond the capacity the rest waits unstarted, and the operator wants no more input meanwhile."""
    with make(capacity=2) as harness:
        assert harness.operator.is_available()
        harness.process_batch([("a", 10), ("b", 10), ("c", 10), ("d", 10), ("e", 10)])
        for started in (2, 4, 5):
            assert (harness.calls_started, harness.operator.is_available()) == (started, started == 5)
            assert harness.calls_out == (1 if started == 5 else 2)
            harness.advance_processing_time(10)
        assert harness.values == ["a", "b", "c", "d", "e"]
        assert harness.operator.is_available()


def test_results_that_wait_for_their_turn_count() -> None:
    """A1: behind a call that hangs, ordered results take room until they go out, so what is held is bounded."""
    with ordered(capacity=3) as harness:
        harness.process_batch([("slow", 1_000), ("a", 1), ("b", 1), ("c", 1)])
        harness.advance_processing_time(500)
        assert (harness.calls_started, harness.operator.is_available(), harness.values) == (3, False, [])
        harness.advance_processing_time(501)
        assert harness.values == ["slow", "a", "b", "c"]


def test_a_place_is_free_as_soon_as_an_unordered_result_is_out() -> None:
    """A1: a call that hangs takes one place only when order does not matter."""
    with unordered(capacity=2) as harness:
        harness.process_batch([("slow", 1_000), ("a", 1), ("b", 1), ("c", 1)])
        harness.advance_processing_time(10)
        assert harness.values == ["a", "b", "c"]
        assert harness.operator.is_available()


# --- time-outs --------------------------------------------------------------------------------------------------------


class Stubborn(AsyncFunction):
    """Waits for as many ms as the record says; too long is "late"."""

    async def async_invoke(self, value: int) -> list[Any]:
        await asyncio.sleep(value / 1000)
        return [value]

    def timeout(self, value: int) -> list[Any]:
        return [f"late {value}"]


class Unprepared(AsyncFunction):
    async def async_invoke(self, value: int) -> list[Any]:
        await asyncio.sleep(value / 1000)
        return [value]


def test_a_call_whose_time_is_over_is_replaced_by_timeout() -> None:
    """A1: `timeout` gives the results instead; the call is cancelled, and what it would give is not heard of."""
    with ordered(Stubborn(), timeout_ms=20) as harness:
        harness.process_batch([10, 30, 20])
        harness.advance_processing_time(20)
        assert harness.values == [10, "late 30", 20]
        assert harness.calls_out == 0
        harness.advance_processing_time(100)
        assert harness.values == [10, "late 30", 20]


@pytest.mark.parametrize("function", [Unprepared(), Unprepared().async_invoke])
def test_without_a_word_on_it_a_timeout_fails_the_job(function: Any) -> None:
    """A1: by default, and of a plain function, time that is over is an error that names the record."""
    with ordered(function, timeout_ms=20) as harness:
        harness.process(30)
        with pytest.raises(UserCodeError) as failure:
            harness.advance_processing_time(20)
    assert failure.value.record == 30
    assert isinstance(failure.value.__cause__, TimeoutError)


def test_time_is_counted_from_the_start_of_the_call() -> None:
    """A1: a record that waits unstarted has all its time yet; so has one that was restored."""
    with ordered(Stubborn(), timeout_ms=20, capacity=1) as harness:
        harness.process_batch([15, 15])
        harness.advance_processing_time(20)
        snapshot = harness.snapshot(1)
        assert harness.values == [15]
        harness.advance_processing_time(10)
        assert harness.values == [15, 15]
    again = ordered(Stubborn(), timeout_ms=20)
    again.restore(snapshot)
    with again:
        again.advance_processing_time(15)
        assert again.values == [15]


def test_no_timeout_waits_for_ever() -> None:
    """A1: 0 is no time-out."""
    with ordered() as harness:
        harness.process(("a", 10**9))
        harness.advance_processing_time(10**9 - 1)
        assert harness.operator.next_timer_ms() is None
        harness.advance_processing_time(1)
        assert harness.values == ["a"]


def test_what_timeout_raises_fails_the_job() -> None:
    """A1: `timeout` is user code like any other."""

    class Broken(Unprepared):
        def timeout(self, value: int) -> list[Any]:
            raise ZeroDivisionError

    with ordered(Broken(), timeout_ms=20) as harness:
        harness.process(30)
        with pytest.raises(UserCodeError) as failure:
            harness.advance_processing_time(20)
    assert isinstance(failure.value.__cause__, ZeroDivisionError)


# --- retries ----------------------------------------------------------------------------------------------------------


class Flaky:
    """Fails so many times for each record, each attempt after 1 ms; notes when each was made."""

    def __init__(self, failures: int, empty: bool = False) -> None:
        self.failures = failures
        self.empty = empty
        self.attempts: Counter[Any] = Counter()
        self.times: list[float] = []

    async def async_invoke(self, value: Any) -> list[Any]:
        self.attempts[value] += 1
        self.times.append(asyncio.get_running_loop().time() * 1000)
        await asyncio.sleep(0.001)
        if self.attempts[value] <= self.failures:
            if self.empty:
                return []
            raise ConnectionError(f"attempt {self.attempts[value]}")
        return [value]


def fixed(max_attempts: int = 3, **predicates: Any) -> AsyncRetryStrategy:
    wanted = predicates or {"result_predicate": None, "exception_predicate": has_exception_predicate}
    return AsyncRetryStrategy.fixed_delay(max_attempts, 10, **wanted)


def test_a_failed_call_is_made_again_after_the_delay() -> None:
    """A1: the delay begins when the failure is known."""
    function = Flaky(2)
    with ordered(function, 1_000, strategy=fixed()) as harness:
        harness.process("a", 5)
        harness.advance_processing_time(100)
        assert harness.output == [Record("a", 5)]
        assert function.times == [0, 11, 22]


def test_delays_grow() -> None:
    """A1: exponential back-off, up to its bound."""
    function = Flaky(4)
    strategy = AsyncRetryStrategy.exponential_backoff(5, 10, 35, 2.0, None, has_exception_predicate)
    with ordered(function, 1_000, strategy=strategy) as harness:
        harness.process("a")
        harness.advance_processing_time(500)
        assert harness.values == ["a"]
        assert function.times == [0, 11, 32, 68, 104]


def test_the_last_attempt_fails_the_job() -> None:
    """A1: with 3 attempts that may be followed by another, the fourth call's error is final."""
    function = Flaky(10)
    with ordered(function, 1_000, strategy=fixed(3)) as harness:
        harness.process("a")
        with pytest.raises(UserCodeError) as failure:
            harness.advance_processing_time(500)
    assert str(failure.value.__cause__) == "attempt 4"
    assert failure.value.record == "a"


def test_results_can_be_a_reason_to_ask_again() -> None:
    """A1: results that the predicate dislikes are not emitted, but for those of the last attempt."""
    with ordered(
        Flaky(1, empty=True),
        1_000,
        strategy=fixed(result_predicate=empty_result_predicate, exception_predicate=None),
    ) as harness:
        harness.process("a")
        harness.advance_processing_time(500)
        assert harness.values == ["a"]
    with ordered(
        Flaky(9, empty=True),
        1_000,
        strategy=fixed(result_predicate=empty_result_predicate, exception_predicate=None),
    ) as harness:
        harness.process("a")
        harness.advance_processing_time(500)
        assert (harness.values, harness.calls_started) == ([], 4)
        assert harness.operator.drain()


def test_another_reason_is_no_reason() -> None:
    """A1: an exception that the predicate does not name fails the job at once."""
    strategy = fixed(result_predicate=None, exception_predicate=lambda error: isinstance(error, TimeoutError))
    with ordered(Flaky(1), 1_000, strategy=strategy) as harness:
        harness.process("a")
        with pytest.raises(UserCodeError):
            harness.advance_processing_time(1)


def test_a_predicate_that_raises_fails_the_job() -> None:
    """A1: predicates are user code, called for a record."""
    strategy = fixed(result_predicate=lambda results: results[1] is None, exception_predicate=None)
    with ordered(Flaky(0), 1_000, strategy=strategy) as harness:
        harness.process("a")
        with pytest.raises(UserCodeError) as failure:
            harness.advance_processing_time(1)
    assert failure.value.record == "a"
    assert isinstance(failure.value.__cause__, IndexError)


@pytest.mark.parametrize(("timeout_ms", "attempts"), [(25, 3), (20, 2)])
def test_the_timeout_counts_all_attempts(timeout_ms: int, attempts: int) -> None:
    """A1: time goes on through delays; when it is over, in a call or in a delay, `timeout` has the last word."""

    class Impatient(Flaky):
        def timeout(self, value: Any) -> list[Any]:
            return ["over"]

    function = Impatient(99)
    with ordered(function, timeout_ms, strategy=fixed(99)) as harness:
        harness.process("a")
        harness.advance_processing_time(1_000)
        assert harness.values == ["over"]
        assert function.attempts["a"] == attempts


@pytest.mark.parametrize("make", [ordered, unordered])
def test_others_go_on_while_one_is_retried(make: Callable[..., OneInputOperatorHarness]) -> None:
    """A1: a retry takes its record's place, and no more."""

    async def sometimes(value: int, seen: set[int] = set()) -> list[int]:  # noqa: B006 - a memory is what it is for
        if value % 2 and value not in seen:
            seen.add(value)
            raise ConnectionError
        return [value]

    with make(sometimes, 1_000, 2, fixed()) as harness:
        harness.process_batch([1, 2, 3, 4])
        harness.advance_processing_time(1_000)
        assert sorted(harness.values) == [1, 2, 3, 4]


# --- snapshots --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [ordered, unordered])
def test_what_has_not_gone_out_is_called_again_after_a_restore(make: Callable[..., OneInputOperatorHarness]) -> None:
    """D2, G8: records on their way, unstarted, and done behind others are in the snapshot; what went out is not. They
    come ahead of new input."""
    records = [("a", 5), ("b", 100), ("c", 5), ("d", 100)]
    with make(capacity=3) as harness:
        harness.process_batch(records, [1, 2, 3, 4])
        harness.watermark(4)
        harness.process(("e", 1), 5)
        harness.advance_processing_time(50)
        before = harness.values
        snapshot = harness.snapshot(1)
    again = make(capacity=3)
    again.restore(snapshot)
    with again:
        again.watermark(4)
        again.process(("f", 1), 6)
        again.end()
        assert sorted(before + again.values) == ["a", "b", "c", "d", "e", "f"]
        if make is ordered:
            assert before + again.values == ["a", "b", "c", "d", "e", "f"]
        assert [record.timestamp for record in again.output if record.value == "b"] == [2]


def test_records_are_dealt_out_when_the_parallelism_changes() -> None:
    """D2, D4: each record that was on its way is called by exactly one of the new subtasks."""
    snapshots = []
    for subtask in range(2):
        with ordered(parallelism=2, subtask=subtask) as harness:
            harness.process_batch([(f"{subtask}{i}", 10) for i in range(5)])
            snapshots.append(harness.snapshot(1))
    values: list[str] = []
    for subtask in range(3):
        harness = ordered(parallelism=3, subtask=subtask)
        harness.restore(*snapshots)
        with harness:
            harness.end()
            values += harness.values
    assert sorted(values) == [f"{subtask}{i}" for subtask in range(2) for i in range(5)]


INPUTS = [
    Record(("a", 30), 1),
    Record(("b", 1), 2),
    Watermark(2),
    ProcessingTime(7),
    Record(("c", 1), 3),
    Record(("d", 12), 4),
    Record(("e", 0), 5),
    ProcessingTime(5),
    Watermark(5),
    Record(("f", 3), 6),
]


@pytest.mark.parametrize("capacity", [1, 2, 100])
def test_hostile_run(capacity: int) -> None:
    """D2, G8: whatever the batches, and replaced between every two inputs, each result goes out once and in order."""
    expected = [Record(name, i + 1) for i, name in enumerate("abcdef")]
    run_hostile(partial(AsyncWaitOperator, wait, True, 0, capacity), INPUTS, expected)


@pytest.mark.parametrize("capacity", [1, 2, 100])
def test_hostile_run_without_order(capacity: int) -> None:
    """D2, G8: the same where calls return at once; then the order is that of the input, whatever else happens."""

    async def now(value: tuple[str, int]) -> list[str]:
        return [value[0], value[0].upper()]

    expected = [Record(n, i + 1) for i, name in enumerate("abcdef") for n in (name, name.upper())]
    run_hostile(partial(AsyncWaitOperator, now, False, 0, capacity), INPUTS, expected)


# --- the end ----------------------------------------------------------------------------------------------------------


def test_the_end_waits_for_calls() -> None:
    """F3: nothing that is out is lost by the end, and the last watermark comes last."""
    with unordered() as harness:
        harness.process_batch([("slow", 60_000), ("fast", 1)])
        harness.end()
        assert harness.captured.order == [Record("fast"), Record("slow"), MAX_WATERMARK]


def test_the_last_records_are_retried_like_all_others() -> None:
    """F3, A1: the end waits for retries, with their delays: what was out when the input ended fares no worse."""
    function = Flaky(2)
    with ordered(function, 10_000, strategy=fixed(2)) as harness:
        harness.process("a")
        harness.end()
        assert harness.values == ["a"]
        assert function.times == [0, 11, 22]


def test_close_cancels_what_is_out() -> None:
    """F4: coroutines see their cancellation, and whatever they do then, nothing is emitted."""
    log: list[str] = []

    async def invoke(value: str) -> list[str]:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            log.append(f"cancelled {value}")
            return ["too late"]
        return [value]

    harness = ordered(invoke)
    harness.open()
    harness.process_batch(["a", "b"])
    harness.close()
    assert log == ["cancelled a", "cancelled b"]
    assert harness.values == []


def test_a_function_is_opened_and_closed_in_the_task() -> None:
    """F1, F4: `open`, `timeout` and `close` run where no event loop is; `async_invoke` on it."""
    log: list[str] = []

    def where() -> str:
        try:
            return type(asyncio.get_running_loop()).__name__
        except RuntimeError:
            return "task"

    class Watched(AsyncFunction):
        def open(self, runtime_context: Any) -> None:
            log.append(f"open {runtime_context.get_index_of_this_subtask()} {where()}")

        async def async_invoke(self, value: int) -> list[Any]:
            log.append(f"invoke {where()}")
            await asyncio.sleep(1)
            return []

        def timeout(self, value: int) -> list[Any]:
            log.append(f"timeout {where()}")
            return [value]

        def close(self) -> None:
            log.append(f"close {where()}")

    with ordered(Watched(), timeout_ms=5) as harness:
        harness.process(1)
        harness.advance_processing_time(5)
        assert harness.values == [1]
    assert log == ["open 0 task", "invoke VirtualEventLoop", "timeout task", "close task"]


def test_the_harness_takes_asynchronous_functions() -> None:
    """A1: users test theirs in virtual time, a plain `async def` as well."""
    with harness_for(wait) as harness:
        harness.process(("a", 10**6))
        harness.end()
        assert harness.values == ["a"]
    with harness_for(Stubborn()) as harness:
        harness.process(3)
        harness.end()
        assert harness.values == [3]


def test_a_call_that_never_returns_is_reported_by_the_harness() -> None:
    """A1: the end would wait for ever; a test should not."""

    async def never(value: int) -> list[int]:
        await asyncio.get_running_loop().create_future()
        return [value]

    with harness_for(never) as harness:
        harness.process(1)
        with pytest.raises(AssertionError, match="waits for a call that never returns"):
            harness.end()


@pytest.mark.parametrize("what", ["connection", "thread"])
def test_virtual_time_has_no_network_and_no_threads(what: str) -> None:
    """A1: what a test cannot do in virtual time says so instead of waiting."""

    async def outside(value: int) -> list[int]:
        if what == "thread":
            await asyncio.to_thread(print)
        await asyncio.open_connection("localhost", 1)
        return []

    with harness_for(outside) as harness, pytest.raises(UserCodeError) as failure:
        harness.process(1)
    assert isinstance(failure.value.__cause__, NotImplementedError)
    assert "in virtual time" in str(failure.value.__cause__)
