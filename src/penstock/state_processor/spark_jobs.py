"""Spark jobs of the state processor: tasks that read, copy and write files, and keyed state from a data frame (H5).

All calls are methods of the given session and data frame, so a classic session and Spark Connect both work. A task that
Spark retries writes its files again. Files are named by their content, and files that no metadata names are deleted
when the savepoint is complete.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from penstock.codecs import cloud
from penstock.codecs.cloud import as_main, pack_script
from penstock.codecs.pickling import dumps
from penstock.drivers.spark.handle import SparkHandle, short_reason
from penstock.state.errors import StateError
from penstock.state_processor.draft import Entry, Target, keyed_rows
from penstock.state_processor.layouts import NO_NAMESPACE
from penstock.state_processor.rows import NOTHING, Shape, arrow_blocks
from penstock.storage.metadata import StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

#: The number of rows of an Arrow batch between Spark and a task.
BATCH_ROWS: Final = 4096
_POSITION: Final = "_penstock_position"
_ROWS: Final = pa.schema(
    [
        ("part", pa.int32()),
        ("place", pa.binary()),
        ("position", pa.int64()),
        ("key_group", pa.int32()),
        ("key", pa.binary()),
        ("namespace", pa.binary()),
        ("item", pa.binary()),
    ]
)
_ROWS_DDL: Final = "part INT, place BINARY, position BIGINT, key_group INT, key BINARY, namespace BINARY, item BINARY"
_shipped: dict[int, SparkHandle] = {}


def ship_package(spark: SparkSession) -> None:
    """Send this package to Spark's machines, once per session."""
    handle = _shipped.get(id(spark))
    if handle is None or handle.session is not spark:
        _shipped.clear()
        handle = _shipped[id(spark)] = SparkHandle(spark)
    handle.ship_package()


def run_tasks(spark: SparkSession, tasks: Sequence[Callable[[], T]], what: str) -> list[T]:
    """Run functions as tasks of one Spark job, and return their results in order.

    Raises:
        StateError: with the reason, if a task fails for good.
    """
    if not tasks:
        return []
    ship_package(spark)
    pickled, script = [cloud.dumps(task) for task in tasks], pack_script()

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with as_main(script):
                    outcome = pickle.loads(pickled[number])()
                    yield _outcome(number, outcome)

    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, "number INT, outcome BINARY")
    outcomes = {row[0]: pickle.loads(bytes(row[1])) for row in _collect(frame, what)}
    return [outcomes[number] for number in range(len(tasks))]


def write_frame(
    frame: DataFrame, shape: Shape, name: str, target: Target, max_parallelism: int, parts: Sequence[tuple[int, int]]
) -> list[tuple[StateFile, ...]]:
    """Write keyed state from a data frame, and return the files of each part, a range of key groups.

    Rows are shuffled by part and sorted by entry, so a task holds one entry and one file at a time.
    """
    ship_package(frame.sparkSession)
    script = pack_script()
    # Use cloudpickle itself: Spark's own copy would create other classes for the user's script.
    payload = cloud.dumps((shape, target))
    part_of = [number for number, (first, last) in enumerate(parts) for _ in range(first, last + 1)]

    def encode(batches: Iterable[Any]) -> Iterator[Any]:
        with as_main(script):
            shape, _ = pickle.loads(payload)
            for batch in batches:
                yield from _encoded(batch, shape, max_parallelism, part_of)

    def write(batches: Iterable[Any]) -> Iterator[Any]:
        rows = (row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))
        with as_main(script):
            shape, target = pickle.loads(payload)
            for part, of_part in groupby(rows, itemgetter(0)):
                yield _outcome(part, target.write_entries(f"{name}-{part}", _entries(shape, of_part)))

    columns = [f"`{c.replace('`', '``')}`" for c in frame.columns]
    numbered = frame.selectExpr(*columns, f"monotonically_increasing_id() AS {_POSITION}")
    shuffled = numbered.mapInArrow(encode, _ROWS_DDL).repartition(len(parts), "part")
    ordered = shuffled.sortWithinPartitions("part", "place", "position")
    outcomes = _collect(ordered.mapInArrow(write, "number INT, outcome BINARY"), shape.what)
    files = {row[0]: pickle.loads(bytes(row[1])) for row in outcomes}
    return [files.get(number, ()) for number in range(len(parts))]


def _encoded(batch: Any, shape: Shape, max_parallelism: int, part_of: Sequence[int]) -> Iterator[Any]:
    """Yield the rows of a batch of the data frame, in order, as batches of `_ROWS`."""
    positions = batch.column(_POSITION).to_pylist()
    rows = keyed_rows(shape, arrow_blocks([batch.drop_columns([_POSITION])]), max_parallelism)
    encoded = [
        (
            part_of[group],
            entry_key,
            position,
            group,
            dumps(key),
            NO_NAMESPACE if namespace is None else dumps(namespace),
            dumps(item),
        )
        for position, (group, entry_key, key, namespace, item) in zip(positions, rows, strict=True)
    ]
    for begin in range(0, len(encoded), BATCH_ROWS):
        columns = zip(*encoded[begin : begin + BATCH_ROWS], strict=True)
        arrays = [pa.array(c, kind) for c, kind in zip(columns, _ROWS.types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_ROWS)


def _entries(shape: Shape, rows: Iterable[Any]) -> Iterator[Entry]:
    """Yield the entries of rows that are sorted by entry."""
    for _, of_entry in groupby(rows, itemgetter(1)):
        some = list(of_entry)
        _, _, _, group, key, namespace, _ = some[0]
        items = [pickle.loads(row[6]) for row in some]
        value = shape.combine(pickle.loads(key), pickle.loads(namespace), items)
        if value is not NOTHING:
            yield group, key, namespace, dumps(value)


def _outcome(number: int, outcome: Any) -> Any:
    arrays = [pa.array([number], pa.int32()), pa.array([dumps(outcome)], pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=["number", "outcome"])


def _collect(frame: DataFrame, what: str) -> list[Any]:
    try:
        return frame.collect()
    except Exception as error:
        raise StateError(f"{what}: the Spark job failed: {short_reason(error)}") from error
