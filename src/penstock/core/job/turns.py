"""Turns of the job master: it handles one event completely before it looks at the next one.

A handler produces two things. Effects concern the outside world; the driver carries them out when the turn is over.
News concerns the master itself: a part has found something that affects the whole job, such as a failure. The master
takes in the news one by one, after the handler has returned and before the turn is over. So no handler runs inside
another one.
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
    """Runs handlers one at a time; `handle_event` handles each piece of news."""

    def __init__(self, handle_event: Callable[[N], None]) -> None:
        self.effects = Effects(self.run)
        self._handle_event = handle_event
        self._news: deque[N] = deque()
        self._is_under_way = False

    def tell(self, news: N) -> None:
        """Queue a piece of news for the master to take in during this turn, once the handler has returned."""
        self._news.append(news)

    def run(self, handler: Callable[[], R]) -> R:
        """Run a handler as one turn."""
        assert not self._is_under_way, "no handler of the job master runs within another one"
        self._is_under_way = True
        try:
            result = handler()
            while self._news:
                self._handle_event(self._news.popleft())
            return result
        finally:
            self._is_under_way = False

    def validate(self) -> None:
        """Assert the invariants between two turns. The simulator calls this; a running job never does."""
        assert not self._is_under_way, "a turn is not over"
        assert not self._news, "nothing that concerns the job waits for the next turn"


class TakesTurns(Protocol):
    """An object that has turns."""

    @property
    def turns(self) -> Turns: ...  # type: ignore[type-arg]


S = TypeVar("S", bound=TakesTurns)


def turn(handler: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorate a method that the driver calls: each call is one turn."""

    def in_a_turn(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.turns.run(lambda: handler(self, *args, **kwargs))
        return result

    in_a_turn.__doc__ = handler.__doc__
    return in_a_turn
