"""The job that runs on the clusters of these tests, what it must come to, and when its records came out.

Beside the windows and timers of `tests.spec.kill_loop` it counts, by key, every eleventh record. It writes with each of
these ticks when its source made it, when it arrived behind the network, and where. So the files say for any moment when
the first record that was made after it was committed, how long records were under way, and which of them crossed over.
Run as a program, it is the job's driver: `python -m tests.clusters.job '{"folder": …}'`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from tests.spec import kill_loop

from penstock.common import Configuration, Duration, Encoder, WatermarkStrategy
from penstock.connectors.file.buckets import BucketAssigner
from penstock.connectors.file.sink import FileSink
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows

PARALLELISM = 2
#: Every which record is a tick, which comes out one by one; odd, so that ticks come from both subtasks.
TICK = 11
TICKS = '["tick"'

#: key, value, timestamp (ms), index, when it was made (µs of the wall clock), what else it carries
Event = tuple[str, int, int, int, int, str]


@dataclasses.dataclass(frozen=True)
class Tick:
    """One record as it came out. `made_us`, `arrived_us`: by the wall clock; `subtask`: where it arrived."""

    key: str
    number: int
    index: int
    made_us: int
    arrived_us: int
    subtask: int

    @property
    def crossed(self) -> bool:
        """Whether it came from the other subtask, which is on another host."""
        return self.index % PARALLELISM != self.subtask


def ticks_of(lines: Iterable[str]) -> list[Tick]:
    """The ticks among committed lines."""
    return [Tick(*json.loads(line)[1:]) for line in lines if line.startswith(TICKS)]


def now_us() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000


class Events:
    """The record of an index, for a source. `load`: is carried along by each record."""

    def __init__(self, load: str) -> None:
        self._load = load

    def __call__(self, index: int) -> Event:
        return (*kill_loop.event_of(index), index, now_us(), self._load)


class Numbered(KeyedProcessFunction):
    """A key's ticks with their numbers, from 1."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("ticks"))
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Event, ctx: Any) -> Iterable[str]:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        tick = Tick(value[0], number, value[3], value[4], now_us(), self.subtask)
        yield json.dumps(["tick", *dataclasses.astuple(tick)])


def build(env: StreamExecutionEnvironment, records: int, rate: float | None, out: str, load: str = "") -> None:
    """Windows, timers and ticks over one keyed stream, into one exactly-once file sink."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(60)).with_timestamp_assigner(
        lambda event, _: event[2]
    )
    source = DataGeneratorSource(Events(load), count=records, rate_per_second=rate)
    events = env.from_source(source, strategy, "events")
    keyed = events.key_by(lambda e: e[0])
    windows = (
        keyed.window(TumblingEventTimeWindows.of(kill_loop.WINDOW_MS))
        .reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2])))
        .map(lambda e: json.dumps(["window", e[0], e[2] // kill_loop.WINDOW_MS, e[1]]))
    )
    slots = keyed.process(kill_loop.CountBySlot())
    ticks = events.filter(lambda e: e[3] % TICK == 0).key_by(lambda e: e[0]).process(Numbered())
    sink = (
        FileSink.for_row_format(out, Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
    windows.union(slots, ticks).sink_to(sink)


def check_output(records: int, out: Path) -> None:
    """Raise `AssertionError` if what was committed is not what plain Python gives, each record once."""
    got = kill_loop.committed(str(out))
    ticks = ticks_of(got.elements())
    rest = Counter({line: count for line, count in got.items() if not line.startswith(TICKS)})
    missing, extra = (want := kill_loop.expected(records)) - rest, rest - want
    if missing or extra:
        raise AssertionError(
            f"{missing.total()} lines missing, {extra.total()} too many: {list(missing)[:3]} {list(extra)[:3]}"
        )
    want_ticks = [(index, kill_loop.event_of(index)[0]) for index in range(0, records, TICK)]
    if sorted((tick.index, tick.key) for tick in ticks) != want_ticks:
        raise AssertionError(f"{len(ticks)} ticks are not each of the {len(want_ticks)} once")
    counts: Counter[str] = Counter(key for _, key in want_ticks)
    numbers = {(tick.key, tick.number) for tick in ticks}
    if numbers != {(key, number) for key, count in counts.items() for number in range(1, count + 1)}:
        raise AssertionError("the ticks of a key are not numbered from 1 on, each once")


class Commits:
    """What has been committed, read again and again."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._seen: set[str] = set()
        #: of each file with ticks: when it was committed, and when the last of its records was made (s)
        self.files: list[tuple[float, float]] = []
        self.ticks: list[Tick] = []

    def look(self) -> None:
        """Take in what is new."""
        if not self._out.is_dir():
            return
        for entry in os.scandir(self._out):
            if entry.name in self._seen or entry.name.startswith((".", "_")) or not entry.is_file():
                continue
            self._seen.add(entry.name)
            ticks = ticks_of(Path(entry.path).read_text().splitlines())
            if ticks:
                self.files.append((entry.stat().st_ctime, max(tick.made_us for tick in ticks) / 1_000_000))
                self.ticks += ticks

    def first_after(self, moment_s: float) -> float | None:
        """When the first record was committed that was made after a moment; None if none was yet."""
        return min((committed for committed, made in self.files if made > moment_s), default=None)


# --- the driver -------------------------------------------------------------------------------------------------------


def build_settings(folder: str, mode: str, master: str, rate: float | None, more: dict[str, str]) -> dict[str, str]:
    """The configuration of a driver."""
    return {
        "execution.runtime-mode": mode,
        "execution.checkpointing.dir": f"{folder}/checkpoints",
        "execution.checkpointing.interval": "200 ms",
        "execution.micro-batch.interval": "200 ms",
        **({"execution.micro-batch.max-records": str(int(rate))} if rate else {}),  # of each subtask
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "100000",
        "restart-strategy.fixed-delay.delay": "100 ms",
        "parallelism.default": str(PARALLELISM),
        "spark.master": master,
        **more,
    }


def say(what: str, **more: object) -> None:
    """Tell the one who watches this driver, on stdout."""
    print(json.dumps({"what": what, "at_s": time.time(), **more}), flush=True)


def tell_of_spark(executors: int) -> None:
    """Say when Spark is up, and when it has that many executors."""
    from pyspark import SparkContext

    while getattr(context := SparkContext._active_spark_context, "_jsc", None) is None:
        time.sleep(0.02)
    say("spark")
    try:
        while context._jsc.sc().getExecutorMemoryStatus().size() <= executors:  # type: ignore[union-attr]
            time.sleep(0.02)
    except Exception as error:  # noqa: BLE001 - the job has ended, and Spark with it
        say("error", error=repr(error))
        return
    say("executors")


def main() -> None:
    """Run the job to its end."""
    given = json.loads(sys.argv[1])
    folder, mode, rate = given["folder"], given["mode"], given["rate"]
    settings = build_settings(folder, mode, given["master"], rate, given["settings"])
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    build(env, given["records"], rate if mode == "STREAMING" else None, f"{folder}/out", given.get("load", ""))
    threading.Thread(target=tell_of_spark, args=(PARALLELISM,), daemon=True).start()
    say("begins")
    job = env.execute_async("on a cluster")
    result = job.get_job_execution_result()
    known: object = None
    while not result.done():
        try:
            progress = job.get_progress().result()
        except CancelledError:
            break  # it ended just now
        now = progress.status, progress.restarts, progress.workers
        if now != known:
            known = now
            say("progress", status=progress.status, restarts=progress.restarts, workers=progress.workers)
        time.sleep(0.05)
    result.result()
    say("ended")


if __name__ == "__main__":
    main()
