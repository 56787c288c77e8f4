"""Conventions of the endpoints of master and workers apart from messages: identities, and the master's pong."""

from __future__ import annotations

from typing import Final

from penstock.base.errors import WrongValueError
from penstock.wire.messages import VERSION

#: A worker has three connections to the master; the identity of each is one of these bytes and the worker's id.
CONTROL_ROLE: Final = b"C"
HEARTBEAT_ROLE: Final = b"H"
#: for the stacks of a blocked process, see `stalls`
STALL_ROLE: Final = b"S"
#: The master's answer to a heartbeat.
PONG: Final = VERSION.to_bytes(1, "big") + b"pong"
WORKER_ID_BYTES_MAX: Final = 200


def identity(role: bytes, worker_id: str) -> bytes:
    """Return the routing id of a worker's connection.

    Raises:
        ValueError: if the worker's id is empty or too long.
    """
    encoded = worker_id.encode()
    if not 0 < len(encoded) <= WORKER_ID_BYTES_MAX:
        raise WrongValueError(f"a worker's id must have 1 to {WORKER_ID_BYTES_MAX} bytes: {worker_id!r}")
    return role + encoded
