"""A job master believed dead that keeps running alongside its successor, with its own workers (E7)."""

from __future__ import annotations

from functools import partial

from penstock.core.protocol import ToMaster
from penstock.drivers.simulation.cluster import SimulatedCluster
from penstock.drivers.simulation.master import MasterProcess


class Deposed:
    """Such a process and its cluster. Nothing listens to it. Implements `JobListener`."""

    def __init__(self, process: MasterProcess, cluster: SimulatedCluster) -> None:
        self.process = process
        self.cluster = cluster
        cluster.is_deposed = True
        process.listener = self
        process.has_successor = True
        process.after_turn = process.on_death = process.on_split = lambda: None
        cluster.on_master = self._on_message
        cluster.on_deliver = lambda message: None
        cluster.after_turn = cluster.on_release = lambda worker: None

    def _on_message(self, message: ToMaster) -> None:
        if not self.process.is_down:
            self.process.turn(partial(self.process.master.on_message, message))

    def next_due_ms(self) -> int | None:
        """Return when it next has something to do."""
        times = [self.process.next_due_ms(), None if self.process.is_done else self.cluster.next_due_ms()]
        return min((time for time in times if time is not None), default=None)

    def on_time(self, now_ms: int) -> None:
        """Pass the current time to the cluster and the process."""
        self.cluster.on_time(now_ms)
        self.process.look_at_deadline(now_ms)

    def end(self) -> str | None:
        """Clean up after the job's end, as its driver would; return a flaw, if any."""
        self.cluster.close()
        if self.process.is_down:
            return None
        self.process.master.sweep()
        status = self.process.master.status
        return None if status.is_terminal_state() else f"the deposed job master is still {status.name}"

    def on_job_status(self, status: str, reason: str | None) -> None:
        self.process.log(f"deposed job master: {status} {reason or ''}")

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None: ...

    def on_log(self, line: str) -> None: ...
