"""Turns of the job master: an event is handled to its end before the next one is looked at.

A handler leaves two things. Effects are for the world, and the driver carries them out when the turn is over. News are
for the master itself: a part has found something that concerns the whole job, such as a failure. The master takes them
in one after another, when the handler has returned and before the turn is over. So no handler runs within another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

from penstock.core.effects import Effects

P = ParamSpec("P")
R = TypeVar("R")
N = TypeVar("N")


class Turns(Generic[N]):
    """Runs handlers one at a time; `take_in` handles a piece of news."""

    def __init__(self, take_in: Callable[[N], None]) -> None:
        self.effects = Effects(self.run)
        self._take_in = take_in
        self._news: deque[N] = deque()
        self._is_under_way = False

    def tell(self, news: N) -> None:
        """Have the master take in a piece of news in this turn, once the handler has returned."""
        self._news.append(news)

    def run(self, handler: Callable[[], R]) -> R:
        """One turn."""
        assert not self._is_under_way, "no handler of the job master runs within another one"
        self._is_under_way = True
        try:
            result = handler()
            while self._news:
                self._take_in(self._news.popleft())
            return result
        finally:
            self._is_under_way = False

    def validate(self) -> None:
        """Assert what holds between any two turns. The simulator calls this; a running job never does."""
        assert not self._is_under_way, "a turn is not over"
        assert not self._news, "nothing that concerns the job waits for the next turn"


class TakesTurns(Protocol):
    """What has turns."""

    @property
    def turns(self) -> Turns: ...  # type: ignore[type-arg]


S = TypeVar("S", bound=TakesTurns)


def turn(handler: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method that the driver calls: one turn."""

    def in_a_turn(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.turns.run(lambda: handler(self, *args, **kwargs))
        return result

    in_a_turn.__doc__ = handler.__doc__
    return in_a_turn
