"""What operators know of the session, in a form that travels to workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Final

from penstock.table.functions.definition import Session

_MILLISECOND_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class StreamSession:
    """The time zone, and what casts do."""

    zone: tzinfo = UTC
    legacy_cast: bool = False

    def open(self, now_ms: Callable[[], int], watermark: Callable[[], int | None] = lambda: None) -> Session:
        """The session of a running operator. Its clock and its watermark are milliseconds since 1970."""
        return Session(self.zone, lambda: now_ms() * _MILLISECOND_NS, watermark, self.legacy_cast)
