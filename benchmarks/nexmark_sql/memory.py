"""`python -m benchmarks.nexmark_sql.memory DIR QUERY EVENTS RATE`: bytes that one query takes in a fresh process.

The query is stopped with a savepoint behind all events. Three numbers are printed: the most memory that the process
had, how much of it came on top of the events, and the size of the savepoint.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.nexmark_sql.events import ALL_OUT, AT_ONCE, Pace
from benchmarks.nexmark_sql.events import events as made_events
from benchmarks.nexmark_sql.kept import Kept
from benchmarks.nexmark_sql.queries import query
from benchmarks.nexmark_sql.running import PATIENCE_S, Runs
from benchmarks.processes import peak_bytes, restart_peak

#: longer than anybody looks at a job
_STAYS_MS: Final = 3_600_000


class Memory(NamedTuple):
    """Bytes: the most of the process, that beyond the events, and of a savepoint behind them."""

    peak: int
    beyond_events: int
    savepoint: int


def memory_of(runs: Runs, name: str) -> Memory:
    """What a query takes, in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.nexmark_sql.memory", str(runs.folder), name]
    arguments = [str(runs.events), str(runs.rate), "yes" if runs.mini_batch else "no"]
    found = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True).stdout
    return Memory(*map(int, found.split()[-3:]))


def folder_bytes(folder: Path) -> int:
    """The size of all files in a folder."""
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())


def _main(folder: str, name: str, events: str, rate: str, mini_batch: str) -> None:
    runs = Runs(
        Path(folder), int(events), int(rate), mini_batch=mini_batch == "yes", waits_ms=_STAYS_MS, chunks=AT_ONCE
    )
    with tempfile.TemporaryDirectory() as scratch:
        found = query(runs.folder, name, Path(scratch))
        made_events(runs.events, runs.rate, Pace(chunks=AT_ONCE))
        restart_peak()
        before = peak_bytes()
        result = runs.environment(found, found.own_sink, Kept()).execute_sql(found.insert)
        assert ALL_OUT.wait(PATIENCE_S), "the events are not out"
        saved = Path(scratch) / "savepoints"
        client = result.get_job_client()
        assert client is not None
        client.stop_with_savepoint(False, str(saved)).result(PATIENCE_S)
        peak = peak_bytes()
        print(peak, peak - before, folder_bytes(saved))


if __name__ == "__main__":
    _main(*sys.argv[1:])
