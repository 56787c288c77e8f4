"""All messages between the job master and the workers, as frozen values.

Messages carry plain data and opaque bytes only. The receiver unpickles the opaque bytes (user functions, splits,
records), and knows by then that the sender belongs to the job.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from penstock.base.metrics import HistogramFigures
from penstock.runtime.records import MIN_TIMESTAMP
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
    """Why a task failed, in words for the user. `user_code` is True if a user's function raised the error.

    `suppresses_restart`: a retry would fail again, whatever the restart strategy says; `is_final_at_first`: the same
    unless the job has worked before, as with a directory that is not writable. `is_outside`: the cause lies outside of
    the job, such as a server that refused a connection, and may heal by itself.
    """

    reason: str
    operator_name: str | None = None
    record: str | None = None
    traceback: str | None = None
    user_code: bool = False
    suppresses_restart: bool = False
    #: the part of the user's code that was called; empty for the operator's own function
    what: str = ""
    is_final_at_first: bool = False
    is_outside: bool = False
    #: the function that blocked a worker's process
    blocked_at: str = ""


class InputChannels(msgspec.Struct, frozen=True):
    """The channels of one edge into a task: (producing subtask, worker id), in order.

    Barriers overtake records only if the edge `supports_unaligned`, see `JobGraph.vertices_forced_aligned`.
    `awaits_channel_state`: each channel begins with its in-flight records of the restored checkpoint and marks their
    end; the task processes nothing after the mark until all channels of the edge have reached it.
    """

    edge: int
    input_index: int
    producers: tuple[tuple[int, str], ...]
    supports_unaligned: bool = True
    awaits_channel_state: bool = False


class OutputChannels(msgspec.Struct, frozen=True):
    """The channels of one edge out of a task: (consuming subtask, worker id), in order; otherwise as above."""

    edge: int
    consumers: tuple[tuple[int, str], ...]
    consumer_max_parallelism: int
    supports_unaligned: bool = True


class LatencySettings(msgspec.Struct, frozen=True):
    """How often (ms) sources send latency markers, and how many latencies a histogram holds.

    `granularity`: one histogram per operator ("single"), per operator and source ("operator"), or per operator and
    source subtask ("subtask").
    """

    interval_ms: int
    granularity: str
    history_size: int


class TaskSettings(msgspec.Struct, frozen=True):
    """The options that tasks read. `alignment_timeout_ms` applies to unaligned checkpoints: 0 never aligns.

    `state_latency`: one in how many state accesses is timed, and how many times are kept; None for no timing.
    `latency`: None if sources send no markers.
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

    `finished_on_restore`: the subtask only commits output of the restored checkpoint. `builds_on_restored`: incremental
    state may refer to the restored checkpoint's files, because they belong to this job. `watermarks`: the event time
    (ms) reached, see `runtime.checkpoint.settings`. `taken_over`: in-flight records, by edge, to be repartitioned
    before everything else; `sends_channel_state`: the edges whose consumers are notified where these records end.
    `awaits_start`: once open, the task waits for `StartTask`. `forerunners`: the jobs that this one continues, until it
    has a checkpoint of its own. `attempts`: the current attempts of the job's subtasks; data of any other attempt is no
    longer needed.
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
    """Begin to process, because every task of the job is open. Sent to tasks that were deployed with `awaits_start`."""

    execution: ExecutionId


class CancelTask(msgspec.Struct, frozen=True, tag=True):
    """Stop a subtask. The reply is a `TaskStateChanged` to CANCELED, or to the state that it had already reached."""

    execution: ExecutionId


class StopMode(enum.Enum):
    """How a job stops with a savepoint (F3): to resume from it, or for good, after emitting all held-back output."""

    SUSPEND = "SUSPEND"
    DRAIN = "DRAIN"


class TriggerCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """Inject the barrier of this checkpoint at a task without running upstream tasks.

    For a savepoint, it names the directory to write to. With a `stop`, sources end before the barrier. If it `is_full`,
    the checkpoint refers to no file of an earlier one.
    """

    execution: ExecutionId
    checkpoint_id: int
    timestamp_ms: int
    savepoint_path: str | None = None
    completed_id: int = 0
    stop: StopMode | None = None
    is_full: bool = False


class NotifyCheckpointComplete(msgspec.Struct, frozen=True, tag=True):
    """The checkpoint completed: commit the output prepared for it (G9)."""

    execution: ExecutionId
    checkpoint_id: int


class NotifyCheckpointAborted(msgspec.Struct, frozen=True, tag=True):
    """The checkpoint will not complete."""

    execution: ExecutionId
    checkpoint_id: int


class AnnounceWatermark(msgspec.Struct, frozen=True, tag=True):
    """The reply to `ReportWatermark`: the watermark (ms) up to which the subtask may read."""

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
    """Resource usage of a process. Times are totals; memory is in bytes, and a limit of 0 means that none is known.

    `cpu_load` is the load of all `cores` available to the process, from 0 to 1. `collections` counts Python's garbage
    collections, which took `collections_ms`. Network bytes are totals of the whole machine or container since its
    start. `modules` is the number of modules that Python has loaded.
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
    """A worker's process is alive.

    `still_ms`: how long its loop has not turned, 0 if negligible; `whereabouts`: the user's function that has not
    returned meanwhile, if any. `busy_ms`: how long the loop has worked, rather than waited, since its start; None if
    not measured. `process`: the resource usage of the process; None if not reported.
    """

    worker_id: str
    whereabouts: str = ""
    still_ms: int = 0
    busy_ms: int | None = None
    process: ProcessFigures | None = None


class WorkerLost(msgspec.Struct, frozen=True, tag=True):
    """Sent by the driver, not by the worker: the worker's process has died."""

    worker_id: str
    reason: str


class WorkerBlocked(msgspec.Struct, frozen=True, tag=True):
    """Sent by the driver: no Python thread of the worker's process can run, so it sends no heartbeats.

    `at`: the user's function that seems to hold Python's lock (GIL), and its line. `stack`: its stack.
    """

    worker_id: str
    at: str
    stack: str


class WorkerLeaving(msgspec.Struct, frozen=True, tag=True):
    """Sent by the driver: the worker is still alive but will be removed; `reason` says by whom, and from where."""

    worker_id: str
    reason: str


class WorkerRequestFailed(msgspec.Struct, frozen=True, tag=True):
    """Sent by the driver: it could not get a requested worker."""

    reason: str


class TaskStateChanged(msgspec.Struct, frozen=True, tag=True):
    """A subtask's execution changed its state to INITIALIZING, RUNNING, FINISHED, CANCELED or FAILED (E6)."""

    execution: ExecutionId
    state: str
    failure: Failure | None = None


class EndOfDataReached(msgspec.Struct, frozen=True, tag=True):
    """A subtask has processed and finished all its data and waits for a checkpoint to commit it (F3, F6)."""

    execution: ExecutionId


class ChannelStateRecovered(msgspec.Struct, frozen=True, tag=True):
    """A subtask has processed all in-flight records of the restored checkpoint, and can join a new one (G5)."""

    execution: ExecutionId


class AcknowledgeCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """A subtask's part of a checkpoint is stored. `finished`: it was taken after `finish` (G10).

    `start_delay_ms`: the time from the checkpoint's trigger until its first barrier arrived here. `stored_bytes`: the
    bytes written for this checkpoint, without data shared with earlier ones. `watermarks`: the event time (ms) at the
    input and the output of each operator, by id, once event time has begun.
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
    """A subtask cannot take part in a checkpoint; `is_failure`: it tried and failed, rather than not being ready.

    `is_final_at_first` and `is_outside` are the fields of `Failure`. `is_unready`: the task is about to begin or to
    end, which may be over a moment later.
    """

    execution: ExecutionId
    checkpoint_id: int
    reason: str
    is_failure: bool = False
    is_final_at_first: bool = False
    is_outside: bool = False
    is_unready: bool = False


class RequestSplit(msgspec.Struct, frozen=True, tag=True):
    """A source reader requests a split."""

    execution: ExecutionId
    operator_id: str


class SourceEvent(msgspec.Struct, frozen=True, tag=True):
    """A source reader sends an event, pickled, to its enumerator."""

    execution: ExecutionId
    operator_id: str
    data: bytes


class ReportWatermark(msgspec.Struct, frozen=True, tag=True):
    """The watermark (ms) of a subtask of an aligned source; the end of time if no source should wait for it."""

    execution: ExecutionId
    operator_id: str
    watermark_ms: int


class ClientOutput(msgspec.Struct, frozen=True, tag=True):
    """Bytes for the job's client: collected results, printed lines."""

    execution: ExecutionId
    operator_id: str
    payload: bytes


class OperatorFigures(msgspec.Struct, frozen=True, array_like=True):
    """Metrics of one operator of a subtask: records in and out, and watermarks (ms; the minimum before the first).

    `counters`, `gauges` and `distributions` (count, sum, least, greatest) come from the operator and its user function.
    `measured`: runtime metrics for this kind of operator, by Flink's names. `state_latency`: how long (ns) state
    accesses take, by `<state>.<metric>`. `latency`: ages (ms) of latency markers, by their sources as the granularity
    distinguishes them.
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
    """The event time (ms) of one input of a task: the lowest and the highest watermark of its active channels.

    `edge` is the edge that the channels belong to; None for a source, whose inputs are splits. `parts` names the
    channels, by the producer's subtask, or the splits that hold the watermark back; `count` is their number. An input
    is idle if all of its channels are idle or have ended. Without active channels, both watermarks are the minimum
    time.
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
    """A task's watermark (ms of event time) that is held back by some of its inputs.

    It has not advanced since `since_ms`, and the input furthest ahead advanced for the last time at `moved_ms` (ms
    since the epoch).
    """

    watermark_ms: int
    since_ms: int
    moved_ms: int
    inputs: tuple[InputWatermark, ...]


class TaskFigures(msgspec.Struct, frozen=True, array_like=True):
    """How a subtask spends its time and how much data it moves; totals of this attempt, times in ms.

    A subtask is busy while it processes, back-pressured while its output is full, and idle otherwise: while it has no
    input, or waits for its worker's thread. Bytes are estimated from a sample of the batches, because tasks of the same
    worker exchange records by reference. `buffers_queued_in` and `_out` are the full buffers that wait now; the limits
    are `buffers_in_max` and `buffers_out_max`. Remote bytes and buffers come from other workers. The longest
    back-pressure is the longest wait for consumers since the previous report. `mailbox_latency` (ms): how late the
    worker handles the mail of its tasks. `hold`: the inputs that hold the watermark back, if any. `makes_watermarks`:
    False for a source without watermarks, None for a task that forwards the watermarks of its inputs.
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

    From the user's functions: gauges, distributions (count, sum, least, greatest), and pickled accumulators with their
    names. `figures`: how the subtask spends its time, and the same by operator; None if not measured.
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
    | SourceEvent
    | ReportWatermark
    | ClientOutput
    | TaskMetrics
)
#: The messages that a worker may send over the wire: all except the messages that only the driver itself sends.
FromWorker: TypeAlias = (
    RegisterWorker
    | Heartbeat
    | TaskStateChanged
    | EndOfDataReached
    | ChannelStateRecovered
    | AcknowledgeCheckpoint
    | DeclineCheckpoint
    | RequestSplit
    | SourceEvent
    | ReportWatermark
    | ClientOutput
    | TaskMetrics
)
