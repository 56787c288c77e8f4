"""Where a job and each of its attempts begin: at the newest checkpoint, at a savepoint, or with nothing (G8, H2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.common.configuration import Configuration
from penstock.common.errors import CheckpointError, JobExecutionError
from penstock.common.job_status import JobStatus
from penstock.common.options import RECOVERY_PAST_DAMAGED, RECOVERY_PATH
from penstock.core.checkpoint.recovery import Recovery, read_recovery, read_through, refusal_to_fall_back
from penstock.core.checkpoint.restore import check_fit
from penstock.core.job.execution_graph import ExecutionGraph
from penstock.core.ports import Background, CheckpointStore, JobListener
from penstock.core.protocol import Failure
from penstock.storage.metadata import CheckpointMetadata

if TYPE_CHECKING:
    from penstock.core.job.job_master import JobMaster


class JobRecovery:
    """Reads and checks, in the background, what a job master's job begins from; then the master goes on."""

    def __init__(
        self,
        master: JobMaster,
        graph: ExecutionGraph,
        configuration: Configuration,
        background: Background,
        store: CheckpointStore,
        listener: JobListener,
    ) -> None:
        self._master = master
        self._graph = graph
        self._configuration = configuration
        self._background = background
        self._store = store
        self._listener = listener
        self._savepoint_path = configuration.read(RECOVERY_PATH)
        #: whether going back past a damaged checkpoint would commit something again, and nobody has allowed that
        self._must_not_fall_back = master.job_graph.commits and configuration.read(RECOVERY_PAST_DAMAGED) == "refuse"

    def recover(self) -> None:
        """Go on from the newest checkpoint of a former job master of this job, if it took any."""
        retained = self._master.checkpoints.settings.retained
        self._master.checkpoints.keep_all()
        self._background.submit(lambda: read_recovery(self._store, retained), self._on_recovery_read)

    def begin(self) -> None:
        """From the savepoint that the configuration names, or from nothing."""
        path = self._savepoint_path
        if path is None:
            self._master.acquire_slots()
        else:
            self._background.submit(lambda: self._store.load(path), self._on_savepoint_read)

    def _on_savepoint_read(self, metadata: CheckpointMetadata | None, error: BaseException | None) -> None:
        if self._master.status is not JobStatus.CREATED:
            return
        name, where = self._master.job_graph.name, f"{RECOVERY_PATH.key()} {self._savepoint_path}"
        if metadata is None:
            self._master.give_up(JobExecutionError(name, f"{where} cannot be read: {error}"))
            return
        try:
            for line in check_fit(metadata, self._master.job_graph, self._configuration):
                self._listener.on_log(line)
        except CheckpointError as misfit:
            self._master.give_up(JobExecutionError(name, f"{where} does not fit the job: {misfit}"))
            return
        self._master.checkpoints.begin_from(metadata)
        self._listener.on_log(f"begins from {self.point}")
        self._master.acquire_slots()

    def _on_recovery_read(self, recovery: Recovery | None, error: BaseException | None) -> None:
        """Another job master ran this job before: go on from its newest checkpoint, with attempts above its own."""
        if self._master.status is not JobStatus.CREATED:
            return
        name = self._master.job_graph.name
        if recovery is None:
            self._master.give_up(JobExecutionError(name, f"the job's checkpoints cannot be read: {error}"))
            return
        for line in recovery.damaged:
            self._listener.on_log(line)
        if recovery.damaged and not recovery.completed:
            reason = "no checkpoint is left to recover from, and starting over would repeat what was committed"
            self._master.give_up(JobExecutionError(name, f"{reason}: {recovery.damaged[0]}"))
            return
        if recovery.passed_over and self._must_not_fall_back:
            before = f"checkpoint {recovery.completed[-1].checkpoint_id}"
            self._master.give_up(JobExecutionError(name, refusal_to_fall_back(recovery.passed_over[0], before)))
            return
        self._master.checkpoints.recover(recovery.completed, recovery.last_id)
        self._graph.reset(recovery.first_attempt)
        if self._master.checkpoints.completed:
            self._master.acquire_slots()
        else:
            self.begin()

    def prepare_attempt(self) -> None:
        """Read the checkpoint to restore once through: a damaged one is passed over for the one before (G11)."""
        if not self._master.checkpoints.is_settled:
            return  # one may be completing this moment: the master is told when, and calls again
        metadata = self._master.checkpoints.latest
        if metadata is None:
            self._master.deploy(None)
            return
        attempt, store = self._graph.attempt, self._store

        def verified(result: None, error: BaseException | None) -> None:
            if attempt != self._graph.attempt or self._master.status is not JobStatus.CREATED:
                return
            if error is None:
                self._master.deploy(metadata)
                return
            if not isinstance(error, CheckpointError):
                # The store could not be read just now; the checkpoint may be whole.
                self._master.fail(Failure(f"checkpoint {metadata.checkpoint_id} could not be read: {error}"))
                return
            self._on_damage(error)

        self._background.submit(lambda: read_through(store, metadata), verified)

    def _on_damage(self, error: CheckpointError) -> None:
        """The latest checkpoint is damaged: go on from the one before, if there is one and nothing speaks against it.

        A sink has committed what the damaged one holds, and the job would make it again.
        """
        damage, name = f"{self.point} cannot be restored: {error}", self._master.job_graph.name
        before = self._master.checkpoints.before_latest
        self._listener.on_log(damage)
        if before is None:
            self._master.give_up(
                JobExecutionError(
                    name,
                    f"no checkpoint is left to recover from: {error}. Starting over would lose what was committed; "
                    "keep more than one with execution.checkpointing.num-retained",
                )
            )
        elif self._must_not_fall_back:
            reason = refusal_to_fall_back(damage, f"checkpoint {before.checkpoint_id}")
            self._master.give_up(JobExecutionError(name, reason))
        else:
            self._master.checkpoints.drop_latest()
            self.prepare_attempt()

    @property
    def point(self) -> str:
        """Where the next attempt begins, for people."""
        latest = self._master.checkpoints.latest
        if latest is None:
            return "the beginning"
        if latest is self._master.checkpoints.initial:
            return f"{self._savepoint_path}"
        return f"savepoint {latest.external_path}" if latest.is_savepoint else f"checkpoint {latest.checkpoint_id}"
