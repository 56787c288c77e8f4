"""Invariants of a history, checked while it runs and at its end, and the expected refusals of savepoints (H4).

`expected_refusals` returns the reasons why a job must not begin from a savepoint or checkpoint. `find_reason` finds the
reason in an error message, and `judge` decides whether the refusal is justified.

`Invariants` watches one simulation. The first word of a violation is its kind.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.base.job import JobStatus
from penstock.drivers.simulation import oracle
from penstock.drivers.simulation.file_sinks import hidden, is_committed, kafka_sink, written
from penstock.drivers.simulation.participants import Request, Watched
from penstock.drivers.simulation.program_changes import records_in_flight
from penstock.drivers.simulation.worker import Worker
from penstock.runtime import protocol
from penstock.runtime.checkpoint.coordinator import CheckpointCoordinator
from penstock.runtime.graph import ExecutionState, JobGraph
from penstock.runtime.task.barriers import AlignedBarrierHandler
from penstock.runtime.task.stream_task import StreamTask
from penstock.storage.metadata import CheckpointMetadata

if TYPE_CHECKING:
    from penstock.drivers.simulation.jobs import Job


#: Reasons, and the words that the error must contain.
WORDS = {
    "unclaimed state": "no operator of the job claims the state of",
    "max parallelism": "its keyed state was written with max parallelism",
    "chained with what had finished": "had finished, but is chained with",
    "fed by what had not finished": "had finished, but reads from",
    "files of another backend": "the checkpoint holds its keyed state in files of the backend",
    "records in flight, other edges": "the job's edges have changed",
    "records in flight, operator gone": "which the job no longer has",
    "records in flight, not streaming": "micro-batch execution cannot take over the records in flight",
}


def judge(job: Job, error: str, has_looked: bool) -> tuple[str | None, str | None]:
    """Return the reason for a justified refusal, or None; and a description of a wrong beginning, or None.

    `error`: the job's failure, if any; `has_looked`: whether it has read the state to begin from.
    """
    expected, reason = expected_refusals(job), find_reason(error)
    if reason is not None:
        return (reason, None) if reason in expected else (None, f"refused: {error}; expected {sorted(expected)}")
    if expected and has_looked:
        return None, f"restored: a job that does not fit was not refused: {sorted(expected)}"
    return None, None


def expected_refusals(job: Job) -> set[str]:
    """Return every reason to refuse a job."""
    metadata, graph, program = job.begun_from, job.graph, job.program
    reasons = set[str]()
    if metadata is None:
        return reasons
    states = {operator.operator_id: operator for operator in metadata.operators}
    vertex_of = {operator.operator_id: vertex for vertex in graph.vertices for operator in vertex.operators}
    finished = {operator_id for operator_id, state in states.items() if len(state.finished) == state.parallelism}
    for operator_id, state in states.items():
        vertex = vertex_of.get(operator_id)
        if vertex is None:
            has_state = any(state.subtasks.values()) or state.coordinator is not None
            if has_state and not program.ignores_unclaimed:
                reasons.add("unclaimed state")
            continue
        backends = {native.backend for subtask in state.subtasks.values() for native in subtask.native}
        holds_keyed = backends or any(subtask.keyed for subtask in state.subtasks.values())
        if holds_keyed and vertex.max_parallelism != state.max_parallelism:
            reasons.add("max parallelism")
        if backends - {program.backend}:
            reasons.add("files of another backend")
    for vertex in graph.vertices:
        ended = [operator.operator_id in finished for operator in vertex.operators]
        if any(ended) and not all(ended):
            reasons.add("chained with what had finished")
        heads = [graph.vertices[edge.source].operators for edge in graph.get_inputs(vertex.index)]
        if any(ended) and not all(o.operator_id in finished for operators in heads for o in operators):
            reasons.add("fed by what had not finished")
    if graph.mode != "STREAMING" and records_in_flight(metadata):
        reasons.add("records in flight, not streaming")
    return reasons | _in_flight(metadata, graph)


def _in_flight(metadata: CheckpointMetadata, graph: JobGraph) -> set[str]:
    in_flight = records_in_flight(metadata)
    if not in_flight:
        return set()
    if metadata.edges != graph.edge_names():
        return {"records in flight, other edges"}
    if not {operator_id for operator_id, _ in in_flight} <= {
        o.operator_id for v in graph.vertices for o in v.operators
    }:
        return {"records in flight, operator gone"}
    return set()


def find_reason(error: str) -> str | None:
    """Return the key of WORDS that matches an error."""
    return next((reason for reason, words in WORDS.items() if words in error), None)


FOUND_MAX = 10
#: Reasons for declining a checkpoint when a task begins or ends.
UNREADY = ("the task cannot inject a barrier now", "the task has ended", "this worker does not have the task")
#: Worker turns per check of a task; such checks per check of a whole executor, and per check of keyed state.
TASK_EVERY = 2
EXECUTOR_EVERY = 7
STATE_EVERY = 11


class Invariants:
    """Watches one simulation."""

    def __init__(self, simulation: Watched) -> None:
        self._simulation = simulation
        self._found: list[str] = []
        self._coordinator: CheckpointCoordinator | None = None
        self._completed = 0
        self._last_id = 0
        self._turns = 0
        #: the aborted checkpoints that each task was notified of
        self._given_up: dict[protocol.ExecutionId, set[int]] = {}
        #: whether all workers were valid so far
        self._is_valid = True

    @property
    def found(self) -> list[str]:
        """The violations so far."""
        return self._found

    # --- during the history ----------------------------------------------------------------------------------------

    def raised(self, error: Exception) -> None:
        """Record an exception in the core or the simulator."""
        self._found.append("raised: " + "".join(traceback.format_exception(error)))

    def stalled(self, dump: str) -> None:
        """Record that the job did not finish although nothing was in its way."""
        self._found.append(f"stalled:\n{dump}")

    def before_master(self, message: protocol.ToMaster) -> None:
        """Check a message to the job master: current tasks fail, or decline for a missing file, only if planned."""
        if (
            not isinstance(message, protocol.TaskStateChanged | protocol.DeclineCheckpoint)
            or len(self._found) >= FOUND_MAX
        ):
            return
        master = self._simulation.master
        if master._graph.find(message.execution) is None:
            return
        if isinstance(message, protocol.DeclineCheckpoint):
            if "is missing" in message.reason and message.checkpoint_id in master.checkpoints._pending:
                self._found.append(f"missing-file: checkpoint {message.checkpoint_id}: {message.reason}")
            return
        failure = message.failure
        if failure is None or "planned" in failure.reason:
            return
        if not self._simulation.outsiders.explain(f"{failure.reason} {failure.traceback}"):
            self._found.append(f"task-failed: {failure.operator_name}: {failure.traceback or failure.reason}")

    def after_master(self) -> None:
        """Check the job master after its turn: completed checkpoints have increasing ids and all their files.

        No checkpoint waits for a task that has finished, because only its timeout would end such a wait.
        """
        simulation = self._simulation
        try:
            simulation.master.validate()
        except AssertionError as broken:
            if len(self._found) < FOUND_MAX:
                self._found.append(f"invalid: {broken}")
        checkpoints = simulation.master.checkpoints
        for pending in checkpoints._pending.values():
            for missing in () if pending.is_completing else pending.missing:
                execution = simulation.master._graph.find(missing)
                is_owed = execution is not None and execution.state is ExecutionState.FINISHED
                if is_owed and len(self._found) < FOUND_MAX:
                    self._found.append(f"owed: checkpoint {pending.checkpoint_id} waits for {missing}, which finished")
        if checkpoints is not self._coordinator:
            self._coordinator, self._completed = checkpoints, 0
        # A savepoint that ends the job counts as one of its checkpoints; other savepoints do not.
        is_last = checkpoints.last is not None and checkpoints.statistics.savepoints > 0
        completed = checkpoints.statistics.completed + is_last
        if completed == self._completed or not checkpoints.completed:
            return
        self._completed = completed
        last_id = checkpoints.completed[-1].checkpoint_id
        if last_id <= self._last_id:
            self._found.append(f"checkpoint-id: {last_id} completed after {self._last_id}")
        self._last_id = last_id
        ids = [m.checkpoint_id for m in checkpoints.completed]
        if ids != sorted(set(ids)):
            self._found.append(f"checkpoint-id: the kept checkpoints are {ids}")
        self._check_files()
        self._check_in_flight(checkpoints.completed[-1])

    def before_job(self) -> None:
        """Prepare for the next job, whose attempts and checkpoints are numbered from the beginning."""
        self._given_up.clear()

    def before_worker(self, message: protocol.ToWorker) -> None:
        """Note aborted checkpoints when a message reaches a worker."""
        if isinstance(message, protocol.NotifyCheckpointAborted):
            self._given_up.setdefault(message.execution, set()).add(message.checkpoint_id)

    def after_worker(self, worker: Worker) -> None:
        """Check a worker's invariants after its turn, in small portions: one of its tasks per turn.

        Only the first violation is reported, because the others follow from it.
        """
        self._turns += 1
        look, is_left_out = divmod(self._turns, TASK_EVERY)
        if is_left_out or not self._is_valid:
            return
        tasks = worker.executor.tasks
        try:
            if look % EXECUTOR_EVERY == 0:
                worker.executor.validate()
            if tasks:
                task = tasks[look % len(tasks)]
                task.validate()
                self._check_barriers(task)
                if look % STATE_EVERY == 0:
                    task.validate_state()
        except AssertionError as broken:
            self._is_valid = False
            self._found.append(f"invalid: {worker.worker_id}: {broken}")

    def _check_barriers(self, task: StreamTask) -> None:
        """Check that no channel waits for the barriers of an aborted checkpoint: some of them never arrive."""
        given_up = self._given_up.get(task.execution)
        if given_up is None or task._loop is None:
            return
        unread = {
            message.checkpoint_id for message in task.mail if isinstance(message, protocol.NotifyCheckpointAborted)
        }
        barriers = task._loop.barriers
        aligning = barriers._aligning if isinstance(barriers, AlignedBarrierHandler) else None
        for checkpoint_id in {barriers.capturing_id, None if aligning is None else aligning.checkpoint_id}:
            assert checkpoint_id not in given_up - unread, (
                f"{task.execution} works for checkpoint {checkpoint_id}, of which it was told that it was given up"
            )

    def _check_files(self) -> None:
        simulation = self._simulation
        for metadata in simulation.master.checkpoints.completed:
            missing = simulation.jobs.now.store.missing_files(metadata)
            if missing:
                self._found.append(
                    f"missing-file: kept checkpoint {metadata.checkpoint_id} lacks {missing[: oracle.SHOWN_MAX]}"
                )

    def _check_in_flight(self, metadata: CheckpointMetadata) -> None:
        """Check that no records were in flight to tasks with broadcast or pointwise inputs, which always align."""
        all_edges = self._simulation.master._graph.job_graph.edges
        aligning = {edge.target for edge in all_edges if edge.is_pointwise or edge.partitioning == "BROADCAST"}
        edges = {edge.index for edge in all_edges if edge.target in aligning}
        if overlap := edges & {edge for _, edge in records_in_flight(metadata)}:
            self._found.append(
                f"in-flight: checkpoint {metadata.checkpoint_id} holds records of edges {sorted(overlap)}"
            )

    def on_master_death(self) -> None:
        """Check, when the job master dies, possibly in mid-deletion, that checkpoints that look complete are."""
        for directory, missing in self._simulation.jobs.now.store.damaged().items():
            self._found.append(
                f"missing-file: checkpoint {directory} looks whole and lacks {missing[: oracle.SHOWN_MAX]}"
            )

    def on_release(self, worker: Worker) -> None:
        """Check a worker released at the end of the job: nothing of the job may remain there."""
        if self._simulation.master.status not in (JobStatus.FINISHED, JobStatus.CANCELED):
            return
        if worker.has_stood_still:
            return  # its cancelled tasks may not have ended in time; then it was ended by force
        executor = worker.executor
        if executor.tasks:
            self._found.append(f"leaked-task: {worker.worker_id} has {[str(t.execution) for t in executor.tasks]}")
        if executor._consumers or executor._producers:
            self._found.append(f"leaked-channel: {worker.worker_id} has {[*executor._consumers, *executor._producers]}")

    def on_running(self) -> None:
        """Count the start if part of the job has already finished."""
        master = self._simulation.master
        latest = master.checkpoints.latest
        if latest is not None and oracle.is_partly_finished(latest):
            self._simulation.events["begun partly finished"] += 1

    def on_reader_begun(self) -> None:
        """Check that no source reader begins once the savepoint that ends the job is complete."""
        last = self._simulation.master.checkpoints.last
        if last is not None:
            self._found.append(f"resumed: a reader begins after savepoint {last.external_path} has ended the job")

    def on_finish(self, operator_id: str, subtask: int, attempt: int) -> None:
        """Check that an operator only finishes once all its input has truly ended (F4)."""
        stopping = self._simulation.outside.stopping
        is_draining = bool(stopping) and stopping[max(stopping)] is protocol.StopMode.DRAIN
        for worker in self._simulation.cluster.workers.values():
            for task in worker.executor.tasks:
                execution = task.execution
                chain = task.chain
                if (execution.subtask, execution.attempt) != (subtask, attempt) or chain is None:
                    continue
                if any(c.operator_id == operator_id for c in chain.contexts) and not _is_at_its_end(task, is_draining):
                    self._found.append(f"finish: {task.deployment.task_name} {execution} has not come to its end")

    def on_answer(self, request: Request, path: str | None, error: str | None) -> None:
        """Check the answer to a savepoint request."""
        simulation, kind = self._simulation, request.kind
        if len(request.answers) > 1:
            self._found.append(f"waiter: {kind} was answered {len(request.answers)} times: {request.answers}")
        if (path is None) == (error is None):
            self._found.append(f"waiter: {kind} was answered {(path, error)}")
        if path is None:
            if error is not None and error.startswith("declined") and error.endswith(UNREADY):
                self._found.append(f"unready: {kind} was refused because {error}, and has to be asked for again")
            return
        disk = simulation.jobs.disk
        if path not in disk.savepoints:
            self._found.append(f"waiter: {kind} was told of {path}, which is not complete")
            return
        self._found += [f"savepoint: {flaw}" for flaw in disk.find_flaws(path)]
        if kind in ("suspend", "drain"):
            if request.master is simulation.master and simulation.master.status is not JobStatus.FINISHED:
                self._found.append(f"waiter: {kind} was answered while the job is {simulation.master.status.name}")
            open_ids = [
                t for t in oracle.prepared(disk, disk.load_savepoint(path)) if not is_committed(simulation.outside, t)
            ]
            if open_ids:
                self._found.append(f"waiter: {kind} was answered before {open_ids[: oracle.SHOWN_MAX]} was committed")

    # --- at the end ------------------------------------------------------------------------------------------------

    def was_refused(self) -> bool:
        """Return whether the job was refused; exactly the jobs that do not fit their initial state must be (H4)."""
        simulation, job, master = self._simulation, self._simulation.jobs.now, self._simulation.master
        error = str(master.failure) if master.status is JobStatus.FAILED else ""
        # A cancelled job may have been cancelled before it read the state.
        reason, flaw = judge(job, error, has_looked=master.status is not JobStatus.CANCELED)
        if flaw is not None:
            self._found.append(flaw)
        if reason is not None:
            simulation.jobs.resumed[f"refused: {reason}"] += 1
        return reason is not None

    def at_job_end(self, requests: Iterable[Request]) -> None:
        """Check a job that has ended and been cleaned up; `requests` are all its requests."""
        simulation = self._simulation
        master = simulation.master
        if master.status is JobStatus.CANCELED and master.checkpoints.settings.retain_on_cancel:
            # A copy of a savepoint is not a checkpoint to continue from.
            for metadata in (m for m in master.checkpoints.completed if not m.ends_job):
                directory = simulation.jobs.now.store.get_directory(metadata.checkpoint_id)
                simulation.jobs.disk.retain(directory, metadata)
        for request in requests:
            if request.master is simulation.master and not request.answers:
                self._found.append(f"waiter: {request.kind} was never answered")
        if master.status is JobStatus.FAILED and simulation.outsiders.on_failure(str(master.failure)):
            return  # a person continues from the files it leaves, once the missing file is back
        self._check_leaks()

    def at_end(self) -> list[str]:
        """Run the final checks and return all violations."""
        simulation = self._simulation
        self._found += [*simulation.around.flaws(), *simulation.outsiders.violations]
        if not simulation.process.is_done:
            return self._found
        left = simulation.jobs.folder.left()
        if left:
            self._found.append(f"leaked-state: {len(left)} directories of RocksDB are left")
        if simulation.master.status is not JobStatus.FINISHED:
            reason = simulation.master.failure
            if simulation.outsiders.lack is not None:
                self.check_output(may_lack=True)
                return self._found
            self._found.append(f"failed: the job ended {simulation.master.status.name}: {reason}")
            return self._found
        self.check_output()
        self._check_hidden_files()
        return self._found

    def check_output(self, may_lack: bool = False) -> None:
        """Check that the sinks have the expected output.

        `may_lack`: the job has failed, so output that was not yet visible may be missing.
        """
        simulation = self._simulation
        totals = simulation.process.totals
        # A savepoint taken while the job runs may lead to repeated records, as any such checkpoint may.
        may_repeat = simulation.scenario.mode == "at-least-once" and (
            totals.masters > 1
            or totals.restarts > 0
            or simulation.events["cancelled"] > 0
            or any(job.has_moved or job.was_rescaled for job in simulation.jobs.all)
        )
        read = self.read()
        stages = {stage.uid: stage for stage in simulation.scenario.topology.stages}
        has_order = not any(job.is_unordered for job in simulation.jobs.all)
        has_rules = any(stage.kind == "rules" for stage in stages.values())
        for sink, expected in oracle.outputs_of_jobs(simulation.jobs.epochs(), read).items():
            if stages[sink].make_sink is kafka_sink:
                records = simulation.outside.kafka.visible(sink)
            elif stages[sink].make_sink is None:
                records = simulation.outside.committed.get(sink, [])
            else:
                records = written(simulation.jobs.disk, sink)
            if may_lack:
                violations = [] if may_repeat else [oracle.check_no_more(sink, expected, records)]
            elif may_repeat:
                violations = [oracle.check_superset(sink, expected, records, bool(read) and has_rules)]
            else:
                violations = [oracle.check_exact(sink, expected, records)]
                has_all = not simulation.outsiders.seen["file taken"]
                if simulation.scenario.mode != "at-least-once" and has_order and has_all:
                    violations.append(oracle.check_order(sink, stages[sink], records))
            self._found += [line for line in violations if line is not None]

    def read(self) -> oracle.Consumed:
        """Return how many records were read from each split that was not read to its end."""
        simulation = self._simulation
        last, read = simulation.master.checkpoints.last, simulation.jobs.now.read_to
        if read is None:
            read = {} if last is None else oracle.consumed(simulation.jobs.disk, last)
        return read

    def _check_hidden_files(self) -> None:
        """Check that file sinks leave no hidden files, unless savepoints, other jobs or power cuts explain them.

        Only a single job without savepoints is checked.
        """
        simulation, disk = self._simulation, self._simulation.jobs.disk
        seen = simulation.around.faults.seen
        is_alone = len(simulation.jobs.all) == 1 and not simulation.jobs.now.savepoints
        left = [path for path in hidden(disk) if not simulation.outsiders.is_of_a_neighbour(path)]
        if left and is_alone and not seen["power-cut"] and not seen["split-brain"]:
            self._found.append(f"leaked-file: {len(left)} hidden files are left: {left[: oracle.SHOWN_MAX]}")

    def _check_leaks(self) -> None:
        simulation = self._simulation
        job, master = simulation.jobs.now, simulation.master
        is_retained = master.status is JobStatus.CANCELED and master.checkpoints.settings.retain_on_cancel
        left = job.store.leftovers(master.checkpoints.completed if is_retained else ())
        # A job that retains its checkpoints, and was cancelled before it knew which there are, has to leave them all.
        if left and (master.checkpoints.knows_what_to_keep or not is_retained):
            self._found.append(f"leaked-file: {len(left)} files are left: {left[: oracle.SHOWN_MAX]}")
        partial = simulation.jobs.disk.partial_savepoints()
        if partial:
            self._found.append(f"leaked-savepoint: parts are left of {partial[: oracle.SHOWN_MAX]}")
        if simulation.cluster.workers:
            self._found.append(f"leaked-worker: {sorted(simulation.cluster.workers)}")
        if simulation.process.background.jobs:
            self._found.append(f"leaked-work: {len(simulation.process.background.jobs)} background jobs of the master")


def _is_at_its_end(task: StreamTask, is_draining: bool) -> bool:
    """Return whether no record can arrive: all inputs have drained, or the reader is at its end or being drained."""
    if task.gate.channels:
        return all(channel.has_drained for channel in task.gate.channels)
    reader: Any = None if task.source is None else task.source.reader
    return is_draining or reader is None or reader.has_ended
