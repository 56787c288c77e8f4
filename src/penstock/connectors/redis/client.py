"""Connections to Redis and Valkey: addresses, pipelines of commands, and which errors pass.

The client library is redis-py. Only its connections are used, with version 2 of the protocol: version 3, and the
library's own conversions, change the shape of replies from release to release. So replies have the server's types:
bytes, integers, None, and lists of these.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from penstock.base.errors import ConfigurationError, OperationError, WrongTypeError
from penstock.base.secrets import hide, remember
from penstock.connectors.base import require

Value = str | bytes | int | float
Command = tuple[Value, ...]

_SCHEMES: Final = ("redis", "rediss", "unix")
#: Connection parameters that apply unless the URL sets them (s).
_DEFAULTS: Final = {"socket_timeout": 30.0, "socket_connect_timeout": 10.0}
#: The first words of errors of a server that accepts the same command later.
_PASSING: Final = ("LOADING", "BUSY", "OOM", "READONLY", "MASTERDOWN", "MISCONF", "NOREPLICAS", "TRYAGAIN", "EXECABORT")


def load_library(user: str) -> Any:
    """Return the module `redis`. Raises `ConfigurationError`, naming the user, if it is not installed."""
    require("redis", user, "redis", "redis")
    return importlib.import_module("redis")


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """The address of a server. Its printed form does not include the password.

    Attributes:
        url: `redis://USER:PASSWORD@HOST:PORT/DATABASE`; `rediss://…` with TLS, `unix://…` for a socket. Its query may
            have parameters of redis-py's connections, such as `ssl_ca_certs` and `socket_timeout`.

    Raises:
        ConfigurationError: for another kind of URL.
    """

    url: str

    def __post_init__(self) -> None:
        remember({"url": self.url})
        if urlsplit(self.url).scheme not in _SCHEMES:
            raise ConfigurationError(
                f"{hide(self.url)!r} is no address of Redis: it begins with redis://, rediss:// (TLS) or unix://"
            )
        if "protocol" in parse_qs(urlsplit(self.url).query):
            raise ConfigurationError(f"{self.shown} is read with version 2 of the protocol: leave out protocol=")

    def __repr__(self) -> str:
        return f"RedisAddress({self.shown!r})"

    @property
    def shown(self) -> str:
        """The URL without its password and its parameters."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class RedisConnections:
    """A pool of connections. Threads may share it.

    Args:
        address: the server.
        user: the feature that connects, for errors.
    """

    def __init__(self, address: RedisAddress, user: str) -> None:
        self._redis = load_library(user)
        self._shown = address.shown
        self._user = user
        retry = self._redis.retry.Retry(self._redis.backoff.NoBackoff(), 0)
        self._pool = self._redis.ConnectionPool.from_url(address.url, protocol=2, retry=retry, **_DEFAULTS)

    def execute(self, commands: Iterable[Command]) -> list[Any]:
        """Send commands in one pipeline, and return a reply for each; an error that the server returns is a reply.

        A connection that fails is closed, so that a late reply cannot be taken for that of another command.
        """
        sent = list(commands)
        return self.execute_packed([pack_command(command) for command in sent], len(sent))

    def execute_packed(self, packed: Sequence[bytes], count: int) -> list[Any]:
        """Do the same with packed commands; `count` is their number."""
        connection = self._pool.get_connection()
        try:
            connection.send_packed_command([b"".join(packed)])
            return [self._read(connection) for _ in range(count)]
        except BaseException:
            connection.disconnect()
            raise
        finally:
            self._pool.release(connection)

    def _read(self, connection: Any) -> Any:
        try:
            return connection.read_response()
        except self._redis.ResponseError as error:
            return error

    def execute_all(self, commands: Iterable[Command]) -> list[Any]:
        """Send commands in one pipeline, and return their replies.

        Raises:
            OperationError: if the server cannot be reached, or returns an error.
        """
        try:
            replies = self.execute(commands)
        except (self._redis.RedisError, OSError) as error:
            raise OperationError(f"{self._user}: {self._shown} does not answer: {hide(str(error))}") from error
        for reply in replies:
            if isinstance(reply, Exception):
                raise OperationError(f"{self._user}: {self._shown} answers: {reply}") from reply
        return replies

    def is_passing(self, error: Exception) -> bool:
        """Return whether the same commands may succeed later."""
        redis = self._redis
        if isinstance(error, redis.AuthenticationError | redis.exceptions.AuthorizationError):
            return False
        if isinstance(error, redis.ResponseError):
            return is_passing_reply(error)
        return isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError)

    def close(self) -> None:
        """Close all connections."""
        self._pool.disconnect()


def is_passing_reply(error: Exception) -> bool:
    """Return whether the server may accept the command of this error later."""
    name, text = type(error).__name__, str(error)
    if name in ("OutOfMemoryError", "ReadOnlyError", "MasterDownError", "TryAgainError", "ExecAbortError"):
        return True  # redis-py removes the first word of these
    return text.partition(" ")[0] in _PASSING


def pack_command(command: Command) -> bytes:
    """Return a command in wire form. Faster than the library, which makes pieces for its connection.

    Raises:
        WrongTypeError: for an argument that is neither text nor bytes nor a number.
    """
    pieces = [b"*%d\r\n" % len(command)]
    for part in command:
        if isinstance(part, str):
            data = part.encode()
        elif isinstance(part, bytes):
            data = part
        elif type(part) is int:
            data = b"%d" % part
        elif type(part) is float:
            data = repr(part).encode()
        else:
            raise WrongTypeError(f"Redis stores text, bytes and numbers, and no {type(part).__name__}: {part!r}")
        pieces.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(pieces)
