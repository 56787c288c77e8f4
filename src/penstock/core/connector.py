"""The protocols of sources and sinks: what a connector implements, and what it is handed.

A *source* has two halves (Flink's FLIP-27). The `SplitEnumerator` runs beside the job master, finds the splits and
hands them to readers that ask. The `SourceReader` runs in a task and reads its splits. Its snapshot is its splits with
their positions, so a restored reader continues exactly where the snapshot stood.

A *sink* has two halves (FLIP-143). The `SinkWriter` runs in a task and writes output that readers must not see yet.
When a barrier passes, `prepare_commit` hands out *committables*. The `Committer` makes them visible once the checkpoint
has completed. It may be asked to commit the same committable again after a recovery, so committing is idempotent.

One task may run several times: again after a failure, and on Spark also twice at a time (speculation, or an executor
that was given up and lives on). `SinkWriterContext.run` tells these runs apart, and a writer gives everything it makes
a name that only its run uses. Only the committables of the run that counts are ever committed.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from penstock.base.errors import ContractError, PenstockError, StopIterationRaised, UnsupportedError
from penstock.base.typeinfo import TypeInformation
from penstock.codecs.column_data import ColumnData
from penstock.core.records import Batch

T = TypeVar("T")
SplitT = TypeVar("SplitT")
SplitT_contra = TypeVar("SplitT_contra", contravariant=True)
CommT = TypeVar("CommT")


#: How long (ms) a reader that knows no better waits for records: at first, and after this many polls in vain.
RETRY_MS: Final = 10
SILENT_RETRY_MS: Final = 50
POLLS_IN_VAIN_MAX: Final = 100


class RecordError(PenstockError, RuntimeError):
    """A user's function raised within a source or a sink: raise this from what it raised.

    The error that the user sees then names the record and what was called.
    """

    def __init__(self, record: Any, what: str) -> None:
        super().__init__(record, what)
        self.record = record
        self.what = what


def call_each(function: Callable[[Any], Any], values: Sequence[Any] | ColumnData, what: str) -> list[Any]:
    """What a user's function returns for each value.

    Raises:
        RecordError: if it raises, with the value; `what` says what was called.
    """
    results: list[Any] = []
    try:
        results.extend(map(function, values))
        if len(results) != len(values):
            raise StopIterationRaised
    except Exception as error:
        raise RecordError(list(values)[len(results)], what) from error
    return results


class Boundedness(enum.Enum):
    """Whether a source ends by itself."""

    BOUNDED = "BOUNDED"
    CONTINUOUS_UNBOUNDED = "CONTINUOUS_UNBOUNDED"


class InputStatus(enum.Enum):
    """What a reader answers when it has no records at hand."""

    NOTHING_AVAILABLE = "NOTHING_AVAILABLE"
    END_OF_INPUT = "END_OF_INPUT"


class SourceReaderContext(Protocol):
    """What a reader may ask of the task that hosts it."""

    @property
    def subtask_index(self) -> int: ...

    @property
    def parallelism(self) -> int: ...

    def now_ms(self) -> int:
        """Processing time in ms; the only clock that a reader may use."""
        ...

    def request_split(self) -> None:
        """Ask the enumerator for a split; it answers with `add_splits` or `no_more_splits`."""
        ...

    def count(self, name: str, increment: int = 1) -> None:
        """Add to a counter of this operator's metrics (for example records skipped)."""
        ...

    def gauge(self, name: str, function: Callable[[], int | float]) -> None:
        """A number among this operator's metrics, which the function gives whenever it is asked."""
        ...

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        """Emit records to the side output of that tag."""
        ...

    def open_split(self, split_id: str) -> None:
        """The reader reads a split from now on, at the same time as others: it has a watermark of its own (C2)."""
        ...

    def close_split(self, split_id: str) -> None:
        """The reader has read an open split to its end: the split no longer holds any watermark back."""
        ...


class SplitBatch(Batch):
    """A batch of one of several splits that a reader has opened by `SourceReaderContext.open_split`."""

    __slots__ = ("split_id",)

    def __init__(
        self, values: list[Any], timestamps: list[int] | None, split_id: str, kinds: bytes | None = None
    ) -> None:
        super().__init__(values, timestamps, kinds)
        self.split_id = split_id

    __hash__ = None


class SourceReader(ABC, Generic[T, SplitT]):
    """Reads splits in one subtask. Called by one thread only; may do IO, but should return within tens of ms."""

    #: How often in a row `poll_next` has answered NOTHING_AVAILABLE; counted by the task that polls.
    polls_in_vain: int = 0

    def start(self) -> None:
        """Called once, after restored splits were added. Without splits, ask for one here or in `poll_next`."""

    @abstractmethod
    def poll_next(self, max_records: int) -> Batch | InputStatus:
        """At most `max_records` records, or why there are none. A batch may carry the source's own timestamps (ms)."""

    @abstractmethod
    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """Splits to read from now on: assigned by the enumerator, or restored with their positions."""

    @abstractmethod
    def no_more_splits(self) -> None:
        """The enumerator has no further split for this reader: end when those at hand are read."""

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        """The splits not fully read, with positions just after the last record that `poll_next` handed out."""

    def retry_after_ms(self) -> int:
        """How long (ms) to wait after NOTHING_AVAILABLE before polling again, when nothing else happens.

        A reader that knows when it will have a record says so here. By default the task polls again after 10 ms, and
        after 50 ms once 100 polls in a row were in vain, so that silence costs little.
        """
        return RETRY_MS if self.polls_in_vain < POLLS_IN_VAIN_MAX else SILENT_RETRY_MS

    def held_back_ms(self) -> int | None:
        """How long (ms) the reader itself holds the next record back, as by a rate; None if it does not.

        Asked after NOTHING_AVAILABLE. In MICRO_BATCH an epoch waits for the first record of such a reader, because the
        reader of the next epoch is another one and would wait again.
        """
        return None

    def begin_at(self, time_ms: int) -> None:
        """MICRO_BATCH: the reader continues from an epoch that ended at that processing time (ms)."""

    def pause_or_resume_splits(self, splits_to_pause: Sequence[str], splits_to_resume: Sequence[str]) -> None:
        """Watermark alignment: read nothing from some open splits for now, and resume others."""
        raise UnsupportedError(
            f"{type(self).__name__} opens splits but cannot pause them: it does not implement pause_or_resume_splits, "
            "so its source cannot take part in watermark alignment"
        )

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint completed: its records will not be read again. See `CheckpointListener`."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint was given up."""

    def close(self) -> None:
        """Release what the reader holds; called on every path."""


class SplitEnumeratorContext(Protocol[SplitT_contra]):
    """What an enumerator may ask of the job master that hosts it."""

    @property
    def parallelism(self) -> int: ...

    def assign_split(self, split: SplitT_contra, subtask_index: int) -> None:
        """Hand a split to a reader. The split must be picklable.

        Raises:
            ContractError: if the reader was told that none would follow. It may have ended, and would not read it.
        """
        ...

    def signal_no_more_splits(self, subtask_index: int) -> None:
        """Tell a reader that none will follow. It is final, until the job restarts."""
        ...

    def call_async(
        self, work: Callable[[], T], handler: Callable[[T | None, BaseException | None], None], delay_ms: int = 0
    ) -> None:
        """Run `work` in the background after `delay_ms`; then `handler(result, error)` in the job master's own turn."""
        ...


def late_split(what: str, subtask_index: int) -> ContractError:
    """An enumerator assigned a split to a reader after it had told that reader of the end (I1)."""
    return ContractError(
        f"the split enumerator of {what} assigned a split to the reader of subtask {subtask_index} after "
        "signal_no_more_splits() for it. That reader may have ended, so the split would be lost. Assign the split "
        "first, or keep it for a reader without that signal"
    )


class SplitEnumerator(ABC, Generic[SplitT]):
    """Finds splits and hands them out. Called by one thread only; IO belongs in `call_async`."""

    @abstractmethod
    def start(self) -> None:
        """Called once, before any reader registers."""

    @abstractmethod
    def handle_split_request(self, subtask_index: int) -> None:
        """A reader asks for a split."""

    @abstractmethod
    def add_splits_back(self, splits: Sequence[SplitT], subtask_index: int) -> None:
        """A reader begins again alone: splits assigned to it since the last completed checkpoint come back.

        There may be none. What the reader had asked for, or been told, does not count any more: it asks again.
        """

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int) -> Any:
        """A picklable value from which `Source.create_enumerator` continues: all that has not been assigned yet."""

    def close(self) -> None:
        """Release what the enumerator holds."""


class Source(ABC, Generic[T, SplitT]):
    """A stream of records from outside. Instances are pickled into the job, so they hold descriptions, not handles."""

    #: Whether recorded positions can be read again (J): the basis of exactly-once state.
    replayable: bool = True

    #: Whether a reader may begin again alone, from the last checkpoint, while the others go on: then its enumerator
    #: takes splits back. Otherwise all readers begin again together.
    restarts_by_reader: bool = True

    @property
    @abstractmethod
    def boundedness(self) -> Boundedness: ...

    def check_tempo(self, mode: str, is_local: bool) -> None:
        """Raise `ConfigurationError`, which says what to do, if the source cannot be read in this way.

        `mode` is the `execution.runtime-mode`; with `is_local` one process reads the source.
        """

    def prepare(self, check_cancelled: Callable[[], None]) -> None:
        """Called in the program, before a job reads the source by its splits; may take its time.

        Code that takes long calls `check_cancelled` from time to time, which raises when the job was cancelled.
        """

    @abstractmethod
    def create_enumerator(
        self, context: SplitEnumeratorContext[SplitT], restored: Any | None
    ) -> SplitEnumerator[SplitT]:
        """A new enumerator, or one that continues from a value that `snapshot_state` returned."""

    @abstractmethod
    def create_reader(self, context: SourceReaderContext) -> SourceReader[T, SplitT]:
        """A new reader for one subtask."""

    def max_parallelism(self) -> int | None:
        """1 for a source that cannot be split; None when any parallelism serves."""
        return None


class SinkWriterContext(Protocol):
    """What a writer may ask of the task that hosts it."""

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
        """Tells this run of the subtask from all others of the job; may be empty for a committer."""
        ...

    @property
    def restored_checkpoint_id(self) -> int | None:
        """The checkpoint or savepoint that the task began from; None for none."""
        ...

    @property
    def forerunners(self) -> tuple[str, ...]:
        """The ids of the jobs that this one continues, until it has a checkpoint of its own.

        What their writers have prepared since the checkpoint that the task began from is never committed.
        """
        ...

    @property
    def owes_nothing(self) -> bool:
        """Whether all is committed by now that earlier runs of the job have prepared and any checkpoint names.

        So it is in MICRO_BATCH, where what an epoch has prepared is committed before the next one begins.
        """
        ...

    def now_ms(self) -> int:
        """Processing time in ms; the only clock that a writer may use."""
        ...

    def count(self, name: str, increment: int = 1) -> None:
        """Add to a counter of this operator's metrics (for example bytes sent)."""
        ...

    def emit_to_client(self, payload: bytes) -> None:
        """Send bytes to the client of the job, in order; delivered even when the job fails later."""
        ...


class SinkWriter(ABC, Generic[T, CommT]):
    """Writes records of one subtask so that no reader sees them before they are committed."""

    @abstractmethod
    def write_batch(self, values: list[T], timestamps: list[int] | None) -> None:
        """Write records in order; the lists are read-only."""

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """Write records that are columns; `rowtimes` an array of their timestamps (ms), or None. By default as rows."""
        self.write_batch(data.rows(), None if rowtimes is None else rowtimes.tolist())  # type: ignore[arg-type]

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """Write changes of a table that are columns; `kinds` has a byte for each. By default as rows that show them."""
        self.write_batch(data.rows(kinds), None if rowtimes is None else rowtimes.tolist())  # type: ignore[arg-type]

    def next_flush_ms(self) -> int | None:
        """When (ms) `flush` is to be called, though no checkpoint may have come by then; None for never."""
        return None

    def flush(self, end_of_input: bool) -> None:
        """Hand over what is buffered; called before `prepare_commit`, when
        `next_flush_ms` says so, and with True when no record will follow.
        """

    def prepare_commit(self) -> list[CommT]:
        """What must be committed for the records written so far; picklable. Nothing of it may be lost or seen yet."""
        return []

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        """Picklable items of writer state; handed to `Sink.restore_writer` of any subtask after a recovery."""
        return []

    def pin(self, checkpoint_id: int, committables: Sequence[CommT]) -> None:
        """A savepoint names these: no later attempt of the job may delete what committing them needs.

        The savepoint is about to be stored, and may outlive the job. By default nothing is done, which is right for
        writers that delete nothing. Not called for sinks that commit globally.
        """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint completed, and its committables are committed. See `CheckpointListener`."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint was given up. The next one commits its committables."""

    def close(self) -> None:
        """Release what the writer holds, and discard what was not prepared; called on every path."""


class Committer(ABC, Generic[CommT]):
    """Makes committables visible. Raising fails the task, and the commit is tried again after the restart."""

    @abstractmethod
    def commit(self, committables: Sequence[CommT]) -> None:
        """Commit all; a committable that was committed before is not an error (G9)."""

    def recommit(self, committables: Sequence[CommT]) -> None:
        """Commit what may have been committed long ago: what restored state holds, or what a failed commit had.

        What the first commit made visible may have been removed since. By default as `commit`.
        """
        self.commit(committables)

    def end_job(self) -> None:
        """A job is over, and everything that it owed is committed: remove the leftovers of runs that did not count.

        Called where jobs are driven, in BATCH and MICRO_BATCH: for the job itself, and for those that it continues, by
        committers whose contexts have the ids of those. What a savepoint names stays.
        """

    def close(self) -> None:
        """Release what the committer holds."""


class CommitLog(ABC):
    """What a batch is about to commit, written where it survives the death of the batch's driver.

    A batch has no checkpoint to continue from, so it commits all or nothing. A run that dies between two commits, or
    cannot finish them, is taken back, by itself or by the next run of the job. The log of one sink of a job holds what
    all sinks with a log of the same class have to commit.
    """

    @abstractmethod
    def begin(self) -> list[str]:
        """Note that this run is alive, after taking back what dead runs of the job had begun to commit.

        Returns lines for the log of the job.
        """

    @abstractmethod
    def write(self, committables: Sequence[Any]) -> None:
        """Write down durably what is about to be committed."""

    @abstractmethod
    def take_back(self) -> None:
        """Make what the log names invisible again, as far as it was committed."""

    @abstractmethod
    def close_commit(self) -> None:
        """Everything is committed: from now on no run takes it back.

        Raises:
            PenstockError: if another run has taken it back meanwhile.
        """

    @abstractmethod
    def end(self) -> None:
        """The run is over; only what it has committed is left."""


class Sink(ABC, Generic[T]):
    """Where records leave the job. Instances are pickled into the job, so they hold descriptions, not handles."""

    #: Whether one committer commits what the writers of all subtasks have prepared for a checkpoint, in one call.
    commits_globally: bool = False

    #: Whether a writer is restored with the state of the writers of all subtasks, and not with a share of it.
    shares_writer_state: bool = False

    @abstractmethod
    def create_writer(self, context: SinkWriterContext) -> SinkWriter[T, Any]:
        """A new writer; called where the subtask runs."""

    def restore_writer(self, context: SinkWriterContext, state: Sequence[Any]) -> SinkWriter[T, Any]:
        """A writer after a recovery; `state` are the items that fell to this subtask."""
        return self.create_writer(context)

    def create_committer(self, context: SinkWriterContext) -> Committer[Any] | None:
        """The committer, or None for a sink that writes straight through (at least once)."""
        return None

    @property
    def shows_on_commit(self) -> bool:
        """Whether what it writes is seen only when it has been committed; by default where it has a committer."""
        return type(self).create_committer is not Sink.create_committer

    def create_commit_log(self, context: SinkWriterContext, job_name: str) -> CommitLog | None:
        """For a batch: the log of what it commits; None for a sink whose commits cannot be taken back."""
        return None

    def for_type(self, type_info: TypeInformation | None) -> Sink[T]:
        """The sink for records of a declared type, None for none; by default the type makes no difference."""
        return self

    def client_handler(self) -> Callable[[int, bytes], None] | None:
        """What the client does with the bytes of `emit_to_client`; None for a sink that emits none.

        Called with (subtask index, payload) in the job master's turn, in order.
        """
        return None
