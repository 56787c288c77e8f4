"""A server that speaks S3, with conditional writes and multipart uploads: moto, in a process of its own.

What it holds is in its memory. File systems of this process and of those that it starts find it by the settings that
fsspec reads: `FSSPEC_S3_ENDPOINT_URL`, `FSSPEC_S3_KEY`, `FSSPEC_S3_SECRET`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest import mock

import fsspec
import s3fs

STARTS_WITHIN_S: Final = 60


class S3Server:
    """One that serves, on a port of loopback."""

    def __init__(self, port: int) -> None:
        self.endpoint_url = f"http://127.0.0.1:{port}"

    @property
    def settings(self) -> dict[str, str]:
        """What `fsspec.filesystem("s3")` is made with."""
        return {"endpoint_url": self.endpoint_url, "key": "key", "secret": "secret"}

    @property
    def variables(self) -> dict[str, str]:
        """The same, as variables of the environment."""
        return {f"FSSPEC_S3_{name.upper()}": value for name, value in self.settings.items()}

    def new_bucket(self) -> str:
        """The URL of an empty bucket."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        s3fs.S3FileSystem(**self.settings).mkdir(name)
        return f"s3://{name}"


@contextmanager
def s3_server(fails_every: int | None = None) -> Iterator[S3Server]:
    """A server that everything in this process, and what it starts, finds by URLs alone.

    One request of so many goes wrong, if a number is given (see `tests.servers.unreliable_s3`).
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    if fails_every is not None:
        command = [sys.executable, "-m", "tests.servers.unreliable_s3", str(port), str(fails_every)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    server = S3Server(port)
    try:
        _wait_until_it_serves(process, port)
        # fsspec has read the environment when it was imported; processes that start later read it themselves.
        with mock.patch.dict(os.environ, server.variables), mock.patch.dict(fsspec.config.conf, s3=server.settings):
            yield server
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        process.kill()
        process.wait()


def _wait_until_it_serves(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while True:
        assert process.poll() is None, "the server of S3 has ended"
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            assert time.monotonic() < deadline, "the server of S3 does not start"
            time.sleep(0.05)
