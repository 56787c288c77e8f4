"""A program for every execution mode, over a folder of files that grows, with its answer in plain Python.

A line is an order or a price, `number kind key time amount`; files are in order of time, but for a bounded disorder.
What the program says depends on event time alone, so it is the same in every execution mode and at every parallelism:
windows of the amounts, each key's running total in order of time (state and timers), orders with the price in force
(two inputs), and how many records of a key have come (running results).
"""

from __future__ import annotations

import os
import random
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from penstock.base.time import Duration
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Configuration, Encoder, Types
from penstock.connectors.file.source import FileSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink, StreamFormat
from penstock.datastream.functions import KeyedCoProcessFunction, KeyedProcessFunction
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows

ORDER, PRICE = "order", "price"
DISORDER_MS = 2_000
STEP_MS = 100
WINDOW_MS = 10_000
WINDOWS, TOTALS, JOINED, COUNTS = "windows", "totals", "joined", "counts"
OUTPUTS = (WINDOWS, TOTALS, JOINED, COUNTS)
#: What phases of a series have in common, so that parallelism may change between them.
MAX_PARALLELISM = 16


class Event(NamedTuple):
    number: int
    kind: str
    key: int
    time: int
    amount: int


def events(first: int, count: int, keys: int) -> list[Event]:
    """Events of these numbers, always the same, with later ones up to the disorder ahead of earlier ones."""
    made = []
    for number in range(first, first + count):
        chance = random.Random(number)
        kind = PRICE if chance.random() < 0.2 else ORDER
        time = number * STEP_MS - chance.randrange(DISORDER_MS)
        made.append(Event(number, kind, chance.randrange(keys), time, chance.randrange(1, 100)))
    return made


def write(folder: Path, made: Iterable[Event]) -> None:
    """Add a file to the folder, which is there as a whole or not at all; files are named by their first number."""
    made = list(made)
    lines = "".join(" ".join(map(str, event)) + "\n" for event in made)
    hidden = folder.parent / f"{folder.name}-{made[0].number}"
    hidden.write_text(lines)
    os.replace(hidden, folder / f"{made[0].number:012d}.txt")


def parse(line: str) -> Event:
    number, kind, key, time, amount = line.split()
    return Event(int(number), kind, int(key), int(time), int(amount))


def get_event_time(event: Event, _: Any) -> int:
    return event.time


def select_key(event: Event) -> int:
    return event.key


def is_order(event: Event) -> bool:
    return event.kind == ORDER


def is_price(event: Event) -> bool:
    return event.kind == PRICE


def to_total(event: Event) -> tuple[int, int, int, int]:
    return event.key, event.time // WINDOW_MS, event.amount, 1


def first_of(pair: tuple[int, ...]) -> int:
    return pair[0]


def add(a: tuple[int, int, int, int], b: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    return a[0], a[1], a[2] + b[2], a[3] + b[3]


def counted(event: Event) -> tuple[int, int]:
    return event.key, 1


def add_counts(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return a[0], a[1] + b[1]


def text(values: Iterable[Any]) -> str:
    return " ".join(map(str, values))


class Totals(KeyedProcessFunction):
    """The running total of each key, record by record in order of time, whatever the order in which they come."""

    def open(self, runtime_context: Any) -> None:
        self.waiting = runtime_context.get_map_state(
            MapStateDescriptor("waiting", Types.LONG(), Types.PICKLED_BYTE_ARRAY())
        )
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Event, ctx: Any) -> None:
        self.waiting.put(value.time, [*(self.waiting.get(value.time) or []), (value.number, value.amount)])
        ctx.timer_service().register_event_time_timer(value.time)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[int, ...]]:
        total = self.total.value() or 0
        for number, amount in sorted(self.waiting.get(timestamp)):
            total += amount
            yield ctx.get_current_key(), number, total
        self.waiting.remove(timestamp)
        self.total.update(total)


class AtPrice(KeyedCoProcessFunction):
    """Each order with the price of its key that was in force at its time: the last one not later."""

    def open(self, runtime_context: Any) -> None:
        self.orders = runtime_context.get_map_state(
            MapStateDescriptor("orders", Types.LONG(), Types.PICKLED_BYTE_ARRAY())
        )
        self.prices = runtime_context.get_map_state(
            MapStateDescriptor("prices", Types.LONG(), Types.PICKLED_BYTE_ARRAY())
        )

    def process_element1(self, value: Event, ctx: Any) -> None:
        self._keep(self.orders, value, ctx)

    def process_element2(self, value: Event, ctx: Any) -> None:
        self._keep(self.prices, value, ctx)

    def _keep(self, state: Any, value: Event, ctx: Any) -> None:
        state.put(value.time, [*(state.get(value.time) or []), (value.number, value.amount)])
        ctx.timer_service().register_event_time_timer(value.time)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[int, ...]]:
        known = sorted(time for time in self.prices.keys() if time <= timestamp)  # noqa: SIM118 - a state, not a dict
        price = max(self.prices.get(known[-1]))[1] if known else 0
        for past in known[:-1]:
            self.prices.remove(past)
        for number, amount in sorted(self.orders.get(timestamp) or []):
            yield number, amount, price
        self.orders.remove(timestamp)


def environment(mode: str, parallelism: int, **settings: Any) -> StreamExecutionEnvironment:
    """An environment for one phase; settings with `__` for a dot and `_` for a dash."""
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items() if value is not None}
    base = {"execution.runtime-mode": mode, "pipeline.max-parallelism": MAX_PARALLELISM}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({**base, **named}))
    return env.set_parallelism(parallelism)


def build_source(folder: Path, grows: bool = True) -> FileSource:
    """The files of a folder; with those to come, when it `grows`."""
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(folder))
    return (source.monitor_continuously(Duration.of_millis(5)) if grows else source).build()


def build(env: StreamExecutionEnvironment, folder: Path, out: Path, source: Any = None, uid: str = "files") -> Any:
    """Add the program; gives the stream of its records."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(DISORDER_MS))
    lines = env.from_source(source or build_source(folder), WatermarkStrategy.no_watermarks(), "files").uid(uid)
    read = (
        lines.map(parse)
        .uid("parsed")
        .assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(get_event_time))
    )
    stream = read.uid("times")
    windows = stream.map(to_total).key_by(first_of).window(TumblingEventTimeWindows.of(Duration.of_millis(WINDOW_MS)))
    orders, prices = stream.filter(is_order).uid("orders"), stream.filter(is_price).uid("prices")
    results = {
        WINDOWS: windows.reduce(add),
        TOTALS: stream.key_by(select_key).process(Totals()),
        JOINED: orders.key_by(select_key).connect(prices.key_by(select_key)).process(AtPrice()),
        COUNTS: stream.map(counted).key_by(first_of).reduce(add_counts),
    }
    for name, result in results.items():
        result.uid(name).map(text).uid(f"text of {name}").sink_to(file_sink(out / name)).uid(f"{name} out")
    return stream


def file_sink(folder: Path) -> Any:
    """Lines, exactly once."""
    return FileSink.for_row_format(str(folder), Encoder.simple_string_encoder()).build()


def written(out: Path) -> dict[str, list[str]]:
    """What is visible of each output, sorted."""
    return {name: read_output_lines(out / name) for name in OUTPUTS}


def read_output_lines(folder: Path) -> list[str]:
    return sorted(line for file in folder.rglob("part-*") for line in file.read_text().splitlines())


def answer(made: Iterable[Event]) -> dict[str, list[str]]:
    """What the program comes to over these events, at the end of time, in plain Python."""
    windows: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    totals: Counter[int] = Counter()
    counts: Counter[int] = Counter()
    prices: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    found: dict[str, list[tuple[int, ...]]] = {name: [] for name in OUTPUTS}
    in_order = sorted(made, key=lambda event: (event.time, event.number))
    for event in in_order:
        if event.kind == PRICE:
            prices[event.key].append((event.time, event.number, event.amount))
    for event in in_order:
        window = windows[event.key, event.time // WINDOW_MS]
        window[0] += event.amount
        window[1] += 1
        totals[event.key] += event.amount
        counts[event.key] += 1
        found[TOTALS].append((event.key, event.number, totals[event.key]))
        found[COUNTS].append((event.key, counts[event.key]))
        if event.kind == ORDER:
            of_key = prices[event.key]
            place = bisect_right(of_key, (event.time + 1,))
            found[JOINED].append((event.number, event.amount, of_key[place - 1][2] if place else 0))
    found[WINDOWS] = [(key, window, *of_it) for (key, window), of_it in windows.items()]
    return {name: sorted(map(text, rows)) for name, rows in found.items()}
