"""Each query here and in Flink SQL on its JVM, in turns.

Both have the events in memory before, parallelism 1, the same options and a sink that keeps nothing; Flink has object
reuse, rows on the heap with only the columns that are read, watermarks made by the source, and a cluster that is up.
Each side has a process for each query and regime, and runs the query over fewer events first, which warms it up. The
medians of its runs count. Time runs from the INSERT's execution, which includes planning and starting the job; what a
run over a single event takes is shown beside it. Checkpoints go to a folder on this machine. Penstock's time includes
its last one, which it takes behind the last event; Flink's job ends without.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.nexmark_sql import queries as nexmark
from benchmarks.nexmark_sql.cells import Cell, CellFile
from benchmarks.nexmark_sql.contenders import Contender, run_by_turns
from benchmarks.nexmark_sql.events import generate_events
from benchmarks.nexmark_sql.flink_process import FlinkInstall, FlinkProcess, statements, write_events
from benchmarks.nexmark_sql.latency import with_latency_sink
from benchmarks.nexmark_sql.query_process import PATIENCE_S, PenstockProcess
from benchmarks.nexmark_sql.regimes import Regime


@dataclass(frozen=True)
class BesideFlink:
    """How queries are compared.

    Attributes:
        install: where Flink is.
        folder: the benchmark's files.
        events: how many there are.
        times: runs of each side.
        with_memory: whether memory and savepoints behind all events are measured, too.
        scratch: a folder for the events.
        patience_s: how long Flink may take for a run; then it has not survived it.
    """

    install: FlinkInstall
    folder: Path
    events: int
    times: int
    with_memory: bool
    scratch: Path
    patience_s: float = PATIENCE_S

    def measure_all(self, names: Iterable[str], regimes: Iterable[Regime], finished: CellFile) -> Iterator[Cell]:
        """Yield the cell of each query in each regime; those that are finished as they are."""
        names = list(names)
        for regime in regimes:
            for name in names:
                cell = finished.find(name, regime, self.events)
                if cell is None:
                    cell = self.measure(name, regime)
                    finished.add(cell)
                yield cell

    def measure(self, name: str, regime: Regime) -> Cell:
        """Measure a query. A side that refuses it or ends amid it leaves the other to run alone."""
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            here, there, state = (Path(folder) / side for side in ("here", "flink", "state"))
            for scratch in (here, there, state):
                scratch.mkdir()
            flink = self._flink(name, regime, there)
            sides = Contender(self._penstock(name, regime, here), regime.rate), Contender(flink, regime.rate)
            run_by_turns(sides, self.events, self.times, stack)
            if not self.with_memory or isinstance(sides[1].finish(), str) or isinstance(sides[0].finish(), str):
                return Cell(name, regime, self.events, sides[0].finish(), sides[1].finish())
            # Memory that earlier runs have left in a process hides what one more needs.
            with self._penstock(name, regime, state) as fresh:
                ours = fresh.measure_state(here / "savepoints")
            theirs = flink.measure_state(there / "savepoints")
            return Cell(name, regime, self.events, sides[0].finish(ours), sides[1].finish(theirs))

    def _penstock(self, name: str, regime: Regime, scratch: Path) -> PenstockProcess:
        return PenstockProcess(self.folder, name, self.events, regime, scratch)

    def _flink(self, name: str, regime: Regime, scratch: Path) -> FlinkProcess:
        file = self.scratch / f"events-{regime.event_rate}.arrow"
        if not file.exists():
            write_events(generate_events(self.events, regime.event_rate), file)
        query = nexmark.query(self.folder, name, scratch)
        if regime.rate is not None:
            query = with_latency_sink(query)
        texts = statements(self.folder, query, file, self.events, regime.event_rate)
        return FlinkProcess(self.install, texts, scratch, regime, self.patience_s)
