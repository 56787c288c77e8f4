"""The set of enabled actions, from which the scheduler picks at random in constant time."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Final

#: The most times a single pick may pass over slow actions.
PASSED_OVER_MAX: Final = 8


class Action(ABC):
    """An action that can be scheduled. With a `speed` below 1 it is sometimes passed over in favour of others."""

    __slots__ = ("position", "speed")

    def __init__(self, speed: float = 1.0) -> None:
        self.position = -1
        self.speed = speed

    @abstractmethod
    def run(self) -> None:
        """Perform the action."""


class ReadySet:
    """The enabled actions. Their order depends only on the history, so replays pick the same ones."""

    def __init__(self) -> None:
        self.actions: list[Action] = []

    def add(self, action: Action) -> None:
        """Enable an action; enabling it twice has no further effect."""
        if action.position < 0:
            action.position = len(self.actions)
            self.actions.append(action)

    def remove(self, action: Action) -> None:
        """Disable an action if it is enabled."""
        position = action.position
        if position < 0:
            return
        last = self.actions.pop()
        if last is not action:
            self.actions[position] = last
            last.position = position
        action.position = -1

    def pick(self, chance: random.Random) -> Action:
        """Pick any enabled action; slow ones less often."""
        actions, draw = self.actions, chance.random
        size = len(actions)
        action = actions[int(draw() * size)]
        for _ in range(PASSED_OVER_MAX):
            if action.speed >= 1.0 or draw() < action.speed:
                break
            action = actions[int(draw() * size)]
        return action


class Channel(Action):
    """Messages from one sender to one receiver, first in, first out; the action delivers the first."""

    __slots__ = ("_deliver", "_ready", "items", "name", "receiver", "sender")

    def __init__(
        self,
        name: str,
        sender: str,
        receiver: str,
        ready: ReadySet,
        deliver: Callable[[Channel, Any], None],
        speed: float,
    ) -> None:
        super().__init__(speed)
        self.name = name
        self.sender = sender
        self.receiver = receiver
        self.items: deque[Any] = deque()
        self._ready = ready
        self._deliver = deliver

    def push(self, item: Any) -> None:
        """Send."""
        self.items.append(item)
        self._ready.add(self)

    def cut(self, length: int) -> int:
        """Drop all but the first `length` messages; return how many were lost."""
        lost = 0
        while len(self.items) > length:
            self.items.pop()
            lost += 1
        if not self.items:
            self._ready.remove(self)
        return lost

    def run(self) -> None:
        item = self.items.popleft()
        if not self.items:
            self._ready.remove(self)
        self._deliver(self, item)
