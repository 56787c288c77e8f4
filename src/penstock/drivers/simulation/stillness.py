"""How workers of a history stand still: their processes live and send heartbeats, but do nothing else (E2)."""

from __future__ import annotations

import random
from dataclasses import dataclass

from penstock.base import options
from penstock.base.configuration import Configuration


@dataclass(frozen=True)
class Stillness:
    """How often and how long workers stand still, drawn per seed by a separate random generator."""

    seed: str = ""
    #: the most times that workers stand still, and the probability after an action
    times_max: int = 0
    after_action: float = 0.0
    threshold_ms: int = 1
    #: None if the job does not replace workers for it
    replace_after_ms: int | None = None

    @classmethod
    def of(cls, world: str) -> Stillness:
        """Draw the stillness of a seed's history; in most histories no worker stands still."""
        own = random.Random(f"still workers of {world}")
        if own.random() >= 0.15:
            return cls()
        return cls(
            f"when workers of {world} stand still",
            own.choice((1, 2, 4)),
            own.choice((0.002, 0.01)),
            own.choice((1_000, 3_000)),
            own.choice((None, 3_000, 6_000)),
        )

    def configure(self, configuration: Configuration) -> None:
        """Set the options for the job's reaction."""
        if not self.times_max:
            return
        configuration.write(options.SLOW_WORKERS_THRESHOLD_MS, self.threshold_ms)
        if self.replace_after_ms is not None:
            configuration.write(options.SLOW_WORKERS_REPLACE_AFTER_MS, self.replace_after_ms)
