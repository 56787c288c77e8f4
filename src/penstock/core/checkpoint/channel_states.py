"""How the state of a channel is named in a checkpoint: records in flight of unaligned checkpoints (G5)."""

from __future__ import annotations

from typing import Final

#: The mode of such an operator state.
CHANNEL_MODE: Final = "channel"
_PREFIX: Final = "_penstock_in_flight"


def name_of(direction: str, edge: int, peer: int) -> str:
    """The name of what is in flight in one channel; `direction` is in or out, `peer` the subtask at the other end."""
    return f"{_PREFIX}.{direction}.{edge}.{peer}"


def channel_of(name: str) -> tuple[str, int, int]:
    """What such a name says: (in or out, edge, the subtask at the other end)."""
    _, direction, edge, peer = name.split(".")
    return direction, int(edge), int(peer)
