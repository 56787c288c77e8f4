"""After-match skip strategies: how a match affects other matches."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.base.errors import WrongTypeError
from penstock.core.patterns.skipping import Skip, SkipStrategy


@dataclass(frozen=True)
class AfterMatchSkipStrategy:
    """Decides which partial matches and pending matches a match discards.

    Except with `no_skip()`, matches are emitted in the order of their first events: a match waits as long as there is a
    partial match that began earlier.
    """

    _skip: SkipStrategy

    @staticmethod
    def no_skip() -> AfterMatchSkipStrategy:
        """Discard nothing: all matches are emitted when they are complete. The default."""
        return AfterMatchSkipStrategy(SkipStrategy(Skip.NO_SKIP))

    @staticmethod
    def skip_to_next() -> AfterMatchSkipStrategy:
        """Discard matches that began with the same event as the match."""
        return AfterMatchSkipStrategy(SkipStrategy(Skip.TO_NEXT))

    @staticmethod
    def skip_past_last_event() -> AfterMatchSkipStrategy:
        """Discard matches that began before the match ended."""
        return AfterMatchSkipStrategy(SkipStrategy(Skip.PAST_LAST))

    @staticmethod
    def skip_to_first(pattern_name: str) -> AfterMatchSkipStrategy:
        """Discard matches that began before the match's first event of a stage.

        Nothing if the match has no such event.
        """
        return AfterMatchSkipStrategy(SkipStrategy(Skip.TO_FIRST, _named(pattern_name)))

    @staticmethod
    def skip_to_last(pattern_name: str) -> AfterMatchSkipStrategy:
        """Discard matches that began before the match's last event of a stage.

        Nothing if the match has no such event.
        """
        return AfterMatchSkipStrategy(SkipStrategy(Skip.TO_LAST, _named(pattern_name)))

    def throw_exception_on_miss(self) -> AfterMatchSkipStrategy:
        """Return the same strategy, failing the job if a match has no event to skip to or that is its first one.

        Raises:
            TypeError: unless the strategy skips to an event of a stage.
        """
        if not self._skip.stage:
            raise WrongTypeError("throw_exception_on_miss() is for skip_to_first() and skip_to_last()")
        return AfterMatchSkipStrategy(replace(self._skip, fails_on_miss=True))

    def is_skip_strategy(self) -> bool:
        """Return whether the strategy can skip matches."""
        return self._skip.skip is not Skip.NO_SKIP

    def get_pattern_name(self) -> str | None:
        """Return the stage to whose event the strategy skips, or None."""
        return self._skip.stage or None

    @property
    def engine_strategy(self) -> SkipStrategy:
        """The strategy for the pattern engine."""
        return self._skip


def _named(pattern_name: str) -> str:
    if not isinstance(pattern_name, str):
        raise WrongTypeError(f"the name of a stage must be a str, not {pattern_name!r}")
    return pattern_name
