"""`python -m benchmarks`: Penstock beside a bare Python loop (or what else does the same work by hand), run by run.

Without an option that says otherwise: events a second, ratio, processor time and memory of every workload. The others
are modes of their own: `--keys` and `--tasks` sweep, `--checkpoints` compares intervals, `--profile` writes flame
graphs, `--guard` compares with what `--record` has written, and `--base REV` with the build of another revision.
"""

from __future__ import annotations

import json
import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks import builds, flame, guard, plots, sweeps
from benchmarks.events import EventsSpec
from benchmarks.measuring import Figures, Settings, measure, peaks
from benchmarks.registry import WORKLOADS

#: The table's width where there is no terminal to fit into.
WIDTH = 170
INTERVALS = {"off": None, "10s": 10_000, "1s": 1_000}


def megabytes(size: int | None) -> str:
    return "?" if size is None else f"{max(0, size) / 1e6:,.0f}"


def build_report_table(figures: dict[str, Figures], title: str) -> Table:
    """What was measured, a line a workload."""
    table = Table(title=title, caption="CPU: seconds per million events; MB: peak memory, without the events")
    for column in ("", "workload", "compared with"):
        table.add_column(column, no_wrap=True)
    for column in ("its events/s", "Penstock, events/s", "ratio", "min", "max", "CPU ratio", "CPU", "MB"):
        table.add_column(column, justify="right", no_wrap=True)
    for key, workload in figures.items():
        ratios = workload.ratio, min(workload.ratios), max(workload.ratios)
        table.add_row(
            key,
            workload.name,
            workload.twin_name,
            f"{workload.twin_rate:,.0f}",
            f"{workload.rate:,.0f}",
            *(f"{ratio:.2f}" for ratio in ratios),
            f"{workload.cpu_ratio:.2f}",
            f"{workload.twin_cpu_seconds_per_million:.2f} / {workload.cpu_seconds_per_million:.2f}",
            f"{megabytes(workload.twin_peak_bytes)} / {megabytes(workload.peak_bytes)}",
        )
    return table


def measure_all(console: Console, keys: list[str], spec: EventsSpec, settings: Settings) -> dict[str, Figures]:
    """Memory of all workloads first, in forks of a process that has run nothing yet; then the pairs."""
    with console.status("") as status:
        memory = {}
        for key in keys:
            status.update(f"{key}: memory")
            memory[key] = peaks(WORKLOADS[key], WORKLOADS[key].spec(spec), settings)
        figures = {}
        for key in keys:
            tell = partial(_tell, status, key)
            figures[key] = measure(WORKLOADS[key], spec, settings, memory[key], tell)
    return figures


def _tell(status: Any, key: str, what: str) -> None:
    status.update(f"{key}: {what}")


def compare_builds(
    console: Console, base: str, subjects: dict[str, builds.Subject], title: str, json_path: Path | None
) -> dict[str, builds.Compared]:
    """Print how this build compares with another one."""
    with console.status("") as status:
        compared = dict(builds.compare(base, subjects, status.update))
    table = Table(title=title, caption=f"interval: 95 % of the median; one below {builds.RATIO_MIN} has fallen")
    for column in ("", "workload", "median", "interval", "pairs", ""):
        table.add_column(column, no_wrap=True)
    for key, subject in compared.items():
        low, high = subject.interval
        verdict = "fallen" if subject.has_fallen else "" if subject.is_known else "not known to ±0.03"
        ratios = f"{subject.median:.3f}", f"{low:.3f} to {high:.3f}", str(len(subject.ratios))
        table.add_row(key, subject.name, *ratios, verdict)
    console.print(table)
    if json_path is not None:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps({key: subject.to_json() for key, subject in compared.items()}, indent=1))
    return compared


@click.command()
@click.option("--events", "count", default=1_000_000, show_default=True, help="Events per run.")
@click.option("--pairs", default=5, show_default=True, help="Pairs of runs per workload.")
@click.option("--only", default="", help="Workloads, such as W1,W3.")
@click.option("--target", type=click.Choice(["local", "spark"]), default="local", show_default=True)
@click.option("--parallelism", type=click.IntRange(1, 2), default=1, show_default=True, help="On Spark.")
@click.option("--interval", type=click.Choice(list(INTERVALS)), default="1s", show_default=True, help="Of checkpoints.")
@click.option("--checkpoints", is_flag=True, help="Instead: W2 to W4 with a checkpoint every 1 s, every 10 s and none.")
@click.option("--keys", default="", help="Instead: W2 over numbers of keys, such as 1000..10000000 (powers of ten).")
@click.option("--tasks", default="", help="Instead: maps in a row, such as 1..8, in one chain and in separate tasks.")
@click.option("--profile", is_flag=True, help="Instead: flame graphs in build/benchmarks.")
@click.option("--guard", "is_guard", is_flag=True, help="Instead: fail if a ratio is below 0.85 of the recorded one.")
@click.option("--base", help="Instead: this build beside that of a git revision, in turns, until ratios are known.")
@click.option(
    "--nexmark",
    type=click.Path(exists=True, path_type=Path),
    help="With --base: the benchmark's files; then q7, q18 and q20 of Nexmark, with checkpoints, are compared, too.",
)
@click.option("--record", is_flag=True, help="Write the ratios that --guard compares with.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here.")
@click.option("--plot", "plot_path", type=click.Path(path_type=Path), help="Draw the figures here, as SVG or PNG.")
@click.option("--once", hidden=True, default=0.0, help="Run Penstock's side for this many seconds, for a profiler.")
def main(
    count: int,
    pairs: int,
    only: str,
    target: str,
    parallelism: int,
    interval: str,
    checkpoints: bool,
    keys: str,
    tasks: str,
    profile: bool,
    is_guard: bool,
    base: str | None,
    nexmark: Path | None,
    record: bool,
    json_path: Path | None,
    plot_path: Path | None,
    once: float,
) -> None:
    """Print throughput and the ratio to the bare loop."""
    logging.basicConfig(level=logging.WARNING)
    if parallelism > 1 and target == "local":
        raise click.UsageError("--parallelism 2 needs --target spark: locally all subtasks share one thread")
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    settings = Settings(target, parallelism, INTERVALS[interval], pairs)
    spec = EventsSpec(count)
    if base is not None:
        title = f"This build beside {base}: its processor time / this build's, {count:,} events"
        compared = compare_builds(console, base, guard.find_subjects(count, only, nexmark), title, json_path)
        if plot_path is not None:
            plots.builds(compared, title, plot_path)
        sys.exit(any(subject.has_fallen for subject in compared.values()))
    if nexmark is not None:
        raise click.UsageError("--nexmark needs --base: its queries are compared with another build")
    chosen = guard.choose_keys(only, list(WORKLOADS))
    title = f"{count:,} events on {target}, parallelism {parallelism}, checkpoints {interval}, {pairs} pairs"
    if once:
        flame.run_for(chosen[0], spec, settings, once)
        return
    if profile:
        for key in chosen:
            console.print(f"{key}: {flame.record(key, count, interval)}")
        return
    measured: dict[str, Any]
    if checkpoints:
        points = sweeps.over_intervals(console, spec, settings)
        measured, drawing = points, plots.intervals
    elif keys:
        points = sweeps.over_keys(console, spec, settings, sweeps.numbers(keys, by_tens=True))
        measured, drawing = points, plots.key_sweep
    elif tasks:
        points = sweeps.over_tasks(console, spec, settings, sweeps.numbers(tasks))
        measured, drawing = points, plots.task_sweep
    else:
        figures = measure_all(console, chosen, spec, settings)
        console.print(build_report_table(figures, title))
        measured, drawing = {key: workload.to_json() for key, workload in figures.items()}, plots.ratios
        if record:
            guard.record(figures)
    if json_path is not None:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps(measured, indent=1))
    if plot_path is not None:
        plot_path.parent.mkdir(parents=True, exist_ok=True)
        drawing(measured, title, plot_path)
    if is_guard and (fallen := guard.fallen(figures)):
        console.print("\n".join(fallen), style="red")
        sys.exit(1)


if __name__ == "__main__":
    main()
