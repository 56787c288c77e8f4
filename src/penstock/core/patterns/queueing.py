"""The order in which complete matches leave: those that began first, and among these as Flink's queue gives them.

Of matches with one beginning the first may skip the others, so their order decides which ones there are. Flink keeps
them in Java's `PriorityQueue`, a binary heap in a list, which has an order of its own for equals. To give the same
matches, this one moves its items in the same way.
"""

from __future__ import annotations

from penstock.core.patterns.memory import Partial


def joined(queue: list[Partial], matches: list[Partial]) -> list[Partial]:
    """A queue with more matches, which were complete together: in the order of a queue of their own, as in Flink."""
    together: list[Partial] = []
    for match in matches:
        _push(together, match)
    found = list(queue)
    for match in together:
        _push(found, match)
    return found


def ordered(matches: list[Partial]) -> list[Partial]:
    """Matches that were complete together, in the order in which they leave."""
    queue = joined([], matches)
    return [pop(queue) for _ in matches]


def _push(queue: list[Partial], match: Partial) -> None:
    """Add a match: up to where one that began no later is above it."""
    queue.append(match)
    place = len(queue) - 1
    while place and queue[(place - 1) // 2].first > match.first:
        queue[place] = queue[(place - 1) // 2]
        place = (place - 1) // 2
    queue[place] = match


def pop(queue: list[Partial]) -> Partial:
    """Take out the first match; the last item begins at its place, and goes down."""
    found, last = queue[0], queue.pop()
    if queue:
        _sink(queue, 0, last)
    return found


def restore(queue: list[Partial]) -> None:
    """Make it a heap again, when any were taken out of the middle."""
    for place in reversed(range(len(queue) // 2)):
        _sink(queue, place, queue[place])


def _sink(queue: list[Partial], place: int, match: Partial) -> None:
    while (child := 2 * place + 1) < len(queue):
        if child + 1 < len(queue) and queue[child].first > queue[child + 1].first:
            child += 1
        if match.first <= queue[child].first:
            break
        queue[place] = queue[child]
        place = child
    queue[place] = match
