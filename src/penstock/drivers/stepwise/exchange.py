"""Rows between the tasks of a bounded run in this process: one task after the other, in the order of the graph."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator

from penstock.base.errors import JobExecutionError
from penstock.core.batch.rows import Rows
from penstock.core.epochs.task import ANSWER
from penstock.core.epochs.work import EpochAnswer, Task
from penstock.core.graph.job_graph import JobGraph
from penstock.core.job.failures import batch_error
from penstock.core.master.steps import Cancelled, Last, Left
from penstock.core.task.failures import failure_of

Row = tuple[int, int, int, int | None, int, bytes]
#: (vertex, subtask, sorted rows) to the task's output
RunTask = Callable[[int, int, Rows], Iterable[Rows]]


def run_in_order(job_graph: JobGraph, run_task: RunTask, check_cancelled: Callable[[], None]) -> Iterator[Last]:
    """Run every task once; return what goes to no other task. Rows of an edge wait in lists for their consumers."""
    waiting: dict[tuple[int, int], list[Row]] = {}
    for vertex in job_graph.vertices:
        edges = [edge.index for edge in job_graph.inputs_of(vertex.index)]
        for subtask in range(vertex.parallelism):
            rows = [row for edge in edges for row in waiting.pop((edge, subtask), [])]
            try:
                for produced in run_task(vertex.index, subtask, _sorted(rows)):
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
                raise batch_error(failure_of(error, vertex.name), job_graph, vertex.index, subtask) from error


def left_of(lasts: Iterable[Last]) -> Left:
    """What the tasks of an epoch leave, with their answers apart from the rest."""
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
