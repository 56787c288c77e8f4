"""Nexmark beside another build of Penstock, by processor time: for `--beside REV`, and for the guard.

Each build runs its own package and its own benchmarks, with the same server (see `serving`).
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks import builds
from benchmarks.nexmark_sql.query_process import EndedError, PenstockProcess, RefusedError
from benchmarks.nexmark_sql.regimes import Regime

#: the queries that the guard watches: a join with windows, the last row of each key, a join of two streams
GUARDED: Final = ("q7", "q18", "q20")
GUARDED_REGIMES: Final = (Regime("heap", "1s"), Regime("rocksdb", "1s"))


@dataclass
class NexmarkSubject:
    """A query in a regime; see `benchmarks.builds.Subject`.

    Attributes:
        folder: the benchmark's files.
        query: its name.
        events: how many it reads.
        regime: how it runs.
        samples: the first events, as each build makes them.
    """

    folder: Path
    query: str
    events: int
    regime: Regime
    samples: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        """See `Subject`."""
        return f"{self.query}, {self.regime.title}"

    @contextmanager
    def start(self, checkout: Path) -> Iterator[NexmarkBuild]:
        """See `Subject`. Raises `RuntimeError` if the build makes other events than an earlier one."""
        with tempfile.TemporaryDirectory() as scratch:
            process = PenstockProcess(self.folder, self.query, self.events, self.regime, Path(scratch), checkout)
            try:
                with process:
                    self.samples.add(process.ask("sample"))
                    if len(self.samples) > 1:
                        raise RuntimeError(f"{self.name}: the builds make different events, so no ratio means anything")
                    yield NexmarkBuild(process, self)
            except (RefusedError, EndedError) as error:
                raise RuntimeError(f"{self.name}: {error}") from error


@dataclass(frozen=True)
class NexmarkBuild:
    """A build that runs a query; see `benchmarks.builds.Build`."""

    process: PenstockProcess
    subject: NexmarkSubject

    def cpu_seconds(self) -> float:
        """See `Build`."""
        return self.process.run(self.subject.events, self.subject.regime.rate).cpu_s


def find_guarded_subjects(folder: Path, events: int) -> dict[str, NexmarkSubject]:
    """Return what the guard watches, by its keys."""
    return {
        f"{query}-{regime.backend}": NexmarkSubject(folder, query, events, regime)
        for query in GUARDED
        for regime in GUARDED_REGIMES
    }


def compare_queries(
    base: str, folder: Path, names: Iterable[str], regime: Regime, events: int, pairs: int
) -> Iterator[str]:
    """Yield a table in Markdown: each query here and in another revision.

    Args:
        base: the revision.
        folder: the benchmark's files.
        names: the queries.
        regime: how they run.
        events: how many each query reads.
        pairs: runs of each build.
    """
    subjects = {name: NexmarkSubject(folder, name, events, regime) for name in names}
    yield f"{regime.title}, {events:,} events, {pairs} pairs; {base}'s processor time over this build's:"
    yield ""
    yield f"| query | CPU µs an event | of {base} | ratio | min to max |"
    yield "| --- | --- | --- | --- | --- |"
    medians = []
    for name, compared in builds.compare(base, subjects, pairs_min=pairs, pairs_max=pairs):
        other, this = (statistics.median(seconds) / events * 1e6 for seconds in zip(*compared.seconds, strict=True))
        medians.append(compared.median)
        spread = f"{min(compared.ratios):.2f} to {max(compared.ratios):.2f}"
        yield f"| {name} | {this:.2f} | {other:.2f} | {compared.median:.2f} | {spread} |"
    yield ""
    yield f"ratio: median {statistics.median(medians):.2f}"
