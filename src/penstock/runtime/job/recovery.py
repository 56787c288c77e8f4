"""The beginnings of a job and of its attempts, and savepoints of a running job (G8, H1, H2).

`JobRecovery`: a job and each of its attempts begin at the newest checkpoint, at a savepoint, or from the beginning.

`JobSavepoints` takes savepoints that a user requests of a running job, alone or to end the job.

`guarantees` says plainly, when a job starts, what a failure can cost it (J).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from penstock.base.configuration import Configuration
from penstock.base.errors import CheckpointError, JobExecutionError, PenstockError
from penstock.base.job import JobStatus
from penstock.base.options import CHECKPOINTING_DIR, RECOVERY_FROM_LATEST, RECOVERY_PATH
from penstock.runtime.checkpoint import savepoints
from penstock.runtime.checkpoint.coordinator import CheckpointCoordinator
from penstock.runtime.checkpoint.pending import SavepointSettled
from penstock.runtime.checkpoint.restore import check_fit, check_in_flight, to_initial_metadata
from penstock.runtime.checkpoint.statistics import CheckpointSettings
from penstock.runtime.effects import Effects
from penstock.runtime.failure import is_outside
from penstock.runtime.graph import ExecutionGraph, JobGraph
from penstock.runtime.ports import CheckpointStore
from penstock.runtime.protocol import Failure
from penstock.storage.leadership import LeftByJobs
from penstock.storage.metadata import CheckpointMetadata

#: Completes the log line of a job that waits to continue from the state that earlier jobs have left.
TAKEN_OVER: Final = "has said what jobs of this name have left"


@dataclass(frozen=True, slots=True)
class BeginKnown:
    """The starting point of the job is known, so its workers are needed."""


@dataclass(frozen=True, slots=True)
class AttemptReady:
    """The attempt begins from that checkpoint, which is intact, or from the beginning."""

    restored: CheckpointMetadata | None


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """The attempt fails, or cannot begin now; another one may succeed."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class JobGivenUp:
    """The job fails, because no further attempt can succeed."""

    error: PenstockError


@dataclass(frozen=True, slots=True)
class JobHadEnded:
    """An earlier job master, or an earlier job of the same name, has already ended the job."""

    status: JobStatus


RecoveryNews: TypeAlias = BeginKnown | AttemptReady | AttemptFailed | JobGivenUp | JobHadEnded


class RecoveringMaster(Protocol):
    """The job master, as recovery sees it."""

    @property
    def job_graph(self) -> JobGraph: ...

    @property
    def job_id(self) -> str: ...

    @property
    def status(self) -> JobStatus: ...

    @property
    def checkpoints(self) -> CheckpointCoordinator: ...

    def begins(self, attempt: int) -> bool:
        """Return whether that attempt waits for the checkpoint to start from, if any."""
        ...

    @property
    def restarts_part(self) -> bool:
        """Whether only a part of the job is to restart."""
        ...


class JobRecovery:
    """Reads and checks, in the background, the checkpoint that a job begins from, and reports it to the master."""

    def __init__(
        self,
        master: RecoveringMaster,
        graph: ExecutionGraph,
        configuration: Configuration,
        store: CheckpointStore,
        effects: Effects,
        tell: Callable[[RecoveryNews], None],
    ) -> None:
        self._master = master
        self._graph = graph
        self._configuration = configuration
        self._store = store
        self._effects = effects
        self._tell = tell
        self._calls = master.checkpoints.calls
        self._savepoint_path = configuration.read(RECOVERY_PATH)
        #: whether the state that earlier jobs of this name have left no longer counts
        self._begins_anew = False
        #: older checkpoints that jobs of this name have left, newest first
        self._older: list[CheckpointMetadata] = []
        #: whether falling back from a damaged checkpoint would commit output again, which the options do not allow
        self._must_not_fall_back = savepoints.must_not_fall_back(master.job_graph, configuration)

    def recover(self) -> None:
        """Continue from the newest checkpoint of an earlier job master of this job, if it took any."""
        retained = self._master.checkpoints.settings.retained
        self._master.checkpoints.keep_all()
        job_id, name = self._master.job_id, self._master.job_graph.name
        self._calls.wait_for(
            TAKEN_OVER, lambda: savepoints.read_recovery(self._store, job_id, name, retained), self._on_recovery_read
        )

    def begin(self) -> None:
        """Begin at the newest checkpoint of the job's name, the configured savepoint, or the beginning."""
        name, store = self._master.job_graph.name, self._store
        if self._configuration.read(RECOVERY_FROM_LATEST):
            self._calls.wait_for(TAKEN_OVER, lambda: store.take_over(name), self._on_left_read)
        else:
            self._calls.wait_for("can be read", lambda: store.join(name), self._on_joined)

    def _on_joined(self, result: None, error: BaseException | None) -> None:
        if self._master.status is not JobStatus.CREATED:
            return
        if error is None:
            self._begins_anew = True
            self._begin_from_path()
        else:
            self._give_up(f"{CHECKPOINTING_DIR.key()} cannot be read: {type(error).__name__}: {error}")

    def _begin_from_path(self) -> None:
        path = self._savepoint_path
        if path is None:
            self._mark_begin()
            self._tell(BeginKnown())
        else:
            self._calls.wait_for(f"has read {path}", lambda: self._load(path), self._on_savepoint_read)

    def _load(self, path: str) -> CheckpointMetadata:
        master = self._master
        return self._store.load(path, master.job_graph.name, master.checkpoints.settings.claims_initial)

    def _on_savepoint_read(self, metadata: CheckpointMetadata | None, error: BaseException | None) -> None:
        if self._master.status is not JobStatus.CREATED:
            return
        if metadata is None:
            self._give_up(f"{RECOVERY_PATH.key()} {self._savepoint_path} cannot be read: {error}")
        elif self._try_restore(metadata, RECOVERY_PATH.key()):
            self._mark_begin()
            self._tell(BeginKnown())

    def _mark_begin(self) -> None:
        """Record where the job begins, unless it continues from an earlier job of its name."""
        if self._begins_anew:
            name, path = self._master.job_graph.name, self._savepoint_path
            self._master.checkpoints.mark_begin(name, path)

    def _try_restore(self, metadata: CheckpointMetadata, option: str) -> bool:
        """Return whether a savepoint or checkpoint fits the job; if so, begin from it, otherwise fail the job."""
        try:
            for line in check_fit(metadata, self._master.job_graph, self._configuration):
                self._effects.log(line)
        except CheckpointError as misfit:
            self._give_up(f"{option} {metadata.external_path} does not fit the job: {misfit}")
            return False
        self._savepoint_path = metadata.external_path
        self._master.checkpoints.begin_from(to_initial_metadata(metadata, self._configuration))
        self._effects.log(f"begins from {self.point}")
        return True

    def _give_up(self, reason: str) -> None:
        self._tell(JobGivenUp(JobExecutionError(self._master.job_graph.name, reason)))

    # --- from what earlier jobs of the name have left --------------------------------------------------------------

    def _on_left_read(self, left: LeftByJobs | None, error: BaseException | None) -> None:
        if self._master.status is not JobStatus.CREATED:
            return
        name, option = self._master.job_graph.name, RECOVERY_FROM_LATEST.key()
        if left is None or left.damaged:
            cause = error if left is None else left.damaged[0]
            self._give_up(f"{option}: cannot read what jobs of this name have left: {cause}")
            return
        choice = savepoints.choose_latest(left)
        self._master.checkpoints.continues(left, choice)
        for line in choice.damaged:
            self._effects.log(line)
        if choice.damaged and self._must_not_fall_back:
            self._give_up(savepoints.refusal_of_latest(choice))
        elif choice.end is not None:
            self._effects.log(f"{option}: {savepoints.finished_before(choice.end)}")
            self._tell(JobHadEnded(JobStatus.FINISHED))
        elif choice.path is not None:
            self._savepoint_path = choice.path
            self._begin_from_path()
        elif choice.checkpoints:
            self._older = list(choice.checkpoints[1:])
            if choice.damaged:
                self._effects.log(savepoints.fallen_back(choice.skipped, str(choice.checkpoints[0].external_path)))
            if self._try_restore(choice.checkpoints[0], option):
                self._tell(BeginKnown())
        else:
            self._effects.log(
                f"{option}: no job named {name!r} has left a checkpoint; the job begins from {self.point}"
            )
            self._begin_from_path()

    def _on_recovery_read(self, recovery: savepoints.Recovery | None, error: BaseException | None) -> None:
        """Continue from the newest checkpoint of an earlier job master, with attempt numbers above its own."""
        if self._master.status is not JobStatus.CREATED:
            return
        if recovery is None:
            self._give_up(f"the job's checkpoints cannot be read: {error}")
            return
        if recovery.end is not None:
            self._master.checkpoints.last = recovery.last
            self._tell(JobHadEnded(JobStatus[recovery.end.status]))
            return
        for line in recovery.damaged:
            self._effects.log(line)
        if recovery.damaged and not recovery.completed:
            reason = "no checkpoint is left to recover from, and starting over would commit the same output again"
            self._give_up(f"{reason}: {recovery.damaged[0]}")
            return
        if recovery.passed_over and self._must_not_fall_back:
            before = f"checkpoint {recovery.completed[-1].checkpoint_id}"
            self._give_up(savepoints.refusal_to_fall_back(recovery.passed_over[0], before))
            return
        self._master.checkpoints.recover(recovery.completed, recovery.last_id)
        if recovery.skipped_ids:
            skipped = [f"checkpoint {checkpoint_id}" for checkpoint_id in recovery.skipped_ids]
            self._effects.log(savepoints.fallen_back(skipped, self.point))
        self._graph.reset(recovery.first_attempt)
        if self._master.checkpoints.completed:
            self._tell(BeginKnown())
        elif self._configuration.read(RECOVERY_FROM_LATEST):
            self._on_left_read(recovery.left, None)
        else:
            self._on_joined(None, None)

    def prepare_attempt(self) -> None:
        """Read the whole checkpoint to restore; if it is damaged, fall back to the one before (G11)."""
        if not self._master.checkpoints.is_settled:
            return  # a checkpoint may be completing just now; the master calls again afterwards
        metadata = self._master.checkpoints.latest
        attempt, store = self._graph.attempt, self._store
        try:
            if metadata is not None:
                check_in_flight(metadata, self._master.job_graph)
        except CheckpointError as misfit:
            self._give_up(f"{self.point} cannot be restored at this parallelism: {misfit}")
            return

        def verified(result: None, error: BaseException | None) -> None:
            if not self._master.begins(attempt):
                return
            if error is None:
                self._tell(AttemptReady(metadata))
                return
            if not isinstance(error, CheckpointError):
                # The store could not be read just now; the checkpoint may be intact.
                subject = CHECKPOINTING_DIR.key() if metadata is None else f"checkpoint {metadata.checkpoint_id}"
                failure = Failure(f"{subject} could not be read: {error}", is_outside=is_outside(error))
                self._tell(AttemptFailed(failure))
                return
            self._on_damage(error)

        # A deposed job master begins no attempt, not even from the beginning.
        work = store.check_leads if metadata is None else lambda: read_through(store, metadata)
        self._calls.give_up_late("has read the checkpoint", work, verified)

    def _on_damage(self, error: CheckpointError) -> None:
        """Fall back from the damaged latest checkpoint to the one before, if that exists and nothing forbids it.

        It is forbidden if a sink has committed output of the damaged checkpoint, which the job would produce again.
        """
        checkpoints = self._master.checkpoints
        damage = f"{self.point} cannot be restored: {error}"
        if self._master.restarts_part:
            self._tell(AttemptFailed(Failure(damage)))  # a part alone cannot go back further than the others
            return
        is_initial = checkpoints.latest is checkpoints.initial
        before = next(iter(self._older), None) if is_initial else checkpoints.before_latest
        self._effects.log(damage)
        if before is None:
            self._give_up(savepoints.nothing_left(error))
        elif self._must_not_fall_back:
            named = str(before.external_path) if is_initial else f"checkpoint {before.checkpoint_id}"
            self._give_up(savepoints.refusal_to_fall_back(damage, named))
        elif not is_initial:
            skipped = self.point
            checkpoints.drop_latest()
            self._effects.log(savepoints.fallen_back([skipped], self.point))
            self.prepare_attempt()
        else:
            skipped = self.point
            if self._try_restore(self._older.pop(0), RECOVERY_FROM_LATEST.key()):
                self._effects.log(savepoints.fallen_back([skipped], self.point))
                self.prepare_attempt()

    @property
    def point(self) -> str:
        """Where the next attempt begins, for people."""
        latest = self._master.checkpoints.latest
        if latest is None:
            return self._savepoint_path or "the beginning"
        if latest is self._master.checkpoints.initial:
            return f"{self._savepoint_path}"
        return f"savepoint {latest.external_path}" if latest.is_savepoint else f"checkpoint {latest.checkpoint_id}"


def read_through(store: CheckpointStore, metadata: CheckpointMetadata) -> None:
    """Read every file of a checkpoint; damage counts only if a second read confirms it. Does IO."""
    try:
        store.verify(metadata)
    except CheckpointError:
        store.verify(metadata)


#: Called once, with the path of a savepoint or with an error.
SavepointWaiter: TypeAlias = Callable[[str | None, str | None], None]


class CheckpointedMaster(Protocol):
    """The job master, as savepoints see it."""

    @property
    def status(self) -> JobStatus: ...

    @property
    def is_done(self) -> bool: ...

    @property
    def checkpoints(self) -> CheckpointCoordinator: ...


class JobSavepoints:
    """Takes savepoints of a job master's job, and answers their requests."""

    def __init__(self, master: CheckpointedMaster, effects: Effects) -> None:
        self._master = master
        self._effects = effects
        #: The waiter for the end of a job that a savepoint ends.
        self._waiter: SavepointWaiter | None = None

    def take(self, command: savepoints.TakeSavepoint, waiter: SavepointWaiter, now_ms: int) -> None:
        """Take a savepoint.

        If the job continues, it does so whether or not the savepoint succeeds. If the savepoint ends the job, the
        answer comes once everything in the savepoint is committed. If it cancels the job, no checkpoint completes in
        between.
        """
        master = self._master
        if master.is_done or master.status is JobStatus.CANCELLING:
            self._effects.answer(waiter, None, f"the job is {master.status.name}")
            return
        deadline_ms = now_ms + master.checkpoints.settings.timeout_ms
        master.checkpoints.request_savepoint(savepoints.SavepointRequest(command, waiter, deadline_ms))

    def on_settled(self, news: SavepointSettled) -> None:
        """Handle a savepoint that has completed or failed."""
        command, waiter = news.request.command, news.request.waiter
        if news.path is not None and command.stop is not None:
            self._waiter = waiter
            return
        self._effects.answer(waiter, news.path, news.error)

    def on_end(self) -> None:
        """Answer a waiting request when the job has ended."""
        waiter, self._waiter = self._waiter, None
        last = self._master.checkpoints.last
        if waiter is None or last is None:
            return
        path, status = last.external_path, self._master.status
        if status is JobStatus.FINISHED:
            self._effects.answer(waiter, path, None)
        else:
            reason = f"{path} is complete, but the job ended {status.name} before everything in it was committed"
            self._effects.answer(waiter, None, reason)


def guarantees(job_graph: JobGraph, settings: CheckpointSettings) -> list[str]:
    """Return the lines to show to the user."""
    lines = []
    if settings.interval_ms is None:
        lines.append("checkpointing is off: after a failure the job can only start over from the beginning")
        lines += _never_committing(job_graph)
    else:
        promise = (
            "state is exactly once, and so is two-phase output"
            if settings.exactly_once
            else "state is at least once: after a failure records may count twice"
        )
        lines.append(f"checkpoints every {settings.interval_ms} ms; {promise}")
        nameless = [o.name for v in job_graph.vertices for o in v.operators if o.is_stateful and o.has_placed_id]
        if nameless:
            lines.append(
                f"operators with state but without a uid: {', '.join(nameless)}: a changed program finds their state "
                "in a savepoint only by a uid; set one with .uid(...)"
            )
    for vertex in job_graph.vertices:
        for operator_id, source in vertex.sources.items():
            if not source.replayable:
                name = next(o.name for o in vertex.operators if o.operator_id == operator_id)
                lines.append(f"source {name!r} cannot be replayed: a failure loses the records in flight")
    return lines


def _never_committing(job_graph: JobGraph) -> list[str]:
    """Return a line for each sink that never commits: without checkpoints, it would commit at the end of input."""
    endless = job_graph.vertices_without_end()
    operators = [o for vertex in job_graph.vertices if vertex.index in endless for o in vertex.operators]
    return [
        f"sink {operator.name!r} never commits while the job runs, so its output never becomes visible: its input is "
        "unbounded, and it commits on checkpoints. Turn them on with env.enable_checkpointing(interval)"
        for operator in operators
        if operator.commits
    ]
