"""The leader of a job, and the interface of elections to the drivers (E7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec


class Leader(msgspec.Struct, frozen=True, omit_defaults=True):
    """The driver that runs the job, or ran it last.

    `end`: the job's outcome, once it is over. `candidate`: unique among all drivers that ever took part.
    """

    host: str
    process: int
    end: str | None = None
    candidate: str = ""

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class Election(Protocol):
    """The interface of an election. Call `wait`, then `when_lost`, and `end` on every path after that."""

    @property
    def lost(self) -> str | None:
        """Why this process no longer leads; None while it does."""

    def wait(self, log: Callable[[str], None]) -> Leader | None:
        """Wait until this process leads. Ctrl-C ends the wait.

        Returns:
            The leader whose job ended while this process stood by; None if the job continues.
        """

    def when_lost(self, action: Callable[[str], None]) -> None:
        """Call `action` with `lost` when this process no longer leads, in any thread; at once if this is so already."""

    def end(self, outcome: str | None) -> None:
        """Record the job's outcome; None means that another process may resume the job."""


def encode_leader(leader: Leader) -> bytes:
    """Encode as JSON, which people can read too."""
    return msgspec.json.encode(leader)


def decode_leader(data: bytes) -> Leader | None:
    """Decode a leader; return None if no leader was written yet."""
    try:
        return msgspec.json.decode(data, type=Leader)
    except msgspec.MsgspecError:
        return None
