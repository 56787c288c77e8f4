"""Runs the demo: prepares the input, runs the job, kills a worker, and checks the result.

The same answer from plain Spark SQL, in the Spark session of the job.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

from penstock.base.configuration import Configuration
from penstock.base.errors import OperationError
from penstock.cli.demo import answers as plain_python
from penstock.cli.demo import program
from penstock.cli.demo.answers import Answer, differences, print_comparison, read_output
from penstock.cli.demo.flights import Flights, prepare
from penstock.cli.demo.progress import Outcome, Watch, busy
from penstock.datastream import StreamExecutionEnvironment

if TYPE_CHECKING:
    from penstock.drivers.spark.handle import SparkHandle


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
        console.print("(for real flights: pip install 'penstock[demo]')", highlight=False, markup=False)
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
