"""Plants small bugs and says which of them no test finds: `python -m tests.mutation [--seed N] [--count 300]`.

A seed chooses bugs of `mutators` in the modules below runtime, state, storage, connectors, sql/stream and
server/rest. Each is run against the test files that import its module and a fixed number of random programs, for at
most 3 minutes, until something fails. What was found is kept in `build/mutation/SEED.jsonl`: the same command again
goes on where it was. `--jobs 2` plants two bugs at a time. `--only PATH` looks at modules whose path has this text.
"""

from __future__ import annotations

import json
import random
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import click
from tests.mutation.mutators import Mutation, walk
from tests.mutation.running import Outcome, Tree
from tests.mutation.selection import ROOT, modules


@click.command()
@click.option("--seed", type=int, help="Chooses the bugs; a fresh one unless given.")
@click.option("--count", default=300, show_default=True, help="How many bugs.")
@click.option("--jobs", default=1, show_default=True, help="How many at a time.")
@click.option("--only", default="", help="Only modules whose path has this text.")
def main(seed: int | None, count: int, jobs: int, only: str) -> None:
    """Plant bugs and print those that nothing finds."""
    seed = secrets.randbelow(2**31) if seed is None else seed
    results = ROOT / "build" / "mutation" / f"{seed}.jsonl"
    results.parent.mkdir(parents=True, exist_ok=True)
    every = [one for one in walk(modules()) if only in one[0]]
    chosen = random.Random(seed).sample(every, min(count, len(every)))
    known = _known(results)
    todo = [one for one in chosen if _name(*one) not in known]
    click.echo(f"--seed {seed}: {len(chosen)} of {len(every):,} bugs, {len(todo)} to try")
    trees: SimpleQueue[Tree] = SimpleQueue()
    for number in range(jobs):
        trees.put(Tree(ROOT / "build" / "mutation" / f"tree-{number}"))

    def try_one(one: tuple[str, Mutation]) -> Outcome:
        tree = trees.get()
        try:
            return tree.try_bug(*one)
        finally:
            trees.put(tree)

    with ThreadPoolExecutor(jobs) as pool, results.open("a") as file:
        for number, outcome in enumerate(pool.map(try_one, todo), 1):
            file.write(json.dumps(outcome.to_json()) + "\n")
            file.flush()
            click.echo(f"{number}/{len(todo)} {outcome.path}:{outcome.line} {outcome.found_by or 'NOT FOUND'}")
    _tell(list(_known(results).values()), trees.get())


def _name(path: str, mutation: Mutation) -> tuple[str, int, str, str]:
    return path, mutation.line, mutation.before, mutation.after


def _known(results: Path) -> dict[tuple[str, int, str, str], Outcome]:
    if not results.exists():
        return {}
    outcomes = [Outcome(**json.loads(line)) for line in results.read_text().splitlines()]
    return {(one.path, one.line, one.before, one.after): one for one in outcomes}


def _tell(outcomes: list[Outcome], tree: Tree) -> None:
    """How many were found, and where the others are; what fails without a bug has found none."""
    # Without what a test is given: its text may have been cut where it was read.
    tests = {one.found_by.partition("[")[0] for one in outcomes if one.found_by is not None and "::" in one.found_by}
    for test in tree.failing(sorted(tests)):
        click.echo(f"{test} fails without a bug, too")
    missed = [one for one in outcomes if one.found_by is None]
    click.echo(f"{len(outcomes) - len(missed)} of {len(outcomes)} found")
    for one in sorted(missed, key=lambda one: (one.path, one.line)):
        click.echo(f"{one.path}:{one.line}\n    {' '.join(one.before.split())}\n    {' '.join(one.after.split())}")


if __name__ == "__main__":
    main()
