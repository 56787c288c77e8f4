"""`python -m benchmarks.process_functions`: a process table function beside a KeyedProcessFunction with the same work.

Both count the rows of a key in a value state, and emit the key and the count; with `--timers` they also set a timer for
each row, which a watermark fires after each batch. Each is the operator of a job in the operator harness, and both get
the same rows: columns, as they come out of tables (`columns`), of which the KeyedProcessFunction makes rows; and it
gets tuples as well, as they come out of streams (`tuples`). They take turns. Printed are µs of processor time for a
row, and the median of the ratios: above 1.0 the process table function is faster.

With `--jobs` each is a whole job instead, from `datagen` to `blackhole`: the one in SQL, the other on the stream of the
same table. `--backend` and `--interval` choose where their state is, and how often it is checkpointed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

import click
import numpy as np
import pyarrow as pa

from penstock.base.types import Row
from penstock.common import Types
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.record.process import KeyedProcessOperator
from penstock.runtime.records import Batch
from penstock.sql.analyzer.process_tables import semantics
from penstock.sql.data.types import BigIntType, LocalZonedTimestampType, VarCharType
from penstock.sql.logical.nodes import PlanColumn, RowSchema, TableInput, Values
from penstock.sql.logical.records import ChangelogMode
from penstock.sql.stream.process.calls import InputTable, ProcessCall
from penstock.sql.stream.process.operator import KeyedProcessOperator as ProcessTableOperator
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.table import ProcessTableFunction, StreamTableEnvironment
from penstock.table.udf import ArgumentTrait, Context, OnTimerContext, StateHint, udptf
from penstock.testing import OneInputOperatorHarness

_TIMER_MS = 1_000


class Seen:
    """The state of a key."""

    count: int = 0


class Count(ProcessTableFunction[int]):
    """Counts rows."""

    def eval(self, seen: Annotated[Seen, StateHint()], row: Annotated[Row, ArgumentTrait.SET_SEMANTIC_TABLE]) -> Any:
        """Emit the count."""
        seen.count += 1
        yield seen.count


class TimedCount(ProcessTableFunction[int]):
    """Counts rows, and sets a timer for each."""

    def eval(
        self,
        ctx: Context,
        seen: Annotated[Seen, StateHint()],
        row: Annotated[Row, ArgumentTrait.SET_SEMANTIC_TABLE],
    ) -> Any:
        """Emit the count."""
        seen.count += 1
        times = ctx.time_context(int)
        times.register_on_time((times.time() or 0) + _TIMER_MS)
        yield seen.count

    def on_timer(self, ctx: OnTimerContext, seen: Seen) -> Iterator[int]:
        """Emit the count again."""
        yield seen.count


class KeyedCount(KeyedProcessFunction):
    """The same on a stream."""

    def open(self, runtime_context: Any) -> None:
        """Get the state."""
        self._count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        """Emit the key and the count."""
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value[0], count


class KeyedTimedCount(KeyedCount):
    """The same on a stream."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        """Emit the key and the count."""
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + _TIMER_MS)
        yield value[0], count

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        """Emit the count again."""
        yield ctx.get_current_key(), self._count.value()


class Discard:
    """Takes the output."""

    def collect(self, batch: Batch) -> None:
        """Drop a batch."""

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        """Drop a batch."""

    def emit_watermark(self, timestamp: int) -> None:
        """Do nothing."""

    def emit_status(self, idle: bool) -> None:
        """Do nothing."""


def process_call(has_timers: bool) -> ProcessCall:
    """Return the call of the process table function."""
    text, number, moment = VarCharType(2**31 - 1), BigIntType(), LocalZonedTimestampType(3)
    schema = RowSchema((PlanColumn("k", text), PlanColumn("n", number), PlanColumn("ts", moment)))
    table = TableInput("row", ("k", "n", "ts"), (0,), (), 2 if has_timers else -1)
    read = semantics(Values(schema=schema, rows=()), table, ChangelogMode.insert_only())
    name, types = ("k", "n", "ts"), (text, number, moment)
    given = InputTable("row", name, types, read, (0,), (), table.time, (0,))
    user = udptf(TimedCount() if has_timers else Count(), result_type="BIGINT").definition
    time_type = moment.not_null() if has_timers else None
    return ProcessCall(user, (given,), (), ("f0",), (number,), (text,), time_type, ChangelogMode.insert_only(), 0)


def batches(rows: int, size: int, keys: int) -> list[pa.RecordBatch]:
    """Return rows of a key, a number and a time."""
    chance = np.random.default_rng(7)
    made = []
    for begin in range(0, rows, size):
        numbers = np.arange(begin, begin + size)
        keyed = pa.array([f"key-{key}" for key in chance.integers(0, keys, size)])
        times = pa.array(numbers, pa.int64()).cast(pa.timestamp("ms"))
        made.append(pa.RecordBatch.from_arrays([keyed, pa.array(numbers), times], ["c0", "c1", "c2"]))
    return made


def seconds(factory: Callable[[], StreamOperator], given: list[Callable[[], Batch]], ends: list[int]) -> float:
    """Return the processor time of all batches, each followed by a watermark."""
    with OneInputOperatorHarness(factory) as harness:
        harness.operator.output = Discard()
        spent = 0.0
        for make, end in zip(given, ends, strict=True):
            batch = make()
            began = time.process_time()
            harness.operator.process_batch(batch)
            harness.operator.process_watermark(end)
            spent += time.process_time() - began
        return spent


def job_seconds(rows: int, keys: int, has_timers: bool, settings: dict[str, str], on_stream: bool) -> float:
    """Return the processor time of a whole job."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    made = StreamTableEnvironment.create(env)
    for option, value in {"execution.target": "local", **settings}.items():
        made.get_config().set(option, value)
    made.execute_sql(
        "CREATE TABLE w (k BIGINT, n BIGINT, ts AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR ts AS ts) WITH ('connector' "
        f"= 'datagen', 'rows-per-second' = '{rows * 1000}', 'number-of-rows' = '{rows}', "
        f"'fields.k.min' = '0', 'fields.k.max' = '{keys - 1}', "
        f"'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '{rows}')"
    )
    made.execute_sql("CREATE TABLE sink (k BIGINT, seen BIGINT) WITH ('connector' = 'blackhole')")
    made.create_temporary_system_function("f", udptf(TimedCount() if has_timers else Count(), result_type="BIGINT"))
    began = time.process_time()
    if on_stream:
        shown = Types.ROW_NAMED(["k", "seen"], [Types.LONG(), Types.LONG()])
        function = KeyedTimedCount() if has_timers else KeyedCount()
        stream = made.to_data_stream(made.from_path("w")).key_by(_key).process(function, shown)
        made.from_data_stream(stream).execute_insert("sink").wait()
    else:
        moment = ", on_time => DESCRIPTOR(ts)" if has_timers else ""
        call = f"f(`row` => TABLE w PARTITION BY k{moment}, uid => 'f')"
        made.execute_sql(f"INSERT INTO sink SELECT k, `EXPR$0` FROM {call}").wait()
    return time.process_time() - began


@click.command(help=__doc__)
@click.option("--rows", default=200_000, show_default=True)
@click.option("--batch", "size", default=2_000, show_default=True, help="rows of each batch")
@click.option("--keys", default=1_000, show_default=True)
@click.option("--timers", "has_timers", is_flag=True, help="set a timer for each row")
@click.option("--pairs", default=5, show_default=True, help="how often each side runs")
@click.option("--jobs", "in_jobs", is_flag=True, help="compare whole jobs")
@click.option("--backend", default="hashmap", show_default=True, help="where the state of jobs is")
@click.option("--interval", default="0 s", show_default=True, help="the time between checkpoints of jobs; 0: none")
def main(
    rows: int, size: int, keys: int, has_timers: bool, pairs: int, in_jobs: bool, backend: str, interval: str
) -> None:
    """See the module docstring."""
    if in_jobs:
        settings = {"state.backend.type": backend, "execution.checkpointing.interval": interval}
        whole = partial(job_seconds, rows, keys, has_timers, settings)
        show(rows, {"process table function": [], "columns": []}, lambda name: whole(name == "columns"), pairs)
        return
    made = batches(rows, size, keys)
    times = [batch.column(2).cast(pa.int64()).to_numpy() for batch in made]
    ends = [int(time[-1]) for time in times]
    tables: list[Callable[[], Batch]] = [
        partial(ColumnBatch, batch, time) for batch, time in zip(made, times, strict=True)
    ]
    records = [list(zip(*(column.to_pylist() for column in batch.columns), strict=True)) for batch in made]
    streams: list[Callable[[], Batch]] = [
        partial(Batch, list(values), time.tolist()) for values, time in zip(records, times, strict=True)
    ]
    names = ["c0", "c1", *(["c2"] if has_timers else [])]
    process = partial(ProcessTableOperator, process_call(has_timers), names, StreamSession())
    keyed = partial(KeyedProcessOperator, KeyedTimedCount() if has_timers else KeyedCount(), _key)
    sides = {
        "process table function": partial(seconds, process, tables, ends),
        "columns": partial(seconds, keyed, tables, ends),
        "tuples": partial(seconds, keyed, streams, ends),
    }
    show(rows, {name: [] for name in sides}, lambda name: sides[name](), pairs)


def show(rows: int, spent: dict[str, list[float]], timed: Callable[[str], float], pairs: int) -> None:
    """Let the sides take turns, and print the medians."""
    for _ in range(pairs):
        for name, all_s in spent.items():
            all_s.append(timed(name))
    own = spent["process table function"]
    for name, all_s in spent.items():
        ratio = statistics.median(other / mine for other, mine in zip(all_s, own, strict=True))
        title = name if all_s is own else f"KeyedProcessFunction, {name}"
        print(f"{title:32} {statistics.median(all_s) / rows * 1e6:6.2f} µs a row, ratio {ratio:4.2f}")


def _key(value: Any) -> Any:
    return value[0]


if __name__ == "__main__":
    main()
