"""Where events lead partial matches, as tables: the executable form of the decision trees.

Most conditions look at the event alone. They are evaluated for many events at once, and the answers of an event are its
*symbol*: an int whose bits are the answers, or a tuple of them. Two events with the same symbol lead to the same
states, unless a condition must look at the partial match as well. So the automaton has a table with one row for each
symbol that occurs, made from the decision trees (`automaton.Trees`) when it first does:

- `moves`: for each state, the move of a partial match in it:
  None: it ignores the event, and stays unchanged;
  `()`: the event fits nowhere, and the partial match ends;
  `(target, stage)`: the stage takes the event, and leads to the target, and nothing else is possible;
  `Ways`: anything else;
  `Question`: a condition outside the symbol decides.
- `begin`: the same for a match that begins with the event; None if none can.
- `known`: the answers by condition, for the conditions below a `Question`.
- `moves_any`: whether there is a move other than None for a state that a partial match can be in.

An event whose answers are not known has the symbol `UNKNOWN`. Its row is the roots of the trees.

**Idle events.** No condition holds for them, and they begin no match. `Moves.idleness` classifies their effect:

- `NOTHING`: all partial matches stay unchanged. So it need not be offered to any, as long as its time does not
  matter.
- `ONCE`: it changes partial matches in some states, the *unsettled* ones. Another one after it changes nothing more. In
  a loop, for example, an ignored event lets a partial match wait in two states, for the loop and for the next stage.
- `ALWAYS`: neither of these.

An idle event takes nothing, so its step and the step of the next event can be made as one, unless a partial match times
out in between. An event with the symbol `IDLE` waits for that. The row of the next event's symbol plus `IDLE` has the
moves of both.

**Passing idle events over.** An unsettled partial match often does the same at the next event whether or not idle ones
came before it; `Moves.hides_idle` returns whether that holds for the symbol of that event. As long as only such symbols
occur, idle events are passed over, and an event that begins a match and is like an idle one to an unsettled partial
match does not change that one: the row of its symbol plus `PASSED` has these moves. When partial matches are read, the
step is made up for (`Matcher.settle`). It concerns the unsettled partial matches that came to their state with an event
other than the last one of the key. For that, no ignored event may lead to an unsettled state, and then it is enough to
know whether the last event of a key was idle: if not, it was taken, and has the highest number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from enum import Enum
from itertools import chain
from typing import Any, Final, TypeAlias

from penstock.runtime.patterns.automaton import FINAL, Action, Automaton, Node, Question, Trees, Way, Ways

#: the symbol of an event whose simple conditions were not evaluated
UNKNOWN: Final = -1
#: the symbol of an idle event whose step may be made with that of the next event; added to the symbol of that one
IDLE: Final = 1 << 62
#: added to the symbol of an event before which idle ones may have been passed over
PASSED: Final = 1 << 61
#: returns whether a condition, by number, holds for the current event, given the link of the last event taken
Holds: TypeAlias = Callable[[int, int], bool]
#: the moves of a symbol, `begin`, `known` and `moves_any`, see the module docstring; plain for speed
Row: TypeAlias = tuple[tuple[Any, ...], Any, dict[int, bool], bool]


class Idleness(Enum):
    """The effect of an idle event, see the module docstring."""

    NOTHING = "nothing"
    ONCE = "once"
    ALWAYS = "always"


class Moves(dict[Hashable, Row]):
    """The table: `moves[symbol]` is a row.

    Args:
        automaton: the automaton.
        simple: the conditions whose answers are in symbols, in the order of their bits or items.
        twins: conditions that are the same as one of these, with that one.
        partly: conditions that a symbol has only a necessary part of; if the part holds, the rest has to be asked for.
    """

    def __init__(
        self,
        automaton: Automaton,
        simple: Sequence[int] = (),
        twins: Mapping[int, int] | None = None,
        partly: Collection[int] = (),
    ) -> None:
        super().__init__()
        self.trees = Trees(automaton)
        self._automaton = automaton
        self._simple = tuple(simple)
        self._twins = {} if twins is None else dict(twins)
        self._partly = frozenset(partly)
        #: the states that a partial match can be in between two events
        self._resting = sorted(
            {step.target for steps in automaton.steps for step in steps if step.action is not Action.PROCEED}
            - {FINAL}
            - automaton.stops
        )

    def __missing__(self, symbol: Hashable) -> Row:
        if isinstance(symbol, int) and symbol >= IDLE:
            row = self[symbol] = self._after_idle(symbol - IDLE)
            return row
        if isinstance(symbol, int) and symbol >= PASSED:
            row = self[symbol] = self._without_idle(symbol - PASSED)
            return row
        known = self._known(symbol)
        nodes = [self._node(state, known) for state in range(len(self._automaton.steps))]
        moves = tuple(map(_to_move, nodes))
        row = self[symbol] = moves, _to_begin(nodes[self._automaton.start]), known, self._moves_any(moves)
        return row

    def _moves_any(self, moves: Sequence[Any]) -> bool:
        never = {FINAL, *self._automaton.stops, *({self._automaton.start} - {*self._resting})}
        return any(move is not None for state, move in enumerate(moves) if state not in never)

    def _known(self, symbol: Hashable) -> dict[int, bool]:
        if symbol == UNKNOWN:
            return {}
        if isinstance(symbol, int):
            symbol = tuple(bool(symbol >> bit & 1) for bit in range(len(self._simple)))
        assert isinstance(symbol, tuple), symbol
        answers = zip(self._simple, symbol, strict=True)
        known = {number: answer for number, answer in answers if not (answer and number in self._partly)}
        return {**known, **{twin: known[number] for twin, number in self._twins.items()}}

    def _node(self, state: int, known: dict[int, bool]) -> Node:
        """Return the first node of a state's tree that these answers do not decide."""
        node = self.trees.roots[state]
        while isinstance(node, Question) and node.number in known:
            node = self._next(state, node, known[node.number])
        return node

    def _next(self, state: int, question: Question, answer: bool) -> Node:
        node = question.yes if answer else question.no
        return self.trees.answered(state, question, answer) if node is None else node

    def decide(self, state: int, node: Node, link: int, known: dict[int, bool], holds: Holds) -> Ways:
        """Return where an event leads a partial match in a state, asking for the answers that are missing.

        Args:
            state: the state.
            node: the node to begin with.
            link: the link of the partial match.
            known: answers that are the same for all partial matches; `holds` may add more of them.
            holds: evaluates the other conditions.
        """
        while isinstance(node, Question):
            number = node.number
            node = self._next(state, node, known[number] if number in known else holds(number, link))
        return node

    def idleness(self) -> Idleness:
        """Return the effect of an idle event, see the module docstring."""
        moves, begin, _, _ = self[0]
        if begin is not None:
            return Idleness.ALWAYS
        if not self.unsettled():
            return Idleness.NOTHING
        outcomes = [_outcome(state, moves[state]) for state in self._resting]
        return Idleness.ONCE if all(_is_settled(outcome, moves) for outcome in outcomes) else Idleness.ALWAYS

    def unsettled(self) -> frozenset[int]:
        """Return the states whose partial matches an idle event changes."""
        moves = self[0][0]
        return frozenset(state for state in self._resting if moves[state] is not None)

    def enters_unsettled_by_taking(self) -> bool:
        """Return whether no ignored event leads to an unsettled state."""
        unsettled, steps = self.unsettled(), chain.from_iterable(self._automaton.steps)
        return not any(step.action is Action.IGNORE and step.target in unsettled for step in steps)

    def hides_idle(self, symbol: int) -> bool:
        """Return whether an event of this symbol leads to the same whether or not an idle event came before it.

        For a table without questions.
        """
        moves, after_idle = self[symbol][0], self[symbol + IDLE][0]
        return all(_outcome(state, moves[state]) == _outcome(state, after_idle[state]) for state in self.unsettled())

    @property
    def knows_all(self) -> bool:
        """Whether symbols answer all conditions."""
        return not self._partly and self._automaton.asked_conditions() <= {*self._simple, *self._twins}

    def _after_idle(self, symbol: int) -> Row:
        """Return the row of an event that follows an idle one."""
        before, (moves, begin, known, _) = self[0][0], self[symbol]
        composed: list[Any] = []
        for state, move in enumerate(before):
            if move is None:
                composed.append(moves[state])
                continue
            outcomes = [_outcome(way.target, moves[way.target]) or [] for way in _outcome(state, move) or []]
            ways = tuple(chain.from_iterable(outcomes))
            is_kept = any(way.stage is not None for way in ways)
            composed.append(_to_move(Ways(ways, ways == (Way(state),), is_kept)))
        return tuple(composed), begin, known, self._moves_any(composed)

    def _without_idle(self, symbol: int) -> Row:
        """Return the row of an event that makes no step for partial matches to which it is like an idle one."""
        idle, (moves, begin, known, _) = self[0][0], self[symbol]
        if begin.__class__ is not tuple:
            return self[symbol]
        like_idle = {
            state for state in self.unsettled() if _outcome(state, moves[state]) == _outcome(state, idle[state])
        }
        moves = tuple(None if state in like_idle else move for state, move in enumerate(moves))
        return moves, begin, known, self._moves_any(moves)


def _outcome(state: int, move: Any) -> list[Way] | None:
    """Return the transitions of a move; None if a condition outside the symbol decides."""
    if isinstance(move, Question):
        return None
    if move is None:
        return [Way(state)]
    if isinstance(move, Ways):
        return list(move.ways)
    return [Way(*move)] if move else []


def _is_settled(outcome: Sequence[Way] | None, moves: Sequence[Any]) -> bool:
    """Return whether another idle event would change nothing after these transitions, which take no event."""
    return outcome is not None and all(
        way.stage is None and way.target != FINAL and moves[way.target] is None for way in outcome
    )


def _to_move(node: Node) -> Any:
    if isinstance(node, Question):
        return node
    if node.stays:
        return None
    return () if not node.ways else _simple_move(node)


def _to_begin(node: Node) -> Any:
    if isinstance(node, Question):
        return node
    return _simple_move(node) if node.takes else None


def _simple_move(ways: Ways) -> Any:
    if len(ways.ways) > 1:
        return ways
    (way,) = ways.ways
    return ways if way.stage is None or way.ends else (way.target, way.stage)
