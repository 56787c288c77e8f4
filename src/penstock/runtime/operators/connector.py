"""The operators that run connectors: sources at the head of a job, sinks at its end (F6, G9).

`SourceWatermarks`: the watermark of a source subtask is that of its single stream of records, or the lowest of its
active splits (C2). A reader that reads one split after the other has a single stream of records, and needs none of
this. A reader of several splits at a time opens and closes them by name, and names the split of each batch. Each split
then has its own generator and its own idleness: a slow split holds the watermark back, an idle or closed one does not.
When all open splits are idle, so is the source, and its watermark is that of the split furthest ahead.

`SourceOperator` is the head of a source task: it polls a reader, assigns timestamps, and follows the watermark.

`SinkOperator` is the tail of a sink task: a writer, and a committer that makes its output visible, exactly once. At a
barrier, the writer returns committables, which go into the snapshot together with all earlier uncommitted ones. When a
checkpoint completes, the operator commits everything prepared up to it. After a recovery, the operator commits
everything in the restored checkpoint again before the writer starts. Commits are idempotent, so it does not matter
whether the failed attempt had already committed. Output prepared after that checkpoint is committed only by a job that
starts from a savepoint that names the output. The operator passes these committables to the writer, which keeps the
output until then (`SinkWriter.pin`).

`CommittableWriterOperator` and `GlobalCommit` are sinks that commit in one place: a writer in every subtask, and one
committer for all their committables. Writers emit their committables as records, ahead of the barrier that they were
prepared for. The committer, a sink of its own, collects them, or gives them to the coordinator of the sink
(`Sink.create_commit_coordinator`), which says what to commit. It keeps the committables collected up to the barrier in
its state, and commits them all at once when the checkpoint completes. If an unaligned barrier overtakes committables,
the checkpoint contains them as records in flight, and the committer commits them with the next checkpoint.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

from penstock.base.errors import CallError, ContractError, PenstockError, WrongTimeError, short_repr
from penstock.base.metrics import MetricGroup
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.codecs.pickling import dumps_named, loads_named
from penstock.runtime.columns import ColumnBatch, SplitColumnBatch
from penstock.runtime.connector import (
    Committer,
    InputStatus,
    NumberedCommit,
    RecordError,
    Sink,
    SinkWriter,
    SinkWriterContext,
    Source,
    SourceReader,
    SplitBatch,
)
from penstock.runtime.operators.base import Output, StreamOperator, UserCodeError
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.operators.watermarks import NULL_TIME_RECORDS, AssignerError, WatermarkGenerator
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.state.operator_state import COMMITTABLE_MODE, SPLIT_MODE, UNION_MODE
from penstock.state.snapshot import StateCapture


class SourceWatermarks:
    """See the module docstring."""

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self._strategy = strategy
        #: for records that belong to no open split
        self._main = WatermarkGenerator(strategy)
        self._splits: dict[str, WatermarkGenerator] = {}
        self._emitted = MIN_TIMESTAMP
        self.idle = False

    @property
    def makes_any(self) -> bool:
        """Whether the strategy emits any watermarks."""
        return self._strategy.kind != "none"

    @property
    def is_periodic(self) -> bool:
        """Whether to call the generators periodically."""
        return self._main.is_periodic

    @property
    def tracks_idleness(self) -> bool:
        """Whether the strategy detects idleness."""
        return self._main.tracks_idleness

    @property
    def leaves_out(self) -> bool:
        """Whether the strategy may leave out records without an event time."""
        return self._main.side_tag is not None

    @property
    def generators(self) -> Collection[WatermarkGenerator]:
        """The generators that currently count."""
        return self._splits.values() if self._splits else (self._main,)

    def open_split(self, split_id: str, now_ms: int) -> None:
        """Start tracking a split; a second call changes nothing."""
        if split_id not in self._splits:
            generator = self._splits[split_id] = WatermarkGenerator(self._strategy)
            if generator.tracks_idleness:
                generator.saw_records(now_ms)

    def close_split(self, split_id: str) -> None:
        """Stop tracking a split that has been read to its end."""
        self._splits.pop(split_id, None)

    def of_split(self, split_id: str | None) -> WatermarkGenerator:
        """Return the generator for a batch; raises KeyError for a split that is not open."""
        return self._main if split_id is None else self._splits[split_id]

    def find_splits_ahead(self, watermark: int) -> set[str]:
        """Return the splits that are past a watermark (ms)."""
        return {name for name, g in self._splits.items() if g.watermark > watermark and not g.idle}

    @property
    def emitted(self) -> int:
        """The source's own watermark (ms)."""
        return self._emitted

    @property
    def split_ids(self) -> set[str]:
        """The open splits."""
        return set(self._splits)

    def marks(self) -> Iterator[tuple[str, int, bool]]:
        """Yield each open split with its watermark (ms) and whether it is idle."""
        for split_id, generator in self._splits.items():
            yield split_id, generator.watermark, generator.idle

    def idle_deadline_ms(self) -> int | None:
        """Return when (ms) the next split becomes idle if no records arrive."""
        deadlines = (generator.idle_deadline_ms() for generator in self.generators)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def check_idle(self, now_ms: int) -> None:
        """Mark splits as idle that have been silent for long enough."""
        for generator in self.generators:
            generator.check_idle(now_ms)

    def on_periodic(self, now_ms: int) -> None:
        """Call all generators."""
        for generator in self.generators:
            generator.on_periodic(now_ms)

    def resume(self, now_ms: int) -> None:
        """Restart the idle timeouts: the source was held back until now, which does not count as silence."""
        for generator in self.generators:
            generator.resume(now_ms)

    def restore_watermark(self, watermark: int) -> None:
        """Continue from the watermark (ms) that the source had emitted before it was restored."""
        self._emitted = watermark

    def settle(self) -> tuple[int | None, bool | None]:
        """Return the source's watermark (ms) and whether it is idle, each None if unchanged since the last call."""
        generators = self.generators
        active = [g.watermark for g in generators if not g.idle]
        watermark = min(active) if active else max(g.watermark for g in generators)
        advanced = None
        if watermark > self._emitted:
            self._emitted = advanced = watermark
        is_idle = not active
        changed = None if is_idle == self.idle else is_idle
        self.idle = is_idle
        return advanced, changed


SPLITS_STATE = "_penstock_splits"


class Emitted(enum.Enum):
    """The outcome of asking a source to emit."""

    RECORDS = "RECORDS"
    NOTHING = "NOTHING"
    END = "END"


class _ReaderContext:
    """A reader's view of its task."""

    def __init__(self, operator: SourceOperator, context: OperatorContext) -> None:
        self._operator = operator
        self._context = context
        self.subtask_index = context.subtask_index
        self.parallelism = context.parallelism

    def now_ms(self) -> int:
        return self._context.now_ms()

    def request_split(self) -> None:
        self._context.request_split()

    def send_source_event(self, event: Any) -> None:
        send = self._context.send_source_event
        if send is None:
            raise ContractError(
                "a source reader can send events to its enumerator in STREAMING alone: ask the enumerator's context "
                "(receives_source_events)"
            )
        send(dumps_named(event, "an event of a source reader"))

    def count(self, name: str, increment: int = 1) -> None:
        self._context.count(name, increment)

    def gauge(self, name: str, function: Callable[[], int | float]) -> None:
        MetricGroup(self._context.metrics).gauge(name, function)

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        self._operator.output.collect_side(tag_id, batch)

    def open_split(self, split_id: str) -> None:
        try:
            self._operator.watermarks.open_split(split_id, self._context.now_ms())
        except AssignerError as error:
            raise UserCodeError(self._context.operator_name, error.record, error.what) from error.__cause__

    def close_split(self, split_id: str) -> None:
        self._operator.watermarks.close_split(split_id)


class SourceOperator(StreamOperator):
    """Runs a `SourceReader`; its state is the reader's splits with their positions (G8).

    Alignment. If the strategy asks for it, the operator reports its watermark to the job master at every update
    interval, and receives the watermark up to which the group's sources may read. While the source is past that
    watermark, it reads nothing. If the reader reads several splits, the operator pauses individual splits that are past
    the watermark. An idle source reports the end of time, so that no other source waits for it.
    """

    user_part = "the source"
    watermarks: SourceWatermarks

    def __init__(self, source: Source[Any, Any], strategy: WatermarkStrategy) -> None:
        self.source = source
        self.strategy = strategy
        self.records_out = 0
        self.emitted_watermark: int | None = None
        self._alignment = strategy.alignment
        #: the watermark (ms) up to which the source may read; None if it is not aligned
        self._allowed_ms: int | None = None
        self._paused: set[str] = set()
        self._report_at_ms: int | None = None
        self._periodic_at_ms: int | None = None
        self._reader: SourceReader[Any, Any] | None = None
        self._retry_at_ms: int | None = None
        #: the event time (ms) of the last record, and when it was emitted
        self._last_emitted: tuple[int, int] | None = None
        #: when (ms) the reader ran out of records; None while it has some
        self._silent_since_ms: int | None = None

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Create the watermark generator, here because errors of its factory need the operator's name."""
        super().setup(context, output)
        try:
            self.watermarks = SourceWatermarks(self.strategy)
        except AssignerError as error:
            raise UserCodeError(context.operator_name, error.record, error.what) from error.__cause__

    def initialize_state(self) -> None:
        """Create the reader and give it its restored splits."""
        self._splits = self.context.operator_state.list_state(SPLITS_STATE)
        self._reader = self.source.create_reader(_ReaderContext(self, self.context))
        restored = self._splits.get()
        if restored:
            self._reader.add_splits(restored)

    def recover_finished(self) -> None:
        """Report the end of time: this source reads nothing, so no other source has to wait for it."""
        self._report(MAX_WATERMARK)

    def open(self) -> None:
        """Start the reader."""
        self.reader.start()
        if self.watermarks.leaves_out:
            self.context.count(NULL_TIME_RECORDS, 0)
        if not self.context.is_batch:
            now = self.context.now_ms()
            if self.watermarks.is_periodic and self.context.auto_watermark_interval_ms:
                self._periodic_at_ms = now + self.context.auto_watermark_interval_ms
            if self._alignment is not None and self.context.report_watermark is not None:
                self._allowed_ms = MIN_TIMESTAMP
                self._report_at_ms = now

    def resume_event_time(self, watermark: int) -> None:
        """Restore the source's watermark. The splits' watermarks start over; it advances once they have passed it."""
        self.emitted_watermark = watermark
        self.watermarks.restore_watermark(watermark)

    @property
    def reader(self) -> SourceReader[Any, Any]:
        """The reader, available from `initialize_state` on."""
        if self._reader is None:
            raise WrongTimeError("the source operator was used before initialize_state()")
        return self._reader

    def add_splits(self, splits: tuple[bytes, ...], no_more: bool) -> None:
        """Pass on the enumerator's answer to a split request."""
        if splits:
            description = f"a split of {type(self.source).__name__}"
            self.reader.add_splits([loads_named(split, description) for split in splits])
        if no_more:
            self.reader.no_more_splits()
        self._retry_at_ms = None

    def emit_next(self, records_max: int) -> Emitted:
        """Poll the reader once and emit the records that it returns."""
        if self.is_resting(self.context.now_ms()):
            return Emitted.NOTHING
        result = self.reader.poll_next(records_max)
        if result is InputStatus.NOTHING_AVAILABLE:
            self.reader.polls_in_vain += 1
            self._note_silence()
            return Emitted.NOTHING
        if result is InputStatus.END_OF_INPUT:
            return Emitted.END
        assert isinstance(result, Batch)
        self.reader.polls_in_vain = 0
        self._retry_at_ms = self._silent_since_ms = None
        if len(result):
            self.emit(result)
        return Emitted.RECORDS

    def emit(self, polled: Batch) -> None:
        """Emit records with their timestamps, then the watermark that follows."""
        watermarks = self.watermarks
        generator = self._get_generator(polled)
        now = self.context.now_ms()
        try:
            batch = generator.assign(polled, now)
            if generator.side_tag is not None:
                self._leave_out(generator)
            if generator.tracks_idleness:
                # Left-out records do not count as activity: a split that has only those becomes idle.
                was_idle = bool(len(batch)) and generator.saw_records(now)
                watermarks.check_idle(now)
                if (was_idle and watermarks.idle) or not len(batch):
                    self._settle()
            if not len(batch):
                return
            self.records_out += len(batch)
            if (last_ms := batch.last_timestamp()) is not None:
                self._last_emitted = last_ms, now
            for part, _ in generator.follow(batch):
                self.output.collect(part)
                self._settle()
        except AssignerError as error:
            raise UserCodeError(self.context.operator_name, error.record, error.what) from error.__cause__
        self._pause_splits()

    def _leave_out(self, generator: WatermarkGenerator) -> None:
        """Count the records that the generator left out, and emit them to the side output."""
        assert generator.side_tag is not None
        rejected = generator.left_out()
        if rejected is not None:
            self.context.count(NULL_TIME_RECORDS, len(rejected))
            self.output.collect_side(generator.side_tag, rejected)

    def _get_generator(self, polled: Batch) -> WatermarkGenerator:
        split_id = polled.split_id if isinstance(polled, SplitBatch | SplitColumnBatch) else None
        try:
            return self.watermarks.of_split(split_id)
        except KeyError:
            raise ContractError(
                f"{self.context.operator_name}: the reader returned records of split {split_id!r}, which is not open; "
                "call context.open_split in add_splits"
            ) from None

    def _settle(self) -> None:
        """Emit changes of watermark and idleness; a source becomes active before its watermark, idle after it."""
        watermark, is_idle = self.watermarks.settle()
        if is_idle is False:
            self.output.emit_status(False)
        if watermark is not None:
            self.emitted_watermark = watermark
            self.output.emit_watermark(watermark)
        if is_idle:
            self.output.emit_status(True)

    def _note_silence(self) -> None:
        now = self.context.now_ms()
        if self._silent_since_ms is None:
            self._silent_since_ms = now
        if self.watermarks.tracks_idleness:
            self.watermarks.check_idle(now)
        self._settle()
        self._retry_at_ms = now + max(1, self.reader.retry_after_ms())
        # The reader's retry delay may be much longer than the source's idle timeout.
        idle_at_ms = self.watermarks.idle_deadline_ms()
        if idle_at_ms is not None and idle_at_ms < self._retry_at_ms:
            self._retry_at_ms = max(idle_at_ms, now + 1)

    def is_resting(self, now_ms: int) -> bool:
        """Return whether the reader is not polled now: it had nothing a moment ago, or it is held back."""
        return self._is_ahead() or (self._retry_at_ms is not None and now_ms < self._retry_at_ms)

    def next_timer_ms(self) -> int | None:
        """Return when to poll again after the reader had nothing, call the generators, or report the watermark."""
        retry_at_ms = None if self._is_ahead() else self._retry_at_ms
        times = [t for t in (retry_at_ms, self._periodic_at_ms, self._report_at_ms) if t is not None]
        return min(times) if times else None

    def on_processing_time(self, now_ms: int) -> None:
        """Call the generators and report the watermark when due; the task polls the reader itself."""
        if self._retry_at_ms is not None and now_ms >= self._retry_at_ms:
            self._retry_at_ms = None
        if self._periodic_at_ms is not None and now_ms >= self._periodic_at_ms:
            self._periodic_at_ms = now_ms + self.context.auto_watermark_interval_ms
            try:
                self.watermarks.on_periodic(now_ms)
            except AssignerError as error:
                raise UserCodeError(self.context.operator_name, error.record, error.what) from error.__cause__
            self._settle()
        if self._report_at_ms is not None and now_ms >= self._report_at_ms:
            assert self._alignment is not None
            self._report_at_ms = now_ms + self._alignment.update_interval_ms
            emitted = MIN_TIMESTAMP if self.emitted_watermark is None else self.emitted_watermark
            self._report(MAX_WATERMARK if self.watermarks.idle else emitted)

    def quiesce_timers(self) -> None:
        """Stop the timers at the end of input: no other source needs to wait for this one any more."""
        self._periodic_at_ms = self._report_at_ms = None
        self._report(MAX_WATERMARK)

    def measured(self) -> dict[str, int | float]:
        """Return how late the last record was when it was emitted, and how long the reader has had no records (ms)."""
        last, since_ms = self._last_emitted, self._silent_since_ms
        return {
            "currentEmitEventTimeLag": -1 if last is None or last[0] == MIN_TIMESTAMP else last[1] - last[0],
            "sourceIdleTime": 0 if since_ms is None else self.context.now_ms() - since_ms,
        }

    # --- alignment -------------------------------------------------------------------------------------------------

    def align(self, allowed_ms: int) -> None:
        """Set the watermark (ms) up to which the job master lets the sources of the group read."""
        if self._allowed_ms is None:
            return
        was_ahead = self._is_ahead()
        self._allowed_ms = allowed_ms
        if was_ahead and not self._is_ahead():
            self.watermarks.resume(self.context.now_ms())
            self._retry_at_ms = None
        self._pause_splits()

    def _report(self, watermark: int) -> None:
        if self._alignment is not None and self.context.report_watermark is not None:
            self.context.report_watermark(watermark)

    def _is_ahead(self) -> bool:
        allowed, emitted = self._allowed_ms, self.emitted_watermark
        return allowed is not None and emitted is not None and emitted > allowed and not self.watermarks.idle

    def _pause_splits(self) -> None:
        if self._allowed_ms is None or not (self._paused or self.watermarks.split_ids):
            return
        ahead = self.watermarks.find_splits_ahead(self._allowed_ms)
        pause, resume = ahead - self._paused, (self._paused - ahead) & self.watermarks.split_ids
        self._paused = ahead
        if pause or resume:
            for split_id in resume:
                self.watermarks.of_split(split_id).resume(self.context.now_ms())
            self.reader.pause_or_resume_splits(sorted(pause), sorted(resume))
            self._retry_at_ms = None

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture the reader's splits."""
        self._splits.update(self.reader.snapshot_state(checkpoint_id))
        return super().snapshot_state(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify the reader."""
        self.reader.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Notify the reader."""
        self.reader.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        """Close the reader, if there is one."""
        if self._reader is not None:
            self._reader.close()


WRITER_STATE = "_penstock_writer"
COMMITTABLES_STATE = "_penstock_committables"


#: The name of a sink's user code in errors.
SINK: Final = "the sink"


def writer_mode(sink: Sink[Any]) -> str:
    """Return how the state of a sink's writers is redistributed after a recovery."""
    return UNION_MODE if sink.shares_writer_state else SPLIT_MODE


class _OneOf:
    """Stands for an unidentified record of a batch in errors."""

    def __init__(self, values: list[Any]) -> None:
        self._text = f"one of {len(values)}, the first {short_repr(values[0])}"

    def __repr__(self) -> str:
        return self._text


def write_records(writer: SinkWriter[Any, Any], batch: Batch, operator_name: str) -> None:
    """Hand the records to the writer.

    Raises:
        UserCodeError: if the writer raises; Penstock's own errors pass through, unless they reject a call by the
            writer.
    """
    values = batch.values
    try:
        writer.write_batch(values, batch.timestamps)
    except RecordError as error:
        raise UserCodeError(operator_name, error.record, error.what) from error.__cause__
    except Exception as error:
        if isinstance(error, PenstockError) and not isinstance(error, CallError):
            raise
        raise UserCodeError(operator_name, values[0] if len(values) == 1 else _OneOf(values), SINK) from error


def hand_over(writer: SinkWriter[Any, Any], batch: Batch, operator_name: str) -> None:
    """Hand records to the writer, as columns if the batch has columns; raises the errors of `write_records`."""
    if not isinstance(batch, ColumnBatch):
        write_records(writer, batch, operator_name)
    elif batch.kinds is None:
        writer.write_columns(batch.data, batch.rowtimes)
    else:
        writer.write_changes(batch.data, batch.kinds, batch.rowtimes)


class WriterOperator(StreamOperator):
    """Hands records to a sink's writer."""

    user_part = SINK

    def __init__(self, sink: Sink[Any]) -> None:
        self._sink = sink
        self._writer: SinkWriter[Any, Any] | None = None

    def make_writer(self) -> None:
        """Create the writer, with its restored state if there is any."""
        context: OperatorContext = self.context
        self._writer_state = context.operator_state.list_state(WRITER_STATE, writer_mode(self._sink))
        if context.operator_state.is_restored:
            self._writer = self._sink.restore_writer(context, self._writer_state.get())
        else:
            self._writer = self._sink.create_writer(context)

    @property
    def writer(self) -> SinkWriter[Any, Any]:
        """The writer, available from `initialize_state` on."""
        if self._writer is None:
            raise WrongTimeError("the sink operator was used before initialize_state()")
        return self._writer

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Hand the records to the writer."""
        hand_over(self.writer, batch, self.context.operator_name)

    def process_watermark(self, timestamp: int) -> None:
        """Tell the writer how far event time has come."""
        self.writer.write_watermark(timestamp)
        super().process_watermark(timestamp)

    def next_timer_ms(self) -> int | None:
        """Return when the writer wants to flush its buffer."""
        return None if self._writer is None else self._writer.next_flush_ms()

    def on_processing_time(self, now_ms: int) -> None:
        """Flush the writer if it is time."""
        due = self.next_timer_ms()
        if due is not None and due <= now_ms:
            self.writer.flush(False)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify the writer after the commit."""
        if self._writer is not None:
            self._writer.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Notify the writer."""
        if self._writer is not None:
            self._writer.notify_checkpoint_aborted(checkpoint_id)


class SinkOperator(WriterOperator):
    """Writes records through a `Sink`."""

    def __init__(self, sink: Sink[Any]) -> None:
        super().__init__(sink)
        self._committer: Committer[Any] | None = None
        #: checkpoint id -> committables prepared for it and not yet committed
        self._pending: dict[int, list[Any]] = {}

    def initialize_state(self) -> None:
        """Commit the output prepared for the restored checkpoint, then create the writer."""
        self._commit_restored()
        self.make_writer()

    def recover_finished(self) -> None:
        """Commit the last output, which was prepared for the restored checkpoint but perhaps not yet committed."""
        self._commit_restored()

    def _commit_restored(self) -> None:
        self._committables = self.context.operator_state.list_state(COMMITTABLES_STATE, COMMITTABLE_MODE)
        self._committer = self._sink.create_committer(self.context)
        restored = self._committables.get()
        if restored and self._committer is not None:
            self._committer.recommit(restored)
        self._committables.update([])

    def pickled(self, committables: list[Any]) -> bytes:
        """Serialize committables for the client."""
        return dumps_named(committables, f"operator {self.context.operator_name!r}: the committables of its sink")

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Prepare the written output for commit, and capture it with the writer's state."""
        writer = self.writer
        writer.flush(False)
        prepared = writer.prepare_commit()
        if prepared:
            self._pending[checkpoint_id] = list(prepared)
        self._committables.update([c for committables in self._pending.values() for c in committables])
        self._writer_state.update(writer.snapshot_state(checkpoint_id))
        return super().snapshot_state(checkpoint_id)

    def on_savepoint(self, checkpoint_id: int) -> None:
        """Protect the output that the savepoint names from deletion."""
        self.writer.pin(checkpoint_id, self._committables.get())

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit the output prepared up to this checkpoint."""
        due = [i for i in self._pending if i <= checkpoint_id]
        committables = [c for i in due for c in self._pending[i]]
        if committables and self._committer is not None:
            self._committer.commit(committables)
        for i in due:
            del self._pending[i]
        super().notify_checkpoint_complete(checkpoint_id)

    def finish(self) -> None:
        """Flush the writer at the end of input. Without checkpoints, commit now because nothing commits later."""
        self.writer.flush(True)
        if not self.context.checkpointing:
            prepared = [c for committables in self._pending.values() for c in committables]  # prepared for savepoints
            prepared += self.writer.prepare_commit()
            self._pending.clear()
            if prepared and self._committer is not None:
                self._committer.commit(prepared)

    @property
    def sink(self) -> Sink[Any]:
        """The sink, for code that commits in place of this operator."""
        return self._sink

    def prepared(self, checkpoint_id: int) -> list[Any]:
        """Return the committables of a checkpoint's snapshot, for code that commits in place of this operator."""
        return list(self._pending.get(checkpoint_id, ()))

    def prepare_last(self) -> list[Any]:
        """Return the committables to commit once the whole job has ended: for batch execution, after `finish`."""
        return list(self.writer.prepare_commit())

    def close(self) -> None:
        """Close the writer and the committer."""
        writer, committer = self._writer, self._committer
        self._writer = self._committer = None
        try:
            if writer is not None:
                writer.close()
        finally:
            if committer is not None:
                committer.close()


class CommittableWriterOperator(WriterOperator):
    """Writes records through a sink's writer, and emits the committables."""

    user_part = SINK

    def initialize_state(self) -> None:
        """Create the writer."""
        self.make_writer()

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Emit the prepared committables ahead of the barrier."""
        self._emit_prepared(False)

    def finish(self) -> None:
        """Emit the last committables."""
        self._emit_prepared(True)

    def _emit_prepared(self, end_of_input: bool) -> None:
        self.writer.flush(end_of_input)
        prepared = list(self.writer.prepare_commit())
        if prepared:
            self.output.collect(Batch(prepared))

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture the writer's state."""
        self._writer_state.update(self.writer.snapshot_state(checkpoint_id))
        return super().snapshot_state(checkpoint_id)

    def close(self) -> None:
        """Close the writer, if there is one."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class GlobalCommit(Sink[Any]):
    """The committing half, as a sink of committables; runs at parallelism 1."""

    def __init__(self, sink: Sink[Any]) -> None:
        self._sink = sink
        self.commits_without_rows = sink.commits_without_rows

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """Create a writer that collects committables."""
        return self.restore_writer(context, ())

    def restore_writer(self, context: SinkWriterContext, state: Sequence[Any]) -> SinkWriter[Any, Any]:
        """Create the sink's coordinator, or else a writer that collects committables, and goes on counting commits."""
        coordinator = self._sink.create_commit_coordinator(context, state)
        if coordinator is not None:
            return coordinator
        return _NumberedGathering(max(state, default=0)) if self._sink.numbers_commits else _Gathering()

    def create_committer(self, context: SinkWriterContext) -> Committer[Any] | None:
        """Create the committer of the original sink."""
        return self._sink.create_committer(context)


class _Gathering(SinkWriter[Any, Any]):
    def __init__(self) -> None:
        self._gathered: list[Any] = []

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        self._gathered += values

    def prepare_commit(self) -> list[Any]:
        gathered, self._gathered = self._gathered, []
        return gathered


class _NumberedGathering(_Gathering):
    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def prepare_commit(self) -> list[Any]:
        gathered = super().prepare_commit()
        if not gathered:
            return []
        self._number += 1
        return [NumberedCommit(self._number, gathered)]

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return [self._number]
