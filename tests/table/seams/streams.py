"""What tests of streams and tables have: environments of one process, streams with timestamps, and what comes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from penstock.common import Duration, Row, TypeInformation, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.functions import ProcessFunction
from penstock.table import StreamTableEnvironment, Table


def environments(parallelism: int = 1) -> tuple[StreamExecutionEnvironment, StreamTableEnvironment]:
    """A program of streams and the tables beside it, in this process, with UTC as the time zone."""
    streams = StreamExecutionEnvironment.get_execution_environment()
    streams.get_configuration().set_string("execution.target", "local")
    streams.set_parallelism(parallelism)
    tables = StreamTableEnvironment.create(streams)
    tables.get_config().set_local_timezone("UTC")
    return streams, tables


class _SecondsOf(TimestampAssigner):
    """The timestamp is a number of seconds in a field."""

    def __init__(self, place: int) -> None:
        self._place = place

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[self._place]) * 1_000


def timed(
    streams: StreamExecutionEnvironment, records: Iterable[Any], type_info: TypeInformation, place: int
) -> DataStream:
    """A stream whose timestamps are a field in seconds, with watermarks a second behind."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    return streams.from_collection(records, type_info).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(_SecondsOf(place))
    )


class _WithTime(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[tuple[str, int | None]]:
        yield str(value), ctx.timestamp()


def with_timestamps(stream: DataStream) -> list[tuple[str, int | None]]:
    """The records as text, each with its timestamp."""
    return sorted(stream.process(_WithTime()).collect())


def texts(stream: DataStream) -> list[str]:
    """The records as text, in order of the text."""
    return sorted(map(str, stream.collect()))


def read_changes(table: Table) -> list[str]:
    """The changes of a table as text, in order of the text."""
    with table.execute().collect() as rows:
        return sorted(map(str, rows))


def list_columns(table: Table) -> list[str]:
    """The columns of a table: their names and types."""
    return [str(column) for column in table.get_resolved_schema().get_columns()]


def changelog(*rows: tuple[Any, Sequence[Any]]) -> list[Row]:
    """Rows with their kinds."""
    return [Row.of_kind(kind, *values) for kind, values in rows]
