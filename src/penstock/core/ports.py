"""What the runtime asks of the world. Drivers implement these protocols; the runtime never looks behind them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.core.records import Buffer
from penstock.storage.job_marks import JobMark, LeftByJobs
from penstock.storage.metadata import CheckpointMetadata, StateFile

if TYPE_CHECKING:
    from penstock.core.protocol import ChannelId, ExecutionId, ToMaster, ToWorker
    from penstock.state.backend import KeyedStateBackend

T = TypeVar("T")


class Clock(Protocol):
    """Processing time, and what time-outs are measured with."""

    def now_ms(self) -> int:
        """Processing time: milliseconds since the epoch as the host has it. It may jump forwards, never backwards."""
        ...

    def steady_ms(self) -> int:
        """Milliseconds since some moment, for time-outs: never jumps, and stands still while the host is suspended."""
        ...

    def steady_ns(self) -> int:
        """The same in nanoseconds, for what takes less than a millisecond."""
        ...


class Background(Protocol):
    """Work beside the owner's own turn, such as writing a snapshot."""

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `work` elsewhere; then call `done(result, error)` in the owner's turn."""
        ...


class Coroutines(Protocol):
    """User code that waits: coroutines on one event loop, beside the owner's turns."""

    def start(
        self, make: Callable[[], Awaitable[T]], done: Callable[[T | None, BaseException | None], None]
    ) -> Callable[[], None]:
        """Call `make` on the event loop and await what it gives; then `done(result, error)` in the owner's turn.

        Returns what cancels the call: from then on `done` is not called any more.
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
        passes_references: whether other workers get the records of a buffer themselves. Otherwise they get copies,
            which share nothing with those on another channel.
    """

    passes_references: bool

    def connect(self, attempt: int, peers: Mapping[str, str]) -> None:
        """Make these workers, too, reachable for the channels of an attempt: worker id to data address.

        Each attempt has connections of its own, because those of a former one may have broken.
        """
        ...

    def keep_attempts(self, attempts: Collection[int]) -> None:
        """The channels of all other attempts are of no use any more."""
        ...

    def send_buffer(self, worker_id: str, channel: ChannelId, buffer: Buffer) -> None:
        """Send; the runtime only does so while it holds credit, so this does not block."""
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
        """Ask for this many more workers; each registers by itself when it is up."""
        ...

    def withdraw_workers(self, count: int) -> None:
        """This many of those that were asked for are not needed any more; one that registers anyway is released."""
        ...

    def send(self, worker_id: str, message: ToWorker) -> None:
        """Send to a worker, first-in first-out; to one that is gone, nothing happens."""
        ...

    def release(self, worker_id: str) -> None:
        """End a worker, by force if it does not go."""
        ...


class StateStorage(Protocol):
    """State files of checkpoints, seen from a worker."""

    def write(self, checkpoint_id: int, name: str, data: bytes, savepoint_path: str | None = None) -> StateFile:
        """Store bytes durably (inline when small) and say where, with length and checksum."""
        ...

    def read(self, file: StateFile) -> bytes:
        """The bytes of a state file; raises `CheckpointError` when length or checksum do not hold."""
        ...

    def on_stored(self, checkpoint_id: int, files: Iterable[StateFile]) -> None:
        """A task's part of a checkpoint of the job consists of these files, some of them of earlier checkpoints."""
        ...

    def on_complete(self, checkpoint_id: int) -> None:
        """A checkpoint completed; called in a task's turn, so nothing is read or written here."""
        ...

    def close(self) -> None:
        """The worker ends."""
        ...


class KeyedBackends(Protocol):
    """Keyed state backends, of the kind that the configuration names, for the operators of a worker."""

    def make(
        self, execution: ExecutionId, operator_id: str, owner: str, max_parallelism: int, key_groups: tuple[int, int]
    ) -> KeyedStateBackend:
        """An empty backend for one operator in one subtask, which the task closes; `owner` is named in errors."""
        ...


class CheckpointStore(Protocol):
    """Checkpoints as wholes, seen from the job master. All methods do IO and belong in `Background`."""

    def complete(self, metadata: CheckpointMetadata, savepoint_path: str | None = None) -> str:
        """Write the metadata, last and atomically: only now the checkpoint exists. Returns its directory.

        What is there already is never overwritten: that is an error, and so is a checkpoint that was revoked.

        After that it looks whether this job master still leads: nothing is committed before. Raises `DeposedError`.

        With a `savepoint_path` the directory is that one. It is made self-contained: what the savepoint shares with
        checkpoints is copied. A savepoint that `ends_job` is then also put among the job's checkpoints, so that a
        recovery finds it.
        """
        ...

    def revoke(self, checkpoint_id: int) -> None:
        """Let a checkpoint whose completion has no certain end be none for ever.

        Its metadata may be there, or still be on its way: what comes after this call is refused. Doing so again changes
        nothing. Raises `DeposedError`: a later job master may have begun from it.
        """
        ...

    def discard_savepoint(self, savepoint_path: str) -> None:
        """Delete what was written for a savepoint, unless it is complete."""
        ...

    def delete_savepoint(self, savepoint_path: str) -> None:
        """Delete a savepoint that the job has claimed."""
        ...

    def listing(self) -> list[str]:
        """The paths of all files of the job's checkpoints, complete or not."""
        ...

    def delete(self, paths: list[str]) -> None:
        """Delete files, in this order; what is gone already is no error. Raises `DeposedError` before it begins."""
        ...

    def delete_jobs(self, job_ids: Iterable[str]) -> None:
        """Delete all that former jobs of the name have left. Raises `DeposedError` before it begins."""
        ...

    def join(self, job_name: str) -> None:
        """The job begins anew, beside others of its name: a job master that takes over later deposes this one."""
        ...

    def take_over(self, job_name: str) -> LeftByJobs:
        """Depose all job masters of a name; then read what its jobs have left, with complete paths, and their marks.

        What this finds, and what job masters from this one on do, is all that counts from now on (`leadership`).
        """
        ...

    def check_leads(self) -> None:
        """Raise `DeposedError` if another job master has taken the job over."""
        ...

    def load_checkpoint(self, checkpoint_id: int) -> CheckpointMetadata:
        """Read one of the job's checkpoints; raises `CheckpointError` when it is not whole."""
        ...

    def load(self, path: str, job_name: str | None = None, claims: bool = False) -> CheckpointMetadata:
        """Read a checkpoint or savepoint of any job by its directory; raises `CheckpointError` when it is not whole.

        With a name it is for a job of that name to begin from: it must not be another job's to delete. A job that
        `claims` it will delete it, and no other job can begin from it from now on.
        """
        ...

    def mark_job(self, mark: JobMark) -> None:
        """Say durably what has become of the job, in the place of what jobs of its name have said before."""
        ...

    def verify(self, metadata: CheckpointMetadata) -> None:
        """Raise `CheckpointError` when a state file that the checkpoint names is missing or damaged (G11)."""
        ...


class JobListener(Protocol):
    """What the job master tells those who watch the job."""

    def on_job_status(self, status: str, reason: str | None) -> None: ...

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None: ...

    def on_log(self, line: str) -> None: ...
