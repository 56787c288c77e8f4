"""Scenario of one seed: a program, options for every execution mode, and faults."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from penstock.base import options
from penstock.drivers.simulation.scenario import Wishes, draw_scenario
from penstock.drivers.simulation.stepwise.scenario import StepwiseScenario, draw_around

STREAMING, EPOCHS, BATCH = TEMPOS = ("STREAMING", "MICRO_BATCH", "BATCH")
#: The execution modes whose jobs can look for the newest checkpoint on request.
LOOKING: Final = (STREAMING, EPOCHS)
#: Without "at-least-once": repeated records in streaming would change the totals of the epochs that follow.
MODES: Final = ("aligned", "unaligned", "unaligned", "timed")
#: The requests to a job that is to have a successor.
KINDS: Final = ("savepoint", "cancel", "cancel", "suspend", "suspend", "suspend", "drain", "abandon", "abandon")


def draw(chance: random.Random, world: str) -> StepwiseScenario:
    """Draw the scenario of a seed: the one of its streaming jobs, wrapped in the one of the other jobs."""
    drawn = draw_scenario(chance, world, chance.choice(MODES))
    for stage in drawn.topology.stages:
        stage.calls = None  # drivers of epochs do not run coroutines
    write = drawn.configuration.write
    write(options.CHECKPOINTING_DIR, "disk")
    write(options.CHECKPOINT_RETENTION, "RETAIN_ON_CANCELLATION")
    write(options.MICRO_BATCH_RECORDS_MAX, chance.choice((1, 3, 10)))
    if chance.random() < 0.3:
        write(options.MICRO_BATCH_INTERVAL_MS, chance.choice((1, 50)))
    # The expected output needs a single order of the operators of all jobs.
    changes = replace(drawn.changes, uses_rocksdb=chance.random() < 0.2, returns=False)
    rates = replace(drawn.rates, storage_errors_max=2 * drawn.rates.storage_errors_max)
    return draw_around(chance, replace(drawn, wishes=Wishes(), changes=changes, rates=rates))


def draw_wishes(chance: random.Random) -> Wishes:
    """Draw a person's requests to one streaming job."""
    return Wishes(
        tuple(chance.choice(KINDS) for _ in range(chance.choice((1, 1, 2)))),
        chance.choice((0.002, 0.01)),
        chance.choice((0.03, 0.1)),
        chance.choice((0.0, 0.3)),
        insists=True,
    )
