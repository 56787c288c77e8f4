"""Routes the records of a data frame to a keyed operator that reads them next.

The records need not travel through Python for that. They stay Spark rows with their columns, and a Spark function
assigns each row its place and its time. Python sees the records only to call the key selector and the timestamp
assigner. The task after the shuffle rebuilds the records from the same columns (`batch_stage.read_rows`).

Where the key and the time are named columns (`key_by("name")`, `with_timestamp_column("at")`), the time is a Spark
column already, and Python sees only the keys. It does not even see the keys if the consumer has no other edge and
Spark's own hash separates and groups keys as Python does. The assignment of keys to subtasks then differs from
streaming.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.watermark_strategy import ColumnAssigner
from penstock.drivers.event_loop import rare_collections
from penstock.drivers.spark import batch_stage
from penstock.drivers.spark.frames import ROW, TUPLE, VALUE, RecordShape, numbers, numbers_or_null, to_records
from penstock.runtime.batch.exchange import HASH_BITS, HASH_MASK, Places
from penstock.runtime.columns import ColumnKey
from penstock.runtime.operators.connector import SourceOperator
from penstock.runtime.operators.record.stateless import PassOnOperator, TimestampsAndWatermarksOperator
from penstock.runtime.records import Batch
from penstock.runtime.task.channels.result_partition import HashPartitioner
from penstock.runtime.task.operator_chain import VertexProgram

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.runtime.batch.task import BatchVertex

_ROUTE: Final = pa.struct([("place", pa.int64()), ("timestamp", pa.int64())])
_ROUTE_DDL: Final = "STRUCT<place: BIGINT, timestamp: BIGINT>"
#: Operators that pass on every record unchanged.
_PASSING: Final = (SourceOperator, TimestampsAndWatermarksOperator, PassOnOperator)
#: Types of columns from which Spark reads the same time as the record does. Spark interprets timestamps without a zone
#: differently.
_TIMES: Final = {"tinyint", "smallint", "int", "bigint", "timestamp"}
#: Types of columns whose values are equal in Python if they are equal for Spark's hash.
_HASHED: Final = {"tinyint", "smallint", "int", "bigint", "boolean", "string", "binary", "date"}
_NO_TIME: Final = "raise_error('the timestamp column is null in a record, so the record has no timestamp')"


@dataclass(frozen=True)
class Routed:
    """The rows of an edge. `time`: the integer column with their time; None if there is no such column."""

    frame: DataFrame
    time: str | None


@dataclass(frozen=True)
class _ByName:
    """The columns with the key of a record, and the column, of type `type`, with its time; None without a time.

    `is_hashed`: whether Spark's hash of the key can be used.
    """

    keys: tuple[int, ...]
    time: int | None
    type: str
    is_hashed: bool


def routed_edge(vertex: BatchVertex) -> int | None:
    """Return the only edge out of a vertex that reads a data frame if its records only need a route; None otherwise."""
    from pyspark.sql import functions

    program: VertexProgram = pickle.loads(vertex.program)
    if len(program.out_edges) != 1 or not hasattr(functions, "arrow_udf"):
        return None
    (out,) = program.out_edges
    is_keyed = vertex.consumers[out.edge].is_keyed and isinstance(out.partitioner, HashPartitioner)
    is_passed_on = all(type(chained.factory()) in _PASSING and not chained.side_tag for chained in program.operators)
    return out.edge if is_keyed and is_passed_on and out.side_tag is None else None


def routed(
    frame: DataFrame,
    edge: int,
    settings: batch_stage.StageSettings,
    make_stage: Callable[[batch_stage.StageSettings], Any],
    *,
    is_only: bool,
) -> Routed:
    """Return the rows of an edge, see `batch_stage.SCHEMA`, with the columns of `frame` in place of payloads.

    `make_stage` makes the function that runs `run_stage` of this module; `is_only`: the consumer has no other edge.
    """
    names = [batch_stage.record_column(edge, i) for i in range(len(frame.columns))]
    by_name = _by_name(settings, [kind for _, kind in frame.dtypes])
    numbered = frame.toDF(*names).selectExpr(
        "*", "spark_partition_id() AS subtask", "monotonically_increasing_id() AS sequence"
    )
    time_column = None
    if by_name is None:
        placed = numbered.select("*", _asked(make_stage(settings), _ROUTE_DDL, names))
        position, time = "route.place", "route.timestamp"
    else:
        keys = [names[key] for key in by_name.keys]
        time = "CAST(NULL AS BIGINT)"
        if by_name.time is not None:
            column = names[by_name.time]
            is_moment = by_name.type == "timestamp"
            time = needed(f"unix_millis({column})" if is_moment else f"CAST({column} AS BIGINT)")
            time_column = None if is_moment else column
        if is_only and by_name.is_hashed:
            placed, position = numbered, _hashed_place(keys, len(settings.slots[edge]))
        else:
            shape = RecordShape(VALUE if len(keys) == 1 else TUPLE, tuple(keys))
            stage = make_stage(replace(settings, frame=shape, is_key=True))
            placed, position = numbered.select("*", _asked(stage, "BIGINT", keys)), "route"
    target = f"int(shiftright({position}, {HASH_BITS}))"
    rows = placed.selectExpr(
        f"{edge} AS edge",
        f"{target} AS target",
        f"{position} AS place",
        f"{time} AS timestamp",
        "sequence",
        "X'' AS payload",
        f"array({', '.join(map(str, settings.slots[edge]))})[{target}] AS slot",
        *names,
    )
    return Routed(rows, time_column)


def _asked(stage: Any, kind: str, columns: list[str]) -> Any:
    """Return the column `route`, which a Python function computes."""
    from pyspark.sql import functions

    # The annotations make Spark keep the function for the lifetime of its task.
    stage.__annotations__ = {"batches": Iterator[tuple[pa.Array, ...]], "return": Iterator[pa.Array]}
    sql: Any = functions
    return sql.arrow_udf(stage, kind)(*columns, "subtask").alias("route")


def _hashed_place(keys: list[str], consumers: int) -> str:
    """Return SQL for a place that Spark computes itself."""
    digest = f"xxhash64({', '.join(keys)})"
    return f"shiftleft(pmod({digest}, {consumers}L), {HASH_BITS}) | ({digest} & {HASH_MASK}L)"


def needed(time: str) -> str:
    """Return SQL for a time that must not be null."""
    return f"coalesce({time}, {_NO_TIME})"


def _by_name(settings: batch_stage.StageSettings, column_types: list[str]) -> _ByName | None:
    """Return the columns of key and time if the vertex is only a source and all of them are named; None otherwise."""
    program: VertexProgram = pickle.loads(settings.vertex.program)
    (out,) = program.out_edges
    source, shape = program.operators[0].factory(), settings.frame
    assert isinstance(source, SourceOperator)
    assert isinstance(out.partitioner, HashPartitioner)
    assert shape is not None
    strategy, selector, fields = source.strategy, out.partitioner.key_selector, _index_fields(shape)
    if len(program.operators) > 1 or not isinstance(selector, ColumnKey) or strategy.kind not in ("none", "bounded"):
        return None
    if not fields.keys() >= set(selector.names):
        return None
    keys = tuple(fields[name] for name in selector.names)
    is_hashed = {column_types[key] for key in keys} <= _HASHED
    assigner = strategy.timestamp_assigner
    if assigner is None:
        return _ByName(keys, None, "", is_hashed)
    if not isinstance(assigner, ColumnAssigner) or assigner.column not in fields:
        return None
    time = fields[assigner.column]
    return _ByName(keys, time, column_types[time], is_hashed) if column_types[time] in _TIMES else None


def _index_fields(shape: RecordShape) -> dict[str, int]:
    """Map the field names of a record, as `get_field` expects them, to column indices."""
    if shape.kind == TUPLE:
        return {f"f{index}": index for index in range(len(shape.names))}
    names = shape.names
    return {name: i for i, name in enumerate(names) if names.count(name) == 1} if shape.kind == ROW else {}


def run_stage(payload: bytes, batches: Iterable[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
    """Compute the routes of records that come as columns; the last column is the subtask."""
    settings: batch_stage.StageSettings = pickle.loads(payload)
    arrived = (columns for columns in batches if len(columns[0]))
    first = next(arrived, None)
    if first is None:
        return
    subtask, shape = first[-1][0].as_py(), settings.frame
    assert shape is not None
    every = chain((first,), arrived)
    with rare_collections():
        if settings.is_key:
            yield from _compute_places(settings, subtask, (columns[:-1] for columns in every))
        else:
            yield from _compute_routes(settings, subtask, (to_records(columns[:-1], shape) for columns in every))


def _compute_places(
    settings: batch_stage.StageSettings, subtask: int, keys: Iterator[tuple[pa.Array, ...]]
) -> Iterator[pa.Array]:
    (consumer,) = settings.vertex.consumers.values()
    positions, shape = Places(consumer.parallelism, consumer.max_parallelism), settings.frame
    assert shape is not None
    with batch_stage.failures_told(settings, subtask):
        for columns in keys:
            column = columns[0]
            if len(columns) > 1 or pa.types.is_nested(column.type) or pa.types.is_null(column.type):
                yield numbers(np.array(positions.of(to_records(columns, shape)), np.int64))
            else:
                # Each distinct key is computed once per batch.
                encoded = column.dictionary_encode("encode")
                of_distinct = np.array(positions.of(to_records([encoded.dictionary], shape)), np.int64)
                yield numbers(of_distinct[encoded.indices.to_numpy()])


def _compute_routes(
    settings: batch_stage.StageSettings, subtask: int, records: Iterator[list[Any]]
) -> Iterator[pa.Array]:
    with batch_stage.open_task(settings, subtask) as task:
        for rows in task.run_values(map(Batch, records)):
            if len(rows):
                positions = numbers(np.array(rows.places, np.int64))
                times = numbers_or_null(rows.timestamps)
                yield pa.StructArray.from_arrays([positions, times], fields=list(_ROUTE))
