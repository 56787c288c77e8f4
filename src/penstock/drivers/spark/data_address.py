"""The data address of a worker: its tcp address, and for peers on the same host a Unix socket as well.

The two travel as one string: `tcp://10.0.0.1:4000`, or `tcp://10.0.0.1:4000 ipc:<host>:<path>`, where `<host>` is the
identity of the host on which the path is valid.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.base.errors import ProtocolError

#: The operating system's limit for a path (`sun_path`, without the terminating zero).
LOCAL_PATH_BYTES_MAX: Final = 107
_TCP: Final = "tcp://"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def host_identity(source: Path = _BOOT_ID) -> str | None:
    """Return an identity unique to this host since its start; None if the system does not provide one.

    Containers on one host share the identity.
    """
    try:
        return source.read_text().strip() or None
    except OSError:
        return None


def data_address(tcp: str, host: str | None, path: str | None) -> str:
    """Return the address to send to the peers: tcp only, unless both a host identity and a path are given."""
    return tcp if host is None or path is None else f"{tcp} ipc:{host}:{path}"


def select_endpoint(peer: str, address: str, host: str | None, is_reachable: Callable[[str], bool]) -> str:
    """Return the endpoint for ZeroMQ: the Unix socket if it is on this host and reachable, else tcp."""
    tcp, has_local, local = address.partition(" ")
    if not tcp.startswith(_TCP):
        raise ProtocolError(f"the data address of worker {peer!r} is not a tcp address: {address!r}")
    if not has_local:
        return tcp
    kind, _, rest = local.partition(":")
    its_host, _, path = rest.partition(":")
    if kind != "ipc" or not its_host or not _is_local_path(path):
        raise ProtocolError(f"the data address of worker {peer!r} names no Unix socket after the space: {address!r}")
    return f"ipc://{path}" if its_host == host and is_reachable(path) else tcp


def is_socket(path: str) -> bool:
    """Return whether this path is a Unix socket that this process may connect to."""
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode) and os.access(path, os.W_OK)
    except OSError:
        return False


def _is_local_path(path: str) -> bool:
    return path.startswith("/") and "\0" not in path and len(os.fsencode(path)) <= LOCAL_PATH_BYTES_MAX
