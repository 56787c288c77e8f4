"""Flink's programs with process table functions, whose functions are in Java, with the same functions in Python."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final

from penstock.common import Instant, Row
from penstock.table import ProcessTableFunction, Table
from penstock.table.expressions import col, descriptor, lit
from penstock.table.udf import ArgumentTrait, Context, OnTimerContext

SET: Final = ArgumentTrait.SET_SEMANTIC_TABLE


def shown(value: Any) -> str:
    """A value as Java prints it."""
    if isinstance(value, Row):
        return f"{value.get_row_kind().short_string}[{', '.join(map(shown, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        return (
            value.astimezone(datetime.UTC).isoformat(timespec="auto").replace("000+00:00", "Z").replace("+00:00", "Z")
        )
    return "null" if value is None else str(value)


def braced(*values: Any) -> str:
    """Values in braces."""
    return f"{{{', '.join(map(shown, values))}}}"


class ScalarArgs(ProcessTableFunction[str]):
    """Shows its arguments."""

    def eval(self, i: int, b: bool) -> None:
        self.collect(braced(i, b))


class RowSemantics(ProcessTableFunction[str]):
    """Shows each row."""

    def eval(self, r: Annotated[Row, ArgumentTrait.ROW_SEMANTIC_TABLE], i: int) -> None:
        self.collect(braced(r, i))


class SetSemantics(ProcessTableFunction[str]):
    """Shows each row of a partition."""

    def eval(self, r: Annotated[Row, SET], i: int) -> None:
        self.collect(braced(r, i))


class OptionalPartition(ProcessTableFunction[str]):
    """Shows each row of a partition, or of the table."""

    def eval(self, r: Annotated[Row, SET, ArgumentTrait.OPTIONAL_PARTITION_BY], i: int) -> None:
        self.collect(braced(r, i))


class Sending(ProcessTableFunction[str]):
    """Registers a timer for each row."""

    def eval(self, ctx: Context, r: Annotated[Row, SET, ArgumentTrait.REQUIRE_ON_TIME]) -> None:
        times = ctx.time_context(int)
        time, watermark = times.time(), shown(times.current_watermark())
        assert time is not None
        self.collect(f"{{Processing input row {shown(r)} at time {time} watermark {watermark}}}")
        self.collect(f"{{Registering timer t for {time + 1} at time {time} watermark {watermark}}}")
        times.register_on_time("t", time + 1)

    def on_timer(self, ctx: OnTimerContext) -> Iterator[str]:
        """Show the timer, and its time."""
        times = ctx.time_context(Instant)
        time, watermark = times.time(), times.current_watermark()
        assert time is not None
        assert watermark is not None
        at = time.to_epoch_milli()
        yield f"{{Timer {ctx.current_timer()} fired at time {at} watermark {watermark.to_epoch_milli()}}}"
        yield f"{{{at}}}"


class Receiving(ProcessTableFunction[str]):
    """Shows each row with its time."""

    def eval(self, ctx: Context, r: Annotated[Row, SET, ArgumentTrait.REQUIRE_ON_TIME]) -> None:
        times = ctx.time_context(int)
        watermark = shown(times.current_watermark())
        self.collect(f"{{Processing input row {shown(r)} at time {times.time()} watermark {watermark}}}")


def _chained(table: Callable[[str], Table], call: Callable[..., Table]) -> Table:
    on_time = descriptor("ts").as_argument("on_time")
    sent = table("t").partition_by(col("name")).process(Sending, on_time)
    return sent.partition_by(col("name")).process(Receiving, descriptor("rowtime").as_argument("on_time"))


#: by the uid of a program: what it does, given `from_path` and `from_call`
PROGRAMS: Final[dict[str, Callable[[Callable[[str], Table], Callable[..., Table]], Table]]] = {
    "process-scalar-args-table-api": lambda table, call: call(
        ScalarArgs, lit(42).as_argument("i"), lit(True).as_argument("b")
    ),
    "process-row-table-api-inline": lambda table, call: table("t").process(RowSemantics, 1),
    "process-row-table-api-inline-named": lambda table, call: table("t").process(RowSemantics, lit(1).as_argument("i")),
    "process-set-table-api": lambda table, call: table("t").partition_by(col("name")).process(SetSemantics, 1),
    "process-optional-partition-by-table-api": lambda table, call: table("t").process(OptionalPartition, 1),
    "process-chained-time-table-api": _chained,
}
