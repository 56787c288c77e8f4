"""The election's access to ZooKeeper: options, and the connection with `kazoo` (E7)."""

from __future__ import annotations

import importlib
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.base.configuration import Configuration
from penstock.base.errors import CallTimeoutError, ConfigurationError, OperationError
from penstock.base.options import (
    HIGH_AVAILABILITY_CLUSTER_ID,
    HIGH_AVAILABILITY_TYPE,
    ZOOKEEPER_ACL,
    ZOOKEEPER_AUTHORIZATION,
    ZOOKEEPER_CONNECTION_TIMEOUT_MS,
    ZOOKEEPER_PATH_ROOT,
    ZOOKEEPER_QUORUM,
    ZOOKEEPER_SESSION_TIMEOUT_MS,
    ZOOKEEPER_TOLERATE_SUSPENDED,
)
from penstock.drivers.interrupts import SIGNALS_SECONDS

#: The maximum time (s) between two attempts to connect.
RETRY_SECONDS_MAX: Final = 1.0
#: The number of unresponsive servers that a client can try in turn within the timeout.
ATTEMPTS: Final = 3
#: The maximum wait (s) for a session to end. Without an answer from the server, the session ends after its timeout.
CLOSE_SECONDS_MAX: Final = 2.0
LOOK_SECONDS: Final = 0.02
_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:\d{1,5})?")


@dataclass(frozen=True)
class ZooKeeperSettings:
    """The servers and options of ZooKeeper.

    Attributes:
        quorum: the servers, `host:port,host:port`.
        path: the parent path of all jobs' nodes.
        session_timeout_ms: how long a leader may be silent before ZooKeeper elects another one.
        connection_timeout_ms: the timeout of the first connection, and of the last message.
        tolerates_suspended: whether a leader keeps leading without a connection until its session is over.
        acl: the permissions of others on the nodes: "open" for all, "creator" for nothing.
        authorization: the credentials to log in with: scheme -> credentials.
    """

    quorum: str
    path: str
    session_timeout_ms: int
    connection_timeout_ms: int
    tolerates_suspended: bool = False
    acl: str = "open"
    authorization: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, configuration: Configuration) -> ZooKeeperSettings:
        """Read the settings from a configuration.

        Raises:
            ConfigurationError: if an option is missing or invalid, or `kazoo` is not installed.
        """
        reason = f"{HIGH_AVAILABILITY_TYPE.key()} is ZOOKEEPER"
        quorum = configuration.read(ZOOKEEPER_QUORUM)
        if not quorum:
            raise ConfigurationError(f"{reason}: set {ZOOKEEPER_QUORUM.key()} too, to ZooKeeper's servers: host:port,…")
        servers = [server.strip() for server in quorum.split(",")]
        for server in servers:
            if not _SERVER.fullmatch(server):
                raise ConfigurationError(
                    f"{ZOOKEEPER_QUORUM.key()}: {server!r} is no server: write host:port,host:port; a path goes into "
                    f"{ZOOKEEPER_PATH_ROOT.key()}"
                )
        authorization = tuple((configuration.read(ZOOKEEPER_AUTHORIZATION) or {}).items())
        acl = configuration.read(ZOOKEEPER_ACL)
        if acl == "creator" and not authorization:
            raise ConfigurationError(f"{ZOOKEEPER_ACL.key()} is creator: set {ZOOKEEPER_AUTHORIZATION.key()} too")
        try:
            importlib.import_module("kazoo")
        except ImportError:
            raise ConfigurationError(
                f"{reason}, which needs the package kazoo: install penstock[zookeeper], or kazoo itself"
            ) from None
        return cls(
            ",".join(servers),
            _path(configuration),
            configuration.read(ZOOKEEPER_SESSION_TIMEOUT_MS),
            configuration.read(ZOOKEEPER_CONNECTION_TIMEOUT_MS),
            configuration.read(ZOOKEEPER_TOLERATE_SUSPENDED),
            acl,
            authorization,
        )


def _path(configuration: Configuration) -> str:
    names = []
    for option in (ZOOKEEPER_PATH_ROOT, HIGH_AVAILABILITY_CLUSTER_ID):
        value = configuration.read(option)
        names += (parts := [name for name in value.split("/") if name])
        if not parts or any(name in (".", "..") or not name.isprintable() for name in parts):
            raise ConfigurationError(
                f"{option.key()}: {value!r} is no path of ZooKeeper, such as {option.default_value()}"
            )
    return "/" + "/".join(names)


def connect(settings: ZooKeeperSettings, on_state: Callable[[Any], None]) -> Any:
    """Return a connected `kazoo.client.KazooClient`.

    Args:
        settings: the servers and options.
        on_state: called in the client's thread at each change of the connection state.

    Raises:
        OperationError: if no server answers within the connection timeout, or none accepts the credentials.
    """
    from kazoo.client import KazooClient
    from kazoo.protocol.states import KeeperState
    from kazoo.security import CREATOR_ALL_ACL

    client = KazooClient(
        settings.quorum,
        timeout=settings.session_timeout_ms / 1000,
        handler=_handler(settings),
        connection_retry={"max_tries": -1, "max_delay": RETRY_SECONDS_MAX},
        default_acl=CREATOR_ALL_ACL if settings.acl == "creator" else None,
        auth_data=list(settings.authorization),
    )
    client.add_listener(on_state)
    try:
        is_connected = client.start_async()
        until = time.monotonic() + settings.connection_timeout_ms / 1000
        while not is_connected.wait(max(0.0, min(SIGNALS_SECONDS, until - time.monotonic()))):
            if client.client_state == KeeperState.AUTH_FAILED:
                raise OperationError(f"ZooKeeper at {settings.quorum} refuses {ZOOKEEPER_AUTHORIZATION.key()}")
            if time.monotonic() >= until:
                raise OperationError(
                    f"{ZOOKEEPER_QUORUM.key()}: no ZooKeeper server at {settings.quorum} has answered within "
                    f"{settings.connection_timeout_ms} ms ({ZOOKEEPER_CONNECTION_TIMEOUT_MS.key()})"
                )
    except BaseException:
        disconnect(client)
        raise
    return client


def _handler(settings: ZooKeeperSettings) -> Any:
    """Return Kazoo's handler with a shorter wait per server than the session, as another may answer sooner."""
    from kazoo.handlers.threading import SequentialThreadingHandler

    longest = min(settings.session_timeout_ms, settings.connection_timeout_ms) / ATTEMPTS / 1000

    class Handler(SequentialThreadingHandler):  # type: ignore[misc]
        def create_connection(self, *args: Any, timeout: float, **options: Any) -> Any:
            return super().create_connection(*args, timeout=min(timeout, longest), **options)

        def select(self, reads: list[Any], writes: list[Any], exceptional: list[Any], timeout: float) -> Any:
            # Once connected, Kazoo waits for the server and for its own program together; that timeout stays unchanged.
            if len(reads) < 2 and timeout is not None:
                timeout = min(timeout, longest)
            return super().select(reads, writes, exceptional, timeout)

    return Handler()


def disconnect(client: Any, session_timeout_ms: int = 0) -> None:
    """End the session as soon as a connection allows it, within the session timeout.

    This continues in its own thread, so callers do not wait long. ZooKeeper ends the session in any case.
    """
    until = time.monotonic() + session_timeout_ms / 1000

    def stop() -> None:
        while not client.connected and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        with suppress(Exception):  # the session ends in any case, if later
            client.stop()
            client.close()

    thread = threading.Thread(target=stop, name="penstock-zookeeper-close", daemon=True)
    thread.start()
    thread.join(CLOSE_SECONDS_MAX)


def await_result(pending: Any, timeout_ms: int | None = None) -> Any:
    """Return the result of a pending client call, or raise its error.

    Ctrl-C ends the wait, and so does the timeout, with `CallTimeoutError`.
    """
    until = time.monotonic() + (timeout_ms / 1000 if timeout_ms is not None else float("inf"))
    while not pending.wait(max(0.0, min(SIGNALS_SECONDS, until - time.monotonic()))):
        if time.monotonic() >= until:
            raise CallTimeoutError(f"ZooKeeper has not answered for {timeout_ms} ms")
    return pending.get()
