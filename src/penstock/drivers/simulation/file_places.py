"""Directories of simulated file sinks on the simulated disk."""

from __future__ import annotations

from typing import Final

#: The directory of their output.
OUT: Final = "out"
#: The directories for output taken by readers, and for hidden files taken by others.
TAKEN: Final = "taken"
ASIDE: Final = "aside"
#: The bucket of the other jobs' sinks.
NEIGHBOURS: Final = "neighbours"


def is_visible(path: str) -> bool:
    """Return whether readers of the output read a file."""
    return not any(name.startswith(".") for name in path.split("/"))
