"""What an election is to the driver that takes part in it, and who leads (E7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec


class Leader(msgspec.Struct, frozen=True, omit_defaults=True):
    """The driver that runs the job, or ran it last.

    `end`: what the job came to, once it is over. `candidate`: tells it from all others that ever took part.
    """

    host: str
    process: int
    end: str | None = None
    candidate: str = ""

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class Election(Protocol):
    """Call `wait`, then `when_lost`, and `end` on every path after that."""

    @property
    def lost(self) -> str | None:
        """Why this process leads no longer; None as long as it does."""

    def wait(self, log: Callable[[str], None]) -> Leader | None:
        """Wait until this process leads. Ctrl-C ends the wait.

        Returns:
            The leader whose job came to its end while this process stood by; None if the job goes on.
        """

    def when_lost(self, action: Callable[[str], None]) -> None:
        """Call with `lost` as soon as this process leads no longer, in any thread; at once if that is so already."""

    def end(self, what: str | None) -> None:
        """The job has come to its end, or, for None, another process may go on with it."""


def encode_leader(leader: Leader) -> bytes:
    """JSON, for people too."""
    return msgspec.json.encode(leader)


def decode_leader(data: bytes) -> Leader | None:
    """Read it; None when nobody has written one yet."""
    try:
        return msgspec.json.decode(data, type=Leader)
    except msgspec.MsgspecError:
        return None
