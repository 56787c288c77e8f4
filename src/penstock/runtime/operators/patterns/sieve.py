"""Which of the events that are due are offered to partial matches: the sieve in front of the matcher.

Most events of a stream begin no match and continue none. Looking at each of them key by key would cost more than all
matches together, so whole columns of events are sorted out first:

1. Conditions without which no match begins are evaluated for all events.
2. An event of a key without a started match, before the first event of that key that may begin one, is left out. Other
   conditions are not evaluated for it.
3. The remaining simple conditions are evaluated, and the answers of an event become its symbol.
4. If an event for which no condition holds changes no partial match in any state (`Moves.is_idle`), such events are
   left out. Not so if the passing of time completes matches: then a match has the time of the next event of its key,
   whatever that is.

What is left is put in the order of time, and dealt out to the keys. Only now do events move, and few of them do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.runtime.operators.patterns.conditions import Answers, ConditionsAtWork
from penstock.runtime.patterns.matcher import Matcher
from penstock.runtime.patterns.moves import UNKNOWN

Indices = npt.NDArray[np.intp]
Symbol = TypeVar("Symbol")
#: the events of a key for the matcher, each with its time and its symbol
Offered: TypeAlias = "list[tuple[int, Any, int]]"
#: no event has a later time
_LAST_MS: Final = (1 << 63) - 1


@dataclass(slots=True)
class DueEvents:
    """Events that are due, as columns, in the order in which they arrived."""

    keys: Sequence[Any]
    times: npt.NDArray[np.int64]
    events: Sequence[Any]


def pick(values: Sequence[Any], indices: Sequence[int]) -> Sequence[Any]:
    """Return the values at these indices."""
    return itemgetter(*indices)(values) if len(indices) > 1 else [values[index] for index in indices]


class Sieve:
    """See the module docstring.

    Args:
        conditions: evaluates conditions.
        matcher: whom the events are offered to.
    """

    def __init__(self, conditions: ConditionsAtWork, matcher: Matcher) -> None:
        self._conditions = conditions
        #: at least one of these holds for an event that begins a match; None if it may hold for none
        self._beginning = matcher.automaton.needed_to_begin(conditions.simple)
        self._rest = [number for number in conditions.simple if number not in (self._beginning or ())]
        self._bits = {number: bit for bit, number in enumerate(conditions.simple)}
        self._drops_idle = bool(conditions.simple) and matcher.moves.is_idle(0) and not matcher.minds_time

    def sift(self, due: DueEvents, active: Collection[Any]) -> dict[Any, Offered]:
        """Return the events that the matcher needs to see, by key and in the order of their times.

        `active`: the keys with a started match.
        """
        answers: dict[int, Answers] | None = {}
        indices: Indices | None = None
        if self._beginning is not None:
            answers = self._conditions.evaluate(self._beginning, due.events)
            if answers is not None:
                indices = self._find_active(due, list(answers.values()), active)
                answers = {number: column[indices] for number, column in answers.items()}
        if indices is not None and len(indices) == len(due.events):
            indices = None
        events = due.events if indices is None else pick(due.events, indices.tolist())
        rest = None if answers is None else self._conditions.evaluate(self._rest, events)
        if answers is None or rest is None:
            return deal(due, indices, repeat(UNKNOWN))
        symbols = np.zeros(len(events), np.int64)
        for number, column in (*answers.items(), *rest.items()):
            if number in self._bits:
                symbols |= column.astype(np.int64) << self._bits[number]
        if self._drops_idle:
            kept = np.flatnonzero(symbols)
            indices, symbols = (kept if indices is None else indices[kept]), symbols[kept]
        return deal(due, indices, symbols.tolist())

    def _find_active(self, due: DueEvents, columns: Sequence[Answers], active: Collection[Any]) -> Indices:
        """Return the events of keys with a started match, and of others from their first event that may begin one."""
        keys = due.keys
        is_offered = np.fromiter(map(active.__contains__, keys), np.bool_, len(keys))
        begins = np.flatnonzero(columns[0] if len(columns) == 1 else np.logical_or.reduce(columns))
        if len(begins):
            first_ms: dict[Any, int] = {}
            for key, time_ms in zip(pick(keys, begins.tolist()), due.times[begins].tolist(), strict=True):
                if time_ms < first_ms.get(key, _LAST_MS):
                    first_ms[key] = time_ms
            others = np.flatnonzero(~is_offered)
            begun = np.fromiter(map(first_ms.get, pick(keys, others.tolist()), repeat(_LAST_MS)), np.int64, len(others))
            is_offered[others] = due.times[others] >= begun
        return np.flatnonzero(is_offered)


def deal(
    due: DueEvents, indices: Indices | None, symbols: Iterable[Symbol]
) -> dict[Any, list[tuple[int, Any, Symbol]]]:
    """Return events by key and in the order of their times, each with its time and its symbol.

    `indices`: of the events, which `symbols` belong to; None for all events.
    """
    keys, times, events = due.keys, due.times, due.events
    if indices is not None:
        times = times[indices]
    if len(times) > 1 and (times[1:] < times[:-1]).any():
        order = np.argsort(times, kind="stable")
        indices = order if indices is None else indices[order]
        times = times[order]
        if not isinstance(symbols, repeat):
            symbols = pick(list(symbols), order.tolist())
    if indices is not None:
        chosen = indices.tolist()
        keys, events = pick(keys, chosen), pick(events, chosen)
    by_key: defaultdict[Any, list[tuple[int, Any, Symbol]]] = defaultdict(list)
    for key, row in zip(keys, zip(times.tolist(), events, symbols, strict=False), strict=True):
        by_key[key].append(row)
    return by_key
