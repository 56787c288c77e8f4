"""NATS JetStream: a source by sequence or over a durable consumer, and a sink with message ids."""

from penstock.connectors.nats import NatsMessage, NatsPublication, NatsSink, NatsSource

__all__ = ["NatsMessage", "NatsPublication", "NatsSink", "NatsSource"]
