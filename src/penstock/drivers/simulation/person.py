"""The person operating a job: requests savepoints, stops and cancels it, and starts the next job from its state.

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
