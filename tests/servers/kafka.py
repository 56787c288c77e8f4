"""Real Kafka brokers in KRaft mode, on ports of loopback: one, or three for what only several can show.

A broker is up after about a second and takes 160 MB of memory.
"""

from __future__ import annotations

import logging
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.servers.ports import free_port
from tests.servers.waiting import WAIT_S, await_true

from penstock.cli.trial.servers import KafkaBroker, serving
from penstock.connectors.kafka.client import PASSING

#: What only tests want of a broker.
_FOR_TESTS = {
    "auto.create.topics.enable": "false",
    # A broker that was killed may come back only when its session is over.
    "broker.heartbeat.interval.ms": 300,
    "broker.session.timeout.ms": 1500,
    # Compaction at a pace that a test can wait for.
    "log.cleaner.backoff.ms": 300,
    "log.initial.task.delay.ms": 300,
}

# What the clients of the tests have to say about brokers that are down.
_QUIET = logging.getLogger("tests.servers.kafka")
_QUIET.setLevel(logging.CRITICAL)


class Broker(KafkaBroker):
    """One that tests may do anything to."""

    @property
    def runs(self) -> bool:
        return self.process is not None

    def check(self) -> None:
        assert self.process is not None, "the broker was not started"
        assert self.process.poll() is None, f"the broker has ended:\n{self.log.read_text()[-5000:]}"

    def pause(self) -> None:
        """Let it hang, as in a long collection of garbage."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self.process is not None, "the broker does not run"
        self.process.send_signal(number)


class KafkaCluster:
    """Brokers, and what a test does with topics. `start` and `kill` without a number concern all of them."""

    def __init__(
        self,
        directory: Path,
        brokers: int,
        settings: Mapping[str, object],
        ports: Mapping[int, tuple[int, int]] | None = None,
    ) -> None:
        ports = ports or {node: (free_port(), free_port()) for node in range(1, brokers + 1)}
        self.brokers: list[Broker] = []
        for node in ports:
            own = directory / f"broker-{node}"
            own.mkdir(parents=True)
            self.brokers.append(Broker(node, ports, own, {**_FOR_TESTS, **settings}))
        self.bootstrap_servers = ",".join(broker.address for broker in self.brokers)
        self._admin: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers}, logger=_QUIET)
        return self._admin

    def start(self, *numbers: int) -> None:
        """Start those that do not run, of the given ones; return when they serve."""
        chosen = [self.brokers[number] for number in numbers] or self.brokers
        for broker in chosen:
            if not broker.runs:
                broker.launch()
        wanted = {broker.address for broker in self.brokers if broker.runs}
        self._admin = None  # a client that has seen a broker down waits before it tries again
        deadline = time.monotonic() + WAIT_S
        while not wanted <= serving(wanted):
            for broker in chosen:
                broker.check()
            assert time.monotonic() < deadline, "the brokers do not serve"
            time.sleep(0.05)

    def kill(self, *numbers: int) -> None:
        """As by kill -9."""
        for broker in [self.brokers[number] for number in numbers] or self.brokers:
            broker.kill()

    def create_topic(self, name: str = "topic", partitions: int = 1, **config: str) -> str:
        """A topic whose name begins with `name` and is no other's; `_` in names of `config` stand for `.`."""
        return self.create_topic_named(f"{name}-{uuid.uuid4().hex[:8]}", partitions, **config)

    def create_topic_named(self, topic: str, partitions: int = 1, **config: str) -> str:
        """A topic of just that name."""
        options = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(topic, partitions, len(self.brokers), config=options)
        for result in self.admin.create_topics([new]).values():
            result.result(WAIT_S)
        self._await_leaders(topic, partitions)
        return topic

    def add_partitions(self, topic: str, total: int) -> None:
        for result in self.admin.create_partitions([NewPartitions(topic, total)]).values():
            result.result(WAIT_S)
        self._await_leaders(topic, total)

    def _await_leaders(self, topic: str, partitions: int) -> None:
        def led() -> bool:
            found = self.admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
            return len(found) == partitions and all(partition.leader >= 0 for partition in found.values())

        await_true(led, f"no leaders for {topic}")

    def delete_topic(self, topic: str) -> None:
        for result in self.admin.delete_topics([topic]).values():
            result.result(WAIT_S)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Truncate a partition: its first offset is `before` from now on."""
        for result in self.admin.delete_records([TopicPartition(topic, partition, before)]).values():
            result.result(WAIT_S)

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets by partition, as a consumer of the group."""
        places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        request = [ConsumerGroupTopicPartitions(group, places)]
        self._ask_coordinator(lambda: self.admin.alter_consumer_group_offsets(request))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """What the group has committed, by partition."""
        request = [ConsumerGroupTopicPartitions(group)]
        places = self._ask_coordinator(lambda: self.admin.list_consumer_group_offsets(request)).topic_partitions
        return {place.partition: place.offset for place in places if place.topic == topic and place.offset >= 0}

    @staticmethod
    def _ask_coordinator(request: Callable[[], Mapping[Any, Future[Any]]]) -> Any:
        """The answer about one group. A broker that has just made the topic of groups asks clients to come again."""
        deadline = time.monotonic() + WAIT_S
        while True:
            (answer,) = request().values()
            try:
                return answer.result(WAIT_S)
            except KafkaException as failure:
                if failure.args[0].name() not in PASSING or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def producer(self, **config: Any) -> Producer:
        options = {key.replace("_", "."): value for key, value in config.items()}
        return Producer({"bootstrap.servers": self.bootstrap_servers, **options}, logger=_QUIET)

    def produce(self, topic: str, values: Sequence[bytes | str | None], partition: int = 0, **more: Any) -> None:
        """Write values to one partition, in order; `more` as for `Producer.produce`."""
        producer = self.producer(linger_ms=5)
        for value in values:
            producer.produce(topic, value, partition=partition, **more)
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0, "not all records were written"

    def read(self, topic: str, isolation: str = "read_committed") -> list[Message]:
        """All records that are there now, partition by partition, in order."""
        config = {"bootstrap.servers": self.bootstrap_servers, "group.id": "tests", "isolation.level": isolation}
        consumer = Consumer({**config, "enable.auto.commit": False, "enable.partition.eof": True}, logger=_QUIET)
        found: list[Message] = []
        try:
            left = set(self.admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
            deadline = time.monotonic() + WAIT_S
            while left:
                assert time.monotonic() < deadline, f"cannot read {topic} to its end"
                for message in consumer.consume(1000, 0.1):
                    error = message.error()
                    if error is None:
                        found.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        left.discard(message.partition())
        finally:
            consumer.close()
        return sorted(found, key=lambda message: (message.partition(), message.offset()))


@contextmanager
def kafka_cluster(directory: Path, brokers: int = 3, **settings: object) -> Iterator[KafkaCluster]:
    """Brokers that serve; `_` in the names of settings stand for `.`."""
    cluster = KafkaCluster(directory, brokers, {key.replace("_", "."): value for key, value in settings.items()})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


@contextmanager
def kafka_server(directory: Path, **settings: object) -> Iterator[KafkaCluster]:
    """One broker that serves."""
    with kafka_cluster(directory, 1, **settings) as cluster:
        yield cluster
