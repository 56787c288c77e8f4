"""`python -m benchmarks.pause`: a checkpoint's pause and bytes, against the size of the state.

A task's keyed state of N keys is changed at 1 % of them between checkpoints. The synchronous part (capturing) is
timed; the rest (key groups, Arrow, files) runs on a background thread meanwhile, as in a worker, while the task goes
on changing state.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from penstock.drivers.event_loop import ThreadBackground
from penstock.runtime.protocol import ExecutionId
from penstock.runtime.task.checkpoints import SnapshotWriter, StateHistories
from penstock.state.backend import HeapKeyedStateBackend
from penstock.state.states import ValueStateDescriptor
from penstock.storage.file_store import FileCheckpointStore

KEY_GROUPS = 128


class PausedTask:
    """The keyed state of one task, with checkpoints as a worker takes them."""

    def __init__(self, keys: int, directory: str) -> None:
        self.backend = HeapKeyedStateBackend(KEY_GROUPS)
        self.state = self.backend.value_state(ValueStateDescriptor("count"))
        self._store = FileCheckpointStore(directory, "bench", 0)
        self._histories = StateHistories()
        self._background = ThreadBackground("bench", 1, lambda: None)
        self._writing = 0
        self._keys = keys
        self.written_bytes = 0

    def change(self, keys: list[int], value: int) -> None:
        """What a process function does with its records."""
        backend, state = self.backend, self.state
        for key in keys:
            backend.current_key = key
            state.update((value, key))

    def checkpoint(self, checkpoint_id: int) -> float:
        """Take one; returns the seconds that the task stood still."""
        begun = time.perf_counter()
        captures: dict[str, list[Any]] = {"op": list(self.backend.capture(checkpoint_id))}
        pause = time.perf_counter() - begun
        writer = SnapshotWriter(self._store, checkpoint_id, ExecutionId(0, 0, 0), (0, KEY_GROUPS - 1), KEY_GROUPS)
        confirmed = self._histories.confirmed
        self._writing += 1

        def done(operators: Any, error: BaseException | None) -> None:
            if error is not None:
                raise error
            self._writing -= 1
            handle = operators["op"].keyed["count"][0]
            self.written_bytes = handle.files[-1].length
            self._histories.on_stored(checkpoint_id, operators)
            self._histories.on_complete(checkpoint_id)
            self.backend.confirm(checkpoint_id)

        self._background.submit(lambda: writer.store(captures, confirmed), done)
        return pause

    def wait(self, meanwhile: Callable[[], None]) -> None:
        """Until the last checkpoint is complete."""
        while self._writing:
            meanwhile()
            self._background.deliver()


def measure(keys: int, checkpoints: int, share: float) -> list[str]:
    """One row of the table."""
    chance = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="penstock-pause-") as folder:
        task = PausedTask(keys, folder)
        task.change(list(range(keys)), 0)
        first = task.checkpoint(1)
        task.wait(lambda: time.sleep(0.01))
        full_bytes = task.written_bytes
        pauses, written = [], []
        for checkpoint_id in range(2, checkpoints + 2):
            changed = chance.sample(range(keys), int(keys * share))
            task.change(changed, checkpoint_id)
            pauses.append(task.checkpoint(checkpoint_id))
            task.wait(lambda: time.sleep(0.0005))
            written.append(task.written_bytes)
    ordered = sorted(pauses)
    figures = (statistics.median(pauses), ordered[int(len(ordered) * 0.99)], ordered[-1], first)
    return [
        f"{keys:,}",
        f"{int(keys * share):,}",
        *(f"{seconds * 1000:.1f}" for seconds in figures),
        f"{full_bytes / 1e6:.1f}",
        f"{statistics.median(written) / 1e6:.2f}",
    ]


@click.command()
@click.option("--sizes", default="100000,1000000,10000000", show_default=True, help="Keys.")
@click.option("--checkpoints", default=100, show_default=True, help="Checkpoints a size.")
@click.option("--share", default=0.01, show_default=True, help="Share of the keys that changes between checkpoints.")
def main(sizes: str, checkpoints: int, share: float) -> None:
    """Print pauses and bytes."""
    table = Table(title=f"{share:.1%} of the keys changed between {checkpoints} checkpoints")
    columns = ("keys", "changed", "p50 ms", "p99 ms", "max ms", "first ms", "first MB", "MB each")
    for column in columns:
        table.add_column(column, justify="right")
    for size in sizes.split(","):
        table.add_row(*measure(int(size), checkpoints, share))
    Console().print(table)


if __name__ == "__main__":
    main()
