"""The order of complete matches: by their first event, and with the same first event as in Flink's queue.

Among matches with the same first event, the first may skip the others, so their order decides which ones exist. Flink
keeps them in Java's `PriorityQueue`, a binary heap in a list, which orders equal items in its own way. To produce the
same matches, this queue moves its items in the same way.
"""

from __future__ import annotations

from penstock.core.patterns.memory import Partial


def joined(queue: list[Partial], matches: list[Partial]) -> list[Partial]:
    """Return a queue with added matches that completed together, in the order of their own queue as in Flink."""
    together: list[Partial] = []
    for match in matches:
        _push(together, match)
    merged = list(queue)
    for match in together:
        _push(merged, match)
    return merged


def ordered(matches: list[Partial]) -> list[Partial]:
    """Return matches that completed together, in output order."""
    queue = joined([], matches)
    return [pop(queue) for _ in matches]


def _push(queue: list[Partial], match: Partial) -> None:
    """Add a match, moving it up until its parent began no later."""
    queue.append(match)
    index = len(queue) - 1
    while index and queue[(index - 1) // 2].first > match.first:
        queue[index] = queue[(index - 1) // 2]
        index = (index - 1) // 2
    queue[index] = match


def pop(queue: list[Partial]) -> Partial:
    """Remove and return the first match; the last item takes its place and sinks."""
    first, last = queue[0], queue.pop()
    if queue:
        _sink(queue, 0, last)
    return first


def restore(queue: list[Partial]) -> None:
    """Restore the heap after items were removed from the middle."""
    for index in reversed(range(len(queue) // 2)):
        _sink(queue, index, queue[index])


def _sink(queue: list[Partial], index: int, match: Partial) -> None:
    while (child := 2 * index + 1) < len(queue):
        if child + 1 < len(queue) and queue[child].first > queue[child + 1].first:
            child += 1
        if match.first <= queue[child].first:
            break
        queue[index] = queue[child]
        index = child
    queue[index] = match
