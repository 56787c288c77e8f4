"""`--base REV`: this build beside another one, in one session, for `make bench-guard`.

Each build runs in a process of its own, and the two take turns, so that a noisy machine is noisy for both. A pair of
runs gives a ratio: the other build's processor time over this build's, above 1 where this build is faster. Pairs go on
until the median is known well enough. Both run in the present environment, each with its own benchmarks.

Where a process has its memory makes it up to a tenth faster or slower for as long as it lives. So both builds get new
processes after `PAIRS_OF_A_PROCESS` pairs.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, Self

from benchmarks.events import EventsSpec
from benchmarks.measuring import Settings, run_penstock
from benchmarks.registry import WORKLOADS

ROOT: Final = Path(__file__).parents[1]
#: A build that is slower than this has fallen: the part of the other build's speed that must be possible.
RATIO_MIN: Final = 0.97
#: How far the median may be from the ends of its interval.
HALF_WIDTH_MAX: Final = 0.03
PAIRS_MIN: Final = 8
PAIRS_MAX: Final = 40
PAIRS_OF_A_PROCESS: Final = 2
_CONFIDENCE: Final = 0.95


class Build(Protocol):
    """A process of a build that runs one subject as often as it is asked to."""

    def cpu_seconds(self) -> float:
        """Run it once, and return the processor time. Raises `RuntimeError` where the build cannot."""


class Subject(Protocol):
    """What is compared between builds."""

    @property
    def name(self) -> str:
        """What a table calls it."""

    def start(self, checkout: Path) -> AbstractContextManager[Build]:
        """Start the build of a checkout."""


@dataclass
class Compared:
    """The ratios of one subject: the other build's processor time over this build's.

    Attributes:
        name: what a table calls it.
        ratios: one of each pair.
        seconds: the processor time of each pair, the other build's and this build's.
    """

    name: str
    ratios: list[float] = field(default_factory=list)
    seconds: list[tuple[float, float]] = field(default_factory=list)

    def add(self, other: float, this: float) -> None:
        """Add a pair."""
        self.ratios.append(other / this)
        self.seconds.append((other, this))

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the median."""
        return median_interval(self.ratios)

    @property
    def is_known(self) -> bool:
        """Whether the interval is narrow enough."""
        low, high = self.interval
        return max(high - self.median, self.median - low) <= HALF_WIDTH_MAX

    @property
    def has_fallen(self) -> bool:
        """Whether the whole interval is below `RATIO_MIN`."""
        return self.interval[1] < RATIO_MIN

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "ratios": self.ratios, "median": self.median, "interval": self.interval}


def median_interval(values: list[float]) -> tuple[float, float]:
    """The narrowest pair of values, equally far from both ends, that holds the median with 95 % or more.

    How many values are below the median is a matter of tossing a coin, whatever their distribution is. With fewer than
    six values no pair is that certain, and the interval has no ends.
    """
    ordered, count = sorted(values), len(values)
    outside, chosen = 0.0, None
    for rank in range(count // 2):
        outside += 2 * math.comb(count, rank) / 2**count
        if outside > 1 - _CONFIDENCE:
            break
        chosen = rank
    return (-math.inf, math.inf) if chosen is None else (ordered[chosen], ordered[count - 1 - chosen])


@dataclass(frozen=True)
class WorkloadSubject:
    """A workload of the registry over so many events."""

    key: str
    events: int

    @property
    def name(self) -> str:
        """See `Subject`."""
        return WORKLOADS[self.key].name

    def start(self, checkout: Path) -> WorkloadBuild:
        """See `Subject`."""
        return WorkloadBuild(checkout, self)


class WorkloadBuild:
    """A process that runs a workload with the package of a checkout.

    The checkout's own benchmarks run, since they name its modules; those of this one if it has none of this protocol.
    """

    def __init__(self, checkout: Path, subject: WorkloadSubject) -> None:
        source = checkout / "src"
        root = checkout if (checkout / "benchmarks" / "builds.py").exists() else ROOT
        path = os.pathsep.join([str(source), str(root)])
        self._subject = subject
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.builds", str(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            cwd=root,
        )

    def cpu_seconds(self) -> float:
        """See `Build`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        key = self._subject.key
        self._process.stdin.write(json.dumps([key, self._subject.events]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{key}: the build ended with exit status {self._process.wait()}; see its error above")
        return float(json.loads(answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """A directory with another revision, until the end of the block. Raises `RuntimeError` where there is none."""
    commit = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", check=False)
    if commit.returncode:
        raise RuntimeError(f"{revision}: there is no such revision")
    directory = ROOT / "build" / f"base-{commit.stdout.strip()[:12]}"
    if directory.exists():
        _remove(directory)
    _git("worktree", "add", "--detach", "--force", str(directory), commit.stdout.strip())
    try:
        yield directory
    finally:
        _remove(directory)


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    _git("worktree", "prune")


def _git(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=check, capture_output=True, text=True)


def compare(
    base: str,
    subjects: Mapping[str, Subject],
    tell: Callable[[str], object] = str,
    pairs_min: int = PAIRS_MIN,
    pairs_max: int = PAIRS_MAX,
) -> Iterator[tuple[str, Compared]]:
    """Yield the ratios of each subject with its key: at least so many pairs, and more until they are known.

    Args:
        base: the other build's revision.
        subjects: what is compared, by the keys.
        tell: called with what is done next.
        pairs_min: the least number of pairs.
        pairs_max: no more than this many.
    """
    with checkout(base) as directory:
        for key, subject in subjects.items():
            compared = Compared(subject.name)
            while len(compared.ratios) < pairs_max and (len(compared.ratios) < pairs_min or not compared.is_known):
                with subject.start(directory) as other, subject.start(ROOT) as this:
                    tell(f"{key}: first run after {len(compared.ratios)} pairs")
                    for build in (other, this):
                        build.cpu_seconds()
                    for _ in range(min(PAIRS_OF_A_PROCESS, pairs_max - len(compared.ratios))):
                        tell(f"{key}: pair {len(compared.ratios) + 1}")
                        if len(compared.ratios) % 2:
                            of_other, of_this = other.cpu_seconds(), this.cpu_seconds()
                        else:
                            of_this, of_other = this.cpu_seconds(), other.cpu_seconds()
                        compared.add(of_other, of_this)
            yield key, compared


def serve(source: str) -> None:
    """Run workloads that the standard input names, and answer with their processor time in seconds."""
    logging.disable(logging.WARNING)
    import penstock

    if not Path(penstock.__file__).is_relative_to(source):
        raise SystemExit(f"the package of {penstock.__file__} is not the one of {source}")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a workload prints is no answer
    for line in sys.stdin:
        key, events = json.loads(line)
        run = run_penstock(WORKLOADS[key], WORKLOADS[key].spec(EventsSpec(events)), Settings())
        answers.write(json.dumps(run.cpu_seconds) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
