"""After a match: which partial matches die with it, and in which order matches come.

Where anything is skipped, a match waits while a partial match that began earlier lives: that one would come first, and
might skip it. Of complete matches the one that began first goes; of several with one beginning, the one that was
complete first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.base.errors import OperationError
from penstock.core.patterns.memory import Memory, Partial


class SkipError(OperationError):
    """A match has no event to skip to, or would be found again for ever. The job fails: it would meet it again."""

    suppresses_restart = True


class Skip(Enum):
    """Where the search goes on."""

    NO_SKIP = "no skip"
    TO_NEXT = "to next"
    PAST_LAST = "past last event"
    TO_FIRST = "to first"
    TO_LAST = "to last"


@dataclass(frozen=True, slots=True)
class SkipStrategy:
    """`stage`: whose first or last event it is. `fails_on_miss`: whether a match without one is an error."""

    skip: Skip = Skip.NO_SKIP
    stage: str = ""
    fails_on_miss: bool = False

    def kept(self, partials: Sequence[Partial], path: Sequence[tuple[str, int]], memory: Memory) -> list[Partial]:
        """The partial matches that live on beside a match with this path; the others are released."""
        first_kept = self._first_kept(path)
        if first_kept is None:
            return list(partials)
        found = []
        for one in partials:
            if one.first >= first_kept:
                found.append(one)
            else:
                memory.release(one.link)
        return found

    def _first_kept(self, path: Sequence[tuple[str, int]]) -> int | None:
        """The number of the first event with which a partial match may begin; None if all live on."""
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
        found = numbers[0 if self.skip is Skip.TO_FIRST else -1]
        if self.fails_on_miss and found == path[0][1]:
            raise SkipError("Could not skip to first element of a match.")
        return found
