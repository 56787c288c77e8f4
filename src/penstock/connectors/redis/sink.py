"""`RedisSink`: writes commands to Redis or Valkey, by pipelines.

At least once. After a failure commands are sent again, from the last checkpoint on. Commands that set a key, a field or
a member (SET, HSET, SADD, ZADD, DEL) are idempotent: when the job has caught up, the server holds each value once.
RPUSH, LPUSH, XADD and PUBLISH add something each time, so their entries may repeat.

**Order.** A pipeline is executed in order, and only one pipeline with commands for a key is in flight (see
`keeps_order_in_request`), so the commands of a key arrive in order within a subtask. Commands of one entry, such as
HSET with an expiry, are a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, TypeVar

from penstock.base.errors import ContractError, WrongValueError, short_repr
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkBase, RequestClient, RequestResult
from penstock.connectors.redis.client import (
    Command,
    RedisAddress,
    RedisConnections,
    Value,
    is_passing_reply,
    load_library,
    pack_command,
)
from penstock.runtime.connector import SinkWriterContext

T = TypeVar("T")

#: the limits of a sink unless others are given
SETTINGS: Final = AsyncSinkSettings(max_in_flight_requests=4, max_time_in_buffer_ms=200)


class RedisCommand(NamedTuple):
    """The command for a record. Create it by one of the static methods; keys and values are text, bytes or numbers.

    Attributes:
        key: the key or the channel. The commands of a key arrive in order.
        commands: the commands with their arguments; several are a transaction.

    Examples:
        >>> from penstock.datastream.connectors.redis import RedisCommand
        >>> RedisCommand.set("cup:1", "tea").commands
        (('SET', 'cup:1', 'tea'),)
        >>> RedisCommand.hset("cup:1", {"tea": 3}, ttl_ms=60_000).commands
        (('HSET', 'cup:1', 'tea', 3), ('PEXPIRE', 'cup:1', 60000))
    """

    key: Value
    commands: tuple[Command, ...]

    @staticmethod
    def set(key: Value, value: Value, ttl_ms: int | None = None) -> RedisCommand:
        """Set a string. With `ttl_ms` the key expires after that time."""
        _check_ttl(ttl_ms)
        return RedisCommand(key, (("SET", key, value) if ttl_ms is None else ("SET", key, value, "PX", ttl_ms),))

    @staticmethod
    def hset(key: Value, fields: Mapping[Any, Value], ttl_ms: int | None = None) -> RedisCommand:
        """Set fields of a hash."""
        return _build("HSET", key, _flatten(fields), ttl_ms)

    @staticmethod
    def hdel(key: Value, *fields: Value) -> RedisCommand:
        """Remove fields of a hash."""
        return _build("HDEL", key, fields, None)

    @staticmethod
    def rpush(key: Value, *values: Value, ttl_ms: int | None = None) -> RedisCommand:
        """Append values to a list. They may repeat after a failure."""
        return _build("RPUSH", key, values, ttl_ms)

    @staticmethod
    def lpush(key: Value, *values: Value, ttl_ms: int | None = None) -> RedisCommand:
        """Prepend values to a list. They may repeat after a failure."""
        return _build("LPUSH", key, values, ttl_ms)

    @staticmethod
    def sadd(key: Value, *members: Value, ttl_ms: int | None = None) -> RedisCommand:
        """Add members to a set."""
        return _build("SADD", key, members, ttl_ms)

    @staticmethod
    def srem(key: Value, *members: Value) -> RedisCommand:
        """Remove members of a set."""
        return _build("SREM", key, members, None)

    @staticmethod
    def zadd(key: Value, scores: Mapping[Any, float], ttl_ms: int | None = None) -> RedisCommand:
        """Set the scores of members of a sorted set."""
        pairs = tuple(part for member, score in scores.items() for part in (score, member))
        return _build("ZADD", key, pairs, ttl_ms)

    @staticmethod
    def zrem(key: Value, *members: Value) -> RedisCommand:
        """Remove members of a sorted set."""
        return _build("ZREM", key, members, None)

    @staticmethod
    def xadd(
        key: Value, fields: Mapping[Any, Value], max_length: int | None = None, ttl_ms: int | None = None
    ) -> RedisCommand:
        """Append an entry to a stream, which may repeat after a failure. `max_length`: about how many it keeps."""
        trim = () if max_length is None else ("MAXLEN", "~", max_length)
        return _build("XADD", key, (*trim, "*", *_flatten(fields)), ttl_ms)

    @staticmethod
    def publish(channel: Value, message: Value) -> RedisCommand:
        """Publish a message. Subscribers may receive it again after a failure; it is not stored."""
        return _build("PUBLISH", channel, (message,), None)

    @staticmethod
    def delete(key: Value) -> RedisCommand:
        """Remove a key of any type."""
        return RedisCommand(key, (("DEL", key),))

    @staticmethod
    def expire(key: Value, ttl_ms: int) -> RedisCommand:
        """Let a key expire after a time."""
        _check_ttl(ttl_ms)
        return RedisCommand(key, (("PEXPIRE", key, ttl_ms),))

    def then(self, other: RedisCommand) -> RedisCommand:
        """Return both in one transaction. Order is kept for the key of this one alone."""
        return RedisCommand(self.key, self.commands + other.commands)


def _flatten(fields: Mapping[Any, Value]) -> tuple[Value, ...]:
    return tuple(chain.from_iterable(fields.items()))


def _build(name: str, key: Value, arguments: tuple[Value, ...], ttl_ms: int | None) -> RedisCommand:
    if not arguments or arguments[-1:] == ("*",):
        raise WrongValueError(f"{name} of key {key!r} has no values")
    _check_ttl(ttl_ms)
    command: Command = (name, key, *arguments)
    return RedisCommand(key, (command,) if ttl_ms is None else (command, ("PEXPIRE", key, ttl_ms)))


def _check_ttl(ttl_ms: int | None) -> None:
    if ttl_ms is not None and ttl_ms <= 0:
        raise WrongValueError(f"ttl_ms is {ttl_ms}; it must be positive")


class PackedCommand(NamedTuple):
    """A command in wire form.

    Attributes:
        data: the bytes.
        replies: how many replies the server sends, with those to MULTI and EXEC.
        command: the command, for errors.
    """

    data: bytes
    replies: int
    command: RedisCommand

    def __repr__(self) -> str:
        return repr(self.command)


_MULTI: Final = pack_command(("MULTI",))
_EXEC: Final = pack_command(("EXEC",))


class RedisSink(AsyncSinkBase[T, PackedCommand], Generic[T]):
    """Sends a command for each record. At least once; see the module for what that means for each command.

    Args:
        url: the server: `redis://USER:PASSWORD@HOST:PORT/DATABASE`, `rediss://…` with TLS.
        to_command: returns the `RedisCommand` of a record.
        settings: the limits. Default: 500 commands and 5 MiB a pipeline, 4 pipelines at a time, 200 ms in the buffer.

    Raises:
        ConfigurationError: for a URL of another kind, and if the package redis is not installed.

    Examples:
        >>> from penstock.datastream.connectors.redis import RedisCommand, RedisSink
        >>> sink = RedisSink("redis://localhost:6379", lambda cup: RedisCommand.set(f"cup:{cup[0]}", cup[1]))
    """

    keeps_order_in_request = True

    def __init__(
        self, url: str, to_command: Callable[[T], RedisCommand], settings: AsyncSinkSettings | None = None
    ) -> None:
        super().__init__(settings or SETTINGS)
        self._address = RedisAddress(url)
        self._to_command = to_command
        load_library(type(self).__name__)

    def create_client(self, context: SinkWriterContext) -> RequestClient[PackedCommand]:
        """See `AsyncSinkBase`."""
        return _PipelineClient(self._address, type(self).__name__)

    def convert(self, record: T, timestamp: int | None) -> PackedCommand:
        """See `AsyncSinkBase`."""
        command = self._to_command(record)
        if not isinstance(command, RedisCommand):
            raise ContractError(f"to_command of a RedisSink must return a RedisCommand, not {short_repr(command)}")
        commands = command.commands
        if len(commands) == 1:
            return PackedCommand(pack_command(commands[0]), 1, command)
        return PackedCommand(b"".join([_MULTI, *map(pack_command, commands), _EXEC]), len(commands) + 2, command)

    def get_size_in_bytes(self, entry: PackedCommand) -> int:
        """Return the size of the command."""
        return len(entry.data)

    def get_ordering_key(self, entry: PackedCommand) -> Hashable | None:
        """Return the key."""
        key = entry.command.key
        return key if isinstance(key, bytes) else str(key).encode()


class _PipelineClient(RequestClient[PackedCommand]):
    """Sends entries in one pipeline; threads may do so at the same time, each with its connection."""

    def __init__(self, address: RedisAddress, user: str) -> None:
        self._connections = RedisConnections(address, user)

    def submit_request_entries(self, entries: Sequence[PackedCommand]) -> RequestResult:
        """Send entries; entries that the server cannot accept at present are sent again."""
        count = sum(entry.replies for entry in entries)
        replies = self._connections.execute_packed([entry.data for entry in entries], count)
        again: list[int] = []
        rejected: dict[int, str] = {}
        end = 0
        for number, entry in enumerate(entries):
            start, end = end, end + entry.replies
            errors = _find_errors(replies[start:end])
            if not errors:
                continue
            if all(map(is_passing_reply, errors)):
                again.append(number)
            else:
                rejected[number] = str(next(error for error in errors if not is_passing_reply(error)))
        return RequestResult(again, rejected)

    def is_retryable(self, error: Exception) -> bool:
        """Return whether the server may be reached later."""
        return self._connections.is_passing(error)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()


def _find_errors(replies: Sequence[Any]) -> list[Exception]:
    """Return the errors among the replies of an entry, also those within the reply of EXEC."""
    last = replies[-1]
    parts = [*replies[:-1], *last] if isinstance(last, list) else replies
    return [reply for reply in parts if isinstance(reply, Exception)]
