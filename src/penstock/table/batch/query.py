"""A query that runs in Spark while the program goes on, and whose rows come to it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import tzinfo
from functools import partial
from typing import Any, Final

import pyarrow as pa

from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.table_queries import QueryThreads, arrow_batches
from penstock.table.batch.failures import failures_told
from penstock.table.batch.stored import from_stored
from penstock.table.data.conversion import seen_of
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import values_of
from penstock.table.plan.executor import ChangelogRow

_THREADS: Final = QueryThreads()


class BatchQuery:
    """See `CollectingJob`. All rows are inserts, and they come when the query has ended."""

    def __init__(self, spark: SparkHandle, frame: Any, types: list[DataType], zone: tzinfo) -> None:
        self._spark = spark
        self._types = types
        self._seen = [seen_of(kind, zone) for kind in types]
        self._tag = f"penstock-query-{uuid.uuid4().hex}"
        self._result: Future[list[pa.RecordBatch]] = Future()
        _THREADS.start(partial(self._run, frame))

    def _run(self, frame: Any) -> None:
        try:
            with failures_told("the query"):
                self._spark.begin(self._tag, "a query of tables")
                self._result.set_result(arrow_batches(frame))
        except Exception as error:  # noqa: BLE001 - goes to whoever waits
            self._result.set_exception(error)

    def rows(self) -> Iterator[ChangelogRow]:
        """The rows, in their order if the query has one."""
        for batch in self._result.result():
            columns = [
                [seen(value) for value in values_of(from_stored(column, kind), kind)]
                for column, kind, seen in zip(batch.columns, self._types, self._seen, strict=False)
            ]
            rows: Any = zip(*columns, strict=True) if columns else [()] * batch.num_rows
            for values in rows:
                yield "+I", values

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait for its end. Raises what made it fail, and `TimeoutError`."""
        self._result.result(None if timeout_ms is None else timeout_ms / 1000)

    def cancel(self) -> None:
        """Stop it: nobody reads the rows any more."""
        if not self._result.done():
            self._spark.interrupt(self._tag)

    def client(self) -> Any:
        """There is no job client: the query runs in Spark alone."""
        return None
