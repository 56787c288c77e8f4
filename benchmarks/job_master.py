"""`python -m benchmarks.job_master`: what large jobs cost the job master, in real time and in one process.

A job of four vertices (a source, a stateless operator, a keyed one, a sink; a hash edge in the middle, forward edges
beside it) runs with more and more subtasks. All of them are real: executors in this process, and the real clock.
Measured is the processor time of the job master alone, its metadata files included: to deploy all subtasks until they
run, and for each checkpoint from its trigger until it has completed and older ones are cleaned up. Both should grow
with the number of subtasks, and not faster.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.sink import CountingSink
from penstock.base.job import JobID
from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.drivers.event_loop import EventLoopThread, InlineBackground, SystemClock
from penstock.drivers.local.mini_cluster import LocalCluster
from penstock.drivers.worker_storage import BackendSettings, StorageSettings
from penstock.runtime.effects import carry_out
from penstock.runtime.job.job_master import JobMaster

VERTICES = 4


class Silent:
    """A listener that says nothing."""

    def on_job_status(self, status: str, reason: str | None) -> None:
        if reason and status in ("FAILING", "FAILED"):
            raise RuntimeError(reason)

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None:
        pass

    def on_log(self, line: str) -> None:
        pass


class Rig:
    """A job on the local cluster, whose master's calls are timed."""

    def __init__(self, parallelism: int, directory: str) -> None:
        settings = {"execution.checkpointing.interval": "1 h", "execution.checkpointing.dir": directory}
        configuration = Configuration.from_dict({"execution.target": "local", **settings})
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(parallelism).set_max_parallelism(1024).disable_operator_chaining()
        slow = DataGeneratorSource(lambda index: index, rate_per_second=1.0)
        stream = env.from_source(slow, WatermarkStrategy.no_watermarks(), "numbers").filter(lambda number: True)
        stream.key_by(lambda number: number).reduce(lambda one, other: one).sink_to(CountingSink())
        graph = env.job_graph("large job")
        self.subtasks = sum(vertex.parallelism for vertex in graph.vertices)
        job_id = str(JobID.generate())
        storage = StorageSettings.of(configuration, job_id)
        self._clock = SystemClock()
        self._coroutines = EventLoopThread("coroutines", lambda: None)
        backends = BackendSettings.of(configuration, job_id).backends()
        background = InlineBackground()
        self._cluster = LocalCluster(self._clock, storage.storage, os.getpid(), backends, self._coroutines, background)
        self._background = InlineBackground()
        self._silent = Silent()
        self.master = JobMaster(
            graph,
            job_id,
            configuration,
            clock=self._clock,
            store=storage.store(),
            watches_heartbeats=False,
        )
        self.seconds = 0.0

    def timed(self, call: Callable[..., Any], *arguments: Any) -> Any:
        begun = time.thread_time()
        try:
            result = call(*arguments)
            effects = self.master.take_effects()
        finally:
            self.seconds += time.thread_time() - begun
        carry_out(effects, self._cluster, self._background, self._silent)
        return result

    def turn(self) -> None:
        """A turn of everybody."""
        cluster, master = self._cluster, self.master
        cluster.step()
        cluster.background.deliver()
        self.timed(self._background.deliver)
        while cluster.inbox:
            self.timed(master.on_message, cluster.inbox.popleft())
        deadline = self.timed(master.next_deadline)
        if deadline is not None and deadline <= self._clock.now_ms():
            self.timed(master.on_time)

    def until(self, condition: Callable[[], bool]) -> tuple[float, float]:
        """Turns until then; (processor seconds of the master, seconds in all)."""
        before, begun = self.seconds, time.perf_counter()
        while not condition():
            self.turn()
        return self.seconds - before, time.perf_counter() - begun

    def close(self) -> None:
        self.master.cancel()
        self._cluster.close()
        self._coroutines.close()


def measure(parallelism: int, checkpoints: int) -> dict[str, Any]:
    """The figures of one size."""
    with tempfile.TemporaryDirectory() as directory:
        rig = Rig(parallelism, directory)
        gc.collect()
        rig.timed(rig.master.start)
        triggered: list[int] = []

        def has_triggered() -> bool:
            found = rig.timed(rig.master.trigger_checkpoint)
            if found is not None:
                triggered.append(found)
            return found is not None

        statistics_of = rig.master.checkpoints.statistics
        deploy_cpu, deploy_wall = rig.until(has_triggered)
        cpus, walls = [], []
        for number in range(1, checkpoints + 1):
            cpu, wall = rig.until(lambda number=number: statistics_of.completed >= number)  # type: ignore[misc]
            cpus.append(cpu)
            walls.append(wall)
            if number < checkpoints:
                rig.until(has_triggered)
        rig.close()
    return {
        "subtasks": rig.subtasks,
        "deploy_cpu_s": deploy_cpu,
        "deploy_s": deploy_wall,
        "first_checkpoint_cpu_s": cpus[0],
        "checkpoint_cpu_s": statistics.median(cpus),
        "checkpoint_s": statistics.median(walls),
    }


@click.command()
@click.option("--subtasks", default="125,250,500,1000", show_default=True, help="Sizes of the job.")
@click.option("--checkpoints", default=5, show_default=True, help="Checkpoints of each job.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here.")
def main(subtasks: str, checkpoints: int, json_path: Path | None) -> None:
    """Print the processor time of the job master by the size of the job."""
    logging.basicConfig(level=logging.WARNING)
    console = Console()
    table = Table(title=f"processor time of the job master, {checkpoints} checkpoints")
    headings = ("subtasks", "deploy, s", "ms a subtask", "first checkpoint, s", "a checkpoint, s", "ms a subtask")
    for heading in headings:
        table.add_column(heading, justify="right")
    found = []
    for size in map(int, subtasks.split(",")):
        with console.status(f"{size} subtasks"):
            figures = measure(max(1, round(size / VERTICES)), checkpoints)
        found.append(figures)
        count = figures["subtasks"]
        table.add_row(
            f"{count:,}",
            f"{figures['deploy_cpu_s']:.2f}",
            f"{figures['deploy_cpu_s'] / count * 1000:.2f}",
            f"{figures['first_checkpoint_cpu_s']:.2f}",
            f"{figures['checkpoint_cpu_s']:.2f}",
            f"{figures['checkpoint_cpu_s'] / count * 1000:.2f}",
        )
    console.print(table)
    if json_path is not None:
        json_path.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
