"""The interfaces that sources and sinks implement, and the contexts that they receive.

A *source* has two halves (Flink's FLIP-27). The `SplitEnumerator` runs beside the job master, finds the splits and
assigns them to readers on request. The `SourceReader` runs in a task and reads its splits. Its snapshot consists of its
splits with their positions, so a restored reader continues exactly where the snapshot was taken.

A *sink* has two halves (FLIP-143). The `SinkWriter` runs in a task and writes output that readers must not see yet.
When a barrier passes, `prepare_commit` returns *committables*. The `Committer` makes them visible once the checkpoint
has completed. After a recovery it may have to commit the same committable again, so committing is idempotent.

One task may run several times: again after a failure, and on Spark even twice at the same time (speculation, or an
executor that was declared lost but lives on). `SinkWriterContext.run` distinguishes these runs, and a writer gives
everything it creates a name unique to its run. Only the committables of the run that counts are ever committed.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from penstock.base.configuration import Configuration
from penstock.base.errors import ContractError, PenstockError, StopIterationRaised, UnsupportedError
from penstock.base.lineage import LineageDataset
from penstock.base.typeinfo import TypeInformation
from penstock.codecs.column_data import ColumnData
from penstock.runtime.records import Batch

T = TypeVar("T")
SplitT = TypeVar("SplitT")
SplitT_contra = TypeVar("SplitT_contra", contravariant=True)
CommT = TypeVar("CommT")


#: The default wait (ms) of a reader without records: at first, and after this many unsuccessful polls. A wake-up costs
#: a quarter of a millisecond of a processor whose caches are cold, so a stream of one record a second must not be
#: polled at the pace of a stream of a hundred.
RETRY_MS: Final = 10
SILENT_RETRY_MS: Final = 50
POLLS_IN_VAIN_MAX: Final = 10


class RecordError(PenstockError, RuntimeError):
    """An error of a user-defined function within a source or a sink: raise it from the original error.

    The error that the user sees then names the record and the failed call.
    """

    def __init__(self, record: Any, what: str) -> None:
        super().__init__(record, what)
        self.record = record
        self.what = what


def call_each(function: Callable[[Any], Any], values: Sequence[Any] | ColumnData, callee: str) -> list[Any]:
    """Call a user-defined function for each value and return the results.

    Raises:
        RecordError: if the function raises; it has the value, and `callee`, which describes the call.
    """
    results: list[Any] = []
    try:
        results.extend(map(function, values))
        if len(results) != len(values):
            raise StopIterationRaised
    except Exception as error:
        raise RecordError(list(values)[len(results)], callee) from error
    return results


class Boundedness(enum.Enum):
    """Whether a source ends by itself."""

    BOUNDED = "BOUNDED"
    CONTINUOUS_UNBOUNDED = "CONTINUOUS_UNBOUNDED"


class InputStatus(enum.Enum):
    """The answer of a reader that has no records at hand."""

    NOTHING_AVAILABLE = "NOTHING_AVAILABLE"
    END_OF_INPUT = "END_OF_INPUT"


class SourceReaderContext(Protocol):
    """The services of the task that hosts a reader."""

    @property
    def subtask_index(self) -> int: ...

    @property
    def parallelism(self) -> int: ...

    def now_ms(self) -> int:
        """Return the processing time in ms; the only clock that a reader may use."""
        ...

    def request_split(self) -> None:
        """Request a split from the enumerator, which answers with `add_splits` or `no_more_splits`."""
        ...

    def send_source_event(self, event: Any) -> None:
        """Send a picklable event to the enumerator's `handle_source_event`, in order with the requests for splits.

        An event that is sent between the snapshots of the enumerator and of the reader is in neither, and lost if they
        are restored: keep what it says in a split until the enumerator has answered with a split of its own.

        Raises:
            ContractError: where `SplitEnumeratorContext.receives_source_events` is False.
        """
        ...

    def count(self, name: str, increment: int = 1) -> None:
        """Add to a counter of this operator's metrics (for example records skipped)."""
        ...

    def gauge(self, name: str, function: Callable[[], int | float]) -> None:
        """Register a gauge among this operator's metrics; `function` returns its current value."""
        ...

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        """Emit records to the side output with that tag."""
        ...

    def open_split(self, split_id: str) -> None:
        """Begin to read a split concurrently with others; it gets its own watermark (C2)."""
        ...

    def close_split(self, split_id: str) -> None:
        """Finish an open split, which was read to its end and no longer holds any watermark back."""
        ...


class SplitBatch(Batch):
    """A batch of one of several splits that a reader has opened with `SourceReaderContext.open_split`."""

    __slots__ = ("split_id",)

    def __init__(
        self, values: list[Any], timestamps: list[int] | None, split_id: str, kinds: bytes | None = None
    ) -> None:
        super().__init__(values, timestamps, kinds)
        self.split_id = split_id

    __hash__ = None


class SourceReader(ABC, Generic[T, SplitT]):
    """Reads splits in one subtask. Called by one thread only; may do I/O, but should return within tens of ms."""

    #: How often in a row `poll_next` has returned NOTHING_AVAILABLE; counted by the task that polls.
    polls_in_vain: int = 0

    def start(self) -> None:
        """Start reading; called once, after restored splits were added. Request a split here or in `poll_next`."""

    @abstractmethod
    def poll_next(self, max_records: int) -> Batch | InputStatus:
        """Return up to `max_records` records, or a status. A batch may carry the source's own timestamps (ms)."""

    @abstractmethod
    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """Add splits to read: assigned by the enumerator, or restored with their positions."""

    @abstractmethod
    def no_more_splits(self) -> None:
        """Receive no further splits: end when the splits at hand have been read."""

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        """Return the splits not fully read, positioned just after the last record that `poll_next` returned."""

    def retry_after_ms(self) -> int:
        """Return how long (ms) to wait after NOTHING_AVAILABLE before polling again, if nothing else happens.

        A reader that knows when its next record is due returns that here. By default the task polls again after 10 ms,
        and after 50 ms once 10 polls in a row were unsuccessful, so that idleness costs little.
        """
        return RETRY_MS if self.polls_in_vain < POLLS_IN_VAIN_MAX else SILENT_RETRY_MS

    def held_back_ms(self) -> int | None:
        """Return how long (ms) the reader itself delays the next record, such as by a rate limit; None if it does not.

        Called after NOTHING_AVAILABLE. In MICRO_BATCH an epoch waits for the first record of such a reader, because the
        next epoch has a new reader, which would wait again.
        """
        return None

    def begin_at(self, time_ms: int) -> None:
        """Continue from an epoch that ended at that processing time (ms); called in MICRO_BATCH."""

    def pause_or_resume_splits(self, splits_to_pause: Sequence[str], splits_to_resume: Sequence[str]) -> None:
        """Pause reading some open splits, and resume others, for watermark alignment."""
        raise UnsupportedError(
            f"{type(self).__name__} opens splits but cannot pause them: it does not implement pause_or_resume_splits, "
            "so its source cannot take part in watermark alignment"
        )

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Handle a completed checkpoint: its records will not be read again. See `CheckpointListener`."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Handle an aborted checkpoint."""

    def close(self) -> None:
        """Release the reader's resources; called on every path."""


class SplitEnumeratorContext(Protocol[SplitT_contra]):
    """The services of the job master that hosts an enumerator."""

    @property
    def parallelism(self) -> int: ...

    @property
    def receives_source_events(self) -> bool:
        """Whether readers can send events: in STREAMING. In BATCH and MICRO_BATCH, splits are assigned up front."""
        ...

    def assign_split(self, split: SplitT_contra, subtask_index: int) -> None:
        """Assign a split to a reader. The split must be picklable.

        Raises:
            ContractError: after `signal_no_more_splits` for that reader: it may have ended, and would not read the
                split.
        """
        ...

    def signal_no_more_splits(self, subtask_index: int) -> None:
        """Signal to a reader that no more splits follow. The signal is final until the job restarts."""
        ...

    def call_async(
        self, work: Callable[[], T], handler: Callable[[T | None, BaseException | None], None], delay_ms: int = 0
    ) -> None:
        """Run `work` in the background after `delay_ms`; then `handler(result, error)` in the job master's own turn."""
        ...


def late_split(source_name: str, subtask_index: int) -> ContractError:
    """Return the error for a split assigned to a reader after `signal_no_more_splits` for that reader (I1)."""
    return ContractError(
        f"the split enumerator of {source_name} assigned a split to the reader of subtask {subtask_index} after "
        "signal_no_more_splits() for it. That reader may have ended, so the split would be lost. Assign the split "
        "first, or keep it for a reader without that signal"
    )


class SplitEnumerator(ABC, Generic[SplitT]):
    """Finds splits and assigns them. Called by one thread only; I/O belongs in `call_async`."""

    @abstractmethod
    def start(self) -> None:
        """Start the enumerator; called once, before any reader registers."""

    @abstractmethod
    def handle_split_request(self, subtask_index: int) -> None:
        """Handle a reader's request for a split."""

    def handle_source_event(self, subtask_index: int, event: Any) -> None:
        """Handle an event that a reader has sent. By default, raise: the enumerator expects none."""
        raise ContractError(
            f"{type(self).__name__} received the event {event!r} from the reader of subtask {subtask_index}, and does "
            "not implement handle_source_event"
        )

    @abstractmethod
    def add_splits_back(self, splits: Sequence[SplitT], subtask_index: int) -> None:
        """Take back the splits assigned since the last completed checkpoint to a reader that restarts alone.

        There may be none of them. Earlier requests of the reader and signals to it are void: it requests splits again.
        """

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int) -> Any:
        """Return a picklable value that `Source.create_enumerator` continues from: everything not assigned yet."""

    def close(self) -> None:
        """Release the enumerator's resources."""


class Source(ABC, Generic[T, SplitT]):
    """A stream of records from outside. Instances are pickled into the job, so they hold descriptions, not handles.

    Examples:
        >>> from penstock.datastream.connectors import NumberSequenceSource, Source
        >>> source = NumberSequenceSource(1, 3)
        >>> isinstance(source, Source), source.boundedness.name, source.max_parallelism()
        (True, 'BOUNDED', None)
    """

    #: Whether recorded positions can be read again (J), which exactly-once state relies on; also if senders repeat what
    #: no checkpoint has.
    replayable: bool = True

    #: The datasets that it reads, if the planner of SQL knows them.
    lineage: tuple[LineageDataset, ...] = ()

    #: Whether a reader may restart alone from the last checkpoint while the others continue; its enumerator then takes
    #: splits back. Otherwise all readers restart together.
    restarts_by_reader: bool = True

    @property
    @abstractmethod
    def boundedness(self) -> Boundedness: ...

    def check_execution_mode(self, mode: str, is_local: bool) -> None:
        """Raise `ConfigurationError`, with advice, if the source does not support this execution mode.

        `mode` is the `execution.runtime-mode`; with `is_local` one process reads the source.
        """

    def configure(self, configuration: Configuration) -> None:
        """Note settings of the job; called in the program before the source is pickled. By default nothing is noted."""

    def prepare(self, check_cancelled: Callable[[], None]) -> None:
        """Prepare the source in the program, before a job reads it by its splits; may take long.

        Slow code calls `check_cancelled` from time to time, which raises when the job was cancelled.
        """

    @abstractmethod
    def create_enumerator(
        self, context: SplitEnumeratorContext[SplitT], restored: Any | None
    ) -> SplitEnumerator[SplitT]:
        """Create an enumerator: a new one, or one that continues from a value that `snapshot_state` returned."""

    @abstractmethod
    def create_reader(self, context: SourceReaderContext) -> SourceReader[T, SplitT]:
        """Create a reader for one subtask."""

    def max_parallelism(self) -> int | None:
        """Return 1 for a source that cannot be split; None if it allows any parallelism."""
        return None

    def describe_lineage(self) -> tuple[LineageDataset, ...]:
        """Return the datasets that it reads, for lineage events."""
        return self.lineage


class SinkWriterContext(Protocol):
    """The services of the task that hosts a writer."""

    @property
    def subtask_index(self) -> int: ...

    @property
    def parallelism(self) -> int: ...

    @property
    def attempt(self) -> int: ...

    @property
    def job_id(self) -> str: ...

    @property
    def operator_id(self) -> str: ...

    @property
    def run(self) -> str:
        """An id that distinguishes this run of the subtask from all others of the job; may be empty for a committer."""
        ...

    @property
    def restored_checkpoint_id(self) -> int | None:
        """The checkpoint or savepoint that the task was restored from, if any."""
        ...

    @property
    def forerunners(self) -> tuple[str, ...]:
        """The ids of the jobs that this one continues, until it has a checkpoint of its own.

        Anything that their writers prepared after the restored checkpoint is never committed.
        """
        ...

    @property
    def owes_nothing(self) -> bool:
        """Whether everything that earlier runs of the job prepared and any checkpoint names is committed by now.

        This holds in MICRO_BATCH, where an epoch's committables are committed before the next epoch begins.
        """
        ...

    def now_ms(self) -> int:
        """Return the processing time in ms; the only clock that a writer may use."""
        ...

    def count(self, name: str, increment: int = 1) -> None:
        """Add to a counter of this operator's metrics (for example bytes sent)."""
        ...

    def emit_to_client(self, payload: bytes) -> None:
        """Send bytes to the client of the job, in order; they are delivered even if the job fails later."""
        ...


class SinkWriter(ABC, Generic[T, CommT]):
    """Writes records of one subtask so that no reader sees them before they are committed."""

    @abstractmethod
    def write_batch(self, values: list[T], timestamps: list[int] | None) -> None:
        """Write records in order; the lists are read-only."""

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """Write records as columns; `rowtimes` is an array of their timestamps (ms), or None. By default as rows."""
        self.write_batch(data.rows(), None if rowtimes is None else rowtimes.tolist())  # type: ignore[arg-type]

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """Write changelog records as columns; `kinds` has a byte for each. By default as rows with their kinds."""
        self.write_batch(data.rows(kinds), None if rowtimes is None else rowtimes.tolist())  # type: ignore[arg-type]

    def write_watermark(self, watermark_ms: int) -> None:
        """Take note of the event time (ms) that the input has reached. By default it makes no difference."""

    def next_flush_ms(self) -> int | None:
        """Return when (ms) `flush` is due even without a checkpoint; None for never."""
        return None

    def flush(self, end_of_input: bool) -> None:
        """Flush buffered output: before `prepare_commit`, at `next_flush_ms`, and with True at the end of input."""

    def prepare_commit(self) -> list[CommT]:
        """Return picklable committables for the records written so far, which must be durable but not yet visible."""
        return []

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        """Return picklable items of writer state; after a recovery any subtask's `Sink.restore_writer` may get them."""
        return []

    def pin(self, checkpoint_id: int, committables: Sequence[CommT]) -> None:
        """Protect committables that a savepoint names: no later attempt may delete what committing them needs.

        The savepoint is about to be stored, and may outlive the job. The default does nothing, which is right for
        writers that delete nothing. For sinks that commit globally, the coordinator is asked instead, if there is one.
        There may be no committables.
        """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Handle a completed checkpoint, whose committables are committed. See `CheckpointListener`."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Handle an aborted checkpoint. The next one commits its committables."""

    def close(self) -> None:
        """Release the writer's resources, and discard unprepared output; called on every path."""


class Committer(ABC, Generic[CommT]):
    """Makes committables visible. If it raises, the task fails, and the commit is retried after the restart."""

    @abstractmethod
    def commit(self, committables: Sequence[CommT]) -> None:
        """Commit all; a committable that was already committed is not an error (G9)."""

    def recommit(self, committables: Sequence[CommT]) -> None:
        """Commit what may have been committed long ago: committables from restored state, or of a failed commit.

        The output that the first commit made visible may have been removed since. By default like `commit`.
        """
        self.commit(committables)

    def end_job(self) -> None:
        """Remove the leftovers of runs that did not count, when a job is over and all its output is committed.

        Called in the driver, in BATCH and MICRO_BATCH: for the job itself and for the jobs that it continues, through
        committers whose contexts have the ids of these jobs. Files that a savepoint names stay.
        """

    def close(self) -> None:
        """Release the committer's resources."""


class NumberedCommit(NamedTuple):
    """The committables of one checkpoint, for sinks that number their commits (`Sink.numbers_commits`).

    Attributes:
        number: one more than that of the job's last commit with committables; 1 for the first. A commit that is
            repeated has the same number, and a job that continues another one counts on.
        committables: what the writers of all subtasks prepared.
    """

    number: int
    committables: list[Any]


class CommitLog(ABC):
    """A batch's pending commits, recorded where they survive the death of the batch's driver.

    A batch has no checkpoint to continue from, so it commits all or nothing. A run that dies between two commits, or
    cannot finish them, is rolled back, by itself or by the next run of the job. The log of one sink of a job holds the
    commits of all sinks with a log of the same class.
    """

    @abstractmethod
    def begin(self) -> list[str]:
        """Record that this run is alive, after rolling back the unfinished commits of dead runs of the job.

        Return lines for the log of the job.
        """

    @abstractmethod
    def write(self, committables: Sequence[Any]) -> None:
        """Record durably what is about to be committed."""

    @abstractmethod
    def take_back(self) -> None:
        """Roll back: make the logged output invisible again, as far as it was committed."""

    @abstractmethod
    def close_commit(self) -> None:
        """Close the log when everything is committed: from now on no run rolls it back.

        Raises:
            PenstockError: if another run has rolled it back meanwhile.
        """

    @abstractmethod
    def end(self) -> None:
        """End the run; only its committed output is left."""


class Sink(ABC, Generic[T]):
    """A destination of records. Instances are pickled into the job, so they hold descriptions, not handles.

    Examples:
        >>> from pathlib import Path
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import Sink
        >>> from penstock.runtime.connector import SinkWriter
        >>> class Lines(SinkWriter):
        ...     def write_batch(self, values, timestamps):
        ...         with open("lines.txt", "a") as file:
        ...             file.writelines(values)
        ...     def flush(self, end_of_input):
        ...         pass
        >>> class LinesSink(Sink):
        ...     def create_writer(self, context):
        ...         return Lines()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> _ = env.from_elements("tea").sink_to(LinesSink())
        >>> result = env.execute()
        >>> Path("lines.txt").read_text()
        'tea'
    """

    #: The datasets that it writes, if the planner of SQL knows them.
    lineage: tuple[LineageDataset, ...] = ()

    #: Whether one committer, in one call, commits everything that the writers of all subtasks prepared for a
    #: checkpoint.
    commits_globally: bool = False

    #: Whether the committables of a global commit come as `NumberedCommit`s.
    numbers_commits: bool = False

    #: Whether a batch commits even if no writer has prepared anything: the commit itself creates the output.
    commits_without_rows: bool = False

    #: Whether a writer is restored with the state of the writers of all subtasks rather than with a share of it.
    shares_writer_state: bool = False

    @abstractmethod
    def create_writer(self, context: SinkWriterContext) -> SinkWriter[T, Any]:
        """Create a writer; called where the subtask runs."""

    def restore_writer(self, context: SinkWriterContext, state: Sequence[Any]) -> SinkWriter[T, Any]:
        """Create a writer after a recovery; `state` holds the items assigned to this subtask."""
        return self.create_writer(context)

    def create_committer(self, context: SinkWriterContext) -> Committer[Any] | None:
        """Create the committer; None for a sink that writes straight through (at least once)."""
        return None

    @property
    def shows_on_commit(self) -> bool:
        """Whether output becomes visible only when it is committed; by default true of a sink with a committer."""
        return type(self).create_committer is not Sink.create_committer

    def create_commit_coordinator(
        self, context: SinkWriterContext, state: Sequence[Any]
    ) -> SinkWriter[Any, Any] | None:
        """Create what decides which committables a checkpoint commits; None to commit all that have arrived.

        For sinks that commit globally. The coordinator is a writer at parallelism 1, in front of the committer: its
        records are the committables of all writers, and what its `prepare_commit` returns is committed. It may keep
        committables for a later checkpoint, merge them, and add others. Its state comes back in `state`.
        """
        return None

    def create_commit_log(self, context: SinkWriterContext, job_name: str) -> CommitLog | None:
        """Create the log of a batch's commits; None for a sink whose commits cannot be rolled back."""
        return None

    def for_type(self, type_info: TypeInformation | None) -> Sink[T]:
        """Return the sink for records of a declared type, if any; by default the type makes no difference."""
        return self

    def configure(self, configuration: Configuration) -> None:
        """Note settings of the job; called in the program before the sink is pickled. By default nothing is noted."""

    def describe_lineage(self) -> tuple[LineageDataset, ...]:
        """Return the datasets that it writes, for lineage events."""
        return self.lineage

    def client_handler(self) -> Callable[[int, bytes], None] | None:
        """Return the client's handler for the bytes of `emit_to_client`; None for a sink that emits none.

        It is called with (subtask index, payload) in the job master's turn, in order.
        """
        return None
