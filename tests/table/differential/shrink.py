"""Makes a failing case smaller while it fails in the same way.

First the setting is moved towards the reference one, and rows are left out. Then the choices of the query are replayed
with fewer and lower numbers, which stand for fewer steps and simpler expressions. It is a search within a budget of
time, and the smallest case so far is the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

from tests.table.differential.chance import Chance, Record
from tests.table.differential.oracle import UnsuitableWorldError
from tests.table.differential.settings import REFERENCE, Setting, restricted
from tests.table.differential.tables import without_groups
from tests.table.differential.tester import Failure, find_failure
from tests.table.differential.worlds import World, draw_world

_CHUNKS = (64, 32, 16, 8, 4, 2, 1)


@dataclass(frozen=True)
class Case:
    """A world that fails in a setting."""

    world: World
    record: Record
    failure: Failure

    @property
    def size(self) -> tuple[int, int, int]:
        """How large it is: the rows, the query, and the sum of the choices."""
        rows = sum(len(table.changes) for table in self.world.tables.values())
        return rows + len(self.world.query) // 20, len(self.world.query), sum(map(sum, self.record.values()))


def shrunk(case: Case, budget_s: float) -> Case:
    """The smallest case found within a budget (s)."""
    deadline = time.monotonic() + budget_s

    def is_over() -> bool:
        return time.monotonic() > deadline

    case = _with_fewer_rows(_with_simpler_setting(case, is_over), lambda: time.monotonic() > deadline - budget_s / 2)
    before = None
    while not is_over() and before != case.size:
        before = case.size
        for record in _records(case):
            if is_over():
                break
            smaller = _replayed(record, case)
            if smaller is not None and smaller.size < case.size:
                case = smaller
                break
    return _with_fewer_rows(_with_simpler_setting(case, is_over), is_over)


def _with_fewer_rows(case: Case, is_over: Callable[[], bool]) -> Case:
    """The case without rows that it fails without. The choices no longer describe it then."""
    for name in list(case.world.tables):
        for size in _CHUNKS:
            groups = sorted({change.group for change in case.world.tables[name].changes})
            for start in range(0, len(groups), size):
                if is_over():
                    return case
                table = without_groups(case.world.tables[name], groups[start : start + size])
                world = replace(case.world, tables={**case.world.tables, name: table})
                case = _failing(world, case.record, case.failure.setting, case.failure) or case
    return case


def _replayed(record: Record, case: Case) -> Case | None:
    """The case of other choices, if it fails in the same way."""
    chance = Chance(None, record)
    world = draw_world(chance, case.world.tables)
    if (world.query, world.tables) == (case.world.query, case.world.tables):
        return None
    setting = restricted(case.failure.setting, world)
    return _failing(world, chance.record, setting, case.failure)


def _failing(world: World, record: Record, setting: Setting, failure: Failure) -> Case | None:
    try:
        found = find_failure(world, setting)
    except UnsuitableWorldError:
        return None
    if found is None or found.kind != failure.kind:
        return None
    return Case(world, record, found)


def _records(case: Case) -> Iterator[Record]:
    """Choices of the query that are simpler than those of a case, the boldest first. Tables stay as they are."""
    record = case.record
    paths = [path for path in record if not path.startswith("/tables")]
    paths.sort(key=lambda path: (-len(record[path]), path))
    for path in paths:
        yield {**record, path: []}
    for size in _CHUNKS:
        for path in paths:
            choices = record[path]
            for start in range(0, len(choices), size):
                yield {**record, path: choices[:start] + choices[start + size :]}
    for path in paths:
        choices = record[path]
        for place, choice in enumerate(choices):
            for lower in (0, choice // 2, choice - 1):
                if 0 <= lower < choice:
                    yield {**record, path: [*choices[:place], lower, *choices[place + 1 :]]}


def _with_simpler_setting(case: Case, is_over: Callable[[], bool]) -> Case:
    """The case with as many values of the reference setting as it fails with."""
    for field in fields(REFERENCE):
        setting = case.failure.setting
        value = getattr(REFERENCE, field.name)
        if is_over() or getattr(setting, field.name) == value:
            continue
        simpler = restricted(replace(setting, **{field.name: value}), case.world)
        if simpler != setting:
            case = _failing(case.world, case.record, simpler, case.failure) or case
    return case
