"""Random programs of streams: `python -m tests.datastream.random_programs [--programs 5000] [--seed N] [--only SEED]`.

Each program is a world of records and one to three keyed stages: process functions over each kind of state, which hand
on what their state holds, read it twice and set timers in timers; windows with each assigner, trigger, evictor,
lateness and function; steps that change what they are handed. It runs in the reference setting (a stream on the heap,
one record at a time) and in two drawn ones: modes, backends, batch sizes, parallelism, chains, checkpoints, a failure,
a savepoint from which another parallelism goes on with the other backend, inputs that end or are idle, and the general
operator of windows where the planner would take a fast one. All have to give what a plain interpreter gives, record by
record.

Without `--seed` each run has another one, which it prints. A difference is printed as the smallest program that was
found, with the command that replays it.
"""

from __future__ import annotations

import secrets
import sys
import time

import click
from tests.datastream.random_programs.comparing import Search, check
from tests.many_runs import prepare_many_runs


@click.command()
@click.option("--programs", default=1000, show_default=True, help="How many.")
@click.option("--seed", type=int, help="Of the first program; a fresh one unless given.")
@click.option("--only", type=int, help="The program of this seed alone.")
def main(programs: int, seed: int | None, only: int | None) -> None:
    """Run random programs and print those that differ."""
    first = only if only is not None else secrets.randbelow(2**40) if seed is None else seed
    count = 1 if only is not None else programs
    prepare_many_runs()
    click.echo(f"seeds {first} to {first + count - 1}")
    search, begun = Search(), time.monotonic()
    for number in range(first, first + count):
        found = check(number, search)
        if found is not None:
            click.echo(str(found))
    pair, times = search.rarest()
    click.echo(
        f"{search.programs} programs, {search.runs} runs, {time.monotonic() - begun:.0f} s: "
        f"{len(search.differences)} differ; the rarest pair of settings, {' with '.join(pair)}, occurred {times} times"
    )
    sys.exit(bool(search.differences))


if __name__ == "__main__":
    main()
