"""Metrics and spans as JSON lines in a file."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.base.errors import ConfigurationError
from penstock.base.value_types import BYTES_COUNT
from penstock.operations.metrics.scopes import Scoped, flat
from penstock.operations.reporters.reporter import Reporter, Span, taken
from penstock.operations.reporters.settings import TRACES, ReporterSettings

SIZE_BYTES: Final = 64 << 20


class JsonLinesReporter(Reporter):
    """Appends a line for each scope, or for each span.

    A file that has grown beyond `max-size` is renamed with the suffix `.1`, replacing the previous one.

    Args:
        settings: `path`, the file, which is created with its directories; `max-size` (64 mb).

    Raises:
        ConfigurationError: if the path is missing.
    """

    def __init__(self, settings: ReporterSettings) -> None:
        super().__init__(settings)
        path = settings.options.get("path")
        if path is None:
            raise ConfigurationError(f"{settings.key('path')} is not set: name the file to write to")
        self._path = Path(path)
        self._size_max = settings.read("max-size", BYTES_COUNT, SIZE_BYTES)

    def report(self, metrics: Iterable[Scoped], spans: Sequence[Span]) -> None:
        """Append metrics or spans to the file."""
        now = int(time.time() * 1000)
        if self.settings.what == TRACES:
            lines = [_of_span(span) for span in spans]
        else:
            lines = [_of_scope(now, scoped) for scoped in taken(self.settings, metrics)]
        if not lines:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(line, allow_nan=False)}\n" for line in lines)
            size = file.tell()
        if size > self._size_max:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))


def _of_scope(now_ms: int, scoped: Scoped) -> dict[str, Any]:
    values = {name: _finite(value) for name, value in flat(scoped.values).items()}
    return {"time": now_ms, "scope": scoped.scope.value, "variables": dict(scoped.variables), "metrics": values}


def _finite(value: str | int | float) -> str | int | float:
    """Return NaN and infinity, which JSON lacks, as strings."""
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def _of_span(span: Span) -> dict[str, Any]:
    times = {"time": span.began_ms, "ended": span.ended_ms}
    return {**times, "scope": span.scope, "span": span.name, "attributes": span.attributes}
