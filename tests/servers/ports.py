"""Free ports of loopback for servers that stop and come back on the port they had."""

from __future__ import annotations

import random
import socket

# Below the ports that systems give to outgoing connections, so that none takes the port of a server that is down.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
