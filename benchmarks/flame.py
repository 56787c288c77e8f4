"""Flame graphs of Penstock's side: by py-spy, and where it may not look into processes, by pyinstrument."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.events import EventsSpec
from benchmarks.measuring import Settings, run_penstock
from benchmarks.registry import WORKLOADS
from penstock.drivers.local.mini_cluster import LocalJob

FOLDER = Path("build/benchmarks")
SECONDS = 8
SAMPLES_PER_SECOND = 400


def run_for(key: str, spec: EventsSpec, settings: Settings, seconds: float) -> None:
    """Run a workload again and again for so long."""
    workload = WORKLOADS[key]
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        run_penstock(workload, workload.spec(spec), settings)


def record(key: str, count: int, interval: str) -> Path:
    """Write the flame graph of a workload on the local cluster; returns its path."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{key}.svg"
    run = ["-m", "benchmarks", "--only", key, "--events", str(count), "--interval", interval, "--once", str(SECONDS)]
    spy = ["py-spy", "record", "--rate", str(SAMPLES_PER_SECOND), "--output", str(path), "--", sys.executable]
    try:
        subprocess.run([*spy, *run], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return _record_here(key, EventsSpec(count))
    return path


def _record_here(key: str, spec: EventsSpec) -> Path:
    """By pyinstrument, which looks at one thread of this process: that of the job."""
    from pyinstrument import Profiler
    from pyinstrument.renderers import SpeedscopeRenderer

    profiler = Profiler(interval=1 / SAMPLES_PER_SECOND)
    run = LocalJob._run

    def profiled(job: Any) -> None:
        with profiler:
            run(job)

    LocalJob._run = profiled  # type: ignore[assignment, method-assign]
    try:
        run_penstock(WORKLOADS[key], WORKLOADS[key].spec(spec), Settings())
    finally:
        LocalJob._run = run  # type: ignore[method-assign]
    path = FOLDER / f"{key}.speedscope.json"
    path.write_text(profiler.output(SpeedscopeRenderer()))
    return path
