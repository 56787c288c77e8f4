"""One subtask in one epoch: restore, process the available input, advance event time, snapshot."""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.runtime.accumulators import pickled
from penstock.runtime.batch import exchange
from penstock.runtime.batch.task import OpenCalls, bounded_context
from penstock.runtime.checkpoint.restore import ONLY_STREAMING
from penstock.runtime.connector import Boundedness
from penstock.runtime.epochs.coordinator import EpochAnswer, EpochVertex, EpochWork, InputWatermarks, OutputDigest
from penstock.runtime.operators.base import Output, StreamOperator
from penstock.runtime.operators.connector import Emitted, SinkOperator, SourceOperator
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.operators.record.stateless import TimestampsAndWatermarksOperator
from penstock.runtime.ports import Clock, Coroutines, KeyedBackends, StateStorage
from penstock.runtime.protocol import ExecutionId
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.runtime.task.checkpoints import SnapshotWriter, StateHistories, restore_operator
from penstock.runtime.task.failures import EndedTask
from penstock.runtime.task.operator_chain import OperatorChain, VertexProgram, load_program
from penstock.state.keys import key_group_range
from penstock.storage.metadata import ChannelState

#: Takes the place of an edge in the row of a task's `EpochAnswer`.
ANSWER: Final = -3
#: The number of records that a source emits at a time, and of output rows after which a task passes them on.
BATCH_RECORDS: Final = 4096


class EpochTask(EndedTask):
    """See the module's docstring. `run` may be called once.

    The task waits for calls that an epoch's records have made, so that their results belong to the epoch; for `wait`
    and `coroutines` see `BatchTask`. `token` distinguishes the runs of the task; in a sorting run it only does so in
    the names of its output, see `tokens`.
    """

    def __init__(
        self,
        vertex: EpochVertex,
        subtask: int,
        work: EpochWork,
        clock: Clock,
        storage: StateStorage,
        backends: KeyedBackends,
        token: bytes = b"",
        wait: Callable[[int], None] = lambda ms: None,
        coroutines: Coroutines | None = None,
    ) -> None:
        self._vertex = vertex
        self._subtask = subtask
        self._work = work
        self._clock = clock
        self._begun_ms = clock.steady_ms()
        self._storage = storage
        self._backends = backends
        self._coroutines = coroutines
        # Every epoch has its own attempt number, so output that sinks write in two epochs never has the same name.
        self._execution = ExecutionId(vertex.index, subtask, work.epoch)
        self._key_groups = key_group_range(subtask, vertex.max_parallelism, vertex.parallelism)
        self._rows = exchange.Rows()
        self._sequences = exchange.build_sequence(subtask)
        self._histories = StateHistories()
        self._wait = wait
        self._run = token.hex()
        self._token = token or b"-"
        self._digest = OutputDigest(vertex.index, subtask) if vertex.sorts else None
        self._used: set[bytes] = set()
        self._records_read = 0
        self._inputs = InputWatermarks()
        #: whether there was nothing to read in a batch that other subtasks may have read from
        self._is_idle = False
        #: whether a stream with idleness had no record
        self._is_silent = False
        #: the place of the last keyed row
        self._open_place: int | None = None

        program = load_program(vertex.program, vertex.name)
        consumers, parallelism = vertex.consumers, vertex.parallelism
        self._exchanges = {
            out.edge: exchange.CountedExchange(
                exchange.build_exchange(out, consumers[out.edge], self._rows, self._sequences, subtask, parallelism)
            )
            for out in program.out_edges
        }
        chain = self._chain = OperatorChain(program, self._exchanges)  # type: ignore[arg-type]
        self._input = exchange.CountedInput(chain.head.process_batch)
        self._calls = OpenCalls(chain, clock, wait)
        chain.setup(self._build_context(program, index) for index in range(len(program.operators)))
        self._outputs = [
            _Onwards(operator.output, work.watermarks.get(index, MIN_TIMESTAMP))
            for index, operator in enumerate(chain.operators)
        ]
        for operator, output in zip(chain.operators, self._outputs, strict=True):
            operator.output = output

    def run(self, inputs: Iterable[exchange.Rows], values: Iterable[Batch] | None = None) -> Iterator[exchange.Rows]:
        """Process the epoch's rows, in any order; yield the output as it is produced, and finally the answer.

        In a sorting run the rows are sorted, unless a vertex's only producer has the same subtasks. `values`: batches
        that the driver has read for the source at the head of the chain.
        """
        chain = self._chain
        with chain.closing():
            self._restore()
            chain.initialize_and_open()
            self._go_on_in_time()
            self._tell_completed()
            has_ended = False
            if isinstance(chain.head, SourceOperator):
                for ended in self._read(chain.head) if values is None else self._emit(chain.head, values):
                    has_ended = ended
                    yield from (exchange.Rows() for _ in self._calls.make_room())
                    yield from self._let_go()
                if (has_ended and not self._vertex.sorts) or self._work.ends:
                    chain.head.output.emit_watermark(MAX_WATERMARK)
            else:
                for rows in inputs:
                    for _ in self._process(chain.head, rows):
                        chain.settle()
                        yield from (exchange.Rows() for _ in self._calls.make_room())
                        yield from self._let_go()
                self._advance(chain.head)
                self._is_idle, self._is_silent = self._inputs.are_idle, self._inputs.are_silent
            chain.on_processing_time(self._clock.now_ms())
            self._note_silence(chain.head, has_ended)
            yield from (exchange.Rows() for _ in self._calls.bring_back())
            if self._work.ends:
                for input_index in sorted(set(self._vertex.inputs.values())):
                    chain.end_input(input_index)
                yield from (exchange.Rows() for _ in self._calls.finish(is_input_ended=bool(self._vertex.inputs)))
            operators = self._snapshot()
            self._leave_accumulators()
            self._report()
            self._tell_watermarks()
            answer = EpochAnswer(
                operators,
                self._watermarks(),
                has_ended,
                self._records_read,
                self._token,
                frozenset(self._used),
                self._is_idle or self._is_silent,
            )
            self._rows.append(ANSWER, self._subtask, next(self._sequences), pickle.dumps(answer, 5))
            yield self._rows

    def release(self) -> None:
        """Drop operators and state after the task has ended; see `StreamOperator.release`."""
        if hasattr(self, "_chain"):  # the program may not have been loaded
            self._chain.release()

    def _let_go(self) -> Iterator[exchange.Rows]:
        """Yield the output so far if there is much; otherwise empty rows, which show that the task makes progress."""
        if len(self._rows) < BATCH_RECORDS:
            yield exchange.Rows()
            return
        if self._digest is not None:
            self._digest.add(self._rows)
        yield self._rows.take()

    # --- state -----------------------------------------------------------------------------------------------------

    def _restore(self) -> None:
        work = self._work
        for context in self._chain.contexts:
            context.operator_state.restored_checkpoint_id = work.restored_id
            context.forerunners = work.forerunners
            context.owes_nothing = True  # an epoch's output is delivered before the next epoch begins
            restored = work.restored.get(context.operator_id)
            if restored is not None:
                histories = self._histories if work.builds_on_restored else None
                restore_operator(restored, context, self._storage, self._key_groups, histories, _nothing_in_flight)

    def _note_silence(self, head: StreamOperator, has_ended: bool) -> None:
        """Mark a stream with idleness as silent if it had no record in this epoch, however long the epoch took."""
        continues = not has_ended and not self._work.ends
        if isinstance(head, SourceOperator) and head.watermarks.tracks_idleness:
            self._is_silent = continues and not head.records_out
        for operator in self._chain.operators:
            if isinstance(operator, TimestampsAndWatermarksOperator) and operator.tracks_idleness:
                self._is_silent = continues and not operator.has_records

    def _tell_completed(self) -> None:
        """Notify operators of the previous epoch's completed checkpoint, since its own tasks had ended by then."""
        completed = self._work.restored_id
        if completed is not None and self._work.builds_on_restored:
            for operator in self._chain.operators:
                operator.notify_checkpoint_complete(completed)

    def _leave_accumulators(self) -> None:
        """Emit what this epoch has added to the accumulators; the additions of all epochs are merged."""
        for index, context in enumerate(self._chain.contexts):
            pairs = [(name, pickled(accumulator)) for name, accumulator in context.accumulators.items()]
            if pairs:
                self._rows.append(exchange.ACCUMULATORS, index, next(self._sequences), pickle.dumps(pairs, 5))

    def _snapshot(self) -> Any:
        chain, epoch = self._chain, self._work.epoch
        if not self._work.ends:
            for operator in chain.operators:
                operator.prepare_snapshot(epoch)
        captures = chain.snapshot_state(epoch, self._work.savepoint_path is not None)
        for index, operator in enumerate(chain.operators):
            if isinstance(operator, SinkOperator):
                committables = operator.prepared(epoch)
                if committables:
                    self._rows.append(
                        exchange.COMMITTABLES, index, next(self._sequences), operator.pickled(committables)
                    )
        writer = SnapshotWriter(
            self._storage,
            epoch,
            self._execution,
            self._key_groups,
            self._vertex.max_parallelism,
            self._work.savepoint_path,
            self._run,
        )
        return writer.store(captures, self._histories.confirmed)

    # --- records and time ------------------------------------------------------------------------------------------

    def _go_on_in_time(self) -> None:
        """Restore every operator's event time, so that records that were late before are late now."""
        for index, chained in enumerate(self._chain.program.operators):
            before = self._work.watermarks.get(chained.parent if chained.parent >= 0 else -1, MIN_TIMESTAMP)
            if before != MIN_TIMESTAMP and not isinstance(self._chain.operators[index], SourceOperator):
                self._chain.operators[index].process_watermark(before)

    def _read(self, head: SourceOperator) -> Iterator[bool]:
        work = self._work
        head.add_splits(work.splits, work.no_more_splits)
        if work.ends:
            return
        if work.restored_ms is not None:
            head.reader.begin_at(work.restored_ms)
        limit = work.records_max
        while limit is None or head.records_out < limit:
            emitted = head.emit_next(BATCH_RECORDS if limit is None else min(BATCH_RECORDS, limit - head.records_out))
            self._records_read = head.records_out
            self._chain.settle()
            yield emitted is Emitted.END
            if emitted is Emitted.END or (emitted is Emitted.NOTHING and not self._waits_for_more(head)):
                return

    def _emit(self, head: SourceOperator, batches: Iterable[Batch]) -> Iterator[bool]:
        self._is_idle = True
        for batch in batches:
            self._is_idle = False
            head.emit(batch)
            self._records_read = head.records_out
            self._chain.settle()
            yield False

    def _waits_for_more(self, head: SourceOperator) -> bool:
        """Wait for more input if a source has none at the moment; return whether to read on."""
        if self._vertex.sorts and head.source.boundedness is Boundedness.BOUNDED:
            if not self._work.no_more_splits:
                raise UnsupportedError(
                    f"{head.context.operator_name}: {type(head.source).__name__} assigns some splits only after others "
                    "have been read, but a back-fill assigns all splits before its single pass; run the job in "
                    "MICRO_BATCH instead"
                )
        elif head.reader.retry_after_ms() > 0 and not self._is_held_back(head):
            return False
        due_ms = head.next_timer_ms()
        self._wait(1 if due_ms is None else max(1, due_ms - self._clock.now_ms()))
        return True

    def _is_held_back(self, head: SourceOperator) -> bool:
        """Return whether a rate-limited source has not read anything yet, but will."""
        return not head.records_out and head.reader.held_back_ms() is not None

    def _process(self, head: StreamOperator, rows: exchange.Rows) -> Iterator[None]:
        """Process rows; keyed rows come after all others."""
        inputs, process = self._vertex.inputs, self._input
        first = bisect_left(rows.places, 0) if self._vertex.is_keyed else len(rows)
        for edge, position, timestamp, payload in zip(
            rows.edges[:first], rows.places, rows.timestamps, rows.payloads, strict=False
        ):
            if position in (exchange.WATERMARK_PLACE, exchange.IDLE_PLACE, exchange.SILENT_PLACE):
                assert timestamp is not None
                self._used.add(payload)
                self._inputs.add(edge, timestamp, position == exchange.IDLE_PLACE, position == exchange.SILENT_PLACE)
            else:
                process(exchange.loads_batch(payload), inputs[edge])
                yield
        if first < len(rows):
            yield from self._process_keys(head, rows, first)

    def _process_keys(self, head: StreamOperator, rows: exchange.Rows, first: int) -> Iterator[None]:
        """Process keyed rows. All keys but the last end here; the last key may continue in the next rows."""
        end, positions = len(rows), rows.places
        cut = bisect_left(positions, positions[-1], first)
        yield from self._process_range(rows, first, cut)
        if positions[-1] != self._open_place:
            self._open_place = positions[-1]
            self._advance_keys(head)
            yield
        yield from self._process_range(rows, cut, end)

    def _process_range(self, rows: exchange.Rows, begin: int, end: int) -> Iterator[None]:
        for part in range(begin, end, BATCH_RECORDS):
            exchange.process_with_key(rows, part, min(part + BATCH_RECORDS, end), self._vertex.inputs, self._input)
            yield

    def _advance_keys(self, head: StreamOperator) -> None:
        """Fire due timers, so that the windows of a whole history are not held at once.

        Watermarks arrive ahead of all keyed rows. Restored state belongs to keys that are still to come.
        """
        watermark = MIN_TIMESTAMP if self._inputs.watermark is None else self._inputs.watermark
        if watermark > MIN_TIMESTAMP and self._chain.contexts[0].operator_id not in self._work.restored:
            self._outputs[0].is_silent = True
            head.advance_keys(watermark)
            self._outputs[0].is_silent = False

    def _advance(self, head: StreamOperator) -> None:
        watermark = self._inputs.watermark
        if watermark is not None and watermark > self._work.watermarks.get(-1, MIN_TIMESTAMP):
            head.process_watermark(watermark)

    def _watermarks(self) -> dict[int, int]:
        watermarks = {index: output.watermark for index, output in enumerate(self._outputs)}
        reached = self._inputs.watermark
        watermarks[-1] = max(
            self._work.watermarks.get(-1, MIN_TIMESTAMP), MIN_TIMESTAMP if reached is None else reached
        )
        return watermarks

    def _report(self) -> None:
        own = self._outputs[0].watermark if isinstance(self._chain.head, SourceOperator) else self._watermarks()[-1]
        busy_ms = self._clock.steady_ms() - self._begun_ms
        payload = exchange.task_metrics(self._execution, self._chain, self._input, self._exchanges, own, busy_ms)
        self._rows.append(exchange.METRICS, 0, next(self._sequences), payload)

    def _tell_watermarks(self) -> None:
        """Emit a row for each consumer of each edge: this run's token, with the watermark as its timestamp."""
        vertex, watermarks = self._vertex, [output.watermark for output in self._outputs]
        if self._digest is not None:
            self._digest.add(self._rows)
            self._digest.say(watermarks)
            self._token = self._digest.token()
        position = (
            exchange.SILENT_PLACE
            if self._is_silent
            else exchange.IDLE_PLACE
            if self._is_idle
            else exchange.WATERMARK_PLACE
        )
        for out in self._chain.program.out_edges:
            for target in exchange.find_targets(out, vertex.consumers[out.edge], self._subtask, vertex.parallelism):
                watermark, number = watermarks[out.operator], next(self._sequences)
                self._rows.append(out.edge, target, number, self._token, watermark, position)

    # --- what the chain is given -----------------------------------------------------------------------------------

    def _build_context(self, program: VertexProgram, index: int) -> OperatorContext:
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
            run=self._run,
        )


def _nothing_in_flight(channel: ChannelState, items: list[object]) -> None:
    raise UnsupportedError(ONLY_STREAMING)


class _Onwards:
    """An operator's output whose watermarks only ever advance, over all epochs."""

    def __init__(self, output: Output, watermark: int) -> None:
        self.is_silent = False
        self.watermark = watermark
        self._output = output
        self.collect = output.collect
        self.collect_side = output.collect_side

    def emit_watermark(self, timestamp: int) -> None:
        if timestamp > self.watermark and not self.is_silent:
            self.watermark = timestamp
            self._output.emit_watermark(timestamp)

    def emit_status(self, idle: bool) -> None:
        """Ignore the status: an idle source has nothing to read in this epoch, and its watermark does not move."""
