"""Maps connections to the job master to workers, so that the master knows which worker a broken connection belongs to.

A worker sends no notice when its process dies or its host is cut off, but its connection breaks; the operating system
reports this at once if a process has died. A worker that loses its connection to the master ends itself. So both ends
agree that it is lost.
"""

from __future__ import annotations

from collections.abc import Iterable


class WorkerConnections:
    """Tracks connections by their descriptors; the system reuses a descriptor once its connection has ended."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._owners: dict[int, str] = {}

    def take(self, registered: Iterable[tuple[int, str]], changes: Iterable[tuple[int, bool]]) -> list[str]:
        """Process new events. Return the workers whose connections have ended.

        Args:
            registered: workers that have registered since the last call, with the descriptors they registered on.
            changes: connections that were opened (True) or closed since then, polled after the registrations.
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
