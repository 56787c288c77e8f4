"""What a process says of itself: the figures are those of this process, and nobody can make them cost much."""

from __future__ import annotations

import gc
import os
import threading
import time

import psutil
import pytest
from tests.datastream.environments import local_environment

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.drivers import inspection as module
from penstock.drivers.inspection import CollectionWatch, ProcessWatch, process_figures
from penstock.runtime.protocol import ProcessFigures


@pytest.fixture
def watch() -> ProcessWatch:
    watch = ProcessWatch()
    watch.close()  # what counts collections is tried by itself
    return watch


def test_figures_are_those_of_this_process(watch: ProcessWatch) -> None:
    own = psutil.Process()
    figures = watch.sample()
    assert figures.threads == own.num_threads()
    assert figures.cores == len(os.sched_getaffinity(0))
    assert figures.physical_bytes == psutil.virtual_memory().total
    assert 0.5 < figures.resident_bytes / own.memory_info().rss < 2
    assert 0 <= figures.cpu_load <= 1
    assert figures.open_files > 0


def test_work_shows_in_times_and_threads_and_files(watch: ProcessWatch) -> None:
    before = watch.sample()
    done = threading.Event()
    threading.Thread(target=done.wait).start()
    with open(os.devnull) as _:
        sum(range(2_000_000))
        after = watch.sample()
    done.set()
    assert after.cpu_time_ns > before.cpu_time_ns
    assert after.cpu_load > 0
    assert (after.threads, after.open_files) == (before.threads + 1, before.open_files + 1)


def test_collections_are_counted_with_their_time_until_the_watch_is_closed() -> None:
    watch = CollectionWatch()
    gc.collect()
    gc.collect()
    watch.close()
    assert watch.count >= 2
    assert watch.time_ns > 0
    count = watch.count
    gc.collect()
    assert watch.count == count


def test_many_who_ask_cause_one_sample_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that asks a thousand times costs what one costs."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    shared = module._Shared()
    first = shared.figures()
    assert all(shared.figures() is first for _ in range(1_000))
    now += module.AGE_SECONDS
    assert shared.figures() is not first
    shared._restart()


def test_a_forked_process_has_figures_of_its_own() -> None:
    """Spark forks workers, perhaps of a process that has been measured."""
    process_figures()
    shared = module._shared
    figures, lock = shared._figures, shared._lock
    shared._restart()  # as after a fork
    assert shared._figures is None
    assert shared._lock is not lock
    assert process_figures() is not figures


def test_workers_of_the_local_driver_are_this_process() -> None:
    """A1: their figures are there, without heartbeats, as soon as the job runs."""
    numbers = DataGeneratorSource(lambda index: index, None, rate_per_second=100)
    env = local_environment()
    env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers").filter(lambda number: False).print()
    job = env.execute_async("figures")
    while not (view := job.get_view().result(60)).workers:
        pass
    job.end()
    (worker,) = view.workers
    assert worker.process is not None
    assert worker.process.physical_bytes == psutil.virtual_memory().total
    assert (worker.heard_ms, worker.data_address) == (view.now_ms, "local")


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), psutil.AccessDenied()])
def test_progress_is_told_where_the_system_tells_nothing(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without free file descriptors, `/proc` cannot be read; a program that looks at its job must not fail for that."""

    def fail(*_: object) -> None:
        raise error

    shared = module._Shared()
    monkeypatch.setattr(module, "_shared", shared)
    known = process_figures()
    monkeypatch.setattr(module, "AGE_SECONDS", -1.0)
    monkeypatch.setattr(ProcessWatch, "sample", fail)
    assert process_figures() == known
    env = local_environment()
    source = DataGeneratorSource(lambda number: number, None, rate_per_second=100)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "n").filter(lambda number: False).print()
    job = env.execute_async("watched")
    try:
        assert job.get_progress().result(30).status
    finally:
        job.end()
    monkeypatch.setattr(module, "_shared", module._Shared())
    monkeypatch.setattr(module, "ProcessWatch", fail)
    assert process_figures() == ProcessFigures()
