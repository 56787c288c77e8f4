"""`AsyncSinkBase`: the base of sinks that send batches of requests to a service, several at a time.

A sink derives from it, converts each record to the entry of a request, and has a `RequestClient` that sends entries.
The base batches by count, bytes and time, limits requests in flight, sends parts again after delays, and slows down
when the service refuses (`request_buffer`). A checkpoint waits until the service has accepted all earlier entries: at
least once. After a failure entries arrive again, so for a service that overwrites by key the effect is exactly once.

A thread with an event loop sends the requests of a writer. Clients may have plain methods, which run in further
threads, or coroutines, which run on the loop. The task's own thread only adds entries; it waits when the buffer is full
and at a checkpoint. An error that no repetition mends is raised there.

Source: Flink's "Async Sink" (FLIP-171), `AsyncSinkBase`.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, ClassVar, Final, Generic, TypeVar

from penstock.base.errors import OperationError, short_repr
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings, Entry, RequestBuffer
from penstock.runtime.connector import RecordError, Sink, SinkWriter, SinkWriterContext

T = TypeVar("T")
EntryT = TypeVar("EntryT")
#: how often a task with unaccepted entries looks for errors when no records arrive
_LOOK_MS: Final = 200
#: how long `close` waits for requests in flight: one that arrives after the restart may overwrite a newer value
_CLOSE_S: Final = 5.0


class RequestError(OperationError):
    """A request to a service failed for good. The message names the sink, the entry and the reason.

    Examples:
        >>> from penstock.datastream.connectors import RequestError
        >>> str(RequestError("LinesSink: the service rejects 'tea': the index is closed"))
        "LinesSink: the service rejects 'tea': the index is closed"
    """


@dataclass(frozen=True, slots=True)
class RequestResult:
    """The result of a request. Entries that it does not list are accepted.

    Attributes:
        again: the positions of entries to send again.
        rejected: the positions of entries that the service will never accept, and its reasons.
        delay_ms: the least delay until entries are sent again, if the service names one.
        reason: why entries are sent again, for the error after the last attempt.

    Examples:
        >>> from penstock.datastream.connectors import RequestResult
        >>> RequestResult(again=[0], rejected={2: "no such field"}).rejected[2]
        'no such field'
    """

    again: Sequence[int] = ()
    rejected: Mapping[int, str] = field(default_factory=dict)
    delay_ms: float = 0
    reason: str = field(default="the service asks for it again", repr=False)


class RequestClient(ABC, Generic[EntryT]):
    """Sends entries to a service. Each method may be plain or a coroutine; plain ones are called in threads.

    Examples:
        >>> from penstock.datastream.connectors import RequestClient, RequestResult
        >>> class Shelf(RequestClient):
        ...     def submit_request_entries(self, entries):
        ...         return RequestResult(again=[n for n, entry in enumerate(entries) if entry == "busy"])
        >>> Shelf().submit_request_entries(["tea", "busy"])
        RequestResult(again=[1], rejected={}, delay_ms=0)
    """

    def open(self) -> Any:
        """Connect. Called once, before the first request."""

    @abstractmethod
    def submit_request_entries(self, entries: Sequence[EntryT]) -> Any:
        """Send entries in one request; return a `RequestResult`, or None if all are accepted.

        Called for several requests at the same time. If it raises, `is_retryable` says whether all are sent again.
        """

    def is_retryable(self, error: Exception) -> bool:
        """Return whether a request that raised this error may succeed later. By default for failures of connections."""
        return isinstance(error, ConnectionError | TimeoutError)

    def take_counts(self) -> Mapping[str, int]:
        """Return the client's counts since the last call, for the sink's metrics. By default empty.

        Called by the task's thread.
        """
        return {}

    def close(self) -> Any:
        """Disconnect. Called once, after the last request."""


class AsyncSinkBase(Sink[T], Generic[T, EntryT]):
    """A sink that sends records in batches of requests, several at a time. At least once.

    Args:
        settings: the limits. Default: 500 entries and 5 MiB a request, 50 requests at a time, 5 s in the buffer.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import AsyncSinkBase, RequestClient
        >>> from pathlib import Path
        >>> class Lines(RequestClient):
        ...     def submit_request_entries(self, entries):
        ...         with open("sent.txt", "a") as file:
        ...             file.write(" ".join(entries))
        >>> class LinesSink(AsyncSinkBase):
        ...     def create_client(self, context):
        ...         return Lines()
        ...     def convert(self, record, timestamp):
        ...         return record.upper()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> _ = env.from_elements("tea", "rum").sink_to(LinesSink())
        >>> result = env.execute()
        >>> Path("sent.txt").read_text()
        'TEA RUM'
    """

    #: Whether the service executes the entries of a request in order. A request then has any number of entries with the
    #: same ordering key; if one is sent again, so are the later ones.
    keeps_order_in_request: ClassVar[bool] = False

    def __init__(self, settings: AsyncSinkSettings | None = None) -> None:
        self.settings = settings or AsyncSinkSettings()

    @abstractmethod
    def create_client(self, context: SinkWriterContext) -> RequestClient[EntryT]:
        """Create the client of a subtask."""

    def convert(self, record: T, timestamp: int | None) -> EntryT:
        """Return the entry for a record; `timestamp` is its event time (ms), if it has one. By default the record."""
        return record  # type: ignore[return-value]

    def get_size_in_bytes(self, entry: EntryT) -> int:
        """Return the size of an entry. By default the length of text and bytes; other entries count 1."""
        if isinstance(entry, bytes | bytearray | memoryview):
            return len(entry)
        return len(entry.encode()) if isinstance(entry, str) else 1

    def get_ordering_key(self, entry: EntryT) -> Hashable | None:
        """Return a key whose entries must arrive in order; None (the default) if the order does not matter."""
        return None

    def supersedes(self, later: EntryT, earlier: EntryT) -> bool:
        """Return whether an entry makes an earlier one with the same ordering key superfluous. By default not.

        An entry that still waits is then left out. Right for whole rows, and wrong for parts of rows and for counters.
        """
        return False

    def handle_rejected(self, entry: EntryT, reason: str) -> None:
        """Handle an entry that the service will never accept. By default the job fails.

        Raises:
            RequestError: always, unless a subclass does something else.
        """
        raise RequestError(f"{type(self).__name__}: the service rejects {short_repr(entry)}: {reason}")

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[T, Any]:
        """See `Sink`."""
        return AsyncSinkWriter(self, context)


class AsyncSinkWriter(SinkWriter[T, Any]):
    """The writer of a subtask.

    Args:
        sink: the sink.
        context: the context of the writer's task.
    """

    def __init__(self, sink: AsyncSinkBase[T, Any], context: SinkWriterContext) -> None:
        self._sink = sink
        self._context = context
        self._name = type(sink).__name__
        self._sender = _Sender(sink, sink.create_client(context), self._name)
        self._look_ms: int | None = None
        self._has_keys = type(sink).get_ordering_key is not AsyncSinkBase.get_ordering_key

    def write_batch(self, values: list[T], timestamps: list[int] | None) -> None:
        """Add the records' entries to the buffer; wait while it is full."""
        sink, largest = self._sink, self._sink.settings.max_record_size_in_bytes
        entries: list[Any] = []
        sizes: list[int] = []
        keys: list[Hashable | None] = []
        made: list[Any] = entries
        try:
            # The list keeps the entries before an error, so its length identifies the record that failed.
            entries.extend(map(sink.convert, values, repeat(None) if timestamps is None else timestamps))
            made = sizes
            sizes.extend(map(sink.get_size_in_bytes, entries))
            if self._has_keys:
                made = keys
                keys.extend(map(sink.get_ordering_key, entries))
        except Exception as error:
            record = values[len(made)]
            raise RecordError(record, f"{self._name}, which makes an entry of it") from error
        if sizes and max(sizes) > largest:
            number = next(number for number, size in enumerate(sizes) if size > largest)
            raise RequestError(
                f"{self._name}: the entry {short_repr(entries[number])} has {sizes[number]} bytes, "
                f"max_record_size_in_bytes is {largest}"
            )
        self.add(entries, sizes, keys if self._has_keys else None)

    def add_entries(self, entries: Sequence[Any]) -> None:
        """Add entries, with the sizes and ordering keys that the sink gives them; wait while the buffer is full."""
        keys = list(map(self._sink.get_ordering_key, entries)) if self._has_keys else None
        self.add(entries, list(map(self._sink.get_size_in_bytes, entries)), keys)

    def add(self, entries: Sequence[Any], sizes: Sequence[int], keys: Sequence[Hashable | None] | None) -> None:
        """Add entries with their sizes and ordering keys, if they have any, to the buffer; wait while it is full."""
        if keys is not None and keys.count(None) == len(keys):
            keys = None
        self._sender.add(entries, sizes, keys)
        self._report()

    def next_flush_ms(self) -> int | None:
        """Return when to look for errors; None if every entry has been accepted."""
        if self._sender.is_empty:
            self._look_ms = None
        elif self._look_ms is None:
            self._look_ms = self._context.now_ms() + _LOOK_MS
        return self._look_ms

    def flush(self, end_of_input: bool) -> None:
        """Raise the error of a failed request, if there is one; at the end of the input wait as a checkpoint does."""
        self._look_ms = None
        if end_of_input:
            self._sender.drain()
        self._sender.check()
        self._report()

    def prepare_commit(self) -> list[Any]:
        """Wait until the service has accepted all entries."""
        self._sender.drain()
        self._report()
        return []

    def close(self) -> None:
        """Discard unsent entries."""
        self._sender.close()

    def _report(self) -> None:
        for name, number in self._sender.take_counts().items():
            if number:
                self._context.count(name, number)


class _Sender:
    """The thread that sends requests, and the state that it shares with the task's thread, under one lock."""

    def __init__(self, sink: AsyncSinkBase[Any, Any], client: RequestClient[Any], name: str) -> None:
        self._sink, self._client, self._name = sink, client, name
        self._settings = sink.settings
        has_superseding = type(sink).supersedes is not AsyncSinkBase.supersedes
        supersedes = sink.supersedes if has_superseding else None
        self._buffer = RequestBuffer(sink.settings, sink.keeps_order_in_request, supersedes)
        self._changed = threading.Condition()
        self._counts = {"numRecordsSend": 0, "numBytesSend": 0, "numRecordsSendErrors": 0}
        self._error: Exception | None = None
        self._is_draining = self._is_closing = False
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._requests: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(sink.settings.max_in_flight_requests, f"penstock-{name}-request")
        self._thread = threading.Thread(target=self._run_loop, name=f"penstock-{name}", daemon=True)
        self._thread.start()

    # --- the task's thread ------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether every entry has been accepted, and no error waits."""
        return self._buffer.is_empty and self._error is None

    def add(self, entries: Sequence[Any], sizes: Sequence[int], keys: Sequence[Hashable | None] | None) -> None:
        """See `AsyncSinkWriter.add`."""
        now_ms, start = self._now_ms(), 0
        with self._changed:
            while start < len(entries):
                while not (room := self._buffer.room) and self._error is None:
                    self._wake_up()
                    self._changed.wait()
                if self._error is not None:
                    break
                some = slice(start, start + room)
                self._buffer.add(entries[some], sizes[some], None if keys is None else keys[some], now_ms)
                start += room
            self._raise()
        self._wake_up()

    def drain(self) -> None:
        """Send everything without waiting for more, and wait until it is accepted."""
        with self._changed:
            self._is_draining = True
            self._wake_up()
            while not self._buffer.is_empty and self._error is None:
                self._changed.wait()
            self._is_draining = False
            self._raise()

    def check(self) -> None:
        """Raise the error of a failed request, if there is one."""
        with self._changed:
            self._raise()

    def take_counts(self) -> dict[str, int]:
        """Return the counts since the last call."""
        with self._changed:
            counts, self._counts = self._counts, dict.fromkeys(self._counts, 0)
        return counts | dict(self._client.take_counts())

    def close(self) -> None:
        """Discard unsent entries, and wait a while for requests in flight."""
        with self._changed:
            self._is_closing = True
        self._wake_up()
        self._thread.join(_CLOSE_S)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _wake_up(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake.set)

    def _now_ms(self) -> float:
        return self._loop.time() * 1_000

    # --- the loop's thread ------------------------------------------------------------------------------------------

    def _run_loop(self) -> None:
        try:
            self._loop.run_until_complete(self._run())
        finally:
            self._loop.close()

    async def _run(self) -> None:
        try:
            await self._call(self._client.open)
        except Exception as error:  # noqa: BLE001 - the task's thread raises it
            self._fail(error, "cannot connect")
        while not self._is_closing:
            self._wake.clear()
            due_ms = self._start_requests()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if due_ms is None else due_ms / 1_000):
                    await self._wake.wait()
        if self._requests:
            await asyncio.wait(self._requests, timeout=_CLOSE_S)
            for request in list(self._requests):
                request.cancel()
        with suppress(Exception):
            await self._call(self._client.close)

    def _start_requests(self) -> float | None:
        """Start the requests that may be sent now; return when to look again, None for when something changes."""
        while self._error is None:
            with self._changed:
                # Both use one reading of the clock: a delay that ends between two readings would never be seen.
                now_ms = self._now_ms()
                entries = self._buffer.take(now_ms, self._is_draining)
                if not entries:
                    return self._buffer.next_due_ms(now_ms)
                self._changed.notify_all()  # there is room in the buffer
            request = self._loop.create_task(self._send(entries))
            self._requests.add(request)
            request.add_done_callback(self._requests.discard)
        return None

    async def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the client: a coroutine on the loop, a plain method in a thread."""
        if inspect.iscoroutinefunction(method):
            return await method(*arguments)
        return await self._loop.run_in_executor(self._threads, method, *arguments)

    async def _send(self, entries: list[Entry]) -> None:
        everything = RequestResult(again=range(len(entries)))
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1_000) as limit:
                result = await self._call(self._client.submit_request_entries, [entry.value for entry in entries])
        except Exception as error:  # noqa: BLE001 - the task's thread raises it, unless a repetition mends it
            if isinstance(error, TimeoutError) and limit.expired():
                reason = f"a request took longer than {self._settings.request_timeout_ms} ms (request_timeout_ms)"
                if self._settings.fail_on_timeout:
                    self._fail(None, reason)
                else:
                    self._finish(entries, everything, reason)
            elif self._client.is_retryable(error):
                self._finish(entries, everything, f"{type(error).__name__}: {error}")
            else:
                first = short_repr(entries[0].value)
                self._fail(error, f"a request of {len(entries)} entries failed, the first {first}")
        else:
            result = result or RequestResult()
            self._finish(entries, result, result.reason)

    def _finish(self, entries: list[Entry], result: RequestResult, reason: str) -> None:
        """Note what became of a request."""
        for number, why in result.rejected.items():
            try:
                self._sink.handle_rejected(entries[number].value, why)
            except Exception as error:  # noqa: BLE001 - the task's thread raises it
                return self._fail(error, f"{short_repr(entries[number].value)} is rejected: {why}")
        repeated = [
            number for number in self._buffer.extend_again(entries, result.again) if number not in result.rejected
        ]
        again = [entries[number] for number in repeated]
        for entry in again:
            if entry.attempts >= self._settings.max_attempts:
                text = f"{short_repr(entry.value)} was sent {entry.attempts} times (max_attempts)"
                return self._fail(None, f"{text}: {reason}")
        failed = {*repeated, *result.rejected}
        accepted = [entry.size for number, entry in enumerate(entries) if number not in failed]
        with self._changed:
            spread = random.uniform(1, 1.5)
            self._buffer.complete(entries, again, self._now_ms(), result.delay_ms, spread)
            self._counts["numRecordsSend"] += len(accepted)
            self._counts["numBytesSend"] += sum(accepted)
            self._counts["numRecordsSendErrors"] += len(failed)
            self._changed.notify_all()
        self._wake.set()
        return None

    def _fail(self, cause: Exception | None, what: str) -> None:
        """Keep an error for the task's thread."""
        if isinstance(cause, RequestError):
            error = cause
        else:
            reason = "" if cause is None else f": {type(cause).__name__}: {cause}"
            error = RequestError(f"{self._name}: {what}{reason}")
            error.__cause__ = cause
        with self._changed:
            self._error = self._error or error
            self._counts["numRecordsSendErrors"] += 1
            self._changed.notify_all()
        self._wake.set()
