"""Every message between the job master and the workers, as frozen values.

Messages carry plain data and opaque bytes only. What is in the opaque bytes (user functions, splits, records) is
unpickled by its addressee, who knows by then that the sender belongs to the job.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from penstock.base.histograms import HistogramFigures
from penstock.core.records import MIN_TIMESTAMP
from penstock.storage.metadata import OperatorSubtaskState, StateFile


class ExecutionId(msgspec.Struct, frozen=True, array_like=True):
    """One attempt of one subtask of one job vertex (E6)."""

    vertex: int
    subtask: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.vertex}.{self.subtask}#{self.attempt}"


class ChannelId(msgspec.Struct, frozen=True, array_like=True):
    """One logical channel: an edge of the job graph, a sending and a receiving subtask, and the attempt."""

    edge: int
    producer: int
    consumer: int
    attempt: int


class Failure(msgspec.Struct, frozen=True):
    """Why a task failed, in words for the user. `user_code` is True when a user's function raised it.

    With `suppresses_restart` the same would happen again, whatever the restart strategy says; with `is_final_at_first`
    it would unless the job has worked before, as with a directory that may not be written. `is_outside` says that what
    failed lies outside of the job, such as a server that refused a connection, and may heal by itself.
    """

    reason: str
    operator_name: str | None = None
    record: str | None = None
    traceback: str | None = None
    user_code: bool = False
    suppresses_restart: bool = False
    #: which part of the user's code was called; empty for the operator's own function
    what: str = ""
    is_final_at_first: bool = False
    is_outside: bool = False
    #: the function in which a worker's process was blocked
    blocked_at: str = ""


class InputChannels(msgspec.Struct, frozen=True):
    """The channels of one edge into a task: (producing subtask, worker id), in order.

    Unless the edge `supports_unaligned`, no barrier overtakes its records, see `JobGraph.vertices_forced_aligned`.
    `awaits_channel_state`: each channel begins with what was in flight in the restored checkpoint, and says where that
    ends; nothing after it is processed before all channels of the edge have come so far.
    """

    edge: int
    input_index: int
    producers: tuple[tuple[int, str], ...]
    supports_unaligned: bool = True
    awaits_channel_state: bool = False


class OutputChannels(msgspec.Struct, frozen=True):
    """The channels of one edge out of a task: (consuming subtask, worker id), in order; for the rest see above."""

    edge: int
    consumers: tuple[tuple[int, str], ...]
    consumer_max_parallelism: int
    supports_unaligned: bool = True


class LatencySettings(msgspec.Struct, frozen=True):
    """How often (ms) sources send latency markers, and how many ages a histogram holds.

    `granularity`: whether there is a histogram for each operator ("single"), and for each source ("operator"), and for
    each subtask of it ("subtask").
    """

    interval_ms: int
    granularity: str
    history_size: int


class TaskSettings(msgspec.Struct, frozen=True):
    """The options that tasks read. `alignment_timeout_ms` is that of unaligned checkpoints: 0 never aligns.

    `state_latency`: of how many accesses to state one is timed, and how many times are remembered; None times nothing.
    `latency`: None where sources send no markers.
    """

    checkpointing: bool
    exactly_once: bool
    unaligned: bool
    alignment_timeout_ms: int
    held_back_bytes_max: int | None
    buffer_timeout_ms: int
    buffers_per_channel: int
    buffer_records: int
    source_batch_records: int
    auto_watermark_interval_ms: int = 200
    state_latency: tuple[int, int] | None = None
    latency: LatencySettings | None = None


# --- to workers ----------------------------------------------------------------------------------------------------


class DeployTask(msgspec.Struct, frozen=True, tag=True):
    """Run a subtask. `program` is the pickled `VertexProgram` of its vertex.

    `finished_on_restore`: it only commits what the restored checkpoint holds. `builds_on_restored`: incremental state
    may refer to the restored checkpoint's files, for they belong to this job. `watermarks`: how far event time (ms) had
    come, see `core.checkpoint.event_time`. `taken_over`: records in flight, by edge,
    to be partitioned again ahead of everything else; `sends_channel_state`: the edges whose consumers are told where
    that ends. `awaits_start`: once open, the task waits for `StartTask`. `forerunners`: the jobs that this one
    continues, until it has a checkpoint of its own. `attempts`: those that subtasks of the job are in now; of any other
    one, nothing is needed any more.
    """

    execution: ExecutionId
    job_id: str
    task_name: str
    parallelism: int
    max_parallelism: int
    program: bytes
    inputs: tuple[InputChannels, ...]
    outputs: tuple[OutputChannels, ...]
    peers: dict[str, str]
    settings: TaskSettings
    restored_checkpoint_id: int | None
    restored: dict[str, OperatorSubtaskState]
    finished_on_restore: bool = False
    builds_on_restored: bool = True
    watermarks: dict[int, int] = {}
    taken_over: tuple[tuple[int, tuple[StateFile, ...]], ...] = ()
    sends_channel_state: tuple[int, ...] = ()
    awaits_start: bool = False
    forerunners: tuple[str, ...] = ()
    attempts: tuple[int, ...] = ()


class StartTask(msgspec.Struct, frozen=True, tag=True):
    """Every task of the job is open: begin to process. Sent to a task whose deployment says that it waits for this."""

    execution: ExecutionId


class CancelTask(msgspec.Struct, frozen=True, tag=True):
    """Stop a subtask; the answer is a `TaskStateChanged` to CANCELED (or what it had become before)."""

    execution: ExecutionId


class StopMode(enum.Enum):
    """How a job stops with a savepoint (F3): to resume from it, or for good, after emitting all that is held back."""

    SUSPEND = "SUSPEND"
    DRAIN = "DRAIN"


class TriggerCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """Inject the barrier of this checkpoint at a task without running upstream tasks.

    For a savepoint it names the directory to write to. With a `stop`, sources come to their end ahead of the barrier.
    One that `is_full` refers to no file of an earlier checkpoint.
    """

    execution: ExecutionId
    checkpoint_id: int
    timestamp_ms: int
    savepoint_path: str | None = None
    completed_id: int = 0
    stop: StopMode | None = None
    is_full: bool = False


class NotifyCheckpointComplete(msgspec.Struct, frozen=True, tag=True):
    """The checkpoint completed: commit what was prepared for it (G9)."""

    execution: ExecutionId
    checkpoint_id: int


class NotifyCheckpointAborted(msgspec.Struct, frozen=True, tag=True):
    """The checkpoint will not complete."""

    execution: ExecutionId
    checkpoint_id: int


class AnnounceWatermark(msgspec.Struct, frozen=True, tag=True):
    """Answers a `ReportWatermark`: up to which watermark (ms) the subtask may read."""

    execution: ExecutionId
    operator_id: str
    allowed_ms: int


class AssignSplits(msgspec.Struct, frozen=True, tag=True):
    """Splits for a source reader, each pickled, and whether these are the last."""

    execution: ExecutionId
    operator_id: str
    splits: tuple[bytes, ...]
    no_more: bool


class ShutDownWorker(msgspec.Struct, frozen=True, tag=True):
    """Close all tasks and end."""

    reason: str


# --- to the job master ---------------------------------------------------------------------------------------------


class RegisterWorker(msgspec.Struct, frozen=True, tag=True):
    """A worker is up, with one slot (E2). `data_address` is where its peers reach it; only they read it."""

    worker_id: str
    data_address: str
    host: str
    process_id: int


class ProcessFigures(msgspec.Struct, frozen=True, array_like=True):
    """What a process uses. Times are totals; memory is in bytes, and a limit of 0 is none that is known.

    `cpu_load` is of all `cores` that it may use, from 0 to 1. `collections` counts Python's garbage collections, which
    took `collections_ms`. What went over the network is that of the whole machine, or container, since it began.
    `modules` are those that Python has loaded.
    """

    cpu_load: float = 0.0
    cpu_time_ns: int = 0
    cores: int = 0
    resident_bytes: int = 0
    memory_limit_bytes: int = 0
    physical_bytes: int = 0
    threads: int = 0
    collections: int = 0
    collections_ms: int = 0
    open_files: int = 0
    network_in_bytes: int = 0
    network_out_bytes: int = 0
    modules: int = 0


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """A worker's process lives.

    `still_ms`: for how long its loop has not turned, 0 when that is not worth a word; `whereabouts`: the user's
    function that has not returned meanwhile, if any. `busy_ms`: for how long the loop has been at work since it began,
    rather than waiting; None when nobody has measured it. `process`: what the process uses; None where it does not say.
    """

    worker_id: str
    whereabouts: str = ""
    still_ms: int = 0
    busy_ms: int | None = None
    process: ProcessFigures | None = None


class WorkerLost(msgspec.Struct, frozen=True, tag=True):
    """Said by the driver, not by the worker: its process is gone."""

    worker_id: str
    reason: str


class WorkerBlocked(msgspec.Struct, frozen=True, tag=True):
    """Said by the driver: no Python thread of the worker's process can run, so it sends no heartbeats.

    `at`: the user's function that seems to hold Python's lock (GIL), and its line. `stack`: its stack.
    """

    worker_id: str
    at: str
    stack: str


class WorkerLeaving(msgspec.Struct, frozen=True, tag=True):
    """Said by the driver: the worker still lives, and will be taken away; `reason` says by whom, and from where."""

    worker_id: str
    reason: str


class WorkerRequestFailed(msgspec.Struct, frozen=True, tag=True):
    """Said by the driver: it could not get a worker that was asked for."""

    reason: str


class TaskStateChanged(msgspec.Struct, frozen=True, tag=True):
    """A subtask's execution moved: INITIALIZING, RUNNING, FINISHED, CANCELED or FAILED (E6)."""

    execution: ExecutionId
    state: str
    failure: Failure | None = None


class EndOfDataReached(msgspec.Struct, frozen=True, tag=True):
    """A subtask has processed and finished all its data and waits for a checkpoint to commit it (F3, F6)."""

    execution: ExecutionId


class ChannelStateRecovered(msgspec.Struct, frozen=True, tag=True):
    """A subtask has processed all that was in flight in the restored checkpoint: it may be in a new one (G5)."""

    execution: ExecutionId


class AcknowledgeCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """A subtask's part of a checkpoint is stored. `finished` when it was taken after `finish` (G10).

    `start_delay_ms`: from the trigger of the checkpoint until its first barrier came here. `stored_bytes`: what was
    written for this checkpoint, without what it shares with earlier ones. `watermarks`: event time (ms) at the input
    and at the output of each operator, by id, where it has begun.
    """

    execution: ExecutionId
    checkpoint_id: int
    operators: dict[str, OperatorSubtaskState]
    finished: bool = False
    alignment_ms: int = 0
    held_back_bytes: int = 0
    sync_ms: int = 0
    async_ms: int = 0
    start_delay_ms: int = 0
    stored_bytes: int = 0
    processed_bytes: int = 0
    watermarks: dict[str, tuple[int, int]] = {}


class DeclineCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """A subtask cannot take part in a checkpoint; `is_failure` when it tried and failed, rather than was not ready.

    `is_final_at_first` and `is_outside` are those of `Failure`. `is_unready`: the task is about to begin or to end, and
    a moment later that may be over.
    """

    execution: ExecutionId
    checkpoint_id: int
    reason: str
    is_failure: bool = False
    is_final_at_first: bool = False
    is_outside: bool = False
    is_unready: bool = False


class RequestSplit(msgspec.Struct, frozen=True, tag=True):
    """A source reader asks for a split."""

    execution: ExecutionId
    operator_id: str


class ReportWatermark(msgspec.Struct, frozen=True, tag=True):
    """How far (ms of event time) a subtask of an aligned source is; the end of time when none should wait for it."""

    execution: ExecutionId
    operator_id: str
    watermark_ms: int


class ClientOutput(msgspec.Struct, frozen=True, tag=True):
    """Bytes for the job's client: collected results, printed lines."""

    execution: ExecutionId
    operator_id: str
    payload: bytes


class OperatorFigures(msgspec.Struct, frozen=True, array_like=True):
    """One operator of a subtask: records that came in and went out, and its watermarks (ms; the least while none).

    Of the operator and of the user's function in it: counters, gauges, and distributions (count, sum, least, greatest).
    `measured`: what the runtime measures of an operator of its kind, by Flink's names. `state_latency`: how long (ns)
    accesses to state take, by `<state>.<metric>`. `latency`: ages (ms) of latency markers, by what is kept apart.
    """

    operator_id: str
    records_in: int = 0
    records_out: int = 0
    input_watermark_ms: int = MIN_TIMESTAMP
    output_watermark_ms: int = MIN_TIMESTAMP
    counters: dict[str, int] = {}
    gauges: dict[str, float] = {}
    distributions: dict[str, tuple[int, float, float, float]] = {}
    measured: dict[str, int | float] = {}
    state_latency: dict[str, HistogramFigures] = {}
    latency: dict[str, HistogramFigures] = {}


class InputWatermark(msgspec.Struct, frozen=True, array_like=True):
    """How far (ms of event time) one input of a task is: the lowest and the highest of its active channels.

    `edge` is where the channels come from; None for a source, whose inputs are splits. `parts` names channels, by the
    producer's subtask, or splits that hold the watermark back; there are `count` of them. An input is idle if all of
    its channels are idle or have ended. Without active channels, both watermarks are the least time.
    """

    edge: int | None
    lowest_ms: int
    highest_ms: int
    is_idle: bool
    holds: bool
    parts: tuple[str, ...] = ()
    count: int = 0
    has_ended: bool = False


class WatermarkHold(msgspec.Struct, frozen=True, array_like=True):
    """A task's watermark (ms of event time) that some of its inputs hold back.

    It has stood still since `since_ms`, and the input that is furthest ahead moved for the last time at `moved_ms`
    (ms since the epoch).
    """

    watermark_ms: int
    since_ms: int
    moved_ms: int
    inputs: tuple[InputWatermark, ...]


class TaskFigures(msgspec.Struct, frozen=True, array_like=True):
    """How a subtask spends its time and what it moves; totals of this attempt, times in ms.

    A subtask is busy while it processes, back-pressured while its output is full, and idle otherwise: while it has no
    input, or waits for its worker's thread. Bytes are estimated from a sample of the batches, because what goes to a
    task of the same worker goes by reference. `buffers_queued_in` and `_out` are full and wait now; at most
    `buffers_in_max` and `buffers_out_max` may. Remote bytes and buffers come from other workers. The longest
    back-pressure is the longest wait for consumers since the report before. `mailbox_latency` (ms): how late the
    worker looks at the mail of its tasks. `hold`: which inputs hold the watermark back, if any do.
    `makes_watermarks`: False for a source that has none, None for a task that passes on those of its inputs.
    """

    busy_ms: int = 0
    back_pressured_ms: int = 0
    idle_ms: int = 0
    is_back_pressured: bool = False
    initialization_ms: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    buffers_in: int = 0
    buffers_out: int = 0
    buffers_queued_in: int = 0
    buffers_queued_out: int = 0
    mails: int = 0
    mails_queued: int = 0
    checkpoint_start_delay_ms: int = 0
    checkpoint_alignment_ms: int = 0
    operators: tuple[OperatorFigures, ...] = ()
    fired_timers: int = 0
    bytes_in_remote: int = 0
    buffers_in_remote: int = 0
    buffers_in_max: int = 0
    buffers_out_max: int = 0
    longest_back_pressure_ms: int = 0
    mailbox_latency: HistogramFigures | None = None
    hold: WatermarkHold | None = None
    makes_watermarks: bool | None = None


class TaskMetrics(msgspec.Struct, frozen=True, tag=True):
    """Progress of a subtask: records in and out, its watermark (ms), named counters; totals of this attempt.

    Of the user's functions: gauges, distributions (count, sum, least, greatest), and accumulators, pickled, with names.
    `figures`: how it spends its time, and the same operator by operator; None where nobody measures it.
    """

    execution: ExecutionId
    records_in: int
    records_out: int
    watermark_ms: int
    counters: dict[str, int] = {}
    gauges: dict[str, float] = {}
    distributions: dict[str, tuple[int, float, float, float]] = {}
    accumulators: tuple[tuple[str, bytes], ...] = ()
    figures: TaskFigures | None = None


ToWorker: TypeAlias = (
    DeployTask
    | StartTask
    | CancelTask
    | TriggerCheckpoint
    | NotifyCheckpointComplete
    | NotifyCheckpointAborted
    | AssignSplits
    | AnnounceWatermark
    | ShutDownWorker
)
ToMaster: TypeAlias = (
    RegisterWorker
    | Heartbeat
    | WorkerLost
    | WorkerBlocked
    | WorkerLeaving
    | WorkerRequestFailed
    | TaskStateChanged
    | EndOfDataReached
    | ChannelStateRecovered
    | AcknowledgeCheckpoint
    | DeclineCheckpoint
    | RequestSplit
    | ReportWatermark
    | ClientOutput
    | TaskMetrics
)
#: What a worker may say over the wire: all except what only the driver itself may say.
FromWorker: TypeAlias = (
    RegisterWorker
    | Heartbeat
    | TaskStateChanged
    | EndOfDataReached
    | ChannelStateRecovered
    | AcknowledgeCheckpoint
    | DeclineCheckpoint
    | RequestSplit
    | ReportWatermark
    | ClientOutput
    | TaskMetrics
)
