"""Workers on Spark answer what they are at, also while a user's function does not return (A1)."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.drivers.spark.programs import KEYS, CollectingListener, counting_job, wait_until

from penstock.base.configuration import Configuration
from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.job import submit
from penstock.server.dispatcher import DispatchedJob, FlameGraph, NotThereError, WorkerInsight

pytestmark = pytest.mark.spark

HERE = Path(__file__).stem


def stuck(is_over: Callable[[], bool]) -> Callable[[int], tuple[int, int]]:
    """A function that prints, logs and does not return until somebody says so."""

    def nap(number: int) -> tuple[int, int]:
        if number == 0:
            print("printed by nap")
            logging.getLogger("mine").info("logged by nap with hunter2-hunter2")
        while not is_over():
            time.sleep(0.05)
        return number % KEYS, 1

    return nap


@pytest.mark.slow
def test_a_stuck_worker_shows_stacks_logs_output_and_a_flame_graph(spark: SparkHandle, tmp_path: Path) -> None:
    """While its function sleeps; secrets of the options are in none of it, and lines are JSON where that is wanted."""
    over = tmp_path / "over"
    graph = counting_job(40, None, 1, stuck(over.exists))
    settings = {"penstock.logs.format": "json", "s3.secret-key": "hunter2-hunter2", "heartbeat.interval": "10 s"}
    configuration = Configuration.from_dict(settings)
    client = submit(graph, configuration, CollectingListener())
    job, insight = DispatchedJob(client, graph, configuration), WorkerInsight()

    def worker() -> str | None:
        view = job.view()
        return next((w.worker_id for w in view.workers if w.process is not None), None) if view is not None else None

    try:
        wait_until(lambda: worker() is not None, "figures of the worker")
        worker_id = worker()
        assert worker_id is not None

        def dump() -> str:
            return "".join(text for _, text in insight.thread_dump(job, worker_id))

        wait_until(lambda: "in nap" in dump(), "the function in a dump")
        assert "penstock-heartbeats" in dump()
        names = [name for name, _, _ in insight.logs(job, worker_id)]
        assert names == [f"{worker_id}.log"]
        lines = [json.loads(line) for line in insight.log(job, worker_id, names[0]).decode().splitlines()]
        (line,) = [line for line in lines if line["logger"] == "mine"]
        assert (line["message"], line["process"]) == ("logged by nap with ******", worker_id)
        states = [line["message"] for line in lines if line["logger"] == "penstock.tasks"]
        assert any(state.endswith(", attempt 0: RUNNING") for state in states), states
        assert insight.stdout(job, worker_id) == b"printed by nap\n"
        with pytest.raises(NotThereError, match=r"no log file '../secret'"):
            insight.log(job, worker_id, "../secret")
        with pytest.raises(NotThereError, match="no worker 'nobody'"):
            insight.thread_dump(job, "nobody")

        view = job.view()
        assert view is not None
        vertex = next(v for v in view.vertices if "map" in v.name)
        graphs: list[FlameGraph] = []

        def sampled() -> bool:
            graph = insight.flame_graph(job, vertex.vertex_id, "off_cpu")
            graphs.extend([] if graph is None else [graph])
            return graph is not None

        wait_until(sampled, "a flame graph")
        root = graphs[0].root
        assert root.value > 90
        assert f"{HERE}.stuck.<locals>.nap" in json.dumps(root.to_dict())
        cpu = insight.flame_graph(job, vertex.vertex_id, "on_cpu")
        assert cpu is not None
        assert cpu.root.value < 10
        assert "penstock-job-" in "".join(name for name, _ in insight.thread_dump(job, None))
    finally:
        over.touch()
        client.end()
