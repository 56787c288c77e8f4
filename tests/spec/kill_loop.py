"""Kill workers with SIGKILL at random moments and compare what was committed with a plain Python computation.

`python -m tests.spec.kill_loop --kills 20` goes on with new jobs until so many workers were killed; the seed that it
prints makes the moments of the kills the same again (the moments of everything else are the machine's). With
`--store s3` checkpoints and output are in a server that speaks S3, and with gs, abfs or webhdfs in one of
`tests.servers.object_stores`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click
import fsspec
from tests.servers.object_stores import object_store
from tests.servers.s3 import s3_server
from tests.stores import STORES

from penstock.common import Configuration, Duration, Encoder, RestartStrategies, WatermarkStrategy
from penstock.connectors.file.buckets import BucketAssigner
from penstock.connectors.file.sink import FileSink
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows

KEYS = 97
WINDOW_MS = 500
SLOT_MS = 1_000

Event = tuple[str, int, int]


def event_of(index: int) -> Event:
    """(key, value, timestamp ms), a little out of order."""
    return (f"k{index * 31 % KEYS}", index % 13, index + (index * 7919) % 50)


class CountBySlot(KeyedProcessFunction):
    """A key's records since the beginning, reported at the end of every slot in which it had any."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Event, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(value[2] // SLOT_MS * SLOT_MS + SLOT_MS - 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[str]:
        yield json.dumps(["slot", ctx.get_current_key(), timestamp])


def build(env: StreamExecutionEnvironment, records: int, rate: float | None, out: str) -> None:
    """Windows and timers over the same keyed stream, into one exactly-once file sink."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(60)).with_timestamp_assigner(
        lambda event, _: event[2]
    )
    source = DataGeneratorSource(event_of, count=records, rate_per_second=rate)
    keyed = env.from_source(source, strategy, "events").key_by(lambda e: e[0])
    windows = (
        keyed.window(TumblingEventTimeWindows.of(WINDOW_MS))
        .reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2])))
        .map(lambda e: json.dumps(["window", e[0], e[2] // WINDOW_MS, e[1]]))
    )
    slots = keyed.process(CountBySlot())
    sink = (
        FileSink.for_row_format(out, Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
    windows.union(slots).sink_to(sink)


def expected(records: int) -> Counter[str]:
    """The same, in plain Python."""
    windows: dict[tuple[str, int], int] = defaultdict(int)
    slots = set()
    for index in range(records):
        key, value, timestamp = event_of(index)
        windows[(key, timestamp // WINDOW_MS)] += value
        slots.add((key, timestamp // SLOT_MS * SLOT_MS + SLOT_MS - 1))
    lines = Counter(json.dumps(["window", key, window, total]) for (key, window), total in windows.items())
    lines.update(json.dumps(["slot", key, slot]) for key, slot in slots)
    return lines


def committed(out: str) -> Counter[str]:
    """What readers of the output see."""
    lines: Counter[str] = Counter()
    fs, root = fsspec.core.url_to_fs(out)
    fs.invalidate_cache()
    for path in fs.find(root):
        if not any(part.startswith((".", "_")) for part in path.removeprefix(root).split("/")):
            lines.update(fs.cat_file(path).decode().splitlines())
    return lines


@contextlib.contextmanager
def local_folder() -> Iterator[str]:
    """A directory of this machine for one job."""
    with tempfile.TemporaryDirectory(prefix="penstock-kills-") as folder:
        yield folder


def check_output(records: int, out: str, kills: int) -> None:
    """Raise `AssertionError` when what was committed is not what plain Python gives."""
    want, got = expected(records), committed(out)
    if want != got:
        missing, extra = want - got, got - want
        raise AssertionError(
            f"after {kills} kills: {missing.total()} lines missing, {extra.total()} too many; "
            f"{list(missing)[:3]} {list(extra)[:3]}"
        )


def run_with_kills(
    chance: random.Random,
    kills_max: int,
    records: int,
    rate: float,
    pause_s: tuple[float, float] = (1.0, 4.0),
    settings: Configuration | None = None,
    place: Callable[[], AbstractContextManager[str]] = local_folder,
) -> tuple[int, int]:
    """Run one job, killing a worker now and then; returns (kills, restarts). Raises when the output differs.

    `place` gives it a new folder.
    """
    with place() as folder:
        configuration = Configuration()
        configuration.add_all(settings or Configuration())
        configuration.set_string("execution.checkpointing.dir", f"{folder}/checkpoints")
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(2).enable_checkpointing(500)
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1_000, 100))
        build(env, records, rate, f"{folder}/out")
        job = env.execute_async("kill loop")
        result = job.get_job_execution_result()
        kills = restarts = 0
        while not result.done():
            time.sleep(chance.uniform(*pause_s))
            if result.done():
                break
            try:
                progress = job.get_progress().result()
            except CancelledError:
                break  # the job ended just now
            restarts = progress.restarts
            if kills < kills_max and progress.workers:
                _, _, process_id = chance.choice(progress.workers)
                with contextlib.suppress(ProcessLookupError):  # it ended just now
                    os.kill(process_id, signal.SIGKILL)
                    kills += 1
        result.result()
        check_output(records, f"{folder}/out", kills)
        return kills, restarts


@click.command()
@click.option("--kills", default=20, show_default=True, help="Workers to kill in all.")
@click.option("--records", default=200_000, show_default=True, help="Records a job.")
@click.option("--rate", default=15_000.0, show_default=True, help="Records a second.")
@click.option("--store", type=click.Choice(STORES), default="local", show_default=True)
@click.option("--seed", default=None, type=int, help="Makes the moments of the kills the same again.")
def main(kills: int, records: int, rate: float, store: str, seed: int | None) -> None:
    """Kill workers, and compare the output every time."""
    if store == "s3":
        with s3_server() as server:
            loop(kills, records, rate, seed, lambda: contextlib.nullcontext(server.new_bucket()))
    elif store == "local":
        loop(kills, records, rate, seed, local_folder)
    else:
        with tempfile.TemporaryDirectory() as folder, object_store(store, Path(folder, "store")) as server:
            loop(kills, records, rate, seed, lambda: contextlib.nullcontext(server.new_bucket()))


def loop(
    kills: int, records: int, rate: float, seed: int | None, place: Callable[[], AbstractContextManager[str]]
) -> None:
    """Run jobs until so many workers were killed."""
    seed = int(time.time()) if seed is None else seed
    print(f"seed {seed}")
    chance = random.Random(seed)
    done = jobs = 0
    while done < kills:
        begun = time.monotonic()
        killed, restarts = run_with_kills(chance, kills - done, records, rate, place=place)
        done += killed
        jobs += 1
        print(
            f"job {jobs}: {killed} workers killed, {restarts} restarts, {time.monotonic() - begun:.0f} s: output equal",
            flush=True,
        )
    print(f"{done} kills in {jobs} jobs: the committed output was equal every time")


if __name__ == "__main__":
    main()
