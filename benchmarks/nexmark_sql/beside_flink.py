"""Each query here and in Flink SQL on its JVM, in turns.

Both have the events in memory before, parallelism 1, the same mini-batches and a sink that keeps nothing; Flink has
object reuse, rows on the heap with only the columns that are read, watermarks made by the source, and a cluster that is
up. Each side runs the query over fewer events first, which warms it up. The best of its runs counts. Time runs from the
INSERT's execution, which includes planning and starting the job; what a run over a single event takes is shown beside
it.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.nexmark_sql.flink_process import FlinkInstall, FlinkProcess, FlinkRefusal, statements
from benchmarks.nexmark_sql.memory import Memory, folder_bytes, memory_of
from benchmarks.nexmark_sql.queries import NexmarkQuery, query
from benchmarks.nexmark_sql.running import Runs
from penstock.base.errors import PenstockError

#: the part of the events that warms up
WARM_UP = 5


@dataclass(frozen=True)
class Side:
    """Seconds of wall time and of processor time, and of a run over one event; memory where it was asked for."""

    wall: float
    cpu: float
    start: float
    memory: Memory | None = None


@dataclass(frozen=True)
class Compared:
    """A query on both sides; or why one of them does not run it."""

    name: str
    ours: Side | str
    flink: Side | str

    @property
    def sides(self) -> tuple[Side, Side] | None:
        """Both, if both ran."""
        if isinstance(self.ours, str) or isinstance(self.flink, str):
            return None
        return self.ours, self.flink


@dataclass(frozen=True)
class BesideFlink:
    """How queries are compared. `events_file`: the events, as `write_events` wrote them. `times`: runs of each side."""

    install: FlinkInstall
    runs: Runs
    events_file: Path
    times: int
    with_memory: bool

    def compared(self, name: str) -> Compared:
        """One query."""
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder)
            found = query(self.runs.folder, name, scratch)
            runs = self.runs
            texts = statements(runs.folder, found, self.events_file, runs.events, runs.rate)
            try:
                with FlinkProcess(self.install, texts, scratch, runs.mini_batch) as flink:
                    return self._in_turns(found, flink, scratch)
            except FlinkRefusal as refusal:
                return Compared(name, self._ours_alone(found), _said(refusal))

    def _in_turns(self, found: NexmarkQuery, flink: FlinkProcess, scratch: Path) -> Compared:
        runs = self.runs
        try:
            start, _ = runs.warmed(found)
            replace(runs, events=max(runs.events // WARM_UP, 1)).seconds(found)
        except PenstockError as error:
            return Compared(found.name, _said(error), self._flink_alone(flink))
        flink.seconds(max(runs.events // WARM_UP, 1))
        starts = start, min(flink.seconds(1)[0] for _ in range(2))
        pairs = [(runs.seconds(found), flink.seconds(runs.events)) for _ in range(self.times)]
        ours, theirs = (_best([pair[side] for pair in pairs], starts[side]) for side in (0, 1))
        if self.with_memory:
            ours = replace(ours, memory=memory_of(runs, found.name))
            theirs = replace(theirs, memory=_memory(flink, scratch / "savepoints"))
        return Compared(found.name, ours, theirs)

    def _ours_alone(self, found: NexmarkQuery) -> Side | str:
        try:
            self.runs.warmed(found)
            return _best([self.runs.seconds(found) for _ in range(self.times)], 0)
        except PenstockError as error:
            return _said(error)

    def _flink_alone(self, flink: FlinkProcess) -> Side:
        return _best([flink.seconds(self.runs.events) for _ in range(self.times)], 0)


def _best(runs: Sequence[tuple[float, float]], start: float) -> Side:
    walls, cpus = zip(*runs, strict=True)
    return Side(min(walls), min(cpus), start)


def _memory(flink: FlinkProcess, folder: Path) -> Memory:
    peak = flink.peak_bytes()
    live = flink.state(folder)
    return Memory(peak, live, folder_bytes(folder))


def _said(error: Exception) -> str:
    return f"refused: {str(error)[:150]}".replace("|", "/")


def lines(events: int, found: Iterator[Compared]) -> Iterator[str]:
    """What is shown, a line for each query and then the whole."""
    return _shown(found, lambda one: _line(events, one))


def table(events: int, found: Iterator[Compared], with_memory: bool) -> Iterator[str]:
    """The same as a table in Markdown."""
    heads = ["query", "events/s", "Flink's", "ratio", "ratio without start", "CPU µs an event", "ratio of CPU"]
    if with_memory:
        heads += ["peak MB", "beyond events, MB", "savepoint, MB"]
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join('---' for _ in heads)} |"
    yield from _shown(found, lambda one: f"| {' | '.join([one.name, *_cells(events, one, len(heads) - 1)])} |")


def _shown(found: Iterator[Compared], text: Callable[[Compared], str]) -> Iterator[str]:
    kept = []
    for one in found:
        kept.append(one)
        yield text(one)
    ratios = [theirs.wall / ours.wall for ours, theirs in filter(None, (one.sides for one in kept))]
    if ratios:
        fast = sum(ratio >= 1 for ratio in ratios)
        yield ""
        yield f"{fast} of {len(ratios)} at least as fast as Flink, ratio: median {statistics.median(ratios):.2f}"


def _cells(events: int, one: Compared, count: int) -> list[str]:
    if one.sides is None:
        shown = [side if isinstance(side, str) else f"{events / side.wall:,.0f}" for side in (one.ours, one.flink)]
        return [*shown, *[""] * (count - 2)]
    ours, theirs = one.sides
    cells = [
        f"{events / ours.wall:,.0f}",
        f"{events / theirs.wall:,.0f}",
        f"{theirs.wall / ours.wall:.2f}",
        _ratio_without_start(ours, theirs),
        f"{ours.cpu / events * 1e6:.2f} / {theirs.cpu / events * 1e6:.2f}",
        f"{theirs.cpu / ours.cpu:.2f}",
    ]
    if ours.memory is not None and theirs.memory is not None:
        pairs = zip(ours.memory, theirs.memory, strict=True)
        cells += [f"{mine / 1e6:,.1f} / {other / 1e6:,.1f}" for mine, other in pairs]
    return cells


def _ratio_without_start(ours: Side, theirs: Side) -> str:
    """Nothing where a run is little more than its start."""
    mine, other = (side.wall - side.start for side in (ours, theirs))
    return f"{other / mine:.2f}" if mine > ours.start / 2 and other > theirs.start / 2 else ""


def _line(events: int, one: Compared) -> str:
    cells = _cells(events, one, 2)
    if one.sides is None:
        return f"{one.name:4} {cells[0]}; Flink {cells[1]}"
    ours, theirs = one.sides
    line = f"{one.name:4} {cells[0]:>11} events/s, Flink {cells[1]:>11}, ratio {cells[2]:>5} "
    line += f"({cells[3] or '?'} without start: {ours.start:.2f} and {theirs.start:.2f} s), "
    line += f"CPU {cells[4]} µs an event, ratio {cells[5]}"
    if len(cells) > 6:
        line += f"; MB: peak {cells[6]}, beyond the events {cells[7]}, savepoint {cells[8]}"
    return line
