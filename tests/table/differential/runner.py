"""Runs many cases, in one process or in several, and adds up what they covered."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Final

from tests.many_runs import prepare_many_runs
from tests.table.differential.report import failure_text
from tests.table.differential.runs import LIMIT_S
from tests.table.differential.settings import NO_BATCHES, SOME_BATCHES, PairCounts
from tests.table.differential.shrink import Case, shrunk
from tests.table.differential.tester import Outcome, run_case

#: how many cases a process runs before another one takes its place
_CHUNK: Final = 500


@dataclass(frozen=True)
class Plan:
    """What is run.

    Args:
        seed: of the run.
        batches: whether none, some or all settings are batches in Spark.
        limit_s: how much processor time (s) one run may take.
        shrink_s: how long (s) a failure is made smaller; 0 for not at all.
    """

    seed: int
    batches: str = NO_BATCHES
    limit_s: float = LIMIT_S
    shrink_s: float = 20.0


@dataclass
class Summary:
    """What was run, the reports of the failures by the numbers of their cases, and how many worlds were left out.

    `restless` ones are those whose queries have too much to do.
    """

    cases: int = 0
    runs: int = 0
    pairs: PairCounts = field(default_factory=PairCounts)
    failures: dict[int, str] = field(default_factory=dict)
    restless: int = 0

    def merge(self, other: Summary) -> None:
        """Add another part of the run."""
        self.cases += other.cases
        self.runs += other.runs
        self.pairs.merge(other.pairs)
        self.failures |= other.failures
        self.restless += other.restless


def run_cases(plan: Plan, numbers: Sequence[int], on_case: Callable[[Summary], None] | None = None) -> Summary:
    """Run the cases of these numbers in this process. `on_case` is called after each of them."""
    summary = Summary()
    for number in numbers:
        outcome = run_case(f"{plan.seed}/{number}", plan.batches, plan.limit_s)
        summary.cases += 1
        summary.runs += 1 + len(outcome.settings)
        summary.restless += outcome.restless
        for setting in outcome.settings:
            summary.pairs.add(setting)
        if outcome.failures:
            more = "" if plan.batches == SOME_BATCHES else f" --batches {plan.batches}"
            summary.failures[number] = failure_text(plan.seed, number, outcome, _smallest(outcome, plan), more)
        if on_case is not None:
            on_case(summary)
    return summary


def _smallest(outcome: Outcome, plan: Plan) -> Case | None:
    first = outcome.failures[0]
    if not plan.shrink_s or first.kind == "hang":
        return None
    return shrunk(Case(outcome.world, outcome.record, first), plan.shrink_s)


def run_in_processes(plan: Plan, numbers: Sequence[int], jobs: int) -> Iterator[Summary]:
    """Run cases in several processes. Gives the summary of each part as it ends."""
    parts = [numbers[start : start + _CHUNK] for start in range(0, len(numbers), _CHUNK)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for done in as_completed([pool.submit(_run_part, plan, part) for part in parts]):
            yield done.result()


def _run_part(plan: Plan, numbers: Sequence[int]) -> Summary:
    logging.disable(logging.WARNING)
    prepare_many_runs()
    return run_cases(plan, numbers)


def seconds_since(started: float) -> str:
    """The time since a moment, as text."""
    return f"{time.monotonic() - started:.0f} s"
