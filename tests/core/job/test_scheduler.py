"""Which worker a slot goes to (E3, G8)."""

import pytest

from penstock.core.job.scheduler import assign_slots


@pytest.mark.parametrize(
    ("workers", "former", "assigned"),
    [
        (["a", "b", "c"], [], ["a", "b", "c"]),
        (["a", "b", "c"], ["a", "b", "c"], ["a", "b", "c"]),
        (["b", "c", "d"], ["a", "b", "c"], ["d", "b", "c"]),
        (["c", "d", "e"], ["a", "b", "c"], ["d", "e", "c"]),
        (["d", "e", "f"], ["a", "b", "c"], ["d", "e", "f"]),
        (["a", "b", "c", "d"], ["a", "x", "c"], ["a", "b", "c"]),
    ],
)
def test_a_slot_stays_with_its_worker(workers: list[str], former: list[str], assigned: list[str]) -> None:
    """G8: what a task stored on its worker's disk is there when it comes back; only slots of lost workers move."""
    assert assign_slots(3, workers, former) == assigned
