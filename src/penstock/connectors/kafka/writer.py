"""Writes records to Kafka without transactions: at least once, or without a guarantee."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from penstock.base.errors import OperationError
from penstock.codecs.column_data import ColumnData
from penstock.connectors.kafka.record_schema import KafkaRecordSerializationSchema, Messages
from penstock.core.connector import SinkWriter, SinkWriterContext


class Messenger(Protocol):
    """Sends a writer's messages."""

    def send(self, messages: Messages) -> None:
        """Send messages in order, waiting while the queue is full."""
        ...

    def flush(self) -> None:
        """Wait until all messages are accepted."""
        ...

    def count_partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        ...

    def leave(self) -> None:
        """Discard unsent messages, and close the connections."""
        ...


class MessageMaker:
    """Converts the records of one subtask to messages, and counts them under Flink's names."""

    def __init__(self, context: SinkWriterContext, schema: KafkaRecordSerializationSchema[Any]) -> None:
        self._count = context.count
        self._schema = schema
        self._partitions: dict[str, int] = {}
        if schema.partitioner is not None:
            schema.partitioner.open(context.subtask_index, context.parallelism)

    def make(self, records: Sequence[Any] | ColumnData, timestamps: list[int] | None, messenger: Messenger) -> Messages:
        """Convert records to messages."""

        def count_partitions(topic: str) -> int:
            if topic not in self._partitions:
                self._partitions[topic] = messenger.count_partitions(topic)
            return self._partitions[topic]

        messages = self._schema.messages(records, timestamps, count_partitions)
        self._count("numRecordsSend", len(messages))
        self._count("numBytesSend", sum([len(value) for value in messages.values if value is not None]))
        return messages

    def on_failure(self) -> None:
        """Count a failed delivery."""
        self._count("numRecordsSendErrors")

    @contextmanager
    def counting_failures(self) -> Iterator[None]:
        """Count failed deliveries within the context."""
        try:
            yield
        except OperationError:
            self.on_failure()
            raise


class KafkaWriter(SinkWriter[Any, Any]):
    """Sends each record as soon as it arrives.

    Args:
        context: the context of the writer's task.
        schema: converts records to messages.
        messenger: sends the messages.
        waits: whether a checkpoint waits until Kafka has accepted all earlier records.
    """

    def __init__(
        self,
        context: SinkWriterContext,
        schema: KafkaRecordSerializationSchema[Any],
        messenger: Messenger,
        waits: bool,
    ) -> None:
        self._maker = MessageMaker(context, schema)
        self._messenger = messenger
        self._waits = waits

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Send records in order."""
        self._write(values, timestamps)

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """Send records that are columns."""
        self._write(data, None if rowtimes is None else rowtimes.tolist())

    def _write(self, records: list[Any] | ColumnData, timestamps: list[int] | None) -> None:
        messages = self._maker.make(records, timestamps, self._messenger)
        with self._maker.counting_failures():
            self._messenger.send(messages)

    def flush(self, end_of_input: bool) -> None:
        """Wait until Kafka has all records; without a guarantee, only at the end of the input."""
        if self._waits or end_of_input:
            with self._maker.counting_failures():
                self._messenger.flush()

    def close(self) -> None:
        """Discard unsent messages."""
        self._messenger.leave()
