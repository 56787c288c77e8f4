"""A job with a Kafka sink that dies at any step, on a model of the brokers; what it leaves behind may live on."""

from __future__ import annotations

import pickle
from typing import Any

from tests.connectors.mortal_job import MortalJob

from penstock.codecs.serialization import SerializationSchema
from penstock.connectors.base import DeliveryGuarantee
from penstock.connectors.kafka.producer import FAIL, Brokers
from penstock.connectors.kafka.records import KafkaRecordSerializationSchema
from penstock.connectors.kafka.sink import KafkaSink, Transaction
from penstock.drivers.simulation.outside_world import KafkaModel, ModelBrokers, ModelTransaction
from penstock.testing.connectors import SinkHost

TOPIC = "topic"


class Text(SerializationSchema[Any]):
    """A record as Python would write it."""

    def serialize(self, element: Any) -> bytes:
        return repr(element).encode()


class ModelSink(KafkaSink[Any]):
    """The sink as it is, on a model."""

    def __init__(self, model: KafkaModel, prefix: str = "prefix", unknown: str = FAIL) -> None:
        super().__init__(
            {}, DeliveryGuarantee.EXACTLY_ONCE, KafkaRecordSerializationSchema(TOPIC, Text()), prefix, unknown
        )
        self._model = model

    def _brokers(self) -> Brokers:
        return ModelBrokers(self._model)

    def _transaction(self, transactional_id: str) -> Transaction:
        return ModelTransaction(self._model, transactional_id)


class HostileJob(MortalJob):
    """Steps are those of the job and those of the brokers.

    Restored committables are committed subtask by subtask, while other subtasks are at work already.
    """

    def __init__(self, records: int, deaths: set[int], parallelisms: list[int], zombies: bool = False) -> None:
        super().__init__(records, deaths, parallelisms)
        self.model = KafkaModel(step=self.step)
        self.sink = ModelSink(self.model)
        self.zombies = zombies
        self.living: list[Any] = []

    def attempt(self, attempt: int, parallelism: int) -> None:
        restored_id, position, states, committables = pickle.loads(pickle.dumps(self.checkpoint))
        hosts = [SinkHost(i, parallelism, attempt, restored=restored_id or None) for i in range(parallelism)]
        committer = self.sink.create_committer(hosts[0])
        assert committer is not None
        zombies, self.living = self.living, []
        writers: list[Any] = []
        for host in reversed(hosts):
            # Each subtask commits the share of another one, and those that have opened write before the last has.
            for subtask in range((host.subtask_index + 1) % parallelism, len(committables), parallelism):
                self.step()
                committer.recommit(committables[subtask])
            self.step()
            own = (
                states
                if self.sink.shares_writer_state
                else states[(host.subtask_index + 1) % parallelism :: parallelism]
            )
            writer = self.sink.restore_writer(host, own)
            writers.insert(0, writer)
            self.living.append(writer)
            writer.write_batch([position], None)
            position += 1
            self._act(zombies)
        pending: list[list[Any]] = [[] for _ in writers]
        while True:
            for turn in range(3):
                for writer in writers:
                    self.step()
                    writer.write_batch(list(range(position, position + 2)), None)
                    position += 2
                if turn == 1:
                    self.savepoints.append(self.snapshot(writers, pending)[1])
                    self._act(zombies)
            ends = position >= self.records
            states, _ = self.snapshot(writers, pending, ends)
            self.step()
            self.checkpoint = (self.number, position, states, pending)
            for prepared in pending:
                self.step()
                committer.commit(prepared)
            pending = [[] for _ in writers]
            if ends:
                break
        for writer in writers:
            self.step()
            writer.close()
        committer.close()
        self._act(zombies)

    def _act(self, zombies: list[Any]) -> None:
        """Writers of the attempt before go on for a moment; whatever becomes of it does not matter to them."""
        if self.zombies and zombies:
            writer = zombies.pop()
            step, self.model.step = self.model.step, lambda: None
            try:
                writer.write_batch([-1], None)
                writer.flush(False)
                writer.prepare_commit()
            except Exception:  # noqa: BLE001 - nobody hears of it
                pass
            finally:
                self.model.step = step

    def snapshot(self, writers: list[Any], pending: list[list[Any]], ends: bool = False) -> tuple[list[Any], list[Any]]:
        """The states of all writers, and all that is prepared and not committed."""
        self.number += 1
        states = []
        for writer, prepared in zip(writers, pending, strict=True):
            self.step()
            writer.flush(ends)
            prepared += writer.prepare_commit()
            self.step()
            states += writer.snapshot_state(self.number)
        self.step()
        return states, [committable for prepared in pending for committable in prepared]

    @property
    def visible(self) -> list[Any]:
        """What readers see in the end. What a zombie has begun under an id unknown to all has timed out by then."""
        self.model.step = lambda: None
        if self.zombies:
            for name in self.model.open_ids():
                self.model.time_out(name)
        return sorted(self.model.visible(TOPIC))

    @property
    def expected(self) -> list[int]:
        """All up to the position of the last checkpoint."""
        return list(range(self.checkpoint[1]))
