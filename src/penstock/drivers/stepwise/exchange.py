"""Rows and splits of jobs that work step by step: the exchange in this process, and the split enumerators.

`run_in_order` moves rows between the tasks of a bounded run in this process: one task after the other, in graph order.

`Sources` are the split enumerators of a job's sources, which assign splits as each epoch begins.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator

from penstock.base.errors import JobExecutionError
from penstock.runtime.batch.exchange import Rows, SplitDealer
from penstock.runtime.epochs.coordinator import Dealt, EpochAnswer, Task
from penstock.runtime.epochs.task import ANSWER
from penstock.runtime.graph import JobGraph
from penstock.runtime.job.failover import batch_error
from penstock.runtime.master.steps import Cancelled, DealSplits, Last, Left, OpenSources, SnapshotSources
from penstock.runtime.task.failures import clear_own_frames, describe_failure
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
