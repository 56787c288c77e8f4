"""The real Kafka sink in simulated jobs, with a model of the brokers (G9)."""

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
    """Connects to the model brokers of its world instead of real ones."""

    def __init__(self, world: str, name: str) -> None:
        schema = KafkaRecordSerializationSchema(name, Lines(world))
        super().__init__({}, DeliveryGuarantee.EXACTLY_ONCE, schema, world)
        self._world = world

    def _brokers(self) -> Brokers:
        return ModelBrokers(outside(self._world).kafka)

    def _transaction(self, transactional_id: str) -> Transaction:
        return ModelTransaction(outside(self._world).kafka, transactional_id)


def kafka_sink(world: str, name: str) -> Sink[Any]:
    """Build a topology's sink that writes to Kafka."""
    return cast(Sink[Any], SimulatedKafkaSink(world, name))
