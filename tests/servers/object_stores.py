"""Servers that speak as Google Cloud Storage, Azure and HDFS do: fake-gcs-server, Azurite, and Hadoop's MiniDFSCluster.

File systems of this process, and of processes that it starts, find them by URLs alone. The programs are on the path, or
where `SERVER_CACHE` says: `gcs/fake-gcs-server`, `azurite/node_modules/.bin/azurite-blob`, and Hadoop's jars in
`minidfs/lib` (hadoop-client-minicluster, -api and -runtime 3.4.2, jaxb-api, slf4j-simple, junit 4, mockito-core 4).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from unittest import mock

import fsspec
import pytest
from tests.servers.ports import free_port
from tests.servers.queues import CACHE

from penstock.codecs.file_systems import url_to_fs

#: The kinds, by protocol, with the package that their client is in.
PACKAGES: Final = {"gs": "gcsfs", "abfs": "adlfs", "webhdfs": "requests"}
STARTS_WITHIN_S: Final = 90.0
#: The account and key that Azurite publishes.
_AZURITE: Final = (
    "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;"
    "AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;"
    "BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
)
_MINI_DFS: Final = Path(__file__).with_name("MiniDfs.java")


def find_program(kind: str) -> list[str] | None:
    """Return the command of a server, without its arguments."""
    if kind == "gs":
        program = shutil.which("fake-gcs-server", path=f"{os.environ['PATH']}:{CACHE / 'gcs'}")
        return None if program is None else [program]
    if kind == "abfs":
        folder = CACHE / "azurite" / "node_modules" / ".bin"
        program = shutil.which("azurite-blob", path=f"{os.environ['PATH']}:{folder}")
        return None if program is None else [program]
    jars = CACHE / "minidfs" / "lib"
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ['PATH']}")
    if java is None or not jars.is_dir():
        return None
    return [java, "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{jars}/*", str(_MINI_DFS)]


class ObjectStore:
    """A server on ports of loopback."""

    def __init__(self, kind: str, program: list[str], folder: Path) -> None:
        self.kind = kind
        port, self._folder = free_port(), folder
        folder.mkdir(parents=True, exist_ok=True)
        self._url = f"http://127.0.0.1:{port}"
        self.settings: dict[str, str] = {}
        if kind == "gs":
            self._url += "/storage/v1/b"
            self.settings = {"endpoint_url": f"http://127.0.0.1:{port}", "token": "anon", "project": "tests"}
            address = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
            program = [*program, *address, "-public-host", f"127.0.0.1:{port}", "-filesystem-root", str(folder)]
        elif kind == "abfs":
            self.settings = {"connection_string": _AZURITE.format(port=port)}
            address = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
            program = [*program, *address, "--location", str(folder), "--silent", "--skipApiVersionCheck"]
            program.append("--disableTelemetry")
        else:
            self._url += "/webhdfs/v1/?op=LISTSTATUS"
            self._root = f"webhdfs://penstock@127.0.0.1:{port}"
            self.settings = {"host": "127.0.0.1", "port": str(port), "user": "penstock"}
            program = [*program, str(port), str(free_port()), str(folder)]
        self._command = program
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def variables(self) -> dict[str, str]:
        """The settings, as variables of the environment."""
        variables = {f"FSSPEC_{self.kind.upper()}_{name.upper()}": value for name, value in self.settings.items()}
        # gcsfs asks by gRPC what kind a bucket is, for a minute if the server does not speak it. It reads this when it
        # is imported.
        return {**variables, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}

    def start(self) -> None:
        """Return when the server answers."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        deadline_s = time.monotonic() + STARTS_WITHIN_S
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "log").read_text()[-4000:]
            assert time.monotonic() < deadline_s, "the server does not answer"
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self._url, timeout=5).close()
        except urllib.error.HTTPError as error:
            return error.code < 500  # Azurite refuses a request without a signature
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def new_bucket(self) -> str:
        """Return the URL of an empty bucket, container or directory."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        url = f"{self._root}/{name}" if self.kind == "webhdfs" else f"{self.kind}://{name}"
        fs, path = url_to_fs(url)
        fs.mkdir(path)
        return url


@contextmanager
def object_store(kind: str, folder: Path) -> Iterator[ObjectStore]:
    """A server that everything in this process, and what it starts, finds by URLs alone."""
    if find_spec(PACKAGES[kind]) is None:
        pytest.skip(f"{PACKAGES[kind]} is not installed")
    program = find_program(kind)
    if program is None:
        pytest.skip(f"there is no server for {kind}:// on the path or in SERVER_CACHE (see tests/servers)")
    server = ObjectStore(kind, program, folder)
    # fsspec has read the environment when it was imported; processes that start later read it themselves.
    changes: dict[str, Any] = {kind: server.settings}
    with mock.patch.dict(os.environ, server.variables), mock.patch.dict(fsspec.config.conf, changes):
        server.start()
        try:
            yield server
        finally:
            server.stop()
