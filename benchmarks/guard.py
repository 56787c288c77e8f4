"""What `make bench-guard` compares with: the ratios in `ratios.json`.

They are ratios of processor time: other programs on the machine change them less than those of wall time. On another
kind of machine they are others; record them there before a change, and compare after it.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.measuring import Figures

PATH = Path(__file__).with_name("ratios.json")
#: The part of a recorded ratio that must be reached.
SHARE_MIN = 0.85


def record(figures: dict[str, Figures]) -> None:
    """Write ratios; those of workloads that were not run stay."""
    known = _recorded()
    known |= {key: round(one.cpu_ratio, 3) for key, one in figures.items()}
    PATH.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


def fallen(figures: dict[str, Figures]) -> list[str]:
    """A line for each ratio that has fallen too far."""
    known = _recorded()
    return [
        f"{key} {one.name}: no ratio is recorded; --record writes it"
        for key, one in figures.items()
        if key not in known
    ] + [
        f"{key} {one.name}: ratio {one.cpu_ratio:.2f}, recorded {known[key]:.2f}, at least "
        f"{known[key] * SHARE_MIN:.2f} expected"
        for key, one in figures.items()
        if key in known and one.cpu_ratio < known[key] * SHARE_MIN
    ]


def _recorded() -> dict[str, float]:
    return dict(json.loads(PATH.read_text())) if PATH.exists() else {}
