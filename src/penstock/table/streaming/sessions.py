"""What operators know of the session, in a form that travels to workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, tzinfo

from penstock.table.functions.definition import Session


@dataclass(frozen=True, slots=True)
class StreamSession:
    """The time zone, and what casts do."""

    zone: tzinfo = UTC
    legacy_cast: bool = False

    def open(self, now: Callable[[], int], watermark: Callable[[], int | None] = lambda: None) -> Session:
        """The session of a running operator. `now` gives nanoseconds since 1970, `watermark` milliseconds."""
        return Session(self.zone, now, watermark, self.legacy_cast)
