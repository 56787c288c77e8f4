"""Calls that table plans make to a Spark session for each query, with as few JVM round trips as possible.

Each call waits for an answer over a socket, and a short query would spend more time on these calls than on its rows.
PySpark's own methods make more calls than necessary: `sql` builds a list for absent arguments, `toArrow` reads options
and the schema of columns that the plan already knows, and each new thread opens a connection.

`frame_of_arrow` and `frame_of_source` build the DataFrames of table plans from Arrow tables and from bounded sources.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from penstock.base.errors import ContractError
from penstock.codecs.pickling import loads_named
from penstock.drivers.event_loop import SystemClock
from penstock.runtime.batch.exchange import enumerate_splits
from penstock.runtime.connector import InputStatus, Source
from penstock.runtime.records import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: how long a thread waits for the next query before it ends
IDLE_SECONDS: Final = 60.0
#: name of the marker column between the columns of two tables
_END: Final = "penstock: the next table"


class TableColumn(NamedTuple):
    """A column of a Spark table: its name, and its type in Spark's SQL syntax, in capitals."""

    name: str
    type: str


class SparkTable(NamedTuple):
    """A Spark table: its columns, and whether it is streaming."""

    columns: tuple[TableColumn, ...]
    is_streaming: bool


def query_frame(session: SparkSession, text: str) -> DataFrame:
    """Return the DataFrame of a query without arguments."""
    if _is_connect(session):
        return session.sql(text)
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    return ClassicDataFrame(session._jsparkSession.sql(text), session)


def table_named(session: SparkSession, name: str) -> SparkTable:
    """Look up the current columns of a table or view. Raises Spark's error if it does not exist."""
    if _is_connect(session):
        return table_of_frame(session.table(name))
    frame = session._jsparkSession.table(name)
    return SparkTable(_columns(str(frame.schema().json())), bool(frame.isStreaming()))


def tables_named(session: SparkSession, sources: Mapping[str, str]) -> dict[str, SparkTable]:
    """Look up the current columns of several tables or views together, with as many calls as for one of them.

    `sources` maps the name of each table to its text in a FROM clause. Raises Spark's error if one does not exist.
    """
    tables = None if len(sources) < 2 or _is_connect(session) else _together(session, list(sources.values()))
    if tables is None:
        return {name: table_named(session, name) for name in sources}
    return dict(zip(sources, tables, strict=True))


def _together(session: SparkSession, sources: Sequence[str]) -> list[SparkTable] | None:
    """Look up all tables in one query.

    Return None if each must be looked up separately, which gives the exact error.
    """
    columns = f", 0 AS `{_END}`, ".join(f"t{index}.*" for index in range(len(sources)))
    tables = " CROSS JOIN ".join(f"{source} t{index}" for index, source in enumerate(sources))
    try:
        frame = session._jsparkSession.sql(f"SELECT {columns} FROM {tables}")
    except Exception:  # noqa: BLE001 - raised again where the table is asked by itself
        return None
    if frame.isStreaming():
        return None
    groups: list[list[TableColumn]] = [[]]
    for column in _columns(str(frame.schema().json())):
        if column.name == _END:
            groups.append([])
        else:
            groups[-1].append(column)
    return [SparkTable(tuple(group), is_streaming=False) for group in groups]


def table_of_frame(frame: DataFrame) -> SparkTable:
    """Return the columns of a DataFrame, and whether it is streaming."""
    return SparkTable(_columns(frame.schema.json()), frame.isStreaming)


@lru_cache(maxsize=256)
def _columns(schema: str) -> tuple[TableColumn, ...]:
    """Parse the columns of a schema, which Spark returns as text."""
    import json

    from pyspark.sql.types import StructType

    fields = StructType.fromJson(json.loads(schema)).fields
    return tuple(TableColumn(field.name, field.dataType.simpleString().upper()) for field in fields)


def arrow_batches(frame: DataFrame) -> list[pa.RecordBatch]:
    """Run a query and return its batches in order, if any. Spark's options determine the time zone and column size."""
    if _is_connect(frame.sparkSession):
        return list(frame.toArrow().to_batches())
    batches: list[pa.RecordBatch] = frame._collect_as_arrow()  # type: ignore[operator]
    return batches


#: operators of Spark's plans that only hold others
_WRAPPERS: Final = ("WholeStageCodegen", "InputAdapter", "ColumnarToRow")
_UNITS: Final = {"timing": (1, " ms"), "nsTiming": (1_000_000, " ms"), "size": (1, " B")}


def describe_executed_plan(frame: DataFrame) -> str:
    """Return the plan of a query that has run, an operator a line, with Spark's metrics that are not 0."""
    if _is_connect(frame.sparkSession):
        return "Spark Connect does not tell the metrics of a query.\n"
    lines: list[str] = []

    def add(node: Any, depth: int) -> None:
        name = str(node.nodeName())
        if name == "AdaptiveSparkPlan":
            add(node.executedPlan(), depth)
        elif name.endswith("QueryStage"):
            add(node.plan(), depth)
        else:
            is_shown = not name.startswith(_WRAPPERS)
            if is_shown:
                lines.append(f"{'  ' * depth}{name}{_describe_metrics(node)}\n")
            children = node.children()
            for index in range(children.size()):
                add(children.apply(index), depth + is_shown)

    add(frame._jdf.queryExecution().executedPlan(), 0)
    return "".join(lines)


def _describe_metrics(node: Any) -> str:
    texts = []
    entries = node.metrics().iterator()
    while entries.hasNext():
        metric = entries.next()._2()
        factor, unit = _UNITS.get(metric.metricType(), (1, ""))
        if metric.value() > 0 and metric.name().isDefined() and metric.metricType() != "average":
            texts.append(f"{metric.name().get()}: {metric.value() // factor:,}{unit}")
    return f" [{', '.join(sorted(texts))}]" if texts else ""


def _is_connect(session: Any) -> bool:
    return "connect" in type(session).__module__


class QueryThreads:
    """Threads that run queries one after another, so that they keep their connections to Spark's JVM.

    An idle thread ends after `idle_seconds`. No thread delays the end of the process.
    """

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._idle: list[queue.SimpleQueue[Callable[[], None]]] = []

    def start(self, run: Callable[[], None]) -> None:
        """Run a function in the background. It must not raise."""
        with self._lock:
            waiting = self._idle.pop() if self._idle else None
        if waiting is None:
            waiting = queue.SimpleQueue()
            threading.Thread(target=self._work, args=(waiting,), name="penstock-query", daemon=True).start()
        waiting.put(run)

    def _work(self, given: queue.SimpleQueue[Callable[[], None]]) -> None:
        while (run := self._next(given)) is not None:
            run()
            del run  # do not keep its objects until the next query
            with self._lock:
                self._idle.append(given)

    def _next(self, given: queue.SimpleQueue[Callable[[], None]]) -> Callable[[], None] | None:
        try:
            return given.get(timeout=self._idle_seconds)
        except queue.Empty:
            with self._lock:
                if given in self._idle:
                    self._idle.remove(given)
                    return None
            return given.get()  # `start` has just chosen this thread


_ROWS_AT_ONCE = 10_000


def frame_of_arrow(session: SparkSession, table: pa.Table, schema: str) -> DataFrame:
    """Create a DataFrame from an Arrow table. `schema` describes its columns as a Spark schema in SQL syntax."""
    from pyspark.sql.types import StructType

    kinds = StructType.fromDDL(schema)
    assert isinstance(kinds, StructType)
    return session.createDataFrame(table, kinds)


def frame_of_source(
    session: SparkSession,
    source: Source[Any, Any],
    parallelism: int,
    columns_of: Callable[[Batch], pa.RecordBatch],
    schema: str,
) -> DataFrame:
    """Create a DataFrame that reads a bounded source, by its splits. `columns_of` runs where a batch is read."""
    source.prepare(lambda: None)
    limit = source.max_parallelism()
    parallelism = min(parallelism, limit or parallelism)
    splits = enumerate_splits(source, parallelism)
    reading = _Reading(source, columns_of, splits)
    return session.range(0, parallelism, 1, parallelism).mapInArrow(reading, schema)


@dataclass(frozen=True)
class _Reading:
    """Reads the splits of each subtask whose number it receives."""

    source: Source[Any, Any]
    columns_of: Callable[[Batch], pa.RecordBatch]
    splits: list[tuple[bytes, ...]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for subtask in [number for batch in batches for number in batch.column(0).to_pylist()]:
            for rows in _read(self.source, subtask, self.splits):
                if len(rows):
                    yield self.columns_of(rows)


def _read(source: Source[Any, Any], subtask: int, splits: list[tuple[bytes, ...]]) -> Iterator[Batch]:
    reader = source.create_reader(_Context(subtask, len(splits)))
    try:
        reader.add_splits([loads_named(split, "a split") for split in splits[subtask]])
        reader.no_more_splits()
        reader.start()
        while True:
            result = reader.poll_next(_ROWS_AT_ONCE)
            if result is InputStatus.END_OF_INPUT:
                return
            if isinstance(result, Batch):
                reader.polls_in_vain = 0
                yield result
            else:
                reader.polls_in_vain += 1
                time.sleep(reader.retry_after_ms() / 1000)
    finally:
        reader.close()


class _Context:
    """Implements `SourceReaderContext`; all splits are assigned from the start."""

    def __init__(self, subtask_index: int, parallelism: int) -> None:
        self.subtask_index = subtask_index
        self.parallelism = parallelism
        self._clock = SystemClock()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def request_split(self) -> None:
        pass

    def send_source_event(self, event: Any) -> None:
        raise ContractError("splits that are assigned from the start need no events")

    def count(self, name: str, increment: int = 1) -> None:
        pass

    def gauge(self, name: str, function: Callable[[], int | float]) -> None:
        pass

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        pass

    def open_split(self, split_id: str) -> None:
        pass

    def close_split(self, split_id: str) -> None:
        pass
