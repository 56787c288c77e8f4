"""OVER, top-N, and the windows of TUMBLE, HOP, CUMULATE and SESSION."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.base.errors import UnsupportedError
from penstock.sql.data.types import (
    BigIntType,
    DataType,
    DayTimeIntervalType,
    LocalZonedTimestampType,
    NumericType,
    TimestampType,
    YearMonthIntervalType,
)
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.explain import node_text
from penstock.sql.logical.nodes import FrameBound, SortKey
from penstock.sql.spark.aggregates import WITHOUT_FRAME, Over, accumulated, project_operands, render_calls
from penstock.sql.spark.kernels import Clocked, Edged, Windowed
from penstock.sql.spark.planning import BatchPlanner, column, order_text, select
from penstock.sql.spark.stored import group_text, literal_text, spark_type
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


def _distance(distance: Constant, kind: DataType) -> str | None:
    """Return the distance of a RANGE frame, in the stored type of the order column."""
    if isinstance(kind, TimestampType | LocalZonedTimestampType) and isinstance(distance.value, int):
        if isinstance(distance.type, DayTimeIntervalType):
            seconds, rest = divmod(distance.value, 1000)
            return f"INTERVAL '{seconds}.{rest:03d}' SECOND" if spark_type(kind) != "BIGINT" else None
        if isinstance(distance.type, YearMonthIntervalType):
            return f"INTERVAL '{distance.value}' MONTH" if spark_type(kind) != "BIGINT" else None
    if isinstance(kind, NumericType) and isinstance(distance.type, NumericType):
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
    milliseconds = BigIntType(False)
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
