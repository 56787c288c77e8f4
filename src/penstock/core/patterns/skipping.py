"""Skip strategies: which partial matches a match discards, and in which order matches are output.

With a skip strategy, a match waits while an earlier partial match exists, because that one would come first and might
skip it. Among complete matches, the one that began first is output first; with the same beginning, the one that
completed first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.base.errors import OperationError
from penstock.core.patterns.memory import Memory, Partial


class SkipError(OperationError):
    """A match has no event to skip to, or would be found again endlessly. The job fails: a retry would hit it again."""

    suppresses_restart = True


class Skip(Enum):
    """Where the search continues after a match."""

    NO_SKIP = "no skip"
    TO_NEXT = "to next"
    PAST_LAST = "past last event"
    TO_FIRST = "to first"
    TO_LAST = "to last"


@dataclass(frozen=True, slots=True)
class SkipStrategy:
    """`stage`: the stage whose first or last event to skip to. `fails_on_miss`: whether a match without one fails."""

    skip: Skip = Skip.NO_SKIP
    stage: str = ""
    fails_on_miss: bool = False

    def kept(self, partials: Sequence[Partial], path: Sequence[tuple[str, int]], memory: Memory) -> list[Partial]:
        """Return the partial matches that survive a match with this path; the others are released."""
        first_kept = self._first_kept(path)
        if first_kept is None:
            return list(partials)
        remaining = []
        for partial in partials:
            if partial.first >= first_kept:
                remaining.append(partial)
            else:
                memory.release(partial.link)
        return remaining

    def _first_kept(self, path: Sequence[tuple[str, int]]) -> int | None:
        """Return the lowest number of a first event that survives; None if all partial matches do."""
        if self.skip is Skip.NO_SKIP:
            return None
        if self.skip is Skip.TO_NEXT:
            return path[0][1] + 1
        if self.skip is Skip.PAST_LAST:
            return path[-1][1] + 1
        numbers = [number for stage, number in path if stage == self.stage]
        if not numbers:
            if self.fails_on_miss:
                raise SkipError(f"Could not skip to {self.stage}: the match has no event of this stage.")
            return None
        target = numbers[0 if self.skip is Skip.TO_FIRST else -1]
        if self.fails_on_miss and target == path[0][1]:
            raise SkipError("Could not skip to first element of a match.")
        return target
