"""Metrics for StatsD, by UDP: every number is a gauge, as in Flink."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from penstock.base.value_types import INTEGER
from penstock.operations.metrics.scopes import Scoped, flat
from penstock.operations.reporters.reporter import Reporter, Span, taken
from penstock.operations.reporters.settings import ReporterSettings

#: How large (bytes) a datagram becomes: one Ethernet frame.
DATAGRAM_BYTES_MAX: Final = 1_432


class StatsDReporter(Reporter):
    """Sends `<scope>.<name>:<number>|g`, several lines to a datagram.

    Args:
        settings: `host` (localhost), `port` (8125). How names begin is said by `metrics.scope.*`.
    """

    def __init__(self, settings: ReporterSettings) -> None:
        super().__init__(settings)
        self._address = settings.options.get("host", "localhost"), settings.read("port", INTEGER, 8125)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def report(self, metrics: Iterable[Scoped], spans: Sequence[Span]) -> None:
        """Send all numbers."""
        waiting = b""
        for line in self._lines(metrics):
            if waiting and len(waiting) + len(line) >= DATAGRAM_BYTES_MAX:
                self._socket.sendto(waiting, self._address)
                waiting = b""
            waiting += b"\n" * bool(waiting) + line
        if waiting:
            self._socket.sendto(waiting, self._address)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _lines(self, metrics: Iterable[Scoped]) -> Iterator[bytes]:
        settings = self.settings
        for scoped in taken(settings, metrics):
            for name, value in flat(scoped.values).items():
                number = {"true": 1, "false": 0}.get(value) if isinstance(value, str) else value
                if number is None or not math.isfinite(number):
                    continue
                # A colon and a bar end a name, and a line ends a metric.
                full_name = settings.formats.name_of(scoped, name).translate(_CLEAN)
                if number < 0:  # a sign would be taken for a change of the gauge, so it begins at 0
                    yield f"{full_name}:0|g".encode()
                yield f"{full_name}:{number}|g".encode()


_CLEAN: Final = str.maketrans(":|\n\r@#", "-_    ")
