"""Runs of both sides, in pairs one after the other, so that a noisy machine is noisy for both."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.events import EventsSpec
from benchmarks.processes import TreeMemory, cpu_seconds, peak_bytes_of
from benchmarks.sink import KEPT_MAX, CountingSink
from benchmarks.workloads import Workload
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment

#: of the twin and of Penstock
Peaks = tuple[int | None, int | None]


@dataclass(frozen=True)
class Settings:
    """How Penstock runs."""

    target: str = "local"
    parallelism: int = 1
    #: of checkpoints, ms; None for none
    interval_ms: int | None = 1_000
    pairs: int = 5


@dataclass(frozen=True)
class Run:
    """What one run took."""

    seconds: float
    cpu_seconds: float
    records: int


@dataclass(frozen=True)
class Figures:
    """What is known of one workload. Ratios are Penstock's rate over its twin's, by wall time and by processor time."""

    name: str
    twin_name: str
    events: int
    twin_rate: float
    rate: float
    ratios: list[float]
    cpu_ratios: list[float]
    twin_cpu_seconds_per_million: float
    cpu_seconds_per_million: float
    twin_peak_bytes: int | None
    peak_bytes: int | None

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def cpu_ratio(self) -> float:
        return statistics.median(self.cpu_ratios)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "cpu_ratio": self.cpu_ratio}


def run_twin(workload: Workload, spec: EventsSpec) -> Run:
    """One run of the other side."""
    events = workload.input_of(spec)
    kept: list[Any] = []
    dropped = 0

    def emit(record: Any) -> None:
        nonlocal dropped
        kept.append(record)
        if len(kept) > KEPT_MAX:
            dropped += len(kept)
            kept.clear()

    gc.collect()
    cpu, begun = cpu_seconds(False), time.perf_counter()
    counted = workload.twin(events, emit)
    seconds = time.perf_counter() - begun
    return Run(seconds, cpu_seconds(False) - cpu, dropped + len(kept) if counted is None else counted)


def run_penstock(workload: Workload, spec: EventsSpec, settings: Settings) -> Run:
    """One run from the job's start to its end, deployment and last checkpoint included."""
    workload.input_of(spec)
    configuration = Configuration()
    configuration.set_string("execution.target", settings.target)
    for key, value in workload.options.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(settings.parallelism)
    if settings.interval_ms is not None:
        env.enable_checkpointing(settings.interval_ms)
    sink = CountingSink()
    workload.build(env, spec).sink_to(sink)
    gc.collect()
    with_children = settings.target != "local"
    cpu, begun = cpu_seconds(with_children), time.perf_counter()
    env.execute(workload.name)
    seconds = time.perf_counter() - begun
    return Run(seconds, cpu_seconds(with_children) - cpu, sink.total)


def peaks(workload: Workload, spec: EventsSpec, settings: Settings) -> Peaks:
    """Bytes that the twin and Penstock need at most, beside the events.

    On Spark Penstock's are the resident memory of the JVM and all Python processes together, shared pages in each.
    """
    workload.input_of(spec)
    twin = peak_bytes_of(lambda: run_twin(workload, spec))
    if settings.target == "local":
        return twin, peak_bytes_of(lambda: run_penstock(workload, spec, settings))
    with TreeMemory() as memory:
        run_penstock(workload, spec, settings)
    return twin, memory.peak_bytes


def measure(
    workload: Workload,
    spec: EventsSpec,
    settings: Settings,
    peak_bytes: Peaks = (None, None),
    tell: Callable[[str], object] = str,
) -> Figures:
    """The figures of one workload, and what `peaks` gave. The first run of Penstock does not count.

    Raises AssertionError when the two sides emit different numbers of records.
    """
    spec = workload.spec(spec)
    tell("first run")
    run_penstock(workload, spec, settings)
    twins, ours = [], []
    for pair in range(settings.pairs):
        tell(f"pair {pair + 1} of {settings.pairs}")
        twins.append(run_twin(workload, spec))
        ours.append(run_penstock(workload, spec, settings))
        if twins[-1].records != ours[-1].records:
            found = f"{twins[-1].records} records, Penstock {ours[-1].records}"
            raise AssertionError(f"{workload.name}: {workload.twin_name} emitted {found}")
    millions = spec.count / 1e6
    return Figures(
        name=workload.name,
        twin_name=workload.twin_name,
        events=spec.count,
        twin_rate=spec.count / statistics.median(run.seconds for run in twins),
        rate=spec.count / statistics.median(run.seconds for run in ours),
        ratios=[twin.seconds / run.seconds for twin, run in zip(twins, ours, strict=True)],
        cpu_ratios=[twin.cpu_seconds / run.cpu_seconds for twin, run in zip(twins, ours, strict=True)],
        twin_cpu_seconds_per_million=statistics.median(run.cpu_seconds for run in twins) / millions,
        cpu_seconds_per_million=statistics.median(run.cpu_seconds for run in ours) / millions,
        twin_peak_bytes=peak_bytes[0],
        peak_bytes=peak_bytes[1],
    )
