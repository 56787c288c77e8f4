"""The audit log of requests: one line per change, and a bounded number of lines for refused requests."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.base.errors import shorten

_audit = logging.getLogger("penstock.audit")

#: The number of characters of a path in a line.
PATH_CHARS_MAX: Final = 200
#: The number of refused requests that are logged per period (s); a later line counts the rest.
REFUSED_MAX: Final = 20
PERIOD_SECONDS: Final = 60.0


def printable(path: str) -> str:
    """Return a path for the log: on one line, in printable characters, and shortened."""
    return shorten(path[: 2 * PATH_CHARS_MAX].encode("unicode_escape").decode("ascii"), PATH_CHARS_MAX)


class Audit:
    """Logs who changed something, and who was refused. Thread-safe."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._began = -PERIOD_SECONDS
        self._refused = 0

    def note(self, method: str, path: str, asker: str, where: str, code: int) -> None:
        """Log the answer to a request that may change something."""
        if code >= 400 and not self._may_tell():
            return
        _audit.info("%s %s by %s from %s: %d", method, printable(path), asker, where, code)

    def _may_tell(self) -> bool:
        with self._lock:
            now = self._now()
            if now - self._began >= PERIOD_SECONDS:
                if self._refused > REFUSED_MAX:
                    _audit.info("%d more requests were refused in between", self._refused - REFUSED_MAX)
                self._began, self._refused = now, 0
            self._refused += 1
            if self._refused == REFUSED_MAX + 1:
                _audit.info("further refused requests leave no line for up to %.0f s", PERIOD_SECONDS)
            return self._refused <= REFUSED_MAX
