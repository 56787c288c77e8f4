"""Records in flight in a channel, as a state in a checkpoint: the channel, and its stored form (G5)."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

#: The mode of an operator state with records in flight.
CHANNEL_MODE: Final = "channel"
_PREFIX: Final = "_penstock_in_flight"


class Direction(enum.Enum):
    """The end of a channel where its records were captured; the values are used in the stored form."""

    IN = "in"
    OUT = "out"


class ChannelState(NamedTuple):
    """The records in flight in one channel of a subtask; `peer` is the subtask at the other end."""

    direction: Direction
    edge: int
    peer: int

    @property
    def stored_name(self) -> str:
        """The name of the state in a checkpoint; `parse_channel` parses it."""
        return f"{_PREFIX}.{self.direction.value}.{self.edge}.{self.peer}"


def parse_channel(stored_name: str) -> ChannelState:
    """Return the channel of a state in a checkpoint, given the state's name."""
    prefix, direction, edge, peer = stored_name.split(".")
    assert prefix == _PREFIX, f"{stored_name!r} names no records in flight"
    return ChannelState(Direction(direction), int(edge), int(peer))
