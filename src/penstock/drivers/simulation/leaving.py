"""How workers of a history leave: they are announced as leaving and killed a while later (E2)."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Leaving:
    """How often workers are announced, and how long before their end; drawn per seed by its own generator."""

    seed: str = ""
    #: the maximum number of times, and how likely it is after an action, and after one that advances a checkpoint
    times_max: int = 0
    after_action: float = 0.0
    after_protocol: float = 0.0
    #: how long (ms) they keep running
    grace_ms_min: int = 0
    grace_ms_max: int = 0

    @classmethod
    def of(cls, world: str) -> Leaving:
        """Draw the departures in a seed's history; most have none."""
        own = random.Random(f"leaving workers of {world}")
        if own.random() >= 0.2:
            return cls()
        return cls(
            f"when workers of {world} leave",
            own.choice((1, 2, 4)),
            own.choice((0.0, 0.002, 0.005)),
            own.choice((0.01, 0.04)),
            0,
            own.choice((20, 300, 3_000, 60_000)),
        )
