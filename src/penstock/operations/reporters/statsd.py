"""The StatsD reporter, over UDP: every number is a gauge, as in Flink."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from penstock.base.value_types import INTEGER
from penstock.operations.metrics.scopes import Scoped, flat
from penstock.operations.reporters.reporter import Reporter, Span, taken
from penstock.operations.reporters.settings import ReporterSettings

#: The maximum size (bytes) of a datagram, which fits one Ethernet frame.
DATAGRAM_BYTES_MAX: Final = 1_432


class StatsDReporter(Reporter):
    """Sends `<scope>.<name>:<number>|g`, several lines to a datagram.

    Args:
        settings: `host` (localhost) and `port` (8125). `metrics.scope.*` sets the prefixes of names.
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
                # A colon or a bar would end the name, and a line break the metric.
                full_name = settings.formats.format_metric_name(scoped, name).translate(_CLEAN)
                if number < 0:  # StatsD reads a sign as a change of the gauge, so reset it to 0 first
                    yield f"{full_name}:0|g".encode()
                yield f"{full_name}:{number}|g".encode()


_CLEAN: Final = str.maketrans(":|\n\r@#", "-_    ")
