"""The handle of a job on Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from penstock.base.completable_future import CompletableFuture
from penstock.base.configuration import Configuration
from penstock.base.job_execution_result import JobExecutionResult
from penstock.base.job_id import JobID
from penstock.base.job_status import JobStatus
from penstock.base.options import SAVEPOINT_DIR
from penstock.core.job.job_master import JobMaster
from penstock.core.job.view import JobView
from penstock.drivers.questions import Answer, Question
from penstock.drivers.running_job import ANSWER_MS_MAX, RunningJob
from penstock.drivers.spark.cluster import worker_tag
from penstock.drivers.spark.handle import short_reason
from penstock.drivers.spark.job_thread import CLEAN_UP_MS_MAX, JobThread
from penstock.drivers.spark.spark_pages import SparkPages

T = TypeVar("T")

_log = logging.getLogger("penstock.job")

#: The maximum time to clean up a job whose workers are killed.
FORCE_MS_MAX: Final = CLEAN_UP_MS_MAX + 10_000


class SparkJobClient(RunningJob):
    """A job on Spark whose master lives in a thread of this process.

    Args:
        job_id: the job's id.
        thread: the thread of its master.
        status: returns the job's status.
        result: becomes done when everything of the job is cleaned up.
        configuration: the job's settings.
        last_view: returns the view of the job as it ended.
        pages: Spark's own pages.
    """

    def __init__(
        self,
        job_id: JobID,
        thread: JobThread[JobMaster],
        status: Callable[[], JobStatus],
        result: CompletableFuture[JobExecutionResult],
        configuration: Configuration,
        last_view: Callable[[], JobView | None],
        pages: SparkPages,
    ) -> None:
        directory = configuration.read(SAVEPOINT_DIR)
        super().__init__(job_id, thread.job_name, result, configuration, directory, grace_ms=FORCE_MS_MAX)
        self._thread = thread
        self._status = status
        self._last_view = last_view
        self._pages = pages

    def status(self) -> JobStatus:
        return self._status()

    def ask(self, question: Callable[[JobMaster], T]) -> Future[T]:
        return self._thread.ask(question)

    def ask_worker(self, worker_id: str, question: Question, timeout_ms: int = ANSWER_MS_MAX) -> Future[Answer]:
        return self._thread.ask_worker(worker_id, question, timeout_ms)

    def engine_page(self, worker_id: str | None = None) -> str | None:
        if worker_id is None:
            return self._pages.url
        try:
            return self._pages.of_group(worker_tag(str(self._job_id), worker_id))
        except Exception as error:  # noqa: BLE001 - Spark may be gone, and its pages with it
            _log.debug("no page of worker %s: %s", worker_id, short_reason(error))
            return None

    def begin_cancel(self) -> None:
        self._thread.where()  # start to watch whether it makes progress
        self._thread.ask(lambda master: master.cancel())

    def where(self) -> str | None:
        return self._thread.where()

    def get_view(self) -> Future[JobView]:
        return self._thread.ask(lambda master: master.view())

    def last_view(self) -> JobView | None:
        return self._last_view()

    def trigger_checkpoint(self, is_full: bool = False) -> Future[int | None]:
        return self._thread.ask(lambda master: master.trigger_checkpoint(is_full))

    def end(self, patience_seconds: float = 5.0) -> None:
        """Cancel the job and wait until it has ended: first regularly, then by killing its workers."""
        self._cancel_once()
        if not self._thread.join(patience_seconds):
            _log.warning("%s: its tasks did not end; their workers are killed", self._thread.job_name)
            self._thread.abandon()
            self._thread.join(FORCE_MS_MAX / 1000)
