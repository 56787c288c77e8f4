"""Which worker is at the other end of which connection to the job master, so that a broken one has a name.

A worker whose process dies, or whose host is cut off, says nothing. But its connection breaks, and the system tells
that at once where a process has died. A worker that has lost its connection to the master ends itself. So both ends
agree that it is lost.
"""

from __future__ import annotations

from collections.abc import Iterable


class WorkerConnections:
    """Knows connections by their descriptors, which the system uses again once a connection has ended."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._owners: dict[int, str] = {}

    def take(self, registered: Iterable[tuple[int, str]], changes: Iterable[tuple[int, bool]]) -> list[str]:
        """Take in what has happened; returns the workers whose connections have ended.

        Args:
            registered: workers that have registered since the last call, with the descriptors that this came on.
            changes: what connections did since then, looked at after the registrations: begun (True) or ended.
        """
        lost = []
        for descriptor, begun in changes:
            (self._open.add if begun else self._open.discard)(descriptor)
            if (owner := self._owners.pop(descriptor, None)) is not None:
                lost.append(owner)
        for descriptor, worker_id in registered:
            former = self._owners.pop(descriptor, worker_id)
            if former != worker_id:
                lost.append(former)
            if descriptor in self._open:
                self._owners[descriptor] = worker_id
            else:
                lost.append(worker_id)
        return lost
