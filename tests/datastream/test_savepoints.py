"""Whole programs that are stopped, cancelled or copied with a savepoint, and resumed (H1, H2, H4).

What counts is what was committed: the output of all the jobs in a row is that of one that was never stopped.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.jobs import JOBS, WORD_COUNT, Job
from tests.spec.virtual_job import (
    LEDGER,
    LedgerSink,
    Timed,
    VirtualJob,
    clear_ledger,
    environment,
    get_error,
    records,
)
from tests.stores import at, copy_tree, remove_tree

from penstock.base.errors import CheckpointError, JobExecutionError
from penstock.base.job import JobStatus
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream.functions import AggregateFunction
from penstock.datastream.window import TumblingEventTimeWindows

logging.getLogger("penstock").addHandler(logging.NullHandler())

OFF: Any = {"execution.checkpointing.interval": None}
FREQUENT: Any = {"execution.checkpointing.interval": "1 ms"}
MODES = {
    "checkpoints off": OFF,
    "aligned": FREQUENT,
    "unaligned": {**FREQUENT, "execution.checkpointing.unaligned.enabled": "true"},
    "at least once": {**FREQUENT, "execution.checkpointing.mode": "AT_LEAST_ONCE"},
}
STOPS_MAX, NEVER = 5, 1 << 60
SMALL_STEPS: Any = {"penstock.source.batch-records": 4, "penstock.network.buffer-records": 3}


pytestmark = pytest.mark.usefixtures("checkpoints_in_store")


@pytest.fixture(autouse=True)
def nothing_committed() -> None:
    clear_ledger()


def stop_after(job: VirtualJob, turns: int, directory: Any, drain: bool = False) -> str | None:
    """Run until the job is stopped, or ends by itself before; the savepoint's path in the first case."""
    stopped: list[Any] = []
    job.when(lambda: job.turns >= turns, lambda: stopped.append(job.stop_with_savepoint(drain, str(directory))))
    assert job.run() is JobStatus.FINISHED, job.failure()
    if not stopped or stopped[0].exception(0) is not None:
        return None
    path: str = stopped[0].result(0)
    return path


def in_legs(job: Job, parallelisms: tuple[int, ...], turns: int, directory: Path, **options: Any) -> int:
    """Stop the job again and again, and resume it at the next parallelism; how often it was stopped."""
    path: str | None = None
    for leg in itertools.count():
        begin = {} if path is None else {"execution.state-recovery.path": path}
        env = environment(parallelisms[leg % len(parallelisms)], **{**SMALL_STEPS, **options, **begin})
        job.build(env).sink_to(LedgerSink("out")).uid("sink")
        path = stop_after(VirtualJob(env), turns if leg < STOPS_MAX else NEVER, directory)
        if path is None:
            return leg
    raise AssertionError


@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_stopped_and_resumed(job: Job, options: Any, store_directory: Path) -> None:
    """H2, A1: a job that is stopped again and again gives the output of one uninterrupted run, in every mode of
    checkpoints and without any: no record is lost or committed twice, windows and timers go on where they were."""
    stops = in_legs(job, (2,), 40, store_directory, **options)
    assert stops >= 2
    assert sorted(LEDGER["out"]) == job.expected()


@pytest.mark.parametrize("parallelisms", [(1, 3, 2), (4, 1)], ids=str)
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_resumed_at_another_parallelism(job: Job, parallelisms: tuple[int, ...], store_directory: Path) -> None:
    """H2, H4, D4: the same when each job in the row has another parallelism."""
    assert in_legs(job, parallelisms, 40, store_directory, **OFF) >= 2
    assert sorted(LEDGER["out"]) == job.expected()


@pytest.mark.parametrize("turns", [*range(1, 10), *range(10, 90, 5)])
def test_stopped_at_any_moment(turns: int, store_directory: Path) -> None:
    """H2: the same whenever the stop comes: before the job runs, in the middle, or while it is ending by itself."""
    in_legs(WORD_COUNT, (2,), turns, store_directory, **FREQUENT)
    assert sorted(LEDGER["out"]) == WORD_COUNT.expected()


@pytest.mark.parametrize("options", [OFF, {"execution.checkpointing.interval": "1 h"}], ids=["off", "on"])
def test_a_stop_that_comes_while_the_job_is_ending_does_no_harm(options: Any, store_directory: Path) -> None:
    """H2: a stop that comes when the sources have ended by themselves, and that cannot be taken any more, is refused;
    the job ends as it would have: it is not restarted, which without checkpoints would repeat what was committed."""

    def job() -> VirtualJob:
        clear_ledger()
        env = environment(2, **{**SMALL_STEPS, **options})
        WORD_COUNT.build(env).sink_to(LedgerSink("out")).uid("sink")
        return VirtualJob(env)

    undisturbed = job()
    undisturbed.run()
    harmed = []
    for turns in range(undisturbed.turns - 30, undisturbed.turns + 1):
        stopped = job()
        stop_after(stopped, turns, store_directory)
        if stopped.master.history.restarts or not set(LEDGER["out"]) <= set(WORD_COUNT.expected()):
            harmed.append(turns - undisturbed.turns)
    assert harmed == []


def test_what_a_savepoint_covers_is_committed_when_the_stop_is_done(store_directory: Path) -> None:
    """H2, G9: the future of a stop is done when all output up to the savepoint is committed, and not before."""
    env = environment(2, **{"execution.checkpointing.interval": "1 h"})
    stream = env.from_source(Timed(1_000, (None,)), WatermarkStrategy.no_watermarks(), "records")
    stream.key_by(lambda record: record).map(lambda record: record).sink_to(LedgerSink("out"))
    job = VirtualJob(env)
    committed: list[Any] = []

    def stop() -> None:
        future = job.stop_with_savepoint(False, str(store_directory))
        future.add_done_callback(lambda done: committed.append((done.result(0), sorted(LEDGER["out"]))))

    job.at(5_500, stop)
    assert job.run() is JobStatus.FINISHED
    ((path, output),) = committed
    assert output == records(6, 6)
    assert at(path).parent == store_directory
    assert job.now_ms == 5_500, "no record after the stop"


# --- drain ----------------------------------------------------------------------------------------------------------


class Sum(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + int(value[1])

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


@pytest.mark.parametrize("options", [OFF, {"execution.checkpointing.interval": "1 h"}], ids=["off", "on"])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_drain_fires_all_windows(parallelism: int, options: Any, store_directory: Path) -> None:
    """H2, C1: with drain all windows fire, those far in the future of event time included, and their results are
    committed; without it none does that was not due."""

    def run(drain: bool) -> VirtualJob:
        env = environment(parallelism, **options)
        strategy = WatermarkStrategy.for_monotonous_timestamps()
        stream = env.from_source(Timed(1_000, (None,)), strategy, "records").key_by(lambda record: record[1] % 3)
        stream.window(TumblingEventTimeWindows.of(5_000)).aggregate(Sum()).sink_to(LedgerSink("out"))
        job = VirtualJob(env)
        job.at(12_500, lambda: job.stop_with_savepoint(drain, str(store_directory)))
        assert job.run() is JobStatus.FINISHED
        return job

    def sums(upto: int) -> list[int]:
        windows: dict[tuple[int, int], int] = defaultdict(int)
        for _, n in records(*[upto] * parallelism):
            windows[n // 5, n % 3] += n
        return sorted(windows.values())

    run(drain=False)
    assert sorted(LEDGER["out"]) == sums(10)
    clear_ledger()
    run(drain=True)
    assert sorted(LEDGER["out"]) == sums(13)


def test_a_drained_job_has_nothing_more_to_do(store_directory: Path) -> None:
    """H2, G10: a job that begins from the savepoint of a drained one finds everything finished, and ends at once."""

    def job(**options: Any) -> VirtualJob:
        env = environment(2, **options)
        stream = env.from_source(Timed(1_000, (None,)), WatermarkStrategy.no_watermarks(), "records")
        stream.key_by(lambda record: record).map(lambda record: record).sink_to(LedgerSink("out"))
        return VirtualJob(env)

    path = stop_after(job(), 40, store_directory, drain=True)
    before = list(LEDGER["out"])
    again = job(**{"execution.state-recovery.path": path})
    assert again.run() is JobStatus.FINISHED
    assert again.now_ms == 0
    assert LEDGER["out"] == before


# --- savepoints that do not stop, or that cancel --------------------------------------------------------------------


def numbers(parallelism: int = 2, **options: Any) -> VirtualJob:
    """Forty records from each of two source subtasks, one every 1,001 ms; behind them the parallelism may be any."""
    env = environment(parallelism, **options)
    stream = env.from_source(Timed(1_001, (40,)), WatermarkStrategy.no_watermarks(), "records").set_parallelism(2)
    stream.key_by(lambda record: record).map(lambda record: record).sink_to(LedgerSink("out")).uid("sink")
    return VirtualJob(env)


@pytest.mark.parametrize("interval", ["10 s", None])
def test_a_savepoint_takes_nothing_from_the_job(interval: str | None, store_directory: Path) -> None:
    """H1, G9: a job of which savepoints are taken gives the whole of its output, each record once; so does each job
    that begins from one of them, for what comes after it and what it held uncommitted."""
    options: Any = {"execution.checkpointing.interval": interval}
    job = numbers(**options)
    taken: list[Any] = []
    for time_ms in (5_500, 15_500, 25_500):
        job.at(time_ms, lambda: taken.append(job.trigger_savepoint(str(store_directory))))
    assert job.run() is JobStatus.FINISHED
    assert sorted(LEDGER["out"]) == records(40, 40)
    for future, committed in zip(taken, (0, 10, 20), strict=True):
        clear_ledger()
        again = numbers(**{**options, "execution.state-recovery.path": future.result(0)})
        assert again.run() is JobStatus.FINISHED
        first = committed if interval is not None else 0
        rest = [(subtask, n) for subtask in range(2) for n in range(first, 40)]
        assert sorted(LEDGER["out"]) == rest


@pytest.mark.parametrize("interval", ["10 s", None])
def test_cancelled_with_a_savepoint_and_resumed(interval: str | None, store_directory: Path) -> None:
    """H1, G9: what a job that is cancelled with a savepoint had not committed is committed by the one that begins from
    it: together they have every record once."""
    options: Any = {"execution.checkpointing.interval": interval}
    job = numbers(**options)
    taken: list[Any] = []
    job.at(15_500, lambda: taken.append(job.cancel_with_savepoint(str(store_directory))))
    assert job.run() is JobStatus.CANCELED
    assert len(LEDGER.get("out", [])) < 40
    again = numbers(3, **{**options, "execution.state-recovery.path": taken[0].result(0)})
    assert again.run() is JobStatus.FINISHED
    assert sorted(LEDGER["out"]) == records(40, 40)


def test_begin_from_a_retained_checkpoint(store_directory: Path) -> None:
    """H4: a checkpoint that outlived its job serves like a savepoint, and is not changed by the job that begins."""
    kept: Any = {
        "execution.checkpointing.dir": store_directory,
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "execution.checkpointing.data-inline-threshold": "0 b",
    }
    job = numbers(**kept)
    job.at(15_500, job.cancel)
    assert job.run() is JobStatus.CANCELED
    (directory,) = store_directory.glob("*/chk-*")
    files = sorted((p, p.stat().st_size) for p in directory.iterdir())
    again = numbers(**{**kept, "execution.state-recovery.path": directory})
    assert again.run() is JobStatus.FINISHED
    assert sorted(LEDGER["out"]) == records(40, 40)
    assert sorted((p, p.stat().st_size) for p in directory.iterdir()) == files


def test_a_savepoint_that_was_moved(store_directory: Path) -> None:
    """H1, H4: a savepoint directory may be copied to another place, and the job that it is of may be gone."""
    inline: Any = {
        "execution.checkpointing.data-inline-threshold": "0 b",
        "execution.checkpointing.dir": store_directory / "c",
    }
    job = numbers(**inline)
    taken: list[Any] = []
    job.at(15_500, lambda: taken.append(job.stop_with_savepoint(False, str(store_directory / "before"))))
    assert job.run() is JobStatus.FINISHED
    copy_tree(taken[0].result(0), store_directory / "after" / "copy")
    remove_tree(store_directory / "before")
    remove_tree(store_directory / "c")
    again = numbers(3, **{**inline, "execution.state-recovery.path": store_directory / "after" / "copy"})
    assert again.run() is JobStatus.FINISHED, again.failure()
    assert sorted(LEDGER["out"]) == records(40, 40)


# --- what goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["trigger", "cancel", "stop"])
def test_without_a_directory(call: str) -> None:
    """H1: without a directory, named or configured, the error says how to name one; the job goes on."""
    job = numbers()
    asked: list[Any] = []
    job.at(5_500, lambda: asked.append(_ask(job, call, None)))
    assert job.run() is JobStatus.FINISHED
    with pytest.raises(CheckpointError, match=r"name a directory .*execution\.checkpointing\.savepoint-dir"):
        asked[0].result(0)
    assert sorted(LEDGER["out"]) == records(40, 40)


def _ask(job: Any, call: str, directory: str | None) -> Any:
    if call == "stop":
        return job.stop_with_savepoint(False, directory)
    return job.trigger_savepoint(directory) if call == "trigger" else job.cancel_with_savepoint(directory)


@pytest.mark.parametrize("call", ["trigger", "cancel", "stop"])
def test_the_configured_directory(call: str, store_directory: Path) -> None:
    """H1: the directory of the configuration is taken when none is named; a named one comes first."""
    options: Any = {"execution.checkpointing.savepoint-dir": store_directory / "configured"}
    job = numbers(**options)
    asked: list[Any] = []
    job.at(4_500, lambda: asked.append(job.trigger_savepoint(str(store_directory / "named"))))
    job.at(5_500, lambda: asked.append(_ask(job, call, None)))
    job.run()
    assert at(asked[0].result(0)).parent == store_directory / "named"
    assert at(asked[1].result(0)).parent == store_directory / "configured"
    assert all((at(future.result(0)) / "_metadata").exists() for future in asked)


@pytest.mark.parametrize("call", ["trigger", "cancel", "stop"])
def test_a_directory_that_cannot_be_written(call: str, tmp_path: Path) -> None:
    """H1, H2: when the savepoint cannot be written, whoever asked is told why, and the job gives its whole output: it
    goes on, or goes on from its last checkpoint when its sources had come to their end."""
    (tmp_path / "file").write_text("no directory")
    options: Any = {"execution.checkpointing.data-inline-threshold": "0 b"}
    job = numbers(**options)
    asked: list[Any] = []
    job.at(15_500, lambda: asked.append(_ask(job, call, str(tmp_path / "file"))))
    assert job.run() is JobStatus.FINISHED
    assert "no savepoint under" in get_error(asked[0])
    assert job.master.history.restarts == (1 if call == "stop" else 0)
    assert sorted(LEDGER["out"]) == records(40, 40)


@pytest.mark.parametrize("call", ["trigger", "cancel", "stop"])
def test_a_job_that_is_over(call: str, store_directory: Path) -> None:
    """H1, H2: asking a job that has ended is an error, not a wait."""
    job = numbers()
    job.run()
    with pytest.raises(CheckpointError, match="the job is over"):
        _ask(job, call, str(store_directory)).result(0)


def test_a_program_that_does_not_fit(store_directory: Path) -> None:
    """H4: a savepoint with state that the program has no operator for is an error that names it."""
    job = numbers()
    taken: list[Any] = []
    job.at(5_500, lambda: taken.append(job.stop_with_savepoint(False, str(store_directory))))
    job.run()
    env = environment(2, **{"execution.state-recovery.path": taken[0].result(0)})
    stream = env.from_source(Timed(1_000, (40,)), WatermarkStrategy.no_watermarks(), "records")
    stream.key_by(lambda record: record).map(lambda record: record).sink_to(LedgerSink("out")).uid("another")
    other = VirtualJob(env)
    assert other.run() is JobStatus.FAILED
    assert "(uid 'sink')" in other.failure()
    assert "does not fit the job" in other.failure()


# --- with real threads ----------------------------------------------------------------------------------------------


def test_client_calls_of_a_running_job(store_directory: Path) -> None:
    """H1, H2, E1: the client's calls from another thread, in real time: savepoints of a running job, a stop, and the
    job that goes on from it; a stopped job has finished, a cancelled one was cancelled."""

    def begin(**options: Any) -> Any:
        env = environment(2, **{"execution.checkpointing.interval": "2 ms", **options})
        seen.clear()
        source: DataGeneratorSource[int] = DataGeneratorSource(lambda i: i, rate_per_second=20_000)
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        stream.key_by(lambda n: n % 7).map(note).sink_to(LedgerSink("out")).uid("sink")
        return env.execute_async()

    client = begin()
    assert seen.wait(60)
    plain = client.trigger_savepoint(str(store_directory)).result(20)
    assert client.get_job_status().result() is JobStatus.RUNNING
    path = client.stop_with_savepoint(False, str(store_directory)).result(20)
    assert len(LEDGER["out"]) == len(set(LEDGER["out"])) > 0
    client.get_job_execution_result().result(20)
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert plain != path
    client = begin(**{"execution.state-recovery.path": path})
    assert seen.wait(60)
    last = client.cancel_with_savepoint(str(store_directory)).result(20)
    with pytest.raises(JobExecutionError, match="cancelled"):
        client.get_job_execution_result().result(20)
    assert (at(last) / "_metadata").exists()
    assert len(LEDGER["out"]) == len(set(LEDGER["out"])), "each number once, through both jobs"


seen = threading.Event()


def note(value: int) -> int:
    if value > 100:
        seen.set()
    return value
