"""How workers of a history leave: they are announced as leaving, and killed a while later (E2)."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Leaving:
    """How often, and how long before their end, workers are announced; drawn per seed, by a generator of its own."""

    seed: str = ""
    #: how often at most, and how likely it happens after an action, and after one that moves a checkpoint along
    times_max: int = 0
    after_action: float = 0.0
    after_protocol: float = 0.0
    #: how long (ms) they live on
    grace_ms_min: int = 0
    grace_ms_max: int = 0

    @classmethod
    def of(cls, world: str) -> Leaving:
        """That of a seed's history; none in most of them."""
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
