"""`python -m benchmarks.scaling`: the keyed workloads on Spark at parallelism 1 and 2, in alternating pairs.

At parallelism 2 the source and the keyed operator run in two processes each, and half of all records cross from one to
the other. Time counts from the first record that a source emitted until the last one reached a sink; every subtask has
its events in memory by then. All sides must emit as many records as the others, or the run fails.

Beside it stands the same by hand (`benchmarks.by_hand`): a bare loop in one process, and in two that hand each other
their records. What two processes gain by hand is what there is to gain. `apart`: what two bare loops gain that hand
each other nothing, which is what the machine has to give. By processor time: what Penstock's ratio would be if both
processes had a processor of their own all the time.
"""

from __future__ import annotations

import json
import logging
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from benchmarks import by_hand
from benchmarks.events import OUT_OF_ORDER_MS, make_events
from benchmarks.meeting import MeetingPlace, MeetingSink, MemorySource
from benchmarks.workloads import WINDOW_MS, Count, CountWithTimer, add, get_event_time, select_key
from penstock.common import Configuration, Duration, WatermarkStrategy
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows


def _with_time() -> WatermarkStrategy:
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(OUT_OF_ORDER_MS))
    return bounded.with_timestamp_assigner(lambda event, _: get_event_time(event))


WORKLOADS: dict[str, tuple[str, Callable[[], WatermarkStrategy], Callable[[Any], DataStream]]] = {
    "W2": ("keyed reduce", WatermarkStrategy.no_watermarks, lambda keyed: keyed.reduce(add)),
    "W3": (
        "10 s tumbling count",
        _with_time,
        lambda keyed: keyed.window(TumblingEventTimeWindows.of(WINDOW_MS)).aggregate(Count()),
    ),
    "W4": ("keyed process, state and timer", _with_time, lambda keyed: keyed.process(CountWithTimer())),
}


class Run(NamedTuple):
    """From the first record out of a source to the last one into a sink: seconds, and those of all processors."""

    seconds: float
    processor_seconds: float
    records: int


def run(workload: str, count: int, parallelism: int, target: str, is_text: bool = False) -> Run:
    """One job; text is parsed ahead of the workload."""
    _, strategy, build = WORKLOADS[workload]
    with tempfile.TemporaryDirectory(prefix="penstock-scaling-") as folder:
        place = MeetingPlace(folder)
        configuration = Configuration()
        configuration.set_string("execution.target", target)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(parallelism)
        if is_text:
            lines = env.from_source(
                MemorySource(place, by_hand.make_lines, count), WatermarkStrategy.no_watermarks(), "lines"
            )
            stream = lines.map(by_hand.parse).assign_timestamps_and_watermarks(strategy())
        else:
            stream = env.from_source(MemorySource(place, make_events, count), strategy(), "events")
        build(stream.key_by(select_key)).sink_to(MeetingSink(place))
        env.execute(f"{workload} at parallelism {parallelism}")
        begun, ended = place.heard("begun"), place.heard("ended")
    assert len(ended) == parallelism, f"{len(ended)} sinks of {parallelism} ended"
    seconds = (max(last for _, last, _ in ended) - min(first for first, _ in begun)) / 1e9
    processor_seconds = (sum(used for _, _, used in ended) - sum(used for _, used in begun)) / 1e9
    return Run(seconds, processor_seconds, sum(records for records, _, _ in ended))


class Pair(NamedTuple):
    """The sides of one pair of runs, each at 1 and 2."""

    one: Run
    two: Run
    one_by_hand: by_hand.Result
    two_by_hand: by_hand.Result
    apart: by_hand.Result

    @property
    def ratio(self) -> float:
        return self.one.seconds / self.two.seconds

    @property
    def ratio_by_hand(self) -> float:
        return self.one_by_hand.seconds / self.two_by_hand.seconds

    @property
    def ratio_apart(self) -> float:
        return self.one_by_hand.seconds / self.apart.seconds

    @property
    def ratio_by_processor(self) -> float:
        return 2 * self.one.processor_seconds / self.two.processor_seconds


def measure(workload: str, count: int, target: str, is_text: bool) -> Pair:
    """One pair of runs of one workload."""
    alone = by_hand.Job(workload, count, 1, is_text)
    pair = Pair(
        run(workload, count, 1, target, is_text),
        run(workload, count, 2, target, is_text),
        by_hand.run(alone),
        by_hand.run(alone._replace(processes=2)),
        by_hand.run(alone._replace(processes=2, exchanges=False)),
    )
    emitted = [pair.one.records, pair.two.records, pair.one_by_hand.records, pair.two_by_hand.records]
    if len(set(emitted)) > 1:
        raise AssertionError(f"{workload}: records at 1 and 2, and by hand: {emitted}")
    return pair


def _row(key: str, count: int, pairs: list[Pair]) -> list[str]:
    def rate(of: Callable[[Pair], float]) -> str:
        return f"{count / statistics.median(map(of, pairs)):,.0f}"

    def ratio(of: Callable[[Pair], float]) -> str:
        return f"{statistics.median(map(of, pairs)):.2f}"

    ratios = [pair.ratio for pair in pairs]
    return [
        f"{key} {WORKLOADS[key][0]}",
        rate(lambda pair: pair.one.seconds),
        rate(lambda pair: pair.two.seconds),
        ratio(lambda pair: pair.ratio),
        f"{min(ratios):.2f}",
        f"{max(ratios):.2f}",
        ratio(lambda pair: pair.ratio_by_processor),
        rate(lambda pair: pair.one_by_hand.seconds),
        rate(lambda pair: pair.two_by_hand.seconds),
        ratio(lambda pair: pair.ratio_by_hand),
        ratio(lambda pair: pair.ratio_apart),
    ]


COLUMNS: Final = ("", "1", "2", "ratio", "min", "max", "by processor", "by hand: 1", "2", "ratio", "apart")


@click.command()
@click.option("--events", "count", default=2_000_000, show_default=True, help="Events per run.")
@click.option("--pairs", "rounds", default=5, show_default=True, help="Pairs of runs per workload.")
@click.option("--target", default="spark", show_default=True, help="spark, or local (one process, for comparison).")
@click.option("--only", default="", help="Workloads, such as W2,W3.")
@click.option("--text", "is_text", is_flag=True, help="The events are JSON text, and parsed on the way.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here.")
def main(count: int, rounds: int, target: str, only: str, is_text: bool, json_path: Path | None) -> None:
    """Print throughput (events a second) at parallelism 1 and 2, and their ratio, beside the same by hand."""
    logging.basicConfig(level=logging.WARNING)
    title = f"{count:,} events{' as text' if is_text else ''} on {target}, {rounds} pairs; events/s"
    table = Table(title=title)
    for column in COLUMNS:
        table.add_column(column, justify="right")
    figures = {}
    for key in only.split(",") if only else WORKLOADS:
        pairs = [measure(key, count, target, is_text) for _ in range(rounds)]
        table.add_row(*_row(key, count, pairs))
        figures[key] = [{**pair._asdict(), "ratio": pair.ratio} for pair in pairs]
    Console(width=140).print(table)
    if json_path is not None:
        json_path.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
