"""Queues of SQS: a sink of messages (`SqsSink`), and a source that deletes them at checkpoints (`SqsSource`).

**Writing** is at least once, by SendMessageBatch; messages that the service refuses are sent again. In a queue that is
first in, first out (FIFO), messages of a group arrive in the order of the sink's subtask, and a message whose
deduplication id the service has seen in the last five minutes is left out: an id that depends on the record alone, such
as a hash of its content, makes repetitions after a failure vanish as long as they follow within that time.

**Reading** is at least once: a message that was received is invisible for the visibility timeout, and is deleted when a
checkpoint with it has completed. If the job fails before, it becomes visible again. The reader keeps the messages that
it has not deleted invisible, by extending their timeouts at half of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from penstock.base.errors import ConfigurationError, ContractError, OperationError, short_repr
from penstock.codecs.serialization import DeserializationSchema
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkBase, RequestClient, RequestError, RequestResult
from penstock.connectors.aws import client
from penstock.connectors.aws.client import AwsSettings
from penstock.connectors.aws.kinesis_sink import AwsSinkBuilder, ClientBase
from penstock.connectors.base import decode_messages
from penstock.runtime import connector
from penstock.runtime.records import Batch

T = TypeVar("T")

#: The limits of a request, by the rules of the service.
MESSAGES_MAX: Final = 10
_KIB: Final = 1024
#: Flink's limits.
SETTINGS: Final = AsyncSinkSettings(
    max_batch_size=MESSAGES_MAX,
    max_buffered_requests=5_000,
    max_batch_size_in_bytes=256 * _KIB,
    max_record_size_in_bytes=256 * _KIB,
)
_FIFO: Final = ".fifo"
#: How long (s) a request for messages waits for some, how long (ms) the service may be away, and the pause between.
_POLL_S: Final = 1
_PATIENCE_MS: Final = 60_000
_RETRY_MS: Final = 500
_LOOK_MS: Final = 5
#: How many received messages wait at most for the task.
_AHEAD_MAX: Final = 1_000
#: How long (s) a reader that closes waits for messages to be deleted.
_CLOSE_S: Final = 5.0


class SqsMessage(NamedTuple):
    """A message to be sent.

    Attributes:
        body: its text. SQS allows any character of XML 1.0, so no control characters but tab, line feed and return.
        group_id: its group, whose messages come in order; only in a FIFO queue.
        deduplication_id: its id; only in a FIFO queue, which may make one of the content itself.

    Examples:
        >>> from penstock.datastream.connectors.sqs import SqsMessage
        >>> SqsMessage("tea", group_id="ann", deduplication_id="order-7").group_id
        'ann'
    """

    body: str
    group_id: str | None = None
    deduplication_id: str | None = None


class SqsSink(AsyncSinkBase[T, SqsMessage], Generic[T]):
    """Sends messages to a queue; created with `SqsSink.builder()`. At least once.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.sqs import SqsSink
        >>> builder = SqsSink.builder().set_sqs_url("https://sqs.us-east-1.amazonaws.com/123456789012/orders")
        >>> builder = builder.set_sqs_client_properties({"aws.region": "us-east-1"})
        >>> sink = builder.set_serialization_schema(SimpleStringSchema()).build()
    """

    def __init__(
        self,
        aws: AwsSettings,
        url: str,
        to_message: Callable[[T], SqsMessage],
        fails_on_error: bool,
        settings: AsyncSinkSettings,
    ) -> None:
        super().__init__(settings)
        self.aws, self.url, self.fails_on_error = aws, url, fails_on_error
        self._to_message = to_message

    @staticmethod
    def builder() -> SqsSinkBuilder:
        """Return a builder."""
        return SqsSinkBuilder()

    @property
    def is_fifo(self) -> bool:
        """Whether the queue is first in, first out."""
        return self.url.endswith(_FIFO)

    def create_client(self, context: connector.SinkWriterContext) -> RequestClient[SqsMessage]:
        """See `AsyncSinkBase`."""
        return _SendClient(self)

    def convert(self, record: T, timestamp: int | None) -> SqsMessage:
        """See `AsyncSinkBase`."""
        message = self._to_message(record)
        if not isinstance(message, SqsMessage):
            raise ContractError(f"to_message of an SqsSink must return an SqsMessage, not {short_repr(message)}")
        if self.is_fifo and not message.group_id:
            raise ContractError(f"a message to the FIFO queue {self.url} has no group_id")
        if not self.is_fifo and message.deduplication_id is not None:
            raise ContractError(f"a message to {self.url} has a deduplication_id, which only a FIFO queue takes")
        return message

    def get_size_in_bytes(self, entry: SqsMessage) -> int:
        """See `AsyncSinkBase`."""
        return len(entry.body.encode())

    def get_ordering_key(self, entry: SqsMessage) -> Hashable | None:
        """See `AsyncSinkBase`: the group, in a FIFO queue."""
        return entry.group_id if self.is_fifo else None


class _SendClient(ClientBase):
    def __init__(self, sink: SqsSink[Any]) -> None:
        requests = sink.settings.max_in_flight_requests
        super().__init__(sink.aws, "sqs", type(sink).__name__, requests, sink.fails_on_error)
        self._url = sink.url

    def submit_request_entries(self, entries: Sequence[SqsMessage]) -> RequestResult:
        requests = [_build_entry(number, entry) for number, entry in enumerate(entries)]
        answer = self._client.send_message_batch(QueueUrl=self._url, Entries=requests)
        failed = answer.get("Failed", [])
        if not failed:
            return RequestResult()
        reasons = {int(each["Id"]): f"{each['Code']}: {each.get('Message')}" for each in failed}
        if self._fails_on_error:
            number, reason = next(iter(reasons.items()))
            raise RequestError(f"{self._user}: {short_repr(entries[number].body)} is refused: {reason}")
        rejected = {int(each["Id"]): reasons[int(each["Id"])] for each in failed if each.get("SenderFault")}
        throttled = {number for number, why in rejected.items() if why.partition(":")[0] in client.THROTTLING}
        rejected = {number: why for number, why in rejected.items() if number not in throttled}
        again = sorted(set(reasons) - set(rejected))
        return RequestResult(again=again, rejected=rejected, reason=reasons[again[0]] if again else "")


def _build_entry(number: int, message: SqsMessage) -> dict[str, str]:
    entry = {"Id": str(number), "MessageBody": message.body}
    if message.group_id is not None:
        entry["MessageGroupId"] = message.group_id
    if message.deduplication_id is not None:
        entry["MessageDeduplicationId"] = message.deduplication_id
    return entry


class SqsSinkBuilder(AwsSinkBuilder[SqsSink[Any]]):
    """Builder for `SqsSink`.

    Examples:
        >>> from penstock.datastream.connectors.sqs import SqsMessage, SqsSink
        >>> builder = SqsSink.builder().set_sqs_url("https://sqs.us-east-1.amazonaws.com/123456789012/orders.fifo")
        >>> sink = builder.set_message_converter(lambda order: SqsMessage(order[1], order[0], order[2])).build()
        >>> sink.is_fifo
        True
    """

    def __init__(self) -> None:
        super().__init__(SETTINGS, MESSAGES_MAX)
        self._url: str | None = None
        self._converter: Callable[[Any], SqsMessage] | None = None

    def set_sqs_url(self, sqs_url: str) -> SqsSinkBuilder:
        """Set the queue."""
        self._url = sqs_url
        return self

    def set_sqs_client_properties(self, sqs_client_properties: Mapping[str, Any]) -> SqsSinkBuilder:
        """Set the properties of AWS, such as `aws.region`."""
        return self._set_properties(sqs_client_properties)

    def set_message_converter(self, message_converter: Callable[[Any], SqsMessage]) -> SqsSinkBuilder:
        """Set the function that returns the `SqsMessage` of a record, in place of a serialization schema."""
        self._converter = message_converter
        return self

    def build(self) -> SqsSink[Any]:
        """Build the sink.

        Raises:
            ConfigurationError: if the queue, or what makes messages, is missing, or a property or limit is invalid.
        """
        if not self._url:
            raise ConfigurationError("an SQS sink needs set_sqs_url")
        if self._converter is None:
            if self._url.endswith(_FIFO):
                raise ConfigurationError(f"messages to the FIFO queue {self._url} have groups: set_message_converter")
            serialize = self.read_serializer()
            to_message: Callable[[Any], SqsMessage] = _Serialized(serialize)
        else:
            to_message = self._converter
        client.load_library("SqsSink")
        aws = AwsSettings(self._properties)
        return SqsSink(aws, self._url, to_message, self._fails_on_error, self.read_limits())


class _Serialized:
    def __init__(self, serialize: Callable[[Any], bytes]) -> None:
        self._serialize = serialize

    def __call__(self, record: Any) -> SqsMessage:
        return SqsMessage(self._serialize(record).decode())


# --- source ----------------------------------------------------------------------------------------------------------


class SqsSource(connector.Source[T, int], Generic[T]):
    """Receives the messages of a queue, and deletes them when a checkpoint has completed. At least once.

    A job without checkpoints deletes no messages.

    Args:
        url: the queue.
        properties: the properties of AWS, such as `aws.region`.
        schema: deserializes the bodies of messages.
        visibility_timeout_s: for how long a received message is invisible to others, unless its time is extended.

    Raises:
        ConfigurationError: for invalid properties, or another timeout than 10 s to 12 h.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.sqs import SqsSource
        >>> url = "https://sqs.us-east-1.amazonaws.com/123456789012/orders"
        >>> source = SqsSource(url, {"aws.region": "us-east-1"}, SimpleStringSchema())
        >>> source.replayable
        False
    """

    #: A position in a queue cannot be read again; the service redelivers messages that were not deleted.
    replayable = False
    boundedness = connector.Boundedness.CONTINUOUS_UNBOUNDED

    def __init__(
        self,
        url: str,
        properties: Mapping[str, Any],
        schema: DeserializationSchema[T],
        visibility_timeout_s: int = 120,
    ) -> None:
        if not 10 <= visibility_timeout_s <= 43_200:
            raise ConfigurationError(f"visibility_timeout_s is {visibility_timeout_s}; it must be 10 to 43200")
        client.load_library("SqsSource")
        self.aws = AwsSettings({key: str(value) for key, value in properties.items()})
        self.url, self.schema, self.visibility_timeout_s = url, schema, visibility_timeout_s

    def check_execution_mode(self, mode: str, is_local: bool) -> None:
        """Raise `ConfigurationError` for MICRO_BATCH, whose readers end before their epoch has completed."""
        if mode == "MICRO_BATCH":
            raise ConfigurationError(
                "an SQS source does not run in MICRO_BATCH, where no reader would delete its messages: call "
                "set_runtime_mode(RuntimeExecutionMode.STREAMING)"
            )

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[int], restored: Any | None
    ) -> connector.SplitEnumerator[int]:
        """See `Source`."""
        return _NoSplits()

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[T, int]:
        """See `Source`."""
        return _QueueReader(self, context)


class _NoSplits(connector.SplitEnumerator[int]):
    """Assigns nothing: all readers receive from the queue."""

    def start(self) -> None:
        """Do nothing."""

    def handle_split_request(self, subtask_index: int) -> None:
        """Do nothing."""

    def add_splits_back(self, splits: Sequence[int], subtask_index: int) -> None:
        """Do nothing."""

    def snapshot_state(self, checkpoint_id: int) -> None:
        """Return nothing."""


@dataclass(slots=True)
class _Received:
    """A message that was received and not deleted. `checkpoint_id`: the first checkpoint with it, if there was one."""

    receipt: str
    extend_at_ms: int
    checkpoint_id: int | None = None


class _QueueReader(connector.SourceReader[Any, int]):
    """Receives messages in one thread, and deletes them in another."""

    def __init__(self, source: SqsSource[Any], context: connector.SourceReaderContext) -> None:
        self._source, self._context = source, context
        self._client = source.aws.connect("sqs", "SqsSource")
        self._threads = ThreadPoolExecutor(3, "penstock-sqs")
        self._request: Future[list[Mapping[str, Any]]] | None = None
        self._waiting: deque[Mapping[str, Any]] = deque()
        #: by receipt, the messages that were received and not deleted
        self._received: dict[str, _Received] = {}
        self._changes: list[Future[int]] = []
        self._due_ms = 0
        self._away_since_ms: int | None = None
        context.gauge("messagesNotDeleted", lambda: len(self._received))

    def poll_next(self, max_records: int) -> Batch | connector.InputStatus:
        """See `SourceReader`."""
        now_ms = self._context.now_ms()
        self._finish_changes()
        self._extend(now_ms)
        self._receive(now_ms)
        if not self._waiting:
            return connector.InputStatus.NOTHING_AVAILABLE
        some = [self._waiting.popleft() for _ in range(min(max_records, len(self._waiting)))]
        bodies = [message["Body"].encode() for message in some]
        decoded = decode_messages(
            self._source.schema, bodies, lambda index: (some[index]["MessageId"], 0), self._context
        )
        if not len(decoded.values):
            return connector.InputStatus.NOTHING_AVAILABLE
        times = [int(message.get("Attributes", {}).get("SentTimestamp", now_ms)) for message in some]
        return Batch(list(decoded.values), list(decoded.of_records(times)), decoded.kinds)

    def _receive(self, now_ms: int) -> None:
        """Take the answer to the request for messages, and send the next one."""
        if self._request is not None and self._request.done():
            error = self._request.exception()
            if error is None:
                self._away_since_ms = None
                for message in self._request.result():
                    self._waiting.append(message)
                    receipt = message["ReceiptHandle"]
                    self._received[receipt] = _Received(receipt, self._find_extension_ms(now_ms))
            else:
                self._wait(error, now_ms)
            self._request = None
        if self._request is None and now_ms >= self._due_ms and len(self._waiting) < _AHEAD_MAX:
            self._request = self._threads.submit(self._ask)

    def _find_extension_ms(self, now_ms: int) -> int:
        return now_ms + self._source.visibility_timeout_s * 500

    def _ask(self) -> list[Mapping[str, Any]]:
        answer = self._client.receive_message(
            QueueUrl=self._source.url,
            MaxNumberOfMessages=MESSAGES_MAX,
            VisibilityTimeout=self._source.visibility_timeout_s,
            WaitTimeSeconds=_POLL_S,
            MessageSystemAttributeNames=["SentTimestamp"],
        )
        messages: list[Mapping[str, Any]] = answer.get("Messages", [])
        return messages

    def _wait(self, error: BaseException, now_ms: int) -> None:
        since_ms = self._away_since_ms = self._away_since_ms or now_ms
        if not client.is_passing(error) or now_ms - since_ms > _PATIENCE_MS:
            raise OperationError(
                f"messages of queue {self._source.url} cannot be received: {client.describe(error)}"
            ) from error
        self._context.count("numConnectionFailures")
        self._due_ms = now_ms + _RETRY_MS

    # --- what becomes of messages ------------------------------------------------------------------------------------

    def snapshot_state(self, checkpoint_id: int) -> list[int]:
        """Note which messages the task has taken before the checkpoint; there is nothing to store."""
        waiting = {message["ReceiptHandle"] for message in self._waiting}
        for received in self._received.values():
            if received.checkpoint_id is None and received.receipt not in waiting:
                received.checkpoint_id = checkpoint_id
        return []

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Delete the messages of this and of earlier checkpoints, in the background."""
        over = [
            each.receipt
            for each in self._received.values()
            if each.checkpoint_id is not None and each.checkpoint_id <= checkpoint_id
        ]
        for receipt in over:
            del self._received[receipt]
        for start in range(0, len(over), MESSAGES_MAX):
            self._changes.append(self._threads.submit(self._delete, over[start : start + MESSAGES_MAX]))

    def _delete(self, receipts: Sequence[str]) -> int:
        """Delete messages; return how many were not, which come again."""
        entries = [{"Id": str(number), "ReceiptHandle": receipt} for number, receipt in enumerate(receipts)]
        return self._change(lambda: self._client.delete_message_batch(QueueUrl=self._source.url, Entries=entries))

    def _extend(self, now_ms: int) -> None:
        """Keep messages invisible for longer."""
        due = [each for each in self._received.values() if now_ms >= each.extend_at_ms]
        for start in range(0, len(due), MESSAGES_MAX):
            some = due[start : start + MESSAGES_MAX]
            for each in some:
                each.extend_at_ms = self._find_extension_ms(now_ms)
            timeout_s = self._source.visibility_timeout_s
            receipts = [each.receipt for each in some]
            self._changes.append(self._threads.submit(self._change_timeouts, receipts, timeout_s))

    def _change_timeouts(self, receipts: Sequence[str], timeout: int) -> int:
        entries = [
            {"Id": str(number), "ReceiptHandle": receipt, "VisibilityTimeout": timeout}
            for number, receipt in enumerate(receipts)
        ]
        request = self._client.change_message_visibility_batch
        return self._change(lambda: request(QueueUrl=self._source.url, Entries=entries))

    def _change(self, request: Callable[[], Mapping[str, Any]]) -> int:
        """Send a request, again while the service is away; return for how many messages it failed."""
        for attempt in range(6):
            try:
                return len(request().get("Failed", []))
            except Exception as error:
                if not client.is_passing(error) or attempt == 5:
                    raise
            time.sleep(0.25 * 2**attempt)
        raise AssertionError("unreachable")

    def _finish_changes(self) -> None:
        """Count messages that were not deleted or extended, and so may come again."""
        done = [each for each in self._changes if each.done()]
        self._changes = [each for each in self._changes if not each.done()]
        for each in done:
            error = each.exception()
            failures = 1 if error is not None else each.result()
            if failures:
                self._context.count("numDeletionFailures", failures)

    # --- splits ------------------------------------------------------------------------------------------------------

    def add_splits(self, splits: Sequence[int]) -> None:
        """Do nothing: there are none."""

    def no_more_splits(self) -> None:
        """Do nothing: a queue has no end."""

    def retry_after_ms(self) -> int:
        """Return a short time while messages come in."""
        return _LOOK_MS if self._received else super().retry_after_ms()

    def close(self) -> None:
        """Return messages that are not deleted, so that others receive them at once; close the connections.

        This includes messages of a request in flight: they would stay invisible until their visibility timeout.
        """
        receipts = list(self._received)
        if self._request is not None:
            wait([self._request], _CLOSE_S)
            if self._request.done() and self._request.exception() is None:
                receipts += [message["ReceiptHandle"] for message in self._request.result()]
        for start in range(0, len(receipts), MESSAGES_MAX):
            some = receipts[start : start + MESSAGES_MAX]
            self._changes.append(self._threads.submit(self._change_timeouts, some, 0))
        wait(self._changes, _CLOSE_S)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()
