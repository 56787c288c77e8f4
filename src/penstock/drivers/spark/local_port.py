"""A second address of a server socket, for processes of the same user and host: a Unix socket in the file system."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import tempfile

import zmq

from penstock.drivers.spark.data_address import LOCAL_PATH_BYTES_MAX
from penstock.drivers.spark.sockets import Socket

logger = logging.getLogger(__name__)

# Short, because the length of a path is limited.
_PREFIX = "pstk-"
_NAME = "data"


class LocalPort:
    """A Unix socket in a new directory that only this user may enter. If that fails, there is a log line instead.

    Args:
        server: a socket set up by `bind_server`, whose authentication covers the Unix socket as well.
    """

    path: str | None

    def __init__(self, server: Socket) -> None:
        assert server.curve_server, "a local port would admit anyone"
        self.path = None
        self._directory: str | None = None
        reasons = []
        for folder in _folders():
            try:
                self._directory = os.path.abspath(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))  # mode 0700
                self.path = _listen(server, os.path.join(self._directory, _NAME))
                return
            except (OSError, zmq.ZMQError, UnicodeError) as error:
                reasons.append(str(error))
                self.close()
        logger.info(
            "workers on this host reach this one over tcp, because it has no Unix socket: %s", "; ".join(reasons)
        )

    def close(self) -> None:
        """Remove the directory. First close the server and wait for it. A second call does nothing."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


def _folders() -> list[str | None]:
    """Return the candidate directories, best first.

    Spark removes its own directory at its end even if a worker was killed.
    """
    of_spark = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return [of_spark, None] if of_spark else [None]


def _listen(server: Socket, path: str) -> str:
    if len(os.fsencode(path)) > LOCAL_PATH_BYTES_MAX:
        raise OSError(errno.ENAMETOOLONG, f"longer than {LOCAL_PATH_BYTES_MAX} bytes", path)
    server.bind(f"ipc://{path}")
    os.chmod(path, 0o600)  # the directory keeps other users out; the file need not allow more
    return path
