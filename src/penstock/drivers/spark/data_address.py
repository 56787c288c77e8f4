"""Where the peers of a worker reach it: its tcp address, and for those on its own host a Unix socket as well.

The two travel as one string: `tcp://10.0.0.1:4000`, or `tcp://10.0.0.1:4000 ipc:<host>:<path>`, where `<host>` is the
identity of the host on which the path means anything.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.base.errors import ProtocolError

#: What the operating system has room for (`sun_path`, without the zero at its end).
LOCAL_PATH_BYTES_MAX: Final = 107
_TCP: Final = "tcp://"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def host_identity(source: Path = _BOOT_ID) -> str | None:
    """An identity of this host that no other has, since its start; None where the system has none.

    Containers of one host have it in common.
    """
    try:
        return source.read_text().strip() or None
    except OSError:
        return None


def data_address(tcp: str, host: str | None, path: str | None) -> str:
    """The address to tell the peers: only the tcp one, unless there are both a host identity and a path."""
    return tcp if host is None or path is None else f"{tcp} ipc:{host}:{path}"


def endpoint_of(peer: str, address: str, host: str | None, is_reachable: Callable[[str], bool]) -> str:
    """Where ZeroMQ connects to: the Unix socket if the peer is on this host and its socket is reachable, else tcp.

    Args:
        peer: the id of the worker whose address it is.
        address: what it told.
        host: the identity of this host.
        is_reachable: whether there is a socket at a path that this process may use. Containers of one host have its
            identity in common, but not their files.

    Raises:
        ProtocolError: if the address is malformed.
    """
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
    """Whether there is a Unix socket at this path that this process may connect to."""
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode) and os.access(path, os.W_OK)
    except OSError:
        return False


def _is_local_path(path: str) -> bool:
    return path.startswith("/") and "\0" not in path and len(os.fsencode(path)) <= LOCAL_PATH_BYTES_MAX
