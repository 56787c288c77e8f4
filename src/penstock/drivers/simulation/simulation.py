"""One history of a whole cluster, from one seed: job master, workers, storage, network and time on one thread.

At each step one enabled action is picked by chance: a step of an executor, the delivery of one message, a background
job. When nothing is enabled (and at times before), time passes to the next deadline. All chance comes from one
generator with the seed, so a seed and a commit are a history.

A history has two parts. In the first, faults happen by the scenario's rates. After `FAULTY_STEPS` they end, and the job
has to finish within `STEPS_MAX` more steps.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from penstock.core.job.job_master import JobMaster
from penstock.core.ports import Background
from penstock.core.protocol import ToMaster
from penstock.drivers.simulation.cluster import SimulatedCluster
from penstock.drivers.simulation.dump import dump
from penstock.drivers.simulation.engine import Engine, EventLog
from penstock.drivers.simulation.faults import Faults, Killed
from penstock.drivers.simulation.invariants import Invariants
from penstock.drivers.simulation.master import MasterProcess
from penstock.drivers.simulation.outside import Outside, present
from penstock.drivers.simulation.scenario import Scenario, draw_scenario, fault_free
from penstock.drivers.simulation.store import MemoryStore

FAULTY_STEPS = 6_000
STEPS_MAX = 60_000
#: After the faults time is slow beside the steps, so that nothing is over time for want of turns.
QUIET_TICK = 0.01
QUIET_TICK_MS_MAX = 3
VIRTUAL_MS_MAX = 3_600_000


@dataclass
class History:
    """What became of a seed."""

    seed: int
    mode: str = "?"
    status: str = "?"
    steps: int = 0
    virtual_ms: int = 0
    restarts: int = 0
    checkpoints: int = 0
    commits: int = 0
    violations: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    topology: str = ""


class Simulation:
    """Runs one history."""

    def __init__(
        self,
        seed: int,
        is_traced: bool = False,
        without_faults: bool = False,
        scenario: Scenario | None = None,
        mode: str | None = None,
    ) -> None:
        self.seed = seed
        chance = random.Random(seed)
        self.world_name = f"sim-{seed}"
        scenario = scenario or draw_scenario(chance, self.world_name, mode)
        self.scenario: Scenario = fault_free(scenario) if without_faults else scenario
        self.log = EventLog(f"seed {seed}: {self.scenario.topology}", is_traced)
        self.faults = Faults(self.scenario.rates, chance, self.log.write)
        self.engine = Engine(chance, self.faults, self.log)
        self.store = MemoryStore(self.scenario.inline_bytes_max, self.faults)
        self.cluster = SimulatedCluster(self.engine, self.store, self.scenario.reports_metrics, self._on_message)
        self.outside = Outside(
            chance,
            on_user_call=self.faults.on_user_call,
            on_commit=self.faults.maybe_die,
            is_covered=lambda checkpoint_id: checkpoint_id <= self.store.visible_id_max,
        )
        self.job_graph = self.scenario.topology.job_graph(self.scenario.configuration)
        self.process = MasterProcess(self.engine, self.cluster, self._make_master)
        self.invariants = Invariants(self)
        self.process.after_turn = self.invariants.after_master
        self.cluster.on_release = self.invariants.on_release

    def _make_master(self, background: Background, recovers: bool) -> JobMaster:
        return JobMaster(
            self.job_graph,
            f"{self.seed % 2**128:032x}",
            self.scenario.configuration,
            clock=self.engine,
            cluster=self.cluster,
            background=background,
            store=self.store,
            listener=self,
            recover=recovers,
        )

    @property
    def master(self) -> JobMaster:
        """The job master of now, or the one that died last."""
        return self.process.master

    # --- running ---------------------------------------------------------------------------------------------------

    def run(self) -> History:
        """The whole history."""
        with present(self.world_name, self.outside):
            try:
                self.process.start()
                self._loop()
                self._sweep()
            except Killed:
                raise AssertionError("something was killed outside its turn") from None
            except Exception as error:  # noqa: BLE001 - whatever the core raises is a finding
                self.invariants.raised(error)
        history = self._history()
        history.violations = self.invariants.at_end()
        for violation in history.violations:
            self.log.write(f"VIOLATION {violation}")
        return history

    def _history(self) -> History:
        totals = self.process.final_totals()
        return History(
            self.seed,
            self.scenario.mode,
            self.master.status.name,
            self.log.step,
            self.engine.now_ms(),
            totals.restarts,
            totals.checkpoints,
            self.outside.commits,
            [],
            self.faults.seen,
            self.log.lines,
            str(self.scenario.topology),
        )

    def _sweep(self) -> None:
        """As a driver does when all workers are gone: clean up what they may have left."""
        if self.process.is_done:
            self.faults.are_over = True
            self.master.sweep()

    def _loop(self) -> None:
        engine, ready, draw = self.engine, self.engine.ready, self.engine.chance.random
        tick, tick_ms_max = self.scenario.tick, self.scenario.tick_ms_max
        limit, faulty = FAULTY_STEPS + STEPS_MAX, FAULTY_STEPS
        for step in range(limit):
            self.log.step = step
            if step == faulty:
                self._end_faults()
                tick, tick_ms_max = QUIET_TICK, QUIET_TICK_MS_MAX
            if draw() < tick:
                self._advance(engine.now_ms() + engine.between(1, tick_ms_max))
            if not ready.actions:
                due_ms = self._next_due_ms()
                if due_ms is None or due_ms > VIRTUAL_MS_MAX:
                    break
                self._advance(due_ms)
                continue
            ready.pick(engine.chance).run()
            self._maybe_break()
        if not self.process.is_done:
            self.invariants.stalled(dump(self))

    def _end_faults(self) -> None:
        self.log.write("faults are over")
        self.faults.are_over = True
        for channel in [*self.cluster.control.values(), *self.cluster.data.values()]:
            channel.speed = 1.0
        for worker in self.cluster.workers.values():
            worker.speed = 1.0

    def _maybe_break(self) -> None:
        faults, cluster = self.faults, self.cluster
        was_protocol, cluster.was_protocol = cluster.was_protocol, False
        if faults.are_over or self.process.is_down or self.master.is_done:
            return
        if faults.kills_left and cluster.workers and faults.kills_after(was_protocol):
            workers = list(cluster.workers.values())
            cluster.kill(workers[int(self.engine.chance.random() * len(workers))])
        if faults.kills_master_after(was_protocol):
            self.process.kill()
        elif faults.drops_connection():
            cluster.connections.drop()

    # --- time ------------------------------------------------------------------------------------------------------

    def _next_due_ms(self) -> int | None:
        times = [self.engine.next_due_ms(), self.process.next_due_ms()]
        if not self.process.is_done:
            times.append(self.cluster.next_due_ms())
        return min((t for t in times if t is not None), default=None)

    def _advance(self, to_ms: int) -> None:
        self.engine.advance(to_ms)
        now = self.engine.now_ms()
        self.cluster.on_time(now)
        self.process.look_at_deadline(now)

    def _on_message(self, message: ToMaster) -> None:
        if self.process.is_down:
            return
        self.invariants.before_master(message)
        self.process.turn(partial(self.master.on_message, message))

    # --- the port JobListener --------------------------------------------------------------------------------------

    def on_job_status(self, status: str, reason: str | None) -> None:
        if self.log.is_on:
            first = "" if reason is None else f" ({reason.splitlines()[0] if reason else ''})"
            self.log.write(f"job {status}{first}")

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None:
        self.log.write(f"client output of {operator_id}")

    def on_log(self, line: str) -> None:
        self.log.write(f"job log: {line}")


def run_seed(seed: int, is_traced: bool = False, without_faults: bool = False, mode: str | None = None) -> History:
    """The history of a seed."""
    return Simulation(seed, is_traced, without_faults, mode=mode).run()
