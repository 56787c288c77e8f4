"""What happens to other matches after a match was found."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.base.errors import WrongTypeError
from penstock.core.patterns.skipping import Skip, SkipStrategy


@dataclass(frozen=True)
class AfterMatchSkipStrategy:
    """Which partial matches, and matches that wait, die with a match.

    Except with `no_skip()`, matches leave in the order of their first events: one waits while a partial match that
    began earlier lives.
    """

    _skip: SkipStrategy

    @staticmethod
    def no_skip() -> AfterMatchSkipStrategy:
        """None: all matches come, when they are complete. The default."""
        return AfterMatchSkipStrategy(SkipStrategy(Skip.NO_SKIP))

    @staticmethod
    def skip_to_next() -> AfterMatchSkipStrategy:
        """Those that began with the event with which the match began."""
        return AfterMatchSkipStrategy(SkipStrategy(Skip.TO_NEXT))

    @staticmethod
    def skip_past_last_event() -> AfterMatchSkipStrategy:
        """Those that began before the match ended."""
        return AfterMatchSkipStrategy(SkipStrategy(Skip.PAST_LAST))

    @staticmethod
    def skip_to_first(pattern_name: str) -> AfterMatchSkipStrategy:
        """Those that began before the first event of a stage in the match; none where the match has no such event."""
        return AfterMatchSkipStrategy(SkipStrategy(Skip.TO_FIRST, _named(pattern_name)))

    @staticmethod
    def skip_to_last(pattern_name: str) -> AfterMatchSkipStrategy:
        """Those that began before the last event of a stage in the match; none where the match has no such event."""
        return AfterMatchSkipStrategy(SkipStrategy(Skip.TO_LAST, _named(pattern_name)))

    def throw_exception_on_miss(self) -> AfterMatchSkipStrategy:
        """The same strategy; the job fails if a match has no event to skip to, or it is the match's first one.

        Raises:
            TypeError: unless the strategy skips to an event of a stage.
        """
        if not self._skip.stage:
            raise WrongTypeError("throw_exception_on_miss() is for skip_to_first() and skip_to_last()")
        return AfterMatchSkipStrategy(replace(self._skip, fails_on_miss=True))

    def is_skip_strategy(self) -> bool:
        """Whether any match may be skipped."""
        return self._skip.skip is not Skip.NO_SKIP

    def get_pattern_name(self) -> str | None:
        """The stage to whose event it skips, if it does."""
        return self._skip.stage or None

    @property
    def engine_strategy(self) -> SkipStrategy:
        """The same for the engine."""
        return self._skip


def _named(pattern_name: str) -> str:
    if not isinstance(pattern_name, str):
        raise WrongTypeError(f"the name of a stage must be a str, not {pattern_name!r}")
    return pattern_name
