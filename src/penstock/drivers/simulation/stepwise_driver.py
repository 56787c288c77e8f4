"""A simulated driver: carries out the steps of one master while it lives.

`Listening` is the port `JobListener` of a job that works step by step: it writes the job's log to the event log.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.base.job import JobStatus
from penstock.base.options import BATCH_SAVEPOINT_PATH
from penstock.drivers.simulation.checkpoint_store import LeadingStore
from penstock.drivers.simulation.disk import METADATA
from penstock.drivers.simulation.faults import Killed
from penstock.drivers.simulation.jobs import Job
from penstock.drivers.simulation.outside_world import PlannedError
from penstock.drivers.simulation.participants import COMMANDS
from penstock.drivers.simulation.stepwise_world import DriverKilled, StepwiseWorld
from penstock.drivers.stepwise.flow import Sinks, Sources, run_in_order, separate_answers
from penstock.runtime.batch.exchange import COMMITTABLES, Rows
from penstock.runtime.checkpoint.statistics import INPUT_PLACE, restored_watermarks
from penstock.runtime.epochs.coordinator import EpochWork, Task, epoch_vertices
from penstock.runtime.epochs.task import EpochTask
from penstock.runtime.graph import BACK_FILL
from penstock.runtime.job.failover import broken
from penstock.runtime.job.recovery import read_through
from penstock.runtime.master import steps
from penstock.runtime.master.epochs import BackFillMaster, EpochMaster
from penstock.runtime.master.master import Driving
from penstock.runtime.protocol import StopMode
from penstock.runtime.records import MIN_TIMESTAMP
from penstock.storage.leadership import BEGUN, LeftByJobs
from penstock.storage.metadata import CheckpointMetadata, garbage


class Listening:
    """See the module docstring. Output to the client is ignored."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def on_job_status(self, status: str, reason: str | None) -> None: ...

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None: ...

    def on_log(self, line: str) -> None:
        self._write(f"log: {line}")


STEPS_MAX: Final = 4_000
NAME: Final = "epochs"
#: The requests that a person may make.
WISHES: Final = ("checkpoint", "savepoint", "savepoint", "suspend", "suspend", "suspend", "drain", "cancel")


def describe_step(step: steps.Step) -> str:
    """Return a step's name and purpose."""
    name, detail = type(step).__name__, ""
    if isinstance(step, steps.RunEpoch):
        work = next(iter(step.works.values()))
        detail = " of a savepoint" if work.savepoint_path else " of the last epoch" if work.ends else ""
    elif isinstance(step, steps.Complete):
        ends = " that ends the job" if step.metadata.ends_job else ""
        detail = f" of the savepoint{ends}" if step.savepoint_path else f" of the checkpoint{ends}"
    elif isinstance(step, steps.MarkJob):
        detail = f" {step.mark.status}{' with a savepoint' if step.mark.savepoint else ''}"
    return name + detail


def _place(metadata: CheckpointMetadata) -> tuple[str, int]:
    """Return a checkpoint's job and number."""
    return metadata.job_id, metadata.checkpoint_id


@dataclass
class Ask:
    """A person's request, and its answers."""

    request: steps.Request
    answers: list[steps.Answer] = field(default_factory=list)


class Driver:
    """Drives one job while it lives."""

    def __init__(self, history: StepwiseWorld, job: Job, path: str | None) -> None:
        self._history = history
        self._job = job
        self._store = job.store
        self._store.on_delete = lambda: history.on_point("within DeleteGarbage")
        self._store.on_last = lambda: history.on_point("within Complete of the savepoint that ends the job")
        self._leading = LeadingStore(job.store)
        self._leading.between = history.stopped.within_step
        self.sources = Sources(job.graph)
        self._vertices = epoch_vertices(job.graph, job.job_id)
        self.is_back_fill = job.graph.mode == BACK_FILL
        arguments = (job.graph, job.job_id, job.configuration, history)
        #: where a batch leaves its state
        self.filled = job.configuration.read(BATCH_SAVEPOINT_PATH)
        self.master = (
            EpochMaster(*arguments, "disk") if self.filled is None else BackFillMaster(*arguments, self.filled)
        )
        self._sinks = Sinks(
            job.graph, job.job_id, Listening(history.write), history, self.master.figures, history.pass_time
        )
        #: whether one of its checkpoints or savepoints is complete
        self.has_written = False
        self.has_ended = False
        #: the path passed to the next job: this job's own until it has begun, or that of the savepoint that ended it
        self.goes_on_from = path
        self.asked: list[Ask] = []
        self._waiting: list[Ask] = []
        self._paths: dict[int, str] = {}
        self._serving: Ask | None = None
        self._is_cancelled = False
        #: whether others believe it dead
        self.is_stopped = False
        #: whether the savepoint that ends the job is complete
        self._is_stopping = False
        #: whether the job has marked itself as finished
        self._is_marked = False
        self._table = {
            steps.Report: lambda step: history.write(f"{step.status.name} {step.reason or ''}"),
            steps.Log: lambda step: history.write(f"log: {step.line}"),
            steps.Wait: self._wait,
            steps.NextRequest: lambda _: self._next_request(),
            steps.Answer: self._answer,
            steps.PrepareSources: lambda _: None,
            steps.Deliver: self._deliver,
            steps.EndForerunners: self._end_forerunners,
            steps.EndSinks: lambda _: self._end_sinks(),
            steps.MarkJob: self._mark,
            steps.Join: lambda step: self._leading.join(step.job_name),
            steps.TakeOver: self._take_over,
            steps.CheckLeads: lambda _: self._leading.check_leads(),
            steps.Load: lambda step: self._leading.load(step.path, step.job_name, step.claims),
            steps.ReadThrough: lambda step: read_through(self._leading, step.metadata),
            steps.Complete: self._complete,
            steps.Revoke: self._revoke,
            steps.DeleteGarbage: self._delete_garbage,
            steps.DeleteJobs: lambda step: self._leading.delete_jobs(step.job_ids),
            steps.DeleteSavepoint: self._delete_savepoint,
            steps.ClaimSavepoint: lambda _: None,
            steps.CheckClaim: lambda _: None,
            steps.EmptySavepoint: self._empty_savepoint,
            steps.ReleaseSavepoint: lambda _: None,
            steps.OpenSources: self._of_sources(self.sources.open),
            steps.DealSplits: self._of_sources(self.sources.deal),
            steps.SnapshotSources: self._of_sources(self.sources.snapshot),
            steps.RunEpoch: self._run_epoch,
        }
        self._driving = Driving(self.master.run(), self._perform, Killed)

    def run(self) -> JobStatus:
        """Run to the job's end and return its status. Raises `DriverKilled`, also if others only believe it dead."""
        stopped = self._history.stopped
        try:
            while self.advance():
                # Its replacement has to find its state itself rather than be given a path.
                if self.goes_on_from is None and not self.is_back_fill and stopped.stops():
                    self.is_stopped = True
                    stopped.add(self)
                    raise DriverKilled
                stopped.between_steps()
                self._history.between_steps()
                self._history.maybe_lose_power()
        finally:
            if not self.is_stopped:
                self.close()
        for ask in self._waiting:
            ask.answers.append(steps.Answer(ask.request, None, "the job is over"))
        return self.master.status

    @property
    def may_lead(self) -> bool:
        """Whether it was not deposed, or has yet to take over the job."""
        return self._leading.may_lead

    def advance(self) -> bool:
        """Take a step; return whether there are more."""
        history = self._history
        was_driving, history.is_driving, history.tasks.is_driver_dead = history.is_driving, True, False
        try:
            has_more = self._driving.advance()
        except AssertionError as broken_promise:
            history.violations.append(f"the master: {broken(NAME, broken_promise)}")
            return False
        finally:
            history.is_driving = was_driving
        self.has_ended = not has_more
        return has_more

    def close(self) -> None:
        """Close the sources."""
        self.sources.close()

    def check_answers(self) -> None:
        """Check, once the job is over or its driver dead, that each request got exactly one answer, and a true one."""
        history, savepoints = self._history, self._history.disk.savepoints
        for ask in self.asked:
            if len(ask.answers) > 1:
                history.violations.append(f"answer: {ask.request} got {len(ask.answers)}")
            if not ask.answers and self.has_ended:
                history.violations.append(f"answer: {ask.request} got none")
            for answer in ask.answers:
                path = answer.result
                if isinstance(path, str) and path not in savepoints:
                    history.violations.append(f"answer: {ask.request} was told of {path}, where no savepoint is")
                is_reported = isinstance(answer.error, str) and "has ended with the savepoint" in answer.error
                if answer.error is not None and not is_reported and self._get_savepoint_path(ask.request) in savepoints:
                    history.seen["savepoint left that nobody was told of"] += 1

    def is_at_end(self) -> bool:
        """Return whether this job or an earlier one reached the end of all its sources or was drained."""
        return self._is_marked or self._history.drained is not None or self.master._coordinator is None

    def _get_savepoint_path(self, request: steps.Request) -> str:
        """Return the path of a requested savepoint that was being written; "" for none."""
        return self._paths.get(request.number, "")

    def _perform(self, step: steps.Step) -> Any:
        history = self._history
        history.step += 1
        history.now += 1
        if history.step > STEPS_MAX:
            history.violations.append(f"stalled: {STEPS_MAX} steps")
            raise DriverKilled
        name = describe_step(step)
        if isinstance(step, steps.Deliver) and self._is_stopping:
            name += " of the savepoint that ends the job"
        history.on_point(f"before {name}")
        history.maybe_die(history.scenario.dies_before)
        if isinstance(step, steps.RunEpoch | steps.Wait):
            rate = history.scenario.cancels
            if rate and not history.faults.are_over and history.chance.random() < rate:
                self._is_cancelled = True
                history.seen["cancelled"] += 1
        if self._is_cancelled and isinstance(step, steps.RunEpoch | steps.Wait):
            raise steps.Cancelled
        if not isinstance(step, steps.Report | steps.Log | steps.NextRequest):
            history.write(f"{type(step).__name__}")
        try:
            result = self._table[type(step)](step)
        except Exception as error:
            history.write(f"failed: {type(error).__name__}: {str(error).splitlines()[0]}")
            if self._is_cancelled and not isinstance(error, steps.Cancelled):
                raise steps.Cancelled from error
            raise
        self._check(step)
        history.on_point(f"after {name}")
        history.maybe_die(history.scenario.dies_after)
        return result

    def _check(self, step: steps.Step) -> None:
        """Check the invariants after a step."""
        try:
            self.master.validate()
        except AssertionError as broken_promise:
            self._history.violations.append(f"invalid: {broken_promise}")
        # A deposed master learns of it only when it completes something; the checkpoints it has kept are not its own.
        is_excused = self.is_stopped or not self.may_lead or isinstance(step, steps.DeleteSavepoint)
        for metadata in self.master.completed if not is_excused else ():
            for path in self._store.missing_files(metadata):
                self._history.violations.append(f"missing-file: {path}, after {type(step).__name__}")

    # --- requests --------------------------------------------------------------------------------------------------

    def _wait(self, step: steps.Wait) -> None:
        self._history.now += step.for_ms

    def _next_request(self) -> steps.Request | None:
        history = self._history
        if self.is_stopped:
            return None
        history.looks += 1
        if history.wish is not None:
            kind, look = history.wish
            if history.looks != look:
                return None
        elif history.faults.are_over or history.chance.random() >= history.scenario.asks:
            return None
        else:
            kind = history.chance.choice(WISHES)
        self._serving = Ask(steps.Request(len(self.asked), COMMANDS.get(kind)))
        self.asked.append(self._serving)
        history.seen[f"asked for {kind}"] += 1
        history.write(f"asked: {kind}")
        return self._serving.request

    def _answer(self, step: steps.Answer) -> None:
        self._history.write(f"answer: {step.result or step.error}")
        ask = self.asked[step.request.number]
        ask.answers.append(step)
        self._serving = None
        command = step.request.savepoint
        if isinstance(step.result, str) and command is not None:
            ends = command.cancels or command.stop is StopMode.SUSPEND
            if ends:
                self.goes_on_from = step.result if self._history.chance.random() < 0.5 else None

    # --- storage ---------------------------------------------------------------------------------------------------

    def _take_over(self, step: steps.TakeOver) -> LeftByJobs:
        left = self._leading.take_over(step.job_name)
        history = self._history
        drained, disk = history.drained, history.disk
        if drained is not None:
            key = _place(drained)
            # A stale listing may not show a checkpoint from which a job has begun.
            known = {_place(job.begun_from) for job in history.jobs.all if job.begun_from is not None}
            known.update(left.found().checkpoints)
            if f"{key[0]}/chk-{key[1]}/{METADATA}" in disk.files and key not in known:
                history.drained = None  # it became visible after this driver had looked
        return left

    def _mark(self, step: steps.MarkJob) -> None:
        self._leading.mark_job(step.mark)
        if step.mark.status == BEGUN:
            self.goes_on_from = None
        if step.mark.status == "FINISHED" and step.mark.savepoint is None:
            self._is_marked = True

    def _complete(self, step: steps.Complete) -> None:
        history, path = self._history, step.savepoint_path
        if path is not None and self._serving is not None:
            self._paths[self._serving.request.number] = path
        try:
            self._leading.complete(step.metadata, path)
            self.has_written = True
        finally:
            if step.metadata.ends_job and path is not None:
                # From then on the next job finds it; until then there is only a savepoint that no job knows.
                own = f"{self._store.get_directory(step.metadata.checkpoint_id)}/{METADATA}"
                is_found = own in history.disk.files and self._leading.counts(step.metadata.checkpoint_id)
                if is_found and step.metadata.is_drained and history.drained is None:
                    history.drained = history.disk.load_savepoint(path)
        self._is_stopping = step.metadata.ends_job and path is not None
        history.epochs += 1

    def _revoke(self, step: steps.Revoke) -> None:
        self._leading.revoke(step.checkpoint_id)
        drained = self._history.drained
        if drained is not None and (drained.job_id, drained.checkpoint_id) == (self._job.job_id, step.checkpoint_id):
            self._history.drained = None  # from now on no job finds it

    def _delete_garbage(self, step: steps.DeleteGarbage) -> None:
        self._leading.delete(garbage(self._leading.listing(), step.kept, step.oldest_live_id, step.revoked))

    def _delete_savepoint(self, step: steps.DeleteSavepoint) -> None:
        disk = self._history.disk
        disk.claimed = step.path
        drained = self._history.drained
        if disk.savepoints.pop(step.path, None) is not None and drained is not None:
            self._history.drained = None if drained.external_path == step.path else drained
        for path in sorted(disk.below(step.path), key=lambda path: not path.endswith(METADATA)):
            self._store.delete_file(path)
            if path.endswith(METADATA):
                disk.sync_directory(step.path)

    def _empty_savepoint(self, step: steps.EmptySavepoint) -> None:
        if step.kept is None:
            self._delete_savepoint(steps.DeleteSavepoint(step.path))

    # --- the work --------------------------------------------------------------------------------------------------

    def _of_sources(self, call: Any) -> Any:
        def carry_out(step: steps.Step) -> Any:
            history = self._history
            if not history.faults.are_over and history.chance.random() < history.scenario.source_error:
                history.seen["source failed"] += 1
                raise PlannedError("planned: the source failed")
            return call(step)

        return carry_out

    def _run_epoch(self, step: steps.RunEpoch) -> steps.Left:
        self._check_time(step.works)
        backends = self._history.jobs.backends()
        try:
            return separate_answers(run_in_order(self._job.graph, self._task(step.works, backends), lambda: None))
        finally:
            backends.close()

    def _check_time(self, works: Mapping[Task, EpochWork]) -> None:
        """Check that no task resumes with an event time before its checkpoint's: late records would not be late."""
        for task, reached in restored_watermarks(self.master.coordinator.latest, self._job.graph).items():
            for position, mark in reached.items():
                begun = works[task].watermarks.get(position, MIN_TIMESTAMP)
                has_input = position != INPUT_PLACE or not self._job.graph.vertices[task[0]].sources
                if begun < mark and has_input:
                    self._history.violations.append(f"time: task {task} begins at {begun}, its checkpoint has {mark}")

    def _task(self, works: Mapping[Task, EpochWork], backends: Any) -> Any:
        """Return a function that runs a task, sometimes twice: then either run may be the one that counts."""
        history, runs = self._history, iter(range(1, 1 << 30))

        def once(vertex: int, subtask: int, rows: Rows) -> list[Rows]:
            if history.has_files:
                return history.tasks.run(lambda: in_a_process(vertex, subtask, rows))
            return in_a_process(vertex, subtask, rows)

        def in_a_process(vertex: int, subtask: int, rows: Rows) -> list[Rows]:
            history.on_point("within RunEpoch")
            token = b"%d" % next(runs)
            work = works[vertex, subtask]
            history.maybe_die(history.scenario.dies_within / 4)
            task = EpochTask(self._vertices[vertex], subtask, work, history, self._store, backends, token)
            return list(task.run([rows]))

        def run(vertex: int, subtask: int, rows: Rows) -> Iterable[Rows]:
            first = once(vertex, subtask, rows)
            if history.faults.are_over or history.chance.random() >= history.scenario.runs_twice:
                return first
            history.seen["ran twice"] += 1
            second = once(vertex, subtask, rows)
            kind = history.chance.choice(("first", "second", "mixed"))
            return _mixed(first, second) if kind == "mixed" else second if kind == "second" else first

        return run

    def _deliver(self, step: steps.Deliver) -> None:
        history = self._history
        if history.has_files:
            self._sinks.deliver(step.last)
            return
        for last in sorted(step.last, key=lambda entry: (entry.vertex, entry.operator, entry.sequence)):
            if last.kind == COMMITTABLES:
                for transaction_id in pickle.loads(last.payload):
                    history.outside.commit(transaction_id, self._job.job_id)

    def _end_forerunners(self, step: steps.EndForerunners) -> None:
        if self._history.has_files:
            self._sinks.end_forerunners(step.job_ids)
        else:
            for job_id in step.job_ids:
                self._history.outside.end_job(job_id)

    def _end_sinks(self) -> None:
        if self._history.has_files:
            self._history.outsiders.on_sinks_end()
            self._sinks.end()
        else:
            self._history.outside.end_job(self._job.job_id)


def _mixed(used: list[Rows], counted: list[Rows]) -> list[Rows]:
    """Combine two runs of a task: other tasks used the first, which was then lost; the second one counts."""
    mixed = Rows()
    for runs, is_for_tasks in ((used, True), (counted, False)):
        for rows in runs:
            for row in zip(*rows.columns(), strict=True):
                if (row[0] >= 0) is is_for_tasks:
                    for column, value in zip(mixed.columns(), row, strict=True):
                        column.append(value)
    return [mixed]
