"""One job in three execution modes: a batch over the history, streaming, runs of what is there; compared in the end.

`python -m tests.spec.backfill` writes a history as files into a folder and fills the state of `backfill_program` from
it in one batch on Spark. Streaming goes on from the savepoint while small files come, and says how long a record took
from its file's turning up to the end of the program. Stopped with a savepoint, the job goes on in micro-batches, one
run after another, each begun when files have come; the last one drains. What all of them have written must be what one
streaming job writes that reads it all, and what plain Python says.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import click
from rich import box
from rich.console import Console
from rich.table import Table
from tests.spec import backfill_program as program
from tests.spec.stop_and_resume import BACKENDS

SEEN: Final = "seen"
#: Records of a file: in the history, while the job streams, and those that a run of what is there finds.
HISTORY_FILE, LIVE_FILE, RUN_FILE = 10_000, 20, 1_000
LIVE_PERIOD_S: Final = 0.05
POLL_S: Final = 0.1
PATIENCE_S: Final = 120.0


def seen(event: program.Event) -> tuple[int, int]:
    """When (ms) a record came to the end of the program."""
    return event.number, time.time_ns() // 1_000_000


@dataclass
class Phase:
    """How a phase went."""

    name: str
    parallelism: int
    backend: str
    records: int = 0
    seconds: float = 0.0
    note: str = ""


class Series:
    """The phases, each from what the one before has left."""

    def __init__(self, folder: Path, target: str, parallelisms: list[int], backend: str, keys: int) -> None:
        self.folder = folder
        self.input = folder / "in"
        self.input.mkdir(parents=True)
        self.out = folder / "out"
        self.count = 0
        self.phases: list[Phase] = []
        #: the number of a record to the time (ms) at which its file was there
        self.written_ms: dict[int, int] = {}
        self._target = target
        self._shapes = zip(itertools.cycle(parallelisms), itertools.cycle(BACKENDS[backend]), strict=False)
        self.keys = keys
        self._path: str | None = None
        self._shape: tuple[int, str] = (0, "")

    def grow(self, records: int, file_records: int) -> None:
        """Add files of so many records in all."""
        while records > 0:
            made = program.events(self.count, min(records, file_records), self.keys)
            program.write(self.input, made)
            now_ms = time.time_ns() // 1_000_000
            self.written_ms.update((event.number, now_ms) for event in made)
            self.count += len(made)
            records -= len(made)

    def next_shape(self) -> None:
        """The phases to come have the next parallelism and the next backend."""
        self._shape = next(self._shapes)

    @contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        """Take the time."""
        phase = Phase(name, *self._shape)
        self.phases.append(phase)
        before, begun = len(program.read_output_lines(self.out / program.COUNTS)), time.monotonic()
        yield phase
        phase.seconds = time.monotonic() - begun
        phase.records = len(program.read_output_lines(self.out / program.COUNTS)) - before

    def start(self, mode: str, out: Path, source: Any = None, **settings: Any) -> Any:
        """Start a job."""
        parallelism, backend = self._shape
        defaults = {
            "execution__target": self._target,
            "execution__checkpointing__interval": "500 ms",
            "execution__checkpointing__dir": str(self.folder / "checkpoints"),
            "execution__state_recovery__path": self._path,
            "state__backend__type": backend,
        }
        env = program.environment(mode, parallelism, **{**defaults, **settings})
        stream = program.build(env, self.input, out, source)
        timed = stream.key_by(program.select_key).map(seen).uid(SEEN).map(program.text).uid(f"text of {SEEN}")
        timed.sink_to(program.file_sink(out / SEEN)).uid(f"{SEEN} out")
        return env.execute_async(f"back-fill, {mode}")

    def back_fill(self) -> None:
        """A batch over all there is."""
        path = str(self.folder / "filled")
        self.start("BATCH", self.out, execution__batch__savepoint_path=path).wait()
        self._path = path

    def stream(self, seconds: float, phase: Phase) -> None:
        """Stream while files come, and stop with a savepoint."""
        job = self.start("STREAMING", self.out)
        self._wait_for_all(job)
        first, end = self.count, time.monotonic() + seconds
        while time.monotonic() < end:
            self.grow(LIVE_FILE, LIVE_FILE)
            time.sleep(LIVE_PERIOD_S)
        self._wait_for_all(job)
        self._path = job.stop_with_savepoint(False, str(self.folder / "savepoints")).result(PATIENCE_S)
        job.wait()
        phase.note = self._latency(first)

    def _wait_for_all(self, job: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(program.read_output_lines(self.out / program.COUNTS)) < self.count:
            if job.get_job_execution_result().done() or time.monotonic() > deadline:
                raise AssertionError("the job does not get on")
            time.sleep(POLL_S)

    def _latency(self, first: int) -> str:
        pairs = [tuple(map(int, line.split())) for line in program.read_output_lines(self.out / SEEN)]
        took = sorted(seen_ms - self.written_ms[number] for number, seen_ms in pairs if number >= first)
        cuts = quantiles(took, n=100)
        return f"{len(took):,} records: p50 {cuts[49]:.0f} ms, p99 {cuts[98]:.0f} ms"

    def available_now(self) -> None:
        """All there is, epoch by epoch."""
        job = self.start("MICRO_BATCH", self.out)
        job.wait()
        (path,) = (self.folder / "checkpoints").glob(f"{job.get_job_id()}/chk-*/_metadata")
        self._path = str(path)

    def drain(self) -> None:
        """To the end of time."""
        job = self.start("MICRO_BATCH", self.out, execution__micro_batch__interval="50 ms")
        job.stop_with_savepoint(True, str(self.folder / "savepoints")).result(PATIENCE_S)
        job.wait()

    def in_one_run(self) -> Path:
        """One job in streaming over all files, which comes to its end."""
        self._path = None
        out = self.folder / "one run"
        self.start("STREAMING", out, program.build_source(self.input, grows=False)).wait()
        return out


def differences(series: Series, one_run: Path) -> list[str]:
    """A line for each output that is another."""
    written, found = program.written(series.out), []
    expected = program.answer(program.events(0, series.count, series.keys))
    for whose, other in [("plain Python", expected), ("one streaming run", program.written(one_run))]:
        found += [f"{name}: not what {whose} says" for name in program.OUTPUTS if written[name] != other[name]]
    return found


def _table(phases: list[Phase]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in ("phase", "parallelism", "backend", "records", "s", "records/s", ""):
        table.add_column(header, justify="left" if header in ("phase", "backend", "") else "right")
    for p in phases:
        rate = f"{p.records / p.seconds:,.0f}" if p.records else ""
        table.add_row(p.name, str(p.parallelism), p.backend, f"{p.records:,}", f"{p.seconds:.1f}", rate, p.note)
    return table


def _numbers(context: click.Context, parameter: click.Parameter, value: str) -> list[int]:
    numbers = [int(number) for number in value.split(",") if number.strip().isdigit()]
    if len(numbers) != value.count(",") + 1 or not all(1 <= n <= program.MAX_PARALLELISM for n in numbers):
        raise click.BadParameter(f"expected numbers from 1 to {program.MAX_PARALLELISM}, separated by commas")
    return numbers


@click.command()
@click.option("--history", default=300_000, show_default=True, help="Records that are there at the start.")
@click.option("--seconds", default=20.0, show_default=True, help="How long files come while the job streams.")
@click.option("--runs", default=3, show_default=True, help="Runs of what is there, in micro-batches.")
@click.option("--run-records", default=20_000, show_default=True, help="Records that come ahead of each.")
@click.option("--keys", default=1_000, show_default=True, help="Keys of the records.")
@click.option(
    "--parallelisms",
    default="2,4,1",
    show_default=True,
    callback=_numbers,
    help="Of the execution modes one after another.",
)
@click.option("--backend", type=click.Choice([*BACKENDS]), default="hashmap", show_default=True)
@click.option("--target", type=click.Choice(["spark", "local"]), default="spark", show_default=True)
def main(
    history: int,
    seconds: float,
    runs: int,
    run_records: int,
    keys: int,
    parallelisms: list[int],
    backend: str,
    target: str,
) -> None:
    """Back-fill, stream, go on in micro-batches, and compare the output."""
    console = Console(width=None if sys.stdout.isatty() else 130)
    logging.basicConfig(level=logging.WARNING, format="  %(message)s")
    folder = Path(tempfile.mkdtemp(prefix="penstock-backfill-"))
    series = Series(folder, target, parallelisms, backend, keys)
    series.grow(history, HISTORY_FILE)
    series.next_shape()
    with series.phase("batch, the history"):
        series.back_fill()
    series.next_shape()
    with series.phase("streaming") as phase:
        series.stream(seconds, phase)
    series.next_shape()
    for number in range(1, runs + 1):
        series.grow(run_records, RUN_FILE)
        with series.phase(f"micro-batch, run {number}"):
            series.available_now()
    with series.phase("micro-batch, drained"):
        series.drain()
    begun = time.monotonic()
    one_run = series.in_one_run()
    console.print(_table(series.phases))
    console.print(f"one streaming run: {series.count:,} records in {time.monotonic() - begun:.1f} s")
    found = differences(series, one_run)
    for line in found:
        console.print(line, markup=False)
    rows = sum(map(len, program.written(series.out).values()))
    verdict = "[bold red]different[/]" if found else "[bold green]equal[/] to one streaming run and to plain Python"
    console.print(f"{rows:,} rows: {verdict}")
    if found:
        console.print(f"what was written is in {folder}", soft_wrap=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    from tests.spec import backfill  # what workers unpickle must be found by this name

    backfill.main()
