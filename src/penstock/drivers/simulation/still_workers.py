"""Makes workers stand still, and checks that no other worker is ever reported as stuck or replaced for it (E2)."""

from __future__ import annotations

import random
import re
from typing import Final

from penstock.drivers.simulation.stillness import Stillness
from penstock.drivers.simulation.watched import Watched

#: How long (ms) workers stand still: from too short to be reported to longer than any timeout.
TIMES_MS: Final = (500, 4_000, 10_000, 60_000)
_STUCK: Final = re.compile(r"worker (\S+) .*its loop has not turned for (\d+) ms(.*replace-after)?", re.DOTALL)


class StillWorkers:
    """Makes the workers of one simulation stand still."""

    def __init__(self, simulation: Watched, stillness: Stillness) -> None:
        self._simulation = simulation
        self._stillness = stillness
        self._own = random.Random(stillness.seed)
        self._times = 0
        #: the longest time (ms) that each worker has stood still or will stand still
        self._longest_ms: dict[str, int] = {}

    def look(self) -> None:
        """Make a worker stand still, sometimes, after an event."""
        stillness, cluster = self._stillness, self._simulation.cluster
        if self._times >= stillness.times_max or not cluster.workers or self._own.random() >= stillness.after_action:
            return
        worker = self._own.choice(list(cluster.workers.values()))
        for_ms = self._own.choice(TIMES_MS)
        if worker.stand_still(for_ms):
            self._times += 1
            self._simulation.events["stood still"] += 1
            self._longest_ms[worker.worker_id] = max(for_ms, self._longest_ms.get(worker.worker_id, 0))

    def check(self, words: str | None) -> str | None:
        """Check a log line or reason of the job master about a worker; return its error, None if it is correct."""
        named = _STUCK.search(words or "")
        if named is None:
            return None
        self._simulation.events["replaced a stuck worker" if named[3] else "named a stuck worker"] += 1
        if self._longest_ms.get(named[1], -1) >= int(named[2]):
            return None
        return f"named: {named[1]} stood still for {self._longest_ms.get(named[1])} ms, but: {words}"
