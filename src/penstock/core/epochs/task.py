"""One subtask in one epoch: restore, process what is there, let event time advance, snapshot."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from penstock.core.batch.calls import OpenCalls
from penstock.core.batch.contexts import bounded_context
from penstock.core.batch.exchange import BatchExchange, loads_batch, sequences_of
from penstock.core.batch.figures import CountedExchange, CountedInput, task_metrics
from penstock.core.batch.rows import COMMITTABLES, METRICS, Rows
from penstock.core.epochs.work import EpochAnswer, EpochVertex, EpochWork
from penstock.core.job.pointwise import consumers_of
from penstock.core.operators.base import OperatorContext, Output, StreamOperator
from penstock.core.operators.sink import SinkOperator
from penstock.core.operators.source import Emitted, SourceOperator
from penstock.core.ports import Clock, Coroutines, KeyedBackends, StateStorage
from penstock.core.protocol import ExecutionId
from penstock.core.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.core.task.operator_chain import OperatorChain
from penstock.core.task.program import OutEdge, VertexProgram
from penstock.core.task.state_transfer import SnapshotWriter, StateHistories, restore_operator
from penstock.state.key_groups import key_group_range

#: In place of an edge: a task's `EpochAnswer`.
ANSWER: Final = -3
#: Records that a source hands over at a time, and output rows after which a task lets go of them.
BATCH_RECORDS: Final = 4096


class EpochTask:
    """See the module's text. `run` may be called once.

    Calls that an epoch's records have made are waited for, so that their results belong to the epoch; `wait` and
    `coroutines`: see `BatchTask`.
    """

    def __init__(
        self,
        vertex: EpochVertex,
        subtask: int,
        work: EpochWork,
        clock: Clock,
        storage: StateStorage,
        backends: KeyedBackends,
        token: bytes = b"-",
        wait: Callable[[int], None] = lambda ms: None,
        coroutines: Coroutines | None = None,
    ) -> None:
        self._vertex = vertex
        self._subtask = subtask
        self._work = work
        self._clock = clock
        self._storage = storage
        self._backends = backends
        self._coroutines = coroutines
        # Every epoch has its own attempt, so that what sinks write in two of them never has one name.
        self._execution = ExecutionId(vertex.index, subtask, work.epoch)
        self._key_groups = key_group_range(subtask, vertex.max_parallelism, vertex.parallelism)
        self._rows = Rows()
        self._sequences = sequences_of(subtask)
        self._histories = StateHistories()
        self._token = token
        self._used: set[bytes] = set()
        self._records_read = 0
        #: the lowest watermark that all producers have come to
        self._input_watermark: int | None = None

        program: VertexProgram = pickle.loads(vertex.program)
        self._exchanges = {out.edge: CountedExchange(self._exchange(out)) for out in program.out_edges}
        chain = self._chain = OperatorChain(program, self._exchanges)  # type: ignore[arg-type]
        self._input = CountedInput(chain.head.process_batch)
        self._calls = OpenCalls(chain, clock, wait)
        chain.setup([self._context_for(program, index) for index in range(len(program.operators))])
        self._outputs = [
            _Onwards(operator.output, work.watermarks.get(index, MIN_TIMESTAMP))
            for index, operator in enumerate(chain.operators)
        ]
        for operator, output in zip(chain.operators, self._outputs, strict=True):
            operator.output = output

    def run(self, inputs: Iterable[Rows]) -> Iterator[Rows]:
        """Process the epoch's rows, which come in any order; yields the output by and by, the answer last."""
        chain = self._chain
        try:
            self._restore()
            chain.initialize_and_open()
            self._check_accumulators()
            self._go_on_in_time()
            has_ended = False
            if isinstance(chain.head, SourceOperator):
                for ended in self._read(chain.head):
                    has_ended = ended
                    yield from (Rows() for _ in self._calls.make_room())
                    yield from self._let_go()
                if has_ended or self._work.ends:
                    chain.head.output.emit_watermark(MAX_WATERMARK)
            else:
                for rows in inputs:
                    self._process(rows)
                    yield from (Rows() for _ in self._calls.make_room())
                    yield from self._let_go()
                self._advance(chain.head)
            chain.on_processing_time(self._clock.now_ms())
            yield from (Rows() for _ in self._calls.bring_back())
            if self._work.ends:
                for input_index in sorted(set(self._vertex.inputs.values())):
                    chain.end_input(input_index)
                yield from (Rows() for _ in self._calls.finish(is_input_ended=bool(self._vertex.inputs)))
            operators = self._snapshot()
            self._report()
            answer = EpochAnswer(
                operators, self._watermarks(), has_ended, self._records_read, self._token, frozenset(self._used)
            )
            self._tell_watermarks()
            self._rows.append(ANSWER, self._subtask, next(self._sequences), pickle.dumps(answer, 5))
            yield self._rows
        finally:
            errors = chain.close()
        for error in errors:
            raise error

    def _let_go(self) -> Iterator[Rows]:
        if len(self._rows) >= BATCH_RECORDS:
            yield self._rows.take()

    # --- state -----------------------------------------------------------------------------------------------------

    def _restore(self) -> None:
        work = self._work
        for context in self._chain.contexts:
            context.operator_state.restored_checkpoint_id = work.restored_id
            restored = work.restored.get(context.operator_id)
            if restored is not None:
                histories = self._histories if work.builds_on_restored else None
                restore_operator(restored, context, self._storage, self._key_groups, histories, _nothing_in_flight)

    def _snapshot(self) -> Any:
        chain, epoch = self._chain, self._work.epoch
        if not self._work.ends:
            for operator in chain.operators:
                operator.prepare_snapshot(epoch)
        captures = {
            context.operator_id: operator.snapshot_state(epoch)
            for operator, context in zip(chain.operators, chain.contexts, strict=True)
        }
        for index, operator in enumerate(chain.operators):
            if isinstance(operator, SinkOperator):
                committables = operator.prepared(epoch)
                if committables:
                    self._rows.append(COMMITTABLES, index, next(self._sequences), pickle.dumps(committables, 5))
        writer = SnapshotWriter(
            self._storage,
            epoch,
            self._execution,
            self._key_groups,
            self._vertex.max_parallelism,
            self._work.savepoint_path,
        )
        return writer.store(captures, self._histories.confirmed)

    # --- records and time ------------------------------------------------------------------------------------------

    def _go_on_in_time(self) -> None:
        """Let every operator know where event time stood: what was late then is late now."""
        for index, chained in enumerate(self._chain.program.operators):
            before = self._work.watermarks.get(chained.parent if chained.parent >= 0 else -1, MIN_TIMESTAMP)
            if before != MIN_TIMESTAMP and not isinstance(self._chain.operators[index], SourceOperator):
                self._chain.operators[index].process_watermark(before)

    def _read(self, head: SourceOperator) -> Iterator[bool]:
        work = self._work
        head.add_splits(work.splits, work.no_more_splits)
        if work.ends:
            return
        limit = work.records_max
        while limit is None or head.records_out < limit:
            emitted = head.emit_next(BATCH_RECORDS if limit is None else min(BATCH_RECORDS, limit - head.records_out))
            self._records_read = head.records_out
            yield emitted is Emitted.END
            if emitted is not Emitted.RECORDS:
                return

    def _process(self, rows: Rows) -> None:
        inputs = self._vertex.inputs
        for edge, timestamp, payload in zip(rows.edges, rows.timestamps, rows.payloads, strict=True):
            if timestamp is not None:
                self._used.add(payload)
                known = self._input_watermark
                self._input_watermark = timestamp if known is None else min(known, timestamp)
            else:
                self._input(loads_batch(payload), inputs[edge])

    def _advance(self, head: StreamOperator) -> None:
        watermark = self._input_watermark
        if watermark is not None and watermark > self._work.watermarks.get(-1, MIN_TIMESTAMP):
            head.process_watermark(watermark)

    def _watermarks(self) -> dict[int, int]:
        found = {index: output.watermark for index, output in enumerate(self._outputs)}
        reached = MIN_TIMESTAMP if self._input_watermark is None else self._input_watermark
        found[-1] = max(self._work.watermarks.get(-1, MIN_TIMESTAMP), reached)
        return found

    def _report(self) -> None:
        own = self._outputs[0].watermark if isinstance(self._chain.head, SourceOperator) else self._watermarks()[-1]
        payload = task_metrics(self._execution, self._chain, self._input, self._exchanges, own)
        self._rows.append(METRICS, 0, next(self._sequences), payload)

    def _tell_watermarks(self) -> None:
        """A row for each consumer of each edge: who has sent what came from here, and the watermark as its time."""
        for out in self._chain.program.out_edges:
            watermark = self._outputs[out.operator].watermark
            for target in self._targets(out):
                self._rows.append(out.edge, target, next(self._sequences), self._token, watermark)

    # --- what the chain is given -----------------------------------------------------------------------------------

    def _exchange(self, out: Any) -> BatchExchange:
        _, max_parallelism = self._vertex.consumers[out.edge]
        targets = self._targets(out)
        out.partitioner.set_up(self._subtask, len(targets), max_parallelism, out.consumer_name)
        return BatchExchange(out.edge, self._rows, self._sequences, out.partitioner, targets)

    def _targets(self, out: OutEdge) -> range:
        """The consuming subtasks that this one reaches over an edge."""
        consumers, _ = self._vertex.consumers[out.edge]
        if out.partitioner.is_pointwise:
            return consumers_of(self._subtask, self._vertex.parallelism, consumers)
        return range(consumers)

    def _check_accumulators(self) -> None:
        for context in self._chain.contexts:
            for name in context.accumulators:
                raise NotImplementedError(
                    f"accumulator {name!r}: in micro-batch execution a task lives for one epoch, so there are no "
                    "accumulators; keep a count in state, or set execution.runtime-mode to STREAMING"
                )

    def _context_for(self, program: VertexProgram, index: int) -> OperatorContext:
        vertex, chained = self._vertex, program.operators[index]
        keyed = self._backends.make(
            self._execution, chained.operator_id, chained.title, vertex.max_parallelism, self._key_groups
        )
        return bounded_context(
            vertex,
            self._subtask,
            program,
            index,
            keyed,
            self._rows,
            self._sequences,
            self._clock,
            self._coroutines,
            attempt=self._work.epoch,
        )


def _nothing_in_flight(name: str, items: list[object]) -> None:
    raise NotImplementedError(
        "records in flight of an unaligned checkpoint cannot be taken into micro-batch execution; begin from a "
        "savepoint, or from an aligned checkpoint"
    )


class _Onwards:
    """An operator's output through which watermarks only ever advance, over all epochs."""

    def __init__(self, output: Output, watermark: int) -> None:
        self.watermark = watermark
        self._output = output
        self.collect = output.collect
        self.collect_side = output.collect_side

    def emit_watermark(self, timestamp: int) -> None:
        if timestamp > self.watermark:
            self.watermark = timestamp
            self._output.emit_watermark(timestamp)

    def emit_status(self, idle: bool) -> None:
        """An idle source is one that has nothing to read in this epoch; the watermark stays where it is."""
