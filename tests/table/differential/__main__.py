"""Random queries over random tables in random settings: `python -m tests.table.differential --queries 5000 --jobs 2`.

Each query runs in the reference setting and in two others. The three results and DuckDB's have to agree. The seed is
printed, and `--seed N` replays a run; `--seed N --only K` replays one query.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time

from tests.many_runs import prepare_many_runs
from tests.table.differential.runner import Plan, Summary, run_cases, run_in_processes, seconds_since
from tests.table.differential.runs import LIMIT_S
from tests.table.differential.settings import ALL_BATCHES, NO_BATCHES, SOME_BATCHES


def main() -> int:
    """Run the queries that the command line asks for. Returns 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None, help="replay a run; by default the seed is fresh")
    parser.add_argument("--only", type=int, default=None, metavar="K", help="run the query of this number alone")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="the number of the first query")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    modes = (NO_BATCHES, SOME_BATCHES, ALL_BATCHES)
    parser.add_argument("--batches", choices=modes, default=SOME_BATCHES, help="how many settings are batches in Spark")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="processor time (s) that a run may take")
    parser.add_argument("--shrink", type=float, default=20.0, help="how long (s) a failure is made smaller")
    parser.add_argument("--failures", type=int, default=20, help="stop after this many failures")
    parser.add_argument("--pairs", action="store_true", help="print how often each pair of settings was drawn")
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    prepare_many_runs()
    seed = random.SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed
    plan = Plan(seed, chosen.batches, chosen.limit, chosen.shrink)
    numbers = range(chosen.first, chosen.first + chosen.queries)
    if chosen.only is not None:
        numbers = range(chosen.only, chosen.only + 1)
    print(f"seed {seed}", file=sys.stderr)
    started = time.monotonic()
    summary = _run(plan, numbers, chosen.jobs, chosen.failures, started)
    _print_pairs(summary, chosen.pairs)
    if summary.restless:
        print(f"queries left out that have too much to do: {summary.restless}", file=sys.stderr)
    failed = len(summary.failures)
    print(
        f"seed {seed}: {summary.cases} queries in {summary.runs} runs, {seconds_since(started)}: "
        f"{f'{failed} differ: {sorted(summary.failures)}' if failed else 'all agree'}"
    )
    return 1 if failed else 0


def _run(plan: Plan, numbers: range, jobs: int, failures_max: int, started: float) -> Summary:
    total, shown = Summary(), 0.0

    def show(summary: Summary) -> None:
        nonlocal shown
        for number in sorted(summary.failures.keys() - printed):
            printed.add(number)
            print(summary.failures[number], flush=True)
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            print(f"{summary.cases} of {len(numbers)} queries, {seconds_since(started)}", file=sys.stderr)
        if len(summary.failures) >= failures_max:
            raise _EnoughError

    printed: set[int] = set()
    try:
        if jobs == 1:
            return run_cases(plan, numbers, lambda summary: show(_kept(total, summary)))
        for part in run_in_processes(plan, numbers, jobs):
            total.merge(part)
            show(total)
    except _EnoughError:
        print(f"stopped after {failures_max} failures", file=sys.stderr)
    return total


class _EnoughError(Exception):
    """There have been enough failures."""


def _kept(total: Summary, summary: Summary) -> Summary:
    """Keep the summary so far as the total."""
    vars(total).update(vars(summary))
    return summary


def _print_pairs(summary: Summary, in_full: bool) -> None:
    counts = summary.pairs.table()
    least = min(counts.values())
    print(f"{len(counts)} pairs of settings, the rarest one drawn {least} times", file=sys.stderr)
    if in_full:
        for (one, other), count in sorted(counts.items(), key=lambda pair: pair[1]):
            print(f"{count:6} {one}, {other}")


if __name__ == "__main__":
    sys.exit(main())
