"""The Kafka sink as it is, in simulated jobs, on a model of the brokers (G9)."""

from __future__ import annotations

from typing import Any, cast

from penstock.connectors.delivery import DeliveryGuarantee
from penstock.connectors.kafka.record_schema import KafkaRecordSerializationSchema
from penstock.connectors.kafka.sink import KafkaSink
from penstock.connectors.kafka.transactional_writer import Transaction
from penstock.connectors.kafka.transactions import Brokers
from penstock.core.connector import Sink
from penstock.drivers.simulation.file_sinks import Lines
from penstock.drivers.simulation.kafka_model import ModelBrokers, ModelTransaction
from penstock.drivers.simulation.outside import outside


class SimulatedKafkaSink(KafkaSink[Any]):
    """Reaches the brokers of its world in place of real ones."""

    def __init__(self, world: str, name: str) -> None:
        schema = KafkaRecordSerializationSchema(name, Lines(world))
        super().__init__({}, DeliveryGuarantee.EXACTLY_ONCE, schema, world)
        self._world = world

    def _brokers(self) -> Brokers:
        return ModelBrokers(outside(self._world).kafka)

    def _transaction(self, transactional_id: str) -> Transaction:
        return ModelTransaction(outside(self._world).kafka, transactional_id)


def kafka_sink(world: str, name: str) -> Sink[Any]:
    """A sink of a topology that writes to Kafka."""
    return cast(Sink[Any], SimulatedKafkaSink(world, name))
