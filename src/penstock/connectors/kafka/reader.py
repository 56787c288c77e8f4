"""`KafkaReader`: reads partitions with one consumer, batch by batch.

The consumer gets its partitions by `assign`; it joins no group. Offsets are in the job's checkpoints. When a checkpoint
completes they are also committed to the group, for others to see.

librdkafka prefetches on its own threads, so a poll takes the available records and never waits. The records of one call
come from several partitions; they are split into runs of one partition each and emitted run by run, because each
partition has its own watermark.

`BrokerWatch` tracks, from a consumer's callbacks, whether brokers are available.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, repeat
from operator import is_
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock.base.errors import OperationError
from penstock.codecs.column_data import ColumnData
from penstock.connectors.base import refuse_or_skip
from penstock.connectors.kafka import client
from penstock.connectors.kafka.consumer_offsets import MissingPartitions, OffsetCommits, Reading, Resetter
from penstock.connectors.kafka.partitions import KafkaOffsetResetStrategy, KafkaPartitionSplit, KafkaTopicPartition
from penstock.connectors.kafka.records import KafkaRecordDeserializationSchema, KafkaRecords
from penstock.runtime.columns import ColumnBatch, SplitColumnBatch
from penstock.runtime.connector import InputStatus, SourceReader, SourceReaderContext, SplitBatch
from penstock.runtime.records import Batch

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message


#: Errors that report a missing topic or partition.
GONE: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"})


class BrokerWatch:
    """Notes when all brokers are down, and when one is back. Its methods are the callbacks of a consumer.

    Args:
        servers: the brokers, as they appear in the log.
        timeout_ms: how long all brokers may be down.
    """

    def __init__(self, servers: str, timeout_ms: int) -> None:
        self._servers = servers
        self._timeout_ms = timeout_ms
        self._is_down = False
        self._down_since_ms: int | None = None
        self._reason = ""
        self._refusal: str | None = None
        #: how often all brokers were down
        self.outages = 0
        #: whether the client has reported a missing topic or partition
        self.misses_something = False

    @property
    def is_down(self) -> bool:
        """Whether all brokers are down."""
        return self._is_down

    def on_error(self, error: KafkaError) -> None:
        """Handle an error of the client as a whole."""
        self._refusal = client.find_credentials_error(error) or self._refusal
        if error.name() in GONE:
            self.misses_something = True
        elif error.name() == "_ALL_BROKERS_DOWN":
            self._is_down = True
        elif error.name() in ("_TRANSPORT", "_RESOLVE", "_TIMED_OUT"):
            self._reason = error.str()
        else:
            client.LOG.warning("the Kafka client reports: %s (%s)", error.str(), error.name())

    def on_statistics(self, text: str) -> None:
        """Handle the client's state, sent every second; used only while all brokers are down."""
        if self._is_down and any(broker.get("state") == "UP" for broker in json.loads(text)["brokers"].values()):
            self.saw_broker()

    def saw_broker(self) -> None:
        """Note that a broker has answered."""
        if self._is_down:
            self._is_down = False
            if self._down_since_ms is not None:
                client.LOG.warning("a Kafka broker of %s is back", self._servers)
            self._down_since_ms = None

    def check(self, now_ms: int) -> None:
        """Log that all brokers are down.

        Raises:
            OperationError: if they have been down for too long, or reject the credentials.
        """
        if self._refusal is not None:
            raise client.refused(self._servers, self._refusal)
        if not self._is_down:
            return
        if self._down_since_ms is None:
            self._down_since_ms = now_ms
            self.outages += 1
            client.LOG.warning(
                "no Kafka broker of %s can be reached (%s); the source tries for %d s",
                self._servers,
                self._reason,
                self._timeout_ms // 1000,
            )
        elif now_ms - self._down_since_ms >= self._timeout_ms:
            raise OperationError(
                f"no Kafka broker of {self._servers} could be reached for {self._timeout_ms // 1000} s "
                f"({self._reason}). Check bootstrap.servers and the brokers; the property "
                "brokers.unavailable.timeout.ms says how long the source waits"
            )


def _origin(partition: str, offsets: Sequence[int], positions: Sequence[int] | None) -> Callable[[int], str]:
    """Return a function that names a record's message without keeping it. `positions`: the message index per record."""
    return lambda index: f"{partition}, offset {offsets[index if positions is None else positions[index]]}"


class KafkaReader(SourceReader[Any, KafkaPartitionSplit]):
    """See the module docstring.

    Args:
        context: the context of the task.
        options: the options of the source.
        reset: the strategy for an offset that no longer exists.
        schema: deserializes messages.
    """

    def __init__(
        self,
        context: SourceReaderContext,
        options: client.ConsumerOptions,
        reset: KafkaOffsetResetStrategy,
        schema: KafkaRecordDeserializationSchema[Any],
    ) -> None:
        self._context = context
        self._options = options
        self._schema = schema
        self._readings: dict[KafkaTopicPartition, Reading] = {}
        self._fetched: deque[KafkaRecords] = deque()
        #: fetched records of paused partitions, by partition
        self._parked: dict[KafkaTopicPartition, list[KafkaRecords]] = {}
        #: partitions whose last records were emitted by the last poll
        self._to_close: list[str] = []
        self._is_closed = False
        self._is_last = False
        self._asked = False
        self._brokers = BrokerWatch(options.settings["bootstrap.servers"], options.unavailable_timeout_ms)
        self._commits = OffsetCommits(context, options.commits)
        self._consumer = self._made_consumer()
        self._background = ThreadPoolExecutor(1, "penstock-kafka-questions")
        self._resetter = Resetter(self._consumer, reset, context, self._background)
        self._missing = MissingPartitions(self._consumer, self._background)
        self._measure()

    def _made_consumer(self) -> Consumer:
        callbacks = {
            "error_cb": self._brokers.on_error,
            "stats_cb": self._brokers.on_statistics,
            "on_commit": self._commits.on_commit,
        }
        return client.make_consumer({**self._options.of_consumer(self._context.subtask_index), **callbacks})

    def _measure(self) -> None:
        gauge = self._context.gauge
        gauge("pendingRecords", lambda: sum(reading.lag() for reading in self._readings.values()))
        gauge(
            "KafkaSourceReader.KafkaConsumer.records-lag-max",
            lambda: max((reading.lag() for reading in self._readings.values()), default=0),
        )
        gauge("KafkaSourceReader.brokerOutages", lambda: self._brokers.outages)

    # --- splits ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Register with the enumerator."""
        self._ask()

    def add_splits(self, splits: Sequence[KafkaPartitionSplit]) -> None:
        """Start to read more partitions."""
        new = []
        for split in splits:
            if split.is_read:
                continue
            if split.partition in self._readings:
                raise OperationError(f"{split.partition} was assigned twice to one reader of a Kafka source")
            self._readings[split.partition] = reading = Reading(split, self._consumer, self._context)
            new.append(reading.place())
            self._context.open_split(str(split.partition))
        if new:
            self._consumer.incremental_assign(new)

    def no_more_splits(self) -> None:
        """Note that no other partition will be assigned."""
        self._is_last = True

    def snapshot_state(self, checkpoint_id: int) -> list[KafkaPartitionSplit]:
        """Return the partitions with their positions."""
        splits = [reading.split for reading in self._readings.values()]
        self._commits.note(checkpoint_id, splits)
        return splits

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit the offsets of the checkpoint, in the background."""
        self._commits.commit(checkpoint_id, self._consumer)

    def pause_or_resume_splits(self, splits_to_pause: Sequence[str], splits_to_resume: Sequence[str]) -> None:
        """Pause fetching some partitions, and keep their fetched records until they resume."""
        by_name = {str(partition): reading for partition, reading in self._readings.items()}
        pause = [by_name[name] for name in splits_to_pause if name in by_name]
        resume = [by_name[name] for name in splits_to_resume if name in by_name]
        for reading in pause:
            reading.is_paused = True
            self._parked[reading.split.partition] = self._take_out(reading.split.partition)
        for reading in resume:
            reading.is_paused = False
            self._fetched += self._parked.pop(reading.split.partition, ())
        self._consumer.pause([reading.place() for reading in pause])
        self._consumer.resume([reading.place() for reading in resume])

    def _take_out(self, partition: KafkaTopicPartition) -> list[KafkaRecords]:
        """Remove and return the fetched records of a partition."""
        taken = [records for records in self._fetched if records.partition == partition]
        if taken:
            self._fetched = deque(records for records in self._fetched if records.partition != partition)
        return taken

    def retry_after_ms(self) -> int:
        """Return 0 until every partition has been fetched to its end once."""
        behind = any(not reading.is_at_end and not reading.is_paused for reading in self._readings.values())
        return 0 if behind and not self._brokers.is_down else super().retry_after_ms()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._context.request_split()

    def _finish(self, reading: Reading) -> None:
        """Close a partition that has been read to its stop offset."""
        partition = reading.split.partition
        del self._readings[partition]
        self._commits.finished(reading.split)
        self._take_out(partition)
        self._parked.pop(partition, None)
        self._consumer.incremental_unassign([reading.place()])
        self._to_close.append(str(partition))

    # --- records ---------------------------------------------------------------------------------------------------

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        """Return the next records of one partition."""
        self._ask()
        while self._to_close:
            self._context.close_split(self._to_close.pop())
        batch = self._hand_out(max_records)
        if batch is not None:
            return batch
        if self._readings:
            self._fetch(max_records)
            self._brokers.check(self._context.now_ms())
            batch = self._hand_out(max_records)
            if batch is not None:
                return batch
        elif self._commits.are_open:
            self._consumer.poll(0)  # handles the answers to commits
        self._commits.go_on(self._consumer)
        if self._is_last and not self._readings and not self._to_close:
            return InputStatus.END_OF_INPUT
        return InputStatus.NOTHING_AVAILABLE

    def _fetch(self, max_records: int) -> None:
        """Take the records that the client has fetched, and handle its reports."""
        from confluent_kafka import Message

        messages = self._consumer.consume(max_records, 0.0)
        if messages:
            errors = list(map(Message.error, messages))
            # Compare by identity, because `==` fails on the library's errors.
            if not all(map(is_, errors, repeat(None))):
                reports = [
                    (fetched, error) for fetched, error in zip(messages, errors, strict=True) if error is not None
                ]
                messages = [fetched for fetched, error in zip(messages, errors, strict=True) if error is None]
                self._cut(messages)
                for message, error in reports:
                    self._see(message, error)
            else:
                self._cut(messages)
        for partition, position in self._resetter.done():
            if partition in self._readings:
                self._move(self._readings[partition], position)
        if self._brokers.misses_something:
            self._brokers.misses_something = False
            self._missing.begin(self._readings)
        for partition in self._missing.done():
            if partition in self._readings:
                self._lose(self._readings[partition])

    def _cut(self, messages: list[Message]) -> None:
        """Split messages into runs of one partition."""
        from confluent_kafka import Message

        if not messages:
            return
        self._brokers.saw_broker()
        numbers = list(map(Message.partition, messages))
        topics = list(map(Message.topic, messages))
        if numbers.count(numbers[0]) == len(numbers) and topics.count(topics[0]) == len(topics):
            self._keep(topics[0], numbers[0], messages)
            return
        start = 0
        for (topic, number), run in groupby(zip(topics, numbers, strict=True)):
            stop = start + sum(1 for _ in run)
            self._keep(topic, number, messages[start:stop])
            start = stop

    def _keep(self, topic: str | None, number: int | None, messages: list[Message]) -> None:
        assert topic is not None
        assert number is not None
        self._put(KafkaRecords(KafkaTopicPartition(topic, number), messages))

    def _put(self, records: KafkaRecords) -> None:
        reading = self._readings.get(records.partition)
        if reading is not None and reading.is_paused:
            self._parked[records.partition].append(records)
        elif reading is not None:
            self._fetched.append(records)

    def _hand_out(self, max_records: int) -> Batch | None:
        """Return records of the next run that has any."""
        while self._fetched:
            records = self._fetched.popleft()
            if len(records) > max_records:
                self._fetched.appendleft(records[max_records:])
                records = records[:max_records]
            batch = self._read(self._readings[records.partition], records)
            if batch is not None:
                return batch
        return None

    def _read(self, reading: Reading, records: KafkaRecords) -> Batch | None:
        if reading.split.stop is not None:
            records = records.until(reading.split.stop)
        batch = self._decoded(records) if len(records) else None
        if records.end > reading.split.position:
            reading.advance(records.end)
        if reading.split.is_read:
            self._finish(reading)
        return batch

    def _decoded(self, records: KafkaRecords) -> Batch | None:
        partition = str(records.partition)
        deserialized = self._schema.deserialize_batch(records)
        values = records.values
        self._context.count("numBytesIn", sum(map(len, filter(None, values))))
        if deserialized.bad:
            self._context.count("numRecordsInErrors", len(deserialized.bad))
            refuse_or_skip(
                deserialized.bad,
                [value or b"" for value in values],
                lambda index: (partition, records.offsets[index]),
                self._context,
                self._schema.on_error,
                self._schema.malformed_output,
            )
        if not len(deserialized.values):
            return None
        times = None if records.timestamps is None else list(deserialized.of_records(records.timestamps))
        if isinstance(deserialized.values, ColumnData):
            rowtimes = None if times is None else np.asarray(times, np.int64)
            batch = ColumnBatch(deserialized.values, rowtimes, deserialized.kinds)
            batch.origin = _origin(partition, records.positions(), deserialized.places)
            return SplitColumnBatch(batch, partition)
        return SplitBatch(deserialized.values, times, partition, deserialized.kinds)

    # --- reports ---------------------------------------------------------------------------------------------------

    def _see(self, message: Message, error: KafkaError) -> None:
        """Handle the client's report about a partition."""
        from confluent_kafka import KafkaError

        topic, number = message.topic(), message.partition()
        reading = None
        if topic is not None and number is not None and number >= 0:
            reading = self._readings.get(KafkaTopicPartition(topic, number))
        if error.code() == KafkaError._PARTITION_EOF:
            self._brokers.saw_broker()
            if reading is not None:
                # Offsets missing before the end are not records, but transaction markers or compacted records.
                reading.is_at_end = True
                self._put(KafkaRecords(reading.split.partition, [], message.offset()))
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            if reading is not None:
                self._resetter.begin(reading.split, error)
        elif error.name() in GONE:
            self._brokers.misses_something = True
        elif error.name() in client.PASSING or error.retriable():
            self._brokers.on_error(error)
        else:
            where = topic if reading is None else f"{reading.split.partition}, offset {reading.split.position}"
            raise OperationError(f"the Kafka source cannot read {where}: {error.str()} ({error.name()})")

    def _lose(self, reading: Reading) -> None:
        """Handle a missing partition."""
        if reading.is_missing:
            return
        split = reading.split
        if self._options.fails_on_missing:
            raise OperationError(
                f"the Kafka source cannot find {split.partition} any more, which it has read up to offset "
                f"{split.position}. To go on without, set the property {client.MISSING_PARTITION} to 'ignore'"
            )
        reading.is_missing = reading.is_at_end = True
        client.LOG.warning("%s is gone at offset %d; the source goes on without", split.partition, split.position)
        if split.stop is not None:
            self._finish(reading)

    def _move(self, reading: Reading, position: int) -> None:
        """Continue at another offset of a partition."""
        self._take_out(reading.split.partition)
        self._parked.pop(reading.split.partition, None)
        reading.advance(position)
        if reading.split.is_read:
            self._finish(reading)
            return
        self._consumer.incremental_unassign([reading.place()])
        self._consumer.incremental_assign([reading.place()])
        if reading.is_paused:
            self._parked[reading.split.partition] = []
            self._consumer.pause([reading.place()])

    def close(self) -> None:
        """Close the consumer; further calls do nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._background.shutdown(wait=True, cancel_futures=True)
        self._consumer.unassign()  # from now on only answers to commits arrive
        self._commits.settle(self._consumer, lambda: self._brokers.is_down)
        self._consumer.close()
