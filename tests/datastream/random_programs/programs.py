"""What a random program is: records, and stages of one key each; plain values that a seed gives.

Times are multiples of `GRID_MS`, and so are sizes, gaps and intervals: so records often lie exactly at the border of a
window, a gap after one another, or at a timer. Values are lists, which functions keep, change and hand on.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, Final

GRID_MS: Final = 5
#: a lag of the watermark that no time exceeds
NO_WATERMARKS: Final = 1_000_000
KEYS: Final = 3
#: what is added to the keys of late records
LATE_KEY: Final = 1000

#: a key, a value and an event time in ms
Event = tuple[int, int, int]


@dataclass(frozen=True)
class World:
    """The records of a program in the order in which they come, and how far the watermark lags, in ms.

    After each record the watermark is the highest time so far - `lag_ms` - 1. A record that is behind it is late. With
    `NO_WATERMARKS` there is none until the end, so that the records of a batch stay together.
    """

    events: tuple[Event, ...]
    lag_ms: int

    @property
    def is_in_order(self) -> bool:
        times = [time for _, _, time in self.events]
        return times == sorted(times)

    @property
    def has_late(self) -> bool:
        highest = -(10**9)
        for _, _, time in self.events:
            if time < highest - self.lag_ms:
                return True
            highest = max(highest, time)
        return False


@dataclass(frozen=True)
class Plain:
    """A step without key. `kind`: see `functions.PLAIN`."""

    kind: str

    is_keyed = False


@dataclass(frozen=True)
class Process:
    """A keyed process function. `kind`: see `functions.PROCESS`; `delay_ms`: of its timers; `count`: how many."""

    kind: str
    delay_ms: int = 10
    count: int = 2

    is_keyed = True


@dataclass(frozen=True)
class Reduce:
    """A running reduce of each key."""

    kind: str

    is_keyed = True


@dataclass(frozen=True)
class Windowed:
    """Windows of each key.

    Attributes:
        assigner: its kind and its numbers, in ms or records.
        trigger: None for the assigner's own, or a kind and a number; `purges`: wrapped in a purging trigger.
        evictor: None, or a kind, a number and whether it evicts after the evaluation.
        lateness_ms: see `allowed_lateness`.
        keeps_late: whether late records are results, under a key of their own; in the last keyed stage only.
        function: see `functions.WINDOW`.
    """

    assigner: tuple[Any, ...]
    function: str
    trigger: tuple[Any, ...] | None = None
    purges: bool = False
    evictor: tuple[Any, ...] | None = None
    lateness_ms: int = 0
    keeps_late: bool = False

    is_keyed = True


Stage = Plain | Process | Reduce | Windowed


@dataclass(frozen=True)
class Program:
    """A world and what is done with it."""

    world: World
    stages: tuple[Stage, ...]

    @property
    def keyed(self) -> int:
        """How many stages are keyed."""
        return sum(stage.is_keyed for stage in self.stages)

    @property
    def keeps_in_function(self) -> bool:
        """Whether a function keeps something in itself, which no checkpoint has."""
        return any(getattr(stage, "kind", "").startswith("own") for stage in self.stages)

    @property
    def fires_among_records(self) -> bool:
        """Whether results depend on which records come before a timer."""
        kinds = {getattr(stage, "kind", "") for stage in self.stages}
        triggers = {trigger[0] for stage in self.stages if (trigger := getattr(stage, "trigger", None)) is not None}
        return bool(kinds & {"timers in timers", "deleted timers"}) or "continuous" in triggers

    @property
    def runs_in_batch(self) -> bool:
        """Whether a batch gives what the interpreter gives of a batch: results that run have one value there."""
        return not any(isinstance(stage, Reduce) for stage in self.stages)


def drawn_world(chance: random.Random) -> World:
    """Few records, or many; in order or out of order, some of them late."""
    count = chance.choice([1, 2, 5, 12, 40])
    step = chance.choice([0, 1, 2, 5]) * GRID_MS
    jitter = chance.choice([0, 0, 2, 6])
    events, time = [], chance.choice([0, 0, -4, 1000]) * GRID_MS
    for number in range(count):
        time += chance.randint(0, 1 + step // GRID_MS) * GRID_MS
        at = time - chance.randint(0, jitter) * GRID_MS
        events.append((chance.randrange(KEYS), number, at))
    lag = chance.choice([0, jitter // 2, jitter, NO_WATERMARKS // GRID_MS]) * GRID_MS
    return World(tuple(events), lag)


def drawn_program(seed: int) -> Program:
    """The program of a seed."""
    chance = random.Random(seed)
    stages: list[Stage] = []
    keyed = chance.choice([1, 1, 2, 3])
    for number in range(keyed):
        if chance.random() < 0.3:
            stages.append(Plain(chance.choice(PLAIN_KINDS)))
        stages.append(_drawn_keyed(chance, is_last=number + 1 == keyed))
    if chance.random() < 0.4:
        stages.append(Plain(chance.choice(PLAIN_KINDS)))
    return Program(drawn_world(chance), tuple(stages))


def _drawn_keyed(chance: random.Random, is_last: bool) -> Stage:
    kind = chance.choices(["process", "windows", "reduce"], [5, 6, 1])[0]
    if kind == "process":
        delay = chance.choice([1, 2, 4, 10]) * GRID_MS
        return Process(chance.choice(PROCESS_KINDS), delay, chance.randint(1, 3))
    if kind == "reduce":
        return Reduce(chance.choice(["changes first", "new"]))
    return _drawn_windows(chance, is_last)


def _drawn_windows(chance: random.Random, is_last: bool) -> Windowed:
    """Windows without time give records the end of time, so they come last.

    Left out is what is in no order: several windows of a key that a clock fires at once, and which records are the
    last ones of merged windows.
    """
    size, slide = chance.choice([2, 3, 4, 6]) * GRID_MS, chance.choice([1, 2, 3]) * GRID_MS
    assigner: tuple[Any, ...] = {
        "tumbling": ("tumbling", size, chance.choice([0, 0, 1]) * GRID_MS),
        "sliding": ("sliding", size, slide),
        "session": ("session", size),
        "cumulative": ("cumulative", slide * chance.randint(1, 3), slide),
        "global": ("global",),
        "count": ("count", chance.randint(1, 4), 0),
        "sliding count": ("count", chance.randint(1, 4), chance.randint(1, 3)),
    }[chance.choice([*_TIMED, *(_UNTIMED if is_last else ())])]
    is_timed = assigner[0] in ("tumbling", "sliding", "session", "cumulative")
    found = Windowed(assigner, chance.choice(WINDOW_FUNCTIONS))
    if assigner[0] == "global":
        found = replace(found, trigger=("count", chance.randint(1, 3)), purges=chance.random() < 0.5)
    elif is_timed and chance.random() < 0.4:
        kinds: list[tuple[Any, ...]] = [("count", chance.randint(1, 3)), ("end",)]
        if assigner[0] in ("tumbling", "session"):
            kinds.append(("continuous", chance.randint(1, 3) * GRID_MS))
        found = replace(found, trigger=chance.choice(kinds), purges=chance.random() < 0.4)
    if assigner[0] != "session" and chance.random() < 0.25:
        kind = chance.choice([("count", chance.randint(1, 3)), ("time", chance.randint(1, 4) * GRID_MS)])
        found = replace(found, evictor=(*kind, chance.random() < 0.5))
    if is_timed and chance.random() < 0.4:
        found = replace(found, lateness_ms=chance.choice([1, 2, 6]) * GRID_MS)
    return replace(found, keeps_late=is_timed and is_last and chance.random() < 0.5)


_TIMED: Final = ("tumbling", "tumbling", "sliding", "session", "session", "cumulative")
_UNTIMED: Final = ("global", "count", "sliding count")
#: steps without key: those that begin with `own` keep something in the function itself
PLAIN_KINDS: Final = ("changes and returns", "changes between", "drops some", "own buffer")
PROCESS_KINDS: Final = (
    "value",
    "list",
    "list twice",
    "map",
    "map while read",
    "reducing",
    "aggregating",
    "timers",
    "timers in timers",
    "deleted timers",
    "changes between",
)
WINDOW_FUNCTIONS: Final = (
    "reduce that changes first",
    "reduce",
    "aggregate that gives its accumulator",
    "aggregate and process",
    "process that pops",
    "process that gives its elements",
    "process twice",
)
