"""A query that runs in Spark in the background and returns its rows to the program."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from datetime import tzinfo
from functools import partial
from typing import Any, Final

import pyarrow as pa

from penstock.base.completable_future import CompletableFuture
from penstock.base.errors import CallTimeoutError, CheckpointError, JobExecutionError
from penstock.base.job_execution_result import JobExecutionResult
from penstock.base.job_id import JobID
from penstock.base.job_status import JobStatus
from penstock.drivers.job_client import JobClient
from penstock.drivers.running_job import completed
from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.table_queries import QueryThreads, arrow_batches
from penstock.table.batch.failures import failures_told
from penstock.table.batch.stored import from_stored
from penstock.table.data.conversion import to_external
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import DataType, DecimalType
from penstock.table.data.values import to_values
from penstock.table.plan.executor import ChangelogRow

_THREADS: Final = QueryThreads()


class BatchQuery:
    """See `CollectingJob`. All rows are inserts, and are available when the query has ended."""

    def __init__(self, spark: SparkHandle, frame: Any, types: list[DataType], zone: tzinfo) -> None:
        self._spark = spark
        self._types = types
        self._seen = [to_external(kind, zone) for kind in types]
        self._tag = f"penstock-query-{uuid.uuid4().hex}"
        self._name = "a query of tables"
        self._result: Future[list[pa.RecordBatch]] = Future()
        self._is_cancelled = False
        self._began = time.monotonic()
        self._client = BatchQueryClient(self)
        _THREADS.start(partial(self._run, frame))

    def _run(self, frame: Any) -> None:
        try:
            with failures_told("the query"):
                self._spark.begin(self._tag, self._name)
                self._result.set_result(arrow_batches(frame))
        except Exception as error:  # noqa: BLE001 - goes to whoever waits
            self._result.set_exception(error)

    def rows(self) -> Iterator[ChangelogRow]:
        """Yield the rows, in the order of the query if it has one."""
        for kind, values in self.held_rows():
            yield kind, tuple([convert(value) for convert, value in zip(self._seen, values, strict=True)])

    def held_rows(self) -> Iterator[ChangelogRow]:
        """See `CollectingJob`."""
        for batch in self._result.result():
            for number, (column, kind) in enumerate(zip(batch.columns, self._types, strict=False), 1):
                if column.null_count and isinstance(kind, DecimalType) and not kind.is_nullable:
                    raise TableRuntimeError(
                        f"Column {number} of the query is NOT NULL, and a decimal has too many digits for {kind}, so "
                        "it is NULL. Cast to a type with more digits, or use TRY_CAST"
                    )
            columns = [
                to_values(from_stored(column, kind), kind)
                for column, kind in zip(batch.columns, self._types, strict=False)
            ]
            rows: Any = zip(*columns, strict=True) if columns else [()] * batch.num_rows
            for values in rows:
                yield "+I", values

    def wait(self, timeout_ms: int | None = None) -> None:
        """See `CollectingJob`. Rows can be read when the query has ended."""
        try:
            self._result.result(None if timeout_ms is None else timeout_ms / 1000)
        except FutureTimeoutError:
            raise CallTimeoutError(f"the query still runs after {timeout_ms} ms") from None

    def cancel(self) -> None:
        """Cancel the query, whose rows are not needed any more."""
        if not self._result.done():
            self._is_cancelled = True
            self._spark.interrupt(self._tag)

    def client(self) -> JobClient:
        """See `Job`."""
        return self._client

    def _outcome(self, done: Future[list[pa.RecordBatch]]) -> JobExecutionResult:
        """Return the result of the query as a job result. Raises the error that made the query fail."""
        if done.exception() is not None and self._is_cancelled:
            raise JobExecutionError(self._name, "it was cancelled")
        done.result()
        return JobExecutionResult(self._client.get_job_id(), int((time.monotonic() - self._began) * 1000))

    def status(self) -> JobStatus:
        """Return the status of the query: running or ended."""
        if not self._result.done():
            return JobStatus.RUNNING
        if self._result.exception() is None:
            return JobStatus.FINISHED
        return JobStatus.CANCELED if self._is_cancelled else JobStatus.FAILED

    def outcome(self) -> Future[JobExecutionResult]:
        """Return a future that completes when the query has ended."""
        outcome: CompletableFuture[JobExecutionResult] = CompletableFuture()

        def on_done(done: Future[list[pa.RecordBatch]]) -> None:
            try:
                outcome.complete(self._outcome(done))
            except Exception as error:  # noqa: BLE001 - goes to the caller that asked
                outcome.complete_exceptionally(error)

        self._result.add_done_callback(on_done)
        return outcome


class BatchQueryClient(JobClient):
    """The client of a query in Spark. The query has no state, so savepoint calls fail with `CheckpointError`."""

    def __init__(self, query: BatchQuery) -> None:
        self._query = query
        self._job_id = JobID.generate()

    def get_job_id(self) -> JobID:
        """Return the id of the job."""
        return self._job_id

    def get_job_status(self) -> Future[JobStatus]:
        """Return the status of the query."""
        return completed(self._query.status())

    def cancel(self) -> Future[None]:
        """Cancel the query; see `JobClient`."""
        self._query.cancel()
        return completed(None)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> Future[str]:
        """Always fail; see the class."""
        return _no_savepoint()

    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Always fail; see the class."""
        return _no_savepoint()

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Always fail; see the class."""
        return _no_savepoint()

    def get_accumulators(self) -> Future[dict[str, Any]]:
        """Return an empty dictionary, because queries have no accumulators."""
        return completed({})

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        """Return the outcome of the query, once it has ended; raises JobExecutionError if it was cancelled."""
        return self._query.outcome()


def _no_savepoint() -> Future[str]:
    refused: CompletableFuture[str] = CompletableFuture()
    refused.complete_exceptionally(CheckpointError("a query in batch execution has no savepoints: it keeps no state"))
    return refused
