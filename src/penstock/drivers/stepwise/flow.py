"""Input and output of jobs that work step by step: splits, rows between tasks, and results (G9).

`Sources` are the split enumerators of a job's sources, which assign splits as each epoch begins.

`run_in_order` moves rows between the tasks of a bounded run in this process: one task after the other, in graph order.

`Sinks` delivers the output of tasks to the client, and commits it for the sinks, once all tasks have succeeded. A task
that was run again therefore leaves no trace.

`SinkCommits` retries a failed commit a few times: file systems fail transiently, and committing is idempotent. After
that, an epoch can be committed from its checkpoint.

`BatchCommits` has no checkpoint to commit from. A batch therefore commits all or nothing, as far as its sinks can roll
back commits. It first records the planned commits, and rolls them back when it cannot complete all of them. If a run is
killed in the middle, the next run of the job rolls them back.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from penstock.base.errors import JobExecutionError, PenstockError
from penstock.runtime.accumulators import get_values, merge_accumulators
from penstock.runtime.batch.exchange import (
    ACCUMULATORS,
    CLIENT,
    METRICS,
    SEQUENCES_PER_SUBTASK,
    JobFigures,
    Rows,
    SplitDealer,
)
from penstock.runtime.connector import CommitLog, Committer, Sink, SinkWriterContext
from penstock.runtime.epochs.coordinator import Dealt, EpochAnswer, Task
from penstock.runtime.epochs.task import ANSWER
from penstock.runtime.graph import JobGraph
from penstock.runtime.job.failover import batch_error
from penstock.runtime.master.steps import Cancelled, DealSplits, Last, Left, OpenSources, SnapshotSources
from penstock.runtime.operators.connector import SinkOperator
from penstock.runtime.ports import Clock, JobListener
from penstock.runtime.task.failures import clear_own_frames, describe_failure
from penstock.runtime.task.operator_chain import VertexProgram
from penstock.storage.metadata import StateFile

Row = tuple[int, int, int, int | None, int, bytes]
#: maps (vertex, subtask, sorted rows) to the task's output
RunTask = Callable[[int, int, Rows], Iterable[Rows]]


def run_in_order(
    job_graph: JobGraph,
    run_task: RunTask,
    check_cancelled: Callable[[], None],
    in_step: Callable[[int], bool] = lambda vertex: False,
) -> Iterator[Last]:
    """Run every task once; return the output for the client. Rows of an edge wait in lists for their consumers.

    Subtasks of a vertex run one after the other, or take turns if `in_step` returns true for the vertex.
    """
    waiting: dict[tuple[int, int], list[Row]] = {}
    for vertex in job_graph.vertices:
        edges = [edge.index for edge in job_graph.get_inputs(vertex.index)]

        def outputs(subtask: int, vertex: int = vertex.index, edges: list[int] = edges) -> Iterator[Rows]:
            rows = [row for edge in edges for row in waiting.pop((edge, subtask), [])]
            yield from run_task(vertex, subtask, _sorted(rows))

        subtasks = range(vertex.parallelism)
        groups = [subtasks] if in_step(vertex.index) else [range(subtask, subtask + 1) for subtask in subtasks]
        for subtask, output in _turns(groups, outputs):
            try:
                for produced in output:
                    check_cancelled()
                    for row in zip(*produced.columns(), strict=True):
                        edge, target, _, _, sequence, payload = row
                        if edge >= 0:
                            waiting.setdefault((edge, target), []).append(row)
                        else:
                            yield Last(vertex.index, target, edge, sequence, payload)
            except (Cancelled, JobExecutionError, GeneratorExit):
                raise
            except (Exception, SystemExit) as error:
                failed = batch_error(describe_failure(error, vertex.name), job_graph, vertex.index, subtask)
                clear_own_frames(error)
                raise failed from error


def _turns(groups: list[range], outputs: Callable[[int], Iterator[Rows]]) -> Iterator[tuple[int, Iterator[Rows]]]:
    """Yield (subtask, its next output). The subtasks of a group take turns until all have ended, group after group."""
    for group in groups:
        running = {subtask: outputs(subtask) for subtask in group}
        if len(running) == 1:
            yield from running.items()
            continue
        try:
            while running:
                for subtask, output in list(running.items()):
                    turn = _Turn(output)
                    yield subtask, turn
                    if turn.is_over:
                        del running[subtask]
        finally:
            for output in running.values():
                output.close()  # type: ignore[attr-defined]


class _Turn:
    """The next output of a subtask, if there is any."""

    def __init__(self, output: Iterator[Rows]) -> None:
        self._output = output
        self._is_taken = False
        self.is_over = False

    def __iter__(self) -> Iterator[Rows]:
        return self

    def __next__(self) -> Rows:
        if self._is_taken:
            raise StopIteration
        self._is_taken = True
        try:
            return next(self._output)
        except StopIteration:
            self.is_over = True
            raise


def separate_answers(lasts: Iterable[Last]) -> Left:
    """Collect the results of an epoch's tasks, with their answers apart from the rest."""
    answers: dict[Task, EpochAnswer] = {}
    others = []
    for last in lasts:
        if last.kind == ANSWER:
            answers[last.vertex, last.operator] = pickle.loads(last.payload)
        else:
            others.append(last)
    return Left(answers, others)


def _sorted(rows: list[Row]) -> Rows:
    rows.sort(key=lambda row: (row[2], row[3] is not None, row[3] or 0, row[0], row[4]))
    result = Rows()
    for column, values in zip(result.columns(), zip(*rows, strict=True), strict=False):
        column.extend(values)
    return result


class Sources:
    """All sources of one job; `close` them at the end."""

    def __init__(self, job_graph: JobGraph) -> None:
        self._job_graph = job_graph
        self._dealers: dict[str, SplitDealer] = {}

    def open(self, step: OpenSources) -> None:
        """Open the sources from their restored state."""
        self.close()
        for vertex in self._job_graph.vertices:
            for operator_id, source in vertex.sources.items():
                self._dealers[operator_id] = SplitDealer(source, vertex.parallelism, step.restored[operator_id])

    def deal(self, step: DealSplits) -> dict[str, Dealt]:
        """Assign new splits of all sources."""
        return {
            operator_id: Dealt(tuple(dealer.deal()), tuple(dealer.no_more))
            for operator_id, dealer in self._dealers.items()
        }

    def snapshot(self, step: SnapshotSources) -> dict[str, StateFile]:
        """Return the state of each source for the checkpoint."""
        return {operator_id: dealer.snapshot(step.checkpoint_id) for operator_id, dealer in self._dealers.items()}

    def close(self) -> None:
        """Release the enumerators."""
        for dealer in self._dealers.values():
            dealer.close()
        self._dealers.clear()


#: Vertex, and index in its chain.
Place = tuple[int, int]

COMMIT_TRIES_MAX: Final = 5
#: The wait before the second try; it doubles with each further try.
FIRST_WAIT_MS: Final = 100


class SinkCommits:
    """The commits of all sinks of a job.

    Args:
        job_graph: the job.
        job_id: its id.
        build_context: returns the context of a committer, by job id and operator id.
        wait: waits for a time (ms).
        log: takes lines for the log of the job.
    """

    def __init__(
        self,
        job_graph: JobGraph,
        job_id: str,
        build_context: Callable[[str, str], SinkWriterContext],
        wait: Callable[[int], None],
        log: Callable[[str], None],
    ) -> None:
        self._job_graph = job_graph
        self._job_name = job_graph.name
        self._job_id = job_id
        self._context_of = build_context
        self._wait = wait
        self._log = log
        self._logs: dict[Place, CommitLog] = {}
        #: committables that were committed although the commit as a whole failed, and the committers that failed: they
        #: know which output they have made visible, even if a reader has removed it since
        self._done: dict[Place, list[Any]] = {}
        self._failed: dict[Place, Committer[Any]] = {}

    @cached_property
    def _sinks(self) -> dict[Place, tuple[str, Sink[Any], SinkWriterContext]]:
        """Name, sink and context of each sink. Raises the errors of loading the program; tasks report these more
        clearly.
        """
        sinks = {}
        for vertex in self._job_graph.vertices:
            program: VertexProgram = pickle.loads(vertex.program)
            for index, chained in enumerate(program.operators):
                operator = chained.factory()
                if isinstance(operator, SinkOperator):
                    context = self._context_of(self._job_id, chained.operator_id)
                    sinks[vertex.index, index] = chained.name, operator.sink, context
        return sinks

    def commit(self, prepared: Mapping[Place, list[Any]]) -> None:
        """Commit everything. After a failure it may be called again with the same committables.

        Raises:
            Exception: the error of a committer's last try.
        """
        for position, committables in sorted(prepared.items()):
            if self._done.get(position) != committables:
                self._commit(position, committables)
                self._done[position] = committables
        self._done.clear()

    def _commit(self, position: Place, committables: list[Any]) -> None:
        name, sink, context = self._sinks[position]
        committer = self._failed.pop(position, None) or sink.create_committer(context)
        if committer is None:
            return
        for tries_left in reversed(range(COMMIT_TRIES_MAX)):
            try:
                committer.commit(committables)
                break
            except Exception as error:
                if not tries_left or (isinstance(error, PenstockError) and error.suppresses_restart):
                    self._failed[position] = committer
                    raise
                wait_ms = FIRST_WAIT_MS << (COMMIT_TRIES_MAX - 1 - tries_left)
                self._log(f"{name}: the commit is retried in {wait_ms} ms: {type(error).__name__}: {error}")
                self._wait(wait_ms)
            except BaseException:
                committer.close()
                raise
        committer.close()

    def _close_failed(self) -> None:
        while self._failed:
            self._failed.popitem()[1].close()

    def end_job(self) -> None:
        """Let sinks remove the leftovers of discarded task runs. The job is over, with nothing left to commit."""
        self._close_failed()
        self._remove_leftovers(self._job_id)

    def end_forerunners(self, job_ids: Iterable[str]) -> None:
        """Do the same for the jobs that this one continues, now that it has a checkpoint of its own."""
        for job_id in job_ids:
            self._remove_leftovers(job_id)

    def _remove_leftovers(self, job_id: str) -> None:
        try:
            sinks = self._sinks.values()
        except Exception:  # noqa: BLE001 - a program that cannot be loaded here has failed, and left nothing
            return
        for name, sink, context in sinks:
            committer = sink.create_committer(self._context_of(job_id, context.operator_id))
            if committer is not None:
                try:
                    committer.end_job()
                except Exception as error:  # noqa: BLE001 - the job itself has come to its end
                    self._log(f"{name}: leftover output could not be removed: {type(error).__name__}: {error}")
                finally:
                    committer.close()


class BatchCommits(SinkCommits):
    """Commits all or nothing; see the module docstring. Call `begin` first, and `end` on every path."""

    def begin(self) -> None:
        """Roll back the unfinished commits of dead runs of the job."""
        for position, (name, sink, context) in self._sinks.items():
            log = sink.create_commit_log(context, self._job_name)
            if log is not None:
                self._logs[position] = log
                for line in log.begin():
                    self._log(f"{name}: {line}")

    def commit(self, prepared: Mapping[Place, list[Any]]) -> None:
        """Commit everything; if that fails, roll back the commits made so far.

        Sinks that cannot roll back come last.

        Raises:
            JobExecutionError: if something could not be committed.
        """
        without_rows = [position for position, (_, sink, _) in self._sinks.items() if sink.commits_without_rows]
        prepared = {**{position: [] for position in without_rows}, **prepared}
        written: dict[type, CommitLog] = {}
        for kind, committables in self._by_kind(prepared).items():
            written[kind] = next(log for log in self._logs.values() if type(log) is kind)
            written[kind].write(committables)
        try:
            for position in sorted(prepared, key=lambda item: (item not in self._logs, item)):
                self._commit(position, prepared[position])
            for log in written.values():
                log.close_commit()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            outcome = self._take_back(written.values())
            raise JobExecutionError(
                self._job_name, f"its output could not be committed: {reason}. {outcome}"
            ) from error

    def _by_kind(self, prepared: Mapping[Place, list[Any]]) -> dict[type, list[Any]]:
        by_kind: dict[type, list[Any]] = {}
        for position, committables in prepared.items():
            if position in self._logs and committables:
                by_kind.setdefault(type(self._logs[position]), []).extend(committables)
        return by_kind

    def _take_back(self, logs: Iterable[CommitLog]) -> str:
        try:
            for log in logs:
                log.take_back()
        except Exception as error:  # noqa: BLE001 - what could not be committed is what the job fails with
            return (
                f"Committed output could not be rolled back ({type(error).__name__}: {error}); the next run of the job "
                "does that"
            )
        return "Committed output was rolled back"

    def end(self) -> None:
        """Record that the run is over."""
        for position, log in self._logs.items():
            try:
                log.end()
            except Exception as error:  # noqa: BLE001 - the job itself has come to its end
                name = self._sinks[position][0]
                self._log(f"{name}: leftover output could not be removed: {type(error).__name__}: {error}")
        self.end_job()


class Sinks:
    """All sinks of one job.

    Args:
        job_graph: the job.
        job_id: its id.
        listener: receives the sinks' output for the client.
        clock: processing time.
        figures: accumulates the metrics that tasks report.
        wait: waits for a time (ms) before a commit is retried.
        all_or_nothing: whether to roll back commits if not all of them succeed.
    """

    def __init__(
        self,
        job_graph: JobGraph,
        job_id: str,
        listener: JobListener,
        clock: Clock,
        figures: JobFigures,
        wait: Callable[[int], None],
        all_or_nothing: bool = False,
    ) -> None:
        self._job_graph = job_graph
        self._listener = listener
        self._figures = figures
        #: accumulators of all tasks whose output was delivered, merged by name
        self._accumulators: dict[str, Any] = {}

        def build_context(job_id: str, operator_id: str) -> _CommitterContext:
            return _CommitterContext(job_id, operator_id, clock, listener)

        make = BatchCommits if all_or_nothing else SinkCommits
        self._commits = make(job_graph, job_id, build_context, wait, listener.on_log)

    def begin(self) -> None:
        """Prepare for commits, before anything is delivered."""
        if isinstance(self._commits, BatchCommits):
            self._commits.begin()

    def deliver(self, left: Iterable[Last]) -> None:
        """Commit, then notify the client. A failed delivery may be repeated: the client has not been notified."""
        last = sorted(left, key=lambda item: (item.vertex, item.operator, item.sequence))
        committables: dict[Place, list[Any]] = defaultdict(list)
        others = []
        for record in last:
            if record.kind in (ACCUMULATORS, METRICS, CLIENT):
                others.append(record)
            else:
                committables[record.vertex, record.operator].extend(pickle.loads(record.payload))
        self._commits.commit(committables)
        for record in others:
            self._tell(record)

    def _tell(self, record: Last) -> None:
        if record.kind == ACCUMULATORS:
            merge_accumulators(self._accumulators, pickle.loads(record.payload))
        elif record.kind == METRICS:
            self._figures.add(record.payload)
        else:
            operator = self._job_graph.vertices[record.vertex].operators[record.operator]
            subtask = record.sequence // SEQUENCES_PER_SUBTASK
            self._listener.on_client_output(operator.operator_id, subtask, record.payload)

    def accumulators(self) -> dict[str, Any]:
        """Return the values of the user-defined accumulators so far, by name."""
        return get_values(dict(self._accumulators))

    def end_forerunners(self, job_ids: Iterable[str]) -> None:
        """Clean up after the jobs that this one continues; they have nothing left to commit."""
        self._commits.end_forerunners(job_ids)

    def end(self) -> None:
        """Clean up at the end of the job, which has nothing left to commit."""
        if isinstance(self._commits, BatchCommits):
            self._commits.end()
        else:
            self._commits.end_job()


class _CommitterContext:
    """The context of a committer in the client's process."""

    subtask_index = 0
    parallelism = 1
    attempt = 0
    run = ""
    restored_checkpoint_id = None
    forerunners = ()
    owes_nothing = False

    def __init__(self, job_id: str, operator_id: str, clock: Clock, listener: JobListener) -> None:
        self.job_id = job_id
        self.operator_id = operator_id
        self.now_ms = clock.now_ms
        self._listener = listener

    def count(self, name: str, increment: int = 1) -> None:
        """Ignore the count: nothing displays a committer's counters in the client's process."""

    def emit_to_client(self, payload: bytes) -> None:
        self._listener.on_client_output(self.operator_id, 0, payload)
