"""The operator that runs user-defined functions superstep by superstep, in lockstep with its other subtasks.

It holds a partition of the graph: vertices by id, each with its edges. Subtasks exchange only messages, and two small
reports in each superstep. The loop ends after the superstep that leaves no vertex active, or at the maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.operators.lockstep import Answer, LockstepOperator, Round
from penstock.core.operators.runtime_context import RuntimeContext
from penstock.core.records import Batch
from penstock.gelly.base.elements import EdgeDirection
from penstock.gelly.supersteps.aggregates import Aggregates
from penstock.gelly.supersteps.configuration import IterationConfiguration
from penstock.gelly.supersteps.model import Model
from penstock.gelly.supersteps.partition import Partition, count_messages

#: The inputs: vertices, edges by source, edges by target, and broadcast sets from here on.
VERTICES, BY_SOURCE, BY_TARGET, BROADCAST = 0, 1, 2, 3
_EMITTED_AT_A_TIME: Final = 4096


@dataclass(frozen=True)
class SuperstepSettings:
    """The settings of an iteration for the operator. `broadcast` holds (function, name) of each broadcast input."""

    name: str
    max_iterations: int
    aggregators: dict[str, Any]
    direction: EdgeDirection
    wants_number_of_vertices: bool
    broadcast: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, name: str, configuration: IterationConfiguration, max_iterations: int) -> SuperstepSettings:
        """Create the settings from the user's configuration."""
        return cls(
            name,
            max_iterations,
            dict(configuration.aggregators),
            configuration.direction,
            configuration.wants_number_of_vertices,
            tuple(configuration.broadcast),
        )


class SuperstepOperator(LockstepOperator):
    """See the module docstring.

    Args:
        make_model: creates the model of the iteration, with the user-defined functions.
        settings: the settings of the iteration.
    """

    def __init__(self, make_model: Callable[[], Model], settings: SuperstepSettings) -> None:
        self._settings = settings
        self._model = make_model()

    def open(self) -> None:
        """Start without vertices."""
        self._partition = Partition(self.context.parallelism)
        self._broadcast: dict[tuple[str, str], list[Any]] = {of: [] for of in self._settings.broadcast}
        self._is_open = False

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Add a part of the graph or of a broadcast set."""
        if input_index == VERTICES:
            self._partition.add_vertices(batch)
        elif input_index in (BY_SOURCE, BY_TARGET):
            self._partition.add_edges(batch, input_index - BY_SOURCE)
        else:
            self._broadcast[self._settings.broadcast[input_index - BROADCAST]].extend(batch.values)

    def rounds(self) -> Generator[Round, Answer, None]:
        """Run all supersteps, and emit the vertices at the end."""
        self._partition.seal()
        settings, model, subtasks = self._settings, self._model, self.context.parallelism
        model.operator_name = self.context.operator_name
        model.set_up(self._partition, settings.direction)
        aggregates = Aggregates(settings.aggregators)
        self._is_open = True
        model.open(RuntimeContext(self.context), aggregates, self._broadcast)
        answer = yield Round([None] * subtasks, len(self._partition))
        vertices = sum(answer.reports)
        known = vertices if settings.wants_number_of_vertices else -1
        end, number = "the maximum", 0
        active = vertices
        while number < settings.max_iterations:
            if not active:
                end = "no vertex is active"
                break
            number += 1
            begun_ms = self.context.clock.steady_ms()
            model.begin(number, known)
            boxes = model.send()
            sent = count_messages(boxes)
            report = sent, ({} if model.settles else aggregates.parts())
            answer = yield Round(boxes, report)
            messages = sum(report[0] for report in answer.reports)
            model.receive(list(answer.payloads))
            if model.settles:
                answer = yield Round([None] * subtasks, (len(model.active), aggregates.parts()))
                updated = sum(report[0] for report in answer.reports)
                figures, active = f"{active} vertices active, {updated} set", updated
            else:
                figures, active = f"{active} vertices active", messages
            aggregated = aggregates.end_superstep(report[1] for report in answer.reports)
            seconds = (self.context.clock.steady_ms() - begun_ms) / 1000
            rest = "".join(f", {name} = {value}" for name, value in aggregated.items())
            yield self._told(f"superstep {number}: {figures}, {messages} messages{rest}, {seconds:.2f} s")
        yield self._told(f"ended after {number} supersteps: {end}")
        self._close_model()
        for batch in self._results():
            self.output.collect(batch)

    def _told(self, text: str) -> Round:
        return Round([None] * self.context.parallelism, None, f"iteration {self._settings.name!r}: {text}")

    def _results(self) -> Iterator[Batch]:
        size = len(self._partition)
        for begin in range(0, size, _EMITTED_AT_A_TIME):
            positions = range(begin, min(begin + _EMITTED_AT_A_TIME, size))
            yield Batch([self._partition.vertex(position) for position in positions])

    def _close_model(self) -> None:
        if self._is_open:
            self._is_open = False
            self._model.close()

    def close(self) -> None:
        """Close the functions, if they are open."""
        self._close_model()
