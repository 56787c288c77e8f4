"""One query through a `TableEnvironment`."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark_sql.events import connectors
from benchmarks.nexmark_sql.kept import Folded
from benchmarks.nexmark_sql.queries import NexmarkQuery, kept_sink, tables
from penstock.drivers.spark.garbage import rare_collections
from penstock.table import EnvironmentSettings, TableEnvironment
from penstock.table.streaming.executor import StreamExecutor
from penstock.table.udf import udf

PATIENCE_S: Final = 120
#: how long a job takes that is to be stopped amid its events
SLOW_S: Final = 2


@dataclass(frozen=True)
class Runs:
    """How queries run."""

    folder: Path
    events: int
    rate: int
    target: str = "local"
    parallelism: int = 1
    mini_batch: bool = True
    #: how fast events come; None for as fast as they can
    per_second: int | None = None
    savepoint: str | None = None

    def environment(self, query: NexmarkQuery, sink: str, found: Folded) -> TableEnvironment:
        """With the tables, the views and the function of the benchmark, and what a query needs."""
        settings = EnvironmentSettings.in_streaming_mode()
        made = TableEnvironment(settings, StreamExecutor(connectors(found, self.per_second)))
        config = made.get_config()
        config.set("execution.target", self.target)
        config.set("parallelism.default", str(self.parallelism))
        config.set("table.local-time-zone", "UTC")
        if self.mini_batch:
            config.set("table.exec.mini-batch.enabled", "true")
            config.set("table.exec.mini-batch.allow-latency", "2 s")
            config.set("table.exec.mini-batch.size", "50000")
        if self.savepoint is not None:
            config.set("execution.state-recovery.path", self.savepoint)
        made.create_temporary_function("count_char", udf(_counted, result_type="BIGINT", func_type="arrow"))
        for statement in (*tables(self.folder, self.events, self.rate), *query.before, sink):
            made.execute_sql(statement)
        return made

    def seconds(self, query: NexmarkQuery) -> tuple[float, float]:
        """How long the INSERT takes, from planning it to its end: wall time, and processor time of this process."""
        made = self.environment(query, query.sink, Counter())
        # As the processes do that run tasks.
        with rare_collections():
            begin, cpu = time.perf_counter(), time.process_time()
            made.execute_sql(query.insert).wait()
            return time.perf_counter() - begin, time.process_time() - cpu

    def rows(self, query: NexmarkQuery, found: Folded | None = None) -> Folded:
        """The table that its changes stand for. `found`: what has come before."""
        found = Counter() if found is None else found
        self.environment(query, kept_sink(query), found).execute_sql(query.insert).wait(PATIENCE_S * 1_000)
        return Counter({row: times for row, times in found.items() if times})

    def restored_rows(self, query: NexmarkQuery, scratch: Path, parallelism: int) -> Folded:
        """The same, stopped with a savepoint amid the events, and gone on with at another parallelism."""
        found: Folded = Counter()
        slow = replace(self, per_second=max(self.events // SLOW_S, 1))
        result = slow.environment(query, kept_sink(query), found).execute_sql(query.insert)
        time.sleep(SLOW_S / 2)
        stopped = result.get_job_client().stop_with_savepoint(False, str(scratch / "savepoints"))
        path = str(stopped.result(PATIENCE_S))
        return replace(self, parallelism=parallelism, savepoint=path).rows(query, found)


def _counted(texts: pa.Array, character: str) -> pa.Array:
    """A literal comes as it is."""
    return pc.count_substring(texts, character).cast(pa.int64())
