"""`python -m benchmarks.operations`: what it costs a job to be looked at.

W2 and W1 on Spark, in turns: with nobody looking; with all metrics reported (Prometheus, scraped every second, and
a file, every second); and with the REST API on top, asked every two seconds for what the page of a job shows.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.events import EventsSpec
from benchmarks.measuring import Run, Settings, run_penstock
from benchmarks.registry import WORKLOADS

PROMETHEUS_PORT = 19_249
REST_PORT = 18_081
#: what the page of a job asks for, with the id of the job and of a vertex
PAGE = ("", "/checkpoints", "/exceptions", "/config", "/checkpoints/config", "/accumulators", "/metrics?get=uptime")
OF_VERTEX = ("", "/backpressure", "/watermarks", "/subtasks/metrics?get=numRecordsInPerSecond,busyTimeMsPerSecond")


class Looking:
    """Asks for addresses again and again until closed; keeps how often it was answered."""

    def __init__(self, every_s: float, ask: Any) -> None:
        self.answers = 0
        self._every_s = every_s
        self._ask = ask
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ask no more."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            with contextlib.suppress(OSError, KeyError, StopIteration):
                self._ask()
                self.answers += 1


def fetched(address: str) -> Any:
    """What is there."""
    with urllib.request.urlopen(address, timeout=10) as answer:
        text = answer.read()
    return json.loads(text) if "json" in answer.headers.get("content-type", "") else text


def scrape() -> None:
    """As Prometheus does."""
    fetched(f"http://127.0.0.1:{PROMETHEUS_PORT}/metrics")


def look() -> None:
    """As the page of a job does."""
    root = f"http://127.0.0.1:{REST_PORT}"
    jobs = fetched(f"{root}/jobs/overview")["jobs"]
    running = next(job["jid"] for job in jobs if job["state"] == "RUNNING")
    job = f"{root}/jobs/{running}"
    vertices = [vertex["id"] for vertex in fetched(job)["vertices"]]
    for path in PAGE:
        fetched(job + path)
    for vertex in vertices:
        for path in OF_VERTEX:
            fetched(f"{job}/vertices/{vertex}{path}")


@contextlib.contextmanager
def watched(mode: str) -> Iterator[list[Looking]]:
    """Those who look in this mode."""
    looking = []
    if mode != "off":
        looking.append(Looking(1.0, scrape))
    if mode == "page":
        looking.append(Looking(2.0, look))
    try:
        yield looking
    finally:
        for one in looking:
            one.close()


def options(mode: str, folder: str) -> dict[str, str]:
    """The configuration of a mode."""
    if mode == "off":
        return {}
    reporters = {
        "metrics.reporters": "prom, file",
        "metrics.reporter.prom.type": "prometheus",
        "metrics.reporter.prom.port": str(PROMETHEUS_PORT),
        "metrics.reporter.file.type": "json",
        "metrics.reporter.file.path": f"{folder}/metrics.jsonl",
        "metrics.reporter.file.interval": "1 s",
    }
    return {**reporters, "rest.port": str(REST_PORT)} if mode == "page" else reporters


@click.command()
@click.option("--events", default=6_000_000, show_default=True, help="Events per run.")
@click.option("--pairs", default=5, show_default=True, help="Rounds.")
@click.option("--only", default="W2,W1", show_default=True, help="Workloads.")
@click.option("--target", type=click.Choice(["local", "spark"]), default="spark", show_default=True)
@click.option("--parallelism", default=2, show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here.")
def main(events: int, pairs: int, only: str, target: str, parallelism: int, json_path: Path | None) -> None:
    """Print the throughput of each mode over that of the job that nobody looks at."""
    settings = Settings(target, parallelism)
    table = Table(title=f"{target}, parallelism {parallelism}: throughput over that of the job that nobody looks at")
    for column in ("workload", "mode", "events/s", "ratio", "ratios of each round", "CPU ratio", "answers"):
        table.add_column(column, justify="left" if column in ("workload", "mode") else "right")
    found: dict[str, Any] = {}
    console = Console(width=120)
    with tempfile.TemporaryDirectory(prefix="penstock-operations-") as folder:
        for key in only.split(","):
            runs, answers = rounds(key, events, pairs, settings, folder, console)
            for mode, of_mode in runs.items():
                ratios = [off.seconds / run.seconds for off, run in zip(runs["off"], of_mode, strict=True)]
                cpu = [run.cpu_seconds / off.cpu_seconds for off, run in zip(runs["off"], of_mode, strict=True)]
                rate = events / statistics.median(run.seconds for run in of_mode)
                found[f"{key} {mode}"] = {"rate": rate, "ratios": ratios, "cpu": cpu, "answers": answers[mode]}
                table.add_row(
                    key,
                    mode,
                    f"{rate:,.0f}",
                    f"{statistics.median(ratios):.2f}",
                    " ".join(f"{ratio:.2f}" for ratio in ratios),
                    f"{statistics.median(cpu):.2f}",
                    str(answers[mode]),
                )
    console.print(table)
    if json_path is not None:
        json_path.write_text(json.dumps(found, indent=1))


def rounds(
    key: str, events: int, pairs: int, settings: Settings, folder: str, console: Console
) -> tuple[dict[str, list[Run]], dict[str, int]]:
    """The runs of each mode, and how often those who looked were answered. The first runs do not count.

    Reporters and the server live as long as their process, so every run has a process of its own.
    """
    modes = ("off", "metrics", "page")
    runs: dict[str, list[Run]] = {mode: [] for mode in modes}
    answers = dict.fromkeys(modes, 0)
    for number in range(pairs + 1):
        for mode in modes if number % 2 else modes[::-1]:
            run, answered = in_a_fork(key, events, settings, mode, folder)
            if number:
                runs[mode].append(run)
                answers[mode] += answered
        console.print(f"{key}: round {number} of {pairs}")
    return runs, answers


def in_a_fork(key: str, events: int, settings: Settings, mode: str, folder: str) -> tuple[Run, int]:
    """A run in a process of its own."""
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(one_run, (key, events, settings, mode, folder))


def one_run(key: str, events: int, settings: Settings, mode: str, folder: str) -> tuple[Run, int]:
    """A short run to warm up, and the one that counts."""
    workload = WORKLOADS[key]
    workload = replace(workload, options={**workload.options, **options(mode, folder)})
    run_penstock(workload, workload.spec(EventsSpec(count=events // 20)), settings)
    spec = workload.spec(EventsSpec(count=events))
    workload.input_of(spec)
    with watched(mode) as looking:
        run = run_penstock(workload, spec, settings)
    return run, sum(one.answers for one in looking)


if __name__ == "__main__":
    main()
