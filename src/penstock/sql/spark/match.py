"""MATCH_RECOGNIZE in batch: Spark sorts the rows of each partition, and a step runs the automaton over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.patterns.matcher import SkipError
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.sql.data.arrow import milliseconds
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import (
    DataType,
    DateType,
    DoubleType,
    FloatType,
    LocalZonedTimestampType,
    TimestampType,
    TimeType,
)
from penstock.sql.logical.nodes import MatchRecognize
from penstock.sql.spark.kernels import BatchSession, UserWork
from penstock.sql.spark.planning import BatchPlanner, column, order_text
from penstock.sql.spark.stored import group_text
from penstock.sql.stream.match.operator import Matching
from penstock.sql.stream.match.plan import build_match_specification
from penstock.sql.stream.match.program import Matched, MatchProgram, MatchSpecification, Offered
from penstock.sql.stream.rows.rows import RowKeys

_DAY_MS = 86_400_000
_TIME_POINTS = (TimestampType, LocalZonedTimestampType, TimeType, DateType)


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


def _is_float(kind: DataType) -> bool:
    return isinstance(kind, FloatType | DoubleType)


def _to_milliseconds(times: pa.Array, kind: DataType) -> list[int]:
    """Return points in time in ms, for WITHIN. NULL is earlier than all others."""
    if isinstance(kind, TimestampType | LocalZonedTimestampType):
        numbers: list[int] = milliseconds(pc.fill_null(times, pa.scalar(0, times.type))).tolist()
    elif isinstance(kind, DateType):
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
        sequences: dict[Any, list[tuple[int, Offered]]] = {}
        for key, time_ms, row in zip(self._keys.of(batch), times, self._program.offered(batch), strict=True):
            sequences.setdefault(key, []).append((time_ms, row))
        ended = list(dict.fromkeys([*self._open, *sequences]))
        self._open = [ended.pop()]
        return self._measured(lambda results: self._matching.take(sequences, results), ended)

    def finish(self) -> list[pa.Array]:
        """Return the matches that the end of the input completes."""
        ended, self._open = self._open, []
        return self._measured(lambda results: None, ended)

    def _measured(self, take: Callable[[list[Matched]], None], ended: Sequence[Any]) -> list[pa.Array]:
        results: list[Matched] = []
        try:
            take(results)
            for key in ended:
                self._matching.expire(MAX_WATERMARK, key, results)
                self._memories.pop(key, None)
        except SkipError as error:
            raise TableRuntimeError(f"MATCH_RECOGNIZE: {error}") from error
        return self._program.measured(results)
