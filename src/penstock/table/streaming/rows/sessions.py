"""The settings of the session that operators need, in a form that can be sent to workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Final

from penstock.table.functions.definition import Session
from penstock.table.user_functions.opened import AsyncSettings, OpenFunctions

_MILLISECOND_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class StreamSession:
    """The time zone, the behaviour of casts, and how asynchronous functions are called."""

    zone: tzinfo = UTC
    legacy_cast: bool = False
    async_settings: AsyncSettings = field(default_factory=AsyncSettings)

    def open(
        self,
        now_ms: Callable[[], int],
        watermark: Callable[[], int | None] = lambda: None,
        functions: OpenFunctions | None = None,
    ) -> Session:
        """Return the session of a running operator. Its clock and its watermark are in milliseconds since 1970."""
        return Session(self.zone, lambda: now_ms() * _MILLISECOND_NS, watermark, self.legacy_cast, functions=functions)
