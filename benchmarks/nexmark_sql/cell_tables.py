"""Cells as text: a line or a row of Markdown for each, and what all of them come to.

A pair of numbers is Penstock's and Flink's. A ratio is Flink's time over Penstock's, so that above 1 Penstock is
faster.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.nexmark_sql.cells import Cell, Side
from benchmarks.nexmark_sql.query_process import Run
from benchmarks.nexmark_sql.regimes import Regime

_AT_FULL_SPEED: Final = ("events/s", "Flink's", "ratio", "ratio without start")
_OF_CPU: Final = ("CPU µs an event", "ratio of CPU")
_AT_A_RATE: Final = ("share of a core", "p50 / p99 ms", "Flink's")
_OF_CHECKPOINTS: Final = ("checkpoints", "the last, MB")
_OF_MEMORY: Final = ("beyond events, MB", "savepoint, MB")


def write_lines(cells: Iterator[Cell], with_memory: bool) -> Iterator[str]:
    """Yield a line for each cell as it comes, and then the medians."""
    known: list[Cell] = []
    for cell in cells:
        if not known or known[-1].regime != cell.regime:
            yield cell.regime.title
        known.append(cell)
        yield _write_line(cell, with_memory)
    yield from _summarize(known)


def write_tables(cells: Iterator[Cell], with_memory: bool) -> Iterator[str]:
    """Yield a table of each regime as its cells come, one of all ratios if there are more regimes, and the medians."""
    known: list[Cell] = []
    heads: list[str] = []
    for cell in cells:
        if not known or known[-1].regime != cell.regime:
            heads = _heads(cell.regime, with_memory)
            yield from ([""] if known else [])
            yield f"{cell.regime.title}, {cell.events:,} events:"
            yield ""
            yield _row(["query", *heads])
            yield _row(["---"] * (len(heads) + 1))
        known.append(cell)
        yield _row([cell.name, *_pad(_columns(cell), len(heads))])
    yield from _compare_regimes(known)
    yield from _summarize(known)


def _heads(regime: Regime, with_memory: bool) -> list[str]:
    """Return the heads of the columns that the cells of a regime have figures for."""
    is_at_full_speed = regime.rate is None
    heads = [*_AT_FULL_SPEED, *_OF_CPU] if is_at_full_speed else [*_OF_CPU, *_AT_A_RATE]
    heads.append("peak MB")
    if regime.checkpoints != "off":
        heads += _OF_CHECKPOINTS
    return heads + (list(_OF_MEMORY) if with_memory else [])


def _columns(cell: Cell) -> list[str]:
    """Return a figure for each of the heads, or fewer: what each side says, if one has failed."""
    if cell.sides is None:
        sides = cell.ours, cell.flink
        return [side if isinstance(side, str) else f"{cell.events / side.run.wall_s:,.0f}" for side in sides]
    ours, theirs = cell.sides
    mine, other = ours.run, theirs.run
    of_cpu = [f"{mine.cpu_s / cell.events * 1e6:.2f} / {other.cpu_s / cell.events * 1e6:.2f}"]
    of_cpu.append(f"{other.cpu_s / mine.cpu_s:.2f}")
    if cell.regime.rate is None:
        rates = f"{cell.events / mine.wall_s:,.0f}", f"{cell.events / other.wall_s:,.0f}"
        columns = [*rates, f"{other.wall_s / mine.wall_s:.2f}", _ratio_without_start(ours, theirs), *of_cpu]
    else:
        shares = f"{mine.cpu_s / mine.wall_s:.1%} / {other.cpu_s / other.wall_s:.1%}"
        columns = [*of_cpu, shares, _latencies(mine), _latencies(other)]
    columns.append(f"{mine.peak_bytes / 1e6:,.0f} / {other.peak_bytes / 1e6:,.0f}")
    if cell.regime.checkpoints != "off":
        columns += [f"{mine.checkpoints} / {other.checkpoints}", f"{_size(mine)} / {_size(other)}"]
    if ours.memory is not None and theirs.memory is not None:
        pairs = zip(ours.memory, theirs.memory, strict=True)
        columns += [f"{size / 1e6:,.1f} / {flinks / 1e6:,.1f}" for size, flinks in pairs]
    return columns


def _size(run: Run) -> str:
    """Flink takes no checkpoint of a run that is shorter than the interval."""
    return f"{run.checkpoint_bytes / 1e6:,.1f}" if run.checkpoints else "none"


def _latencies(run: Run) -> str:
    return f"{run.latencies_ms[0]} / {run.latencies_ms[1]}" if run.latencies_ms is not None else ""


def _ratio_without_start(ours: Side, theirs: Side) -> str:
    """Nothing where a run is little more than its start."""
    mine, other = (side.run.wall_s - side.start_s for side in (ours, theirs))
    return f"{other / mine:.2f}" if mine > ours.start_s / 2 and other > theirs.start_s / 2 else ""


def _write_line(cell: Cell, with_memory: bool) -> str:
    columns = _columns(cell)
    if cell.sides is None:
        return f"{cell.name:4} {columns[0]}; Flink {columns[1]}"
    heads = _heads(cell.regime, with_memory)
    figures = [f"{head} {figure or '?'}" for head, figure in zip(heads, _pad(columns, len(heads)), strict=True)]
    return f"{cell.name:4} {'; '.join(figures)}"


def _compare_regimes(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a table of ratios: a row for each query, a column for each regime."""
    regimes = list(dict.fromkeys(cell.regime for cell in cells))
    if len(regimes) < 2:
        return
    ratios = {(cell.name, cell.regime): _mark(cell) for cell in cells}
    yield ""
    times = "elapsed / processor time" if cells[0].regime.rate is None else "processor time"
    yield f"Flink's {times} over Penstock's:"
    yield ""
    yield _row(["query", *(regime.title for regime in regimes)])
    yield _row(["---"] * (len(regimes) + 1))
    for name in dict.fromkeys(cell.name for cell in cells):
        yield _row([name, *(ratios.get((name, regime), "") for regime in regimes)])


def _mark(cell: Cell) -> str:
    """Return the ratios of elapsed and of processor time, at a rate of the latter; or say whose figure is missing."""
    if cell.sides is None:
        sides = [title for title, side in (("Penstock", cell.ours), ("Flink", cell.flink)) if isinstance(side, str)]
        return f"no {' or '.join(sides)}"
    ours, theirs = cell.sides
    of_cpu = f"{theirs.run.cpu_s / ours.run.cpu_s:.2f}"
    return of_cpu if cell.regime.rate is not None else f"{theirs.run.wall_s / ours.run.wall_s:.2f} / {of_cpu}"


def _summarize(cells: Sequence[Cell]) -> Iterator[str]:
    both = [cell.sides for cell in cells if cell.sides is not None]
    if not both:
        return
    of_cpu = statistics.median(theirs.run.cpu_s / ours.run.cpu_s for ours, theirs in both)
    # At a rate both take as long as the events.
    ratios = [cell.ratio for cell in cells if cell.ratio is not None and cell.regime.rate is None]
    yield ""
    if ratios:
        fast = f"{sum(ratio >= 1 for ratio in ratios)} of {len(ratios)} cells at least as fast as Flink"
        yield f"{fast}, ratio: median {statistics.median(ratios):.2f}, of CPU {of_cpu:.2f}"
    else:
        yield f"ratio of CPU: median {of_cpu:.2f}"
    missing = [cell for cell in cells if isinstance(cell.flink, str)]
    if missing:
        yield f"without Flink: {', '.join(f'{cell.name} ({cell.regime.title})' for cell in missing)}"


def _pad(columns: list[str], count: int) -> list[str]:
    return [*columns, *[""] * (count - len(columns))]


def _row(columns: Sequence[str]) -> str:
    return f"| {' | '.join(columns)} |"
