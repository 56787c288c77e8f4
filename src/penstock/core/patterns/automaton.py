"""What a pattern is run as: states, with steps that take an event, pass it over, or go on without one.

A step has a guard: conditions that have to hold, or must not, and sets of such conditions of which none may be true as
a whole. Some states are more than a place between two events:

- the final one: the match is complete;
- *stops*: an event that must not be there has come, and the partial match is none any more;
- *pending* ones wait for time: when it is up and no stop was met, the match is complete.

A state may have a time: a partial match that is in it so long after its last event has taken too long.

[`making`](making.py) makes the automaton of a pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias


class Action(Enum):
    """What a step does with the event."""

    TAKE = "take"
    IGNORE = "ignore"
    PROCEED = "proceed"


#: numbers of conditions, and whether they have to hold
Guard: TypeAlias = tuple[tuple[int, bool], ...]
#: the state in which a match is complete
FINAL: Final = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A way from one state to another. `unless`: none of these may be true as a whole."""

    action: Action
    target: int
    guard: Guard = ()
    unless: tuple[Guard, ...] = ()

    def conditions(self) -> set[int]:
        """The numbers of the conditions that it may ask for."""
        return {number for guard in (self.guard, *self.unless) for number, _ in guard}


@dataclass(frozen=True, slots=True)
class Automaton:
    """States by their numbers: the name of the stage of each, its steps, and its time (ms), if it has one.

    `labels` tell the states of a stage apart, and stay the same when other stages of the pattern change.
    """

    names: tuple[str, ...]
    steps: tuple[tuple[Step, ...], ...]
    start: int
    windows: tuple[int | None, ...]
    labels: tuple[str, ...]
    pending: frozenset[int] = frozenset()
    stops: frozenset[int] = frozenset()

    def conditions(self) -> tuple[frozenset[int], ...]:
        """For each state the conditions that an event may be asked for there, and in the states that it leads to."""
        return tuple(frozenset(self._asked(state)) for state in range(len(self.steps)))

    def _asked(self, state: int) -> set[int]:
        steps = [step for one in self._onwards({state}) for step in self.steps[one]]
        taken = {step.target for step in steps if step.action is Action.TAKE}
        # Behind an event that is taken, only ways on to the final state are looked at.
        steps += [step for one in self._onwards(taken) for step in self.steps[one] if step.action is Action.PROCEED]
        return {number for step in steps for number in step.conditions()}

    def _onwards(self, states: set[int]) -> set[int]:
        """These states, and those to which one goes on from them without an event."""
        found, waiting = set(states), list(states)
        while waiting:
            for step in self.steps[waiting.pop()]:
                if step.action is Action.PROCEED and step.target not in found:
                    found.add(step.target)
                    waiting.append(step.target)
        return found
