"""The masters of jobs that run in epochs, each with a checkpoint: in micro-batch execution, and a stateful batch.

`EpochMaster` runs epochs one after another (I1). Without an interval, epochs follow each other until one finds nothing
to read. Then the job stops, and the next run continues from its last checkpoint (`execution.state-recovery.path`). With
an interval, an epoch begins at each interval until the job is stopped. When all sources have ended for good, a last
epoch drains the job, as at the end of a stream.

An epoch counts once its checkpoint exists. Then the master delivers its output, and only after that deletes an older
checkpoint. So there is always a checkpoint from which all undelivered output can be delivered. An epoch that fails
before its checkpoint runs again; an epoch that fails after it is only delivered again.

A master that was deposed (`storage.leadership`) finds out when it completes, marks or deletes something, and stops at
once. It leaves its sinks alone, because its successor may have to commit their prepared output.

`BackFillMaster` is the master of a batch that keeps its state: one epoch over all input, whose checkpoint is a
savepoint. All output of the job becomes visible after the savepoint. A job that dies before it leaves only files that
are never read. If a job dies just after it, the job that starts from the savepoint commits the remaining output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.errors import CheckpointError, JobExecutionError, OperationError, PenstockError
from penstock.base.job import JobStatus
from penstock.runtime.checkpoint import savepoints
from penstock.runtime.checkpoint.statistics import CheckpointSettings
from penstock.runtime.epochs.coordinator import Dealt, EpochAnswer, EpochCoordinator, EpochWork, Task
from penstock.runtime.graph import JobGraph
from penstock.runtime.master import steps
from penstock.runtime.master.master import HasEnded, StepwiseMaster, begin_from_latest, begin_from_path, claims
from penstock.runtime.ports import Clock
from penstock.runtime.protocol import StopMode
from penstock.storage.leadership import BEGUN, DeposedError, JobMark
from penstock.storage.metadata import CheckpointMetadata, StateFile

T = TypeVar("T")

#: Greater than every checkpoint id.
NO_LIVE_ID: Final = 1 << 62


class Epoch(NamedTuple):
    """The result of an epoch: its checkpoint, yet to be completed, and the output to deliver after that."""

    metadata: CheckpointMetadata
    answers: Mapping[Task, EpochAnswer]
    last: tuple[steps.Last, ...]

    @property
    def records_read(self) -> int:
        """The number of records read by all sources."""
        return sum(answer.records_read for answer in self.answers.values())


class EpochMaster(StepwiseMaster):
    """See the module docstring.

    Args:
        job_graph: the job.
        job_id: its id.
        configuration: its options.
        clock: processing time.
        directory: the directory of its checkpoints, for log messages; None when they are in memory.
    """

    def __init__(
        self, job_graph: JobGraph, job_id: str, configuration: Configuration, clock: Clock, directory: str | None
    ) -> None:
        super().__init__(job_graph, job_id, configuration, clock)
        self.interval_ms = configuration.read(options.MICRO_BATCH_INTERVAL_MS)
        self._directory = directory
        self._records_max = configuration.read(options.MICRO_BATCH_RECORDS_MAX)
        self._retained = CheckpointSettings.of(configuration).retained
        self._must_not_fall_back = savepoints.must_not_fall_back(job_graph, configuration)
        #: the checkpoints that are kept, oldest first
        self.completed: list[CheckpointMetadata] = []
        #: whether output of a checkpoint or savepoint has yet to be delivered
        self.owes = False
        #: the id of a checkpoint that failed to complete and may be visible all the same
        self._doubtful: int | None = None
        self._revoked: tuple[int, ...] = ()
        self._forerunners = savepoints.Forerunners()
        #: the savepoint or checkpoint that the job began from and claimed, until it is deleted
        self._claimed: str | None = None
        self._has_ended_forerunners = False
        self._coordinator: EpochCoordinator | None = None
        #: whether the job begins from a drained job, which may have died before it delivered everything
        self.is_drained = False

    @property
    def coordinator(self) -> EpochCoordinator:
        """The job's coordinator, available once the job knows where it begins."""
        assert self._coordinator is not None, "the job does not know yet where it begins"
        return self._coordinator

    def validate(self) -> None:
        """Assert the invariants between two steps."""
        super().validate()
        ids = [metadata.checkpoint_id for metadata in self.completed]
        assert ids == sorted(set(ids)), f"kept checkpoints are in order, not {ids}"
        assert self._doubtful is None or self._doubtful not in ids, "a kept checkpoint is complete"
        assert len(ids) <= self._retained + 1, f"{len(ids)} checkpoints are kept, expected {self._retained}"
        assert all(metadata.job_id == self.job_id for metadata in self.completed), "kept checkpoints are the job's own"
        assert not (self.owes and self.status is JobStatus.FINISHED), "a finished job owes nothing"
        if self._coordinator is not None:
            self._coordinator.validate()
            latest = self._coordinator.latest
            assert not self.completed or self.completed[-1] is latest, (
                "the next epoch begins from the newest checkpoint"
            )

    # --- the whole job ---------------------------------------------------------------------------------------------

    def work(self) -> steps.Steps[None]:
        """Run epoch after epoch until the job has ended or was stopped."""
        try:
            begin_from = yield from self._begin()
        except HasEnded as ended:
            yield steps.Log(str(ended))
            return
        yield from self.with_sources(begin_from, self._to_the_end)

    def with_sources(
        self, begin_from: CheckpointMetadata | None, run: Callable[[], steps.Steps[None]]
    ) -> steps.Steps[None]:
        """Run from a checkpoint; then end the sinks, unless a failed run has yet to deliver output."""
        self._coordinator = EpochCoordinator(self.job_graph, self.job_id, begin_from, self._forerunners.job_ids)
        try:
            yield from self._open_sources()
            yield from run()
        except (GeneratorExit, DeposedError):
            raise
        except BaseException:
            if not self.owes:
                yield from self._end_sinks()
            raise
        yield from self._end_sinks()

    def _end_sinks(self) -> steps.Steps[None]:
        """End the sinks, unless a later job may have to commit their prepared output."""
        try:
            yield from self._settle()
            yield steps.CheckLeads()
        except DeposedError:
            raise
        except Exception as error:  # noqa: BLE001 - the job has come to its end all the same
            yield steps.Log(f"leftovers of sinks stay, because a later job may need them: {_words(error)}")
        else:
            yield steps.EndSinks()

    def _begin(self) -> steps.Steps[CheckpointMetadata | None]:
        if self.configuration.read(options.RECOVERY_FROM_LATEST):
            checkpoint, self._forerunners = yield from begin_from_latest(
                self.job_graph, self.job_id, self.configuration
            )
            if checkpoint is not None:
                self._claim(checkpoint)
                self.is_drained = checkpoint.ends_job and checkpoint.is_drained
                return checkpoint
        else:
            yield from self._join()
        begin_from = yield from self.begin_from_path()
        if not self.configuration.read(options.RECOVERY_FROM_LATEST):
            yield steps.MarkJob(self._mark(BEGUN, None if begin_from is None else begin_from.external_path))
        return begin_from

    def _claim(self, begin_from: CheckpointMetadata | None) -> None:
        if begin_from is not None and claims(self.configuration):
            self._claimed = begin_from.external_path

    def _join(self) -> steps.Steps[None]:
        name = self.job_graph.name
        try:
            yield steps.Join(name)
        except OSError as error:
            raise JobExecutionError(
                name, f"{options.CHECKPOINTING_DIR.key()} cannot be read: {_words(error)}"
            ) from error

    def begin_from_path(self) -> steps.Steps[CheckpointMetadata | None]:
        """Return the snapshot that the configuration names. After a drain, a job of any execution mode only commits."""
        begin_from = yield from begin_from_path(self.job_graph, self.configuration)
        self._claim(begin_from)
        self.is_drained = begin_from is not None and begin_from.is_drained
        return begin_from

    def _to_the_end(self) -> steps.Steps[None]:
        """Run epochs until all sources have ended, then one that drains the job; or stop where the job is stopped."""
        if self.is_drained:
            yield from self.epoch(records_max=0)  # deliver the previous job's remaining output
        elif (yield from self.epochs()):
            yield from self.epoch(ends=True)
        else:
            return
        try:
            yield steps.MarkJob(self._mark("FINISHED", discards=True))
        except DeposedError:
            raise
        except Exception as error:  # noqa: BLE001 - everything is delivered
            yield steps.Log(f"could not record the end of the job, so its last checkpoint stays: {_words(error)}")
            return
        self.completed = []
        yield from self._delete_garbage(NO_LIVE_ID)

    def epochs(self) -> steps.Steps[bool]:
        """Run epoch after epoch; returns True if the sources have ended, False if the job stops."""
        while not self.coordinator.has_ended:
            begun_ms = self.clock.steady_ms()
            records_read = yield from self.epoch()
            if (yield from self.serve()):
                return False
            if self.interval_ms is None and not records_read and not self.coordinator.has_ended:
                yield from self.say_where_to_go_on()
                return False
            while self.interval_ms is not None and not self.coordinator.has_ended:
                left_ms = begun_ms + self.interval_ms - self.clock.steady_ms()
                if left_ms <= 0:
                    break
                yield steps.Wait(left_ms, until_request=True)
                if (yield from self.serve()):
                    return False
        return True

    def say_where_to_go_on(self) -> steps.Steps[None]:
        """Log where to resume, because the job stops with nothing left to read."""
        if self._directory is not None and self.completed:
            path = f"{self._directory}/{self.job_id}/chk-{self.completed[-1].checkpoint_id}"
            yield steps.Log(f"nothing is left to read; to resume from here, set {options.RECOVERY_PATH.key()}: {path}")

    def _mark(
        self, status: str, savepoint: str | None = None, drained: bool = False, discards: bool = False
    ) -> JobMark:
        """Build the mark from which a later start of the program sees the job's status."""
        now_ms = self.clock.now_ms()
        return JobMark(self.job_id, self.job_graph.name, status, now_ms, savepoint, drained, discards)

    # --- one epoch -------------------------------------------------------------------------------------------------

    def epoch(self, ends: bool = False, records_max: int | None = None) -> steps.Steps[int]:
        """Run one epoch and deliver its output; returns how many records its sources read.

        Args:
            ends: whether it reads nothing, and drains and finishes everything.
            records_max: how many records each reader reads; None for the configured limit.
        """
        limit = self._records_max if records_max is None else records_max
        epoch = yield from self.until_it_holds(lambda: self._attempt(ends, limit), self.go_back)
        yield from self.deliver(epoch.last)
        self.completed = self.completed[-self._retained :]
        yield from self._delete_garbage(epoch.metadata.checkpoint_id + 1)
        return epoch.records_read

    def until_it_holds(
        self, attempt: Callable[[], steps.Steps[T]], go_back: Callable[[], steps.Steps[None]]
    ) -> steps.Steps[T]:
        """Repeat an attempt until it succeeds or no restart is left; every repetition begins with `go_back`."""
        is_first = True
        while True:
            try:
                if not is_first:
                    yield from go_back()
                return (yield from attempt())
            except (steps.Cancelled, DeposedError):
                raise
            except Exception as error:  # noqa: BLE001 - the restart strategy decides
                is_first = False
                yield from self.restart(error, bool(self.completed), self.point)

    def _attempt(self, ends: bool, records_max: int | None) -> steps.Steps[Epoch]:
        yield from self._settle()
        begun_ms = self.clock.now_ms()
        try:
            epoch = yield from self.run_epoch(ends, records_max)
            yield from self._complete(epoch.metadata)
        except steps.Cancelled:
            raise
        except Exception as error:
            number = self.coordinator.epoch
            self.figures.epoch_failed(number, begun_ms, self.clock.now_ms(), f"{type(error).__name__}: {error}")
            raise
        self.coordinator.complete(epoch.metadata, epoch.answers)
        self.completed.append(epoch.metadata)
        self.figures.epoch_completed(epoch.metadata, begun_ms, self.clock.now_ms())
        return epoch

    def _complete(self, metadata: CheckpointMetadata, savepoint_path: str | None = None) -> steps.Steps[None]:
        """Complete a checkpoint or a savepoint. A savepoint that ends the job also lies among the checkpoints."""
        if savepoint_path is None or metadata.ends_job:
            self._doubtful = metadata.checkpoint_id
        yield steps.Complete(metadata, savepoint_path)
        self._doubtful = None

    def _settle(self) -> steps.Steps[None]:
        """Revoke a checkpoint that failed to complete.

        The next epoch begins from an older checkpoint, and its sinks remove output that only the doubtful one names. A
        driver that found the doubtful checkpoint visible afterwards would begin from it, without its output.
        """
        if self._doubtful is not None:
            yield steps.Revoke(self._doubtful)
            self._revoked = (*self._revoked, self._doubtful)
            self._doubtful = None

    def run_epoch(
        self, ends: bool, records_max: int | None, path: str | None = None, reads: bool | None = None
    ) -> steps.Steps[Epoch]:
        """Run all tasks once; with a `path` they write a savepoint. Nothing is completed yet."""
        if reads is None:
            reads = not ends and path is None and records_max != 0
        dealt: dict[str, Dealt] = (yield steps.DealSplits()) if reads else {}
        works = self.coordinator.works(dealt, records_max if reads else 0, ends, path)
        left: steps.Left = yield steps.RunEpoch(works)
        _check_answers(works, left.answers)
        enumerator_states: dict[str, StateFile] = yield steps.SnapshotSources(self.coordinator.epoch)
        # A drained job that only delivers stays drained: if its driver died after this step, no later run may read on.
        metadata = self.coordinator.metadata(
            left.answers, enumerator_states, self.clock.now_ms(), ends or self.is_drained
        )
        return Epoch(metadata, left.answers, tuple(left.last))

    def deliver(self, last: tuple[steps.Last, ...]) -> steps.Steps[None]:
        """Deliver the output of an existing checkpoint or savepoint; after a failure only the delivery is repeated."""

        def attempt() -> steps.Steps[None]:
            yield steps.Deliver(last)

        def go_back() -> steps.Steps[None]:
            yield from ()

        self.owes = True
        yield from self.until_it_holds(attempt, go_back)
        self.owes = False

    def _delete_garbage(self, oldest_live_id: int) -> steps.Steps[None]:
        """Delete old checkpoints, and the leftovers of discarded task runs, since no checkpoint is in progress."""
        try:
            yield steps.DeleteGarbage(tuple(self.completed), oldest_live_id, self._revoked)
            is_over = oldest_live_id == NO_LIVE_ID
            if self._claimed is not None and self.completed:
                yield steps.DeleteSavepoint(self._claimed)
                self._claimed = None
            # The previous jobs' prepared output is committed, and no job begins from their checkpoints any more. This
            # is done again at the end, because a deposed driver may have gone on for a while.
            job_ids, to_delete = self._forerunners
            if job_ids and (is_over or (self.completed and not self._has_ended_forerunners)):
                yield steps.EndForerunners(job_ids)
                if to_delete:
                    yield steps.DeleteJobs(to_delete)
                self._has_ended_forerunners = True
        except (steps.Cancelled, DeposedError):
            raise
        except Exception as error:  # noqa: BLE001 - the next time finds the same files, and more
            yield steps.Log(f"old checkpoints could not be deleted: {_words(error)}")

    # --- after a failure -------------------------------------------------------------------------------------------

    @property
    def point(self) -> str:
        """A description of where the next attempt begins."""
        latest = None if self._coordinator is None else self._coordinator.latest
        if latest is None:
            return "the beginning"
        return f"{latest.external_path}" if latest.external_path else f"checkpoint {latest.checkpoint_id}"

    def _open_sources(self) -> steps.Steps[None]:
        yield steps.OpenSources(self.coordinator.kept_of_sources())

    def go_back(self) -> steps.Steps[None]:
        """Go back to the last checkpoint and read all of it; fall back past a damaged one if that is allowed (G11)."""
        latest = self.coordinator.latest
        if latest is not None:
            try:
                yield steps.ReadThrough(latest)
            except CheckpointError as error:
                yield from self._fall_back(error)
                yield from self.go_back()
                return
        self.coordinator.roll_back()
        yield from self._open_sources()

    def _fall_back(self, error: CheckpointError) -> steps.Steps[None]:
        damage = f"{self.point} cannot be restored: {error}"
        yield steps.Log(damage)
        if len(self.completed) < 2:
            raise self._final(savepoints.nothing_left(error))
        before = self.completed[-2]
        if self._must_not_fall_back:
            raise self._final(savepoints.refusal_to_fall_back(damage, f"checkpoint {before.checkpoint_id}"))
        self.completed.pop()
        self.coordinator.fall_back(before)

    def _final(self, reason: str) -> JobExecutionError:
        error = JobExecutionError(self.job_graph.name, reason)
        error.suppresses_restart = True
        return error

    # --- requests --------------------------------------------------------------------------------------------------

    def serve(self) -> steps.Steps[bool]:
        """Take the requested checkpoints and savepoints; returns whether one of them ends the job."""
        request: steps.Request | None
        while (request := (yield steps.NextRequest())) is not None:
            if request.savepoint is None:
                yield from self._checkpoint(request)
            elif (yield from self._savepoint(request, request.savepoint)):
                return True
        return False

    def _checkpoint(self, request: steps.Request) -> steps.Steps[None]:
        try:
            yield from self.epoch()
        except GeneratorExit:
            raise
        except BaseException as error:
            reason = "the job was cancelled" if isinstance(error, steps.Cancelled) else _words(error)
            yield steps.Answer(request, None, f"no checkpoint: {reason}")
            raise
        yield steps.Answer(request, self.completed[-1].checkpoint_id)

    def _savepoint(self, request: steps.Request, command: savepoints.TakeSavepoint) -> steps.Steps[bool]:
        """Take a savepoint between two epochs (H1, H2); returns whether the job ends with it.

        Once a savepoint that ends the job is complete, the job never continues: its output belongs to the savepoint and
        is delivered.
        """
        ends = command.stop is StopMode.DRAIN
        path = savepoints.savepoint_path(command.directory, self.job_id, self.coordinator.epoch + 1)
        try:
            yield from self._settle()
            epoch = yield from self.run_epoch(ends, 0, path)
            savepoint = replace(epoch.metadata.as_savepoint(path), ends_job=command.stop is not None)
            yield from self._complete(savepoint, path)
        except Exception as error:
            is_cancelled = isinstance(error, steps.Cancelled)
            yield steps.Answer(
                request, None, f"no savepoint: {'the job was cancelled' if is_cancelled else _words(error)}"
            )
            if isinstance(error, DeposedError):
                raise
            yield from self._delete_garbage(self.coordinator.epoch + 1)
            yield from self._delete_savepoint(path)
            if is_cancelled:
                raise
            return False
        if command.stop is not None:
            try:
                yield from self.deliver(epoch.last)
            except GeneratorExit:
                raise
            except BaseException as error:
                yield steps.Answer(
                    request,
                    None,
                    f"the job has ended with the savepoint {path}, but not all output could be committed: "
                    f"{_words(error)}. A job that starts from the savepoint commits it",
                )
                raise
            try:
                yield from self._mark_stopped(path, ends)
            except DeposedError:
                yield steps.Answer(request, path)  # the savepoint is complete, and so is the output
                raise
        yield steps.Answer(request, path)
        if command.cancels:
            raise steps.Cancelled
        return command.stop is not None

    def _mark_stopped(self, path: str, drained: bool) -> steps.Steps[None]:
        try:
            yield steps.MarkJob(self._mark("FINISHED", path, drained))
        except DeposedError:
            raise
        except Exception as error:  # noqa: BLE001 - the savepoint is there, and the job's last checkpoint says as much
            yield steps.Log(f"could not record the end of the job: {_words(error)}")

    def _delete_savepoint(self, path: str) -> steps.Steps[None]:
        try:
            yield steps.DeleteSavepoint(path)
        except Exception as error:  # noqa: BLE001 - what is left over does no harm
            yield steps.Log(f"leftover files at {path} could not be deleted: {_words(error)}")


def _check_answers(works: Mapping[Task, EpochWork], answers: Mapping[Task, EpochAnswer]) -> None:
    """Raise `PenstockError` unless every task has answered, and all have used only output of runs that count."""
    missing = works.keys() - answers.keys()
    if missing:
        raise OperationError(f"{len(missing)} tasks of the epoch have not answered")
    tokens = {answer.token for answer in answers.values()}
    if any(not answer.used <= tokens for answer in answers.values()):
        raise OperationError("a task of the epoch ran again after other tasks had used its output")


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"


class BackFillMaster(EpochMaster):
    """See the module docstring; `path` is the path of the savepoint."""

    def __init__(self, job_graph: JobGraph, job_id: str, configuration: Configuration, clock: Clock, path: str) -> None:
        super().__init__(job_graph, job_id, configuration, clock, directory=None)
        self._path = path

    def work(self) -> steps.Steps[None]:
        """Run one pass, repeated until it succeeds or no restart is left."""
        try:
            yield steps.ClaimSavepoint(self._path)
        except CheckpointError as error:
            raise JobExecutionError(self.job_graph.name, f"{options.BATCH_SAVEPOINT_PATH.key()}: {error}") from error
        try:
            begin_from = yield from self.begin_from_path()
            yield from self.with_sources(begin_from, self._fill)
        except GeneratorExit:
            raise
        except BaseException:
            yield from self._release()
            raise
        yield from self._release()

    def _release(self) -> steps.Steps[None]:
        try:
            yield steps.ReleaseSavepoint(self._path)
        except Exception as error:  # noqa: BLE001 - what the job came to is what counts
            yield steps.Log(f"the claim on {self._path} could not be removed: {error}")

    def _fill(self) -> steps.Steps[None]:
        epoch = yield from self.until_it_holds(self._pass, self.go_back)
        yield from self._empty(epoch.metadata)
        yield steps.Log(
            f"the state is in {self._path}; to resume from it, set {options.RECOVERY_PATH.key()}: {self._path}"
        )
        yield from self.deliver(epoch.last)

    def _pass(self) -> steps.Steps[Epoch]:
        try:
            epoch = yield from self.run_epoch(ends=False, records_max=None, path=self._path, reads=not self.is_drained)
            yield steps.CheckClaim(self._path)
            # No job may find it among the checkpoints of this one.
            yield steps.Complete(replace(epoch.metadata.as_savepoint(self._path), ends_job=False), self._path)
        except Exception:
            yield from self._empty(None)
            raise
        return epoch

    def _empty(self, checkpoint: CheckpointMetadata | None) -> steps.Steps[None]:
        """Delete files of failed passes and discarded task runs, except those in `checkpoint`; leftovers do no harm."""
        try:
            yield steps.EmptySavepoint(self._path, checkpoint)
        except steps.Cancelled:
            raise
        except Exception as error:  # noqa: BLE001 - the pass's own success or failure is what counts
            yield steps.Log(f"leftover files at {self._path} could not be deleted: {error}")
