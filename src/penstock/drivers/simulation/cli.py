"""`penstock-sim`: run seeds, say how many histories a second, and how to replay each that broke a promise."""

from __future__ import annotations

import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import click

from penstock.drivers.simulation.simulation import History, run_seed


class SeedRange(click.ParamType[range]):
    """`A..B`: the seeds from A to B, both included. `N`: so many fresh ones, beginning anywhere."""

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
@click.option("--seeds", type=SeedRange(), default="100", show_default=True, help="A..B, or a number of fresh seeds.")
@click.option("--trace", is_flag=True, help="Print the event log of each history.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option("--keep-going/--stop-at-first", default=True, help="Whether to go on after a violation.")
def main(seeds: range, trace: bool, jobs: int, keep_going: bool) -> None:
    """Run whole simulated clusters, one a seed, and check that each kept every promise."""
    if not trace and len(seeds) > 1:
        print(f"seeds {seeds.start}..{seeds.stop - 1}", flush=True)
    begun = time.monotonic()
    totals: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    failed: list[int] = []
    for history in _histories(seeds, jobs, trace):
        totals.update(
            histories=1,
            steps=history.steps,
            restarts=history.restarts,
            checkpoints=history.checkpoints,
            commits=history.commits,
        )
        faults.update(history.faults)
        if trace:
            print("\n".join(history.log), flush=True)
        if history.violations:
            failed.append(history.seed)
            _print_failure(history)
            if not keep_going:
                break
    seconds = time.monotonic() - begun
    print(", ".join(f"{count} {what}" for what, count in totals.items()))
    print("faults: " + (", ".join(f"{kind} {faults[kind]}" for kind in sorted(faults)) or "none"))
    print(f"{totals['histories'] / seconds:.1f} histories/s, {len(failed)} with violations")
    sys.exit(1 if failed else 0)


def _histories(seeds: range, jobs: int, trace: bool) -> Iterator[History]:
    if jobs == 1:
        for seed in seeds:
            yield run_seed(seed, trace)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_seed, seeds, [trace] * len(seeds), chunksize=8)


def _print_failure(history: History) -> None:
    print(f"seed {history.seed} ({history.topology})")
    for violation in history.violations:
        print(f"  {violation}")
    print(f"  replay: penstock-sim --seeds {history.seed}..{history.seed} --trace", flush=True)


if __name__ == "__main__":
    main()
