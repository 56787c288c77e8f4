"""The executable form of a pattern: states, with steps that take an event, ignore it, or proceed without one.

A step has a guard: conditions that must or must not hold, and sets of conditions that must not all hold. Some states
have a special meaning:

- the final state: the match is complete;
- *stops*: a forbidden event has arrived, and the partial match is discarded;
- *pending* states wait for time: if it runs out and no stop was reached, the match is complete.

A state may have a time limit: a partial match that stays in it that long after its last event times out.

[`making`](making.py) builds the automaton of a pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias


class Action(Enum):
    """How a step handles the event."""

    TAKE = "take"
    IGNORE = "ignore"
    PROCEED = "proceed"


#: the numbers of conditions, and whether they have to hold
Guard: TypeAlias = tuple[tuple[int, bool], ...]
#: the state of a complete match
FINAL: Final = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A step from one state to another. `unless`: sets of conditions; no set may hold as a whole."""

    action: Action
    target: int
    guard: Guard = ()
    unless: tuple[Guard, ...] = ()

    def conditions(self) -> set[int]:
        """Return the numbers of the conditions that the step may evaluate."""
        return {number for guard in (self.guard, *self.unless) for number, _ in guard}


@dataclass(frozen=True, slots=True)
class Automaton:
    """States by number: the stage name of each, its steps, and its time limit (ms), if any.

    `labels` distinguish the states of a stage, and stay the same when other stages of the pattern change.
    """

    names: tuple[str, ...]
    steps: tuple[tuple[Step, ...], ...]
    start: int
    windows: tuple[int | None, ...]
    labels: tuple[str, ...]
    pending: frozenset[int] = frozenset()
    stops: frozenset[int] = frozenset()

    def conditions(self) -> tuple[frozenset[int], ...]:
        """Return, for each state, the conditions that an event may be tested on there and in the states after it."""
        return tuple(frozenset(self._asked(state)) for state in range(len(self.steps)))

    def _asked(self, state: int) -> set[int]:
        steps = [step for source in self._onwards({state}) for step in self.steps[source]]
        targets = {step.target for step in steps if step.action is Action.TAKE}
        # After an event is taken, only steps toward the final state are considered.
        steps += [
            step for source in self._onwards(targets) for step in self.steps[source] if step.action is Action.PROCEED
        ]
        return {number for step in steps for number in step.conditions()}

    def _onwards(self, states: set[int]) -> set[int]:
        """Return these states and the states reachable from them without an event."""
        reachable, waiting = set(states), list(states)
        while waiting:
            for step in self.steps[waiting.pop()]:
                if step.action is Action.PROCEED and step.target not in reachable:
                    reachable.add(step.target)
                    waiting.append(step.target)
        return reachable
