"""Changes of parallelism in a history: slots that appear and disappear, and a person's requests (E3)."""

from __future__ import annotations

import random
from dataclasses import dataclass

from penstock.base import options
from penstock.base.configuration import Configuration


@dataclass(frozen=True)
class Elasticity:
    """How often, and how, the parallelism of a history's jobs changes; drawn per seed by its own generator."""

    seed: str = ""
    is_adaptive: bool = False
    asks_max: int = 0
    changes_of_slots_max: int = 0
    #: how likely either change is after an action, and after one that advances a checkpoint or an end
    after_action: float = 0.0
    after_protocol: float = 0.0

    @classmethod
    def of(cls, world: str) -> Elasticity:
        """Draw the elasticity of a seed's history; most have none."""
        own = random.Random(f"rescaling of {world}")
        if own.random() >= 0.3:
            return cls()
        is_adaptive = own.random() < 0.6
        return cls(
            f"slots of {world}",
            is_adaptive,
            own.choice((1, 2, 4)) if not is_adaptive else own.choice((0, 1, 3)),
            own.choice((1, 3, 6)) if is_adaptive else 0,
            own.choice((0.0, 0.001, 0.004)),
            own.choice((0.01, 0.04)),
        )

    def configure(self, configuration: Configuration) -> None:
        """Set the options of the adaptive scheduler, with times as short as all others in a history."""
        if not self.is_adaptive:
            return
        own = random.Random(f"options of {self.seed}")
        write = configuration.write
        write(options.SCHEDULER, "adaptive")
        write(options.SUBMISSION_STABILIZATION_MS, own.choice((0, 30, 300)))
        write(options.EXECUTING_COOLDOWN_MS, own.choice((0, 0, 100)))
        write(options.EXECUTING_STABILIZATION_MS, own.choice((0, 50)))
        write(options.RESCALE_MAX_DELAY_MS, own.choice((50, 500, 20_000)))
        if own.random() < 0.3:
            write(options.SCHEDULER_MODE, "reactive")
