"""`python -m tests.spec.kill_executor`: an executor of a standalone Spark dies in the middle of a batch job (I2).

Starts a master and two workers of the Spark that PySpark brings along, runs a job with two shuffles on it from this
program, and sends SIGKILL to the executors' JVMs, one after the other: one while the first stage runs, another when
there is shuffled data to be lost. The job must end with the answer of plain Python, in one call of `execute`.

Its output also goes through a file sink, and Spark speculates: it runs slow tasks twice at a time, and one is slow.
What becomes visible must be whole, each record once, and nothing hidden may be left.

With `--back-fill` it leaves its state as a savepoint, without a restart strategy: tasks that run again must have sent
the same, or the job fails. A job in this process goes on from there, to the end of time, where the answer comes.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pyspark

from penstock.common import Configuration, Encoder, Types, WatermarkStrategy
from penstock.connectors.split_reader import NumberSequenceSource
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.datastream.functions import KeyedProcessFunction, MapFunction
from penstock.datastream.state import ValueStateDescriptor

HOST = "127.0.0.1"
KEYS = 1_000
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Total(KeyedProcessFunction):
    """(key, how many, sum), when all have come."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("state"))

    def process_element(self, value: int, ctx: Any) -> None:
        count, total = self.state.value() or (0, 0)
        if not count:
            ctx.timer_service().register_event_time_timer(1)
        self.state.update((count + 1, total + value))

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield (ctx.get_current_key(), *self.state.value())


def expected(count: int) -> list[tuple[int, int, int]]:
    """What the job comes to, in plain Python."""
    counts: Counter[int] = Counter()
    sums: Counter[int] = Counter()
    for n in range(count):
        counts[n % KEYS] += 1
        sums[n % KEYS] += mixed(n)
    by_hundred: dict[int, tuple[int, int]] = {}
    for key in counts:
        held = by_hundred.get(key % 100, (0, 0))
        by_hundred[key % 100] = held[0] + counts[key], held[1] + sums[key]
    return sorted((key, *held) for key, held in by_hundred.items())


def mixed(number: int) -> int:
    """A little work for each record."""
    for _ in range(5):
        number = (number * 1103515245 + 12345) % 2**31
    return number


def add(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    return one[0], one[1] + other[1], one[2] + other[2]


def build(env: StreamExecutionEnvironment, count: int) -> Any:
    """Numbers dealt out anew, twice, folded by key, and these once more by another key.

    What a task deals out depends on the order of its input, so one that runs again has to get the same.
    """
    numbers = read_numbers(env, count, "numbers").rebalance()
    pairs = numbers.map(lambda n: (n % KEYS, mixed(n))).rebalance().map(lambda pair: pair)
    totals = pairs.key_by(lambda pair: pair[0]).process(TotalOfPairs())
    return totals.map(lambda total: (total[0] % 100, *total[1:])).key_by(lambda total: total[0]).reduce(add)


def read_numbers(env: StreamExecutionEnvironment, count: int, name: str) -> Any:
    source: Any = NumberSequenceSource(0, count - 1)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), name)


class TotalOfPairs(Total):
    def process_element(self, value: Any, ctx: Any) -> None:
        super().process_element(value[1], ctx)


def write_down(numbers: Any, out: Path) -> None:
    """Each number as a line, by tasks of which one is so slow at first that Spark runs it twice."""
    sink = FileSink.for_row_format(str(out), Encoder.simple_string_encoder())
    policy = RollingPolicy.default_rolling_policy(part_size=1 << 16)
    lines = numbers.map(Slow(out.with_name("slow")), output_type=Types.LONG()).name("slow")
    lines.sink_to(sink.with_rolling_policy(policy).build())


class Slow(MapFunction):
    """Takes its time in the one task that comes first, once."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def open(self, runtime_context: Any) -> None:
        subtask = runtime_context.get_index_of_this_subtask()
        with self.marker.with_name("runs").open("a") as runs:
            runs.write(f"{subtask}\n")
        self.is_slow = subtask == 0 and self.comes_first()
        self.seen = 0

    def comes_first(self) -> bool:
        try:
            self.marker.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def map(self, value: int) -> int:
        self.seen += 1
        if self.is_slow and self.seen % 500 == 0:
            time.sleep(0.1)
        return value


def check_files(out: Path, count: int) -> str:
    """What is wrong with the files, if anything is."""
    parts = [path for path in out.rglob("part-*") if path.is_file()]
    lines = b"".join(path.read_bytes() for path in parts).split(b"\n")
    if sorted(map(int, filter(None, lines))) != list(range(count)):
        return f"{len(lines) - 1} lines of {count} in {len(parts)} files"
    left = [str(path) for path in out.rglob(".*") if path.is_file() and path.suffix != ".crc"]
    return f"left over: {left}" if left else ""


# --- a cluster --------------------------------------------------------------------------------------------------------


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """A standalone master and two workers; the master's address."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    started = [launch(directory, "Master", "--host", HOST, "--port", str(port), "--webui-port", "0")]
    master = f"spark://{HOST}:{port}"
    try:
        wait_for(lambda: "New state: ALIVE" in log_of(directory, "Master"), "the master is up")
        for number in (1, 2):
            arguments = ("--cores", "2", "--memory", "1500m", "--host", HOST, "--webui-port", "0", master)
            started.append(launch(directory, f"Worker{number}", *arguments))
        for number in (1, 2):
            wait_for(
                lambda number=number: "Successfully registered" in log_of(directory, f"Worker{number}"),
                f"worker {number} is registered",
            )
        yield master
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(20)


def launch(directory: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A daemon of Spark, in the foreground of a process of its own."""
    home = Path(pyspark.__file__).parent
    role = name.rstrip("12")
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role.lower()}.{role}", *arguments]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_WORKER_DIR": str(directory / f"{name}-work"),
        "SPARK_LOCAL_DIRS": str(directory / f"{name}-local"),
        "PYSPARK_PYTHON": sys.executable,
    }
    with (directory / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def log_of(directory: Path, name: str) -> str:
    return (directory / f"{name}.log").read_text(errors="replace")


def wait_for(condition: Any, what: str, patience_s: float = 200) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {patience_s} s until {what}")
        time.sleep(0.1)


def executors(directory: Path) -> list[int]:
    """The process ids of the cluster's executors: JVMs that work below its directory."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if not process.name.isdigit() or EXECUTOR not in (process / "cmdline").read_text().split("\0"):
                continue
            if os.readlink(process / "cwd").startswith(str(directory)):
                found.append(int(process.name))
        except OSError:
            continue  # it has ended meanwhile
    return found


# --- the deed ---------------------------------------------------------------------------------------------------------


def shuffle_files(directory: Path) -> int:
    return sum(1 for _ in directory.glob("Worker*-local/**/shuffle_*.data"))


def kill_executors(directory: Path, say: Any, killed: list[int]) -> None:
    """One executor at work on the first stage, and one with shuffled data."""
    wait_for(lambda: len(executors(directory)) == 2, "there are two executors")
    wait_for(lambda: python_workers(directory), "Python works for them")
    for moment in ("in its first stage", "with shuffled data"):
        if killed:
            before = shuffle_files(directory)
            wait_for(lambda before=before: shuffle_files(directory) > before, "there is shuffled data")
        alive = [pid for pid in executors(directory) if pid not in killed]
        os.kill(alive[0], signal.SIGKILL)
        killed.append(alive[0])
        say(f"killed executor {alive[0]} {moment}; {shuffle_files(directory)} shuffle files lay there")


def python_workers(directory: Path) -> bool:
    """Whether any Python process of the executors is at work."""
    parents = set(executors(directory))
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit():
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) in parents and "pyspark" in (process / "cmdline").read_text():
                    return True
        except OSError:
            continue
    return False


def answer_from(savepoint: Path, count: int) -> list[Any]:
    """What a streaming job in this process gives that goes on from the savepoint: of running results the last ones."""
    settings = {"execution.target": "local", "execution.state-recovery.path": str(savepoint)}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings)).set_parallelism(4)
    last: dict[int, Any] = {}
    totals = build(env, count)
    write_down(read_numbers(env, count, "to write down"), savepoint.with_name("out"))  # the same program
    with totals.execute_and_collect("go on") as results:
        for key, *held in results:
            last[key] = max(last.get(key, held), held)
    return sorted((key, *held) for key, held in last.items())


@click.command()
@click.option("--count", default=2_000_000, show_default=True, help="Numbers to go through.")
@click.option("--back-fill", is_flag=True, help="Leave the state as a savepoint, and let another job go on from it.")
def main(count: int, back_fill: bool) -> None:
    """Run the job, kill executors, compare."""
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)

    killed: list[int] = []
    with tempfile.TemporaryDirectory(prefix="penstock-kill-") as name, cluster(Path(name)) as master:
        say(f"{master} with two workers")
        configuration = Configuration.from_dict(
            {
                "spark.master": master,
                "spark.executor.memory": "1g",
                "spark.executor.cores": "2",
                "spark.driver.host": HOST,
                "spark.driver.bindAddress": HOST,
                "spark.speculation": "true",
                "spark.speculation.interval": "100ms",
                "spark.speculation.quantile": "0.5",
                "spark.speculation.minTaskRuntime": "1s",
                **({"execution.batch.savepoint-path": f"{name}/filled"} if back_fill else {}),
            }
        )
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(4).set_runtime_mode(RuntimeExecutionMode.BATCH)
        killer = threading.Thread(target=kill_executors, args=(Path(name), say, killed), daemon=True)
        killer.start()
        say(f"process {os.getpid()} runs the program")
        totals = build(env, count)
        write_down(read_numbers(env, count, "to write down"), Path(name) / "out")
        with totals.execute_and_collect("kill an executor") as results:
            found = sorted(results)
        wrong = check_files(Path(name) / "out", count)
        runs = (Path(name) / "runs").read_text().split()
        say(f"4 tasks that write files were run {len(runs)} times, the slow one {runs.count('0')} times")
        say(f"files: {wrong or 'each number once, nothing hidden is left'}")
        say(f"the job has ended in process {os.getpid()}, with {len(found)} results")
        killer.join(1)
        lost = [line for n in (1, 2) for line in log_of(Path(name), f"Worker{n}").splitlines() if "exitStatus" in line]
        for line in lost:
            say(line.partition("INFO ")[2] or line)
        from penstock.drivers.spark.session import stop_spark

        stop_spark()
        if back_fill:
            found = answer_from(Path(name) / "filled", count)
    if len(killed) < 2:
        raise SystemExit(f"only {len(killed)} executors were killed before the job ended: give it more to do")
    if wrong:
        raise SystemExit(f"wrong files: {wrong}")
    if found != expected(count):
        raise SystemExit(f"wrong: {found[:3]} and so on")
    say("the result is that of plain Python")


if __name__ == "__main__":
    main()
