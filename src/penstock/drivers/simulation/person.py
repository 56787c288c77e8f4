"""The person beside a job: asks for savepoints, stops and cancels it, and begins the next job from what that left.

Every request has a waiter. It is answered exactly once, unless its job master dies first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from penstock.base.job_status import JobStatus
from penstock.core.checkpoint.savepoints import TakeSavepoint
from penstock.core.job.job_master import JobMaster
from penstock.core.protocol import StopMode
from penstock.drivers.simulation.disk import SAVEPOINTS
from penstock.drivers.simulation.watched import Watched

#: What a person may ask the master of a job for, by the name that the history gives it.
COMMANDS: Final = {
    "savepoint": TakeSavepoint(SAVEPOINTS),
    "cancel": TakeSavepoint(SAVEPOINTS, cancels=True),
    "suspend": TakeSavepoint(SAVEPOINTS, StopMode.SUSPEND),
    "drain": TakeSavepoint(SAVEPOINTS, StopMode.DRAIN),
}

#: A savepoint beside the running job, one ahead of its cancellation, those that stop it, and a cancellation without
#: any, after which its last checkpoint is there.
KINDS = ("savepoint", "cancel", "suspend", "drain", "abandon")


#: How likely a cancellation without savepoint waits on, when there is no checkpoint.
PATIENCE = 0.9


@dataclass(frozen=True)
class Continuation:
    """Where the next job begins, if not at the beginning; `as_it_was`: with the previous program."""

    path: str | None
    as_it_was: bool = False


@dataclass
class Request:
    """Something that was asked of a job master, and what it answered: (path, error) each time."""

    kind: str
    master: JobMaster
    answers: list[tuple[str | None, str | None]] = field(default_factory=list)


class Person:
    """Makes the requests of the scenario, in their order, at random moments; tells `on_answer` of answers."""

    def __init__(self, simulation: Watched, on_answer: Callable[[Request, str | None, str | None], None]) -> None:
        wishes = simulation.scenario.wishes
        self.wishes = deque(wishes.kinds)
        #: all requests to the job of now
        self.requests: list[Request] = []
        self._simulation = simulation
        self._tell_answer = on_answer
        self._rates = wishes

    def look(self, was_protocol: bool) -> None:
        """Something has happened: perhaps ask for something."""
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
        """A person who goes on from the last checkpoint mostly waits until there is one.

        And always until the job master has looked into the store: before that, it does not know which one is the last.
        """
        if self.wishes[0] != "abandon":
            return False
        simulation, checkpoints = self._simulation, self._simulation.master.checkpoints
        if not checkpoints.knows_what_to_keep:
            return True
        return not checkpoints.completed and simulation.engine.chance.random() < PATIENCE

    def _wish_again(self) -> None:
        """A person who insists repeats a request that was refused, or that died with its job master."""
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
        """The job has ended: where the person goes on, when there is to be another job."""
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
            # A job master that found the job cancelled was not the one to be asked.
            own = [r for r in self.requests if r.kind == "cancel" and (r.master is master or master.had_ended)]
            granted = (r.answers for r in reversed(own))
            path = next((answers[0][0] for answers in granted if answers and answers[0][0] is not None), None)
            return Continuation(path or self._left_by(master))
        return None

    def _left_by(self, master: JobMaster) -> str | None:
        """The last checkpoint of a job that was cancelled, or what it began from when it came to none."""
        job = self._simulation.jobs.now
        last = master.checkpoints.last
        if last is not None:
            assert last.external_path is not None
            job.was_drained = job.savepoints[last.external_path] is StopMode.DRAIN and job.read_to is None
            return last.external_path
        if master.checkpoints.completed:
            return job.store.directory_of(master.checkpoints.completed[-1].checkpoint_id)
        return None if job.begun_from is None else job.begun_from.external_path

    def go_on(self) -> None:
        """The next job begins."""
        self.requests = []
