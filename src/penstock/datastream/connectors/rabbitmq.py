"""RabbitMQ: sources of queues and streams, and a sink with confirms."""

from penstock.connectors.rabbitmq.client import RMQConnectionConfig
from penstock.connectors.rabbitmq.sink import RMQPublication, RMQSink
from penstock.connectors.rabbitmq.source import RMQMessage, RMQSource, RMQStreamSource

__all__ = ["RMQConnectionConfig", "RMQMessage", "RMQPublication", "RMQSink", "RMQSource", "RMQStreamSource"]
