"""The leader of a job, and the elections by file lock and in ZooKeeper (E7).

`Election` is the interface of elections to the drivers.

`FileElection` is an election by a file lock, among the drivers of one host (`high-availability.type: FILE`). The
operating system releases the lock when the process that holds it ends, in whatever way. A leader never loses it
earlier.

`ZooKeeperElection` is an election in ZooKeeper, among drivers on any hosts (`high-availability.type: ZOOKEEPER`). It
connects with `kazoo`, by the options in `ZooKeeperSettings`.

A job has one node, `<root>/<cluster id>/<job>`. Each candidate creates a node below it, which ZooKeeper numbers, and
which lives as long as the candidate's session. The candidate with the lowest number leads, and each of the others
watches the one before it. The job's node persists, and records the last leader and the job's outcome.

A leader writes to the job's node when it starts and when its job ends, in a transaction that checks that its own node
still exists. A candidate whose session has expired therefore cannot report on the job. A leader that is notified of an
expired session or a lost connection gives up leadership for good, because another candidate may lead by then.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Protocol

import msgspec

from penstock.base.configuration import Configuration
from penstock.base.errors import CallTimeoutError, ConfigurationError, OperationError, write_install_command
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
from penstock.drivers.cancellation import SIGNALS_SECONDS


class Leader(msgspec.Struct, frozen=True, omit_defaults=True):
    """The driver that runs the job, or ran it last.

    `end`: the job's outcome, once it is over. `candidate`: unique among all drivers that ever took part.
    """

    host: str
    process: int
    end: str | None = None
    candidate: str = ""

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class Election(Protocol):
    """The interface of an election. Call `wait`, then `when_lost`, and `end` on every path after that."""

    @property
    def lost(self) -> str | None:
        """Why this process no longer leads; None while it does."""

    def wait(self, log: Callable[[str], None]) -> Leader | None:
        """Wait until this process leads. Ctrl-C ends the wait.

        Returns:
            The leader whose job ended while this process stood by; None if the job continues.
        """

    def when_lost(self, action: Callable[[str], None]) -> None:
        """Call `action` with `lost` when this process no longer leads, in any thread; at once if this is so already."""

    def end(self, outcome: str | None) -> None:
        """Record the job's outcome; None means that another process may resume the job."""


def encode_leader(leader: Leader) -> bytes:
    """Encode as JSON, which people can read too."""
    return msgspec.json.encode(leader)


def decode_leader(data: bytes) -> Leader | None:
    """Decode a leader; return None if no leader was written yet."""
    try:
        return msgspec.json.decode(data, type=Leader)
    except msgspec.MsgspecError:
        return None


LOCK_FILE: Final = "leader.lock"


class FileElection:
    """An election by file lock; the candidate is this process."""

    lost: Final = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def wait(self, log: Callable[[str], None]) -> Leader | None:
        """Wait until this process has the lock; see `Election`."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("a+b")
        try:
            former = None
            if not _lock(self._file, fcntl.LOCK_NB):
                log(f"stands by: {_read(self._file) or 'another process'} runs the job")
                _lock(self._file)
                former = _read(self._file)
            self._write(None)
        except BaseException:
            self._close()
            raise
        return former if former is not None and former.end is not None else None

    def when_lost(self, action: Callable[[str], None]) -> None:
        """Do nothing: leadership is never lost."""

    def end(self, outcome: str | None) -> None:
        """Record the job's outcome, and release the lock."""
        if self._file is not None:
            self._write(outcome)
            self._close()

    def _write(self, end: str | None) -> None:
        assert self._file is not None
        self._file.truncate(0)
        self._file.write(encode_leader(Leader(socket.gethostname(), os.getpid(), end)))
        self._file.flush()

    def _close(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None


def _read(file: IO[bytes]) -> Leader | None:
    file.seek(0)
    return decode_leader(file.read())


def _lock(file: IO[bytes], flags: int = 0) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | flags)
    except BlockingIOError:
        return False
    return True


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
                f"{reason}, which needs the package kazoo: {write_install_command('zookeeper')}"
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


CANDIDATE: Final = "-candidate-"
#: The maximum length of an error message in ZooKeeper, which keeps all of it in memory.
END_CHARACTERS_MAX: Final = 4_000


class ZooKeeperElection:
    """An election in ZooKeeper; the candidate is this process.

    Args:
        settings: the connection to ZooKeeper.
        job: the job, as the name of a node.
    """

    def __init__(self, settings: ZooKeeperSettings, job: str) -> None:
        self._settings = settings
        self._path = f"{settings.path}/{job}"
        #: identifies this candidate's own node, even if the reply to its creation was lost
        self._token = uuid.uuid4().hex
        self._me = Leader(socket.gethostname(), os.getpid(), candidate=self._token)
        self._client: Any = None
        self._mine = ""
        self._log: Callable[[str], None] = lambda line: None
        #: set when something in ZooKeeper or the state of the connection may have changed
        self._is_news = threading.Event()
        #: guards the attributes below: the threads of the client, a timer, the job and the program use them
        self._lock = threading.Lock()
        self._has_connection_broken = False
        self._leads = False
        self._lost: str | None = None
        self._when_lost: Callable[[str], None] | None = None
        self._timer: threading.Timer | None = None

    # --- the driver's side -----------------------------------------------------------------------------------------

    @property
    def lost(self) -> str | None:
        """Why this process no longer leads."""
        return self._lost

    def wait(self, log: Callable[[str], None]) -> Leader | None:
        """Wait until this process leads; see `Election`.

        Raises:
            OperationError: if ZooKeeper does not answer within the connection timeout, or refuses.
        """
        from kazoo.exceptions import KazooException

        self._log = log
        self._client = connect(self._settings, self._on_state)
        try:
            former = self._stand()
        except KazooException as error:
            self._close()
            reason = f"{type(error).__name__} {error}".strip()
            raise OperationError(f"ZooKeeper at {self._settings.quorum} refuses {self._path}: {reason}") from error
        except BaseException:
            self._close()
            raise
        return former if former is not None and former.end is not None else None

    def when_lost(self, action: Callable[[str], None]) -> None:
        """Call `action` with the reason when this process no longer leads."""
        with self._lock:
            self._when_lost, lost = action, self._lost
        if lost is not None:
            action(lost)

    def end(self, outcome: str | None) -> None:
        """Record the job's outcome, unless another candidate may lead by now, and leave the election."""
        with self._lock:
            leads, self._leads = self._leads and self._lost is None, False
        try:
            if leads and outcome is not None:
                self._say(outcome)
        finally:
            self._close()

    # --- standing for election -------------------------------------------------------------------------------------

    def _stand(self) -> Leader | None:
        """Wait until this candidate leads; return the last leader while it stood by, with the job's outcome."""
        from kazoo.exceptions import ConnectionLoss, SessionExpiredError

        announced: Leader | None = None
        former: Leader | None = None
        were_ahead: set[str] = set()
        while True:
            self._is_news.clear()
            with self._lock:
                self._has_connection_broken = False
            try:
                ahead = self._ahead()
                were_ahead.update(name.partition(CANDIDATE)[0] for name in ahead)
                if ahead:
                    leader = self._read(ahead[0])
                    if leader is not None and leader != announced:
                        self._log(f"stands by: {leader} runs the job")
                        announced = leader
                    if self._call("exists", self._node(ahead[-1]), self._on_watch) is not None:
                        self._wait_for_news()
                    continue
                last = self._read()
                if last is not None and last.candidate in were_ahead:  # ignore leaders of earlier elections
                    former = last
                if self._takes_lead():
                    return former
            except (ConnectionLoss, SessionExpiredError):
                pass
            self._is_news.wait(RETRY_SECONDS_MAX)

    def _wait_for_news(self) -> None:
        """Wait for news in short intervals, because a signal that another thread receives does not wake this one."""
        while not self._is_news.wait(SIGNALS_SECONDS):
            pass

    def _ahead(self) -> list[str]:
        """Return the candidates ahead of this one, the leader first; create this candidate's node if needed."""
        from kazoo.exceptions import NodeExistsError, NoNodeError

        while True:
            try:
                names: list[str] = self._call("get_children", self._path)
            except NoNodeError:
                names = []
            if (mine := self._own(names)) is not None:
                self._mine = mine
                return sorted((name for name in names if _number(name) < _number(mine)), key=_number)
            try:
                path, data = self._node(f"{self._token}{CANDIDATE}"), encode_leader(self._me)
                self._call("create", path, data, ephemeral=True, sequence=True, makepath=True)
            except NodeExistsError:
                continue  # another candidate created the job's node at the same moment

    def _own(self, names: list[str]) -> str | None:
        """Return this candidate's node of the current session; delete its nodes of earlier sessions."""
        from kazoo.exceptions import NoNodeError, SessionExpiredError

        own = None
        for name in names:
            if name.startswith(self._token):
                stat, session = self._call("exists", self._node(name)), self._client.client_id
                if session is None:
                    raise SessionExpiredError
                if stat is not None and stat.ephemeralOwner == session[0]:
                    own = name
                elif stat is not None:
                    try:
                        self._call("delete", self._node(name))
                    except NoNodeError:
                        continue  # the node ended with its session
        return own

    def _takes_lead(self) -> bool:
        """Take the lead if this candidate's node still exists and the connection has held since the look-up."""
        if not self._writes(self._me):
            return False
        with self._lock:
            self._leads = not self._has_connection_broken
            return self._leads

    def _writes(self, leader: Leader, timeout_ms: int | None = None) -> bool:
        """Write the job's node if this candidate's node still exists; return whether it did.

        Writing the job's outcome also deletes the candidate's node.
        """
        from kazoo.exceptions import NoNodeError, RolledBackError, RuntimeInconsistency

        transaction = self._client.transaction()
        transaction.check(self._node(self._mine), -1)
        transaction.set_data(self._path, encode_leader(leader))
        if leader.end is not None:
            transaction.delete(self._node(self._mine))
        failures = [
            result for result in await_result(transaction.commit_async(), timeout_ms) if isinstance(result, Exception)
        ]
        for failure in failures:
            if not isinstance(failure, NoNodeError | RolledBackError | RuntimeInconsistency):
                raise failure
        return not failures

    # --- leading ---------------------------------------------------------------------------------------------------

    def _say(self, outcome: str) -> None:
        """Record for standbys that the job is over. If that fails, a standby checks the job's outcome itself."""
        from kazoo.exceptions import ConnectionLoss, KazooException

        last = msgspec.structs.replace(self._me, end=outcome[:END_CHARACTERS_MAX])
        until = time.monotonic() + self._settings.connection_timeout_ms / 1000
        reason = None
        while reason is None:
            self._is_news.clear()
            left_ms = max(0, int((until - time.monotonic()) * 1000))
            try:
                if self._writes(last, left_ms) or self._read(timeout_ms=left_ms) == last:
                    return
                reason = "its session is over"
            except ConnectionLoss:
                if not left_ms:
                    reason = "it has no connection"
                self._is_news.wait(min(left_ms / 1000, RETRY_SECONDS_MAX))
            except (KazooException, CallTimeoutError) as error:
                reason = f"{type(error).__name__} {error}".strip()
        self._log(f"standbys were not told that the job is over ({reason}): the next one looks what became of it")

    def _on_state(self, state: Any) -> None:
        """Handle a new connection state; runs in the client's thread, which must not block."""
        from kazoo.protocol.states import KazooState

        with self._lock:
            self._has_connection_broken = self._has_connection_broken or state != KazooState.CONNECTED
            self._stop_timer()
        if state == KazooState.LOST:
            self._lose("its session in ZooKeeper is over")
        elif state == KazooState.SUSPENDED and not self._settings.tolerates_suspended:
            self._lose(f"it has lost its connection to ZooKeeper ({ZOOKEEPER_TOLERATE_SUSPENDED.key()} is false)")
        elif state == KazooState.SUSPENDED:
            self._start_timer()
        self._is_news.set()

    def _on_watch(self, event: Any) -> None:
        self._is_news.set()

    def _start_timer(self) -> None:
        """Start the session timer: without a connection, ZooKeeper cannot report that it has ended the session."""
        timeout_ms = self._settings.session_timeout_ms
        reason = f"it had no connection to ZooKeeper for {timeout_ms} ms ({ZOOKEEPER_SESSION_TIMEOUT_MS.key()})"
        with self._lock:
            if not self._leads:
                return
            self._timer = threading.Timer(timeout_ms / 1000, self._lose, (reason,))
            self._timer.daemon = True
            self._timer.start()
        self._log("the connection to ZooKeeper is lost; the job goes on until its session there is over")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _lose(self, reason: str) -> None:
        with self._lock:
            if not self._leads or self._lost is not None:
                return
            self._lost = reason
        threading.Thread(target=self._make_way, args=(reason,), name="penstock-leadership-lost", daemon=True).start()

    def _make_way(self, reason: str) -> None:
        """Suspend the job. The next leader need not wait for its end, however long its functions take."""
        with self._lock:
            action = self._when_lost
        try:
            if action is not None:
                action(reason)
        finally:
            self._close()

    # --- helpers ---------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        with self._lock:
            self._stop_timer()
            client, self._client = self._client, None
        if client is not None:
            disconnect(client, self._settings.session_timeout_ms)

    def _call(self, name: str, *args: Any, timeout_ms: int | None = None, **options: Any) -> Any:
        return await_result(getattr(self._client, f"{name}_async")(*args, **options), timeout_ms)

    def _node(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _read(self, name: str | None = None, timeout_ms: int | None = None) -> Leader | None:
        """Return the content of a candidate's node, or of the job's."""
        from kazoo.exceptions import NoNodeError

        path = self._path if name is None else self._node(name)
        try:
            return decode_leader(self._call("get", path, timeout_ms=timeout_ms)[0])
        except NoNodeError:
            return None


def _number(name: str) -> int:
    """Return the number of a candidate; other nodes sort last."""
    _, separator, number = name.rpartition(CANDIDATE)
    return int(number) if separator and number.isdecimal() else 1 << 62
