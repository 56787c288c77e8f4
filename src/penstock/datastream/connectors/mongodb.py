"""MongoDB: a source that reads a collection once, and a sink of bulk requests."""

from penstock.connectors.mongodb.sink import MongoSink, MongoSinkBuilder, MongoWrite
from penstock.connectors.mongodb.source import MongoSource, MongoSourceBuilder, PartitionStrategy

__all__ = ["MongoSink", "MongoSinkBuilder", "MongoSource", "MongoSourceBuilder", "MongoWrite", "PartitionStrategy"]
