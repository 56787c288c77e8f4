"""`penstock-sim`: run seeds, report histories per second, and show how to replay each one that broke a promise.

With `--crash-points`, crash at every step of the protocol instead of at random, and print a table.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from penstock.drivers.simulation import stepwise_history
from penstock.drivers.simulation.crash_points import (
    CRASH_POINTS,
    JOBS,
    CrashRun,
    CrashTable,
    cover_all,
    random_pair,
    watched,
)
from penstock.drivers.simulation.execution_mode_changes import run_changing_seed
from penstock.drivers.simulation.object_store import FILES, KINDS, with_store
from penstock.drivers.simulation.scenario import MODES, with_latency_markers
from penstock.drivers.simulation.simulation import History, run_seed

#: The most pairs to try per pair with both crashes.
TRIES_A_PAIR = 20


def run_crash_points(pairs: int, cuts_power: bool = False, first_pair: int = 0) -> bool:
    """Crash at every step, then at pairs of steps; print a table, and return whether all promises were kept."""
    begun = time.monotonic()
    table = CrashTable(cuts_power)
    click.echo(f"{len(CRASH_POINTS)} steps, before and after, in {len(JOBS)} jobs: covered of possible")
    click.echo(f"{'step':42} {'owner':10} " + " ".join(f"{mode:>13}" for mode in MODES))
    with watched():
        for point in cover_all(table):
            cells = []
            for mode in MODES:
                possible = table.wanted[(point.name, mode)]
                cells.append(f"{table.covered[(point.name, mode)]}/{possible}" if possible else "-")
            click.echo(f"{point.name:42} {point.owner:10} " + " ".join(f"{cell:>13}" for cell in cells))
        for point in CRASH_POINTS:
            for mode, why in point.absent.items():
                click.echo(f"- {point.name}, {mode}: {why}")
        covered, possible = table.covered.total(), table.wanted.total()
        click.echo(f"{covered} of {possible} covered ({100 * covered / possible:.1f} %) in {table.histories} histories")
        for line in table.missed:
            click.echo(f"never reached: {line}")
        for run, violations in table.failed:
            _print_crash_failure(run, violations)
        failed = table.failed + run_pairs(pairs, first_pair)
    click.echo(f"{time.monotonic() - begun:.0f} s, {len(failed)} with violations")
    return not failed and not table.missed


def run_step_points() -> bool:
    """Make every step of jobs of epochs fail; print a table, and return whether all promises were kept."""
    begun = time.monotonic()
    table = stepwise_history.StepwiseTable()
    click.echo(f"{len(stepwise_history.POINTS)} points in {len(JOBS)} jobs: reached of possible")
    for name in stepwise_history.cover_all_steps(table):
        click.echo(f"{name:75} {table.covered.get(name, 0)}/{table.wanted[name]}")
    for name in table.missed:
        click.echo(f"never reached in some job: {name}")
    for crash, violations in table.failed:
        _print_crash_failure(crash, violations)
    reached, possible = sum(table.covered.values()), sum(table.wanted.values())
    click.echo(f"{reached} of {possible} reached in {table.histories} histories")
    click.echo(f"{time.monotonic() - begun:.0f} s, {len(table.failed)} with violations")
    return not table.failed and not table.missed


def run_pairs(count: int, first: int = 0) -> list[tuple[CrashRun, list[str]]]:
    """Run histories until both crashes have happened in `count` of them; return those that broke a promise."""
    both = tried = 0
    failed = []
    while both < count and tried < count * TRIES_A_PAIR:
        run = random_pair(first + tried)
        tried += 1
        history, happened = run.run()
        both += happened
        if history.violations:
            failed.append((run, history.violations))
            _print_crash_failure(run, history.violations)
    if count:
        click.echo(f"{both} pairs of crashes in {tried} histories")
    return failed


def _print_crash_failure(run: CrashRun | stepwise_history.StepwiseCrash, violations: list[str]) -> None:
    click.echo(f"{run}")
    for violation in violations:
        click.echo(f"  {violation}")


#: The function that runs a history, by execution mode. Histories of epochs sometimes begin with a back-fill. In
#: "changing", each job runs in its own execution mode.
EXECUTION_MODES: dict[str, Callable[..., History]] = {
    "streaming": run_seed,
    "epochs": stepwise_history.run_stepwise_seed,
    "batch": stepwise_history.run_batch_seed,
    "changing": run_changing_seed,
}


if TYPE_CHECKING:
    _RangeType = click.ParamType[range]
else:
    _RangeType = click.ParamType  # not generic before click 8.2


class SeedRange(_RangeType):
    """`A..B`: the seeds from A to B, inclusive. `N`: this many fresh seeds from a random start."""

    name = "A..B|N"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> range:
        if isinstance(value, range):
            return value
        first, dots, last = str(value).partition("..")
        try:
            start = int(first) if dots else secrets.randbelow(1 << 40)
            seeds = range(start, int(last) + 1 if dots else start + int(first))
        except ValueError:
            seeds = range(0)
        if not seeds:
            self.fail(f"{value!r} is neither a number of seeds nor a range such as 1..100", param, ctx)
        return seeds


@click.command()
@click.option(
    "--seeds", type=SeedRange(), default="100", show_default=True, help="A range A..B, or a number of new seeds."
)
@click.option("--trace", is_flag=True, help="Print the event log of each history.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="The number of processes.")
@click.option("--keep-going/--stop-at-first", default=True, help="Whether to continue after a violation.")
@click.option("--mode", type=click.Choice(MODES), help="Use only this checkpointing mode.")
@click.option(
    "--execution-mode",
    type=click.Choice(list(EXECUTION_MODES)),
    default="streaming",
    show_default=True,
    help="The execution mode of jobs; with changing, each job continues in a random other mode.",
)
@click.option(
    "--store",
    type=click.Choice(KINDS),
    default=FILES,
    show_default=True,
    help="The checkpoint storage: a file system, or an object store whose listings lag, as S3's may.",
)
@click.option("--latency-markers", "markers", is_flag=True, help="Send latency markers in half of the jobs.")
@click.option("--crash-points", is_flag=True, help="Crash at every step of the protocol instead; see --pairs.")
@click.option(
    "--power-cuts", is_flag=True, help="With --crash-points in streaming: cut the power of all hosts at each step."
)
@click.option("--pairs", type=click.IntRange(0), default=0, help="Also run this many random pairs of crashes.")
def main(
    seeds: range,
    trace: bool,
    jobs: int,
    keep_going: bool,
    mode: str | None,
    execution_mode: str,
    store: str,
    markers: bool,
    crash_points: bool,
    power_cuts: bool,
    pairs: int,
) -> None:
    """Run whole simulated clusters, one per seed, and check that each kept every promise."""
    if crash_points:
        run = partial(run_crash_points, pairs, power_cuts) if execution_mode == "streaming" else run_step_points
        sys.exit(0 if run() else 1)
    if not trace and len(seeds) > 1:
        print(f"seeds {seeds.start}..{seeds.stop - 1}", flush=True)
    begun = time.monotonic()
    totals: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    events: Counter[str] = Counter()
    resumed: Counter[str] = Counter()
    modes: Counter[str] = Counter()
    failed: list[int] = []
    for history in _histories(seeds, jobs, trace, mode, execution_mode, store, markers):
        totals.update(
            histories=1,
            steps=history.steps,
            restarts=history.restarts,
            checkpoints=history.checkpoints,
            commits=history.commits,
            jobs=history.jobs,
            savepoints=history.savepoints,
        )
        modes[history.mode] += 1
        faults.update(history.faults)
        events.update(history.events)
        resumed.update(history.resumed)
        if trace:
            print("\n".join(history.log), flush=True)
        if history.violations:
            failed.append(history.seed)
            _print_failure(history, mode, execution_mode, store, markers)
            if not keep_going:
                break
    seconds = time.monotonic() - begun
    print(", ".join(f"{count} {name}" for name, count in totals.items()))
    print(", ".join(f"{mode} {modes[mode]}" for mode in sorted(modes)))
    print("ends: " + _counts(events))
    print("resumed: " + _counts(+resumed))
    print("faults: " + _counts(faults))
    speed = f"{seconds:.0f} s, {totals['histories'] / seconds:.1f} histories/s"
    print(f"{speed}, {len(failed)} with violations")
    sys.exit(1 if failed else 0)


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{kind} {counter[kind]}" for kind in sorted(counter)) or "none"


def _run(seed: int, execution_mode: str, store: str, markers: bool, more: dict[str, Any]) -> History:
    with with_store(store), with_latency_markers(markers):
        return EXECUTION_MODES[execution_mode](seed, **more)


def _histories(
    seeds: range, jobs: int, trace: bool, mode: str | None, execution_mode: str, store: str, markers: bool
) -> Iterator[History]:
    modes = {"mode": mode} if execution_mode == "streaming" else {}
    run: Callable[[int], History] = partial(
        _run, execution_mode=execution_mode, store=store, markers=markers, more={"is_traced": trace, **modes}
    )
    if jobs == 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, seeds, chunksize=8)


def _print_failure(history: History, mode: str | None, execution_mode: str, store: str, markers: bool) -> None:
    print(f"seed {history.seed}, {history.mode} ({history.topology})")
    for violation in history.violations:
        print(f"  {violation}")
    only = f" --execution-mode {execution_mode}" if execution_mode != "streaming" else f" --mode {mode}" if mode else ""
    only += f" --store {store}" if store != FILES else ""
    only += " --latency-markers" if markers else ""
    print(f"  replay: penstock-sim --seeds {history.seed}..{history.seed}{only} --trace", flush=True)


if __name__ == "__main__":
    main()
