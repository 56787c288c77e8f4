"""From what has changed to the tests that run."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import msgspec
from grimp.exceptions import GrimpException
from tests.selection.history import History, HistoryError
from tests.selection.imports import Imports
from tests.selection.rooms import BY_ID, EVERYTHING, RULES, find_folders, find_rooms, is_shared_helper, is_test
from tests.simulation.fresh_seeds import commit_number

#: A commit runs one in so many of the files that no change selects, and of the slow tests. CI changes its packages
#: every third commit: with these numbers, which three does not divide, each test meets each set of packages.
FILE_TURNS: Final = 4
SLOW_TURNS: Final = 13
#: How many slow tests run because their room changed; where a change concerns more, these take turns too. So a run
#: after a change of many rooms takes no longer.
NEAR_MOST: Final = 30


@dataclass(frozen=True)
class Choice:
    """Which tests run, the same in every process of a run."""

    reason: str
    """What the selection follows from, for people."""
    turn: int
    """The number of the commit."""
    everything: bool
    """Whether all tests run that are not slow."""
    files: tuple[str, ...] = ()
    """The files that the change selects."""
    near: tuple[str, ...] = ()
    """The files of which the slow tests run too."""
    subjects: tuple[str, ...] = ()
    """The pages and examples that changed: a slow test with one of them in its id runs."""
    named: tuple[str, ...] = ()
    """The files and tests on the command line."""

    def select(self, tests: Mapping[str, bool]) -> set[str]:
        """Those of the tests that run, by their ids; the values say which are slow."""
        taken = {nodeid for nodeid, is_slow in tests.items() if self._takes(nodeid, is_slow)}
        near = {nodeid for nodeid, is_slow in tests.items() if is_slow and self._is_near(nodeid)} - taken
        turns = max(1, math.ceil(len(near) / NEAR_MOST))
        return taken | {nodeid for nodeid in near if _has_turn(nodeid, self.turn, turns)}

    def _takes(self, nodeid: str, is_slow: bool) -> bool:
        file = nodeid.partition("::")[0]
        if nodeid.startswith(self.named):
            return True
        if is_slow:
            return _has_turn(nodeid, self.turn, SLOW_TURNS)
        return self.everything or file in self.files or _has_turn(file, self.turn, FILE_TURNS)

    def _is_near(self, nodeid: str) -> bool:
        file, _, test = nodeid.partition("::")
        return file in self.near or (file.startswith(BY_ID) and any(subject in test for subject in self.subjects))

    def to_json(self) -> str:
        """As the other processes get it."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What another process has chosen."""
        return msgspec.json.decode(text, type=cls)


def _has_turn(name: str, turn: int, turns: int) -> bool:
    return (turn + zlib.crc32(name.encode())) % turns == 0


def choose(root: Path) -> Choice:
    """Select by what has changed since the last full run; everything, where that is not known."""
    try:
        history = History(root)
        turn = history.number()
    except HistoryError as error:
        return Choice(f"everything, since {error}", commit_number(), everything=True)
    recent = history.recent_changes(SLOW_TURNS)
    try:
        imports = Imports(root)
    except GrimpException as error:
        return Choice(f"everything, since imports cannot be read: {error}", turn, everything=True)
    try:
        recorded = history.recorded()
        changed = history.changes_since(recorded)
    except HistoryError as error:
        near, subjects = _choose_near(recent, imports)
        return Choice(f"everything, since {error}", turn, everything=True, near=near, subjects=subjects)
    near, subjects = _choose_near(recent & changed, imports)
    since = f"{len(changed)} files changed since the full run of {recorded[:8]}"
    all_needed_by = sorted(path for path in changed if _concerns_all(path))
    if all_needed_by:
        reason = f"everything, for {all_needed_by[0]} is among the {since}"
        return Choice(reason, turn, everything=True, near=near, subjects=subjects)
    files = tuple(sorted(_choose_files(changed, imports)))
    return Choice(f"{len(files)} files of tests, for {since}", turn, False, files, near, subjects)


def _concerns_all(path: str) -> bool:
    rooms = find_rooms(path)
    if rooms is None:
        return is_shared_helper(path) or not path.startswith("tests/")
    return rooms == EVERYTHING


def _choose_files(changed: Iterable[str], imports: Imports) -> set[str]:
    """The files of tests that a change can break: by the table, by imports, and those that start programs."""
    changed = set(changed)
    found = imports.find_importers(changed) | {path for path in changed if is_test(path)}
    for path in changed:
        found |= _choose_rooms(path, imports.tests)
    if changed:
        found |= {path for path in imports.tests if path.startswith(RULES)}
    if any(path.startswith("src/") for path in changed):
        found |= imports.find_outsiders()
    return found


def _choose_near(changed: Iterable[str], imports: Imports) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files whose slow tests a change concerns, and the pages and examples that it changes."""
    changed = set(changed)
    local = {path for path in changed if not _concerns_all(path)}
    found = {path for room in local for path in _choose_rooms(room, imports.tests) if not path.startswith(BY_ID)}
    found |= imports.find_importers(path for path in local if path.startswith("tests/"))
    found |= {path for path in changed if is_test(path)}
    subjects = [path for path in changed if path.endswith(".md") and path.startswith(("docs/", "README"))]
    subjects += [path[9:-3].replace("/", ".") for path in changed if path.startswith("examples/")]
    return tuple(sorted(found)), tuple(sorted(subjects))


def _choose_rooms(path: str, tests: Iterable[str]) -> set[str]:
    """The files of tests of a path by the table; those around it if it is data of tests."""
    rooms = find_rooms(path)
    if rooms is None and path.startswith("tests/") and not path.endswith(".py"):
        for folder in find_folders(path):
            if found := {test for test in tests if test.startswith(folder)}:
                return found
    return {test for test in tests if rooms and test.startswith(rooms)}
