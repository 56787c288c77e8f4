"""How users run a query: the backend of its state, its checkpoints, mini-batches, and how fast events come.

Penstock and Flink take the same options, by the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

BACKENDS: Final = {"heap": "hashmap", "rocksdb": "rocksdb"}
#: intervals of checkpoints, by what the command line says
INTERVALS: Final = {"1s": "1 s", "10s": "10 s", "off": None}
#: how many events there are in a second of their own time, unless they come at a steady rate
EVENT_RATE: Final = 10_000
MINI_BATCH: Final = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
}


@dataclass(frozen=True)
class Regime:
    """One way to run a query.

    Attributes:
        backend: a key of `BACKENDS`.
        checkpoints: a key of `INTERVALS`. Checkpoints are exactly once, and incremental on RocksDB.
        mini_batch: whether rows are gathered before they are aggregated and joined.
        rate: how many events come a second; None for as many as the query takes.
    """

    backend: str = "heap"
    checkpoints: str = "off"
    mini_batch: bool = True
    rate: int | None = None

    @property
    def event_rate(self) -> int:
        """How many events there are in a second of their own time: at a steady rate it passes as fast as the clock."""
        return self.rate or EVENT_RATE

    @property
    def title(self) -> str:
        """What a table calls it."""
        backend = {"heap": "heap", "rocksdb": "RocksDB"}[self.backend]
        checkpoints = "no checkpoints" if self.checkpoints == "off" else f"checkpoints {self.checkpoints}"
        parts = [backend, checkpoints, *([] if self.mini_batch else ["no mini-batch"])]
        return ", ".join(parts if self.rate is None else [*parts, f"{self.rate:,} events/s"])

    def options(self, folder: Path) -> dict[str, str]:
        """The options of a job but for `MINI_BATCH`. `folder`: where its checkpoints go."""
        options = {"state.backend.type": BACKENDS[self.backend], "execution.checkpointing.dir": folder.as_uri()}
        interval = INTERVALS[self.checkpoints]
        if interval is not None:
            options["execution.checkpointing.interval"] = interval
            options["execution.checkpointing.mode"] = "EXACTLY_ONCE"
        return options


#: with joins, windows, top rows and distinct values: the queries whose state is more than a counter
QUERIES_OF_REGIMES: Final = ("q4", "q5", "q7", "q8", "q9", "q16", "q17", "q18", "q19", "q20")


def find_regimes(given: Regime) -> list[Regime]:
    """Return the heap and RocksDB with checkpoints, and the heap without mini-batches, at the same rate.

    Args:
        given: its checkpoints are taken, or those of each second.
    """
    checkpoints = "1s" if given.checkpoints == "off" else given.checkpoints
    return [
        Regime("heap", checkpoints, rate=given.rate),
        Regime("rocksdb", checkpoints, rate=given.rate),
        Regime("heap", "off", mini_batch=False, rate=given.rate),
    ]


def takes_regime(command: Callable[..., None]) -> Callable[..., None]:
    """A decorator of a command: it gets the options of a regime, which the function takes as `regime`."""

    @click.option("--backend", type=click.Choice(list(BACKENDS)), default="heap", show_default=True, help="of state")
    @click.option(
        "--checkpoints", type=click.Choice(list(INTERVALS)), default="off", show_default=True, help="how often"
    )
    @click.option("--mini-batch/--no-mini-batch", default=True, show_default=True, help="of 50,000 rows or 2 s")
    @click.option("--rate", type=click.IntRange(min=1), help="events a second, instead of as many as possible")
    @wraps(command)
    def run_command(*, backend: str, checkpoints: str, mini_batch: bool, rate: int | None, **others: Any) -> None:
        command(regime=Regime(backend, checkpoints, mini_batch, rate), **others)

    return run_command
