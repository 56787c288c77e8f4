"""Where events lead partial matches, as tables: the executable form of the decision trees.

Most conditions look at the event alone. They are evaluated for many events at once, and the answers of an event are its
*symbol*: an int whose bits are the answers, or a tuple of them. Two events with the same symbol lead to the same
states, unless a condition must look at the partial match as well. So the automaton has a table with one row for each
symbol that occurs, made from the decision trees (`automaton.Trees`) when it first does:

- `moves`: for each state, the move of a partial match in it:
  None: it ignores the event, and stays as it is;
  `()`: the event fits nowhere, and the partial match ends;
  `(target, stage)`: the stage takes the event, and leads to the target, and nothing else is possible;
  `Ways`: anything else;
  `Question`: a condition outside the symbol decides.
- `begin`: the same for a match that begins with the event; None if none can.
- `known`: the answers by condition, for the conditions below a `Question`.

An event whose answers are not known has the symbol `UNKNOWN`. Its row is the roots of the trees.

`Moves.is_idle`: whether an event of a symbol leaves all partial matches as they are, and begins none. Then it need not
be offered to any, as long as nobody looks at its time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, Final, TypeAlias

from penstock.runtime.patterns.automaton import FINAL, Action, Automaton, Node, Question, Trees, Ways

#: the symbol of an event whose simple conditions were not evaluated
UNKNOWN: Final = -1
#: returns whether a condition, by number, holds for the current event, given the link of the last event taken
Holds: TypeAlias = Callable[[int, int], bool]
#: the moves of a symbol, `begin` and `known`, see the module docstring; plain for speed
Row: TypeAlias = tuple[tuple[Any, ...], Any, dict[int, bool]]


class Moves(dict[Hashable, Row]):
    """The table: `moves[symbol]` is a row.

    Args:
        automaton: the automaton.
        simple: the conditions whose answers are in symbols, in the order of their bits or items.
        partly: those of them of which a symbol has only a part, without which they do not hold; if the part holds, the
            rest has to be asked for.
    """

    def __init__(self, automaton: Automaton, simple: Sequence[int] = (), partly: Collection[int] = ()) -> None:
        super().__init__()
        self.trees = Trees(automaton)
        self._automaton = automaton
        self._simple = tuple(simple)
        self._partly = frozenset(partly)
        #: the states that a partial match can be in between two events
        self._resting = sorted(
            {step.target for steps in automaton.steps for step in steps if step.action is not Action.PROCEED}
            - {FINAL}
            - automaton.stops
        )

    def __missing__(self, symbol: Hashable) -> Row:
        known = self._known(symbol)
        nodes = [self._node(state, known) for state in range(len(self._automaton.steps))]
        row: Row = tuple(map(_to_move, nodes)), _to_begin(nodes[self._automaton.start]), known
        self[symbol] = row
        return row

    def _known(self, symbol: Hashable) -> dict[int, bool]:
        if symbol == UNKNOWN:
            return {}
        if isinstance(symbol, int):
            symbol = tuple(bool(symbol >> bit & 1) for bit in range(len(self._simple)))
        assert isinstance(symbol, tuple), symbol
        answers = zip(self._simple, symbol, strict=True)
        return {number: answer for number, answer in answers if not (answer and number in self._partly)}

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

    def is_idle(self, symbol: Hashable) -> bool:
        """Return whether events of a symbol change no partial match and begin none."""
        moves, begin, _ = self[symbol]
        return begin is None and all(moves[state] is None for state in self._resting)


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
