"""How a query of a world can run, and what it gives then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hypothesis import assume
from tests.table.batch.batches import run_batch
from tests.table.differential.worlds import Row, World


def streamed(world: World) -> Counter[Row]:
    """What one subtask tells in the end, each row that goes after it came."""
    return Counter(world.streamed().rows())


def streamed_twice(world: World) -> Counter[Row]:
    """What two subtasks of each step tell in the end."""
    return world.streamed(parallelism=2).net()


def in_epochs(world: World) -> Counter[Row]:
    """What the epochs of one subtask tell in the end, each row that goes after it came."""
    return Counter(world.in_epochs().rows())


def in_epochs_twice(world: World) -> Counter[Row]:
    """What the epochs of two subtasks of each step tell in the end."""
    return world.in_epochs(parallelism=2).net()


def in_bundles(world: World) -> Counter[Row]:
    """What one subtask with mini-batches tells in the end."""
    return Counter(world.in_bundles().rows())


def in_batch(world: World) -> Counter[Row]:
    """What Spark's SQL gives for the last rows, of which nobody knows in which order they have come."""
    assume("PROCTIME()" not in world.query and "FOR SYSTEM_TIME" not in world.query)
    return Counter(run_batch(world.query, **{name: table.last() for name, table in world.tables.items()}))


MODES: dict[str, Callable[[World], Counter[Row]]] = {
    "STREAMING": streamed,
    "STREAMING-2": streamed_twice,
    "MICRO_BATCH": in_epochs,
    "MICRO_BATCH-2": in_epochs_twice,
    "MINI_BATCH": in_bundles,
    "BATCH": in_batch,
}
