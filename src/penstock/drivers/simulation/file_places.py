"""Where the files of simulated file sinks are, on the simulated disk."""

from __future__ import annotations

from typing import Final

#: Where their output is.
OUT: Final = "out"
#: Where readers put what they take of the output, and others what they take of what is hidden.
TAKEN: Final = "taken"
ASIDE: Final = "aside"
#: The bucket of the sinks of other jobs.
NEIGHBOURS: Final = "neighbours"


def is_visible(path: str) -> bool:
    """Whether readers of the output look at a file."""
    return not any(name.startswith(".") for name in path.split("/"))
