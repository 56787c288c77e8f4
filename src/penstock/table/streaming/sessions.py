"""What operators know of the session, in a form that travels to workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from penstock.table.functions.definition import Session
from penstock.table.user_functions.opened import AsyncSettings, OpenFunctions


@dataclass(frozen=True, slots=True)
class StreamSession:
    """The time zone, what casts do, and how asynchronous functions are called."""

    zone: tzinfo = UTC
    legacy_cast: bool = False
    async_settings: AsyncSettings = field(default_factory=AsyncSettings)

    def open(
        self,
        now: Callable[[], int],
        watermark: Callable[[], int | None] = lambda: None,
        functions: OpenFunctions | None = None,
    ) -> Session:
        """The session of a running operator. `now` gives nanoseconds since 1970, `watermark` milliseconds."""
        return Session(self.zone, now, watermark, self.legacy_cast, functions=functions)
