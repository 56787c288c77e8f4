"""Announces and later kills workers, and checks that a leaving worker gets no tasks and is released (E2)."""

from __future__ import annotations

import random
from functools import partial

from penstock.base.job_status import JobStatus
from penstock.core.job.job_master import JobMaster
from penstock.core.protocol import ExecutionId, WorkerLeaving
from penstock.drivers.simulation.cluster import SimulatedCluster
from penstock.drivers.simulation.leaving import Leaving
from penstock.drivers.simulation.watched import Watched
from penstock.drivers.simulation.worker import Worker

#: The longest time (ms) until the job master hears that a worker is leaving.
NOTICE_MS_MAX = 30


class LeavingWorkers:
    """The leaving workers of one simulation; `violations` collects violations."""

    def __init__(self, simulation: Watched, leaving: Leaving, violations: list[str]) -> None:
        self._simulation = simulation
        self._leaving = leaving
        self._own = random.Random(leaving.seed)
        self._times = 0
        self._announced: set[str] = set()
        #: the leaving workers known to each job master, with the tasks that they had at that time
        self._told: dict[tuple[JobMaster, str], frozenset[ExecutionId]] = {}
        self._moves: set[tuple[JobMaster, str]] = set()
        self._found = violations

    def look(self, was_protocol: bool) -> None:
        """Announce a worker as leaving, at random; called after an action while the job runs."""
        leaving, cluster = self._leaving, self._simulation.cluster
        rate = leaving.after_protocol if was_protocol else leaving.after_action
        if self._times >= leaving.times_max or not cluster.workers or self._own.random() >= rate:
            return
        worker = self._own.choice(list(cluster.workers.values()))
        if worker.worker_id in self._announced:
            return
        self._times += 1
        self._announced.add(worker.worker_id)
        self._simulation.events["leaving"] += 1
        self._simulation.log.write(f"{worker.worker_id} is leaving")
        engine = self._simulation.engine
        for _ in range(self._own.choice((1, 1, 2))):
            engine.call_later(self._own.randint(0, NOTICE_MS_MAX), partial(self._announce, cluster, worker))
        grace_ms = self._own.randint(leaving.grace_ms_min, leaving.grace_ms_max)
        engine.call_later(grace_ms, partial(cluster.kill, worker))

    def _announce(self, cluster: SimulatedCluster, worker: Worker) -> None:
        """Notify the job master that a worker leaves, as Spark's driver does, unless it is dead or released."""
        if not cluster.is_alive(worker) or cluster.is_released(worker):
            return
        if cluster is self._simulation.cluster:
            master = self._simulation.master
            self._told.setdefault((master, worker.worker_id), master.tasks_on(worker.worker_id))
        cluster.on_master(WorkerLeaving(worker.worker_id, "it is taken away"))

    def after_master(self) -> None:
        """Check after the job master's turn: who left gracefully, who got tasks, and who is kept without any."""
        master, cluster = self._simulation.master, self._simulation.cluster
        for departure in master.history.departures:
            key = (master, departure.worker_id)
            if departure.moved_ms is not None and key not in self._moves:
                self._moves.add(key)
                self._simulation.events["left in order"] += 1
        for (informed, worker_id), had in self._told.items():
            worker = cluster.workers.get(worker_id)
            if informed is not master or worker is None or cluster.is_released(worker):
                continue
            has = master.tasks_on(worker_id)
            if not has <= had:
                self._found.append(f"leaving: {worker_id} got {sorted(map(str, has - had))} when it was known to leave")
            elif not has and master.status is JobStatus.RUNNING:
                self._found.append(f"kept: {worker_id} is leaving, and has no tasks any more")
