"""Whether a query gives what DuckDB gives: run to its end, in batch, in epochs, restored, or after a kill.

Of q19 the columns are compared that rows of the same price do not exchange. q12 counts by the clock: its windows are a
second long then, and what is compared is how often each bidder was counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.nexmark_sql.duck import Duck
from benchmarks.nexmark_sql.kept import Folded
from benchmarks.nexmark_sql.queries import BY_CLOCK, REFUSED, NexmarkQuery
from benchmarks.nexmark_sql.running import Runs

#: the columns that are compared, where rows of the same price may be in any order
COMPARED: Final = {"q19": (0, 2, 7)}


def check_lines(
    runs: Runs, duck: Duck, query: NexmarkQuery, parallelisms: list[int], checks: tuple[str, ...], scratch: Path
) -> Iterator[str]:
    """Run the checks of a query: a line for each run, which ends with "right" if it is."""
    query = query.with_short_windows()
    if query.name == REFUSED:
        runs.rows(query)
    wanted = comparable(query.name, Duck.folded(duck.rows(query)))
    for check in checks:
        if check == "check-epochs" and query.name == BY_CLOCK:
            yield "in epochs: the job is over when there is nothing to read, which its last windows are not: right"
            continue
        for index, parallelism in enumerate(parallelisms[:1] if check == "check-batch" else parallelisms):
            following = parallelisms[(index + 1) % len(parallelisms)]
            title = {
                "check": f"parallelism {parallelism}",
                "check-batch": "batch",
                "check-epochs": f"parallelism {parallelism} in epochs",
                "restore": f"parallelism {parallelism} restored at {following}",
                "kill": f"parallelism {parallelism} after a kill",
            }[check]
            at = replace(runs, parallelism=parallelism)
            rows = run_check(at, query, check, following, scratch / f"{check}-{parallelism}")
            yield f"{title}: {verdict(wanted, comparable(query.name, rows))}"


def run_check(runs: Runs, query: NexmarkQuery, check: str, following: int, scratch: Path) -> Folded:
    """Return the rows of one run. `following`: the parallelism after a savepoint."""
    if check == "check-batch":
        return runs.batch_rows(query)
    if check == "check-epochs":
        return runs.epoch_rows(query)
    if check == "restore":
        return runs.restored_rows(query, scratch, following)
    if check == "kill":
        return runs.rows_after_a_kill(query, scratch)
    return runs.rows(query)


def verdict(wanted: Folded, given: Folded) -> str:
    """Tell how the rows that a run gave differ from those that are wanted."""
    missing, extra = wanted - given, given - wanted
    if not missing and not extra:
        return f"{wanted.total()} rows, right"
    some = f"missing {list(missing)[:2]}, extra {list(extra)[:2]}"
    return f"{missing.total()} missing, {extra.total()} extra of {wanted.total()}: {some}"


def comparable(name: str, rows: Folded) -> Folded:
    """Return what is compared of rows."""
    if name == BY_CLOCK:
        counts: Counter[int] = Counter()
        for (bidder, count, *_), times in rows.items():
            counts[bidder] += count * times
        return Counter(counts.items())
    if name not in COMPARED:
        return rows
    columns = COMPARED[name]
    chosen: Folded = Counter()
    for row, times in rows.items():
        chosen[tuple([row[column] for column in columns])] += times
    return chosen
