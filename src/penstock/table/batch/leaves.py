"""Where rows come from: tables, constants, and rows that the program has."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from penstock.core.columns.batch import as_columns
from penstock.core.connector import Boundedness
from penstock.core.records import Batch
from penstock.drivers.spark.table_frames import frame_of_arrow, frame_of_source
from penstock.table.batch.planning import BatchPlanner, column, schema_text
from penstock.table.batch.stored import MICROSECOND_DIGITS, is_of_spark, spark_type, stored_type, to_stored
from penstock.table.connectors.tables import TableReader
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DataType, DecimalType, LocalZonedTimestampType, TimestampType, quoted
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.plan import logical
from penstock.table.plan.changes import INSERTS


def values(planner: BatchPlanner, node: logical.Values) -> str:
    """Rows of constants."""
    types = node.schema.types
    if not types:
        return f"SELECT true AS c0 FROM range({len(node.rows)})"
    session = planner.session.open()
    rows = [Evaluator(row, session)(Columns((), 1)) for row in node.rows]
    arrays = [
        pa.concat_arrays([row[index] for row in rows]) if rows else pa.array([], arrow_type(kind))
        for index, kind in enumerate(types)
    ]
    return _rows(planner, arrays, types)


def arrow_rows(planner: BatchPlanner, node: logical.ArrowRows) -> str:
    """Rows that the program has."""
    arrays = [one.combine_chunks() for one in node.data.columns]
    return _rows(planner, arrays, node.schema.types)


def _rows(planner: BatchPlanner, arrays: list[Any], types: list[DataType]) -> str:
    stored = [to_stored(array, kind) for array, kind in zip(arrays, types, strict=True)]
    fields = [pa.field(column(index), stored_type(kind)) for index, kind in enumerate(types)]
    table = pa.Table.from_arrays(stored, schema=pa.schema(fields))
    return f"SELECT * FROM {planner.view(frame_of_arrow(planner.spark, table, schema_text(types)))}"


def scan(planner: BatchPlanner, node: logical.Scan) -> str:
    """A table: the frame that its connector has, or what its source reads. It is looked up once for a plan."""
    key = (node.path, node.options)
    found = planner.tables.get(key)
    if found is None:
        found = planner.tables[key] = _table(planner, node)
    return found


def _table(planner: BatchPlanner, node: logical.Scan) -> str:
    reader = planner.reader(node)
    title = ".".join(node.path)
    if reader.changes != INSERTS:
        raise ValidationError(
            "Querying a table in batch mode is currently only possible for INSERT-only table sources. But the source "
            f"for table '{title}' produces other changelog messages than just INSERT."
        )
    if reader.frame is not None:
        frame = reader.frame(planner.spark)
        if frame.isStreaming:
            raise _unbounded(title)
        return _as_declared(planner, frame, node)
    part = planner.part_of(node)
    found = planner.view(
        _read(planner, planner.reader(part.scan) if part.scan is not node else reader, part.scan, title)
    )
    if len(part.columns) == len(node.schema):
        return f"SELECT * FROM {found}"
    places = {index: at for at, index in enumerate(part.columns)}
    texts = [
        f"{column(places[index])} AS {column(index)}"
        if index in places
        else f"CAST(NULL AS {spark_type(one.type)}) AS {column(index)}"
        for index, one in enumerate(node.schema)
    ]
    return f"SELECT {', '.join(texts)} FROM {found}"


def _read(planner: BatchPlanner, reader: TableReader, node: logical.Scan, title: str) -> Any:
    source, types = reader.source, tuple(node.schema.types)
    if source is None:
        raise ValidationError(f"table '{title}' has neither a source nor a Spark data frame")
    if source.boundedness is not Boundedness.BOUNDED:
        raise _unbounded(title)
    return frame_of_source(planner.spark, source, planner.parallelism, _Stored(types), schema_text(types))


class _Stored:
    """Makes Spark's columns of a batch of a source."""

    def __init__(self, types: tuple[DataType, ...]) -> None:
        self._types = types

    def __call__(self, batch: Batch) -> pa.RecordBatch:
        columns = as_columns(batch, "Source").columns.columns
        stored = [to_stored(one, kind) for one, kind in zip(columns, self._types, strict=False)]
        return pa.RecordBatch.from_arrays(stored, [column(index) for index in range(len(stored))])


def _unbounded(title: str) -> ValidationError:
    return ValidationError(
        f"Querying an unbounded table '{title}' in batch mode is not allowed. The table source is unbounded."
    )


def _as_declared(planner: BatchPlanner, frame: Any, node: logical.Scan) -> str:
    """The columns of a frame in the types that the table declares."""
    fields = frame.schema.fields
    names = [field.name for field in fields]
    found = [field.dataType.simpleString().upper() for field in fields]
    title = ".".join(node.path)
    if len(found) != len(node.schema):
        raise ValidationError(
            f"table '{title}' has {len(node.schema)} columns, and the Spark data frame that it reads has {len(found)}: "
            f"{', '.join(names)}"
        )
    if len({name.lower() for name in names}) < len(names):
        names = [column(index) for index in range(len(names))]
        frame = frame.toDF(*names)
    texts = []
    for index, (name, one, declared) in enumerate(zip(names, found, node.schema, strict=True)):
        text = _cast(quoted(name), one, declared.type)
        if text is None:
            raise ValidationError(
                f"column '{declared.name}' of table '{title}' is declared as {declared.type}, and Spark has "
                f"{one} there: declare it as what Spark has"
            )
        texts.append(f"{text} AS {column(index)}")
    return f"SELECT {', '.join(texts)} FROM {planner.view(frame)}"


def _cast(text: str, found: str, declared: DataType) -> str | None:
    """A column of Spark as one of the type that is declared; None where values would be others."""
    wanted = spark_type(declared)
    if isinstance(declared, TimestampType | LocalZonedTimestampType):
        is_same = found == wanted and declared.precision == MICROSECOND_DIGITS
        return text if is_same else _cut(text, found, declared)
    if not is_of_spark(declared):
        return None
    if found == wanted or (found.startswith(("CHAR(", "VARCHAR(")) and wanted == "STRING"):
        return text
    if found in _WHOLE and wanted in _WHOLE and _WHOLE.index(found) <= _WHOLE.index(wanted):
        return f"CAST({text} AS {wanted})"
    if (found, wanted) == ("FLOAT", "DOUBLE"):
        return f"CAST({text} AS DOUBLE)"
    if found.startswith("DECIMAL(") and isinstance(declared, DecimalType):
        precision, scale = map(int, found[8:-1].split(","))
        if precision - scale <= declared.precision - declared.scale and scale <= declared.scale:
            return f"CAST({text} AS {wanted})"
    return None


_WHOLE: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def _cut(text: str, found: str, declared: TimestampType | LocalZonedTimestampType) -> str | None:
    """A point in time with fewer digits than Spark's: the others are cut off."""
    kind = "TIMESTAMP_NTZ" if isinstance(declared, TimestampType) else "TIMESTAMP"
    if found != kind or declared.precision > MICROSECOND_DIGITS:
        return None
    step = 10 ** (MICROSECOND_DIGITS - declared.precision)
    rest = f"CAST(extract(SECOND FROM {text}) * 1000000 AS BIGINT) % {step}"
    return f"({text} - make_dt_interval(0, 0, 0, CAST(({rest}) / 1000000 AS DECIMAL(18,6))))"
