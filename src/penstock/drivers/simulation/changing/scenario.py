"""What one seed stands for: a program, options for every tempo, and what goes wrong."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from penstock.base import options
from penstock.drivers.simulation.scenario import Wishes, draw_scenario
from penstock.drivers.simulation.stepwise.scenario import StepwiseScenario, draw_around

STREAMING, EPOCHS, BATCH = TEMPOS = ("STREAMING", "MICRO_BATCH", "BATCH")
#: Those whose jobs look for the newest checkpoint when they are told to.
LOOKING: Final = (STREAMING, EPOCHS)
#: What comes at least once in streaming would have other totals in the epochs that follow.
MODES: Final = ("aligned", "unaligned", "unaligned", "timed")
#: What a person asks of a job of which another one is to go on.
KINDS: Final = ("savepoint", "cancel", "cancel", "suspend", "suspend", "suspend", "drain", "abandon", "abandon")


def draw(chance: random.Random, world: str) -> StepwiseScenario:
    """The scenario of a seed: what streaming jobs of it meet, and within that what the others meet."""
    drawn = draw_scenario(chance, world, chance.choice(MODES))
    for stage in drawn.topology.stages:
        stage.calls = None  # nobody runs coroutines in the drivers of epochs
    write = drawn.configuration.write
    write(options.CHECKPOINTING_DIR, "disk")
    write(options.CHECKPOINT_RETENTION, "RETAIN_ON_CANCELLATION")
    write(options.MICRO_BATCH_RECORDS_MAX, chance.choice((1, 3, 10)))
    if chance.random() < 0.3:
        write(options.MICRO_BATCH_INTERVAL_MS, chance.choice((1, 50)))
    # The expected answer needs one order of all operators that any of many jobs has.
    changes = replace(drawn.changes, uses_rocksdb=chance.random() < 0.2, returns=False)
    rates = replace(drawn.rates, storage_errors_max=2 * drawn.rates.storage_errors_max)
    return draw_around(chance, replace(drawn, wishes=Wishes(), changes=changes, rates=rates))


def draw_wishes(chance: random.Random) -> Wishes:
    """What a person asks of one streaming job."""
    return Wishes(
        tuple(chance.choice(KINDS) for _ in range(chance.choice((1, 1, 2)))),
        chance.choice((0.002, 0.01)),
        chance.choice((0.03, 0.1)),
        chance.choice((0.0, 0.3)),
        insists=True,
    )
