"""The state that all handlers share: jobs, pending operations, metrics, logs, logins, and the server's settings.

`RestSettings` say where the server listens, and who may access it. The defaults are secure: the server listens on this
host only. To listen beyond it, the configuration must enable encryption or explicitly allow plain traffic. The server
then also requires a token, and generates one if none is set.

`Logins` are browser logins with a token: a cookie stands for the token. The cookie holds a random id, which only this
server knows, and is valid for 12 hours. Scripts cannot read it (HttpOnly), and pages of other sites cannot send it
(SameSite=Strict). Pages at other ports of the same host count as the same site, so a cookie allows changes only if the
browser states that the request comes from a page of this server (`application`). The cookie's name contains the port,
because cookies do not distinguish ports.

`Operations` are asynchronous operations: one request starts them, others poll them, until five minutes after they end.

`OwnProcess` is the server's own process: its threads and the tail of its log.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

from starlette.requests import cookie_parser

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.secrets import hide
from penstock.drivers.inspection import FileText, threads
from penstock.drivers.logs import DRIVER, KEEPS, OUTPUT_VARIABLE, LastLines, LogSettings, build_formatter, end_of_file
from penstock.runtime.job.view import JobView
from penstock.server.dispatcher import DispatchedJob, Dispatcher, WorkerInsight, unseen_view
from penstock.server.rest.calls.routing import RestError, not_found
from penstock.server.session.channel import Programs

_log = logging.getLogger("penstock.rest")


@dataclass(frozen=True)
class RestSettings:
    """The server's settings, read from a configuration.

    Attributes:
        bind_address: where the server listens.
        ports: the ports to try, such as `8081-8090`.
        address: the host name for clients.
        certificate: the certificate file, in PEM; None without TLS.
        key: the file of the certificate's private key.
        key_password: the key's password.
        token: the operator's token; None if no token is required.
        reader_token: the reader's token; None if reading harmless data needs no token.
        hosts: the accepted host names, in lower case.
        allow_origin: the origin whose pages may read answers.
        upload_bytes_max: the maximum size of an uploaded program.
    """

    bind_address: str
    ports: str
    address: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = None
    token: str | None = None
    reader_token: str | None = None
    hosts: frozenset[str] = frozenset()
    allow_origin: str | None = None
    upload_bytes_max: int = 100 << 20

    @classmethod
    def of(cls, configuration: Configuration) -> RestSettings:
        """Read and check the settings; generate the token if one is required and missing.

        Raises:
            ConfigurationError: if they contradict each other, or are not safe.
        """
        if configuration.read(options.REST_PROFILING_ENABLED):
            raise UnsupportedError(
                f"{options.REST_PROFILING_ENABLED.key()}: there is no profiler; flame graphs have no option"
            )
        bind_address, address = configuration.read(options.REST_BIND_ADDRESS), configuration.read(options.REST_ADDRESS)
        is_local = is_loopback(bind_address)
        certificate, key = _certificate(configuration)
        if not is_local and certificate is None and not configuration.read(options.REST_INSECURE):
            raise ConfigurationError(
                f"{options.REST_BIND_ADDRESS.key()}: {bind_address} is reached from other hosts, and so the REST API "
                "needs "
                f"{options.REST_SSL_ENABLED.key()}, or {options.REST_INSECURE.key()} if all who see its traffic may "
                "control the jobs"
            )
        token, reader_token = configuration.read(options.REST_TOKEN), configuration.read(options.REST_READER_TOKEN)
        if reader_token is not None and reader_token == token:
            raise ConfigurationError(
                f"{options.REST_READER_TOKEN.key()} is the same as {options.REST_TOKEN.key()}, so readers could "
                "change everything: "
                "set another one"
            )
        if token is None and (not is_local or reader_token is not None):
            token = generated_token(configuration.read(options.REST_TOKEN_DIRECTORY))
        more = (configuration.read(options.REST_ALLOWED_HOSTS) or "").split(",")
        known = ["localhost", bind_address, address or "", socket.gethostname(), *more]
        return cls(
            bind_address=bind_address,
            ports=_ports(configuration),
            address=address,
            certificate=certificate,
            key=key,
            key_password=configuration.read(options.REST_SSL_KEY_PASSWORD) if certificate is not None else None,
            token=token,
            reader_token=reader_token,
            hosts=frozenset(name.strip().lower() for name in known if name.strip()),
            allow_origin=configuration.read(options.REST_ALLOW_ORIGIN),
            upload_bytes_max=configuration.read(options.REST_CONTENT_BYTES_MAX),
        )


def is_loopback(address: str) -> bool:
    """Return whether an address is reachable from this host only."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _ports(configuration: Configuration) -> str:
    ports, port = configuration.read(options.REST_BIND_PORT), configuration.read(options.REST_PORT)
    return ports if ports is not None else str(port or 0)


def _certificate(configuration: Configuration) -> tuple[str | None, str | None]:
    if not configuration.read(options.REST_SSL_ENABLED):
        return None, None
    certificate, key = configuration.read(options.REST_SSL_CERTIFICATE), configuration.read(options.REST_SSL_KEY)
    for option, path in ((options.REST_SSL_CERTIFICATE, certificate), (options.REST_SSL_KEY, key)):
        if path is None or not Path(path).is_file():
            raise ConfigurationError(
                f"{options.REST_SSL_ENABLED.key()} needs {option.key()}, a file in PEM, not {path}"
            )
    return certificate, key


def generated_token(directory: str | None) -> str:
    """Generate a token and write it to a file that only the user can read; log the path."""
    folder = Path(directory) if directory is not None else Path.home() / ".penstock"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path, token = folder / f"rest-token-{os.getpid()}", secrets.token_urlsafe(32)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
    _log.warning("the operator's token of the REST API is in %s", path)
    return token


Role = Literal["nobody", "reader", "operator"]

#: How long (s) a login is valid.
LOGIN_SECONDS: Final = 12 * 3600
#: The number of logins to remember; one more drops the oldest.
LOGINS_MAX: Final = 1_000


class Logins:
    """The logins of a server. Thread-safe.

    Args:
        now: a monotonic clock (s).
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        #: by cookie value, oldest first: the role and the time of expiry
        self._known: dict[str, tuple[Role, float]] = {}

    def begin(self, role: Role) -> str:
        """Remember a login and return the value of its cookie."""
        value = secrets.token_urlsafe(32)
        with self._lock:
            while len(self._known) >= LOGINS_MAX:
                del self._known[next(iter(self._known))]
            self._known[value] = role, self._now() + LOGIN_SECONDS
        return value

    def end(self, value: str) -> None:
        """Forget a login."""
        with self._lock:
            self._known.pop(value, None)

    def get_role(self, value: str) -> Role:
        """Return the role that a cookie grants."""
        with self._lock:
            role, until = self._known.get(value, ("nobody", 0.0))
        return role if self._now() < until else "nobody"


def cookie_name(port: int) -> str:
    """Return the name of the login cookie of the server at this port."""
    return f"penstock-rest-{port}"


def read_cookie(headers: Mapping[str, str], port: int) -> str:
    """Return the value of the login cookie in a request; empty if missing."""
    return cookie_parser(headers.get("cookie", "")).get(cookie_name(port), "")


def cookie_header(name: str, value: str, seconds: int, *, is_encrypted: bool) -> str:
    """Return the value of the Set-Cookie header."""
    secure = "; Secure" if is_encrypted else ""
    return f"{name}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{secure}"


def role_of_token(settings: RestSettings, token: str) -> Role:
    """Return the role that a token grants."""
    if not token:
        return "nobody"
    if settings.token is not None and _equal(token, settings.token):
        return "operator"
    if settings.reader_token is not None and _equal(token, settings.reader_token):
        return "reader"
    return "nobody"


def _equal(left: str, right: str) -> bool:
    return hmac.compare_digest(left.encode(), right.encode())


#: How long (s) the result of an operation is kept (Flink's `rest.async.store-duration`).
KEPT_SECONDS: Final = 300.0
#: The maximum number of operations, pending ones included.
OPERATIONS_MAX: Final = 1_000


@dataclass
class _Operation:
    future: Future[Any]
    #: when it was first seen to have ended (s)
    ended: float | None = None
    #: whether a client has fetched the outcome
    is_told: bool = False


class Operations:
    """Operations by kind, by their subject (a job or other thing), and by id."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._operations: dict[tuple[str, str, str], _Operation] = {}

    def begin(self, kind: str, about: str, begin: Callable[[], Future[Any]], trigger_id: str | None = None) -> str:
        """Start an operation, unless one with this id exists, and return its id.

        An error of `begin` becomes the operation's result, as in Flink: a savepoint of an unknown job is accepted, and
        polling it returns the failure.
        """
        trigger_id = (trigger_id or secrets.token_hex(16)).lower()
        key = (kind, about, trigger_id)
        with self._lock:
            self._forget()
            if key in self._operations:
                return trigger_id
            if len(self._operations) >= OPERATIONS_MAX:
                raise RestError(429, f"{OPERATIONS_MAX} operations are under way or kept; ask again in a few minutes")
            operation = self._operations[key] = _Operation(Future())
        try:
            future = begin()
        except Exception as error:  # noqa: BLE001 - it is told to whoever asks after the operation
            operation.future.set_exception(error)
        else:
            operation.future = future
        return trigger_id

    def find(self, kind: str, about: str, trigger_id: str) -> Future[Any]:
        """Return the operation's future; 404 if it is unknown or ended too long ago."""
        with self._lock:
            self._forget()
            operation = self._operations.get((kind, about, trigger_id))
        if operation is None:
            raise not_found(f"Operation not found under key: {trigger_id}")
        operation.is_told = operation.future.done()
        return operation.future

    def all_told(self) -> bool:
        """Return whether clients have fetched all outcomes. A server that ends waits briefly for this."""
        with self._lock:
            return all(operation.is_told for operation in self._operations.values())

    def _forget(self) -> None:
        now = self._now()
        for key, operation in list(self._operations.items()):
            if operation.ended is None and operation.future.done():
                operation.ended = now
            elif operation.ended is not None and now >= operation.ended + KEPT_SECONDS:
                del self._operations[key]


LOG_NAME: Final = "penstock.log"


class OwnProcess:
    """This process: its threads, and the tail of what Penstock logs in it.

    Args:
        settings: the format of the log lines.
    """

    def __init__(self, settings: LogSettings) -> None:
        self.tail = LastLines()
        self.tail.set_name(f"{KEEPS}rest")
        self.tail.setFormatter(build_formatter(settings, DRIVER))

    def listen(self) -> None:
        """Start to keep log lines."""
        logging.getLogger("penstock").addHandler(self.tail)

    def forget(self) -> None:
        """Stop keeping log lines."""
        logging.getLogger("penstock").removeHandler(self.tail)

    def thread_dump(self) -> list[tuple[str, str]]:
        """Return the name and the stack of each thread."""
        return list(threads().stacks)

    def logs(self) -> list[tuple[str, int, int]]:
        """Return the only log, which is kept in memory."""
        return [(LOG_NAME, len(self.log().encode()), self.tail.written_ms)]

    def log(self) -> str:
        """Return the log's text. Secrets of jobs that began after a line was logged are hidden as well."""
        return hide(self.tail.text()) or "nothing was logged yet\n"

    def stdout(self) -> str:
        """Return the process's output, if its launcher said where that goes."""
        path = os.environ.get(OUTPUT_VARIABLE)
        if path is not None and isinstance(output := end_of_file(Path(path)), FileText):
            return output.data.decode("utf-8", "replace")
        return "The output of this process is not kept: it is where the program was started.\n"


Values: TypeAlias = Mapping[str, "str | float"]


class Metrics(Protocol):
    """Metrics of jobs under Flink's names (`penstock.server.metrics`); unknown ids have no metrics."""

    def jobmanager(self) -> Values:
        """Return the metrics of the job manager."""
        ...

    def taskmanager(self, tm_id: str) -> Values:
        """Return the metrics of a worker."""
        ...

    def job(self, job_id: str) -> Values:
        """Return the metrics of a job."""
        ...

    def vertex(self, job_id: str, vertex_id: str) -> Values:
        """Return the metrics of a vertex, each name prefixed with the subtask."""
        ...

    def subtask(self, job_id: str, vertex_id: str, subtask: int) -> Values:
        """Return the metrics of a subtask."""
        ...

    def jm_operator(self, job_id: str, vertex_id: str) -> Values:
        """Return the metrics of a vertex's operator coordinators, which run beside the job master."""
        ...


class NoMetrics:
    """The metrics of a server without a metric store: always empty."""

    def jobmanager(self) -> Values:
        """Nothing."""
        return {}

    def taskmanager(self, tm_id: str) -> Values:
        """Nothing."""
        return {}

    def job(self, job_id: str) -> Values:
        """Nothing."""
        return {}

    def vertex(self, job_id: str, vertex_id: str) -> Values:
        """Nothing."""
        return {}

    def subtask(self, job_id: str, vertex_id: str, subtask: int) -> Values:
        """Nothing."""
        return {}

    def jm_operator(self, job_id: str, vertex_id: str) -> Values:
        """Nothing."""
        return {}


class ViewCache:
    """Caches JSON by job view; a new view of a job invalidates the JSON of the previous one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[str, tuple[JobView, dict[str, bytes]]] = {}

    def get(self, view: JobView, name: str, make: Callable[[], bytes]) -> bytes:
        """Return the JSON cached under a name for this view, making it on a miss."""
        with self._lock:
            known, bodies = self._made.get(view.job_id, (None, {}))
            if known is not view:
                bodies = {}
                self._made[view.job_id] = (view, bodies)
            if (body := bodies.get(name)) is not None:
                return body
        body = make()
        with self._lock:
            bodies[name] = body
        return body

    def keep_only(self, job_ids: set[str]) -> None:
        """Drop the entries of forgotten jobs."""
        with self._lock:
            for job_id in self._made.keys() - job_ids:
                del self._made[job_id]


@dataclass
class RestContext:
    """See the module's docstring.

    Attributes:
        dispatcher: the jobs.
        configuration: the configuration of the job that requested the server.
        metrics: the metrics of jobs and workers.
        insight: queries worker processes.
        own: threads and logs of this process.
        shut_down: ends the process's jobs and the server (`DELETE /cluster`).
        port: the server's port, once it listens.
        programs: takes and runs programs; None outside a session.
        began_ms: when the server began (ms since the epoch).
        settings: the server's settings, once it exists.
        logins: the browsers that are logged in.
    """

    dispatcher: Dispatcher
    configuration: Configuration
    metrics: Metrics = field(default_factory=NoMetrics)
    insight: WorkerInsight = field(default_factory=WorkerInsight)
    own: OwnProcess = field(init=False)
    shut_down: Callable[[], None] = lambda: None
    port: int = 0
    programs: Programs | None = None
    operations: Operations = field(default_factory=Operations)
    cache: ViewCache = field(default_factory=ViewCache)
    began_ms: int = field(default_factory=lambda: int(time.time() * 1000))
    settings: RestSettings = field(default_factory=lambda: RestSettings("127.0.0.1", "0"))
    logins: Logins = field(default_factory=Logins)

    def __post_init__(self) -> None:
        self.own = OwnProcess(LogSettings.of(self.configuration, ""))

    def view(self, job: DispatchedJob) -> JobView:
        """Return a view of a job, at most half a second old, or one derived from its graph before its first report."""
        return job.view() or unseen_view(job)

    def views(self) -> list[tuple[DispatchedJob, JobView]]:
        """Return all jobs with their views, in order of submission."""
        jobs = self.dispatcher.jobs()
        self.cache.keep_only({job.job_id for job in jobs})
        return [(job, self.view(job)) for job in jobs]
