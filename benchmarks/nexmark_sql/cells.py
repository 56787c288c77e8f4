"""What is known of a query in a regime, on each side; and a file of it, so that a long run goes on where it ended."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from benchmarks.nexmark_sql.query_process import Memory, Run
from benchmarks.nexmark_sql.regimes import Regime


@dataclass(frozen=True)
class Side:
    """One side: the medians of its runs, the wall time of a run over one event, and memory where it was asked for."""

    run: Run
    start_s: float
    memory: Memory | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON, for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Read what `to_json` has returned."""
        latencies, memory = fields["run"]["latencies_ms"], fields["memory"]
        run = Run(**{**fields["run"], "latencies_ms": tuple(latencies) if latencies is not None else None})
        return cls(run, fields["start_s"], Memory(*memory) if memory is not None else None)


def take_medians(runs: Sequence[Run]) -> Run:
    """Return the median of each figure, and the highest peak of memory."""
    latencies = [run.latencies_ms for run in runs if run.latencies_ms is not None]
    return Run(
        statistics.median(run.wall_s for run in runs),
        statistics.median(run.cpu_s for run in runs),
        max(run.peak_bytes for run in runs),
        statistics.median_low(run.checkpoints for run in runs),
        statistics.median_low(run.checkpoint_bytes for run in runs),
        (
            statistics.median_low(median for median, _ in latencies),
            statistics.median_low(high for _, high in latencies),
        )
        if latencies
        else None,
    )


@dataclass(frozen=True)
class Cell:
    """A query in a regime, on both sides; or why one of them does not run it."""

    name: str
    regime: Regime
    events: int
    ours: Side | str
    flink: Side | str

    @property
    def sides(self) -> tuple[Side, Side] | None:
        """Both, if both ran."""
        if isinstance(self.ours, str) or isinstance(self.flink, str):
            return None
        return self.ours, self.flink

    @property
    def ratio(self) -> float | None:
        """Flink's wall time over ours, if both ran."""
        return self.sides and self.sides[1].run.wall_s / self.sides[0].run.wall_s

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON, for `from_json`."""
        ours, flink = (side if isinstance(side, str) else side.to_json() for side in (self.ours, self.flink))
        return {**asdict(replace(self, ours="", flink="")), "ours": ours, "flink": flink}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Read what `to_json` has returned."""
        ours, flink = (
            side if isinstance(side, str) else Side.from_json(side) for side in (fields["ours"], fields["flink"])
        )
        return cls(fields["name"], Regime(**fields["regime"]), fields["events"], ours, flink)


class CellFile:
    """The cells that are finished. `path`: a JSON file, which need not be there; None to keep them in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = json.loads(path.read_text()) if path is not None and path.exists() else []
        self._cells = [Cell.from_json(fields) for fields in lines]

    def find(self, name: str, regime: Regime, events: int) -> Cell | None:
        """Return the cell of a query in a regime over so many events; None if it is still to be measured."""
        wanted = (name, regime, events)
        return next((cell for cell in self._cells if (cell.name, cell.regime, cell.events) == wanted), None)

    def add(self, cell: Cell) -> None:
        """Add a finished cell. A program that is stopped meanwhile leaves the file as it was."""
        self._cells.append(cell)
        if self._path is not None:
            new = self._path.with_name(f"{self._path.name}.new")
            new.write_text(json.dumps([known.to_json() for known in self._cells], indent=1))
            new.replace(self._path)
