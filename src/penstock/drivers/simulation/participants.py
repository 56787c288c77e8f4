"""Participants and watchers of a simulation: the person, slots, workers that leave or stand still, and the dump.

`Watched` is a simulation as they see it.

`Person` operates a job: it requests savepoints, stops and cancels the job, and starts the next job from its state.
Every request has a waiter. It is answered exactly once, unless its job master dies first.

`Slots` appear and disappear, and a person requests to rescale a running job (E3).

`LeavingWorkers` announces and later kills workers, and checks that a leaving worker gets no tasks and is released (E2).

`StillWorkers` makes workers stand still, and checks that no other worker is ever reported as stuck or replaced for it
(E2).

`dump` shows the state of a stalled history: the job master, its checkpoints, and every task with its channels.
"""

from __future__ import annotations

import random
import re
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from penstock.base.job import JobStatus
from penstock.drivers.simulation.cluster import MANY_SLOTS, MasterProcess, SimulatedCluster
from penstock.drivers.simulation.disk import SAVEPOINTS
from penstock.drivers.simulation.file_sinks import Outsiders
from penstock.drivers.simulation.jobs import Jobs, Surroundings
from penstock.drivers.simulation.outside_world import Outside
from penstock.drivers.simulation.program_changes import holds_calls, records_in_flight
from penstock.drivers.simulation.scenario import Elasticity, Leaving, Scenario, Stillness
from penstock.drivers.simulation.scheduler import Engine, EventLog
from penstock.drivers.simulation.worker import Worker
from penstock.runtime.checkpoint.savepoints import TakeSavepoint
from penstock.runtime.job.job_master import JobMaster
from penstock.runtime.job.slots import compute_requirements
from penstock.runtime.protocol import ExecutionId, StopMode, WorkerLeaving
from penstock.runtime.task.stream_task import StreamTask


class Watched(Protocol):
    """See the module docstring."""

    @property
    def around(self) -> Surroundings: ...

    @property
    def scenario(self) -> Scenario: ...

    @property
    def log(self) -> EventLog: ...

    @property
    def engine(self) -> Engine: ...

    @property
    def events(self) -> Counter[str]: ...

    @property
    def jobs(self) -> Jobs: ...

    @property
    def cluster(self) -> SimulatedCluster: ...

    @property
    def outside(self) -> Outside: ...

    @property
    def process(self) -> MasterProcess: ...

    @property
    def master(self) -> JobMaster: ...

    @property
    def outsiders(self) -> Outsiders: ...

    @property
    def is_refused(self) -> bool: ...


#: The requests to a job's master, by their names in the history.
COMMANDS: Final = {
    "savepoint": TakeSavepoint(SAVEPOINTS),
    "cancel": TakeSavepoint(SAVEPOINTS, cancels=True),
    "suspend": TakeSavepoint(SAVEPOINTS, StopMode.SUSPEND),
    "drain": TakeSavepoint(SAVEPOINTS, StopMode.DRAIN),
}

#: A savepoint of the running job, one before its cancellation, the ones that stop it, and a cancellation without a
#: savepoint, after which its last checkpoint remains.
KINDS = ("savepoint", "cancel", "suspend", "drain", "abandon")


#: How likely a cancellation without a savepoint waits longer while there are no checkpoints.
PATIENCE = 0.9


@dataclass(frozen=True)
class Continuation:
    """Where the next job begins, if not from scratch; `as_it_was`: with the previous program."""

    path: str | None
    as_it_was: bool = False


@dataclass
class Request:
    """A request to a job master, and its answers: (path, error) each."""

    kind: str
    master: JobMaster
    answers: list[tuple[str | None, str | None]] = field(default_factory=list)


class Person:
    """Makes the scenario's requests in order at random moments; passes answers to `on_answer`."""

    def __init__(self, simulation: Watched, on_answer: Callable[[Request, str | None, str | None], None]) -> None:
        wishes = simulation.scenario.wishes
        self.wishes = deque(wishes.kinds)
        #: all requests to the current job
        self.requests: list[Request] = []
        self._simulation = simulation
        self._tell_answer = on_answer
        self._rates = wishes

    def look(self, was_protocol: bool) -> None:
        """Make a request, at random; called after something has happened."""
        simulation = self._simulation
        rates, draw = self._rates, simulation.engine.chance.random
        if draw() >= (rates.after_protocol if was_protocol else rates.after_action):
            return
        while not simulation.process.is_down and not simulation.process.is_done:
            self._wish_again()
            if not self.wishes or self._waits_to_abandon():
                return
            self._ask(Request(self.wishes.popleft(), simulation.master))
            if draw() >= rates.at_once:
                return

    def _waits_to_abandon(self) -> bool:
        """Return whether a person who is to continue from the last checkpoint waits for one, as they mostly do.

        Always wait until the job master has read the store: before that, it does not know which one is the last.
        """
        if self.wishes[0] != "abandon":
            return False
        simulation, checkpoints = self._simulation, self._simulation.master.checkpoints
        if not checkpoints.knows_what_to_keep:
            return True
        return not checkpoints.completed and simulation.engine.chance.random() < PATIENCE

    def _wish_again(self) -> None:
        """Repeat requests that were refused or that died with their job master, if the person insists."""
        for request in list(self.requests):
            is_dead = request.master is not self._simulation.master
            is_granted = bool(request.answers) and request.answers[0][0] is not None
            if is_dead or (request.answers and not is_granted):
                self.requests.remove(request)
                ends_nothing = request.kind == "savepoint" and is_granted
                if self._rates.insists and not ends_nothing:
                    self.wishes.appendleft(request.kind)

    def _ask(self, request: Request) -> None:
        simulation = self._simulation
        simulation.log.write(f"a client asks: {request.kind}")
        simulation.events[f"asked: {request.kind}"] += 1
        self.requests.append(request)
        simulation.process.turn(partial(self._call, request))

    def _call(self, request: Request) -> None:
        if request.kind == "abandon":
            request.answers.append(("", None))
            request.master.cancel()
        else:
            request.master.take_savepoint(COMMANDS[request.kind], partial(self._on_answer, request))

    def _on_answer(self, request: Request, path: str | None, error: str | None) -> None:
        simulation = self._simulation
        simulation.log.write(f"answer to {request.kind}: {path or error}")
        request.answers.append((path, error))
        self._tell_answer(request, path, error)

    def continuation(self) -> Continuation | None:
        """Return where the person continues after the job's end; None if there is to be no other job."""
        simulation = self._simulation
        master, last = simulation.master, simulation.master.checkpoints.last
        if simulation.is_refused:
            begun_from = simulation.jobs.now.begun_from
            assert begun_from is not None
            return Continuation(begun_from.external_path, as_it_was=True)
        if master.status is JobStatus.FINISHED and last is not None:
            path = last.external_path
            assert path is not None
            mode = simulation.jobs.now.savepoints[path]
            simulation.events["stopped with drain" if mode is StopMode.DRAIN else "stopped"] += 1
            return None if mode is StopMode.DRAIN else Continuation(path)
        if master.status is JobStatus.CANCELED:
            simulation.events["cancelled"] += 1
            # A job master that found the job cancelled did not receive the request itself.
            own = [r for r in self.requests if r.kind == "cancel" and (r.master is master or master.had_ended)]
            granted = (r.answers for r in reversed(own))
            path = next((answers[0][0] for answers in granted if answers and answers[0][0] is not None), None)
            return Continuation(path or self._find_last_snapshot(master))
        return None

    def _find_last_snapshot(self, master: JobMaster) -> str | None:
        """Return the last checkpoint of a cancelled job, or its starting point if it completed none."""
        job = self._simulation.jobs.now
        last = master.checkpoints.last
        if last is not None:
            assert last.external_path is not None
            job.was_drained = job.savepoints[last.external_path] is StopMode.DRAIN and job.read_to is None
            return last.external_path
        if master.checkpoints.completed:
            return job.store.get_directory(master.checkpoints.completed[-1].checkpoint_id)
        return None if job.begun_from is None else job.begun_from.external_path

    def go_on(self) -> None:
        """Forget the requests, because the next job begins."""
        self.requests = []


#: The highest parallelism that is requested.
ASKED_MAX = 4
#: The most slots beyond a job's needs.
SLOTS_MORE_MAX = 4


@dataclass
class _Question:
    """A request to a job master, and its answers."""

    master: JobMaster
    answers: list[tuple[Any, str | None]] = field(default_factory=list)


class Slots:
    """Changes the slots and makes requests in a simulation, and checks that requests are answered."""

    def __init__(self, simulation: Watched, elasticity: Elasticity) -> None:
        self._simulation = simulation
        self._elasticity = elasticity
        self._own = random.Random(elasticity.seed)
        self._questions: list[_Question] = []
        self._asked = self._changed = 0
        self._rescales = 0
        self._watched: JobMaster | None = None

    def look(self, was_protocol: bool) -> None:
        """Change the slots or make a request, at random; called after an action while the job runs."""
        elasticity = self._elasticity
        rate = elasticity.after_protocol if was_protocol else elasticity.after_action
        if not rate or self._own.random() >= rate or not self._simulation.jobs.now.program.topology.is_elastic:
            return
        may_ask, may_change = self._asked < elasticity.asks_max, self._changed < elasticity.changes_of_slots_max
        if may_ask and (not may_change or self._own.random() < 0.5):
            self._asked += 1
            self._ask()
        elif may_change:
            self._changed += 1
            self._simulation.events["slots changed"] += 1
            self._simulation.cluster.set_slots(self.draw())

    def draw(self) -> int:
        """Draw the number of slots from now on: enough for the current job."""
        job = self._simulation.jobs.now
        if not self._elasticity.is_adaptive or not job.program.topology.is_elastic:
            return MANY_SLOTS
        return compute_requirements(job.graph, job.configuration).sufficient + self._own.randrange(SLOTS_MORE_MAX + 1)

    def end(self) -> None:
        """Change the slots a last time, at random: the faults are over."""
        if self._own.random() < 0.5:
            self._simulation.cluster.set_slots(self.draw())

    def _ask(self) -> None:
        simulation, own = self._simulation, self._own
        vertices = simulation.master.job_graph.vertices
        named = own.sample(vertices, own.randint(1, min(2, len(vertices))))
        parallelism = {v.operators[0].operator_id: own.randint(1, min(ASKED_MAX, v.max_parallelism)) for v in named}
        simulation.log.write(f"a client asks: rescale {parallelism}")
        simulation.events["asked: rescale"] += 1
        question = _Question(simulation.master)
        self._questions.append(question)
        simulation.process.turn(partial(self._call, question, parallelism))

    def _call(self, question: _Question, parallelism: dict[str, int]) -> None:
        question.master.rescale(parallelism, lambda result, error: question.answers.append((result, error)))

    def after_master(self) -> None:
        """Note, after the job master's turn, how a new parallelism affects the expected output."""
        simulation = self._simulation
        if simulation.master is not self._watched:
            self._watched, self._rescales = simulation.master, 0
        rescales = simulation.master.history.rescales
        if not rescales or rescales[0].attempt == self._rescales:
            return
        self._rescales = rescales[0].attempt
        simulation.events[f"rescaled: {rescales[0].cause.name}"] += 1
        latest, job = simulation.master.checkpoints.latest, simulation.jobs.now
        if latest is not None and (records_in_flight(latest) or holds_calls(latest)):
            simulation.events["rescaled with records in flight"] += 1
            job.is_unordered = True
        job.was_rescaled = True

    def flaws(self) -> list[str]:
        """Return the flaws in the answers to an ended job's requests, and forget the requests."""
        counts = Counter(len(q.answers) for q in self._questions if q.master is self._simulation.master)
        self._questions.clear()
        return [f"waiter: rescale was answered {n} times" for n in counts if n != 1]


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


def dump(simulation: Watched) -> str:
    """Return the dump as multi-line text."""
    master, checkpoints = simulation.master, simulation.master.checkpoints
    states = " ".join(f"{e.id}={e.state.value}" for e in master._graph.executions())
    lines = [
        f"job {master.status.name} at {simulation.engine.steady_ms()} ms, restarts {master.history.restarts}, {states}",
        f"kept checkpoints {[m.checkpoint_id for m in checkpoints.completed]}, last id {checkpoints._last_id}, "
        f"next deadline {master.next_deadline()}, next trigger {checkpoints._next_ms}",
    ]
    for pending in checkpoints._pending.values():
        missing = sorted(str(e) for e in pending.missing)
        lines.append(
            f"pending checkpoint {pending.checkpoint_id}: completing={pending.is_completing} missing {missing}"
        )
    for worker in simulation.cluster.workers.values():
        enabled = worker.position >= 0
        lines.append(
            f"{worker.worker_id}: enabled={enabled} timer={worker.timer_ms} wake={worker.wake_ms} "
            f"jobs={len(worker.background.jobs)}"
        )
        lines += [f"  {line}" for task in worker.executor.tasks for line in _task(task)]
    lines += [f"channel {c.name}: {len(c.items)} waiting" for c in simulation.cluster.control.values() if c.items]
    lines += [f"channel {c.name}: {len(c.items)} waiting" for c in simulation.cluster.data.values() if c.items]
    return "\n".join(lines)


def _task(task: StreamTask) -> list[str]:
    lines = [f"task {task.execution} {task.phase.value} mail={len(task.mail)} last={task.ending.last_checkpoint_id}"]
    for c in task.gate.channels:
        marks = [word for word in ("is_blocked", "end_of_data", "ended") if getattr(c, word)]
        lines.append(f"  in {c.channel}: {len(c.queue)} buffers {' '.join(marks)}")
    for partition in task.partitions.values():
        for s in partition.subpartitions:
            lines.append(f"  out {s.channel}: credit={s.credit} queued={len(s._queue)} open={s.has_open_data}")
    return lines
