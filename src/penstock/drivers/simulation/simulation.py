"""One history of a whole cluster, from one seed: job master, workers, storage, network and time on one thread.

Each step picks one enabled action at random: a step of an executor, the delivery of one message, a background job. If
nothing is enabled (and sometimes before that), time advances to the next deadline. All random choices come from one
generator with the seed, so a seed and a commit determine a history.

A history has two parts. In the first, faults happen at the scenario's rates. After `FAULTY_STEPS` they end, and the job
has to finish within `STEPS_MAX` more steps. A job that was stopped, or cancelled with a savepoint, has a successor.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from penstock.drivers.simulation.checkpoint_store import LeadingStore
from penstock.drivers.simulation.cluster import Deposed, MasterProcess, SimulatedCluster
from penstock.drivers.simulation.faults import Killed, MasterKilled, WorkerKilled
from penstock.drivers.simulation.file_sinks import ACTS_OF_STREAMS, Outsiders, file_sink, maybe_write_files
from penstock.drivers.simulation.invariants import Invariants
from penstock.drivers.simulation.jobs import Surroundings
from penstock.drivers.simulation.participants import Continuation, LeavingWorkers, Person, Slots, StillWorkers, dump
from penstock.drivers.simulation.scenario import Scenario, draw_scenario, fault_free
from penstock.drivers.simulation.scheduler import Engine
from penstock.runtime.job.job_master import JobMaster
from penstock.runtime.protocol import ToMaster, ToWorker, TriggerCheckpoint

FAULTY_STEPS = 6_000
STEPS_MAX = 60_000
#: After the faults, time is slow compared with the steps, so that nothing times out for lack of turns.
QUIET_TICK = 0.01
QUIET_TICK_MS_MAX = 3
VIRTUAL_MS_MAX = 3_600_000
#: How far (ms) clocks are set forwards at most: longer than anything a job waits for.
CLOCK_JUMP_MS_MAX = 100_000


@dataclass
class History:
    """The result of a seed."""

    seed: int
    mode: str = "?"
    status: str = "?"
    steps: int = 0
    virtual_ms: int = 0
    restarts: int = 0
    checkpoints: int = 0
    commits: int = 0
    jobs: int = 0
    savepoints: int = 0
    #: a person's actions on the jobs, and restarts of a partly finished job
    events: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    topology: str = ""
    #: jobs that continued from another's state, by difference, and those that were refused
    resumed: Counter[str] = field(default_factory=Counter)


class DriverGone(Killed):
    """The driver's process has ended permanently, and with it the job master."""


class Simulation:
    """Runs one history. A subclass may make further checks."""

    invariants_type: ClassVar[type[Invariants]] = Invariants

    def __init__(
        self,
        seed: int,
        is_traced: bool = False,
        without_faults: bool = False,
        scenario: Scenario | None = None,
        mode: str | None = None,
        around: Surroundings | None = None,
    ) -> None:
        self.seed = seed
        if around is None:
            chance, world = random.Random(seed), f"sim-{seed}"
            if scenario is None:
                scenario = draw_scenario(chance, world, mode)
                maybe_write_files(scenario.topology)
            scenario = fault_free(scenario) if without_faults else scenario
            around = Surroundings.made(seed, world, scenario, chance, is_traced)
        self.around = around
        self.scenario: Scenario = scenario or around.scenario
        self.log = around.log
        self.faults = around.faults
        self.engine = Engine(around.chance, self.faults, self.log)
        self.events: Counter[str] = Counter()
        self.jobs = around.jobs
        self.outside = around.outside
        self.power = around.power
        self.power.die, self.power.is_anybody_there = self._die, lambda: self.faults.in_master or self.faults.in_worker
        self.invariants = self.invariants_type(self)
        self.deposed: list[Deposed] = []
        self.slots = Slots(self, self.scenario.elasticity)
        self.still_workers = StillWorkers(self, self.scenario.stillness)
        topology = self.scenario.topology
        files = [stage.uid for stage in topology.stages if stage.make_sink is file_sink and not without_faults]
        self.outsiders = Outsiders(
            topology.world, self.outside, files, lambda: self.faults.are_over, self.log.write, ACTS_OF_STREAMS
        )
        self.leaving_workers = LeavingWorkers(self, self.scenario.leaving, self.invariants.found)
        self.cluster, self.process = self._present()
        self.person = Person(self, self.invariants.on_answer)
        #: whether the current job did not fit its initial state
        self.is_refused = False
        #: whether a driver that dies now is not restarted
        self.may_go: Callable[[], bool] = lambda: False
        self.is_gone = False
        self._step = 0
        self.outside.watch(
            self.faults.maybe_die,
            self.jobs.may_commit,
            self.invariants.on_reader_begun,
            self.invariants.on_finish,
            lambda: self.faults.in_deposed,
        )

        self.outside.process, self.outside.is_alive = lambda: self.faults.worker_id, self._is_alive

    def _is_alive(self, worker_id: str) -> bool:
        clusters = [self.cluster, *(deposed.cluster for deposed in self.deposed)]
        return any(worker_id in cluster.workers for cluster in clusters) or self.outsiders.is_alive(worker_id)

    def _present(self) -> tuple[SimulatedCluster, MasterProcess]:
        """Create a cluster and a job master's process, with observers."""
        store, reports_metrics = self.jobs.now.store, self.scenario.reports_metrics
        cluster = SimulatedCluster(self.engine, store, reports_metrics, self._on_message)
        cluster.slots = self.slots.draw()
        cluster.make_backends = self.jobs.backends
        cluster.on_send = self._on_sent
        cluster.on_deliver = self.invariants.before_worker
        cluster.after_turn = self.invariants.after_worker
        cluster.on_release = self.invariants.on_release
        process = MasterProcess(self.engine, cluster, self, self._make_master)
        process.after_turn = self._after_master
        process.on_death = self._on_master_death
        process.on_split = self._on_split
        return cluster, process

    def _after_master(self) -> None:
        self.invariants.after_master()
        self.slots.after_master()
        self.leaving_workers.after_master()

    def _on_split(self) -> None:
        """Let another job master take over from one that is believed dead but keeps running with its workers."""
        self.log.write("the job master is out of reach, and goes on")
        self._forget_master()
        former, self.cluster.on_send = self.process, self._on_sent_by_deposed
        self.deposed.append(Deposed(former, self.cluster))
        created = self.cluster.made
        self.cluster, self.process = self._present()
        self.cluster.made = created + 100
        self.process.take_over(former)

    def _make_master(self, recovers: bool) -> JobMaster:
        job = self.jobs.now
        return JobMaster(
            job.graph,
            job.job_id,
            job.configuration,
            clock=self.engine,
            store=LeadingStore(job.store),
            recover=recovers,
        )

    @property
    def master(self) -> JobMaster:
        """The current job master, or the one that died last."""
        return self.process.master

    # --- running ---------------------------------------------------------------------------------------------------

    def run(self) -> History:
        """Run the whole history."""
        with self.around.present():
            try:
                self.process.start()
                self._run_job()
                while (next_job := self.person.continuation()) is not None:
                    self._begin_next(next_job)
                    self._run_job()
            except Killed:
                raise AssertionError("something was killed outside its turn") from None
            except Exception as error:  # noqa: BLE001 - whatever the core raises is a finding
                self.invariants.raised(error)
            self.outsiders.end()
            history = self._history()
            history.violations = self.invariants.at_end()
        for violation in history.violations:
            self.log.write(f"VIOLATION {violation}")
        return history

    def run_job(self) -> None:
        """Run one of several jobs until it has ended, or its driver has died and is not restarted."""
        try:
            self.process.start()
            self._run_job()
        except DriverGone:
            self.is_gone = True
            if self.power.is_out:  # the driver died first
                self.outsiders.on_power_cut()
                self.power.come_back()
            if self.jobs.now.store.visible_id_max:
                self.jobs.accept()  # its remaining state fits its program
            self.cluster.close()
            for deposed in self.deposed:
                deposed.cluster.vanish()
        except Killed:
            raise AssertionError("something was killed outside its turn") from None
        except Exception as error:  # noqa: BLE001 - whatever the core raises is a finding
            self.invariants.raised(error)

    def _history(self) -> History:
        totals = self.process.final_totals()
        return History(
            self.seed,
            self.scenario.mode,
            self.master.status.name,
            self.log.step,
            self.engine.steady_ms(),
            totals.restarts,
            totals.checkpoints,
            self.outside.commits,
            len(self.jobs.all),
            totals.savepoints,
            self.events + self.outsiders.seen,
            [],
            self.faults.seen,
            self.log.lines,
            str(self.scenario.topology),
            self.jobs.resumed,
        )

    def _run_job(self) -> None:
        """Run until the job has ended and all is quiet; then clean up, as a driver does once all workers have ended."""
        self._loop()
        if not self.process.is_done:
            self.invariants.stalled(dump(self))
            return
        self.cluster.close()
        for deposed in self.deposed:
            if (flaw := deposed.end()) is not None:
                self.invariants.found.append(f"split-brain: {flaw}")
        self.deposed.clear()
        are_over, self.faults.are_over = self.faults.are_over, True
        self.master.sweep()
        self.faults.are_over = are_over
        self.is_refused = self.invariants.was_refused()
        if not self.is_refused:
            self.jobs.accept()
        self.invariants.at_job_end(self.person.requests)
        self.invariants.found.extend(self.slots.flaws())

    def _begin_next(self, continuation: Continuation) -> None:
        """Begin the job that continues from its predecessor's state."""
        path, disk = continuation.path, self.jobs.disk
        self.log.write(f"a new job begins from {path}")
        self.events["started over" if path is None else "resumed"] += 1
        if path is not None and path in disk.savepoints and self.scenario.wishes.moves:
            disk.move_savepoint(path, path := f"{path}-moved")
        self.outside.stopping.clear()
        self.person.go_on()
        job = self.jobs.begin(path, continuation.as_it_was)
        self.log.write(f"{job.program.backend}: {job.program.topology}")
        self.cluster.store = job.store
        self.cluster.slots = self.slots.draw()
        self.is_refused = False
        self.invariants.before_job()
        self.process.begin_next()

    def _loop(self) -> None:
        engine, ready, draw = self.engine, self.engine.ready, self.engine.chance.random
        tick, tick_ms_max = self.scenario.tick, self.scenario.tick_ms_max
        if self.faults.are_over:
            tick, tick_ms_max = QUIET_TICK, QUIET_TICK_MS_MAX
        limit, faulty = FAULTY_STEPS + STEPS_MAX, FAULTY_STEPS
        for step in range(self._step, limit):
            self.log.step = self._step = step
            if step == faulty:
                self._end_faults()
                tick, tick_ms_max = QUIET_TICK, QUIET_TICK_MS_MAX
            if draw() < tick:
                self._advance(engine.steady_ms() + engine.between(1, tick_ms_max))
            if not ready.actions:
                due_ms = self._next_due_ms()
                if due_ms is None or due_ms > VIRTUAL_MS_MAX:
                    break
                self._advance(due_ms)
                continue
            ready.pick(engine.chance).run()
            self._maybe_break()
        self._step += 1

    def _end_faults(self) -> None:
        self.log.write("faults are over")
        self.faults.are_over = True
        self.slots.end()
        self.engine.let_late_work_begin()
        for channel in [*self.cluster.control.values(), *self.cluster.data.values()]:
            channel.speed = 1.0
        for worker in self.cluster.workers.values():
            worker.speed = 1.0

    def _die(self) -> None:
        raise MasterKilled if self.faults.in_master else WorkerKilled

    def _lose_power(self) -> None:
        """End all processes; a new job master starts when the power is back."""
        if not self.power.is_out:
            self.power.fail()
        try:
            for process in [*(deposed.process for deposed in self.deposed), self.process]:
                process.kill(is_within_call=True)
        finally:
            self.outsiders.on_power_cut()
            self.power.come_back()

    def _maybe_break(self) -> None:
        faults, cluster = self.faults, self.cluster
        was_protocol, cluster.was_protocol = cluster.was_protocol, False
        # Once the job has ended and its last file is deleted, nothing is restarted.
        is_at_work = self._is_running() or self.process.is_down or bool(self.process.background.jobs)
        if self.power.is_out or (is_at_work and self.power.fails_after(was_protocol)):
            self._lose_power()
            return
        if faults.are_over:
            return
        if not self._is_running():
            # The job master can still die between the end of a job and the deletion of its last file.
            if not self.process.is_down and self.process.background.jobs and faults.kills_master_after(True):
                self.process.kill()
            return
        if self.scenario.wishes.kinds:
            self.person.look(was_protocol)
            if not self._is_running():
                return
        if cluster.workers and faults.kills_after(was_protocol):
            workers = list(cluster.workers.values())
            cluster.kill(workers[int(self.engine.chance.random() * len(workers))])
        if faults.kills_master_after(was_protocol):
            self.process.kill()
        elif faults.drops_connection():
            cluster.connections.drop()
        if faults.sets_clocks():
            self._set_clocks()
        if self._is_running():
            self.slots.look(was_protocol)
        if self._is_running():
            self.still_workers.look()
        self.outsiders.look()
        if self._is_running():
            self.leaving_workers.look(was_protocol)

    def _is_running(self) -> bool:
        return not self.process.is_down and not self.master.is_done

    # --- time ------------------------------------------------------------------------------------------------------

    def _next_due_ms(self) -> int | None:
        times = [self.engine.next_due_ms(), self.process.next_due_ms()]
        times += [deposed.next_due_ms() for deposed in self.deposed]
        if not self.process.is_done:
            times.append(self.cluster.next_due_ms())
        return min((t for t in times if t is not None), default=None)

    def _advance(self, to_ms: int) -> None:
        self.engine.advance(to_ms)
        now = self.engine.steady_ms()
        self.cluster.on_time(now)
        self.process.look_at_deadline(now)
        for deposed in self.deposed:
            deposed.on_time(now)
        if self.power.is_out:
            self._lose_power()

    def _set_clocks(self) -> None:
        by_ms = self.engine.between(1, CLOCK_JUMP_MS_MAX)
        self.log.write(f"the clocks are set {by_ms} ms forwards")
        self.engine.jump(by_ms)
        for cluster in [self.cluster, *(deposed.cluster for deposed in self.deposed)]:
            cluster.on_clocks_set(by_ms)

    def _on_message(self, message: ToMaster) -> None:
        if self.process.is_down:
            return
        self.invariants.before_master(message)
        self.process.turn(partial(self.master.on_message, message))

    def _on_sent(self, message: ToWorker) -> None:
        """Note the savepoints that a message from the job master begins."""
        self._note_savepoint(message)
        if isinstance(message, TriggerCheckpoint) and message.stop is not None:
            self.outside.stopping[message.checkpoint_id] = message.stop

    def _on_sent_by_deposed(self, message: ToWorker) -> None:
        self._note_savepoint(message)
        if isinstance(message, TriggerCheckpoint) and message.savepoint_path is not None:
            self.jobs.disk.excused.add(message.savepoint_path)  # once suspended, it may not delete the remains

    def _note_savepoint(self, message: ToWorker) -> None:
        if isinstance(message, TriggerCheckpoint) and message.savepoint_path is not None:
            self.jobs.now.savepoints[message.savepoint_path] = message.stop

    def _forget_master(self) -> None:
        self.outside.stopping.clear()
        disk = self.jobs.disk
        disk.excused.update(path for path in self.jobs.now.savepoints if path not in disk.savepoints)

    def _on_master_death(self) -> None:
        self.invariants.on_master_death()
        self._forget_master()
        if self.may_go():
            raise DriverGone

    # --- the port JobListener --------------------------------------------------------------------------------------

    def _check_names(self, words: str | None) -> None:
        if (flaw := self.still_workers.check(words)) is not None:
            self.invariants.found.append(flaw)

    def on_job_status(self, status: str, reason: str | None) -> None:
        self._check_names(reason)
        if status == "RUNNING":
            self.invariants.on_running()
        elif status == "RESTARTING" and self.master.restarts_part:
            self.events["restarted in part"] += 1
        elif status == "RESTARTING" and self.master.is_being_rescaled:
            self.jobs.now.has_moved = True
        if self.log.is_on:
            first = "" if reason is None else f" ({reason.splitlines()[0] if reason else ''})"
            self.log.write(f"job {status}{first}")

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None:
        self.log.write(f"client output of {operator_id}")

    def on_log(self, line: str) -> None:
        self._check_names(line)
        self.log.write(f"job log: {line}")


def run_seed(seed: int, is_traced: bool = False, without_faults: bool = False, mode: str | None = None) -> History:
    """Run the history of a seed."""
    return Simulation(seed, is_traced, without_faults, mode=mode).run()
