"""The runtime's interface to the outside. Drivers implement these protocols; the runtime never looks past them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.runtime.records import Buffer
from penstock.storage.leadership import JobMark, LeftByJobs
from penstock.storage.metadata import CheckpointMetadata, StateFile

if TYPE_CHECKING:
    from penstock.runtime.protocol import ChannelId, ExecutionId, ToMaster, ToWorker
    from penstock.state.backend import KeyedStateBackend

T = TypeVar("T")


class Clock(Protocol):
    """Processing time, and a steady clock for timeouts."""

    def now_ms(self) -> int:
        """Return the processing time: milliseconds since the epoch on the host. May jump forwards, never backwards."""
        ...

    def steady_ms(self) -> int:
        """Return milliseconds since some moment, for timeouts: never jumps, and stops while the host is suspended."""
        ...

    def steady_ns(self) -> int:
        """Return the same in nanoseconds, for durations below a millisecond."""
        ...


class Background(Protocol):
    """Work outside the owner's turn, such as writing a snapshot."""

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `work` elsewhere; then call `done(result, error)` in the owner's turn."""
        ...


class Coroutines(Protocol):
    """Asynchronous user code: coroutines on one event loop, beside the owner's turns."""

    def start(
        self, make: Callable[[], Awaitable[T]], done: Callable[[T | None, BaseException | None], None]
    ) -> Callable[[], None]:
        """Call `make` on the event loop and await its result; then call `done(result, error)` in the owner's turn.

        Returns a function that cancels the call: `done` is not called after that.
        """
        ...

    def release(self, make: Callable[[], Awaitable[object]]) -> None:
        """Call `make` on the event loop, to release resources that the loop holds, such as connections.

        The loop may close meanwhile: calls of `start` are cancelled then, and this one is awaited, for 2 s at most.
        """
        ...


class CycleCollector(Protocol):
    """Frees reference cycles of ended tasks, such as user functions that refer to themselves."""

    def note(self) -> None:
        """Note that tasks have ended, which may have left cycles."""
        ...

    def collect(self) -> None:
        """Free cycles if tasks have ended since the last call. Called before other tasks begin."""
        ...


class Network(Protocol):
    """Buffers and credits from this worker to others; each channel is first-in first-out.

    Attributes:
        passes_references: whether other workers receive the record objects of a buffer. Otherwise they receive copies,
            which share nothing with the records of another channel.
    """

    passes_references: bool

    def connect(self, attempt: int, peers: Mapping[str, str]) -> None:
        """Make these workers reachable, in addition, for the channels of an attempt: worker id to data address.

        Each attempt has its own connections, because connections of an earlier attempt may have broken.
        """
        ...

    def keep_attempts(self, attempts: Collection[int]) -> None:
        """Release the channels of all other attempts, which are no longer needed."""
        ...

    def send_buffer(self, worker_id: str, channel: ChannelId, buffer: Buffer) -> None:
        """Send a buffer. The runtime does so only while it holds credit, so this does not block."""
        ...

    def send_credit(self, worker_id: str, channel: ChannelId, credit: int) -> None:
        """Allow the producer of a channel to send `credit` more buffers."""
        ...


class MasterGateway(Protocol):
    """Messages from a worker to the job master, first-in first-out."""

    def send(self, message: ToMaster) -> None: ...


class Cluster(Protocol):
    """The workers, as the job master sees them."""

    def request_workers(self, count: int) -> None:
        """Request this many more workers; each registers itself when it is up."""
        ...

    def withdraw_workers(self, count: int) -> None:
        """Withdraw the request for this many workers; one that registers anyway is released."""
        ...

    def send(self, worker_id: str, message: ToWorker) -> None:
        """Send to a worker, first-in first-out; does nothing if the worker no longer exists."""
        ...

    def release(self, worker_id: str) -> None:
        """End a worker, by force if necessary."""
        ...


class StateStorage(Protocol):
    """The state files of checkpoints, as a worker sees them."""

    def write(self, checkpoint_id: int, name: str, data: bytes, savepoint_path: str | None = None) -> StateFile:
        """Store bytes durably (inline if small) and return their location, with length and checksum."""
        ...

    def read(self, file: StateFile) -> bytes:
        """Return the bytes of a state file; raises `CheckpointError` if length or checksum is wrong."""
        ...

    def on_stored(self, checkpoint_id: int, files: Iterable[StateFile]) -> None:
        """Note that a task's part of a checkpoint consists of these files, some of them from earlier checkpoints."""
        ...

    def on_complete(self, checkpoint_id: int) -> None:
        """Note that a checkpoint completed; called in a task's turn, so this does not read or write."""
        ...

    def close(self) -> None:
        """Close the storage when the worker ends."""
        ...


class KeyedBackends(Protocol):
    """Keyed state backends of the configured kind, for the operators of a worker."""

    def make(
        self, execution: ExecutionId, operator_id: str, owner: str, max_parallelism: int, key_groups: tuple[int, int]
    ) -> KeyedStateBackend:
        """Create an empty backend for one operator in one subtask, to be closed by the task; errors name `owner`."""
        ...


class CheckpointStore(Protocol):
    """Whole checkpoints, as the job master sees them. All methods do IO and belong in `Background`."""

    def complete(self, metadata: CheckpointMetadata, savepoint_path: str | None = None) -> str:
        """Write the metadata, last and atomically: only now does the checkpoint exist. Returns its directory.

        Existing metadata is never overwritten; this is an error, and so is completing a revoked checkpoint.

        Then checks that this job master still leads, because nothing is committed before that. Raises `DeposedError`.

        With a `savepoint_path`, this is the directory. The savepoint is made self-contained: files shared with
        checkpoints are copied. A savepoint that `ends_job` is then also put among the job's checkpoints, so that a
        recovery finds it.
        """
        ...

    def revoke(self, checkpoint_id: int) -> None:
        """Permanently invalidate a checkpoint whose completion is uncertain.

        Its metadata may exist or still be on its way; metadata that arrives after this call is refused. Revoking twice
        changes nothing. Raises `DeposedError`, because a later job master may have started from the checkpoint.
        """
        ...

    def discard_savepoint(self, savepoint_path: str) -> None:
        """Delete the files written for a savepoint, unless it is complete."""
        ...

    def delete_savepoint(self, savepoint_path: str) -> None:
        """Delete a savepoint that the job has claimed."""
        ...

    def listing(self) -> list[str]:
        """Return the paths of all files of the job's checkpoints, complete or not."""
        ...

    def delete(self, paths: list[str]) -> None:
        """Delete files in this order, ignoring missing ones. Raises `DeposedError` before it deletes anything."""
        ...

    def delete_jobs(self, job_ids: Iterable[str]) -> None:
        """Delete everything that former jobs of the name left. Raises `DeposedError` before it deletes anything."""
        ...

    def join(self, job_name: str) -> None:
        """Start from scratch, beside other jobs of the name: a job master that takes over later deposes this one."""
        ...

    def take_over(self, job_name: str) -> LeftByJobs:
        """Depose all job masters of a name, then read what its jobs left, with complete paths, and their marks.

        From now on, only this result and the actions of this and later job masters count (`leadership`).
        """
        ...

    def check_leads(self) -> None:
        """Raise `DeposedError` if another job master has taken the job over."""
        ...

    def load_checkpoint(self, checkpoint_id: int) -> CheckpointMetadata:
        """Read one of the job's checkpoints; raises `CheckpointError` if it is not intact."""
        ...

    def load(self, path: str, job_name: str | None = None, claims: bool = False) -> CheckpointMetadata:
        """Read a checkpoint or savepoint of any job by its directory; raises `CheckpointError` if it is not intact.

        A job of the given name will start from it, so it must not belong to another job that deletes it. A job that
        `claims` it will delete it, and no other job can start from it after this call.
        """
        ...

    def mark_job(self, mark: JobMark) -> None:
        """Durably record the status of the job, replacing earlier marks of jobs of its name."""
        ...

    def verify(self, metadata: CheckpointMetadata) -> None:
        """Raise `CheckpointError` if a state file of the checkpoint is missing or damaged (G11)."""
        ...


class JobListener(Protocol):
    """Receives the events that the job master reports to observers of the job."""

    def on_job_status(self, status: str, reason: str | None) -> None: ...

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None: ...

    def on_log(self, line: str) -> None: ...
