"""Patterns of events beside state machines that somebody wrote by hand for just these patterns.

    scripts/run python -m benchmarks.cep [--flink build/flink/bin/python]

Both sides read the same events, out of order by up to 2 s, look at them in event time key by key, and give the same
matches. The events are bids, of 10,000 auctions by Zipf's law; stages tell them by their prices.

- **sequence**: a low, a middle and a high price, others in between, within 10 s.
- **loop**: a low price, then any number of middle ones until a high one, within 10 s.
- **absence**: a low price that no high one follows within 5 s.

With `--flink` it measures the first two beside Flink (see `cep_beside_flink`).
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.cep_beside_flink import MEASURES, beside_flink
from benchmarks.events import BLOCK_EVENTS, OUT_OF_ORDER_MS, Event, EventsSpec, SharedEvents
from benchmarks.measuring import Settings, measure
from benchmarks.nexmark_sql.flink_process import FlinkInstall
from benchmarks.workloads import Emit, Workload, get_event_time, select_key
from penstock.cep import CEP, Pattern
from penstock.common import Duration, WatermarkStrategy
from penstock.datastream import DataStream, StreamExecutionEnvironment

WINDOW_MS, ABSENCE_MS = 10_000, 5_000
END = 2**63 - 1


def is_low(event: Event) -> bool:
    return event[1] < 64


def is_middle(event: Event) -> bool:
    return 256 <= event[1] < 384


def is_high(event: Event) -> bool:
    return event[1] >= 960


# --- patterns -------------------------------------------------------------------------------------------------------


def sequence() -> Pattern:
    first = Pattern.begin("low").where(is_low).followed_by("middle").where(is_middle)
    return first.followed_by("high").where(is_high).within(Duration.of_millis(WINDOW_MS))


def loop() -> Pattern:
    first = Pattern.begin("low").where(is_low).followed_by("middle").where(is_middle)
    looping = first.one_or_more().greedy().until(is_high)
    return looping.followed_by("high").where(is_high).within(Duration.of_millis(WINDOW_MS))


def absence() -> Pattern:
    first = Pattern.begin("low").where(is_low).not_followed_by("high").where(is_high)
    return first.within(Duration.of_millis(ABSENCE_MS))


def row_of(match: dict[str, list[Event]]) -> tuple[int, int, int]:
    """The auction, when the match began, and how many events it has."""
    first = match["low"][0]
    return first[0], first[2], sum(map(len, match.values()))


def built(pattern: Callable[[], Pattern]) -> Callable[[StreamExecutionEnvironment, EventsSpec], DataStream]:
    """The program of a pattern."""

    def build(env: StreamExecutionEnvironment, spec: EventsSpec) -> DataStream:
        bound = Duration.of_millis(OUT_OF_ORDER_MS)
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(bound).with_timestamp_assigner(get_event_time)
        events = env.from_source(SharedEvents(spec), strategy, "bids")
        return CEP.pattern(events.key_by(select_key), pattern()).select(row_of)

    return build


# --- by hand --------------------------------------------------------------------------------------------------------


def in_order(events: list[Event]) -> Iterator[tuple[list[Event], int]]:
    """Events that are due, by time, and the watermark, after as many records as a batch has."""
    waiting: list[Event] = []
    highest = -(2**62)
    for begin in range(0, len(events), BLOCK_EVENTS):
        block = events[begin : begin + BLOCK_EVENTS]
        waiting += block
        waiting.sort(key=get_event_time)
        highest = max(highest, max(map(get_event_time, block)))
        watermark = highest - OUT_OF_ORDER_MS - 1
        due = next((place for place, event in enumerate(waiting) if event[2] > watermark), len(waiting))
        yield waiting[:due], watermark
        del waiting[:due]
    yield waiting, END


def sequence_by_hand(events: list[Event], emit: Emit) -> None:
    lows: dict[int, list[Event]] = {}
    middles: dict[int, list[tuple[Event, Event]]] = {}
    for due, _ in in_order(events):
        for event in due:
            key, price, time = event
            if price < 64:
                lows.setdefault(key, []).append(event)
            elif 256 <= price < 384:
                if key in lows:
                    middles.setdefault(key, []).extend(
                        (low, event) for low in lows.pop(key) if time - low[2] < WINDOW_MS
                    )
            elif price >= 960 and key in middles:
                for low, _middle in middles.pop(key):
                    if time - low[2] < WINDOW_MS:
                        emit((key, low[2], 3))


def loop_by_hand(events: list[Event], emit: Emit) -> None:
    begun: dict[int, list[tuple[Event, list[Event]]]] = {}
    for due, _ in in_order(events):
        for event in due:
            key, price, time = event
            if price < 64:
                begun.setdefault(key, []).append((event, []))
            elif 256 <= price < 384:
                if key in begun:
                    for _low, middles in begun[key]:
                        middles.append(event)
            elif price >= 960 and key in begun:
                left = []
                for low, middles in begun.pop(key):
                    if time - low[2] >= WINDOW_MS:
                        continue
                    if middles:
                        emit((key, low[2], len(middles) + 2))
                    else:
                        left.append((low, middles))
                if left:
                    begun[key] = left


def absence_by_hand(events: list[Event], emit: Emit) -> None:
    lows: dict[int, list[int]] = {}
    deadlines: list[tuple[int, int]] = []

    def expire(up_to: int) -> None:
        while deadlines and deadlines[0][0] <= up_to:
            deadline, key = heapq.heappop(deadlines)
            times = lows.get(key)
            if times and times[0] + ABSENCE_MS == deadline:
                emit((key, times.pop(0), 1))

    for due, watermark in in_order(events):
        for event in due:
            key, price, time = event
            if price < 64:
                lows.setdefault(key, []).append(time)
                heapq.heappush(deadlines, (time + ABSENCE_MS, key))
            elif price >= 960 and key in lows:
                expire(time)
                lows[key].clear()
        expire(watermark)


PATTERNS: dict[str, tuple[Callable[[], Pattern], Callable[[list[Event], Emit], None]]] = {
    "sequence": (sequence, sequence_by_hand),
    "loop": (loop, loop_by_hand),
    "absence": (absence, absence_by_hand),
}
WORKLOADS = {
    name: Workload(f"pattern: {name}", by_hand, built(pattern), "state machine by hand")
    for name, (pattern, by_hand) in PATTERNS.items()
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--only", choices=PATTERNS, action="append")
    parser.add_argument("--flink", type=Path, help="the Python of an environment with apache-flink")
    parser.add_argument("--heap", default="4g", help="of Flink's JVM")
    arguments = parser.parse_args()
    if arguments.flink is not None:
        install = FlinkInstall(arguments.flink, arguments.heap)
        print("| pattern | matches | penstock.cep, events/s | Penstock SQL | Flink SQL | ratio of cep | of SQL |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for name in arguments.only or MEASURES:
            line = beside_flink(install, WORKLOADS[name], name, EventsSpec(arguments.events), arguments.pairs)
            print(line, flush=True)
        return
    settings = Settings(interval_ms=None, pairs=arguments.pairs)
    print("| pattern | by hand, events/s | Penstock | ratio | CPU ratio | CPU µs an event |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in arguments.only or PATTERNS:
        found = measure(WORKLOADS[name], EventsSpec(arguments.events), settings)
        cpu = f"{found.twin_cpu_seconds_per_million:.2f} / {found.cpu_seconds_per_million:.2f}"
        rates = f"{found.twin_rate:,.0f} | {found.rate:,.0f}"
        print(f"| {name} | {rates} | {found.ratio:.3f} | {found.cpu_ratio:.3f} | {cpu} |", flush=True)


if __name__ == "__main__":
    main()
