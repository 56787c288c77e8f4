"""One case: a world, its reference run, two runs in drawn settings, and DuckDB's answer. All have to agree."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tests.table.differential.chance import Chance, Record
from tests.table.differential.invariants import Expected, faults_of
from tests.table.differential.oracle import UnsuitableWorldError, answer
from tests.table.differential.plans import PlanFacts
from tests.table.differential.runs import LIMIT_S, RunTimeoutError, TooMuchWorkError, plan_facts, run_world
from tests.table.differential.settings import NO_BATCHES, REFERENCE, Setting, draw_setting
from tests.table.differential.worlds import World, draw_world

#: how often a case is drawn again whose query has too large a result, or sends too many changes on the way to it
_TRIES: Final = 8


@dataclass(frozen=True)
class Failure:
    """What a run in a setting did wrong."""

    setting: Setting
    text: str

    @property
    def kind(self) -> str:
        """What kind of failure it is; a smaller case has to fail in the same way."""
        kind, _, text = self.text.partition(": ")
        return f"{kind}: {re.sub('[0-9]+', 'n', text)[:60]}" if kind in ("error", "planning") else kind


@dataclass
class Outcome:
    """The outcome of a case: how often what was run, and the failures."""

    world: World
    record: Record
    settings: list[Setting] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    #: how many worlds were drawn before this one whose queries have too much to do
    restless: int = 0


def run_case(seed: str, batches: str = NO_BATCHES, limit_s: float = LIMIT_S) -> Outcome:
    """Run the case of a seed. `batches`: see `settings`."""
    restless = 0
    for number in range(_TRIES):
        chance = Chance(f"{seed}/{number}" if number else seed)
        world = draw_world(chance)
        settings = [draw_setting(chance.branch(f"setting {place}"), world, batches) for place in range(2)]
        try:
            outcome = check(world, settings, chance.record, limit_s)
            outcome.restless = restless
            return outcome
        except TooMuchWorkError:
            restless += 1
        except UnsuitableWorldError:
            continue
    raise AssertionError(f"no query of the case {seed} has an answer of DuckDB that is small enough")


def check(world: World, settings: Sequence[Setting], record: Record, limit_s: float = LIMIT_S) -> Outcome:
    """Run a world in the reference setting and in others. Raises `UnsuitableWorldError` where DuckDB has no answer."""
    outcome = Outcome(world, record)
    oracle = _Oracle(world)
    oracle.rows(REFERENCE)
    facts = _planned(world)
    if isinstance(facts, Failure):
        outcome.failures.append(facts)
        return outcome
    for setting in (REFERENCE, *settings):
        run, text = _run(world, setting, oracle.rows(setting), facts, limit_s)
        outcome.settings += [run] if setting is not REFERENCE else []
        outcome.failures += [Failure(run, text)] if text else []
    return outcome


def find_failure(world: World, setting: Setting, limit_s: float = LIMIT_S) -> Failure | None:
    """What a run of a world in a setting does wrong. Raises `UnsuitableWorldError` where DuckDB has no answer."""
    rows = _Oracle(world).rows(setting)
    facts = _planned(world)
    if isinstance(facts, Failure):
        return facts
    run, text = _run(world, setting, rows, facts, limit_s)
    return Failure(run, text) if text else None


class _Oracle:
    """DuckDB's rows for a world, in a stream and in a batch."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rows: dict[bool, Expected] = {}

    def rows(self, setting: Setting) -> Expected:
        """The rows that are expected in a setting."""
        drops_late_rows = setting.mode != "BATCH" or not self._world.has_late_rows
        if drops_late_rows not in self._rows:
            types = tuple(column.kind.type for column in self._world.columns)
            self._rows[drops_late_rows] = Expected(types, answer(self._world, drops_late_rows))
        return self._rows[drops_late_rows]


def _planned(world: World) -> PlanFacts | Failure:
    try:
        return plan_facts(world)
    except Exception as error:  # noqa: BLE001 - whatever planning raises is a failure of the reference
        return Failure(REFERENCE, f"planning: {_described(error)}")


def _run(world: World, setting: Setting, expected: Expected, facts: PlanFacts, limit_s: float) -> tuple[Setting, str]:
    """The setting as it ran, and what is wrong with the result, or nothing."""
    try:
        result = run_world(world, setting, limit_s)
    except UnsuitableWorldError:
        raise
    except RunTimeoutError as error:
        return setting, f"hang: {error}"
    except Exception as error:  # noqa: BLE001 - the tester goes on, whatever the engine raises
        return setting, f"error: {_described(error)}"
    ran = replace(setting, output=result.output)
    is_early = setting.results == "early"
    faults = faults_of(result, expected, None if setting.mode == "BATCH" or is_early else facts)
    return ran, f"rows: {'; '.join(faults)}" if faults else ""


def _described(error: BaseException) -> str:
    """An error with its causes, and the place in Penstock where the first of them was raised."""
    texts = []
    cause: BaseException | None = error
    while cause is not None:
        texts.append(f"{type(cause).__name__}: {cause}")
        last = cause
        cause = cause.__cause__
    frames = traceback.extract_tb(last.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return " <- ".join(texts) + place
