"""How fast a query is here, in this process; beside DuckDB, by turns."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.nexmark_sql.duck import Duck
from benchmarks.nexmark_sql.queries import BY_CLOCK, REFUSED, NexmarkQuery
from benchmarks.nexmark_sql.query_process import Run
from benchmarks.nexmark_sql.running import Runs

#: how long a query runs at least where speed is measured
LEAST_S: Final = 5


def time_query(runs: Runs, duck: Duck | None, query: NexmarkQuery, parallelism: int, scratch: Path, times: int) -> str:
    """Measure a query: as a whole, and without the start, which is what a run over one event takes."""
    at = replace(runs, parallelism=parallelism)
    start, start_cpu = at.warmed(query)
    is_compared = duck is not None and query.name not in (REFUSED, BY_CLOCK)
    mine: list[Run] = []
    theirs: list[tuple[float, float]] = []
    begun = time.monotonic()
    # By turns, since a machine's speed changes; and short runs more often, to find as good a moment as long ones do.
    while len(mine) < times or time.monotonic() - begun < LEAST_S:
        mine.append(at.run(query))
        if is_compared:
            assert duck is not None
            theirs.append(duck.seconds(query, scratch / f"duck-{len(mine)}"))
    seconds, cpu = best((run.wall_s, run.cpu_s) for run in mine)
    shown = [f"parallelism {parallelism}: "]
    if runs.per_second is None:
        shown[0] += f"{runs.events / seconds:12,.0f} events/s"
        if seconds > start:
            shown.append(f"{runs.events / (seconds - start):12,.0f} without the start of {start:.3f} s")
    else:
        shown[0] += f"{cpu / seconds:7.1%} of a core at {runs.per_second:,} events/s"
    shown += [f"{cpu / runs.events * 1e6:6.2f} µs of CPU an event", *memory_texts(mine)]
    if theirs:
        other, other_cpu = best(theirs)
        shown += [f"DuckDB {runs.events / other:12,.0f} events/s", f"ratio {other / seconds:.3f}"]
        if seconds > start:
            shown.append(f"without the start {other / (seconds - start):.3f}")
        shown.append(f"of CPU {other_cpu / cpu:.3f}")
        if cpu > start_cpu:
            shown.append(f"without the start {other_cpu / (cpu - start_cpu):.3f}")
    return ", ".join(shown)


def memory_texts(runs: list[Run]) -> list[str]:
    """Tell how much memory runs took at most, and how many checkpoints the last of them completed, how large."""
    peak = f"peak {max(run.peak_bytes for run in runs) / 1e6:,.0f} MB"
    last = runs[-1]
    if not last.checkpoints:
        return [peak]
    return [peak, f"{last.checkpoints} checkpoints, the last of {last.checkpoint_bytes / 1e6:,.1f} MB"]


def best(runs: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Return the shortest wall time and the least processor time of some runs."""
    walls, cpus = zip(*runs, strict=True)
    return min(walls), min(cpus)
