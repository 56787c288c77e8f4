"""The course of the demo: prepares the input, runs the job, kills a worker, and checks the result.

`Live` displays figures while the job runs: an updating line on a terminal, a new line from time to time elsewhere.
`busy` shows a message during a lengthy operation.

`Watch` follows the job to its end, and kills one of its workers along the way.

`answer` computes the result again with plain Spark SQL, in the Spark session of the job.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from penstock.base.configuration import Configuration
from penstock.base.errors import OperationError, write_install_command
from penstock.cli.demo import program
from penstock.cli.demo import program as plain_python
from penstock.cli.demo.flights import Flights, prepare
from penstock.cli.demo.program import Answer, differences, print_comparison, read_output
from penstock.datastream import StreamExecutionEnvironment
from penstock.runtime.job.view import JobProgress

if TYPE_CHECKING:
    from penstock.drivers.running_job import RunningJob
    from penstock.drivers.spark.handle import SparkHandle


_RATE_WINDOW_S: Final = 3.0
_PLAIN_PERIOD_S: Final = 2.0


@dataclass(frozen=True)
class Figures:
    """A snapshot of a job for display."""

    status: str
    event_time: str
    share: float
    per_second: int
    checkpoints: int
    restarts: int

    def __str__(self) -> str:
        """Return the figures as one line."""
        restarts = f"{self.restarts} restart{'' if self.restarts == 1 else 's'}"
        return f"{self.per_second:>6,} flights/s  checkpoint {self.checkpoints:>2}  {restarts}"


class Meter:
    """Converts a job's progress to figures.

    Args:
        first_ms: the event time at the start of the input.
        last_ms: the event time at its end.
    """

    def __init__(self, first_ms: int, last_ms: int) -> None:
        self._first_ms = first_ms
        self._last_ms = last_ms
        self._counts: deque[tuple[float, int]] = deque()

    def read(self, progress: JobProgress, now_s: float) -> Figures:
        """Return the figures at this time; `now_s` comes from any monotonic clock."""
        within = min(max(progress.watermark_ms, self._first_ms), self._last_ms)
        known = progress.watermark_ms > self._first_ms
        return Figures(
            progress.status.lower(),
            datetime.fromtimestamp(within // 1000, UTC).strftime("%Y-%m-%d") if known else "----------",
            (within - self._first_ms) / max(1, self._last_ms - self._first_ms),
            self._rate(progress.source_records, now_s),
            progress.checkpoints_completed,
            progress.restarts,
        )

    def _rate(self, records: int, now_s: float) -> int:
        counts = self._counts
        if counts and records < counts[-1][1]:  # a new attempt counts from its recovery point
            counts.clear()
        if not counts or records > counts[-1][1]:  # workers report from time to time: record changes only
            counts.append((now_s, records))
        while len(counts) > 1 and now_s - counts[0][0] > _RATE_WINDOW_S:
            counts.popleft()
        (begun_s, begun), (last_s, last) = counts[0], counts[-1]
        return int((last - begun) / (last_s - begun_s)) if last_s > begun_s else 0


class Live:
    """Displays figures as the console allows; a context manager.

    Args:
        console: the console to write to.
        clock: a clock in seconds, for the interval between plain lines.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._begun_s = clock()
        self._shown_s = self._begun_s
        self._bar: Progress | None = None
        if console.is_terminal:
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.fields[event_time]}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[figures]}"),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("", total=1.0, event_time="----------", figures="starting")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, figures: Figures) -> None:
        """Show the job's current figures."""
        if self._bar is not None:
            self._bar.update(
                self._task, completed=figures.share, event_time=figures.event_time, figures=self._words(figures)
            )
            return
        now_s = self._clock()
        if now_s - self._shown_s >= _PLAIN_PERIOD_S:
            self._shown_s = now_s
            seconds = int(now_s - self._begun_s)
            self._console.print(f"  {seconds:>3} s  event time {figures.event_time}  {self._words(figures)}")

    def _words(self, figures: Figures) -> str:
        return str(figures) if figures.status == "running" else figures.status


_POLL_S: Final = 0.2
_ANSWER_S_MAX: Final = 10.0
#: A worker is killed after this many completed checkpoints and this share of the flights.
_KILL_CHECKPOINTS_MIN: Final = 2
_KILL_SHARE: Final = 0.25


@dataclass
class Outcome:
    """Events and figures of the job's run."""

    seconds: float = 0.0
    killed_pid: int | None = None
    restarts: int = 0
    checkpoints: int = 0


class Watch:
    """Watches one job.

    Args:
        console: the console for progress.
        flights: the job's input.
        kills: whether to kill one of its workers.
    """

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
                while (progress := _fetch_progress(job)) is not None:
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
            raise OperationError("the workers run in this process, so none can be killed")
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None  # the worker has already ended; the next call picks another
        self._console.print(
            f"  [bold]killed {worker_id}[/], process {pid} on {host}, with SIGKILL after "
            f"{progress.checkpoints_completed} checkpoints and {progress.source_records:,} flights",
            highlight=False,
            soft_wrap=True,
        )
        return pid


def _fetch_progress(job: RunningJob) -> JobProgress | None:
    """Return the job's progress; None when it is over."""
    while not job.get_job_execution_result().done():
        try:
            return job.get_progress().result(_ANSWER_S_MAX)
        except CancelledError:
            return None
        except FutureTimeoutError:
            continue
    return None


def busy(console: Console, message: str) -> AbstractContextManager[Any]:
    """Show a message about a lengthy operation: on a terminal while it runs, elsewhere as a line."""
    if console.is_terminal:
        return console.status(message)
    console.print(message)
    return nullcontext()


HOURLY = """
    SELECT origin, time_hour, COUNT(*) AS departures, SUM(CAST(dep_delay AS BIGINT)) AS delay_minutes
    FROM flights
    WHERE dep_delay IS NOT NULL
    GROUP BY origin, time_hour
"""

WORST = """
    SELECT carrier, day, MAX(worst) OVER (PARTITION BY carrier ORDER BY day) AS worst_so_far
    FROM (
        SELECT carrier, SUBSTRING(time_hour, 1, 10) AS day, MAX(CAST(dep_delay AS BIGINT)) AS worst
        FROM flights
        WHERE dep_delay IS NOT NULL
        GROUP BY carrier, SUBSTRING(time_hour, 1, 10)
    ) AS of_days
"""


def answer(spark: SparkHandle, flights: Path) -> Answer:
    """Compute the answer from the package's file with Spark."""
    session = spark.session
    session.read.csv(flights.as_uri(), header=True, nullValue="NA").createOrReplaceTempView("flights")
    hourly = {(origin, hour): (count, delay) for origin, hour, count, delay in session.sql(HOURLY).collect()}
    worst = {(carrier, day): delay for carrier, day, delay in session.sql(WORST).collect()}
    session.catalog.dropTempView("flights")
    return Answer(hourly, worst)


CHECKPOINT_INTERVAL_MS: Final = 1_000
JOB_NAME: Final = "flights"

#: Settings for a JVM that runs for a minute on two cores: fast compiler, single-threaded garbage collector, few
#: partitions.
_SPARK_SETTINGS: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "4",
}


@dataclass(frozen=True)
class DemoOptions:
    """The command-line options of the demo.

    Attributes:
        parallelism: the parallelism of all operators.
        target: "spark" or "local".
        kill: whether a worker is killed; only on Spark.
        keep: the folder to work in and keep; None for a temporary one.
        per_second: the source's rate in flights per second; None for no limit.
        limit: the number of flights; None for the whole year.
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
        """Whether a worker is killed."""
        return self.kill and self.on_spark


def run_demo(options: DemoOptions, console: Console) -> bool:
    """Run the demo; return whether the answers are equal and, unless disabled, a worker died and the job restarted.

    Raises:
        PenstockError: if the job fails, or a requirement of the demo is missing.
    """
    begun_s = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-")) if options.keep is None else options.keep.absolute()
    output = folder / "output"
    if output.exists():
        raise OperationError(f"{output} already exists; name another folder")
    leave_behind = options.keep is not None
    try:
        succeeded = _run(options, console, folder, output)
        leave_behind = leave_behind or not succeeded
    finally:
        if not leave_behind:
            shutil.rmtree(folder, ignore_errors=True)
    where = f"; the output is in {output}" if leave_behind else ""
    console.print(f"{time.monotonic() - begun_s:.0f} s in total{where}", highlight=False, soft_wrap=True)
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
        outcome = Watch(console, flights, kills=options.kills).over(env.execute_async(JOB_NAME))
    ours = read_output(output)
    console.print(
        f"  finished in {outcome.seconds:.1f} s: {_plural(outcome.checkpoints, 'checkpoint')}, "
        f"{_plural(outcome.restarts, 'restart')}, {_plural(ours.late, 'flight')} in the side output for late flights",
        highlight=False,
        soft_wrap=True,
    )
    checked_by = "plain Python" if spark is None else "Spark SQL"
    with busy(console, f"asking {checked_by} the same question"):
        theirs = plain_python.answer(flights.original) if spark is None else answer(spark, flights.original)
    mismatches = differences(ours, theirs)
    print_comparison(console, ours, theirs, checked_by, mismatches)
    return survived(console, options, outcome) and not mismatches


def _get_ready(
    options: DemoOptions, console: Console, folder: Path, settings: Configuration
) -> tuple[Flights, SparkHandle | None]:
    """Unpack the flights while Spark starts."""
    spark = None
    message = "preparing the flights" + ", starting Spark" * options.on_spark
    with ThreadPoolExecutor(1) as pool, busy(console, message), _job_log_on(console):
        unpacking = pool.submit(prepare, folder / "input", options.limit)
        if options.on_spark:
            from penstock.drivers.spark.session import hand_back, obtain_spark

            spark = obtain_spark(settings.to_dict(), options.parallelism)
            hand_back(spark, options.parallelism)  # the job obtains it again by itself
        flights = unpacking.result()
    where = f"on Spark {spark.session.version}, {spark.master}" if spark is not None else "in this process"
    kind = "flights that left New York in 2013" if flights.are_real else "generated flights"
    if not flights.are_real:
        console.print(f"(for real flights: {write_install_command('demo')})", highlight=False, markup=False)
    console.print(
        f"Replaying {flights.count:,} {kind} {where}:\n"
        f"parallelism {options.parallelism}, a checkpoint every second"
        + (f", {options.per_second:,.0f} flights a second" if options.per_second else ""),
        highlight=False,
    )
    return flights, spark


def survived(console: Console, options: DemoOptions, outcome: Outcome) -> bool:
    """Return whether the expected events happened to the job; print a message if not."""
    if options.kills and outcome.killed_pid is None:
        console.print("[bold red]no worker was killed[/]: the job ended too soon")
        return False
    if options.kills and not outcome.restarts:
        console.print("[bold red]the job did not restart[/] after a worker was killed")
        return False
    return True


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class _ConsoleHandler(logging.Handler):
    """Prints Penstock's warnings among the demo's own lines."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(f"  {record.getMessage()}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _job_log_on(console: Console) -> Iterator[None]:
    """Send Penstock's log to the console instead of its usual handlers in this context."""
    logger = logging.getLogger("penstock")
    before = logger.handlers[:], logger.propagate
    logger.handlers[:], logger.propagate = [_ConsoleHandler(console)], False
    try:
        yield
    finally:
        logger.handlers[:], logger.propagate = before
