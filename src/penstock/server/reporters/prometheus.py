"""Metrics for Prometheus, which scrapes them. Names and labels match Flink's PrometheusReporter."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from penstock.base.config_options import BOOLEAN
from penstock.base.errors import ConfigurationError, OperationError
from penstock.base.metrics import QUANTILES
from penstock.server.metrics.scopes import Histogram, Scoped, Summary, Value
from penstock.server.reporters.reporter import ReporterSettings, require, taken

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.metrics_core import Metric

PORTS: Final = "9249"
_NOT_IN_NAMES: Final = re.compile("[^a-zA-Z0-9:_]")


def filtered(text: str) -> str:
    """Replace each character that is invalid in a metric's name by an underscore."""
    return _NOT_IN_NAMES.sub("_", text)


def families(metrics: Iterable[Scoped], *, filters_values: bool = True) -> list[Metric]:
    """Return the metrics by name, each with a sample for each scope.

    Counters and gauges become gauges, as in Flink; a string becomes 0. A distribution becomes a summary with its sum,
    and gauges of the minimum and the maximum.
    """
    from prometheus_client.metrics_core import Metric

    by_name: dict[str, Metric] = {}
    names: dict[tuple[str, str], str] = {}

    def add(family: str, name: str, kind: str, labels: dict[str, str], value: float) -> None:
        known = by_name.get(family)
        if known is None:
            known = by_name[family] = Metric(family, family, kind)
        known.add_sample(name, labels, value)

    for scoped in metrics:
        scope = scoped.scope.value
        values = scoped.variables.items()
        labels = {filtered(key): filtered(value) if filters_values else value for key, value in values}
        for own_name, value in scoped.values.items():
            name = names.get((scope, own_name))
            if name is None:
                name = names[scope, own_name] = filtered(f"flink_{scope}_{own_name}")
            if isinstance(value, Histogram):
                add(name, f"{name}_count", "summary", labels, value.count)
                for share, bound in zip(QUANTILES, value.bounds, strict=True):
                    add(name, name, "summary", {**labels, "quantile": str(share)}, bound)
            elif isinstance(value, Summary):
                add(name, f"{name}_count", "summary", labels, value.count)
                add(name, f"{name}_sum", "summary", labels, value.total)
                add(f"{name}_min", f"{name}_min", "gauge", labels, value.least)
                add(f"{name}_max", f"{name}_max", "gauge", labels, value.greatest)
            else:
                add(name, name, "gauge", labels, _number(value))
    return list(by_name.values())


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


class _Collected:
    """Collects the metrics for a scrape. A lock serializes concurrent scrapes."""

    def __init__(self, settings: ReporterSettings, metrics: Callable[[], Iterable[Scoped]]) -> None:
        self._settings = settings
        self._filters_values = settings.read("filterLabelValueCharacters", BOOLEAN, True)
        self._metrics = metrics
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            return iter(families(taken(self._settings, self._metrics()), filters_values=self._filters_values))


class PrometheusReporter:
    """Answers scrapes at `http://<host>:<port>/metrics`, in its own threads.

    Args:
        settings: `host` (127.0.0.1), `port` (a number or a range such as 9249-9260; the first free port is used),
            `filterLabelValueCharacters` (true).
        metrics: returns the current metrics.

    Raises:
        ConfigurationError: if the library is missing, or a port is invalid.
        OperationError: if no port of the range is free.
    """

    def __init__(self, settings: ReporterSettings, metrics: Callable[[], Iterable[Scoped]]) -> None:
        require("prometheus_client", settings, "prometheus")
        self.host = settings.options.get("host", "127.0.0.1")
        self._server, self._thread = self._served(settings, _Collected(settings, metrics))
        self.port: int = self._server.server_address[1]

    def close(self) -> None:
        """Stop answering scrapes."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _served(self, settings: ReporterSettings, collected: _Collected) -> tuple[WSGIServer, threading.Thread]:
        from prometheus_client import start_http_server

        ports = _ports(settings)
        for port in ports:
            try:
                return start_http_server(port, self.host, collected)
            except OSError as error:
                failure = error
        raise OperationError(
            f"{settings.key('port')}: none of {settings.options.get('port', PORTS)} is free: {failure}"
        )


def _ports(settings: ReporterSettings) -> list[int]:
    text = settings.options.get("port", PORTS)
    ports: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        try:
            ports += range(int(first), int(last or first) + 1)
        except ValueError:
            break
    if not ports or not all(0 <= port < 65536 for port in ports):
        raise ConfigurationError(f"{settings.key('port')} is {text!r}: write a port, or a range such as 9249-9260")
    return ports
