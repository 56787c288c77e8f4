"""`MySqlServer`: a MariaDB or MySQL server on a loopback port, run by the programs of this machine.

The programs are on PATH or where packages put them, or in a folder that MARIADB_HOME or MYSQL_HOME names. Such a
folder may also have packages unpacked below `root`, and a script `run` that runs their programs with their libraries.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.base.errors import MissingPathError, OperationError

MYSQL, MARIADB = "mysql", "mariadb"
USER: Final = "root"
DATABASE: Final = "test"
#: fsync is off where that is possible: what a kill -9 must not lose has been written to the operating system.
SETTINGS: Final[Mapping[str, str]] = {
    "server-id": "1",
    "log-bin": "bin",
    "binlog-row-metadata": "FULL",
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-buffer-pool-size": "64M",
    "sync-binlog": "0",
    "max-connections": "200",
    "character-set-server": "utf8mb4",
}
_OF_DIALECT: Final[Mapping[str, Mapping[str, str]]] = {
    MARIADB: {"binlog-format": "ROW"},
    MYSQL: {"gtid-mode": "ON", "enforce-gtid-consistency": "ON", "mysqlx": "OFF", "secure-file-priv": "NULL"},
}
_FOLDERS: Final = ("/usr/sbin", "/usr/libexec", "/usr/local/opt/mariadb/bin", "/opt/homebrew/opt/mariadb/bin")
_NAMES: Final = {MARIADB: ("mariadbd", "mysqld"), MYSQL: ("mysqld",)}
_OLDEST: Final = {MARIADB: 10, MYSQL: 8}
#: The statements that fill MariaDB's own tables, in order; the names begin with `mysql` or `mariadb`.
_SCRIPTS: Final = ("{}_system_tables.sql", "{}_performance_tables.sql", "{}_system_tables_data.sql")


@dataclass(frozen=True, slots=True)
class Programs:
    """The program of a server.

    Attributes:
        dialect: `mariadb` or `mysql`.
        version: such as 10.11.6.
        command: what runs the server.
        prefix: the folder with its `share` and `lib`, such as `/usr`.
    """

    dialect: str
    version: str
    command: tuple[str, ...]
    prefix: Path

    @property
    def shown(self) -> str:
        """The name and the version."""
        return f"{'MariaDB' if self.dialect == MARIADB else 'MySQL'} {self.version}"

    def share(self) -> Path:
        """Return the folder with its messages, character sets and scripts."""
        folders = [self.prefix / "share" / name for name in ("mysql", "mariadb", "mysql-server")]
        for folder in folders:
            if (folder / "english").is_dir():
                return folder
        raise MissingPathError(f"{self.shown} has no messages in any of {', '.join(map(str, folders))}")


def find_programs(environ: Mapping[str, str], dialect: str | None = None, more: Iterable[Path] = ()) -> Programs:
    """Return the program of a server, MariaDB's before MySQL's.

    Args:
        environ: MARIADB_HOME, MYSQL_HOME and PATH say where to look.
        dialect: the only dialect to look for; None for either.
        more: other folders, as in MARIADB_HOME.

    Raises:
        MissingPathError: if there is none; the message says what to install.
    """
    dialects = (MARIADB, MYSQL) if dialect is None else (dialect,)
    for wanted in dialects:
        for programs in _list_candidates(environ, wanted, more):
            if programs.dialect == wanted and int(programs.version.partition(".")[0]) >= _OLDEST[wanted]:
                return programs
    name = {None: "neither MariaDB nor MySQL", MARIADB: "no MariaDB", MYSQL: "no MySQL"}[dialect]
    raise MissingPathError(
        f"there is {name} in MARIADB_HOME, MYSQL_HOME, on PATH or where packages put it. Install its server: "
        "`apt-get install mariadb-server-core` (Debian, Ubuntu) or `brew install mariadb` (macOS)"
    )


def _list_candidates(environ: Mapping[str, str], dialect: str, more: Iterable[Path]) -> Iterator[Programs]:
    homes = [Path(environ[key]) for key in ("MARIADB_HOME", "MYSQL_HOME") if environ.get(key)]
    for home in [*homes, *more]:
        for name in _NAMES[dialect]:
            if os.access(home / "run", os.X_OK) and (home / "root/usr/sbin" / name).exists():
                yield from _read((str(home / "run"), f"usr/sbin/{name}"), home / "root/usr")
            for folder in ("sbin", "bin", "libexec"):
                if os.access(home / folder / name, os.X_OK):
                    yield from _read((str(home / folder / name),), home)
    path = os.pathsep.join([environ.get("PATH", ""), *_FOLDERS])
    for name in _NAMES[dialect]:
        if program := shutil.which(name, path=path):
            yield from _read((program,), Path(program).resolve().parents[1])


def _read(command: tuple[str, ...], prefix: Path) -> Iterator[Programs]:
    try:
        done = subprocess.run([*command, "--no-defaults", "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return
    if match := re.search(r"Ver (\d+\.\d+\.\d+)(\S*)", done.stdout):
        yield Programs(MARIADB if "MariaDB" in match[2] else MYSQL, match[1], command, prefix)


class MySqlServer:
    """A server with a user `root` without a password, and a database `test`. Committed data survives `kill -9`.

    Args:
        programs: the program to run.
        directory: for its data and its log.
        port: the port to listen on.
        settings: other variables of the server, or values of those in `SETTINGS`.

    Raises:
        OperationError: if its data cannot be created; the message includes the end of the server's log.
    """

    def __init__(self, programs: Programs, directory: Path, port: int, settings: Mapping[str, str] = SETTINGS) -> None:
        self.programs = programs
        self.port = port
        self.log = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self.settings = dict(settings)
        self._data = directory / "data"
        share = programs.share()
        self._common = [
            *programs.command,
            "--no-defaults",
            f"--user={pwd.getpwuid(os.geteuid()).pw_name}",
            f"--datadir={self._data}",
            f"--lc-messages-dir={share}",
            f"--character-sets-dir={share / 'charsets'}",
            f"--plugin-dir={self._plugins()}",
        ]
        self._make(share)

    def _plugins(self) -> Path:
        folder = self.programs.prefix / "lib/mysql/plugin"
        return folder if self.programs.dialect == MYSQL and folder.is_dir() else self._data

    def _make(self, share: Path) -> None:
        if self.programs.dialect == MYSQL:
            self._run([*self._common, "--initialize-insecure", "--secure-file-priv=NULL"], b"")
            return
        (self._data / "mysql").mkdir(parents=True)
        name = "mysql" if (share / "mysql_system_tables.sql").exists() else "mariadb"
        scripts = [(share / script.format(name)).read_bytes() for script in _SCRIPTS]
        statements = b"USE mysql;\nSET @auth_root_socket = NULL;\n" + b"\n".join(scripts)
        statements += f"\nCREATE DATABASE {DATABASE} CHARACTER SET utf8mb4;\n".encode()
        self._run([*self._common, "--bootstrap", "--skip-log-bin", "--log-warnings=0"], statements)

    def _run(self, command: list[str], statements: bytes) -> None:
        done = subprocess.run(command, input=statements, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            tail = done.stdout.decode(errors="replace")[-4000:]
            raise OperationError(f"the data of {self.programs.shown} cannot be made in {self._data}: {tail}")

    def url(self, database: str = DATABASE) -> str:
        """Return the URL for the connector `jdbc`."""
        return f"jdbc:{self.programs.dialect}://127.0.0.1:{self.port}/{database}?user={USER}"

    def launch(self) -> None:
        """Start the process without waiting; `is_ready` shows when it is ready."""
        settings = {**_OF_DIALECT[self.programs.dialect], **self.settings}
        options = [f"--{key}={value}" for key, value in settings.items()]
        command = [*self._common, "--bind-address=127.0.0.1", f"--port={self.port}", "--socket=s.sock"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*command, *options], stdout=log, stderr=log)

    def is_ready(self) -> bool:
        """Return whether the server answers a client. Its database `test` exists then."""
        from penstock.connectors.mysql import client

        address = client.MySqlAddress("127.0.0.1", self.port, USER, tls_mode="disabled")
        try:
            connection = client.connect(address)
        except client.load_library().err.MySQLError:
            return False
        try:
            client.execute(connection, f"CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET utf8mb4")
        finally:
            connection.close()
        return True

    def stop(self) -> None:
        """Shut down, disconnecting all clients."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()
            self.process = None
