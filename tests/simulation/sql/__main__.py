"""Run seeds: `python -m tests.simulation.sql --seeds 1..2000 --jobs 2`."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import click
from tests.simulation.sql.histories import run_sql_seed
from tests.simulation.sql.worlds import KINDS

from penstock.drivers.simulation.cli import SeedRange


def replay(seed: int, kind: str) -> str:
    """The command that repeats a history."""
    queries = "" if kind == "sql" else f" --queries {kind}"
    return f"python -m tests.simulation.sql{queries} --seeds {seed}..{seed} --trace"


@click.command()
@click.option("--seeds", type=SeedRange(), default="100", show_default=True, help="A..B, or a number of fresh seeds.")
@click.option("--trace", is_flag=True, help="Print the event log of each history.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option("--queries", type=click.Choice(list(KINDS)), default="sql", show_default=True, help="Which queries.")
def main(seeds: range, trace: bool, jobs: int, queries: str) -> None:
    """Run whole simulated clusters with SQL plans, one a seed, and check that each kept every promise."""
    begun, failed = time.monotonic(), 0
    totals: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    with ProcessPoolExecutor(jobs) as pool:
        run = partial(run_sql_seed, is_traced=trace, kind=queries)
        for history in pool.map(run, seeds, chunksize=8) if jobs > 1 else map(run, seeds):
            totals.update(histories=1, steps=history.steps, restarts=history.restarts, jobs=history.jobs)
            totals.update(checkpoints=history.checkpoints, resumed=history.resumed["all"])
            totals.update({"at another parallelism": history.resumed["other parallelism"]})
            faults.update(history.faults)
            if trace:
                print("\n".join(history.log), flush=True)
            if history.violations:
                failed += 1
                print(f"seed {history.seed}, {history.mode} ({history.topology})")
                print("".join(f"  {violation}\n" for violation in history.violations), end="")
                print(f"  replay: {replay(history.seed, queries)}", flush=True)
    seconds = time.monotonic() - begun
    print(", ".join(f"{count} {what}" for what, count in totals.items()))
    print("faults: " + ", ".join(f"{kind} {faults[kind]}" for kind in sorted(faults)))
    print(f"{seconds:.0f} s, {totals['histories'] / seconds:.1f} histories/s, {failed} with violations")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
