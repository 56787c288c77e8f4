"""The simulator's random jobs with real processes: on Spark, with SIGKILL, the committed output is the same.

`python -m tests.spec.replay_scenarios --scenarios 20` draws a scenario of the simulator for each seed, and runs its job
with real workers, real files and real time. Only the source is another (the same records, paced) and the sink (files);
what was committed is compared with the simulator's reference answer. Every other job loses a worker to SIGKILL.
"""

from __future__ import annotations

import ast
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import CancelledError
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from penstock.base import options
from penstock.base.errors import PenstockError
from penstock.common import Configuration, Encoder, WatermarkStrategy
from penstock.connectors.file.buckets import BucketAssigner
from penstock.connectors.file.sink import FileSink
from penstock.connectors.split_reader import PositionedReader, SplitQueue
from penstock.drivers.client.submit import submit
from penstock.drivers.running_job import RunningJob
from penstock.drivers.simulation.connectors import JITTER_MS, SimulatedSource, Split, generate_record
from penstock.drivers.simulation.oracle import check_exact, check_superset, outputs
from penstock.drivers.simulation.outside_world import Outside, outside, present
from penstock.drivers.simulation.scenario import Scenario, draw_scenario
from penstock.drivers.simulation.topology import Stage, Topology
from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.connector import Boundedness, Source, SourceReaderContext, SplitEnumerator, SplitEnumeratorContext
from penstock.runtime.operators.connector import SinkOperator, SourceOperator
from penstock.runtime.records import Batch

#: What takes 1 ms in the simulator takes about this long here.
TIME_SCALE = 10
JOB_SECONDS = 2.5
RECORDS_SCALE = 8
POLL_S = 0.05
PATIENCE_S = 60.0

_worlds = ExitStack()


def in_world(world: str, pause_s: float, factory: Any) -> Any:
    """An operator, after the outside world that its user functions ask for has been made in this worker."""
    try:
        outside(world)
    except KeyError:
        _worlds.enter_context(present(world, Outside(random.Random(world), partial(time.sleep, pause_s))))
    return factory()


@dataclass(frozen=True)
class ReplaySource(Source[Any, Split]):
    """The records of a simulated source, split by split, in bursts, `rate` records a second in each reader."""

    splits: list[Split]
    keys: int
    rate: float
    burst_ms: int

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(self, context: SplitEnumeratorContext[Split], restored: Any | None) -> SplitEnumerator[Split]:
        return SplitQueue(context, self.splits, restored)

    def create_reader(self, context: SourceReaderContext) -> PositionedReader[Split]:
        return _Reader(self, context)


class _Reader(PositionedReader[Split]):
    def __init__(self, source: ReplaySource, context: SourceReaderContext) -> None:
        super().__init__(context)
        self._source = source
        self._begun_ms = context.now_ms()
        self._given = 0

    def allowance(self, max_records: int) -> int:
        bursts = (self._context.now_ms() - self._begun_ms) // self._source.burst_ms + 1
        return min(max_records, int(bursts * self._source.burst_ms * self._source.rate / 1000) + 1 - self._given)

    def read(self, split: Split, max_records: int) -> tuple[Batch, Split] | None:
        stop = min(split.position + max_records, split.stop)
        if stop <= split.position:
            return None
        records = [generate_record(split, position, self._source.keys) for position in range(split.position, stop)]
        self._given += len(records)
        return Batch([r for r, _ in records], [t for _, t in records]), replace(split, position=stop)


@dataclass
class RealTopology(Topology):
    """The same stages with a paced source, file sinks below `out`, and user functions that take `pause_s` a call."""

    out: str = ""
    pause_s: float = 0.0

    def _transformation(self, stage: Stage, upstreams: tuple[Upstream, ...]) -> Transformation:
        made = super()._transformation(stage, upstreams)
        if stage.source is not None:
            splits = stage.source.splits
            rate = sum(s.stop for s in splits) / JOB_SECONDS / min(stage.parallelism, len(splits))
            source = ReplaySource(splits, stage.source.keys, rate, 200 if stage.source.is_lazy else 20)
            strategy = WatermarkStrategy.for_bounded_out_of_orderness(JITTER_MS)
            if stage.idleness_ms is not None:
                strategy = strategy.with_idleness(stage.idleness_ms)
            made = replace(made, source=source, node=partial(SourceOperator, source, strategy))
        elif stage.kind == "sink":
            rows = FileSink.for_row_format(f"{self.out}/{stage.uid}", Encoder.simple_string_encoder())
            sink = rows.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
            made = replace(made, sink=sink, node=partial(SinkOperator, sink))
        return replace(made, node=partial(in_world, self.world, self.pause_s, made.node))


def real_topology(drawn: Topology, out: str, pause_s: float) -> RealTopology:
    """The drawn job with longer splits, for there is more time."""
    stages = []
    for stage in drawn.stages:
        if (old := stage.source) is not None:
            first, count = old.splits[0], len(old.splits)
            size = first.stop * RECORDS_SCALE
            longer = SimulatedSource(old.world, first.source, count, size, old.keys, old.is_lazy)
        stages.append(stage if old is None else replace(stage, source=longer))
    return RealTopology(drawn.world, drawn.keys, stages, drawn.may_rescale, out, pause_s)


def real_configuration(scenario: Scenario, chance: random.Random, folder: str) -> Configuration:
    """The drawn options, with times that suit real processes."""
    configuration = Configuration()
    configuration.add_all(scenario.configuration)
    read, write = configuration.read, configuration.write
    for option in (options.CHECKPOINTING_MIN_PAUSE_MS, options.CHECKPOINTING_TIMEOUT_MS, options.ALIGNED_TIMEOUT_MS):
        write(option, read(option) * TIME_SCALE)
    write(options.CHECKPOINTING_INTERVAL_MS, chance.choice((100, 200, 300)))
    write(options.CHECKPOINTING_INLINE_BYTES, scenario.inline_bytes_max)
    return write(options.CHECKPOINTING_DIR, f"{folder}/checkpoints")


@dataclass
class Replay:
    """What became of a scenario. `difference` is None when the committed output is right."""

    seed: int
    mode: str
    kills: int = 0
    restarts: int = 0
    checkpoints: int = 0
    records: int = 0
    repeated: int = 0
    seconds: float = 0.0
    difference: str | None = None
    topology: str = ""

    def __str__(self) -> str:
        right = f"nothing lost, {self.repeated} too many" if self.repeated else "output equal"
        return (
            f"seed {self.seed}: {self.mode}, {self.kills} killed, {self.restarts} restarts, {self.checkpoints} "
            f"checkpoints, {self.records} records, {self.seconds:.1f} s: {self.difference or right} | {self.topology}"
        )


def replay(seed: int, is_killed: bool) -> Replay:
    """Run the job of a seed's scenario on Spark, and compare."""
    scenario = draw_scenario(random.Random(seed), f"sim-{seed}")
    chance = random.Random(f"real-{seed}")
    begun = time.monotonic()
    result = Replay(seed, scenario.mode, topology=str(scenario.topology))
    with tempfile.TemporaryDirectory(prefix="penstock-replay-") as folder:
        topology = real_topology(scenario.topology, f"{folder}/out", chance.choice((0.0, 0.001, 0.003)))
        configuration = real_configuration(scenario, chance, folder)
        job = submit(topology.job_graph(configuration), configuration)
        try:
            _attend(job, result, chance, chance.uniform(0.1, JOB_SECONDS * 0.9) if is_killed else None)
            job.get_job_execution_result().result()
        except (PenstockError, TimeoutError) as error:
            result.difference = f"failed: {error!r}"
        else:
            result.difference = _compare(topology, scenario.mode == "at-least-once", result)
    result.seconds = time.monotonic() - begun
    return result


def _attend(job: RunningJob, result: Replay, chance: random.Random, kill_after_s: float | None) -> None:
    """Wait until the job is over; kill a worker so long after it began to run."""
    done, give_up, kill_at = job.get_job_execution_result().done, time.monotonic() + PATIENCE_S, None
    while not done():
        if time.monotonic() > give_up:
            job.end()
            raise TimeoutError(f"the job took more than {PATIENCE_S} s")
        time.sleep(POLL_S)
        with suppress(CancelledError, ProcessLookupError):  # the job is over
            progress = job.get_progress().result()
            result.restarts, result.checkpoints = progress.restarts, progress.checkpoints_completed
            if kill_at is None and kill_after_s is not None and progress.status == "RUNNING":
                kill_at = time.monotonic() + kill_after_s
            if kill_at is not None and time.monotonic() >= kill_at and progress.workers and not result.kills:
                os.kill(chance.choice(progress.workers)[2], signal.SIGKILL)
                result.kills += 1


def _compare(topology: RealTopology, may_repeat: bool, result: Replay) -> str | None:
    found = []
    for sink, expected in outputs(topology).items():
        records: list[Any] = []
        for path in Path(topology.out, sink).glob("*"):
            if path.is_file() and not path.name.startswith((".", "_")):
                records += map(ast.literal_eval, path.read_text().splitlines())
        result.records += len(records)
        result.repeated += (Counter(records) - expected).total()
        found.append((check_superset if may_repeat else check_exact)(sink, expected, records))
    return "; ".join(line for line in found if line is not None) or None


@click.command()
@click.option("--scenarios", default=20, show_default=True, help="How many scenarios.")
@click.option("--seed", default=1, show_default=True, help="The first scenario's seed; the next ones follow it.")
def main(scenarios: int, seed: int) -> None:
    """Run scenarios one after another, and compare the output every time."""
    begun = time.monotonic()
    replays = []
    for number in range(scenarios):
        replays.append(replay(seed + number, number % 2 == 1))
        print(replays[-1], flush=True)
    different = [r.seed for r in replays if r.difference is not None]
    answer = f"seeds {different} differed" if different else "the committed output was right every time"
    killed = sum(r.kills for r in replays)
    print(f"{scenarios} scenarios, {killed} workers killed, {time.monotonic() - begun:.0f} s: {answer}")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    from tests.spec import replay_scenarios  # what workers unpickle must be found by this name

    replay_scenarios.main()
