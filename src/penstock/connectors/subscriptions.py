"""Sources of queues and topics: a connection that the server sends messages to, and their acknowledgement.

**Reading.** A reader has a `Subscription` for each of its splits: a connection whose thread receives messages into an
inbox. The server limits what it sends ahead (prefetch, receive maximum, a pull), so the inbox is bounded.

**Acknowledgement at checkpoints** (`Progress.ACKNOWLEDGE`). A message stays with the server until a checkpoint that
covers it has completed; only then the reader acknowledges it. After a failure the state is that of the checkpoint, and
the server delivers the later messages again: at least once. A message that a checkpoint covers may also come again, if
the failure precedes the acknowledgement or the server forgets it. If messages have ids (`drops_repeated`), the ids of
messages that may come again are part of the checkpoint, and repeated messages are dropped: exactly once, with one
reader, because the server may deliver a message again to any reader.

A lost connection fails the reader. The job then returns to its checkpoint, so what the server delivers again counts
once. Without a failure, all messages in flight would count twice.

**Positions** (`Progress.POSITION`). The server keeps messages under increasing numbers. The split has the number of the
last message, a checkpoint has the split: exactly once. A lost connection is opened again at the position.

**Without checkpoints** (`Progress.AT_ONCE`). A message is acknowledged when it is handed to the job, as Flink does when
checkpointing is off. A failure loses what is in flight, so the source is not replayable and the job says so.

Source: Flink's `MessageAcknowledgingSourceBase` and `MultipleIdsMessageAcknowledgingSourceBase`.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, NamedTuple

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, OperationError, UnsupportedError
from penstock.base.secrets import hide
from penstock.codecs.serialization import DeserializationSchema
from penstock.connectors.base import decode_messages
from penstock.runtime import connector
from penstock.runtime.records import Batch

#: how long a subscription tries to reach a server before the reader fails, and the pause between attempts
PATIENCE_S: Final = 60.0
RETRY_S: Final = 0.5
#: fewer messages than this wait for others this long (ms) after a batch: small batches cost more than the messages
SMALL_BATCH: Final = 500
LINGER_MS: Final = 5
#: how long `close` waits for a connection to end
CLOSE_S: Final = 5.0
#: how long ids are kept after their messages were acknowledged: a server that is killed may forget acknowledgements
IDS_KEPT_MS: Final = 10_000
#: how long the ids of a restored checkpoint are kept: their messages come again soon, or were acknowledged before
RESTORED_IDS_KEPT_MS: Final = 3_600_000


class Progress(Enum):
    """How a source records its progress."""

    ACKNOWLEDGE = "acknowledges at checkpoints"
    AT_ONCE = "acknowledges at once"
    POSITION = "stores a position"


class Delivery(NamedTuple):
    """A delivered message.

    Attributes:
        message: the input of the source's `MessageReading`.
        tag: the acknowledgement handle of the subscription; None if there is nothing to acknowledge.
        mark: the message's id or position; None without either.
    """

    message: Any
    tag: Any
    mark: Any


@dataclass(frozen=True, slots=True)
class SubscriptionSplit:
    """One of the connections of a source.

    Attributes:
        number: which one, from 0.
        position: the position of the last message that was read; None at the start.
        ids: the ids of messages that were read and may come again.
        stop: the position of the last message to read; None for no end, or if it is not known yet.
    """

    number: int
    position: int | None = None
    ids: tuple[Any, ...] = ()
    stop: int | None = None


class MessageReading(ABC):
    """Turns messages into records. Pickled with the job."""

    @abstractmethod
    def read(self, messages: Sequence[Any], context: connector.SourceReaderContext) -> Batch | None:
        """Return the records of messages; None without records."""


class SchemaReading(MessageReading):
    """Decodes the bodies of messages.

    Args:
        schema: the schema of the bodies.
        name: the name of the queue, for errors.
        get_body: returns the body of a message.
        get_timestamp: returns the time (ms) of a message, if all have one.
    """

    def __init__(
        self,
        schema: DeserializationSchema[Any],
        name: str,
        get_body: Callable[[Any], bytes],
        get_timestamp: Callable[[Any], int] | None = None,
    ) -> None:
        self._schema, self._name = schema, name
        self._get_body, self._get_timestamp = get_body, get_timestamp

    def read(self, messages: Sequence[Any], context: connector.SourceReaderContext) -> Batch | None:
        """See `MessageReading`."""
        name = self._name
        decoded = decode_messages(self._schema, list(map(self._get_body, messages)), lambda at: (name, at), context)
        if not decoded.values:
            return None
        timestamps = None
        if self._get_timestamp is not None:
            timestamps = list(decoded.of_records(list(map(self._get_timestamp, messages))))
        return Batch(list(decoded.values), timestamps)


class FunctionReading(MessageReading):
    """Calls a user-defined function with each message; without one the messages are the records.

    Args:
        function: returns the record of a message.
        build: makes the public form of messages.
        get_timestamp: returns the time (ms) of a message, if all have one.
    """

    def __init__(
        self,
        function: Callable[[Any], Any] | None,
        build: Callable[[Any], Any],
        get_timestamp: Callable[[Any], int] | None = None,
    ) -> None:
        self._function, self._build, self._get_timestamp = function, build, get_timestamp

    def read(self, messages: Sequence[Any], context: connector.SourceReaderContext) -> Batch | None:
        """See `MessageReading`."""
        values = list(map(self._build, messages))
        if self._function is not None:
            values = connector.call_each(self._function, values, "deserialize")
        timestamps = None if self._get_timestamp is None else list(map(self._get_timestamp, messages))
        return Batch(values, timestamps)


class Subscription(ABC):
    """A connection that receives messages in a thread of its own.

    A subclass connects and receives in `consume`, and calls `connected` when the server has accepted the subscription.

    Args:
        title: the source and its address, for errors.
    """

    #: whether the server keeps a session while the connection is closed; the position of the split is then 0
    keeps_session = False
    #: the position of the last message to read, once it is known; None for no end
    stop: int | None = None
    #: how many messages the server has that were not delivered, if it says so
    pending: int | None = None

    def __init__(self, title: str) -> None:
        self.title = title
        self.inbox: deque[Delivery] = deque()
        self.error: Exception | None = None
        self.failures = 0
        #: whether the subscription has come to its end, after the messages in the inbox
        self.has_ended = False
        #: whether the server has accepted the subscription
        self.is_connected = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-subscription", daemon=True)

    def open(self) -> None:
        """Connect, and begin to receive."""
        self._thread.start()

    @abstractmethod
    def consume(self) -> None:
        """Connect, and append deliveries to the inbox until `interrupt` is called; raise if the connection fails."""

    @abstractmethod
    def interrupt(self) -> None:
        """Make `consume` return. Called in another thread; the connection may not exist."""

    @abstractmethod
    def acknowledge(self, tags: Sequence[Any]) -> None:
        """Acknowledge messages. Called in another thread. They have been taken from the inbox, in its order."""

    def release(self, tags: Sequence[Any]) -> None:  # noqa: B027 - servers that count connections do it by themselves
        """Return unacknowledged messages to the server before the connection is closed."""

    def is_passing(self, error: Exception) -> bool:
        """Return whether a failed connection may be opened later."""
        return isinstance(error, OSError)

    def connected(self) -> None:
        """Note that the server has accepted the subscription."""
        self.is_connected = True

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called."""
        return self._closing.is_set()

    def take(self, count: int) -> list[Delivery]:
        """Return up to `count` messages."""
        inbox = self.inbox
        return [inbox.popleft() for _ in range(min(count, len(inbox)))]

    def close(self) -> None:
        """Close the connection; the server then has the unacknowledged messages again."""
        self._closing.set()
        if self._thread.ident is not None:
            self.interrupt()
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not self.is_closing:
            try:
                self.consume()
                return
            except Exception as error:  # noqa: BLE001 - the reader raises it
                if self.is_closing:
                    return
                if self.is_connected or not self.is_passing(error) or time.monotonic() > deadline_s:
                    self.error = error
                    return
                self.failures += 1
                self._closing.wait(RETRY_S)


class SubscriptionSource(connector.Source[Any, SubscriptionSplit]):
    """The base of sources with subscriptions.

    Attributes:
        progress: how the source records its progress.
        drops_repeated: whether messages have ids, so that redelivered messages are dropped.
        reading: turns messages into records.
    """

    progress = Progress.ACKNOWLEDGE
    drops_repeated = False
    reading: MessageReading
    boundedness = connector.Boundedness.CONTINUOUS_UNBOUNDED

    @abstractmethod
    def create_subscription(self, split: SubscriptionSplit) -> Subscription:
        """Create the subscription of a split, which is not open yet."""

    def configure(self, configuration: Configuration) -> None:
        """Acknowledge at once if the job takes no checkpoints: nothing else would acknowledge."""
        if self.progress is Progress.ACKNOWLEDGE and configuration.read(options.CHECKPOINTING_INTERVAL_MS) is None:
            self.progress = Progress.AT_ONCE
            self.replayable = False

    def check_execution_mode(self, mode: str, is_local: bool) -> None:
        """Refuse MICRO_BATCH for a source that acknowledges: each epoch would reconnect and repeat messages."""
        if mode == "MICRO_BATCH" and self.progress is not Progress.POSITION:
            raise ConfigurationError(
                f"{type(self).__name__} acknowledges messages at checkpoints, and MICRO_BATCH opens its connections "
                "anew for each epoch: set execution.runtime-mode to STREAMING"
            )

    def max_parallelism(self) -> int | None:
        """Return 1 if repeated messages are dropped, or messages have positions."""
        return 1 if self.drops_repeated or self.progress is Progress.POSITION else None

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[SubscriptionSplit], restored: Any | None
    ) -> connector.SplitEnumerator[SubscriptionSplit]:
        """See `Source`."""
        return _SubscriptionEnumerator(context, restored, self.progress is Progress.POSITION)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, SubscriptionSplit]:
        """See `Source`."""
        return SubscriptionReader(self, context)


class _SubscriptionEnumerator(connector.SplitEnumerator[SubscriptionSplit]):
    """Gives each reader without a split the next one; a source with positions has one split in all."""

    def __init__(
        self, context: connector.SplitEnumeratorContext[SubscriptionSplit], restored: Any | None, is_single: bool
    ) -> None:
        self._context = context
        self._is_single = is_single
        self._next: int = 0 if restored is None else restored[0]
        self._returned: list[SubscriptionSplit] = [] if restored is None else list(restored[1])

    def start(self) -> None:
        """Do nothing: readers ask."""

    def handle_split_request(self, subtask_index: int) -> None:
        """Assign a split that came back, or a new one."""
        if self._returned:
            self._context.assign_split(self._returned.pop(0), subtask_index)
        elif self._is_single and self._next:
            self._context.signal_no_more_splits(subtask_index)
        else:
            split, self._next = SubscriptionSplit(self._next), self._next + 1
            self._context.assign_split(split, subtask_index)

    def add_splits_back(self, splits: Sequence[SubscriptionSplit], subtask_index: int) -> None:
        """Take splits back."""
        self._returned += splits

    def snapshot_state(self, checkpoint_id: int) -> tuple[int, list[SubscriptionSplit]]:
        """Return the number of splits, and the splits that were not assigned."""
        return self._next, list(self._returned)


class _Unacknowledged:
    """The messages of a reader between two checkpoints: tags by split, and ids."""

    __slots__ = ("ids", "tags")

    def __init__(self) -> None:
        self.tags: dict[int, list[Any]] = {}
        self.ids: list[Any] = []

    def __len__(self) -> int:
        return sum(map(len, self.tags.values()))


class SubscriptionReader(connector.SourceReader[Any, SubscriptionSplit]):
    """Takes messages from subscriptions in turns, and acknowledges them as the source's `progress` says."""

    def __init__(self, source: SubscriptionSource, context: connector.SourceReaderContext) -> None:
        self._source, self._context = source, context
        self._name = type(source).__name__
        self._splits: dict[int, SubscriptionSplit] = {}
        self._subscriptions: dict[int, Subscription] = {}
        self._turns: deque[int] = deque()
        #: messages since the last checkpoint, and messages of pending checkpoints
        self._current = _Unacknowledged()
        self._pending: dict[int, _Unacknowledged] = {}
        #: the ids of messages that may come again, and until when (ms) they are kept; None while unacknowledged
        self._ids: dict[Any, int | None] = {}
        self._failures = 0
        self._last_batch_ms = -LINGER_MS
        self._has_requested = self._is_last = False
        context.gauge("bufferedRecords", lambda: sum(len(each.inbox) for each in self._subscriptions.values()))
        context.gauge("unacknowledgedRecords", self._count_unacknowledged)
        context.gauge("pendingRecords", self._count_pending)

    def start(self) -> None:
        """Ask for a split, unless some were restored."""
        self._ask()

    def _ask(self) -> None:
        if not (self._splits or self._has_requested or self._is_last):
            self._has_requested = True
            self._context.request_split()

    def add_splits(self, splits: Sequence[SubscriptionSplit]) -> None:
        """See `SourceReader`."""
        until_ms = self._context.now_ms() + RESTORED_IDS_KEPT_MS
        for split in splits:
            self._ids.update(dict.fromkeys(split.ids, until_ms))
            self._splits[split.number] = split = replace(split, ids=())
            self._turns.append(split.number)
        self._has_requested = False

    def no_more_splits(self) -> None:
        """See `SourceReader`."""
        self._is_last = True

    def poll_next(self, max_records: int) -> Batch | connector.InputStatus:
        """See `SourceReader`."""
        now_ms = self._context.now_ms()
        waiting = sum(len(each.inbox) for each in self._subscriptions.values())
        if 0 < waiting < SMALL_BATCH and 0 <= now_ms - self._last_batch_ms < LINGER_MS:
            return connector.InputStatus.NOTHING_AVAILABLE
        for _ in range(len(self._turns)):
            number = self._turns[0]
            self._turns.rotate(-1)
            subscription = self._find_subscription(number)
            deliveries = subscription.take(max_records)
            if deliveries:
                batch = self._read(number, subscription, deliveries)
                if batch is not None:
                    self._last_batch_ms = now_ms
                    return batch
            elif subscription.error is not None:
                self._handle_failure(number, subscription)
            elif subscription.has_ended and not subscription.inbox:
                self._end(number)
        if self._is_last and not self._splits:
            return connector.InputStatus.END_OF_INPUT
        self._ask()
        return connector.InputStatus.NOTHING_AVAILABLE

    def _find_subscription(self, number: int) -> Subscription:
        """Return the subscription of a split, which is opened when it is first read."""
        subscription = self._subscriptions.get(number)
        if subscription is None:
            subscription = self._source.create_subscription(self._splits[number])
            self._subscriptions[number] = subscription
            subscription.open()
        if subscription.failures:
            self._context.count("numConnectionFailures", subscription.failures)
            subscription.failures = 0
        return subscription

    def _handle_failure(self, number: int, subscription: Subscription) -> None:
        """Reconnect at the position; fail without a position."""
        error = subscription.error
        assert error is not None
        if self._source.progress is Progress.POSITION and subscription.is_passing(error) and self._failures == 0:
            self._context.count("numConnectionFailures")
            self._failures += 1  # until a message arrives
            subscription.close()
            del self._subscriptions[number]
            return
        reason = hide(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        if isinstance(error, OperationError | UnsupportedError | ConfigurationError):
            raise error
        raise OperationError(f"{subscription.title}: the connection failed: {reason}") from error

    def _read(self, number: int, subscription: Subscription, deliveries: list[Delivery]) -> Batch | None:
        """Return the records of messages, and note what to acknowledge."""
        progress = self._source.progress
        self._failures = 0
        tags = [delivery.tag for delivery in deliveries if delivery.tag is not None]
        drops = self._source.drops_repeated and progress is Progress.ACKNOWLEDGE
        messages = self._drop_repeated(deliveries) if drops else deliveries
        batch = None
        if messages:
            batch = self._source.reading.read([delivery.message for delivery in messages], self._context)
        if progress is Progress.ACKNOWLEDGE:
            self._current.tags.setdefault(number, []).extend(tags)
        elif tags:
            subscription.acknowledge(tags)
        if progress is Progress.POSITION:
            split = self._splits[number]
            self._splits[number] = replace(split, position=deliveries[-1].mark, stop=subscription.stop)
        return batch

    def _drop_repeated(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Return the messages that come for the first time, and note their ids."""
        fresh: list[Delivery] = []
        ids = self._ids
        for delivery in deliveries:
            mark = delivery.mark
            if mark is None:
                raise OperationError(
                    f"{self._name} drops messages that come again by their correlation ids, and a message has none: "
                    "let the publisher set one, different for each message, or set use_correlation_id to False"
                )
            if mark not in ids:
                fresh.append(delivery)
            ids[mark] = None
            self._current.ids.append(mark)
        if len(fresh) < len(deliveries):
            self._context.count("numRepeatedRecordsDropped", len(deliveries) - len(fresh))
        return fresh

    def _end(self, number: int) -> None:
        """Close a subscription that has come to its end."""
        self._subscriptions.pop(number).close()
        del self._splits[number]
        self._turns.remove(number)

    def _count_pending(self) -> int:
        """Return how many messages are not read yet, as far as the server says so."""
        return sum(len(each.inbox) + (each.pending or 0) for each in self._subscriptions.values())

    def _count_unacknowledged(self) -> int:
        return len(self._current) + sum(map(len, list(self._pending.values())))

    def snapshot_state(self, checkpoint_id: int) -> list[SubscriptionSplit]:
        """See `SourceReader`."""
        if self._source.progress is Progress.ACKNOWLEDGE:
            self._pending[checkpoint_id], self._current = self._current, _Unacknowledged()
        for number, subscription in self._subscriptions.items():
            if subscription.keeps_session and subscription.is_connected:
                self._splits[number] = replace(self._splits[number], position=0)
        splits = list(self._splits.values())
        if splits and self._ids:
            splits[0] = replace(splits[0], ids=tuple(self._ids))
        return splits

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Acknowledge the messages that the checkpoint covers."""
        now_ms = self._context.now_ms()
        for number in sorted(number for number in self._pending if number <= checkpoint_id):
            covered = self._pending.pop(number)
            for split_number, tags in covered.tags.items():
                subscription = self._subscriptions.get(split_number)
                if subscription is not None and tags:
                    subscription.acknowledge(tags)
            self._ids.update(dict.fromkeys(covered.ids, now_ms + IDS_KEPT_MS))
        if self._ids:
            expired = [mark for mark, until_ms in self._ids.items() if until_ms is not None and until_ms < now_ms]
            for mark in expired:
                del self._ids[mark]

    def close(self) -> None:
        """Close the connections; the server then has the unacknowledged messages again."""
        everything = [self._current, *self._pending.values()]
        for number, subscription in self._subscriptions.items():
            tags = [tag for each in everything for tag in each.tags.get(number, ())]
            tags += [delivery.tag for delivery in subscription.inbox if delivery.tag is not None]
            if tags and subscription.error is None:
                subscription.release(tags)
            subscription.close()


def describe_lost(title: str, position: int, first: int) -> OperationError:
    """Return the error for messages after a position that the server removed; `first` is the oldest that it has."""
    return OperationError(
        f"{title}: messages after {position} were removed before they were read; the oldest is {first}. Let the server "
        "keep more, and start the job without the checkpoint to go on without them"
    )
