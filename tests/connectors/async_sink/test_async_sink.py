"""Jobs with asynchronous sinks: a service that is slow, refuses, fails or rejects."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import Any, cast

import pytest
from tests.simulation.fresh_seeds import commit_number

from penstock.base.errors import JobExecutionError
from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import (
    AsyncSinkBase,
    AsyncSinkSettings,
    RequestClient,
    RequestError,
    RequestResult,
)
from penstock.testing.connectors import SinkUnderTest, check_sink

Answer = Callable[[Sequence[Any]], RequestResult | None]

QUICK = AsyncSinkSettings(max_batch_size=4, max_in_flight_requests=3, max_buffered_requests=9, retry_delay_ms=1,
                          max_time_in_buffer_ms=20, max_attempts=50)  # fmt: skip

#: what services have received, and how they answer; jobs of the local target share this process
RECEIVED: dict[str, list[Any]] = defaultdict(list)
ANSWERS: dict[str, Answer] = {}
_LOCK = threading.Lock()


class Service(RequestClient[Any]):
    """Receives entries in this process."""

    def __init__(self, name: str) -> None:
        self.name = name

    def submit_request_entries(self, entries: Sequence[Any]) -> RequestResult | None:
        result = ANSWERS[self.name](entries) or RequestResult()
        missing = {*result.again, *result.rejected}
        with _LOCK:
            RECEIVED[self.name] += [entry for number, entry in enumerate(entries) if number not in missing]
        return result


class AwaitedService(Service):
    """The same as a coroutine."""

    async def open(self) -> None:
        self.loop = asyncio.get_running_loop()

    async def submit_request_entries(self, entries: Sequence[Any]) -> RequestResult | None:  # type: ignore[override]
        assert asyncio.get_running_loop() is self.loop
        await asyncio.sleep(0.001)
        return super().submit_request_entries(entries)


class WriterContext:
    """What a writer asks of its task."""

    def now_ms(self) -> int:
        return 0

    def count(self, name: str, increment: int = 1) -> None:
        RECEIVED[name].append(increment)


class ServiceSink(AsyncSinkBase[Any, Any]):
    """Sends records to a service by its name."""

    def __init__(self, name: str, settings: AsyncSinkSettings = QUICK, awaited: bool = False, skips: bool = False):
        super().__init__(settings)
        self.name, self.awaited, self.skips = name, awaited, skips

    def create_client(self, context: Any) -> Service:
        return AwaitedService(self.name) if self.awaited else Service(self.name)

    def get_ordering_key(self, entry: Any) -> Hashable | None:
        return entry[0] if isinstance(entry, tuple) else None

    def handle_rejected(self, entry: Any, reason: str) -> None:
        if not self.skips:
            super().handle_rejected(entry, reason)


@pytest.fixture(name="service")
def fixture_service(request: pytest.FixtureRequest) -> str:
    name = request.node.name
    RECEIVED.pop(name, None)
    ANSWERS[name] = lambda _entries: None
    return str(name)


def environment(parallelism: int = 1) -> StreamExecutionEnvironment:
    settings = Configuration()
    settings.set_string("execution.target", "local")
    return StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(parallelism)


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_all_records_arrive(service: str, awaited: bool, parallelism: int) -> None:
    """A service refuses parts, and breaks connections, from a fresh seed; records of a key arrive in order."""
    seed = commit_number()
    print(f"seed {seed}")
    choose = random.Random(seed)

    def answer(entries: Sequence[Any]) -> RequestResult | None:
        kind = choose.random()
        if kind < 0.2:
            raise ConnectionResetError("the peer has gone")
        return RequestResult(again=[n for n in range(len(entries)) if choose.random() < 0.2], delay_ms=kind)

    ANSWERS[service] = answer
    records = [(number % 7, number) for number in range(200)]
    env = environment(parallelism)
    env.enable_checkpointing(50)
    env.from_collection(records).key_by(lambda record: record[0]).map(lambda record: record).sink_to(
        ServiceSink(service, awaited=awaited)
    )
    env.execute()
    assert Counter(RECEIVED[service]) == Counter(records)
    for key in range(7):
        assert [each for each in RECEIVED[service] if each[0] == key] == [each for each in records if each[0] == key]


def test_order_with_one_request_at_a_time(service: str) -> None:
    settings = AsyncSinkSettings(max_batch_size=4, max_in_flight_requests=1)
    env = environment()
    env.from_collection(list(range(50))).sink_to(ServiceSink(service, settings))
    env.execute()
    assert RECEIVED[service] == list(range(50))


def run_failing(service: str, sink: ServiceSink) -> str:
    env = environment()
    env.from_collection(list(range(20))).sink_to(sink)
    with pytest.raises(JobExecutionError) as raised:
        env.execute()
    return str(raised.value)


def test_errors_that_no_repetition_mends(service: str) -> None:
    def answer(entries: Sequence[Any]) -> RequestResult | None:
        raise ValueError("no such index")

    ANSWERS[service] = answer
    text = run_failing(service, ServiceSink(service))
    assert "ServiceSink: a request of 4 entries failed, the first 0: ValueError: no such index" in text


def test_attempts_are_limited(service: str) -> None:
    ANSWERS[service] = lambda entries: RequestResult(again=range(len(entries)))
    settings = AsyncSinkSettings(max_attempts=3, retry_delay_ms=1)
    text = run_failing(service, ServiceSink(service, settings))
    assert "0 was sent 3 times (max_attempts): the service asks for it again" in text


def test_rejected_entries_fail_the_job_or_are_handled(service: str) -> None:
    ANSWERS[service] = lambda entries: RequestResult(
        rejected={number: "too odd" for number, entry in enumerate(entries) if entry % 2}
    )
    assert "the service rejects 1: too odd" in run_failing(service, ServiceSink(service))
    RECEIVED[service].clear()
    env = environment()
    env.from_collection(list(range(20))).sink_to(ServiceSink(service, skips=True))
    env.execute()
    assert sorted(RECEIVED[service]) == list(range(0, 20, 2))


def test_entries_that_are_too_large(service: str) -> None:
    settings = AsyncSinkSettings(max_record_size_in_bytes=3)
    env = environment()
    env.from_collection(["abc", "abé"]).sink_to(ServiceSink(service, settings))
    with pytest.raises(JobExecutionError, match="'abé' has 4 bytes, max_record_size_in_bytes is 3"):
        env.execute()


@pytest.mark.parametrize("method", ["convert", "get_size_in_bytes", "get_ordering_key"])
def test_an_error_about_a_record_names_it(service: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(sink: ServiceSink, record: Any, *more: Any) -> Any:
        return record if record < 3 else 1 // 0

    monkeypatch.setattr(ServiceSink, method, fail)
    env = environment()
    env.from_collection([1, 2, 3, 4]).sink_to(ServiceSink(service))
    with pytest.raises(JobExecutionError, match=r"in ServiceSink, which makes an entry of it\nrecord: 3"):
        env.execute()
    assert RECEIVED[service] == []


def test_requests_that_take_too_long(service: str) -> None:
    """They are sent again, so they may arrive twice; or they fail the job."""
    hung = threading.Event()

    def answer(entries: Sequence[Any]) -> RequestResult | None:
        if not hung.is_set():
            hung.set()
            time.sleep(0.3)
        return None

    ANSWERS[service] = answer
    settings = AsyncSinkSettings(request_timeout_ms=50, retry_delay_ms=1)
    env = environment()
    env.from_collection(list(range(20))).sink_to(ServiceSink(service, settings))
    env.execute()
    assert set(RECEIVED[service]) == set(range(20))
    hung.clear()
    failing = AsyncSinkSettings(request_timeout_ms=50, fail_on_timeout=True)
    assert "a request took longer than 50 ms (request_timeout_ms)" in run_failing(
        service, ServiceSink(service, failing)
    )


def test_a_quiet_job_fails_too(service: str) -> None:
    """No record arrives after the one whose request fails."""

    def answer(entries: Sequence[Any]) -> RequestResult | None:
        raise ValueError("gone")

    ANSWERS[service] = answer
    env = environment()
    source: Any = DataGeneratorSource(lambda number: number, rate_per_second=20)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "endless")
    numbers.filter(lambda number: number == 0).sink_to(ServiceSink(service))
    with pytest.raises(JobExecutionError, match="failed, the first 0: ValueError: gone"):
        env.execute()


def test_the_buffer_holds_back_the_input(service: str) -> None:
    """At most so many entries wait, and so many are in flight."""
    free = threading.Event()
    entries_max = 4 * 3 + 9

    def answer(entries: Sequence[Any]) -> RequestResult | None:
        free.wait(30)
        return None

    ANSWERS[service] = answer
    writer = ServiceSink(service).create_writer(cast("Any", WriterContext()))
    writing = threading.Thread(target=writer.write_batch, args=(list(range(100)), None))
    writing.start()
    writing.join(0.3)
    assert writing.is_alive()
    sender: Any = writer._sender  # type: ignore[attr-defined]
    assert len(sender._buffer) + sender._buffer.entries_in_flight <= entries_max
    free.set()
    writing.join()
    writer.prepare_commit()
    assert sorted(RECEIVED[service]) == list(range(100))
    writer.close()


def test_a_delay_that_ends_while_the_sender_looks_is_seen(service: str) -> None:
    """The clock moves on 50 ms at each reading, so the delay of 60 to 90 ms ends between two of them."""
    refused = iter([True])

    def answer(entries: Sequence[Any]) -> RequestResult | None:
        return RequestResult(again=[0]) if next(refused, False) else None

    ANSWERS[service] = answer
    settings = AsyncSinkSettings(retry_delay_ms=60)
    writer = ServiceSink(service, settings).create_writer(cast("Any", WriterContext()))
    sender: Any = writer._sender  # type: ignore[attr-defined]
    readings = count(sender._now_ms(), 50)
    sender._now_ms = lambda: next(readings)
    writer.write_batch(["a"], None)
    waiting = threading.Thread(target=writer.prepare_commit, daemon=True)
    waiting.start()
    waiting.join(30)
    assert RECEIVED[service] == ["a"]
    writer.close()


def test_conformance(service: str) -> None:
    def prepare() -> SinkUnderTest:
        RECEIVED[service].clear()
        return SinkUnderTest(ServiceSink(service), records=list(range(24)), read=lambda: list(RECEIVED[service]))

    check_sink(prepare, parallelisms=[1, 2], places=6)


def test_the_error_of_a_sink_is_a_runtime_error() -> None:
    with pytest.raises(RequestError, match="ServiceSink: the service rejects 'x': no"):
        ServiceSink("x").handle_rejected("x", "no")
