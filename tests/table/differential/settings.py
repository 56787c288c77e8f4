"""In which settings a query runs, and which pairs of their values have been drawn together.

The reference setting is the plainest one: a stream of one subtask on the heap that reads row by row and is collected.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Final

from tests.table.differential.chance import Chance
from tests.table.differential.queries import ARRIVAL_ORDER, EARLY, LATE_UNTIL_RESTART, NO_BATCH
from tests.table.differential.worlds import World


@dataclass(frozen=True)
class Setting:
    """How a query runs.

    Args:
        mode: the execution mode.
        parallelism: of the job.
        batch: how many rows a source emits at most at a time; in MICRO_BATCH also how many an epoch reads.
        backend: where state is.
        checkpoints: of a stream: none, aligned or unaligned ones, a few milliseconds apart.
        disturbance: what happens on the way: a failure, or a savepoint from which another job goes on at another
            parallelism.
        output: how the results are collected.
        source: where the tables are: in the connector of this package, there behind views of `Table`, in files, or in
            streams of the program.
        operators: the planner's choice, the general form instead of each optimised one, or the choice with other
            thresholds between few and many rows.
        bundles: whether GROUP BY gathers rows.
        results: whether windows of the older syntax have early results.
        lifetime: how long state lives that nobody writes: for ever, or far longer than the query runs.
        stop_at: after which share of each split readers wait for the disturbance.
    """

    mode: str = "STREAMING"
    parallelism: int = 1
    batch: int = 1
    backend: str = "heap"
    checkpoints: str = "none"
    disturbance: str = "none"
    output: str = "collect"
    source: str = "memory"
    operators: str = "chosen"
    bundles: str = "none"
    results: str = "final"
    lifetime: str = "for ever"
    stop_at: float = 0.5

    def __str__(self) -> str:
        changed = [
            f"{field.name}={getattr(self, field.name)}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        ]
        return ", ".join(changed) or "reference"

    def pairs(self) -> Iterator[tuple[str, str]]:
        """All pairs of values, as text."""
        values = [f"{name}={getattr(self, name)}" for name in VALUES]
        return itertools.combinations(values, 2)


REFERENCE: Final = Setting()
NO_BATCHES, SOME_BATCHES, ALL_BATCHES = "none", "some", "all"
VALUES: Final[dict[str, tuple[object, ...]]] = {
    "mode": ("STREAMING", "MICRO_BATCH", "BATCH"),
    "parallelism": (1, 2, 3, 4),
    "batch": (1, 7, 64, 1000, 65536),
    "backend": ("heap", "rocksdb"),
    "checkpoints": ("none", "aligned", "unaligned"),
    "disturbance": ("none", "failure", "savepoint"),
    "output": (
        "collect",
        "to_pandas",
        "to_arrow",
        "INSERT of changes",
        "INSERT by key",
        "statement set",
        "changelog stream",
        "upsert stream",
        "TO_CHANGELOG",
    ),
    "source": ("memory", "views", "files", "streams"),
    "operators": ("chosen", "general", "few rows", "many rows"),
    "bundles": ("none", "3 rows", "1000 rows"),
    "results": ("final", "early"),
    "lifetime": ("for ever", "1 d"),
}
#: settings of a batch in Spark: all other values mean nothing there
_BATCH_OUTPUTS: Final = ("collect", "to_pandas", "to_arrow")
#: outputs of the client's own job
_TO_CLIENT: Final = (*_BATCH_OUTPUTS, "TO_CHANGELOG")
#: of 100 settings that are not restricted, how many are of a mode
_SHARE_OF_BATCH: Final = 4
_STOPS: Final = (0.5, 0.25, 0.75, 1.0)
_SHARE_OF_MICRO_BATCH: Final = 25
_EPOCHS_MAX: Final = 16


def draw_setting(chance: Chance, world: World, batches: str) -> Setting:
    """A random setting in which the query of a world can run.

    `batches`: whether none, some or all settings are batches, as far as the query can run as one.
    """
    drawn = chance.below(100)
    is_batch = batches == ALL_BATCHES or (batches == SOME_BATCHES and drawn >= 100 - _SHARE_OF_BATCH)
    if is_batch and NO_BATCH not in world.features:
        return Setting("BATCH", batch=1, output=chance.pick(_BATCH_OUTPUTS))
    values = {name: chance.pick(choices) for name, choices in VALUES.items() if name != "mode"}
    values["results"] = chance.pick(("final", "early", "early", "early"))  # few queries can have early ones
    mode = "MICRO_BATCH" if drawn >= 100 - _SHARE_OF_BATCH - _SHARE_OF_MICRO_BATCH else "STREAMING"
    setting = Setting(mode, stop_at=chance.pick(_STOPS), **values)  # type: ignore[arg-type]
    return restricted(setting, world, chance.pick(("aligned", "unaligned")))


def restricted(setting: Setting, world: World, checkpoints: str = "aligned") -> Setting:
    """The setting without what its other values, or the world, exclude.

    `checkpoints`: what a stream has that needs some.
    """
    if setting.mode == "BATCH":
        return setting
    if setting.mode == "MICRO_BATCH":
        # An epoch ends with a checkpoint, and none begins while rows are in flight.
        setting = replace(setting, checkpoints="none")
    elif setting.disturbance == "failure" and setting.checkpoints == "none":
        # Without checkpoints a failed job begins again, and what it has sent already comes again.
        setting = replace(setting, checkpoints=checkpoints)
    if setting.disturbance == "savepoint" and setting.output in _TO_CLIENT:
        # The client of a job that goes on from a savepoint may get the rows of the last commit again.
        setting = replace(setting, output="INSERT of changes")
    if setting.disturbance != "none" and setting.source in ("files", "streams"):
        # Their readers cannot be stopped on the way.
        setting = replace(setting, source="memory")
    if EARLY not in world.features:
        setting = replace(setting, results="final")
    if is_in_order(world):
        setting = replace(setting, parallelism=1)
    if setting.mode == "MICRO_BATCH":
        setting = _with_few_epochs(setting, world)
    if LATE_UNTIL_RESTART in world.features:
        setting = replace(setting, disturbance="none")
    return setting


def _with_few_epochs(setting: Setting, world: World) -> Setting:
    """The setting with fewer epochs where there would be many, each of which takes time."""
    rows = max((len(table.changes) for table in world.tables.values()), default=0)
    if not world.has_late_rows:
        batch = next(size for size in VALUES["batch"] if isinstance(size, int) and size * _EPOCHS_MAX >= rows)
        return replace(setting, batch=max(setting.batch, batch))
    # Event time goes on at the end of an epoch, and whether a row is late depends on it. An epoch reads at least one
    # batch of a file.
    if rows > _EPOCHS_MAX or setting.source == "files":
        return restricted(replace(setting, mode="STREAMING"), world)
    return replace(setting, batch=1)


def is_in_order(world: World) -> bool:
    """Whether a world needs one subtask: its result depends on the order of rows, or of rows and watermarks."""
    return ARRIVAL_ORDER in world.features or world.has_late_rows


class PairCounts:
    """How often each pair of values was drawn, over all settings that were not the reference one."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, setting: Setting) -> None:
        """Count the pairs of a setting."""
        if setting.mode == "BATCH":
            self._counts.update([("mode=BATCH", f"output={setting.output}")])
        else:
            self._counts.update(setting.pairs())

    def merge(self, other: PairCounts) -> None:
        """Add the counts of another part of the run."""
        self._counts += other._counts

    def table(self) -> dict[tuple[str, str], int]:
        """The counts of all pairs that can be drawn, in the order of the values."""
        pairs = [("mode=BATCH", f"output={output}") for output in _BATCH_OUTPUTS]
        names = list(VALUES)
        for one, other in itertools.combinations(names, 2):
            for mine, theirs in itertools.product(VALUES[one], VALUES[other]):
                pair = (f"{one}={mine}", f"{other}={theirs}")
                if "mode=BATCH" not in pair and not is_impossible(pair):
                    pairs.append(pair)
        return {pair: self._counts[pair] for pair in pairs}


#: pairs that `_restricted` excludes
_IMPOSSIBLE: Final = {
    *(("mode=MICRO_BATCH", f"checkpoints={value}") for value in ("aligned", "unaligned")),
    *(("disturbance=savepoint", f"output={value}") for value in _TO_CLIENT),
    *(
        (f"disturbance={value}", f"source={source}")
        for value in ("failure", "savepoint")
        for source in ("files", "streams")
    ),
}


def is_impossible(pair: tuple[str, str]) -> bool:
    """Whether no setting has both values."""
    return pair in _IMPOSSIBLE
