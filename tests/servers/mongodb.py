"""A server of MongoDB's protocol on a port of loopback, which tests may kill and start again.

No registry has MongoDB itself. FerretDB stores its documents with SQLite, and keeps what it has confirmed; it is built
with Go. mongo-java-server keeps them in memory, and speaks a protocol that pymongo gave up with 4.12. Each of them has
a part of MongoDB: see docs/mongodb.md.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from tests.servers.ports import free_port

from penstock.base.errors import OperationError
from penstock.cli.trial.servers import cache, installed, java, made_once

_WAIT_S: Final = 60.0
_FERRET: Final = "v1.24.2"
_JAVA: Final = "1.46.0"
_JARS: Final = (f"de.bwaldvogel:mongo-java-server:{_JAVA}", "org.slf4j:slf4j-simple:1.7.36")
_MAIN: Final = """
import de.bwaldvogel.mongo.*;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;

public class Main {
    public static void main(String[] a) throws Exception {
        new MongoServer(new MemoryBackend()).bind("127.0.0.1", Integer.parseInt(a[0]));
        Thread.currentThread().join();
    }
}
"""


def install_ferret() -> Path:
    """The directory with FerretDB, built once in the user's cache.

    Raises:
        OperationError: without Go, or if it cannot be built.
    """
    if shutil.which("go") is None:
        raise OperationError("FerretDB is built with Go, and there is no go")

    def build(directory: Path) -> None:
        # The module lacks the file with its version, without which the program does not start.
        source = directory / "source"
        modules = _run("go", "env", "GOMODCACHE").strip()
        _run("go", "mod", "download", f"github.com/FerretDB/FerretDB@{_FERRET}")
        shutil.copytree(Path(modules, "github.com", "!ferret!d!b", f"!ferret!d!b@{_FERRET}"), source)
        for path in source.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        source.chmod(0o755)
        version = source / "build" / "version" / "version.txt"
        version.parent.chmod(0o755)
        version.write_text(f"{_FERRET}\n")
        _run("go", "build", "-o", str(directory / "ferretdb"), "./cmd/ferretdb", directory=source)
        shutil.rmtree(source)

    return made_once(f"ferretdb-{_FERRET}", build)


def _run(*command: str, directory: Path | None = None) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OperationError(f"{' '.join(command)} failed: {done.stderr[-1000:]}")
    return done.stdout


def install_java_server() -> Path:
    """The directory with mongo-java-server, fetched once into the user's cache.

    Raises:
        PenstockError: without a Java that has a compiler, or if the jars cannot be fetched.
    """
    compiler = Path(java()).with_name("javac")
    if not compiler.exists():
        raise OperationError("mongo-java-server is started by a small Java program, and there is no javac")

    def compile_main(directory: Path) -> None:
        (directory / "Main.java").write_text(_MAIN)
        command = [str(compiler), "-nowarn", "-d", str(directory), "-cp", f"{directory}/jars/*"]
        subprocess.run([*command, str(directory / "Main.java")], check=True, capture_output=True)

    return installed(f"mongo-java-{_JAVA}", _JARS, compile_main)


class MongoServer:
    """Call `start`. A FerretDB has what it confirmed when it starts again after `kill`.

    Attributes:
        is_complete: whether it has Decimal128, NaN, nested arrays and samples.
    """

    def __init__(self, directory: Path, is_complete: bool) -> None:
        self.port = free_port()
        self.uri = f"mongodb://127.0.0.1:{self.port}"
        self.is_complete = is_complete
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when it answers."""
        environment = {**os.environ, "DO_NOT_TRACK": "1"}
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + _WAIT_S
        while not self._answers():
            assert self._process.poll() is None, (self._directory / "log").read_text()[-4000:]
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.05)

    def _command(self) -> list[str]:
        if self.is_complete:
            home = install_java_server()
            return [java(), "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{home}:{home}/jars/*", "Main", str(self.port)]
        data = self._directory / "data"
        data.mkdir(exist_ok=True)
        options = [f"--listen-addr=127.0.0.1:{self.port}", "--handler=sqlite", f"--sqlite-url=file:{data}/"]
        options += [f"--state-dir={self._directory}", "--debug-addr=-", "--telemetry=disable", "--log-level=warn"]
        return [str(install_ferret() / "ferretdb"), *options]

    def _answers(self) -> bool:
        from pymongo.errors import PyMongoError

        if self.is_complete:  # a later pymongo does not speak to it
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return True
            return False
        client = self.connect()
        try:
            client.admin.command("ping")
        except PyMongoError:
            return False
        finally:
            client.close()
        return True

    def connect(self) -> Any:
        """A client, which the caller closes."""
        import pymongo

        return pymongo.MongoClient(self.uri, serverSelectionTimeoutMS=1_000, connectTimeoutMS=1_000)

    def kill(self) -> None:
        """As by kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def mongo_server() -> Iterator[MongoServer]:
    """One that answers. Skips the test where there is no server for the client, or no client."""
    pymongo = pytest.importorskip("pymongo", reason="pymongo is not installed: pip install 'penstock-streams[mongodb]'")
    speaks_old = pymongo.version_tuple < (4, 12)
    name = f"mongo-java-{_JAVA}" if speaks_old else f"ferretdb-{_FERRET}"
    if not (cache() / name).exists():
        advice = (
            "python -m tests.servers.install, with Java" if speaks_old else "python -m tests.servers.mongodb, with Go"
        )
        pytest.skip(f"there is no {name}: {advice}")
    with _started(speaks_old) as server:
        yield server


@contextmanager
def mongo_java_server() -> Iterator[MongoServer]:
    """A mongo-java-server, for clients in Java. Skips the test where there is none."""
    if not (cache() / f"mongo-java-{_JAVA}").exists():
        pytest.skip("there is no mongo-java-server: python -m tests.servers.install, with Java")
    with _started(True) as server:
        yield server


@contextmanager
def _started(is_complete: bool) -> Iterator[MongoServer]:
    with tempfile.TemporaryDirectory(prefix="penstock-mongo-") as directory:
        server = MongoServer(Path(directory), is_complete)
        try:
            server.start()
            yield server
        finally:
            server.kill()


if __name__ == "__main__":  # half a minute, and 45 MiB
    print(install_ferret())
