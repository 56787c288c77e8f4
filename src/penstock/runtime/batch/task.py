"""One subtask of a batch job: a chain of operators that processes sorted rows or a source's splits, to their end.

`bounded_context` creates the operator contexts of tasks that run to an end, of a batch or of an epoch.

`OpenCalls` waits for a task's asynchronous calls: the task has nothing else to do and blocks until they return.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Protocol

from penstock.base.accumulators import Accumulator
from penstock.base.errors import UnsupportedError
from penstock.runtime.accumulators import pickled
from penstock.runtime.batch.exchange import (
    ACCUMULATORS,
    CLIENT,
    COMMITTABLES,
    METRICS,
    NO_KEY_PLACE,
    PASSED_ON_PLACE,
    Consumer,
    CountedExchange,
    CountedInput,
    Exchange,
    Rows,
    build_exchange,
    build_sequence,
    consumers_of_vertex,
    find_targets,
    first_with_key,
    is_keyed,
    loads_batch,
    process_with_key,
    task_metrics,
)
from penstock.runtime.graph import JobGraph
from penstock.runtime.operators.base import Answer, LockstepOperator, Output, Round, StreamOperator
from penstock.runtime.operators.connector import Emitted, SinkOperator, SourceOperator
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.ports import Clock, Coroutines
from penstock.runtime.protocol import ExecutionId
from penstock.runtime.records import MAX_WATERMARK, Batch
from penstock.runtime.supersteps import Superstep, SuperstepContext
from penstock.runtime.task.failures import EndedTask
from penstock.runtime.task.operator_chain import OperatorChain, VertexProgram, load_program
from penstock.state.backend import HeapKeyedStateBackend, KeyedStateBackend
from penstock.state.operator_state import OperatorStateBackend


class Vertex(Protocol):
    """The attributes that `BatchVertex` and `EpochVertex` have in common."""

    @property
    def job_id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def parallelism(self) -> int: ...

    @property
    def max_parallelism(self) -> int: ...


def bounded_context(
    vertex: Vertex,
    subtask: int,
    program: VertexProgram,
    index: int,
    keyed: KeyedStateBackend,
    rows: Rows,
    sequences: count[int],
    clock: Clock,
    coroutines: Coroutines | None,
    attempt: int = 0,
    is_batch: bool = False,
    superstep: Superstep | None = None,
    run: str = "",
) -> OperatorContext:
    """Return the context of the operator at `index` in the chain; data that it emits to the client becomes a row."""
    chained = program.operators[index]
    return OperatorContext(
        job_id=vertex.job_id,
        operator_id=chained.operator_id,
        operator_name=chained.name,
        task_name=vertex.name,
        subtask_index=subtask,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        attempt=attempt,
        clock=clock,
        # With this, a sink leaves the commit to others.
        checkpointing=True,
        is_batch=is_batch,
        keyed=keyed,
        operator_state=OperatorStateBackend(chained.name),
        emit_to_client=lambda payload: rows.append(CLIENT, index, next(sequences), payload),
        request_split=lambda: None,
        migrations=program.migrations,
        job_parameters=program.job_parameters,
        timers_after_end_max=program.timers_after_end_max,
        coroutines=coroutines,
        superstep=None if superstep is None else SuperstepContext(superstep),
        run=run and f"{attempt}-{run}",
    )


#: How long a task waits at a time, so that it can be cancelled in between.
WAIT_MS_MAX: Final = 100


class OpenCalls:
    """The open calls of a chain's operators. `wait(ms)`: see `BatchTask`."""

    def __init__(self, chain: OperatorChain, clock: Clock, wait: Callable[[int], None]) -> None:
        self._chain = chain
        self._clock = clock
        self._wait = wait

    def make_room(self) -> Iterator[None]:
        """Wait until the chain can accept more input; yield after each wait."""
        while not self._chain.is_available():
            self._go_on()
            yield

    def bring_back(self) -> Iterator[None]:
        """Wait until no call is open, head first, because results may cause new calls; yield after each wait."""
        while not all(operator.drain() for operator in self._chain.waiting):
            self._go_on()
            yield

    def finish(self, is_input_ended: bool) -> Iterator[None]:
        """Wait until all operators have finished; yield after each wait."""
        while not self._chain.finish(is_input_ended):
            self._go_on()
            yield

    def _go_on(self) -> None:
        """Wait until a call returns or times out; start the calls that a restored state requests."""
        chain, now_ms = self._chain, self._clock.now_ms()
        if chain.process_completions():
            return
        due_ms = min((t for o in chain.waiting if (t := o.next_timer_ms()) is not None), default=now_ms + WAIT_MS_MAX)
        self._wait(max(0, min(WAIT_MS_MAX, due_ms - now_ms)))
        chain.process_completions()
        now_ms = self._clock.now_ms()
        for operator in chain.waiting:
            due = operator.next_timer_ms()
            if due is not None and due <= now_ms:
                operator.on_processing_time(now_ms)


#: The number of records that a source emits at a time, and of output rows after which a task hands them on.
BATCH_RECORDS: Final = 4096

_NONE: Final = Rows()


@dataclass(frozen=True)
class BatchVertex:
    """A vertex in the form that is sent to its tasks. `inputs`: the input index of each of its edges."""

    job_id: str
    name: str
    parallelism: int
    max_parallelism: int
    program: bytes
    is_keyed: bool
    inputs: dict[int, int]
    consumers: dict[int, Consumer]
    #: Whether rows for the client arrive; if not, its operators' data for the client travels with the records.
    reaches_client: bool = True
    #: Whether the job has a client at all: a data frame does not.
    has_client: bool = True
    #: Set if the job is part of an iteration.
    superstep: Superstep | None = None
    index: int = 0


def batch_vertices(job_graph: JobGraph, job_id: str) -> list[BatchVertex]:
    """Return the vertices of a job, upstream before downstream."""
    keyed = [is_keyed(vertex) for vertex in job_graph.vertices]
    return [
        BatchVertex(
            job_id,
            vertex.name,
            vertex.parallelism,
            vertex.max_parallelism,
            vertex.program,
            keyed[vertex.index],
            {edge.index: edge.input_index for edge in job_graph.get_inputs(vertex.index)},
            consumers_of_vertex(job_graph, vertex, keyed),
            superstep=job_graph.superstep,
            index=vertex.index,
        )
        for vertex in job_graph.vertices
    ]


class BatchTask(EndedTask):
    """See the module docstring.

    The task calls `wait(ms)` when a source has nothing yet, or when open calls must return before the task can
    continue. `wait` returns after that time at the latest, and hands over the results of `coroutines` so far. `run`
    distinguishes the runs of one task, if there may be several.

    Attributes:
        round: the data that the task exchanges with the other subtasks; the task continues when it has the answer.
    """

    def __init__(
        self,
        vertex: BatchVertex,
        subtask: int,
        clock: Clock,
        wait: Callable[[int], None],
        coroutines: Coroutines | None = None,
        run: str = "",
    ) -> None:
        self._vertex = vertex
        self._subtask = subtask
        self._clock = clock
        self._begun_ms = clock.steady_ms()
        self._wait = wait
        self._coroutines = coroutines
        self._run = run
        self.round: Round | None = None
        self._answer: Answer | None = None
        self._rows = Rows()
        self._sequences = build_sequence(subtask)
        #: Pickled accumulators of upstream operators, which arrived with the records; then the chain's own.
        self._accumulators: list[bytes] = []
        program = load_program(vertex.program, vertex.name)
        self._exchanges = {edge: CountedExchange(exchange) for edge, exchange in self._make_exchanges(program).items()}
        self._chain = OperatorChain(program, self._exchanges)  # type: ignore[arg-type]
        self._calls = OpenCalls(self._chain, clock, wait)
        contexts = [self._build_context(program, index) for index in range(len(program.operators))]
        self._chain.setup(contexts)
        self._outputs = [_Silent(operator.output) for operator in self._chain.operators]
        for operator, output in zip(self._chain.operators, self._outputs, strict=True):
            operator.output = output
        self._head = self._chain.head
        self._input = CountedInput(self._head.process_batch)
        #: The place of the last row's key; its records may continue in the next rows.
        self._open_place: int | None = None

    def run(self, inputs: Iterable[Rows]) -> Iterator[Rows]:
        """Process sorted rows; yield output as it arises, and empty rows for progress without output."""
        yield from self._whole_life(self._process(inputs))

    def run_source(self, splits: tuple[bytes, ...]) -> Iterator[Rows]:
        """Read splits to their end."""
        yield from self._whole_life(self._read(splits))

    def run_values(self, batches: Iterable[Batch]) -> Iterator[Rows]:
        """Process batches that the driver has read, in the chain after a source."""
        yield from self._whole_life(self._emit(batches))

    @property
    def operators(self) -> list[StreamOperator]:
        """The operators of the chain, head first."""
        return self._chain.operators

    # --- the life of the chain -------------------------------------------------------------------------------------

    def _whole_life(self, work: Iterator[None]) -> Iterator[Rows]:
        chain = self._chain
        with chain.closing():
            chain.initialize_and_open()
            self._check_accumulators()
            for _ in work:
                yield from (_NONE for _ in self._calls.make_room())
                yield self._take_rows() if len(self._rows) >= BATCH_RECORDS else _NONE
            if isinstance(self._head, LockstepOperator):
                yield from self._keep_step(self._head)
            self._end_input()
            yield from (_NONE for _ in self._calls.finish(is_input_ended=bool(self._vertex.inputs)))
            self._prepare_last()
            self._report()
            yield self._take_rows()

    def release(self) -> None:
        """Drop operators and state after the task has ended, see `StreamOperator.release`."""
        if hasattr(self, "_chain"):  # its program may not have been loaded
            self._chain.release()

    def _keep_step(self, head: LockstepOperator) -> Iterator[Rows]:
        rounds = head.rounds()
        try:
            self.round = next(rounds)
            while True:
                while self.round is not None:
                    yield _NONE
                assert self._answer is not None
                answer, self._answer = self._answer, None
                self.round = rounds.send(answer)
        except StopIteration:
            return
        finally:
            rounds.close()

    def answer(self, answer: Answer) -> None:
        """Set the answer to `round`."""
        self.round, self._answer = None, answer

    def _check_accumulators(self) -> None:
        names = [name for context in self._chain.contexts for name in context.accumulators]
        if names and not self._vertex.has_client:
            raise UnsupportedError(
                f"accumulator {names[0]!r}: a stream that is turned into a data frame has no job result to report it"
            )

    def _end_input(self) -> None:
        chain = self._chain
        for output in self._outputs:
            output.is_silent = False
        head = self._head
        if isinstance(head, SourceOperator):
            head.output.emit_watermark(MAX_WATERMARK)
        else:
            head.process_watermark(MAX_WATERMARK)
            for input_index in sorted(set(self._vertex.inputs.values())):
                chain.end_input(input_index)

    def _prepare_last(self) -> None:
        for index, operator in enumerate(self._chain.operators):
            if isinstance(operator, SinkOperator):
                committables = operator.prepare_last()
                if committables:
                    self._rows.append(COMMITTABLES, index, next(self._sequences), operator.pickled(committables))
        for context in self._chain.contexts:
            accumulators: list[tuple[str, Accumulator[Any, Any]]] = list(context.accumulators.items())
            if context.superstep is not None:
                accumulators += context.superstep.used()
            if accumulators:
                pairs = [(name, pickled(accumulator)) for name, accumulator in accumulators]
                self._accumulators.append(pickle.dumps(pairs, 5))
        if self._accumulators and self._vertex.has_client:
            self._send_accumulators()

    def _send_accumulators(self) -> None:
        """Send accumulators to the client, or to one consumer with the records: they count where the records do."""
        if self._vertex.reaches_client:
            edge, target, position = ACCUMULATORS, 0, NO_KEY_PLACE
        else:
            edge, target = self._way_on()
            position = PASSED_ON_PLACE
        for payload in self._accumulators:
            self._rows.append(edge, target, next(self._sequences), payload, place=position)

    def _way_on(self) -> tuple[int, int]:
        """Return an edge and a consumer that this subtask may send to."""
        out = self._chain.program.out_edges[0]
        reached = find_targets(out, self._vertex.consumers[out.edge], self._subtask, self._vertex.parallelism)
        return out.edge, reached[self._subtask % len(reached)]

    def _report(self) -> None:
        if self._vertex.reaches_client and self._vertex.has_client:
            execution = ExecutionId(self._vertex.index, self._subtask, 0)
            busy_ms = self._clock.steady_ms() - self._begun_ms
            payload = task_metrics(execution, self._chain, self._input, self._exchanges, MAX_WATERMARK, busy_ms)
            self._rows.append(METRICS, 0, next(self._sequences), payload)

    def _take_rows(self) -> Rows:
        """Remove and return the rows so far; later rows start from an empty table."""
        taken = Rows()
        for mine, theirs in zip(self._rows.columns(), taken.columns(), strict=True):
            theirs.extend(mine)
            mine.clear()
        return taken

    # --- input -----------------------------------------------------------------------------------------------------

    def _read(self, splits: tuple[bytes, ...]) -> Iterator[None]:
        head = self._head
        assert isinstance(head, SourceOperator)
        head.add_splits(splits, True)
        while (emitted := head.emit_next(BATCH_RECORDS)) is not Emitted.END:
            if emitted is Emitted.NOTHING:
                due_ms = head.next_timer_ms()
                self._wait(1 if due_ms is None else max(1, due_ms - self._clock.now_ms()))
            yield

    def _emit(self, batches: Iterable[Batch]) -> Iterator[None]:
        head = self._head
        assert isinstance(head, SourceOperator)
        for batch in batches:
            head.emit(batch)
            yield

    def _process(self, inputs: Iterable[Rows]) -> Iterator[None]:
        if not self._vertex.is_keyed:
            process, input_of = self._input, self._vertex.inputs
            for rows in inputs:
                for edge, position, payload in zip(rows.edges, rows.places, rows.payloads, strict=True):
                    if position == PASSED_ON_PLACE:
                        self._accumulators.append(payload)
                    elif payload:
                        process(loads_batch(payload), input_of[edge])
                        yield
            return
        for rows in inputs:
            if len(rows):
                yield from self._process_keys(rows)
        self._end_keys()

    def _process_keys(self, rows: Rows) -> Iterator[None]:
        """Process the rows. All keys except the last one are complete; the last one may continue in the next rows."""
        positions = rows.places
        last = positions[-1]
        cut = bisect_left(positions, last)
        if cut:
            self._process_range(rows, 0, cut)
            yield
        if last != self._open_place:
            self._end_keys()
            self._open_place = last
        self._process_range(rows, cut, len(positions))
        yield

    def _process_range(self, rows: Rows, begin: int, end: int) -> None:
        inputs, process = self._vertex.inputs, self._input
        begin_of_keys = first_with_key(rows, begin, end)
        for row in range(begin, begin_of_keys):
            if rows.places[row] == PASSED_ON_PLACE:
                self._accumulators.append(rows.payloads[row])
            elif rows.payloads[row]:
                process(loads_batch(rows.payloads[row]), inputs[rows.edges[row]])
        process_with_key(rows, begin_of_keys, end, inputs, process)

    def _end_keys(self) -> None:
        self._head.end_keys()
        keyed = self._chain.contexts[0].keyed
        assert isinstance(keyed, HeapKeyedStateBackend)
        keyed.clear()

    # --- what the chain is given -----------------------------------------------------------------------------------

    def _make_exchanges(self, program: VertexProgram) -> dict[int, Exchange]:
        vertex = self._vertex
        return {
            out.edge: build_exchange(
                out, vertex.consumers[out.edge], self._rows, self._sequences, self._subtask, vertex.parallelism
            )
            for out in program.out_edges
        }

    def _build_context(self, program: VertexProgram, index: int) -> OperatorContext:
        keyed = HeapKeyedStateBackend(self._vertex.max_parallelism, program.operators[index].title)
        return bounded_context(
            self._vertex,
            self._subtask,
            program,
            index,
            keyed,
            self._rows,
            self._sequences,
            self._clock,
            self._coroutines,
            is_batch=True,
            superstep=self._vertex.superstep,
            run=self._run,
        )


class _Silent:
    """Wraps an operator's output, and blocks watermarks until the end."""

    def __init__(self, output: Output) -> None:
        self.is_silent = True
        self._output = output
        self.collect = output.collect
        self.collect_side = output.collect_side

    def emit_watermark(self, timestamp: int) -> None:
        if not self.is_silent:
            self._output.emit_watermark(timestamp)

    def emit_status(self, idle: bool) -> None:
        """Do nothing: no task waits for a watermark, so idleness does not matter."""
