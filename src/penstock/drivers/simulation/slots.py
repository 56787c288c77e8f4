"""Slots that appear and disappear, and a person's requests to rescale a running job (E3)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock.core.job.job_master import JobMaster
from penstock.core.job.resource_requirements import compute_requirements
from penstock.drivers.simulation.changes import holds_calls, records_in_flight
from penstock.drivers.simulation.cluster import MANY_SLOTS
from penstock.drivers.simulation.elasticity import Elasticity
from penstock.drivers.simulation.watched import Watched

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
