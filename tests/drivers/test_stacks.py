"""Where threads are: dumps of all, and samples of the one that runs tasks."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.datastream.environments import local_environment

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.drivers.inspection import AskSamples, AskThreads, Refused, Samples, Threads, threads
from penstock.drivers.running_job import RunningJob

HERE = __name__


def test_a_dump_has_every_other_thread_with_its_name_and_where_it_is() -> None:
    done = threading.Event()

    def waits_here() -> None:
        done.wait()

    thread = threading.Thread(target=waits_here, name="waiting")
    thread.start()
    stacks = dict(threads().stacks)
    done.set()
    assert stacks["waiting"].startswith(f'"waiting" Id={thread.native_id}\n')
    assert "in waits_here" in stacks["waiting"]
    assert threading.current_thread().name not in stacks


class Program:
    """A job in this process, at parallelism 2, that computes or sleeps for as long as somebody looks."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.over = threading.Event()
        self.computes = True

    def compute(self, number: int) -> int:
        self.begun.set()
        while self.computes and not self.over.is_set():
            sum(range(1_000))
        self.over.wait()
        return number

    @contextmanager
    def running(self) -> Iterator[RunningJob]:
        numbers = DataGeneratorSource(lambda index: index, 10, rate_per_second=1_000)
        env = local_environment()
        stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers").rebalance()
        stream.map(lambda number: sys.modules[HERE].PROGRAM.compute(number)).name("computes").print()
        job = env.execute_async("sampled")
        try:
            assert self.begun.wait(60)
            yield job
        finally:
            self.over.set()
            job.end()


PROGRAM = Program()


@pytest.fixture
def program() -> Program:
    global PROGRAM  # functions of a job are copied, and so they find what they share by its name
    PROGRAM = Program()
    return PROGRAM


def samples(job: RunningJob, vertex: int) -> Samples:
    answer = job.ask_worker("worker-1", AskSamples(vertex, 20, 5)).result(60)
    assert isinstance(answer, Samples)
    return answer


def test_samples_say_which_task_is_at_which_function(program: Program) -> None:
    with program.running() as job:
        stacks = samples(job, 1).stacks
        assert {stack.subtask for stack in stacks} == {0}
        assert sum(stack.count for stack in stacks) == 20
        assert all(f"{HERE}.Program.compute:" in " ".join(stack.functions) for stack in stacks)
        assert stacks[0].functions[0].startswith("penstock.runtime.task.stream_task.StreamTask.step:")
        assert samples(job, 0).stacks == ()


def test_a_thread_that_sleeps_waits_and_one_that_computes_does_not(program: Program) -> None:
    def waiting(job: RunningJob) -> int:
        return sum(stack.count for stack in samples(job, 1).stacks if stack.waits)

    with program.running() as job:
        assert waiting(job) < 20
        program.computes = False
        end = time.monotonic() + 60
        while waiting(job) < 20:
            assert time.monotonic() < end


@pytest.mark.parametrize(("count", "interval_ms"), [(0, 10), (10, 0), (1_001, 1), (1_000, 31), (-1, -1)])
def test_sampling_has_bounds(program: Program, count: int, interval_ms: int) -> None:
    with program.running() as job:
        answer = job.ask_worker("worker-1", AskSamples(0, count, interval_ms)).result(60)
        assert isinstance(answer, Refused)


def test_one_at_a_time_samples_while_others_ask_for_a_dump(program: Program) -> None:
    with program.running() as job:
        long = job.ask_worker("worker-1", AskSamples(1, 50, 20))
        refused = job.ask_worker("worker-1", AskSamples(1, 1, 1)).result(60)
        assert refused == Refused("it is being sampled already")
        assert isinstance(job.ask_driver(AskThreads()).result(60), Threads)
        assert isinstance(long.result(60), Samples)
