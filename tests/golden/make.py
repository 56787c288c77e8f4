"""Writes the golden savepoints of the release at hand: `python -m tests.golden.make NAME` (a new name each time)."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.golden.program import build
from tests.spec.virtual_job import VirtualJob, environment

DIRECTORY = Path(__file__).parent / "savepoints"
BACKENDS = ("hashmap", "rocksdb")
#: Enough turns for about half of the records.
TURNS = 15


def make(name: str, backend: str, scratch: Path) -> Path:
    """Stop the program in the middle; returns where its savepoint lies."""
    options = {
        "state.backend.type": backend,
        "execution.checkpointing.data-inline-threshold": "300 b",
        "penstock.source.batch-records": 3,
        "pipeline.max-parallelism": 16,
    }
    env = environment(2, **options)
    build(env)
    job = VirtualJob(env)
    stopped = []
    job.when(lambda: job.turns >= TURNS, lambda: stopped.append(job.stop_with_savepoint(False, str(scratch))))
    job.run()
    target = DIRECTORY / f"{name}-{backend}"
    shutil.move(stopped[0].result(0), target)
    return target


def main() -> None:
    """Make all of them."""
    name = sys.argv[1]
    DIRECTORY.mkdir(exist_ok=True)
    for backend in BACKENDS:
        scratch = DIRECTORY / "scratch"
        target = make(name, backend, scratch)
        shutil.rmtree(scratch, ignore_errors=True)
        sys.stdout.write(f"{target}: {sum(f.stat().st_size for f in target.iterdir())} bytes\n")


if __name__ == "__main__":
    main()
