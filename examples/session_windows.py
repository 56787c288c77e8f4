"""Cuts visitors' clicks into sessions, which half an hour of silence ends: `python examples/session_windows.py --help`.

Clicks may come up to five minutes out of order. A session is told when the watermark has passed its end.
"""

import argparse
from collections.abc import Iterable, Iterator

from penstock.common import Configuration, Duration, WatermarkStrategy
from penstock.datastream import (
    AggregateFunction,
    DataStream,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.window import EventTimeSessionWindows, TimeWindow

#: A click: visitor, page, moment in ms.
Click = tuple[str, str, int]

MINUTE_MS = 60_000
CLICKS: list[Click] = [
    ("ann", "/", 0),
    ("bob", "/", 2 * MINUTE_MS),
    ("ann", "/prices", 9 * MINUTE_MS),
    ("ann", "/docs", 5 * MINUTE_MS),  # out of order
    ("bob", "/docs", 31 * MINUTE_MS),
    ("cem", "/", 33 * MINUTE_MS),
    ("ann", "/", 50 * MINUTE_MS),
    ("ann", "/order", 48 * MINUTE_MS),  # out of order: the first click of a new session
    ("bob", "/", 62 * MINUTE_MS),
]


class CountClicks(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Click, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class DescribeSession(ProcessWindowFunction[int, tuple[str, int, int, int], str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[int]
    ) -> Iterator[tuple[str, int, int, int]]:
        for clicks in elements:
            yield key, context.window().start, context.window().end, clicks


def build(env: StreamExecutionEnvironment, clicks: Iterable[Click] = CLICKS) -> DataStream:
    """A stream of (visitor, start ms, end ms, clicks)."""
    disorder = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(5))
    return (
        env.from_collection(clicks)
        .assign_timestamps_and_watermarks(disorder.with_timestamp_assigner(lambda click: click[2]))
        .key_by(lambda click: click[0])
        .window(EventTimeSessionWindows.with_gap(Duration.of_minutes(30)))
        .aggregate(CountClicks(), DescribeSession())
        .name("sessions")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["spark", "local"], default="spark")
    parser.add_argument("--parallelism", type=int, default=2)
    arguments = parser.parse_args()

    settings = Configuration.from_dict(
        {"execution.target": arguments.target, "parallelism.default": arguments.parallelism}
    )
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.enable_checkpointing(1000)  # milliseconds
    build(env).print()
    env.execute("session windows")


if __name__ == "__main__":
    main()
