"""Which of the events that are due are offered to partial matches: the sieve in front of the matcher.

Most events of a stream begin no match and continue none. Looking at each of them key by key would cost more than all
matches together, so whole columns of events are sorted out first:

1. An event of a key without a started match, before the first event of that key that may begin one, is left out.
2. The answers of the simple conditions for an event become its symbol. Idle events, for which no condition holds, are
   left out if they change nothing in any state, or if one directly before them has changed all that they would change,
   or as long as no event shows whether there were any (`penstock.runtime.patterns.moves`). For the last, the events are
   noted, because a snapshot must show it (`PassedEvents`).
3. Not so if the passing of time completes matches: then a match has the time of the next event of its key, whatever
   that is. So an event of a key stays if a partial match of the key may have timed out by then.

The remaining events are sorted by time and dealt out to their keys. Only now do events move, and few of them do.

**When conditions are evaluated.** If few of the events before belonged to keys with a started match, only conditions
without which no match begins are evaluated for all events, and the others for those that step 1 leaves. If most did,
the events of a whole batch are screened when the first of them is due: all conditions are evaluated, and step 1 has
less to do. A condition is evaluated once for an event, or twice when one way gives way to the other.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise, repeat
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.runtime.operators.patterns.conditions import Answers, ConditionsAtWork
from penstock.runtime.patterns.matcher import Matcher
from penstock.runtime.patterns.moves import IDLE, PASSED, UNKNOWN, Idleness

Indices = npt.NDArray[np.intp]
Symbols = npt.NDArray[np.int64]
Symbol = TypeVar("Symbol")
#: the events of a key for the matcher, each with its time and its symbol
Offered: TypeAlias = "list[tuple[int, Any, int]]"
#: no event has a later time
_LAST_MS: Final = (1 << 63) - 1


def pick(values: Sequence[Any], indices: Sequence[int]) -> Sequence[Any]:
    """Return the values at these indices."""
    return itemgetter(*indices)(values) if len(indices) > 1 else [values[index] for index in indices]


@dataclass(slots=True)
class Columns:
    """Events in arrival order. `symbols`: None if they are not known."""

    keys: Sequence[Any]
    times: npt.NDArray[np.int64]
    events: Sequence[Any]
    symbols: Symbols | None = None

    def chosen(self, indices: Indices) -> Columns:
        """Return the events at these indices."""
        if len(indices) == len(self.keys):
            return self
        numbers = indices.tolist()
        symbols = None if self.symbols is None else self.symbols[indices]
        return Columns(pick(self.keys, numbers), self.times[indices], pick(self.events, numbers), symbols)


@dataclass(slots=True)
class DueEvents:
    """Those events of a batch that are due. `indices`: which they are."""

    batch: Columns
    indices: Indices

    def read(self) -> Columns:
        """Return the events."""
        return self.batch.chosen(self.indices)

    def read_keys(self) -> Sequence[Any]:
        """Return the keys of the events."""
        return pick(self.batch.keys, self.indices.tolist())

    def read_where(self, is_wanted: npt.NDArray[np.bool_]) -> Columns:
        """Return some of the events."""
        return self.batch.chosen(self.indices[is_wanted])


def join_columns(columns: Sequence[Columns]) -> Columns:
    """Return the events of at least one part, part after part."""
    if len(columns) == 1:
        return columns[0]
    keys: list[Any] = []
    events: list[Any] = []
    symbols = [part.symbols for part in columns if part.symbols is not None]
    for part in columns:
        keys += part.keys
        events += part.events
    times = np.concatenate([part.times for part in columns])
    return Columns(keys, times, events, np.concatenate(symbols) if len(symbols) == len(columns) else None)


@dataclass(frozen=True, slots=True)
class KeysAtWork:
    """The keys that a sieve must know.

    Attributes:
        active: the keys with a started match.
        timers: up to the last of the events, each time at which a partial match may time out, with its key.
        unsettled: returns the keys with a partial match in an unsettled state, after the steps of the events that
            `PassedEvents` has.
    """

    active: Collection[Any]
    timers: Iterable[tuple[int, Any]]
    unsettled: Callable[[], Collection[Any]]


class PassedEvents:
    """Events that were due while idle ones were passed over, see `penstock.runtime.patterns.moves`."""

    def __init__(self) -> None:
        self._turns: deque[tuple[int, int, list[DueEvents]]] = deque()
        self.count = 0

    def note(self, due: Sequence[DueEvents]) -> None:
        """Add events of known symbols that were due together."""
        turn = [
            DueEvents(Columns(some.batch.keys, some.batch.times, (), some.batch.symbols), some.indices) for some in due
        ]
        count = sum(len(some.indices) for some in due)
        if not count:
            return
        self._turns.append((max(int(some.batch.times.max()) for some in due), count, turn))
        self.count += count

    def forget(self, up_to: int) -> None:
        """Remove what came before each event of a later time, if no partial match is older than that."""
        while self._turns and self._turns[0][0] <= up_to:
            self.count -= self._turns.popleft()[1]

    def drain(self) -> dict[Any, bool]:
        """Remove all events, and return their keys, each with whether its last event is idle."""
        is_idle: dict[Any, bool] = {}
        for _, _, due in self._turns:
            keys = list(chain.from_iterable(some.read_keys() for some in due))
            order = np.argsort(np.concatenate([some.batch.times[some.indices] for some in due]), kind="stable")
            idle = np.concatenate([_known(some.batch)[some.indices] == 0 for some in due])
            is_idle.update(zip(pick(keys, order.tolist()), idle[order].tolist(), strict=True))
        self._turns.clear()
        self.count = 0
        return is_idle


class Sieve:
    """See the module docstring.

    Args:
        conditions: evaluates conditions.
        matcher: whom the events are offered to.
    """

    def __init__(self, conditions: ConditionsAtWork, matcher: Matcher) -> None:
        self._conditions = conditions
        #: at least one of these holds for an event that begins a match; None if it may hold for none
        needed = matcher.automaton.needed_to_begin({*conditions.simple, *conditions.twins})
        self._beginning = (
            None if needed is None else list(dict.fromkeys(conditions.twins.get(number, number) for number in needed))
        )
        self._rest = [number for number in conditions.simple if number not in (self._beginning or ())]
        self._bits = {number: bit for bit, number in enumerate(conditions.simple)}
        self._begin_mask = sum(1 << self._bits[number] for number in self._beginning or ())
        self._idleness = matcher.idleness() if conditions.simple else Idleness.ALWAYS
        #: for how long after an event that may begin a match the times of others matter; None if they never do
        self._minded_ms = matcher.pattern.within_ms if matcher.minds_time else None
        self._is_crowded = False
        self._hides_idle = cache(lambda symbol: matcher.moves.hides_idle(symbol - PASSED))
        #: whether idle events are passed over: as long as no event may show them
        self._passes_idle = self._idleness is Idleness.ONCE and matcher.may_pass_idle
        self.passed = PassedEvents()

    @property
    def screen(self) -> Callable[[Sequence[Any]], Symbols | None] | None:
        """Returns the symbols of a batch; None to evaluate conditions only for those of its events that are due."""
        is_wanted = self._is_crowded and self._idleness is not Idleness.ALWAYS and self._beginning is not None
        return self._screen if is_wanted else None

    def _screen(self, events: Sequence[Any]) -> Symbols | None:
        answers = self._conditions.evaluate(self._conditions.simple, events)
        return None if answers is None else self._symbols(answers, len(events))

    def sift(self, due: Sequence[DueEvents], keys: KeysAtWork) -> dict[Any, Offered]:
        """Return the events that the matcher needs to see, by key and in the order of their times.

        `due`: events in the order in which they arrived.
        """
        if all(some.batch.symbols is not None for some in due):
            busy = join_columns([some.read_where(_known(some.batch)[some.indices] != 0) for some in due])
            busy = self._leave_active(busy, (_known(busy) & self._begin_mask) != 0, keys.active)
        else:
            rows = self._evaluate(join_columns([some.read() for some in due]), keys.active)
            if rows.symbols is None:
                self._offer_idle(keys)
                return deal(rows, repeat(UNKNOWN))
            if self._idleness is Idleness.ALWAYS:
                return deal(rows, rows.symbols.tolist())
            busy = rows.chosen(np.flatnonzero(rows.symbols))
            due = [DueEvents(rows, np.arange(len(rows.keys)))]
        if self._idleness is Idleness.ONCE:
            symbols = (_known(busy) + PASSED).tolist()
            if self._passes_idle and all(map(self._hides_idle, set(symbols))):
                self.passed.note(due)
                return deal(busy, symbols)
            self._offer_idle(keys)
            # All events of some keys, in the order in which they arrived.
            wanted = {*busy.keys, *keys.unsettled()}
            return _deal_with_idle(join_columns([some.read_where(_contain(wanted, some.read_keys())) for some in due]))
        if self._minded_ms is not None:
            idle = join_columns([some.read_where(_known(some.batch)[some.indices] == 0) for some in due])
            busy = join_columns([busy, idle.chosen(self._find_minded(busy, idle, keys.timers))])
        return deal(busy, _known(busy).tolist())

    def _offer_idle(self, keys: KeysAtWork) -> None:
        """Pass over idle events no more, because an event may show whether there were any."""
        if self._passes_idle:
            self._passes_idle = False
            keys.unsettled()

    def _evaluate(self, rows: Columns, active: Collection[Any]) -> Columns:
        """Return the events that may matter with their symbols, or all of them without, if a condition raises."""
        rows = Columns(rows.keys, rows.times, rows.events)
        known: Symbols | None = None
        if self._beginning is not None:
            answers = self._conditions.evaluate(self._beginning, rows.events)
            if answers is None:
                return rows
            rows.symbols = self._symbols(answers, len(rows.keys))
            rows = self._leave_active(rows, rows.symbols != 0, active)
            known = rows.symbols
        answers = self._conditions.evaluate(self._rest, rows.events)
        symbols = None if answers is None else self._symbols(answers, len(rows.keys))
        if symbols is not None and known is not None:
            symbols |= known
        rows.symbols = symbols
        return rows

    def _symbols(self, answers: Mapping[int, Answers], count: int) -> Symbols:
        symbols = np.zeros(count, np.int64)
        for number, column in answers.items():
            symbols |= column.astype(np.int64) << self._bits[number]
        return symbols

    def _leave_active(self, rows: Columns, may_begin: npt.NDArray[np.bool_], active: Collection[Any]) -> Columns:
        """Return the events of keys with a started match, and of others from their first event that may begin one."""
        keys, times = rows.keys, rows.times
        is_offered = _contain(active, keys)
        begins = np.flatnonzero(may_begin)
        if len(begins):
            first_ms: dict[Any, int] = {}
            for key, time_ms in zip(pick(keys, begins.tolist()), times[begins].tolist(), strict=True):
                if time_ms < first_ms.get(key, _LAST_MS):
                    first_ms[key] = time_ms
            others = np.flatnonzero(~is_offered)
            is_offered[others] = times[others] >= _looked_up(first_ms, pick(keys, others.tolist()))
        offered = np.flatnonzero(is_offered)
        self._is_crowded = 2 * len(offered) > len(keys)
        return rows.chosen(offered)

    def _find_minded(self, rows: Columns, others: Columns, timers: Iterable[tuple[int, Any]]) -> Indices:
        """Return those of the other events by whose time a partial match may have timed out.

        `rows`: the events that may begin one.
        """
        assert self._minded_ms is not None, "time does not matter"
        if not len(others.keys):
            return np.empty(0, np.intp)
        due_ms: dict[Any, int] = {}
        for time_ms, key in timers:
            due_ms[key] = min(time_ms, due_ms.get(key, time_ms))
        last_ms = int(others.times.max())
        begun = np.flatnonzero(rows.times <= last_ms - self._minded_ms)
        for key, time_ms in zip(pick(rows.keys, begun.tolist()), rows.times[begun].tolist(), strict=True):
            time_ms += self._minded_ms
            due_ms[key] = min(time_ms, due_ms.get(key, time_ms))
        return np.flatnonzero(others.times >= _looked_up(due_ms, others.keys))


def _looked_up(times: Mapping[Any, int], keys: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return the time of each key, the last of all times if it has none."""
    return np.fromiter(map(times.get, keys, repeat(_LAST_MS)), np.int64, len(keys))


def _contain(wanted: Collection[Any], keys: Sequence[Any]) -> npt.NDArray[np.bool_]:
    """Return for each key whether it is a wanted one."""
    return np.fromiter(map(wanted.__contains__, keys), np.bool_, len(keys))


def _known(rows: Columns) -> Symbols:
    assert rows.symbols is not None, "their symbols are known"
    return rows.symbols


def _deal_with_idle(rows: Columns) -> dict[Any, Offered]:
    """Deal events out as `deal` does, but of several idle ones in a row only the first, with the symbol `IDLE`."""
    count = len(rows.keys)
    if not count:
        return {}
    first_indices: dict[Any, int] = {}
    codes = np.fromiter(map(first_indices.setdefault, rows.keys, range(count)), np.int64, count)
    order = np.lexsort((rows.times, codes))
    codes, symbols = codes[order], _known(rows)[order]
    is_idle = symbols == 0
    is_repeated = is_idle[1:] & is_idle[:-1] & (codes[1:] == codes[:-1])
    kept = np.flatnonzero(np.concatenate(([True], ~is_repeated)))
    codes, order, symbols = codes[kept], order[kept], np.where(is_idle, IDLE, symbols)[kept]
    events = list(zip(rows.times[order].tolist(), pick(rows.events, order.tolist()), symbols.tolist(), strict=True))
    begins = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist(), len(events)]
    keys = pick(rows.keys, codes[begins[:-1]].tolist())
    return {key: events[begin:end] for key, (begin, end) in zip(keys, pairwise(begins), strict=True)}


def deal(rows: Columns, symbols: Iterable[Symbol]) -> dict[Any, list[tuple[int, Any, Symbol]]]:
    """Return events by key and in the order of their times, each with its time and its symbol."""
    keys, times, events = rows.keys, rows.times, rows.events
    if len(times) > 1 and (times[1:] < times[:-1]).any():
        order = np.argsort(times, kind="stable")
        times, numbers = times[order], order.tolist()
        keys, events = pick(keys, numbers), pick(events, numbers)
        if not isinstance(symbols, repeat):
            symbols = pick(list(symbols), numbers)
    by_key: defaultdict[Any, list[tuple[int, Any, Symbol]]] = defaultdict(list)
    for key, row in zip(keys, zip(times.tolist(), events, symbols, strict=False), strict=True):
        by_key[key].append(row)
    return by_key
