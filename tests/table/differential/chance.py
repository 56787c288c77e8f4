"""Random choices that are recorded, so that a case can be replayed and made smaller.

A case is a tree of choices: each branch has its own random numbers, which follow from the seed and the path of the
branch. Changing the choices of one branch therefore leaves its siblings as they were. A choice is a whole number, and 0
stands for the simplest alternative, which is what a replay takes once its record has ended.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

#: the choices of a case by the paths of their branches
Record = dict[str, list[int]]


class Chance:
    """Draws the choices of one branch.

    Args:
        seed: of the case; None to replay alone, with 0 for every choice that is not recorded.
        record: choices to replay; the branches that are missing are drawn.
        path: of this branch.
    """

    def __init__(self, seed: str | None, record: Record | None = None, path: str = "") -> None:
        self._seed = seed
        self._replayed = {} if record is None else record
        self._path = path
        self._drawn: Record = {}
        self._source = None if seed is None else random.Random(f"{seed}/{path}")
        self._before = self._replayed.get(path)
        self._choices = self._drawn[path] = []
        self._branches = 0

    def branch(self, name: str) -> Chance:
        """The branch below this one with a name that the caller uses once."""
        made = Chance(self._seed, self._replayed, f"{self._path}/{name}")
        made._share(self._drawn)
        return made

    def next_branch(self) -> Chance:
        """A branch named by its number."""
        self._branches += 1
        return self.branch(str(self._branches))

    @property
    def record(self) -> Record:
        """All choices of the tree so far."""
        return {path: list(choices) for path, choices in self._drawn.items() if choices}

    def _share(self, drawn: Record) -> None:
        self._drawn = drawn
        drawn[self._path] = self._choices

    # --- choices ------------------------------------------------------------------------------------------------------

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1."""
        place = len(self._choices)
        if self._before is not None and place < len(self._before):
            chosen = min(self._before[place], count - 1)
        elif self._before is not None or self._source is None:
            chosen = 0
        else:
            chosen = self._source.randrange(count)
        self._choices.append(chosen)
        return chosen

    def number(self, least: int, most: int) -> int:
        """A number from `least`, the simplest one, to `most`."""
        return least + self.below(most - least + 1)

    def flag(self) -> bool:
        """True in half of the cases."""
        return self.below(2) == 1

    def one_in(self, count: int) -> bool:
        """True in one of `count` cases."""
        return self.below(count) == count - 1

    def pick(self, choices: Sequence[T]) -> T:
        """An element; the first one is the simplest."""
        return choices[self.below(len(choices))]

    def several(self, choices: Sequence[T], least: int, most: int) -> list[T]:
        """From `least` to `most` different elements, in any order."""
        remaining = list(choices)
        count = self.number(least, min(most, len(remaining)))
        return [remaining.pop(self.below(len(remaining))) for _ in range(count)]

    def shuffled(self, choices: Sequence[T]) -> list[T]:
        """All elements in any order."""
        return self.several(choices, len(choices), len(choices))
