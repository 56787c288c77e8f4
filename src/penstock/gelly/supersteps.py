"""Iterations over the vertices of a graph: settings, user-defined functions, aggregators, and their operator.

`IterationConfiguration` has the settings that all kinds of iterations share, and `SuperstepFunction` is the base of
their functions. `Aggregates` holds the aggregators of a superstep; see `penstock.common.aggregators`. A `Partition` has
the vertices of one partition with their edges, as functions see them, and `Outboxes` the messages between partitions. A
`Model` is the superstep of a kind of iteration.

`SuperstepOperator` runs the functions superstep by superstep, in lockstep with its other subtasks. It holds a partition
of the graph: vertices by id, each with its edges. Subtasks exchange only messages, and two small reports in each
superstep. The loop ends after the superstep that leaves no vertex active, or at the maximum.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from penstock.base.accumulators import Aggregator
from penstock.base.errors import UnknownNameError, WrongTimeError, WrongTypeError, WrongValueError
from penstock.datastream.data_stream import DataStream
from penstock.datastream.function import Function
from penstock.gelly.base import Edge, EdgeDirection, Owners, Vertex, check_stream
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import Answer, LockstepOperator, Round, UserCodeError
from penstock.runtime.operators.function_context import RuntimeContext
from penstock.runtime.records import Batch


class IterationConfiguration:
    """The settings common to all kinds of iterations."""

    #: The functions that may have broadcast sets.
    functions: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.name: str | None = None
        self.parallelism: int | None = None
        self.aggregators: dict[str, Aggregator[Any]] = {}
        self.direction = EdgeDirection.OUT
        self.wants_degrees = False
        self.wants_number_of_vertices = False
        #: (function, name) -> stream
        self.broadcast: dict[tuple[str, str], DataStream] = {}

    def set_name(self, name: str) -> Self:
        """Set the name of the iteration in plans, logs and errors."""
        self.name = name
        return self

    def get_name(self, default_name: str) -> str:
        """Return the name, or `default_name` if it is unset."""
        return self.name or default_name

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of partitions of the graph (default: the environment's parallelism).

        Raises:
            ValueError: if it is less than 1.
        """
        if parallelism < 1:
            raise WrongValueError(f"the parallelism must be 1 or more, not {parallelism}")
        self.parallelism = parallelism
        return self

    def get_parallelism(self) -> int:
        """Return the parallelism, or -1 if it is unset."""
        return -1 if self.parallelism is None else self.parallelism

    def register_aggregator(self, name: str, aggregator: Aggregator[Any]) -> Self:
        """Register an aggregator for the functions.

        Raises:
            ValueError: if the name is already registered.
        """
        if not isinstance(aggregator, Aggregator):
            raise WrongTypeError(f"{aggregator!r} is not an Aggregator; see penstock.common.aggregators")
        if name in self.aggregators:
            raise WrongValueError(f"the iteration already has an aggregator {name!r}")
        self.aggregators[name] = aggregator
        return self

    def get_aggregators(self) -> dict[str, Aggregator[Any]]:
        """Return the aggregators by name."""
        return dict(self.aggregators)

    def set_opt_num_vertices(self, opt_num_vertices: bool) -> Self:
        """Set whether `get_number_of_vertices` of the functions returns the number of vertices, not -1."""
        self.wants_number_of_vertices = opt_num_vertices
        return self

    def is_opt_num_vertices(self) -> bool:
        """Return whether `get_number_of_vertices` of the functions returns the number of vertices."""
        return self.wants_number_of_vertices

    def _broadcast(self, function: str, name: str, data: DataStream) -> Self:
        if (function, name) in self.broadcast:
            raise WrongValueError(f"the {function} function already has a broadcast set {name!r}")
        self.broadcast[function, name] = check_stream(data, f"broadcast set {name!r}")
        return self


class WithDirection(IterationConfiguration):
    """Settings of an iteration that may follow edges in either direction."""

    def set_direction(self, direction: EdgeDirection) -> Self:
        """Set the edges of a vertex that messages follow: outgoing (the default), incoming, or all.

        Raises:
            TypeError: if it is not an `EdgeDirection`.
        """
        if not isinstance(direction, EdgeDirection):
            raise WrongTypeError(f"the direction must be EdgeDirection.IN, OUT or ALL, not {direction!r}")
        self.direction = direction
        return self

    def get_direction(self) -> EdgeDirection:
        """Return the edges of a vertex that messages follow."""
        return self.direction


class Aggregates:
    """The aggregators of one superstep, and the aggregates of the previous one."""

    def __init__(self, registered: Mapping[str, Aggregator[Any]]) -> None:
        self._registered = registered
        self._used: dict[str, Aggregator[Any]] = {}
        self._previous: dict[str, Any] = {}

    def aggregator(self, name: str) -> Aggregator[Any]:
        """Return this subtask's copy, empty at the start of the superstep. Raises `KeyError` if unregistered."""
        aggregator = self._used.get(name)
        if aggregator is None:
            aggregator = self._used[name] = self._fresh(name)
        return aggregator

    def previous(self, name: str) -> Any:
        """Return the aggregate of the previous superstep; None in the first. Raises `KeyError` if unregistered."""
        self._check(name)
        return self._previous.get(name)

    def parts(self) -> dict[str, Any]:
        """Return the aggregates of this subtask's copies that were used."""
        return {name: aggregator.get_aggregate() for name, aggregator in self._used.items()}

    def end_superstep(self, parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Merge the parts of all subtasks and start over. Returns the aggregates."""
        aggregators = {name: self._fresh(name) for name in self._registered}
        for part in parts:
            for name, value in part.items():
                aggregators[name].aggregate(value)
        self._used.clear()
        self._previous = {name: aggregator.get_aggregate() for name, aggregator in aggregators.items()}
        return self._previous

    def _fresh(self, name: str) -> Aggregator[Any]:
        self._check(name)
        aggregator = copy.deepcopy(self._registered[name])
        aggregator.reset()
        return aggregator

    def _check(self, name: str) -> None:
        if name not in self._registered:
            known = ", ".join(map(repr, self._registered)) or "none"
            raise UnknownNameError(f"the iteration has no aggregator {name!r}; registered: {known}")


@dataclass
class SuperstepView:
    """A function's view of its superstep. `broadcast` holds its broadcast sets by name."""

    aggregates: Aggregates
    broadcast: Mapping[str, list[Any]] = field(default_factory=dict)
    number: int = 0
    number_of_vertices: int = -1


class SuperstepFunction(Function):
    """Knows its superstep, aggregators and broadcast sets.

    `open` and `close` are called once, around all supersteps. A subtask has one object of the function, which may keep
    data from one superstep to the next.
    """

    _view: SuperstepView | None = None

    def pre_superstep(self) -> None:
        """Run before a superstep's first vertex, in every subtask."""

    def post_superstep(self) -> None:
        """Run after a superstep's last vertex, in every subtask."""

    def get_superstep_number(self) -> int:
        """Return the number of the superstep, from 1."""
        return self._superstep.number

    def get_iteration_aggregator(self, name: str) -> Aggregator[Any]:
        """Return this subtask's copy of an aggregator, empty at the start of the superstep.

        Raises:
            KeyError: if the name is not registered.
        """
        return self._superstep.aggregates.aggregator(name)

    def get_previous_iteration_aggregate(self, name: str) -> Any:
        """Return an aggregate of the previous superstep, over all subtasks; None in the first superstep.

        Raises:
            KeyError: if the name is not registered.
        """
        return self._superstep.aggregates.previous(name)

    def get_broadcast_set(self, name: str) -> list[Any]:
        """Return all records of a broadcast stream.

        Raises:
            KeyError: if the iteration's configuration has no broadcast set of that name for this function.
        """
        sets = self._superstep.broadcast
        if name not in sets:
            known = ", ".join(map(repr, sets)) or "none"
            raise UnknownNameError(f"this function has no broadcast set {name!r}; it has: {known}")
        return sets[name]

    def get_number_of_vertices(self) -> int:
        """Return the number of vertices, or -1 unless the configuration requests it (`set_opt_num_vertices`)."""
        return self._superstep.number_of_vertices

    def _begin(self, view: SuperstepView) -> None:
        self._view = view

    @property
    def _superstep(self) -> SuperstepView:
        if self._view is None:
            raise WrongTimeError("a function knows of its superstep only while an iteration runs it")
        return self._view


#: Messages by the id of their target vertex.
Box = dict[Any, list[Any]]


class Partition:
    """Vertices, numbered in the order of their arrival."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.index: dict[Any, int] = {}
        self.ids: list[Any] = []
        self.values: list[Any] = []
        self._by_source: dict[Any, list[Edge]] = {}
        self._by_target: dict[Any, list[Edge]] = {}
        #: the edges of each vertex, set by `seal`
        self.out_edges: list[list[Edge]] = []
        self.in_edges: list[list[Edge]] = []

    def __len__(self) -> int:
        return len(self.ids)

    def add_vertices(self, batch: Batch) -> None:
        """Add vertices. If an id has several, the last one counts."""
        for vertex_id, value in to_records(batch):
            position = self.index.setdefault(vertex_id, len(self.ids))
            if position == len(self.ids):
                self.ids.append(vertex_id)
                self.values.append(value)
            else:
                self.values[position] = value

    def add_edges(self, batch: Batch, end: int) -> None:
        """Add edges to the vertices at their source (0) or target (1)."""
        edges = self._by_target if end else self._by_source
        for record in to_records(batch):
            edges.setdefault(record[end], []).append(Edge(*record))

    def seal(self) -> None:
        """Complete the partition at the end of the input."""
        self.out_edges = [self._by_source.get(vertex_id, []) for vertex_id in self.ids]
        self.in_edges = [self._by_target.get(vertex_id, []) for vertex_id in self.ids]
        self._by_source, self._by_target = {}, {}

    def vertex(self, position: int) -> Vertex:
        """Return the vertex of this number."""
        return Vertex(self.ids[position], self.values[position])


def to_records(batch: Batch) -> Iterable[Any]:
    """Return the records of a batch as plain tuples."""
    if isinstance(batch, ColumnBatch):
        return zip(*(column.to_pylist() for column in batch.columns.columns), strict=True)
    return batch.values


class Outboxes:
    """Messages for the vertices of all partitions."""

    def __init__(self, partitions: int) -> None:
        self._owners = Owners(partitions)
        self._partitions = partitions
        self._boxes: list[Box] = []
        self.begin()

    def begin(self) -> None:
        """Empty the boxes."""
        self._boxes = [defaultdict(list) for _ in range(self._partitions)]

    def send(self, target: Any, message: Any) -> None:
        """Put a message into the box of the target's partition."""
        self._boxes[self._owners[target]][target].append(message)

    def take(self, combine: Callable[[list[Any]], list[Any]] | None) -> list[Box | None]:
        """Return the boxes, with the messages of each vertex combined, and None for empty boxes."""
        boxes: list[Box | None] = []
        for box in self._boxes:
            if combine is not None:
                boxes.append({target: combine(messages) for target, messages in box.items()} or None)
            else:
                boxes.append(dict(box) or None)
        self.begin()
        return boxes


def merged(boxes: Iterable[Box | None], combine: Callable[[list[Any]], list[Any]] | None) -> Box:
    """Return the messages from all partitions for this one. Messages to the same vertex are combined."""
    inbox: Box = {}
    for box in boxes:
        for target, messages in (box or {}).items():
            if target in inbox:
                both = inbox[target] + messages
                inbox[target] = both if combine is None else combine(both)
            else:
                inbox[target] = messages
    return inbox


def count_messages(boxes: Iterable[Box | None]) -> int:
    """Return the number of messages."""
    return sum(sum(map(len, box.values())) for box in boxes if box)


Combine = Callable[[list[Any]], list[Any]]


class Model(ABC):
    """One subtask's functions and their data. A superstep sends messages, then processes the messages that arrive.

    Attributes:
        name: the name of the iteration in plans.
        functions: the user-defined functions, by their names in configurations.
        settles: whether processing messages belongs to the superstep that sent them; if not, to the next one.
    """

    name: str
    operator_name: str = ""
    functions: Mapping[str, SuperstepFunction]
    settles = True

    def set_up(self, partition: Partition, direction: EdgeDirection) -> None:
        """Set up the model with a complete partition."""
        self.partition = partition
        self.direction = direction
        self.outboxes = Outboxes(partition.partitions)
        #: the numbers of the vertices that are active in the next superstep
        self.active: list[int] = list(range(len(partition)))

    def open(self, runtime_context: RuntimeContext, aggregates: Aggregates, broadcast: Mapping[Any, list[Any]]) -> None:
        """Open the functions, each with its own view."""
        self._views = {
            kind: SuperstepView(aggregates, {name: data for (of, name), data in broadcast.items() if of == kind})
            for kind in self.functions
        }
        for function in self.functions.values():
            function.open(runtime_context)

    def close(self) -> None:
        """Close the functions."""
        for function in self.functions.values():
            function.close()

    def begin(self, number: int, number_of_vertices: int) -> None:
        """Begin a superstep."""
        for kind, function in self.functions.items():
            view = self._views[kind]
            view.number, view.number_of_vertices = number, number_of_vertices
            function._begin(view)

    @abstractmethod
    def send(self) -> list[Box | None]:
        """Let the active vertices send. Returns the messages for each partition."""

    @abstractmethod
    def receive(self, boxes: list[Box | None]) -> None:
        """Process messages, and find the vertices that are active next."""


def each(
    function: Callable[[Any], None], things: Iterable[Any], operator_name: str, record_of: Callable[[Any], Any]
) -> None:
    """Call a function with each item. An exception names the operator and the item's record."""
    for thing in things:
        try:
            function(thing)
        except Exception as error:
            raise UserCodeError(operator_name, record_of(thing)) from error


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
