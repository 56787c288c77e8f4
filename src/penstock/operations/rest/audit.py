"""The lines that requests leave in the log: one for each change, and a bounded number for refused requests."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.base.errors import shorten

_audit = logging.getLogger("penstock.audit")

#: How many characters of a path a line shows.
PATH_CHARS_MAX: Final = 200
#: How many refused requests leave a line in each period (s); a later line says how many more there were.
REFUSED_MAX: Final = 20
PERIOD_SECONDS: Final = 60.0


def printable(path: str) -> str:
    """A path as a log shows it: in one line of visible characters, and cut."""
    return shorten(path[: 2 * PATH_CHARS_MAX].encode("unicode_escape").decode("ascii"), PATH_CHARS_MAX)


class Audit:
    """Says who has changed what, and who was refused. Any thread may call it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._began = -PERIOD_SECONDS
        self._refused = 0

    def note(self, method: str, path: str, asker: str, where: str, code: int) -> None:
        """A request that may change something was answered."""
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
