"""The subtasks that a pointwise edge connects: neighbours only (B3). Pure.

Between equal parallelisms subtask i feeds subtask i. Otherwise the side with fewer subtasks divides the other side into
groups of neighbours, whose sizes differ by at most one. Each subtask of the smaller side is connected to its group
alone.
"""

from __future__ import annotations


def find_producers(consumer: int, producers: int, consumers: int) -> range:
    """Return the producing subtasks that a consuming one reads from, given the number of each."""
    first = consumer * producers // consumers
    return range(first, max(first + 1, (consumer + 1) * producers // consumers))


def find_consumers(producer: int, producers: int, consumers: int) -> range:
    """Return the consuming subtasks that a producing one feeds: the inverse of `find_producers`."""
    if producers >= consumers:
        first = ((producer + 1) * consumers - 1) // producers
        return range(first, first + 1)
    return range(-(-producer * consumers // producers), -(-(producer + 1) * consumers // producers))
