"""Steps of a plan that run Penstock's own functions on Arrow batches inside Spark's tasks.

A step can be pickled. It maps the columns that it reads to the columns of its result.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from penstock.base.metrics import MetricGroup, MetricRegistry
from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.datetimes import to_local, to_moments
from penstock.sql.data.types import DataType, LocalZonedTimestampType
from penstock.sql.expressions.builder import Correlation
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.functions.clock import ASSIGN
from penstock.sql.functions.definition import Session
from penstock.sql.logical.nodes import AggregateCall, Correlate
from penstock.sql.models.provider import AsyncPredictor, ModelProvider, Predictions, Predictor, named_inputs
from penstock.sql.spark.stored import from_stored, to_stored
from penstock.sql.stream.aggregates.accumulators import build_accumulator
from penstock.sql.stream.models.predict import PredictSettings
from penstock.sql.typed import Typed
from penstock.sql.user_functions.classes import FunctionContext
from penstock.sql.user_functions.definition import CallSettings, OpenFunctions

_MS_A_SECOND: Final = 1_000


@dataclass(frozen=True, slots=True)
class BatchSession:
    """The session as functions see it. `now_ns`: the start of the query, for all of its rows.

    `parameters`: the program's own settings, for its functions.
    """

    zone: tzinfo = UTC
    legacy_cast: bool = False
    now_ns: int = 0
    call_settings: CallSettings = field(default_factory=CallSettings)
    parameters: tuple[tuple[str, str], ...] = ()

    def open(self, functions: OpenFunctions | None = None) -> Session:
        """Return the session of a running step. `functions`: the user-defined functions opened there."""
        return Session(self.zone, self.now, legacy_cast=self.legacy_cast, functions=functions)

    def functions(self) -> OpenFunctions:
        """Return the user-defined functions of one task."""
        context = FunctionContext(MetricGroup(MetricRegistry(self._now_ms)), dict(self.parameters))
        return OpenFunctions("a step of a batch", context, self.zone, self.call_settings)

    def _now_ms(self) -> int:
        return self.now_ns // 1_000_000

    def now(self) -> int:
        """Return the time of the query."""
        return self.now_ns


class Work(Protocol):
    """The work of a step on the columns of a batch."""

    def __call__(self, columns: Sequence[pa.Array], rows: int) -> list[pa.Array]:
        """Return the columns of the result."""

    def finish(self) -> list[pa.Array] | None:
        """Return the columns that only the end of the task's rows completes; None for nothing."""

    def close(self) -> None:
        """Clean up; no batch follows in this task."""


@dataclass(frozen=True, slots=True)
class Step:
    """A function for Spark's `mapInArrow`. `takes` and `gives`: the types of the input and result columns."""

    work: Work
    takes: tuple[DataType, ...]
    gives: tuple[DataType, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the result."""
        with contextlib.closing(self.work):
            for batch in batches:
                if not batch.num_rows:
                    continue
                read = [from_stored(column, kind) for column, kind in zip(batch.columns, self.takes, strict=False)]
                yield self._stored(self.work(read, batch.num_rows))
            columns = self.work.finish()
            if columns is not None:
                yield self._stored(columns)

    def _stored(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        stored = [to_stored(column, kind) for column, kind in zip(columns, self.gives, strict=True)]
        return pa.RecordBatch.from_arrays(stored, [f"c{index}" for index in range(len(self.gives))])


class PureWork:
    """Base class of work that keeps nothing open."""

    def finish(self) -> list[pa.Array] | None:
        """See `Work`."""
        return None

    def close(self) -> None:
        """See `Work`."""


class UserWork:
    """Base class of work that may call user-defined functions, which are opened at the first batch of a task."""

    session: BatchSession

    @cached_property
    def _functions(self) -> OpenFunctions:
        return self.session.functions()

    def finish(self) -> list[pa.Array] | None:
        """See `Work`."""
        return None

    def close(self) -> None:
        """Close the functions that were opened."""
        functions = self.__dict__.pop("_functions", None)
        if functions is not None:
            functions.close()


@dataclass(frozen=True)
class Computed(UserWork):
    """Some of the input columns (`kept`: their indexes), and one column per expression."""

    kept: tuple[int, ...]
    expressions: tuple[Typed, ...]
    session: BatchSession

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.expressions, self.session.open(self._functions))

    def __call__(self, columns: Sequence[pa.Array], rows: int) -> list[pa.Array]:
        """See `Work`."""
        return [*(columns[index] for index in self.kept), *self._evaluator(Columns(columns, rows))]


@dataclass(frozen=True)
class Correlated(UserWork):
    """The input columns, and the columns that a table function or UNNEST makes of them. See `Correlation`."""

    node: Correlate
    session: BatchSession

    @cached_property
    def _correlation(self) -> Correlation:
        return Correlation(self.node, self.session.open(self._functions))

    def __call__(self, columns: Sequence[pa.Array], rows: int) -> list[pa.Array]:
        """See `Work`."""
        parents, produced = self._correlation(Columns(columns, rows))
        chosen = pa.array(parents, pa.int64())
        return [*(column.take(chosen) for column in columns), *produced]


@dataclass(frozen=True)
class Predicted(UserWork):
    """The input columns, and those that a model predicts. Asynchronous calls of a batch are in flight together."""

    provider: ModelProvider
    arguments: tuple[Typed, ...]
    is_async: bool
    settings: PredictSettings
    session: BatchSession

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.arguments, self.session.open(self._functions))

    @cached_property
    def _predictor(self) -> Predictor | AsyncPredictor:
        predictor = self.provider.async_predictor() if self.is_async else self.provider.predictor()
        assert predictor is not None
        opened = predictor.open(self._functions.context)
        if opened is not None:
            self._functions.wait(opened)
        return predictor

    def __call__(self, columns: Sequence[pa.Array], rows: int) -> list[pa.Array]:
        """See `Work`."""
        inputs = named_inputs(self._evaluator(Columns(columns, rows)))
        size = self.provider.batch_rows
        calls = [inputs.slice(start, size) for start in range(0, rows, size)]
        predictor = self._predictor
        if isinstance(predictor, AsyncPredictor):
            answers = self._functions.wait(self._gathered(predictor, calls))
        else:
            answers = [predictor.predict(call) for call in calls]
        parents = np.concatenate([answer.parents + number * size for number, answer in enumerate(answers)])
        chosen = pa.array(parents, pa.int64())
        predicted = [pa.concat_arrays(parts) for parts in zip(*(answer.columns for answer in answers), strict=True)]
        return [*(column.take(chosen) for column in columns), *predicted]

    async def _gathered(self, predictor: AsyncPredictor, calls: Sequence[pa.RecordBatch]) -> list[Predictions]:
        free = asyncio.Semaphore(self.settings.capacity)
        timeout_s = self.settings.timeout_ms / _MS_A_SECOND or None

        async def ask(call: pa.RecordBatch) -> Predictions:
            async with free, asyncio.timeout(timeout_s):
                return await predictor.predict(call)

        return await asyncio.gather(*map(ask, calls))

    def close(self) -> None:
        """Close the predictor and the functions that were opened."""
        predictor = self.__dict__.pop("_predictor", None)
        if predictor is not None:
            closed = predictor.close()
            if closed is not None:
                self._functions.wait(closed)
        super().close()


@dataclass(frozen=True)
class Accumulated(UserWork):
    """The input columns, with gathered operands replaced by the results of their calls."""

    calls: tuple[tuple[int, AggregateCall], ...]
    session: BatchSession

    def __call__(self, columns: Sequence[pa.Array], rows: int) -> list[pa.Array]:
        """See `Work`."""
        results = list(columns)
        for index, call in self.calls:
            results[index] = _accumulated(call, columns[index], self._functions)
        return results


def _accumulated(call: AggregateCall, lists: pa.Array, functions: OpenFunctions) -> pa.Array:
    accumulator = build_accumulator(call, False, functions)
    kinds = [operand.type for operand in call.operands]
    entries = lists.values
    operands = [to_values(entries.field(index), kind) for index, kind in enumerate(kinds)]
    rows: list[tuple[Any, ...]] = list(zip(*operands, strict=True)) if operands else [()] * len(entries)
    offsets = lists.offsets.to_pylist()
    results = []
    for begin, end in itertools.pairwise(offsets):
        state = accumulator.create()
        for values in rows[begin:end]:
            state = accumulator.add(state, values)
        results.append(accumulator.value(state))
    return to_column(results, call.type)


@dataclass(frozen=True)
class Windowed(PureWork):
    """The input columns for each window of a row, with the window's start, end and time."""

    kind: str
    time: int
    time_type: DataType
    sizes: tuple[int, ...]
    offset: int
    session: BatchSession

    def __call__(self, columns: Sequence[pa.Array], rows: int) -> list[pa.Array]:
        """See `Work`."""
        columns, clock = _with_time(columns, self.time, self.time_type, self.session.zone)
        chosen, starts, ends = ASSIGN[self.kind](clock, self.sizes, self.offset)
        if chosen is not None:
            columns = [column.take(pa.array(chosen)) for column in columns]
        return [*columns, *_edges(starts, ends, self.time_type, self.session.zone)]


@dataclass(frozen=True)
class Clocked(PureWork):
    """The input columns of the rows that have a time, and that time in ms on the session's clocks."""

    time: int
    time_type: DataType
    session: BatchSession

    def __call__(self, columns: Sequence[pa.Array], rows: int) -> list[pa.Array]:
        """See `Work`."""
        columns, clock = _with_time(columns, self.time, self.time_type, self.session.zone)
        return [*columns, pa.array(clock, pa.int64())]


@dataclass(frozen=True)
class Edged(PureWork):
    """The input columns, with the last two (start and end of a window in ms) replaced by its start, end and time."""

    time_type: DataType
    session: BatchSession

    def __call__(self, columns: Sequence[pa.Array], rows: int) -> list[pa.Array]:
        """See `Work`."""
        starts, ends = (column.to_numpy() for column in columns[-2:])
        return [*columns[:-2], *_edges(starts, ends, self.time_type, self.session.zone)]


def _with_time(columns: Sequence[pa.Array], time: int, kind: DataType, zone: tzinfo) -> tuple[Sequence[pa.Array], Any]:
    """Return the rows that have a time, and their times in ms. A row without a time is in no window."""
    times = columns[time]
    if times.null_count:
        mask = times.is_valid()
        columns = [column.filter(mask) for column in columns]
        times = columns[time]
    clock = to_local(times, zone) if isinstance(kind, LocalZonedTimestampType) else times
    milliseconds = clock.cast(pa.timestamp("ms"), safe=False).view(pa.int64())
    return columns, milliseconds.to_numpy(zero_copy_only=False)


def _edges(starts: Any, ends: Any, kind: DataType, zone: tzinfo) -> list[pa.Array]:
    """Return start, end and time of windows; the time is 1 ms before the end."""
    clock = pa.timestamp("ms")
    edges = [pa.array(values, pa.int64()).view(clock) for values in (starts, ends, ends - 1)]
    if isinstance(kind, LocalZonedTimestampType):
        edges[2] = to_moments(edges[2], zone).cast(pa.timestamp("ms", "UTC"))
    return edges
