"""Connections to RabbitMQ: the configuration with PyFlink's names, corrections of the client library, passing errors.

The client library is pika. Its version 1.4.4 cuts the fraction of floating header values that it receives, and refuses
to write them; `load_library` corrects both.
"""

from __future__ import annotations

import importlib
import ssl
import struct
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import quote, urlsplit

from penstock.base.errors import ConfigurationError
from penstock.base.secrets import remember
from penstock.connectors.base import require

#: the prefetch of a reader unless another is set: the most that AMQP can say
PREFETCH: Final = 65_535
NOT_FOUND: Final = 404
#: reply codes of errors that pass: the server stops, a node is away, a resource runs short
_PASSING_CODES: Final = (320, 541, 506, 311)


def load_library(user: str) -> Any:
    """Return the module `pika`. Raises `ConfigurationError`, naming the user, if it is not installed."""
    require("pika", user, "pika", "rabbitmq")
    pika = importlib.import_module("pika")
    _correct_floats(importlib.import_module("pika.data"))
    return pika


def _correct_floats(data: Any) -> None:
    """Let pika read and write floating header values as they are, and read integers as such."""
    if getattr(data.decode_value, "keeps_floats", False):
        return
    decode, encode = data.decode_value, data.encode_value

    def decode_value(encoded: bytes, offset: int) -> tuple[Any, int]:
        kind = encoded[offset : offset + 1]
        if kind == b"d":
            return struct.unpack_from(">d", encoded, offset + 1)[0], offset + 9
        if kind == b"f":
            return struct.unpack_from(">f", encoded, offset + 1)[0], offset + 5
        value, end = decode(encoded, offset)
        return int(value) if kind in (b"l", b"L") else value, end  # of a class of its own, which prints as 5L

    def encode_value(pieces: list[bytes], value: Any) -> int:
        if isinstance(value, float):
            pieces.append(struct.pack(">cd", b"d", value))
            return 9
        size: int = encode(pieces, value)
        return size

    decode_value.keeps_floats = True  # type: ignore[attr-defined]
    data.decode_value, data.encode_value = decode_value, encode_value


@dataclass(frozen=True, kw_only=True)
class RMQConnectionConfig:
    """How to connect. Build it with `RMQConnectionConfig.Builder`; the printed form does not include the password.

    Attributes:
        host: the host. Default: `localhost`.
        port: the port; None for 5672, or 5671 with TLS.
        virtual_host: the virtual host.
        username: the user.
        password: the password.
        uri: `amqp://USER:PASSWORD@HOST:PORT/VHOST`, or `amqps://…` with TLS, in place of the above.
        requested_heartbeat: the interval of heartbeats (s); None for the server's.
        requested_frame_max: the maximum size of a frame (bytes); None for the server's.
        requested_channel_max: the maximum number of channels; None for the server's.
        connection_timeout: how long a connection may take (ms).
        prefetch_count: how many unacknowledged messages a reader has at most.
        ssl_ca: the file with the certificates that the server's must be signed by; None for those of the system.
        ssl_cert: the file with the client's certificate, if it has one.
        ssl_key: the file with its key.

    Examples:
        >>> from penstock.datastream.connectors.rabbitmq import RMQConnectionConfig
        >>> builder = RMQConnectionConfig.Builder().set_host("mq").set_user_name("ann").set_password("secret")
        >>> builder.set_prefetch_count(1_000).build()
        RMQConnectionConfig('amqp://mq')
    """

    host: str = "localhost"
    port: int | None = None
    virtual_host: str = "/"
    username: str = "guest"
    password: str = "guest"
    uri: str | None = None
    requested_heartbeat: int | None = None
    requested_frame_max: int | None = None
    requested_channel_max: int | None = None
    connection_timeout: int = 10_000
    prefetch_count: int = PREFETCH
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None

    def __post_init__(self) -> None:
        remember({"password": self.password, "url": self.uri or ""})
        if self.uri is not None and urlsplit(self.uri).scheme not in ("amqp", "amqps"):
            raise ConfigurationError(
                f"{self.shown} is no address of RabbitMQ: it begins with amqp:// or amqps:// (TLS)"
            )
        if not 0 < self.prefetch_count <= PREFETCH:
            raise ConfigurationError(f"the prefetch count must be from 1 to {PREFETCH}, not {self.prefetch_count}")

    def __repr__(self) -> str:
        return f"RMQConnectionConfig({self.shown!r})"

    @property
    def shown(self) -> str:
        """The address without the user and the password."""
        if self.uri is not None:
            parts = urlsplit(self.uri)
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        port = "" if self.port is None else f":{self.port}"
        path = "" if self.virtual_host == "/" else f"/{quote(self.virtual_host, safe='')}"
        return f"{'amqps' if self.uses_tls else 'amqp'}://{self.host}{port}{path}"

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return (self.uri or "").startswith("amqps://") or self.ssl_ca is not None or self.ssl_cert is not None

    def build_parameters(self, user: str) -> Any:
        """Return pika's parameters. Raises `ConfigurationError` for files of certificates that cannot be read."""
        pika = load_library(user)
        if self.uri is not None:
            parameters = pika.URLParameters(self.uri)
        else:
            port = self.port or (5671 if self.uses_tls else 5672)
            credentials = pika.PlainCredentials(self.username, self.password)
            parameters = pika.ConnectionParameters(self.host, port, self.virtual_host, credentials)
        if self.uses_tls:
            try:
                context = ssl.create_default_context(cafile=self.ssl_ca)
                if self.ssl_cert is not None:
                    context.load_cert_chain(self.ssl_cert, self.ssl_key)
            except (OSError, ssl.SSLError) as error:
                raise ConfigurationError(
                    f"{user}: the certificates for {self.shown} cannot be read: {error}"
                ) from error
            parameters.ssl_options = pika.SSLOptions(context, parameters.host)
        if self.requested_heartbeat is not None:
            parameters.heartbeat = self.requested_heartbeat
        if self.requested_frame_max is not None:
            parameters.frame_max = self.requested_frame_max
        if self.requested_channel_max is not None:
            parameters.channel_max = self.requested_channel_max
        seconds = self.connection_timeout / 1_000
        parameters.socket_timeout = parameters.stack_timeout = seconds
        parameters.blocked_connection_timeout = None
        return parameters

    class Builder:
        """Builds an `RMQConnectionConfig`, with PyFlink's names."""

        def __init__(self) -> None:
            self._values: dict[str, Any] = {}

        def _set(self, **values: Any) -> Self:
            self._values.update(values)
            return self

        def set_host(self, host: str) -> Self:
            """Set the host."""
            return self._set(host=host)

        def set_port(self, port: int) -> Self:
            """Set the port."""
            return self._set(port=port)

        def set_virtual_host(self, vhost: str) -> Self:
            """Set the virtual host."""
            return self._set(virtual_host=vhost)

        def set_user_name(self, user_name: str) -> Self:
            """Set the user."""
            return self._set(username=user_name)

        def set_password(self, password: str) -> Self:
            """Set the password."""
            return self._set(password=password)

        def set_uri(self, uri: str) -> Self:
            """Set host, port, user, password and virtual host in one: `amqp://USER:PASSWORD@HOST:PORT/VHOST`."""
            return self._set(uri=uri)

        def set_requested_heartbeat(self, requested_heartbeat: int) -> Self:
            """Set the interval of heartbeats (s)."""
            return self._set(requested_heartbeat=requested_heartbeat)

        def set_requested_frame_max(self, requested_frame_max: int) -> Self:
            """Set the maximum size of a frame (bytes)."""
            return self._set(requested_frame_max=requested_frame_max)

        def set_requested_channel_max(self, requested_channel_max: int) -> Self:
            """Set the maximum number of channels."""
            return self._set(requested_channel_max=requested_channel_max)

        def set_connection_timeout(self, connection_timeout: int) -> Self:
            """Set how long a connection may take (ms)."""
            return self._set(connection_timeout=connection_timeout)

        def set_prefetch_count(self, prefetch_count: int) -> Self:
            """Set how many unacknowledged messages a reader has at most, 1 to 65535."""
            return self._set(prefetch_count=prefetch_count)

        def set_network_recovery_interval(self, network_recovery_interval: int) -> Self:
            """Accepted and ignored: a lost connection restarts the reader, as the job's restart strategy says."""
            return self

        def set_automatic_recovery(self, automatic_recovery: bool) -> Self:
            """Accepted and ignored, see `set_network_recovery_interval`."""
            return self

        def set_topology_recovery_enabled(self, topology_recovery_enabled: bool) -> Self:
            """Accepted and ignored, see `set_network_recovery_interval`."""
            return self

        def set_ssl_files(self, ca: str | None = None, cert: str | None = None, key: str | None = None) -> Self:
            """Use TLS: the certificates that the server's must be signed by, the client's own certificate, its key."""
            return self._set(ssl_ca=ca, ssl_cert=cert, ssl_key=key)

        def build(self) -> RMQConnectionConfig:
            """Return the configuration. Raises `ConfigurationError` for invalid values."""
            return RMQConnectionConfig(**self._values)


def unwrap(error: Any) -> Exception:
    """Return the reason of a failed connection, which pika wraps several times."""
    while True:
        nested = [*getattr(error, "exceptions", ()), getattr(error, "exception", None), *getattr(error, "args", ())]
        inner = next((part for part in reversed(nested) if isinstance(part, Exception)), None)
        if inner is None:
            return error if isinstance(error, Exception) else ConnectionError(str(error))
        error = inner


def is_passing(pika: Any, error: Exception) -> bool:
    """Return whether a failed connection or channel may be opened later."""
    errors, reason = pika.exceptions, unwrap(error)
    if isinstance(reason, errors.ProbableAuthenticationError | errors.ProbableAccessDeniedError):
        return False
    if isinstance(reason, errors.ConnectionClosedByBroker | errors.ChannelClosedByBroker):
        return reason.reply_code in _PASSING_CODES
    return isinstance(reason, OSError | errors.AMQPError)
