"""Redis and Valkey: a sink of commands, and sources of streams."""

from penstock.connectors.redis.group_source import RedisGroupSource
from penstock.connectors.redis.sink import RedisCommand, RedisSink
from penstock.connectors.redis.stream_source import RedisStreamEntry, RedisStreamSource

__all__ = ["RedisCommand", "RedisGroupSource", "RedisSink", "RedisStreamEntry", "RedisStreamSource"]
