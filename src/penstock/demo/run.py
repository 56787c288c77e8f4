"""Runs the demo: starts the job, watches it, kills a worker under it, and has the result checked."""

from __future__ import annotations

import logging
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from penstock.common import Configuration
from penstock.common.errors import PenstockError
from penstock.core.job.progress import JobProgress
from penstock.datastream import StreamExecutionEnvironment
from penstock.demo import plain_python, program, spark_sql
from penstock.demo.answers import Answer, differences, read_output
from penstock.demo.data import Flights, prepare
from penstock.demo.live import Live, Meter
from penstock.demo.report import print_comparison

if TYPE_CHECKING:
    from penstock.drivers.running_job import RunningJob
    from penstock.drivers.spark.handle import SparkHandle

CHECKPOINT_INTERVAL_MS: Final = 1_000
JOB_NAME: Final = "flights"

#: For a JVM that lives for a minute on two cores: the quick compiler, one thread that collects garbage, few partitions.
_SPARK_SETTINGS: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "4",
}

_POLL_S: Final = 0.2
_ANSWER_S_MAX: Final = 10.0
#: A worker is killed when so many checkpoints have completed and this share of the flights has been read.
_KILL_CHECKPOINTS_MIN: Final = 2
_KILL_SHARE: Final = 0.25


@dataclass(frozen=True)
class DemoOptions:
    """What the command line says.

    Attributes:
        parallelism: of all operators.
        target: "spark" or "local".
        kill: whether a worker is killed; only on Spark.
        keep: the folder to work in and to leave behind; None for one that is removed.
        per_second: flights a second that the source hands out; None for as many as can be taken.
        limit: how many flights; None for the whole year.
    """

    parallelism: int = 2
    target: str = "spark"
    kill: bool = True
    keep: Path | None = None
    per_second: float | None = None
    limit: int | None = None

    @property
    def on_spark(self) -> bool:
        """Whether Spark is used at all."""
        return self.target == "spark"

    @property
    def kills(self) -> bool:
        """Whether a worker is to die."""
        return self.kill and self.on_spark


@dataclass
class Outcome:
    """What happened while the job ran."""

    seconds: float = 0.0
    killed_pid: int | None = None
    restarts: int = 0
    checkpoints: int = 0


def run_demo(options: DemoOptions, console: Console) -> bool:
    """Run it all; True when the answers are equal and, unless told otherwise, a worker died and the job restarted.

    Raises:
        PenstockError: if the job fails, or something that the demo needs is missing.
    """
    begun_s = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-")) if options.keep is None else options.keep.absolute()
    output = folder / "output"
    if output.exists():
        raise PenstockError(f"{output} is there already; name another folder")
    leave_behind = options.keep is not None
    try:
        succeeded = _run(options, console, folder, output)
        leave_behind = leave_behind or not succeeded
    finally:
        if not leave_behind:
            shutil.rmtree(folder, ignore_errors=True)
    where = f"; what was written is in {output}" if leave_behind else ""
    console.print(f"{time.monotonic() - begun_s:.0f} s in all{where}", highlight=False, soft_wrap=True)
    return succeeded


def _run(options: DemoOptions, console: Console, folder: Path, output: Path) -> bool:
    settings = Configuration.from_dict(
        {
            "execution.target": options.target,
            "parallelism.default": options.parallelism,
            "execution.checkpointing.interval": CHECKPOINT_INTERVAL_MS,
            "execution.checkpointing.dir": str(folder / "checkpoints"),
            **_SPARK_SETTINGS,
        }
    )
    flights, spark = _get_ready(options, console, folder, settings)
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    program.build(env, flights.departures, output, options.per_second)
    with _job_log_on(console):
        outcome = _Watch(console, flights, kills=options.kills).over(env.execute_async(JOB_NAME))
    if spark is None:
        checked_by = "plain Python"
        with _busy(console, "working the same answer out in plain Python"):
            theirs = plain_python.answer(flights.original)
    else:
        checked_by = "Spark SQL"
        with _busy(console, "asking Spark SQL the same question"):
            theirs = spark_sql.answer(spark, flights.original)
    return _conclude(console, options, outcome, read_output(output), theirs, checked_by)


def _get_ready(
    options: DemoOptions, console: Console, folder: Path, settings: Configuration
) -> tuple[Flights, SparkHandle | None]:
    """Unpack the flights, and meanwhile start Spark."""
    spark = None
    what = "unpacking the flights" + ", starting Spark" * options.on_spark
    with ThreadPoolExecutor(1) as pool, _busy(console, what):
        unpacking = pool.submit(prepare, folder / "input", options.limit)
        if options.on_spark:
            from penstock.drivers.spark.session import hand_back, obtain_spark

            spark = obtain_spark(settings.to_dict(), options.parallelism)
            hand_back(spark, options.parallelism)  # the job takes it again, by itself
        flights = unpacking.result()
    where = f"on Spark {spark.session.version}, {spark.master}" if spark is not None else "in this process"
    console.print(
        f"Replaying {flights.count:,} flights that left New York in 2013 {where}:\n"
        f"parallelism {options.parallelism}, a checkpoint every second"
        + (f", {options.per_second:,.0f} flights a second" if options.per_second else ""),
        highlight=False,
    )
    return flights, spark


class _Watch:
    """Follows a job to its end, and kills one of its workers on the way."""

    def __init__(self, console: Console, flights: Flights, kills: bool) -> None:
        self._console = console
        self._flights = flights
        self._kills = kills
        self._outcome = Outcome()

    def over(self, job: RunningJob) -> Outcome:
        """Wait for the job's end; Ctrl-C cancels it.

        Raises:
            JobExecutionError: if it fails.
        """
        begun_s = time.monotonic()
        meter = Meter(self._flights.first_ms, self._flights.last_ms)
        try:
            with Live(self._console) as live:
                while (progress := _progress_of(job)) is not None:
                    self._note(progress)
                    live.show(meter.read(progress, time.monotonic()))
                    time.sleep(_POLL_S)
        except KeyboardInterrupt:
            job.end()
            raise
        job.wait()
        self._outcome.seconds = time.monotonic() - begun_s
        return self._outcome

    def _note(self, progress: JobProgress) -> None:
        outcome = self._outcome
        if progress.restarts > outcome.restarts:
            self._console.print("  running again")
        outcome.restarts = max(outcome.restarts, progress.restarts)
        outcome.checkpoints = max(outcome.checkpoints, progress.checkpoints_completed)
        if (
            self._kills
            and outcome.killed_pid is None
            and progress.status == "RUNNING"
            and progress.checkpoints_completed >= _KILL_CHECKPOINTS_MIN
            and progress.source_records >= _KILL_SHARE * self._flights.count
        ):
            outcome.killed_pid = self._kill_one(progress)

    def _kill_one(self, progress: JobProgress) -> int | None:
        worker_id, host, pid = random.choice(progress.workers)
        if pid == os.getpid():
            raise PenstockError("the workers run in this process, so none can be killed")
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None  # it has gone by itself; another will be found
        self._console.print(
            f"  [bold]killed {worker_id}[/], process {pid} on {host}, with SIGKILL after "
            f"{progress.checkpoints_completed} checkpoints and {progress.source_records:,} flights",
            highlight=False,
            soft_wrap=True,
        )
        return pid


def _progress_of(job: RunningJob) -> JobProgress | None:
    """The job's figures; None when it is over."""
    while not job.get_job_execution_result().done():
        try:
            return job.get_progress().result(_ANSWER_S_MAX)
        except CancelledError:
            return None
        except FutureTimeoutError:
            continue
    return None


def _conclude(
    console: Console, options: DemoOptions, outcome: Outcome, ours: Answer, theirs: Answer, checked_by: str
) -> bool:
    found = differences(ours, theirs)
    console.print(
        f"  finished in {outcome.seconds:.1f} s: {_plural(outcome.checkpoints, 'checkpoint')}, "
        f"{_plural(outcome.restarts, 'restart')}, {_plural(ours.late, 'flight')} in the side output for late ones",
        highlight=False,
        soft_wrap=True,
    )
    print_comparison(console, ours, theirs, checked_by, found)
    if options.kills and outcome.killed_pid is None:
        console.print("[bold red]no worker was killed[/]: the job ended too soon for that")
    elif options.kills and not outcome.restarts:
        console.print("[bold red]the job did not restart[/] after a worker was killed")
    survived = not options.kills or (outcome.killed_pid is not None and outcome.restarts > 0)
    return survived and not found


def _busy(console: Console, what: str) -> AbstractContextManager[Any]:
    """Says what takes a while: while it does on a terminal, as a line elsewhere."""
    if console.is_terminal:
        return console.status(what)
    console.print(what)
    return nullcontext()


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class _ConsoleHandler(logging.Handler):
    """Shows what Penstock warns of among the demo's own lines."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(f"  {record.getMessage()}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _job_log_on(console: Console) -> Iterator[None]:
    """While it lasts, Penstock's log goes to the console instead of wherever it went."""
    logger = logging.getLogger("penstock")
    before = logger.handlers[:], logger.propagate
    logger.handlers[:], logger.propagate = [_ConsoleHandler(console)], False
    try:
        yield
    finally:
        logger.handlers[:], logger.propagate = before
