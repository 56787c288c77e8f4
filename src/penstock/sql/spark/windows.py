"""OVER, top-N, the windows of TUMBLE, HOP, CUMULATE and SESSION, and MATCH_RECOGNIZE in batch.

For MATCH_RECOGNIZE, Spark sorts the rows of each partition, and a step runs the automaton over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.runtime.patterns.matcher import SkipError
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.sql.data import types
from penstock.sql.data.arrow import milliseconds
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.explain import node_text
from penstock.sql.logical.nodes import FrameBound, MatchRecognize, SortKey
from penstock.sql.spark.aggregates import WITHOUT_FRAME, Over, accumulated, project_operands, render_calls
from penstock.sql.spark.kernels import BatchSession, Clocked, Edged, UserWork, Windowed
from penstock.sql.spark.planning import BatchPlanner, column, order_text, select
from penstock.sql.spark.stored import group_text, literal_text, spark_type
from penstock.sql.stream.match.operator import Matching, build_match_specification
from penstock.sql.stream.match.program import MatchProgram, MatchSpecification, TimedRow
from penstock.sql.stream.rows.rows import RowKeys
from penstock.sql.typed import Constant


def over(planner: BatchPlanner, node: logical.Over) -> str:
    """Return the columns of the input, and the result of each call over its frame."""
    width = len(node.input.schema)
    source = project_operands(planner, planner.query(node.input), node.input.schema, node.calls, range(width))
    has_frame = not all(call.function in WITHOUT_FRAME for call in node.calls)
    framed = Over(_partition(_keys(node, node.partition), node.order), _frame(node) if has_frame else "")
    texts, gathered_calls = render_calls(node.calls, source.texts, framed)
    query = select([*map(column, range(width)), *texts], source.query)
    return accumulated(planner, query, node.input.schema.types, node.calls, gathered_calls)


def _keys(node: logical.Over | logical.Rank | logical.WindowTable, partition: Sequence[int]) -> list[str]:
    """Return the texts of the partition columns."""
    return [group_text(column(index), node.input.schema[index].type) for index in partition]


def _partition(keys: Sequence[str], order: tuple[SortKey, ...]) -> str:
    parts = [f"PARTITION BY {', '.join(keys)}"] if keys else []
    return " ".join([*parts, *([f"ORDER BY {order_text(order)}"] if order else [])])


def _frame(node: logical.Over) -> str:
    if not node.order:
        return ""
    ends = [_bound(node, bound) for bound in (node.lower, node.upper)]
    return f"{'ROWS' if node.is_rows else 'RANGE'} BETWEEN {ends[0]} AND {ends[1]}"


def _bound(node: logical.Over, bound: FrameBound) -> str:
    if bound.is_current:
        return "CURRENT ROW"
    word = "PRECEDING" if bound.is_preceding else "FOLLOWING"
    if bound.distance is None:
        return f"UNBOUNDED {word}"
    distance = bound.distance
    assert isinstance(distance, Constant)
    if node.is_rows:
        return f"{distance.value} {word}"
    kind = node.input.schema[node.order[0].index].type
    text = _distance(distance, kind)
    if text is None:
        raise UnsupportedError(f"RANGE of {distance.type} over {kind} is not supported in batch: {node_text(node)}")
    return f"{text} {word}"


def _distance(distance: Constant, kind: types.DataType) -> str | None:
    """Return the distance of a RANGE frame, in the stored type of the order column."""
    if isinstance(kind, types.TimestampType | types.LocalZonedTimestampType) and isinstance(distance.value, int):
        if isinstance(distance.type, types.DayTimeIntervalType):
            seconds, rest = divmod(distance.value, 1000)
            return f"INTERVAL '{seconds}.{rest:03d}' SECOND" if spark_type(kind) != "BIGINT" else None
        if isinstance(distance.type, types.YearMonthIntervalType):
            return f"INTERVAL '{distance.value}' MONTH" if spark_type(kind) != "BIGINT" else None
    if isinstance(kind, types.NumericType) and isinstance(distance.type, types.NumericType):
        text = literal_text(distance.value, distance.type)
        return f"CAST({text} AS {spark_type(kind)})"
    return None


def rank(planner: BatchPlanner, node: logical.Rank) -> str:
    """Return the rows of each partition whose row numbers are within a range."""
    width = len(node.input.schema)
    order = order_text(node.order) if node.order else "true"
    parts = [f"PARTITION BY {', '.join(_keys(node, node.partition))}"] if node.partition else []
    number = f"row_number() OVER ({' '.join([*parts, f'ORDER BY {order}'])})"
    columns = [column(index) for index in range(width)]
    numbered = f"SELECT {', '.join([*columns, f'CAST({number} AS BIGINT) AS {column(width)}'])}"
    query = f"{numbered} FROM ({planner.query(node.input)})"
    conditions = [f"{column(width)} >= {node.start}"]
    if node.end is not None or node.end_column is not None:
        end = node.end if node.end_column is None else column(node.end_column)
        conditions.append(f"{column(width)} <= {end}")
    select_list = [*columns, *([column(width)] if node.shows_number else [])]
    return select(select_list, query, f" WHERE {' AND '.join(conditions)}")


def window_table(planner: BatchPlanner, node: logical.WindowTable) -> str:
    """Return each row once for each of its windows."""
    query, before = planner.query(node.input), node.input.schema.types
    gives = node.schema.types
    if node.kind == "SESSION":
        return _sessions(planner, node, query)
    work = Windowed(node.kind, node.time, before[node.time], node.sizes, node.offset, planner.session)
    return f"SELECT * FROM {planner.step(query, work, before, gives)}"


def _sessions(planner: BatchPlanner, node: logical.WindowTable, query: str) -> str:
    """Assign rows to sessions: rows within the gap share a window, which ends a gap after the last one."""
    before = node.input.schema.types
    width = len(before)
    (gap,) = node.sizes
    kind = before[node.time]
    milliseconds = types.BigIntType(False)
    clocked = planner.step(query, Clocked(node.time, kind, planner.session), before, [*before, milliseconds])
    columns, time = ", ".join(map(column, range(width))), column(width)
    by = f"PARTITION BY {', '.join(_keys(node, node.partition))}" if node.partition else ""
    earlier = f"lag({time}) OVER ({by} ORDER BY {time})"
    begins = f"SELECT {columns}, {time}, if({time} - {earlier} <= {gap}, 0, 1) AS b FROM {clocked}"
    numbered = f"SELECT {columns}, {time}, sum(b) OVER ({by} ORDER BY {time}) AS s FROM ({begins})"
    session = f"{by}, s" if by else "PARTITION BY s"
    edges = f"min({time}) OVER ({session}) AS {time}, max({time}) OVER ({session}) + {gap}L AS {column(width + 1)}"
    merged = f"SELECT {columns}, {edges} FROM ({numbered})"
    takes = [*before, milliseconds, milliseconds]
    return f"SELECT * FROM {planner.step(merged, Edged(kind, planner.session), takes, node.schema.types)}"


_DAY_MS = 86_400_000
_TIME_POINTS = (types.TimestampType, types.LocalZonedTimestampType, types.TimeType, types.DateType)


def match(planner: BatchPlanner, node: MatchRecognize) -> str:
    """Return a row for each match.

    Raises:
        ValidationError: unless the order begins with an ascending point in time; the messages are Flink's.
        UnsupportedError: for patterns that streams cannot run either.
    """
    if not node.order:
        raise ValidationError("You must specify non-empty order by.")
    before = node.input.schema
    if not isinstance(before[node.order[0].index].type, _TIME_POINTS):
        raise ValidationError("You must specify time point for order by as the first one.")
    if node.order[0].is_descending:
        raise ValidationError("Primary sort order of a table must be ascending on time.")
    work = Recognized(build_match_specification(node), planner.session)
    kinds = [before[index].type for index in node.partition]
    keys = [group_text(column(index), kind) for index, kind in zip(node.partition, kinds, strict=True)]
    order = ", ".join([*keys, order_text(node.order)])
    # The keys 0.0 and -0.0 are equal, but Spark would send them to different tasks.
    parts = [f"({key} + 0)" if _is_float(kind) else key for key, kind in zip(keys, kinds, strict=True)]
    rows = f"({planner.query(node.input)})"
    if parts:
        query = f"SELECT * FROM {rows} DISTRIBUTE BY {', '.join(parts)} SORT BY {order}"
    else:
        query = f"SELECT /*+ REPARTITION(1) */ * FROM {rows} SORT BY {order}"
    return f"SELECT * FROM {planner.step(query, work, before.types, node.schema.types)}"


def _is_float(kind: types.DataType) -> bool:
    return isinstance(kind, types.FloatType | types.DoubleType)


def _to_milliseconds(times: pa.Array, kind: types.DataType) -> list[int]:
    """Return points in time in ms, for WITHIN. NULL is earlier than all others."""
    if isinstance(kind, types.TimestampType | types.LocalZonedTimestampType):
        numbers: list[int] = milliseconds(pc.fill_null(times, pa.scalar(0, times.type))).tolist()
    elif isinstance(kind, types.DateType):
        numbers = [day * _DAY_MS for day in times.cast(pa.int32()).fill_null(0).to_pylist()]
    else:
        numbers = times.cast(pa.time32("ms")).cast(pa.int32()).fill_null(0).to_pylist()
    if not times.null_count:
        return numbers
    return [
        number if known else MIN_TIMESTAMP for number, known in zip(numbers, times.is_valid().to_pylist(), strict=True)
    ]


@dataclass(frozen=True)
class Recognized(UserWork):
    """The matches in rows that are sorted by partition and, within each partition, in the order of the pattern."""

    specification: MatchSpecification
    session: BatchSession

    def __call__(self, columns: Sequence[pa.Array], rows: int) -> list[pa.Array]:
        """See `Work`."""
        return self._run.take(columns)

    def finish(self) -> list[pa.Array] | None:
        """See `Work`."""
        run = self.__dict__.get("_run")
        return None if run is None else run.finish()

    def close(self) -> None:
        """Close the user-defined functions, and discard the rows."""
        self.__dict__.pop("_run", None)
        super().close()

    @cached_property
    def _run(self) -> _Run:
        return _Run(self.specification, MatchProgram(self.specification, self.session.open(self._functions)))


class _Run:
    """The partitions of one Spark task."""

    def __init__(self, specification: MatchSpecification, program: MatchProgram) -> None:
        self._specification = specification
        self._program = program
        self._keys = RowKeys(specification.partition)
        self._memories: dict[Any, Any] = {}
        # Rows carry their time, and a partition reaches the end of time after its last row, so no timers are needed.
        self._matching = Matching(program, self._memories, lambda keys: None, lambda time_ms, key: None)
        #: the partition that may continue in the next batch, as a list of one
        self._open: list[Any] = []

    def take(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Return the matches that more rows complete."""
        batch = pa.RecordBatch.from_arrays(list(columns), list(self._specification.names))
        first = self._specification.order[0].index
        times = _to_milliseconds(columns[first], self._specification.types[first])
        sequences: dict[Any, list[TimedRow]] = {}
        for key, time_ms, (row, flags) in zip(self._keys.of(batch), times, self._program.offered(batch), strict=True):
            sequences.setdefault(key, []).append((time_ms, row, flags))
        ended = list(dict.fromkeys([*self._open, *sequences]))
        self._open = [ended.pop()]
        return self._measured(sequences, ended)

    def finish(self) -> list[pa.Array]:
        """Return the matches that the end of the input completes."""
        ended, self._open = self._open, []
        return self._measured({}, ended)

    def _measured(self, sequences: Mapping[Any, Sequence[TimedRow]], ended: Sequence[Any]) -> list[pa.Array]:
        try:
            self._matching.take(sequences)
            for key in ended:
                self._matching.expire(MAX_WATERMARK, key)
                self._memories.pop(key, None)
        except SkipError as error:
            raise TableRuntimeError(f"MATCH_RECOGNIZE: {error}") from error
        return self._program.measured(self._matching.drain())
