"""Commits the prepared output of sinks from the client's process, in jobs without a job master (G9).

A failed commit is retried a few times: file systems fail transiently, and committing is idempotent. After that, an
epoch can be committed from its checkpoint, but a batch has no checkpoint. A batch therefore commits all or nothing, as
far as its sinks can roll back commits. It first records the planned commits, and rolls them back when it cannot
complete all of them. If a run is killed in the middle, the next run of the job rolls them back.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final

from penstock.base.errors import JobExecutionError, PenstockError
from penstock.core.connector import CommitLog, Committer, Sink, SinkWriterContext
from penstock.core.graph.job_graph import JobGraph
from penstock.core.operators.sink.sink import SinkOperator
from penstock.core.task.program import VertexProgram

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
