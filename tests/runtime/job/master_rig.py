"""A job master between fakes: the test plays cluster, workers and storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.runtime.task.fakes import LaterBackground

from penstock.base.configuration import Configuration
from penstock.base.errors import CheckpointError
from penstock.runtime.connector import Boundedness, Source
from penstock.runtime.effects import carry_out
from penstock.runtime.graph import JobEdge, JobGraph, JobVertex, OperatorInfo
from penstock.runtime.job.job_master import JobMaster
from penstock.runtime.protocol import (
    AcknowledgeCheckpoint,
    CancelTask,
    DeployTask,
    EndOfDataReached,
    ExecutionId,
    Failure,
    RegisterWorker,
    TaskStateChanged,
    TriggerCheckpoint,
    WorkerLost,
)
from penstock.storage.leadership import DeposedError, Left, LeftByJobs
from penstock.storage.metadata import KeyedStateHandle, OperatorSubtaskState, StateFile, checksum
from penstock.testing import VirtualClock


class FakeStore:
    """Checkpoints as names of files; `damaged`, `unwritable` and `unrevokable` ones raise.

    Those `unanswered` are written, and raise after that.
    """

    def __init__(self) -> None:
        self.stored: list[int] = []
        #: all files there are
        self.files: set[str] = set()
        self.deleted: list[str] = []
        self.damaged: set[int] = set()
        self.unwritable: set[int] = set()
        self.unanswered: set[int] = set()
        self.unrevokable: set[int] = set()
        self.revoked: list[int] = []
        #: complete checkpoints by id, as far as their metadata is there
        self.checkpoints: dict[int, Any] = {}
        #: how many job masters have taken over
        self.number = 0
        #: and how many have begun beside others
        self.joined = 0
        #: whether another job master has taken the job over; a call that looks raises then
        self.is_deposed = False
        #: what has become of jobs, by name
        self.marks: dict[str, Any] = {}
        #: what other jobs of the name have left
        self.left: list[Any] = []
        self.former: tuple[tuple[int, str], ...] = ()
        #: complete savepoints by their directory, those of other jobs that a test puts here included
        self.savepoints: dict[str, Any] = {}
        self.discarded_savepoints: list[str] = []
        self.deleted_savepoints: list[str] = []
        self.deleted_jobs: list[str] = []

    def complete(self, metadata: Any, savepoint_path: str | None = None) -> str:
        if metadata.checkpoint_id in self.unwritable:
            raise OSError("disk full")
        if metadata.checkpoint_id in self.revoked:
            raise FileExistsError("it was revoked")
        self.stored.append(metadata.checkpoint_id)
        missing = {f.path for f in metadata.state_files() if f.path is not None} - self.files
        assert not missing, f"checkpoint {metadata.checkpoint_id} refers to files that are gone: {missing}"
        if savepoint_path is not None:
            self.savepoints[savepoint_path] = metadata
            if not metadata.ends_job:
                return savepoint_path
        self.checkpoints[metadata.checkpoint_id] = metadata
        self.files.add(f"job-1/chk-{metadata.checkpoint_id}/_metadata")
        if metadata.checkpoint_id in self.unanswered:
            raise OSError("connection lost")
        self.check_leads()
        return f"job-1/chk-{metadata.checkpoint_id}"

    def revoke(self, checkpoint_id: int) -> None:
        if checkpoint_id in self.unrevokable:
            raise OSError("still disk full")
        self.revoked.append(checkpoint_id)
        self.checkpoints.pop(checkpoint_id, None)
        self.files.add(f"job-1/chk-{checkpoint_id}/_metadata")

    def discard_savepoint(self, savepoint_path: str) -> None:
        self.discarded_savepoints.append(savepoint_path)

    def delete_savepoint(self, savepoint_path: str) -> None:
        self.deleted_savepoints.append(savepoint_path)
        self.savepoints.pop(savepoint_path, None)

    def listing(self) -> list[str]:
        return sorted(self.files)

    def delete(self, paths: list[str]) -> None:
        self.check_leads()
        self.deleted += paths
        self.files -= set(paths)

    def delete_jobs(self, job_ids: Iterable[str]) -> None:
        self.check_leads()
        self.deleted_jobs += job_ids

    def list_checkpoint_files(self, checkpoint_id: int) -> list[str]:
        return sorted(path for path in self.files if f"/chk-{checkpoint_id}/" in path)

    @property
    def discarded(self) -> list[int]:
        """The checkpoints of which files were deleted and none is left, in the order of deletion."""
        ids = dict.fromkeys(int(path.split("/chk-")[1].split("/")[0]) for path in self.deleted)
        return [i for i in ids if not self.list_checkpoint_files(i)]

    def join(self, job_name: str) -> None:
        self.joined += 1

    def take_over(self, job_name: str) -> LeftByJobs:
        self.number += 1
        own = [Left(f"job-1/chk-{i}", "job-1", i, metadata) for i, metadata in self.checkpoints.items()]
        marks = tuple(mark for mark in self.marks.values() if mark.job_name == job_name)
        return LeftByJobs((*self.left, *own), marks, self.number, former=self.former)

    def check_leads(self) -> None:
        if self.is_deposed:
            raise DeposedError("words", "another job master has taken it over")

    def load_checkpoint(self, checkpoint_id: int) -> Any:
        return self.checkpoints[checkpoint_id]

    def load(self, path: str, job_name: str | None = None, claims: bool = False) -> Any:
        if path not in self.savepoints:
            raise CheckpointError(f"{path}/_metadata cannot be read: it is not there")
        return self.savepoints[path]

    def mark_job(self, mark: Any) -> None:
        self.marks[mark.job_name] = mark
        self.check_leads()

    def mark_of_job(self) -> Any:
        return next((mark for mark in self.marks.values() if mark.job_id == "job-1"), None)

    def verify(self, metadata: Any) -> None:
        self.check_leads()
        if metadata.checkpoint_id in self.damaged:
            raise CheckpointError(f"chk-{metadata.checkpoint_id}/state: the checksum does not match")


def state_path(checkpoint_id: int, execution: ExecutionId, savepoint_path: str | None = None) -> str:
    """Where a task writes its part."""
    directory = savepoint_path or f"job-1/chk-{checkpoint_id}"
    return f"{directory}/state-{execution.vertex}-{execution.subtask}-{execution.attempt}"


class Numbers(Source):
    """A source whose enumerator remembers how many snapshots were taken of it."""

    boundedness = Boundedness.BOUNDED

    def __init__(self, replayable: bool = True) -> None:
        self.replayable = replayable

    def create_enumerator(self, context: Any, restored: Any) -> Any:
        return FakeEnumerator(context, restored)

    def create_reader(self, context: Any) -> Any:
        raise NotImplementedError


class FakeEnumerator:
    def __init__(self, context: Any, restored: Any) -> None:
        self.context, self.restored = context, restored
        self.breaks = False

    def start(self) -> None: ...

    def close(self) -> None: ...

    def handle_split_request(self, subtask: int) -> None:
        if self.breaks:
            raise RuntimeError("listing failed")
        self.context.assign_split(f"split after {self.restored}", subtask)
        self.context.signal_no_more_splits(subtask)

    def add_splits_back(self, splits: Any, subtask: int) -> None: ...

    def snapshot_state(self, checkpoint_id: int) -> Any:
        if self.breaks:
            raise RuntimeError("listing failed")
        return checkpoint_id


def two_vertices(parallelism: int = 2, replayable: bool = True) -> JobGraph:
    """source -> hash -> sink."""

    def vertex(index: int, name: str, **more: Any) -> JobVertex:
        info = OperatorInfo(f"id-{name}", name, None, True)
        return JobVertex(index, name, parallelism, 128, (info,), b"program", **more)

    source = vertex(0, "source", sources={"id-source": Numbers(replayable)})
    return JobGraph("job", (source, vertex(1, "sink")), (JobEdge(0, 0, 1, 0, "HASH", False),))


class PromptMaster(JobMaster):
    """One whose rig carries out what a turn has decided as soon as the turn is over."""

    def __init__(self, rig: MasterRig, configuration: Configuration, **more: Any) -> None:
        super().__init__(
            rig.graph,
            "job-1",
            configuration,
            clock=rig.clock,
            store=rig.store,
            **more,
        )
        run = self.turns.run

        def run_and_carry_out(handler: Callable[[], Any]) -> Any:
            result = run(handler)
            carry_out(self.take_effects(), rig, rig.background, rig)
            return result

        self.turns.run = run_and_carry_out  # type: ignore[method-assign]
        self.turns.effects._enter = run_and_carry_out


class MasterRig:
    """Implements Cluster and JobListener, and plays all workers."""

    def __init__(
        self,
        graph: JobGraph | None = None,
        *,
        workers: int | None = None,
        conf: Any = None,
        store: Any = None,
        recover: bool = False,
        hold: bool = False,
        labellers: Any = (),
        slots_max: int | None = None,
    ) -> None:
        configuration = Configuration()
        defaults = {
            "execution.checkpointing.interval": "1000 ms",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "3",
            "restart-strategy.fixed-delay.delay": "100 ms",
            "heartbeat.timeout": "1000000 ms",
        }
        for key, value in {**defaults, **(conf or {})}.items():
            if value is not None:
                configuration.set_string(key, str(value))
        self.graph = graph or two_vertices()
        self.clock = VirtualClock()
        self.store: Any = FakeStore() if store is None else store
        self.background = LaterBackground()
        self.background.hold = hold
        self.requested: list[int] = []
        self.withdrawn = 0
        self.sent: list[tuple[str, Any]] = []
        self.released: list[str] = []
        self.statuses: list[str] = []
        self.logs: list[str] = []
        self.client: list[tuple[str, int, bytes]] = []
        more: dict[str, Any] = {"recover": recover, "labellers": labellers, "slots_max": slots_max}
        self.master = PromptMaster(self, configuration, **more)
        self._registered = 0
        self.master.start()
        self.register(self.graph.slots_required if workers is None else workers)

    # --- Cluster and JobListener

    def request_workers(self, count: int) -> None:
        self.requested.append(count)

    def withdraw_workers(self, count: int) -> None:
        self.withdrawn += count

    def send(self, worker_id: str, message: Any) -> None:
        self.sent.append((worker_id, message))
        if isinstance(message, TriggerCheckpoint) and isinstance(self.store, FakeStore) and not message.savepoint_path:
            self.store.files.add(state_path(message.checkpoint_id, message.execution))

    def release(self, worker_id: str) -> None:
        self.released.append(worker_id)

    def on_job_status(self, status: str, reason: str | None) -> None:
        self.statuses.append(status)

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None:
        self.client.append((operator_id, subtask_index, payload))

    def on_log(self, line: str) -> None:
        self.logs.append(line)

    # --- the workers

    def register(self, count: int) -> None:
        for _ in range(count):
            self._registered += 1
            number = self._registered
            self.master.on_message(RegisterWorker(f"w{number}", f"address-{number}", "host", 1000 + number))

    @property
    def deployed(self) -> list[DeployTask]:
        """Deployments of the newest attempt."""
        all_of_them = [m for _, m in self.sent if isinstance(m, DeployTask)]
        newest = max((m.execution.attempt for m in all_of_them), default=0)
        return [m for m in all_of_them if m.execution.attempt == newest]

    def of(self, kind: type) -> list:
        return [m for _, m in self.sent if isinstance(m, kind)]

    def say(self, state: str, *executions: ExecutionId, failure: Failure | None = None) -> None:
        for execution in executions:
            self.master.on_message(TaskStateChanged(execution, state, failure))

    def run_all(self) -> None:
        for task in self.deployed:
            self.say("INITIALIZING", task.execution)
            self.say("RUNNING", task.execution)

    @property
    def executions(self) -> list[ExecutionId]:
        return [t.execution for t in self.deployed]

    def fail(self, execution: ExecutionId | None = None, **failure: Any) -> None:
        self.say("FAILED", execution or self.executions[0], failure=Failure(**({"reason": "broken"} | failure)))

    def end_cancelled(self) -> None:
        """All tasks that were asked to cancel do."""
        for message in self.of(CancelTask):
            self.say("CANCELED", message.execution)

    def lose(self, worker_id: str) -> None:
        self.master.on_message(WorkerLost(worker_id, "killed"))

    def advance(self, by_ms: int) -> None:
        target = self.clock.steady_ms() + by_ms
        while (due := self.master.next_deadline()) is not None and due <= target:
            self.clock.advance(max(0, due - self.clock.steady_ms()))
            self.master.on_time()
            if self.master.next_deadline() == due:
                break
        self.clock.advance(target - self.clock.steady_ms())
        self.master.on_time()

    def acknowledge(
        self,
        checkpoint_id: int,
        *executions: ExecutionId,
        finished: bool = False,
        data: bytes = b"x",
        base: tuple[StateFile, ...] = (),
        **figures: Any,
    ) -> None:
        """All parts, or those of some tasks; `base` is the history that they add to."""
        for execution in executions or tuple(self.executions):
            name = self.graph.vertices[execution.vertex].operators[0].operator_id
            path = state_path(checkpoint_id, execution, self.savepoint_paths().get(checkpoint_id))
            self.store.files.add(path)
            handle = KeyedStateHandle(0, 127, (*base, StateFile(len(data), checksum(data), path)))
            state = OperatorSubtaskState({"count": (handle,)})
            self.master.on_message(AcknowledgeCheckpoint(execution, checkpoint_id, {name: state}, finished, **figures))

    def savepoint_paths(self) -> dict[int, str]:
        """Where the savepoints that were triggered go."""
        return {m.checkpoint_id: m.savepoint_path for m in self.of(TriggerCheckpoint) if m.savepoint_path is not None}

    def triggered(self) -> list[int]:
        return sorted({m.checkpoint_id for m in self.of(TriggerCheckpoint)})

    def end_of_data(self) -> None:
        for execution in self.executions:
            self.master.on_message(EndOfDataReached(execution))

    @property
    def status(self) -> str:
        return self.master.status.name


def running(**options: Any) -> MasterRig:
    """A rig whose job runs."""
    rig = MasterRig(**options)
    rig.run_all()
    assert rig.status == "RUNNING"
    return rig
