"""Implementation and output of `penstock-sim --crash-points`."""

from __future__ import annotations

import time

import click

from penstock.drivers.simulation.crash_points import CRASH_POINTS, watched
from penstock.drivers.simulation.crash_runs import JOBS, CrashRun, CrashTable, cover_all, random_pair
from penstock.drivers.simulation.scenario import MODES
from penstock.drivers.simulation.stepwise.crashes import POINTS, StepwiseCrash, StepwiseTable, cover_all_steps

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
            _print_failure(run, violations)
        failed = table.failed + run_pairs(pairs, first_pair)
    click.echo(f"{time.monotonic() - begun:.0f} s, {len(failed)} with violations")
    return not failed and not table.missed


def run_step_points() -> bool:
    """Make every step of jobs of epochs fail; print a table, and return whether all promises were kept."""
    begun = time.monotonic()
    table = StepwiseTable()
    click.echo(f"{len(POINTS)} points in {len(JOBS)} jobs: reached of possible")
    for name in cover_all_steps(table):
        click.echo(f"{name:75} {table.covered.get(name, 0)}/{table.wanted[name]}")
    for name in table.missed:
        click.echo(f"never reached in some job: {name}")
    for crash, violations in table.failed:
        _print_failure(crash, violations)
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
            _print_failure(run, history.violations)
    if count:
        click.echo(f"{both} pairs of crashes in {tried} histories")
    return failed


def _print_failure(run: CrashRun | StepwiseCrash, violations: list[str]) -> None:
    click.echo(f"{run}")
    for violation in violations:
        click.echo(f"  {violation}")
