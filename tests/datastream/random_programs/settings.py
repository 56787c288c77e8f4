"""In which ways a program is run: what a user may set, and what may happen to a job. None of it changes the results."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from tests.datastream.random_programs.programs import Program

#: for each field of a setting its values, the one of the reference first
VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "mode": ("STREAMING", "MICRO_BATCH", "BATCH"),
    "backend": ("hashmap", "rocksdb"),
    "batch": (1, 2, 7, 64, 4096),
    "parallelism": (1, 2, 3, 4),
    "chains": (True, False),
    "general": (False, True),
    "checkpoints": ("none", "aligned", "unaligned", "at least once"),
    "event": ("none", "failure", "savepoint"),
    "beside": ("nothing", "ended", "idle", "ended and idle", "ended broadcast"),
    "source": ("at once", "at a rate", "hybrid", "hybrid at a rate"),
    "readers": (1, 2),
}


@dataclass(frozen=True)
class Setting:
    """One way to run a program.

    Attributes:
        mode: the execution mode.
        backend: of keyed state.
        batch: records that the source reads at a time; of MICRO_BATCH the records of an epoch.
        parallelism: of the keyed stages.
        chains: whether operators are chained.
        general: whether windows have the operator for all of them, where the planner would choose a faster one.
        checkpoints: their mode, one in each few turns.
        event: a failure of a function, or a savepoint that the next job begins from at another parallelism.
        beside: which other inputs there are.
        source: what reads the events: one source, or a hybrid of two that read a half each; at once, or at a rate.
        readers: how many operators read each stream; the second one changes the records.
    """

    mode: str = "STREAMING"
    backend: str = "hashmap"
    batch: int = 1
    parallelism: int = 1
    chains: bool = True
    general: bool = False
    checkpoints: str = "none"
    event: str = "none"
    beside: str = "nothing"
    source: str = "at once"
    readers: int = 1

    def __str__(self) -> str:
        reference = Setting()
        differing = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != getattr(reference, field.name)
        }
        return ", ".join(f"{name}={value}" for name, value in differing.items()) or "reference"

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Each two of its values, as text."""
        values = [f"{name}={getattr(self, name)}" for name in VALUES]
        for index, value in enumerate(values):
            for other in values[index + 1 :]:
                yield value, other


def drawn_setting(chance: random.Random, program: Program) -> Setting:
    """One in which the program can run and gives the same."""
    setting = Setting(**{name: chance.choice(values) for name, values in VALUES.items()})
    return possible(setting, program)


def possible(setting: Setting, program: Program) -> Setting:
    """The setting, with the reference's values where the program has no other ones.

    - At a higher parallelism a later stage may hear of event time before a record that came ahead of it.
    - What a function keeps in itself is in no checkpoint, and a batch of an epoch begins with a new function.
    - A batch has neither checkpoints nor late records; a running reduce gives its last value there.
    - Beside another input the events come one by one anyway.
    - In micro-batches event time advances between epochs: records are late only then, and timers fire only then.
    """
    if program.keyed > 1:
        setting = replace(setting, parallelism=1)
    if program.keeps_in_function:
        setting = replace(setting, event="none")
        if setting.mode == "MICRO_BATCH":
            setting = replace(setting, mode="STREAMING")
    if setting.mode == "MICRO_BATCH" and (program.world.has_late or program.fires_among_records):
        setting = replace(setting, mode="STREAMING")
    if setting.mode == "BATCH" and not program.runs_in_batch:
        setting = replace(setting, mode="STREAMING")
    if setting.mode != "STREAMING":
        setting = replace(setting, checkpoints="none", event="none", beside="nothing", backend="hashmap")
    if setting.beside != "nothing":
        setting = replace(setting, source="at once")
    if setting.event != "none" and setting.checkpoints in ("none", "at least once"):
        setting = replace(setting, checkpoints="aligned")
    return setting
