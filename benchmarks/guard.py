"""What `make bench-guard` compares with: the ratios in `ratios.json`, or another build.

All are ratios of processor time: other programs on the machine change them less than those of wall time. On another
kind of machine they are others; record them there before a change, and compare after it.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from benchmarks.builds import Subject, WorkloadSubject
from benchmarks.measuring import Figures
from benchmarks.nexmark_sql.beside_build import find_guarded_subjects
from benchmarks.registry import WORKLOADS

PATH = Path(__file__).with_name("ratios.json")
#: The part of a recorded ratio that must be reached.
SHARE_MIN = 0.85

#: More events of Nexmark make pairs longer, and no more certain.
NEXMARK_EVENTS_MAX = 500_000


def find_subjects(count: int, only: str, nexmark: Path | None) -> dict[str, Subject]:
    """Return what is compared with another build, by its keys.

    Args:
        count: the number of events.
        only: the keys that are wanted, separated by commas; all if empty.
        nexmark: the files of the Nexmark benchmark; None to leave its queries out.
    """
    subjects: dict[str, Subject] = {key: WorkloadSubject(key, count) for key in WORKLOADS}
    if nexmark is not None:
        subjects |= find_guarded_subjects(nexmark, min(count, NEXMARK_EVENTS_MAX))
    return {key: subjects[key] for key in choose_keys(only, list(subjects))}


def choose_keys(only: str, keys: list[str]) -> list[str]:
    """Return the keys that a list names, or all if it is empty. Raises `click.UsageError` for an unknown one."""
    chosen = only.split(",") if only else keys
    if unknown := [key for key in chosen if key not in keys]:
        raise click.UsageError(f"there is no workload {', '.join(unknown)}; there are {', '.join(keys)}")
    return chosen


def record(figures: dict[str, Figures]) -> None:
    """Write ratios; those of workloads that were not run stay."""
    known = _recorded()
    known |= {key: round(workload.cpu_ratio, 3) for key, workload in figures.items()}
    PATH.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


def fallen(figures: dict[str, Figures]) -> list[str]:
    """A line for each ratio that has fallen too far."""
    known = _recorded()
    return [
        f"{key} {workload.name}: no ratio is recorded; --record writes it"
        for key, workload in figures.items()
        if key not in known
    ] + [
        f"{key} {workload.name}: ratio {workload.cpu_ratio:.2f}, recorded {known[key]:.2f}, at least "
        f"{known[key] * SHARE_MIN:.2f} expected"
        for key, workload in figures.items()
        if key in known and workload.cpu_ratio < known[key] * SHARE_MIN
    ]


def _recorded() -> dict[str, float]:
    return dict(json.loads(PATH.read_text())) if PATH.exists() else {}
