"""What checkpoints and RocksDB cost: each query beside itself on the heap without checkpoints, by turns."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks.nexmark_sql.cells import Side
from benchmarks.nexmark_sql.contenders import Contender, run_by_turns
from benchmarks.nexmark_sql.query_process import PenstockProcess
from benchmarks.nexmark_sql.regimes import Regime


def compare_regimes(folder: Path, names: Iterable[str], regime: Regime, events: int, times: int) -> Iterator[str]:
    """Yield a table in Markdown: rates, and ratios of rate and of processor time to the heap without checkpoints.

    Args:
        folder: the benchmark's files.
        names: the queries.
        regime: what the regimes have in common; its checkpoints are those of the heap and of RocksDB.
        events: how many each query reads.
        times: runs of each, of which the medians count.
    """
    checkpoints = "1s" if regime.checkpoints == "off" else regime.checkpoints
    regimes = [
        replace(regime, backend="heap", checkpoints="off"),
        replace(regime, backend="heap", checkpoints=checkpoints),
        replace(regime, backend="rocksdb", checkpoints=checkpoints),
    ]
    heads = ["query", f"{regimes[0].title}, events/s"]
    for other in regimes[1:]:
        heads += [f"{other.title}, events/s", "of that", "of CPU", "peak MB", "checkpoints", "the last, MB"]
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join('---' for _ in heads)} |"
    ratios: list[list[float]] = [[], []]
    for name in names:
        sides = _measure(folder, name, regimes, events, times)
        base = sides[0]
        if isinstance(base, str):
            yield f"| {' | '.join([name, base, *[''] * (len(heads) - 2)])} |"
            continue
        row = [name, f"{events / base.run.wall_s:,.0f}"]
        for side, of_regime in zip(sides[1:], ratios, strict=True):
            if isinstance(side, str):
                row += [side, *[""] * 5]
                continue
            run = side.run
            of_regime.append(base.run.cpu_s / run.cpu_s)
            row += [f"{events / run.wall_s:,.0f}", f"{base.run.wall_s / run.wall_s:.2f}", f"{of_regime[-1]:.2f}"]
            row += [f"{run.peak_bytes / 1e6:,.0f}", str(run.checkpoints), f"{run.checkpoint_bytes / 1e6:,.1f}"]
        yield f"| {' | '.join(row)} |"
    for other, of_regime in zip(regimes[1:], ratios, strict=True):
        if of_regime:
            yield ""
            median = statistics.median(of_regime)
            yield f"{other.title}: by processor time {median:.2f} of {regimes[0].title}, the median"


def _measure(folder: Path, name: str, regimes: list[Regime], events: int, times: int) -> list[Side | str]:
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        contenders = []
        for index, regime in enumerate(regimes):
            of_regime = Path(scratch) / str(index)
            of_regime.mkdir()
            contenders.append(Contender(PenstockProcess(folder, name, events, regime, of_regime), regime.rate))
        run_by_turns(contenders, events, times, stack)
        return [contender.finish() for contender in contenders]
