"""The job master's process: its turns, its deadline, its death, and the start of its successor.

On Spark the job master runs in the driver program, and when that dies all workers end too. The same holds here: all
workers end with the job master, and a new job master for the same job continues from the store's contents.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from penstock.base.job_status import JobStatus
from penstock.core.effects import carry_out
from penstock.core.job.job_master import JobMaster
from penstock.core.ports import JobListener
from penstock.drivers.simulation.cluster import SimulatedCluster
from penstock.drivers.simulation.engine import Engine, SimulatedBackground
from penstock.drivers.simulation.faults import MasterKilled
from penstock.drivers.simulation.ready import Action

START_MS_MAX = 100
#: The failure of a job master whose successor should try again: the store was unavailable when it began.
OUT_OF_REACH = re.compile(r"cannot (be read|read what .* left): (OSError: )?planned")


@dataclass
class MasterTotals:
    """Totals over all job masters of a history."""

    masters: int = 0
    restarts: int = 0
    checkpoints: int = 0
    savepoints: int = 0


class MasterProcess(Action):
    """The job master's process. Running it as an action handles a deadline of the job master."""

    __slots__ = (
        "_cluster",
        "_deadline_ms",
        "_engine",
        "_make",
        "after_turn",
        "background",
        "has_successor",
        "is_down",
        "listener",
        "master",
        "on_death",
        "on_split",
        "totals",
    )

    def __init__(
        self, engine: Engine, cluster: SimulatedCluster, listener: JobListener, make: Callable[[bool], JobMaster]
    ) -> None:
        super().__init__()
        self._engine = engine
        self._cluster = cluster
        self.listener = listener
        self._make = make
        self._deadline_ms: int | None = None
        self.is_down = False
        #: whether another process has taken over the job
        self.has_successor = False
        self.totals = MasterTotals()
        #: called after each of its turns
        self.after_turn: Callable[[], None] = lambda: None
        #: called when it appears dead to all others but is not
        self.on_split: Callable[[], None] = lambda: None
        #: called when it dies
        self.on_death: Callable[[], None] = lambda: None
        self.background = SimulatedBackground("master", engine, self.turn)
        self.master = make(False)
        engine.faults.is_job_done = lambda: self.master.is_done

    @property
    def is_done(self) -> bool:
        """Whether the job has ended permanently."""
        return not self.is_down and self.master.is_done

    def start(self) -> None:
        """Start the job."""
        self.totals.masters += 1
        self.turn(self.master.start)

    def begin_next(self) -> None:
        """Start the next job, which continues from the savepoint of the one that ended."""
        self._count()
        self.background = SimulatedBackground("master", self._engine, self.turn)
        self.master = self._make(False)
        self.start()

    def run(self) -> None:
        self._engine.ready.remove(self)
        self._engine.log.write("master: on time")
        self.turn(self.master.on_time)

    def turn(self, call: Callable[[], None]) -> None:
        """Run a call in the job master and carry out its effects; it may die at any point."""
        faults = self._engine.faults
        faults.in_master = True
        try:
            call()
            carry_out(self.master.take_effects(), self._cluster, self.background, self.listener)
        except MasterKilled:
            faults.in_master = False
            self.kill(is_within_call=True)
            return
        finally:
            faults.in_master = False
        self.after_turn()
        if self.master.status is JobStatus.FAILED and OUT_OF_REACH.search(str(self.master.failure)):
            self.kill()
            return
        self._deadline_ms = None if self.master.is_done else self.master.next_deadline()
        self.look_at_deadline(self._engine.steady_ms())

    def kill(self, is_within_call: bool = False) -> None:
        """End the process silently, and all workers with it, or let it appear dead; start another one."""
        engine = self._engine
        if self.is_down:
            return
        # A kill within a call loses pending effects, so the process must really be dead. One that has not taken its
        # number yet could take it after its successor, and lead.
        can_go_on = not is_within_call and not self.master.is_done and self.master.status is not JobStatus.CREATED
        if can_go_on and engine.faults.is_split():
            self.on_split()
            return
        engine.log.write("the job master dies")
        self._count()
        self.is_down = True
        self._deadline_ms = None
        engine.ready.remove(self)
        self.background.abandon()
        self._cluster.vanish()
        self.on_death()
        if not self.has_successor:
            engine.call_later(engine.between(0, START_MS_MAX), self._succeed)

    def log(self, line: str) -> None:
        """Write a line to the event log."""
        self._engine.log.write(line)

    def take_over(self, former: MasterProcess) -> None:
        """Begin as the successor of a process that is believed dead."""
        former._count()
        self.totals = former.totals
        former.totals = MasterTotals()
        self.is_down = True
        self._engine.call_later(self._engine.between(0, START_MS_MAX), self._succeed)

    def _succeed(self) -> None:
        self._engine.log.write("a new job master starts")
        self.background = SimulatedBackground("master", self._engine, self.turn)
        self.master = self._make(True)
        self.is_down = False
        self.start()

    def _count(self) -> None:
        self.totals.restarts += self.master.history.restarts
        self.totals.checkpoints += self.master.checkpoints.statistics.completed
        self.totals.savepoints += self.master.checkpoints.statistics.savepoints

    def final_totals(self) -> MasterTotals:
        """Return the totals, including the last job master; call once, at the end."""
        if not self.is_down:
            self._count()
        return self.totals

    # --- time ------------------------------------------------------------------------------------------------------

    def next_due_ms(self) -> int | None:
        """Return when it next has something to do."""
        return self._deadline_ms

    def look_at_deadline(self, now_ms: int) -> None:
        """Enable its action if the deadline has passed."""
        if self._deadline_ms is not None and self._deadline_ms <= now_ms:
            self._engine.ready.add(self)
