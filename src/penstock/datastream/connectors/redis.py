"""Redis and Valkey: a sink of commands, and a source of streams."""

from penstock.connectors.redis.sink import RedisCommand, RedisSink
from penstock.connectors.redis.stream_source import RedisStreamEntry, RedisStreamSource

__all__ = ["RedisCommand", "RedisSink", "RedisStreamEntry", "RedisStreamSource"]
