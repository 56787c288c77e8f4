"""Stop a job with a savepoint again and again, go on from it each time, and compare with a run that nobody stopped.

`python -m tests.spec.stop_and_resume --rounds 5` replays the demo's flights on Spark. Each round stops the job at a
random moment and starts another one from the savepoint, which goes on writing into the same folders. With `--drain` the
last stop is the end of all: every window and timer must have fired for the flights that were read, and for no others.
With `--kill` each stop loses a worker to SIGKILL a moment before or after it is asked for; a stop that fails is asked
for again. The seed makes the moments the same again, in flights and seconds (the rest is the machine's).
With `--parallelisms 1,4,2,3,1` each job of the row has the next parallelism, and with `--backend` keyed state lives in
memory, in RocksDB, or in each by turns, for a savepoint can be read by both. The uninterrupted run has 2 and the heap.

One job holds the demo's program twice, each time with a source of its own. *Punctual* is as the demo has it: flights
later than six hours may miss their window and go to side outputs, and which ones do is the readers' race, so windows
and side outputs are compared together. *Patient* waits for a day, which is longer than any flight was late, so its
rows are the same in any right run and are compared one by one. What each source hands out goes to a sink as well: these
rows say what was read without asking a window, and after each stop they must be what the savepoint's positions say.
"""

from __future__ import annotations

import csv
import functools
import itertools
import logging
import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest import mock

import click
from rich import box
from rich.console import Console
from rich.table import Table

from penstock.base.errors import CheckpointError
from penstock.base.typeinfo import TypeInformation
from penstock.cli.demo import program
from penstock.cli.demo import program as plain_python
from penstock.cli.demo.flights import Flights, prepare
from penstock.cli.demo.program import Answer, differences, read_output
from penstock.common import Configuration, Duration, WatermarkStrategy
from penstock.connectors.file.part_files import is_pins
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.connectors import BucketAssigner, FileSink, OutputFileConfig
from penstock.datastream.formats.csv import CsvWriterFactory
from penstock.drivers.running_job import RunningJob
from penstock.runtime.connector import InputStatus, Source
from penstock.runtime.job.view import JobProgress
from penstock.runtime.operators.connector import SPLITS_STATE
from penstock.runtime.records import Batch
from penstock.state.snapshot import read_operator
from penstock.storage.file_store import FileCheckpointStore
from penstock.testing.connectors import ReaderHost

PUNCTUAL, PATIENT = "punctual", "patient"
#: How long the watermark of each copy of the program waits, in hours; no flight left more than 22 hours late.
WAITS: Final = {PUNCTUAL: 6, PATIENT: 24}
CONSUMED: Final = "consumed"
COLUMNS: Final = ["origin", "carrier", "time_hour", "minute", "dep_delay"]

POLL_S: Final = 0.05
PATIENCE_S: Final = 120.0
#: A worker is killed so many seconds before a stop is asked for, at most, or so many after; a stop takes about 0.1 s.
KILL_BEFORE_S: Final = 0.5
KILL_AFTER_S: Final = 0.1
#: The same for all jobs, for it says how keyed state is cut.
MAX_PARALLELISM: Final = 128
#: The share of stops that are asked for as soon as the job is submitted.
AT_ONCE: Final = 0.2

Row = tuple[str, ...]

#: What `--backend` may be, and the state backends that the jobs of a row have by turns.
BACKENDS: Final = {"hashmap": ("hashmap",), "rocksdb": ("rocksdb",), "alternate": ("hashmap", "rocksdb")}


@dataclass(frozen=True)
class Shape:
    """What may be another from one job of a row to the next."""

    parallelism: int = 2
    backend: str = "hashmap"

    def __str__(self) -> str:
        return f"{self.parallelism} {self.backend}"


def shapes_of(jobs: int, parallelisms: Sequence[int], backend: str) -> list[Shape]:
    """The shapes of so many jobs, the parallelisms from the first again when there are more jobs than that."""
    chain = zip(itertools.cycle(parallelisms), itertools.cycle(BACKENDS[backend]), strict=False)
    return [Shape(*both) for both in itertools.islice(chain, jobs)]


# --- the job --------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=20_000)
def _hour_name(timestamp_ms: int) -> str:
    return program.hour_name(timestamp_ms)


def as_row(flight: program.Flight) -> Row:
    """A flight in `COLUMNS`, spelt as in the file it came from."""
    origin, carrier, hour_ms, minute, delay = flight
    return origin, carrier, _hour_name(hour_ms), str(minute), "NA" if delay is None else str(delay)


class TappedEnvironment(StreamExecutionEnvironment):
    """Writes what its source hands out to `tap`, beside what the program does with it."""

    def __init__(self, configuration: Configuration, tap: Path) -> None:
        super().__init__(configuration)
        self.tap = tap

    def from_source(
        self,
        source: Source[Any, Any],
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: TypeInformation | None = None,
    ) -> DataStream:
        stream = super().from_source(source, watermark_strategy, source_name_of(self.tap), type_info)
        sink: FileSink[Row] = (
            FileSink.for_bulk_format(self.tap, CsvWriterFactory(COLUMNS, header=True))
            .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
            .with_output_file_config(OutputFileConfig(part_suffix=".csv"))
            .build()
        )
        stream.map(as_row).sink_to(sink)
        return stream


def source_name_of(tap: Path) -> str:
    """What the source of one copy of the program is called in a savepoint."""
    return f"flights of {tap.parent.name}"


def build(env: TappedEnvironment, departures: Path, output: Path, per_second: float | None) -> None:
    """The demo's program, once for each of `WAITS`."""
    for name, hours in WAITS.items():
        env.tap = output / name / CONSUMED
        with mock.patch.object(program, "OUT_OF_ORDERNESS", Duration.of_hours(hours)):
            program.build(env, departures, output / name, per_second)


# --- what is compared -----------------------------------------------------------------------------------------------


def rows(folder: Path) -> Counter[Row]:
    """The rows that a reader of a folder sees."""
    found: Counter[Row] = Counter()
    for path in folder.glob("[!._]*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            found.update(map(tuple, list(csv.reader(file))[1:]))
    return found


def all_flights(original: Path) -> Counter[Row]:
    """All flights, from the file as the package has it."""
    with original.open(encoding="utf-8", newline="") as file:
        return Counter(tuple(flight[column] for column in COLUMNS) for flight in csv.DictReader(file))


def left_over(savepoint: str, departures: Path, source_name: str) -> Counter[Row]:
    """What a job that begins from a savepoint still has to read, by the source's state in it."""
    store = FileCheckpointStore(None, "", 0)
    operator = next(o for o in store.load(savepoint).operators if o.name == source_name)
    assert operator.coordinator is not None
    splits: list[Any] = list(pickle.loads(store.read(operator.coordinator))["pending"])
    for subtask in operator.subtasks.values():
        for handle in subtask.operator.get(SPLITS_STATE, ()):
            splits += read_operator(store.read(handle.file))
    reader = program._source(departures, None).create_reader(ReaderHost())
    reader.add_splits(splits)
    reader.no_more_splits()
    reader.start()
    left: Counter[Row] = Counter()
    while (polled := reader.poll_next(4_096)) is not InputStatus.END_OF_INPUT:
        if isinstance(polled, Batch):
            left.update(map(as_row, polled.values))
    reader.close()
    return left


def unequal(what: str, got: Counter[Row], want: Counter[Row]) -> list[str]:
    """A line when two multisets differ."""
    if got == want:
        return []
    missing, extra = want - got, got - want
    some = [f"missing {row}" for row in list(missing)[:3]] + [f"too many {row}" for row in list(extra)[:3]]
    return [f"{what}: {missing.total():,} rows missing, {extra.total():,} too many: {'; '.join(some)}"]


def half_written(output: Path, has_killed: bool = False) -> list[str]:
    """A line when files are there that no reader sees, but for those that say what a savepoint names.

    What a worker had closed that was killed may be there too: a checkpoint might name it (docs/files.md).
    """
    hidden = [path.name for path in output.rglob(".*") if path.is_file() and not is_pins(path.name)]
    if has_killed:
        hidden = [name for name in hidden if ".closed." not in name]
    return [f"{len(hidden)} files were not committed: {hidden[:3]}"] if hidden else []


def to_expected_rows(answer: Answer) -> dict[str, Counter[Row]]:
    """The rows that the patient copy writes for an answer."""
    return {
        program.HOURLY: Counter((*key, *map(str, figures)) for key, figures in answer.hourly.items()),
        program.WORST: Counter((*key, str(delay)) for key, delay in answer.worst.items()),
        program.LATE_FOR_HOUR: Counter(),
        program.LATE_FOR_DAY: Counter(),
    }


def compare_with_plain(output: Path, flights: Flights, drained: bool, has_killed: bool = False) -> list[str]:
    """Compare the output with plain Python over all flights, or over those that were read if the job was drained."""
    found = half_written(output, has_killed)
    everything = all_flights(flights.original)
    for name in WAITS:
        consumed = rows(output / name / CONSUMED)
        if drained:
            found += unequal(f"{name}: flights that do not exist", consumed - everything, Counter())
        else:
            found += unequal(f"{name}: flights read", consumed, everything)
        read = output.with_name(f"{name}-{CONSUMED}.csv")
        with read.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(consumed.elements())
        answer = plain_python.answer(read)
        found += [f"{name}: {line}" for line in differences(read_output(output / name), answer)[:5]]
        if name == PATIENT:
            for what, want in to_expected_rows(answer).items():
                found += unequal(f"{name}: {what}", rows(output / name / what), want)
    return found


def compare_with_run(output: Path, uninterrupted: Path) -> list[str]:
    """Compare the output with that of a job that nobody stopped."""
    found = differences(read_output(output / PUNCTUAL), read_output(uninterrupted / PUNCTUAL))[:5]
    for name in WAITS:
        found += unequal(f"{name}: flights read", rows(output / name / CONSUMED), rows(uninterrupted / name / CONSUMED))
    for what in program.COLUMNS:
        found += unequal(f"{PATIENT}: {what}", rows(output / PATIENT / what), rows(uninterrupted / PATIENT / what))
    return found


# --- stopping and going on ------------------------------------------------------------------------------------------


@dataclass
class Stop:
    """How a stop went; `committed` counts the flights of all jobs so far."""

    wanted_after: int
    drain: bool
    shape: Shape
    asked: int = 0
    kills: int = 0
    restarts: int = 0
    committed: int = 0
    seconds: float = 0.0
    path: str = ""
    refused: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


class Series:
    """Jobs one after the other, each from the savepoint with which the one before was stopped.

    Args:
        flights: the input.
        folder: for output, checkpoints and savepoints.
        chance: draws the moments of kills.
        settings: of every job, in place of these; None for none.
        store: for checkpoints and savepoints, if they do not lie in the folder.
    """

    def __init__(
        self,
        flights: Flights,
        folder: Path,
        chance: random.Random,
        settings: dict[str, Any] | None = None,
        store: Path | None = None,
    ) -> None:
        self.flights = flights
        self.output = folder / "output"
        self.left = flights.count
        store = store or folder
        self._savepoints = store / "savepoints"
        self._everything = all_flights(flights.original)
        defaults = {
            "pipeline.max-parallelism": MAX_PARALLELISM,
            "execution.checkpointing.interval": 500,
            "execution.checkpointing.dir": str(store / "checkpoints"),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": 100,
            "restart-strategy.fixed-delay.delay": "200 ms",
        }
        self._settings = {k: v for k, v in {**defaults, **(settings or {})}.items() if v is not None}
        self._chance = chance
        self._path: str | None = None
        self._shape = Shape()
        self._local = folder / "rocksdb"
        #: whether a worker was killed
        self.has_killed = False
        self._jobs = 0

    def start(self, per_second: float | None, shape: Shape | None = None) -> RunningJob:
        """Start the next job, from the last savepoint if there is one."""
        self._shape = shape or Shape()
        self._jobs += 1
        settings = {
            **self._settings,
            "parallelism.default": self._shape.parallelism,
            "state.backend.type": self._shape.backend,
            "state.backend.rocksdb.localdir": str(self._files_of_rocksdb()),
        }
        if self._path is not None:
            settings["execution.state-recovery.path"] = self._path
        env = TappedEnvironment(Configuration.from_dict(settings), self.output)
        build(env, self.flights.departures, self.output, per_second)
        return env.execute_async("stop and resume")

    def stop(self, job: RunningJob, after: int, drain: bool = False, kills: bool = False) -> Stop:
        """Stop a job when each of its sources has handed out so many flights; ask until it has stopped.

        Raises:
            JobExecutionError: if the job failed.
            TimeoutError: if it neither stopped nor said why not.
        """
        stop = Stop(after, drain, self._shape)
        if after:
            _wait_for(job, lambda progress: progress.source_records >= after * len(WAITS))
        begun = time.monotonic()
        while not stop.path:
            kill_at_s = self._chance.choice((-KILL_BEFORE_S, KILL_AFTER_S)) * self._chance.random()
            try:
                stop.path = self._ask(job, stop, kill_at_s if kills and not stop.kills else None).result(PATIENCE_S)
            except CheckpointError as refusal:
                stop.refused.append(str(refusal))
                if job.get_job_execution_result().done() or len(stop.refused) > 3:
                    raise
        job.get_job_execution_result().result(PATIENCE_S)
        stop.seconds = time.monotonic() - begun
        self._path = stop.path
        self._check(stop)
        return stop

    def _ask(self, job: RunningJob, stop: Stop, kill_at_s: float | None) -> Future[str]:
        """Ask for the stop, and kill a worker so many seconds after that, or before it."""
        stop.asked += 1
        if kill_at_s is not None and kill_at_s < 0:
            self._kill(job, stop)
            time.sleep(-kill_at_s)
        with suppress(CancelledError):
            stop.restarts = job.get_progress().result(PATIENCE_S).restarts
        stopped = job.stop_with_savepoint(stop.drain, str(self._savepoints))
        if kill_at_s is not None and kill_at_s >= 0:
            with suppress(FutureTimeoutError, CheckpointError):
                stopped.result(kill_at_s)
            if not stopped.done():
                self._kill(job, stop)
        while not stopped.done():
            with suppress(CancelledError):
                stop.restarts = job.get_progress().result(PATIENCE_S).restarts
            time.sleep(POLL_S)
        return stopped

    def _kill(self, job: RunningJob, stop: Stop) -> None:
        with suppress(CancelledError, ProcessLookupError):  # it has just ended
            while not (workers := job.get_progress().result(PATIENCE_S).workers):
                time.sleep(POLL_S)
            os.kill(self._chance.choice(workers)[2], signal.SIGKILL)
            stop.kills += 1
            self.has_killed = True

    def _files_of_rocksdb(self) -> Path:
        """The directory that the last job's workers make if their keyed state lives in RocksDB."""
        return self._local / str(self._jobs)

    def backend_differences(self) -> list[str]:
        """A line when the last job, which has ended, had another backend than it was to have."""
        found = "rocksdb" if self._files_of_rocksdb().exists() else "hashmap"
        return [] if found == self._shape.backend else [f"the backend was {found}, not {self._shape.backend}"]

    def _check(self, stop: Stop) -> None:
        """All that the savepoint covers is committed, and nothing else; the job had the shape that it was to have."""
        stop.differences += half_written(self.output, self.has_killed) + self.backend_differences()
        operators = FileCheckpointStore(None, "", 0).load(stop.path).operators
        found = {(operator.parallelism, operator.max_parallelism) for operator in operators}
        if found != (wanted := {(self._shape.parallelism, MAX_PARALLELISM)}):
            stop.differences.append(f"parallelism and its maximum were {found}, not {wanted}")
        for name in WAITS:
            tap = self.output / name / CONSUMED
            left = left_over(stop.path, self.flights.departures, source_name_of(tap))
            committed = rows(tap)
            stop.differences += unequal(f"{name}: committed at the stop", committed, self._everything - left)
            stop.committed = committed.total()
            self.left = left.total()


def _wait_for(job: RunningJob, condition: Callable[[JobProgress], bool]) -> None:
    result = job.get_job_execution_result()
    while not result.done():
        with suppress(CancelledError):
            if condition(job.get_progress().result(PATIENCE_S)):
                return
        time.sleep(POLL_S)
    result.result()
    raise AssertionError("the job came to its end before it was to be stopped: give it a lower rate")


# --- the command ----------------------------------------------------------------------------------------------------


def _table(stops: Iterable[Stop]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    headers = ("stop", "job", "after flights", "committed in all", "kills", "asked", "restarts", "s", "output")
    for header in headers:
        table.add_column(header, justify="right")
    for number, stop in enumerate(stops, 1):
        table.add_row(
            f"{number}{', drained' if stop.drain else ''}",
            str(stop.shape),
            f"{stop.wanted_after:,}" if stop.wanted_after else "at once",
            f"{stop.committed:,}",
            str(stop.kills),
            str(stop.asked),
            str(stop.restarts),
            f"{stop.seconds:.1f}",
            "[bold red]differs[/]" if stop.differences else "[green]=[/]",
        )
    return table


def run(
    console: Console,
    folder: Path,
    shapes: Sequence[Shape],
    per_second: float,
    chance: random.Random,
    drain: bool,
    kills: bool,
) -> bool:
    """Do it all, with jobs of these shapes; True when the output was equal every time."""
    rounds = len(shapes) if drain else len(shapes) - 1

    def busy(what: str) -> Any:
        if console.is_terminal:
            return console.status(what)
        console.print(what)
        return nullcontext()

    with busy("unpacking the flights, starting Spark"):
        flights = prepare(folder / "input")
        whole = Series(flights, folder / "uninterrupted", chance)
    if not drain:
        begun = time.monotonic()
        with busy("an uninterrupted run"):
            whole.start(None).wait()
        console.print(f"uninterrupted run: {flights.count:,} flights in {time.monotonic() - begun:.0f} s")
    series = Series(flights, folder, chance)
    stops: list[Stop] = []
    for number in range(1, rounds + 1):
        fair = series.left // (rounds + 2 - number)  # what is left for this job, so that the others get as much
        shape = shapes[number - 1]
        at_once = chance.random() < AT_ONCE and (number > 1 or len(set(shapes)) == 1)  # or nothing is there to rescale
        after = 0 if at_once else int(chance.uniform(0.2, 0.9) * fair)
        with busy(f"stop {number} of {rounds}, after {after:,} flights ({shape})"):
            stop = series.stop(series.start(per_second, shape), after, drain and number == rounds, kills)
        stops.append(stop)
        for line in stop.refused:
            console.print(f"  asked again: {line}", markup=False, highlight=False, soft_wrap=True)
    if not drain:
        with busy(f"the last job, to the end ({shapes[-1]})"):
            series.start(per_second, shapes[-1]).wait()
    with busy("comparing"):
        found = [f"stop {number}: {line}" for number, stop in enumerate(stops, 1) for line in stop.differences]
        found += [
            f"plain Python: {line}" for line in compare_with_plain(series.output, flights, drain, series.has_killed)
        ]
        if not drain:
            found += [f"the last job: {line}" for line in series.backend_differences()]
            found += [f"uninterrupted run: {line}" for line in compare_with_run(series.output, whole.output)]
    console.print(_table(stops))
    for line in found:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    compared = sum(rows(path).total() for path in series.output.glob("*/*"))
    against = "plain Python over the flights that were read" if drain else "the uninterrupted run and plain Python"
    verdict = f"[bold red]different[/] in {len(found)} places" if found else f"[bold green]equal[/] to {against}"
    console.print(f"{len(stops)} stops, {sum(s.kills for s in stops)} kills, {compared:,} rows: {verdict}")
    return not found


def _numbers(context: click.Context, parameter: click.Parameter, value: str | None) -> list[int]:
    """What `--parallelisms` says."""
    try:
        numbers = [int(number) for number in value.split(",")] if value is not None else []
    except ValueError:
        numbers = [0]
    if any(not 1 <= number <= MAX_PARALLELISM for number in numbers):
        raise click.BadParameter(f"expected numbers from 1 to {MAX_PARALLELISM}, separated by commas")
    return numbers


@click.command()
@click.option("--rounds", type=click.IntRange(1), help="How often the job is stopped; 5 where nothing else says it.")
@click.option(
    "--parallelisms", callback=_numbers, help="Of the jobs one after another, as 1,4,2,3,1; 2 for all if not given."
)
@click.option(
    "--backend", type=click.Choice([*BACKENDS]), default="hashmap", show_default=True, help="Where keyed state lives."
)
@click.option("--rate", default=8_000.0, show_default=True, help="Flights a second that each source hands out.")
@click.option("--seed", default=None, type=int, help="Makes the moments of stops and kills the same again.")
@click.option("--drain", is_flag=True, help="Stop the last time with drain, instead of going on to the end.")
@click.option("--kill", is_flag=True, help="Kill a worker around each stop.")
def main(
    rounds: int | None,
    parallelisms: list[int],
    backend: str,
    rate: float,
    seed: int | None,
    drain: bool,
    kill: bool,
) -> None:
    """Stop and resume, and compare the output."""
    begun = time.monotonic()
    last = 0 if drain else 1  # a job that is not stopped
    jobs = rounds + last if rounds is not None else max(len(parallelisms), 1 + last) if parallelisms else 5 + last
    shapes = shapes_of(jobs, parallelisms or [Shape.parallelism], backend)
    seed = int(time.time()) if seed is None else seed
    console = Console(width=None if sys.stdout.isatty() else 120)
    logging.basicConfig(level=logging.WARNING, format="  %(message)s")  # failures and restarts
    console.print(f"seed {seed}")
    folder = Path(tempfile.mkdtemp(prefix="penstock-stops-"))
    is_equal = False
    try:
        is_equal = run(console, folder, shapes, rate, random.Random(seed), drain, kill)
    finally:
        if is_equal:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            console.print(f"what was written is in {folder}", soft_wrap=True)
    console.print(f"{time.monotonic() - begun:.0f} s in all")
    sys.exit(0 if is_equal else 1)


if __name__ == "__main__":
    from tests.spec import stop_and_resume  # what workers unpickle must be found by this name

    stop_and_resume.main()
