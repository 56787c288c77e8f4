"""Free ports of loopback for servers that stop and come back on the port they had."""

from __future__ import annotations

import random
import socket

# Below the ports that systems give to outgoing connections, so that none takes the port of a server that is down.
_PORTS = range(20_000, 32_000)
#: ports of this process: one that was given may not be in use yet
_given: set[int] = set()


def free_port() -> int:
    while True:
        port = random.choice(_PORTS)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
